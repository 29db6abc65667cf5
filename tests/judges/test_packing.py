from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.judges._sharing import AttentionInputs, Branches, DenseMask
from rmcalib.judges._inference.budget import Budget, pass_bytes, tokens_that_fit
from rmcalib.judges._devices import choose_device, is_out_of_memory
from rmcalib.judges._sharing import (
    ROW_TOKENS,
    Text,
    Work,
    cheapest_cuts,
    pack,
    plain_batches,
    row_length,
    shared_batches,
    tree_mask,
)
from rmcalib.judges._templates import pooled_position
from rmcalib.judges._templates import Encoded

# For every prompt: how many tokens its responses share, and how many each has of its own.
PROMPTS = st.lists(
    st.tuples(st.integers(0, 30), st.lists(st.integers(0, 40), min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)


def make_texts(prompts: list[tuple[int, list[int]]]) -> list[Text]:
    texts: list[Text] = []
    for number, (shared, own) in enumerate(prompts):
        shared = max(shared, 1)
        for length in own:
            ids = (*range(100, 100 + shared), *(1000 + 100 * len(texts) + i for i in range(length)))
            texts.append(Text(len(texts), number, Encoded(ids, shared, False, False), len(ids) - 1))
    return texts


@settings(max_examples=60, deadline=None)
@given(PROMPTS, st.integers(1, 300), st.booleans())
def test_plain_batches_hold_everything_once_and_keep_the_budget(
    prompts: list[tuple[int, list[int]]], budget: int, same_length: bool
) -> None:
    texts = make_texts(prompts)
    batches = plain_batches(texts, budget=budget, same_length=same_length)
    assert sorted(text.index for batch in batches for text in batch) == list(range(len(texts)))
    for batch in batches:
        longest = max(len(text) for text in batch)
        assert len(batch) == 1 or len(batch) * longest <= budget
        assert not same_length or len({len(text) for text in batch}) == 1


@settings(max_examples=60, deadline=None)
@given(PROMPTS, st.integers(1, 300), st.sampled_from([10.0, 1_000.0, float("inf")]))
def test_shared_batches_hold_everything_once_and_keep_the_budget(
    prompts: list[tuple[int, list[int]]], budget: int, kappa: float
) -> None:
    texts = make_texts(prompts)
    batches = shared_batches(texts, budget=budget, kappa=kappa)
    packed = [text.index for rows in batches for row in rows for tree in row for text in tree.texts]
    assert sorted(packed) == list(range(len(texts)))
    for rows in batches:
        alone = len(rows) == len(rows[0]) == len(rows[0][0].texts) == 1
        assert alone or len(rows) * max(map(row_length, rows)) <= budget
        assert all(len({text.prompt for text in tree.texts}) == 1 for row in rows for tree in row)


@settings(max_examples=40, deadline=None)
@given(PROMPTS, st.integers(20, 200), st.sampled_from([None, 1, 5]))
def test_a_text_in_a_row_attends_to_itself_and_nothing_else(
    prompts: list[tuple[int, list[int]]], budget: int, window: int | None
) -> None:
    texts = make_texts(prompts)
    for rows in shared_batches(texts, budget=budget, kappa=1e9):
        packed = pack(rows)
        trees, branches, positions = (
            torch.from_numpy(a) for a in (packed.trees, packed.branches, packed.positions)
        )
        mask = tree_mask(trees, branches, positions, dtype=torch.float32, window=window)[:, 0] == 0
        lines = tree_mask(
            trees,
            branches,
            positions,
            dtype=torch.float32,
            window=window,
            queries=torch.from_numpy(packed.pooled),
        )[:, 0]
        order = iter(packed.order)
        for r, columns in enumerate(packed.valid):
            for c in np.flatnonzero(columns):
                text = texts[next(order)]
                at = packed.pooled[r, c]
                # What the pooled token sees, put in order of position, is the text up to there.
                seen = np.flatnonzero(mask[r, at].numpy())
                seen = seen[np.argsort(packed.positions[r, seen])]
                begin = 0 if window is None else max(0, text.pooled + 1 - window)
                assert packed.input_ids[r, seen].tolist() == list(
                    text.encoded.input_ids[begin : text.pooled + 1]
                )
                assert packed.positions[r, seen].tolist() == list(range(begin, text.pooled + 1))
                assert torch.equal(lines[r, c] == 0, mask[r, at])
        assert mask.any(-1).all()  # every token sees something: no softmax over nothing


@settings(max_examples=25, deadline=None)
@given(PROMPTS, st.sampled_from([None, 3, 50]), st.integers(0, 9))
def test_attention_by_branch_equals_attention_with_the_mask(
    prompts: list[tuple[int, list[int]]], window: int | None, seed: int
) -> None:
    torch.manual_seed(seed)
    rows = [row for rows in shared_batches(make_texts(prompts), budget=300, kappa=1e9) for row in rows]
    packed = pack(rows)
    length = packed.input_ids.shape[1]
    query = torch.randn(len(rows), 4, length, 8)
    key, value = torch.randn(2, len(rows), 2, length, 8)
    mask = tree_mask(
        *(torch.from_numpy(a) for a in (packed.trees, packed.branches, packed.positions)),
        dtype=torch.float32,
        window=window,
    )
    inputs = AttentionInputs(query, key, value, scaling=0.3, window=window)
    expected = DenseMask(mask).attend(inputs)
    got = Branches(rows).attend(inputs)
    real = torch.from_numpy(packed.trees >= 0)
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)


def test_rows_are_filled() -> None:
    texts = make_texts([(30, [50, 50, 50, 50])] * 40)
    batches = shared_batches(texts, budget=ROW_TOKENS, kappa=float("inf"))
    rows = [row for rows in batches for row in rows]
    assert len(rows) == 10  # forty trees of 230 tokens, four in a row of 1,024


def test_a_tree_grows_beyond_a_row_only_if_that_is_cheaper() -> None:
    long_prompt = make_texts([(1_500, [100] * 4)])
    (batch,) = shared_batches(long_prompt, budget=8_192, kappa=3_000)
    assert [len(tree.texts) for row in batch for tree in row] == [4]
    long_responses = make_texts([(20, [3_000] * 4)])
    batches = shared_batches(long_responses, budget=16_384, kappa=3_000)
    assert [len(tree.texts) for rows in batches for row in rows for tree in row] == [1, 1, 1, 1]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 3))
def test_pooling_is_the_stock_rule_whatever_padding_follows(ids: list[int], pad: int) -> None:
    for extra in (0, 3):  # the stock rule on the padded text
        padded = torch.tensor(ids + [pad] * extra)
        keep = (padded != pad).int()
        assert pooled_position(ids, pad=pad) == int((torch.arange(len(padded)) * keep).argmax())
    assert pooled_position(ids, pad=None) == len(ids) - 1
    assert pooled_position(ids, pooling="last_token", pad=pad) == len(ids) - 1


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_the_budget_shrinks_with_memory_and_is_a_power_of_two(attention: str) -> None:
    config = SimpleNamespace(
        hidden_size=4096, intermediate_size=14336, num_attention_heads=32, _attn_implementation=attention
    )

    def budget(free: float, longest: int, masks: int = 1) -> int:
        return tokens_that_fit(config, free, itemsize=2, longest=longest, masks=masks)

    budgets = [budget(free, 8192) for free in (80e9, 8e9, 1e9, 1e6)]
    assert budgets == sorted(budgets, reverse=True)
    assert all(tokens & (tokens - 1) == 0 for tokens in budgets)
    assert 1 <= budgets[-1] <= 4
    assert budget(80e9, 32_768) <= budgets[0]  # longer rows, larger masks
    assert budget(80e9, 32_768, masks=0) == 32_768  # FlexAttention has none
    for free in (80e9, 8e9, 1e9):
        tokens = budget(free, 8192)
        assert pass_bytes(config, tokens, itemsize=2, longest=8192, masks=1) <= 0.5 * free
    one_row = pass_bytes(config, 32_768, itemsize=2, longest=32_768, masks=2)
    assert one_row > 32_768**2 * 16  # all pairs: distances, booleans and two masks


def test_a_budget_that_was_halved_recovers_and_learns() -> None:
    budget = Budget(1_000)
    budget.shrink(failed=1_000)
    assert budget.tokens == 500
    chunks = 0
    while budget.tokens < 1_000:
        budget.grow()
        chunks += 1
    budget.shrink(failed=1_000)  # it still does not fit
    again = 0
    while budget.tokens < 1_000:
        budget.grow()
        again += 1
    assert again == 2 * chunks
    budget.shrink(failed=1)
    assert budget.tokens == 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=9), st.integers(1, 200), st.integers(0, 80))
def test_the_batches_are_the_cheapest(lengths: list[int], budget: int, pass_cost: int) -> None:
    lengths = sorted(lengths, reverse=True)

    def cost(parts: list[slice]) -> float:
        total = 0.0
        for part in parts:
            rows = lengths[part]
            if len(rows) > 1 and len(rows) * rows[0] > budget:
                return math.inf
            total += len(rows) * rows[0] + pass_cost
        return total

    def ways(n: int) -> Iterator[list[slice]]:
        for cut in itertools.product([False, True], repeat=n - 1):
            ends = [i + 1 for i, here in enumerate(cut) if here] + [n]
            yield [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]

    got = cheapest_cuts(lengths, budget=budget, pass_cost=pass_cost)
    assert [row for part in got for row in lengths[part]] == lengths
    assert cost(got) == min(cost(parts) for parts in ways(len(lengths)))


def test_devices_are_named_and_unknown_ones_refused() -> None:
    assert choose_device("cpu").type == "cpu"
    assert choose_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(ValueError, match="device: unknown 'gpu'"):
        choose_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="no 'cuda' on this machine"):
            choose_device("cuda")
    assert not is_out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize("kappa", [10_000.0, math.inf])
def test_few_tokens_are_padding_at_the_lengths_of_a_benchmark(kappa: float) -> None:
    rng = np.random.default_rng(0)
    prompts = []
    for _ in range(256):
        usual = rng.normal(np.log(280), 0.7)
        own = np.minimum(rng.lognormal(usual, 0.5, size=4), 2_000).astype(int)
        prompts.append((35 + int(min(rng.lognormal(np.log(45), 1.5), 2_000)), own.tolist()))
    work = Work()
    bucket = 4_096 if math.isinf(kappa) else 1
    for start in range(0, len(prompts), 128):
        texts = make_texts(prompts[start : start + 128])
        for rows in shared_batches(texts, budget=32_768, kappa=kappa, usual=32_768, pass_cost=1_024):
            work.add([text for row in rows for tree in row for text in tree.texts], rows, bucket)
    assert work.padding <= 0.08 * (work.tokens - work.shared + work.padding)
    assert work.tokens == sum(shared + length for shared, own in prompts for length in own)
    assert work.shared > 0.1 * work.tokens
    assert work.passes < 60

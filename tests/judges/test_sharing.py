"""Batches, masks and attention over trees; and every causal family of transformers."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.judges._scoring import ItemScorer, Work, full_rows, grow_trees, sorted_batches
from rmcalib.judges._sharing import (
    Row,
    Text,
    Tree,
    branch_attention,
    how_to_share,
    pack,
    row_length,
    tree_mask,
)
from rmcalib.judges._templates import Encoded, pooled_position
from tests.judges.families import WINDOW, families, family_model, family_texts

# For every prompt: how many tokens its responses share, and how many each has of its own.
Prompts = list[tuple[int, list[int]]]
PROMPTS = st.lists(
    st.tuples(st.integers(1, 30), st.lists(st.integers(0, 40), min_size=1, max_size=5)),
    min_size=1,
    max_size=8,
)
RECURRENT = {"mamba", "falcon_mamba", "jamba", "minimax", "olmo_hybrid", "qwen3_next", "recurrent_gemma"}


def make_texts(prompts: Prompts) -> list[Text]:
    texts: list[Text] = []
    for number, (shared, own) in enumerate(prompts):
        for length in own:
            ids = (*range(100, 100 + shared), *(1000 + 100 * len(texts) + i for i in range(length)))
            texts.append(Text(len(texts), number, Encoded(ids, shared, False), len(ids) - 1))
    return texts


def texts_of(rows: list[Row]) -> list[Text]:
    return [text for row in rows for tree in row for text in tree.texts]


@settings(max_examples=60, deadline=None)
@given(PROMPTS, st.integers(1, 300), st.sampled_from([0, 10, 1_000]), st.booleans())
def test_batches_hold_everything_once_and_keep_their_limits(
    prompts: Prompts, budget: int, padding: int, share: bool
) -> None:
    texts = make_texts(prompts)
    trees = grow_trees(texts, longest=budget) if share else [Tree((text,)) for text in texts]
    assert all(len({text.prompt for text in tree.texts}) == 1 for tree in trees)
    batches = sorted_batches([(tree,) for tree in trees], budget=budget, padding=padding)
    assert sorted(text.index for rows in batches for text in texts_of(rows)) == list(range(len(texts)))
    for rows in batches:
        lengths = [row_length(row) for row in rows]
        assert len(rows) == 1 or len(rows) * max(lengths) <= budget
        assert len(rows) * max(lengths) - sum(lengths) <= padding
    full = full_rows(trees, budget)
    assert sorted(text.index for text in texts_of(full)) == list(range(len(texts)))
    assert all(len(row) == 1 or row_length(row) <= budget for row in full)


@settings(max_examples=30, deadline=None)
@given(PROMPTS, st.sampled_from([None, 1, 5, 50]), st.integers(0, 9))
def test_a_text_attends_to_itself_and_nothing_else_by_mask_and_by_branch(
    prompts: Prompts, window: int | None, seed: int
) -> None:
    texts = make_texts(prompts)
    rows = full_rows(grow_trees(texts, longest=200), 200)
    packed = pack(rows)
    layout = [torch.from_numpy(array) for array in (packed.trees, packed.branches, packed.positions)]
    mask = tree_mask(*layout, dtype=torch.float32, window=window)
    assert (mask == 0).any(-1).all()  # every token sees something: no softmax over nothing
    for place, index in zip(packed.pooled, packed.order, strict=True):
        row, token = divmod(int(place), packed.input_ids.shape[1])
        text = texts[index]
        # What the pooled token sees, put in order of position, is the text up to there.
        seen = np.flatnonzero(mask[row, 0, token].numpy() == 0)
        seen = seen[np.argsort(packed.positions[row, seen])]
        begin = 0 if window is None else max(0, text.pooled + 1 - window)
        assert packed.input_ids[row, seen].tolist() == list(text.encoded.input_ids[begin : text.pooled + 1])
        assert packed.positions[row, seen].tolist() == list(range(begin, text.pooled + 1))
    torch.manual_seed(seed)
    length = packed.input_ids.shape[1]
    query, (key, value) = torch.randn(len(rows), 4, length, 8), torch.randn(2, len(rows), 2, length, 8)
    expected = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=0.3, enable_gqa=True
    ).transpose(1, 2)
    got = branch_attention(packed.parts)(query, key, value, 0.3, window)
    real = torch.from_numpy(packed.trees >= 0)
    torch.testing.assert_close(got[real], expected[real], atol=1e-5, rtol=0)


def test_rows_are_filled_and_trees_are_not_too_long() -> None:
    even = grow_trees(make_texts([(30, [50] * 4)] * 40), longest=1_024)
    assert len(full_rows(even, 1_024)) == 10  # forty trees of 230 tokens, four in a row
    long_prompt, long_responses = make_texts([(1_500, [100] * 4)]), make_texts([(20, [3_000] * 4)])
    assert [len(tree.texts) for tree in grow_trees(long_prompt, longest=8_192)] == [4]
    assert [len(tree.texts) for tree in grow_trees(long_responses, longest=8_192)] == [2, 2]


def test_few_tokens_are_padding_at_the_lengths_of_a_benchmark() -> None:
    rng = np.random.default_rng(0)
    prompts = []
    for _ in range(256):
        usual = rng.normal(np.log(280), 0.7)
        own = np.minimum(rng.lognormal(usual, 0.5, size=4), 2_000).astype(int)
        prompts.append((35 + int(min(rng.lognormal(np.log(45), 1.5), 2_000)), own.tolist()))
    work = Work()
    for start in range(0, len(prompts), 128):
        trees = grow_trees(make_texts(prompts[start : start + 128]), longest=8_192)
        for rows in sorted_batches([(tree,) for tree in trees], budget=32_768, padding=1_024):
            work.add(texts_of(rows), [row_length(row) for row in rows])
    assert work.tokens == sum(shared + length for shared, own in prompts for length in own)
    assert work.shared > 0.1 * work.tokens
    assert work.padding <= 0.08 * (work.tokens - work.shared + work.padding)
    assert work.passes < 60


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=8), st.integers(0, 3))
def test_pooling_is_the_stock_rule_whatever_padding_follows(ids: list[int], pad: int) -> None:
    for extra in (0, 3):  # the stock rule on the padded text
        padded = torch.tensor(ids + [pad] * extra)
        keep = (padded != pad).int()
        assert pooled_position(ids, pad=pad) == int((torch.arange(len(padded)) * keep).argmax())
    assert (
        pooled_position(ids, pad=None) == pooled_position(ids, pooling="last_token", pad=pad) == len(ids) - 1
    )


def outcome(family: str) -> tuple[str | None, float] | None:
    """Score texts alone and together; return how prompts were shared, and the error, if it can be built."""
    texts = family_texts(2)
    try:
        model = family_model(family)
        plain = ItemScorer(model, 1_000, share=False)
        alone = np.concatenate([plain.rewards([(text,)]) for group in texts for text in group])
    except Exception:  # transformers cannot build it, or it is not a causal model
        return None
    scorer = ItemScorer(model, 1_000)
    off_by = float(np.abs(scorer.rewards(texts) - alone).max() / max(1.0, np.ptp(alone)))
    how: Any = scorer.sharing
    return (None if how is None else "branches" if how.branches else "mask"), off_by


def test_every_family_gets_the_right_rewards_and_most_share() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with warnings.catch_warnings(), contextlib.redirect_stderr(None):
        warnings.simplefilter("ignore")
        found = {family: one for family in families() if (one := outcome(family)) is not None}
    torch.set_num_threads(before)
    assert len(found) >= 60
    assert {family: off for family, (_, off) in found.items() if not off <= 1e-5} == {}
    sharing = {family for family, (how, _) in found.items() if how}
    assert len(sharing) >= 45
    assert not sharing & RECURRENT


@pytest.mark.parametrize(
    ("family", "windows"),
    [
        ("llama", {"full_attention": None}),  # a stray window
        ("mistral", {"full_attention": WINDOW}),
        ("starcoder2", {"full_attention": WINDOW}),
        ("cohere2", {"full_attention": None, "sliding_attention": WINDOW}),
    ],
)
def test_windows_count_only_where_they_are_applied(family: str, windows: dict[str, int | None]) -> None:
    model = family_model(family)
    model.backbone.config.sliding_window = WINDOW
    how: Any = how_to_share(model)
    assert how.windows == windows

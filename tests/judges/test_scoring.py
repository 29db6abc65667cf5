"""Rewards equal those of one response at a time, however texts are batched, shared or cut."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import accelerate
import numpy as np
import pytest
import torch

from rmcalib.benchmarks import Item
from rmcalib.judges import RewardModel, ScoredItem
from rmcalib.judges import _scoring as scoring
from rmcalib.judges import _sharing as sharing
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._scoring import Classifier, ItemScorer
from rmcalib.judges._weights import Output
from tests.judges.tiny import ARCHITECTURES, slow_rewards, tiny_items, tiny_model
from tests.processes import run_python

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def scored(model: RewardModel, items: Sequence[Item], **options: Any) -> list[ScoredItem]:
    return [item for chunk in ItemScorer(model, **options).chunks(items) for item in chunk]


def flat(items: Sequence[ScoredItem]) -> list[float]:
    return [reward for item in items for reward in item.rewards]


def use_masks(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Share prompts with masks, as on accelerators."""
    how: Any = sharing.how_to_share
    monkeypatch.setattr(sharing, "how_to_share", lambda m: replace(how(m), branches=False, **changes))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rewards_equal_the_stock_classifier_however_they_are_batched(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, stock = tiny_model(architecture)
    items = tiny_items(5, longest=40)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    assert np.ptp(expected) > 0.5
    if architecture != "deberta-v2":
        config: Any = model.backbone.config
        eager = config._attn_implementation == "eager"  # gemma2, for its soft-capping
        how: Any = sharing.how_to_share(model)
        assert how.branches != eager
    for way in ({}, {"token_budget": 64}, {"share": False, "token_budget": 200}):
        np.testing.assert_allclose(flat(scored(model, items, **way)), expected, atol=1e-5)
    if architecture != "deberta-v2":
        use_masks(monkeypatch)
        for budget in (60, 10_000):
            np.testing.assert_allclose(flat(scored(model, items, token_budget=budget)), expected, atol=1e-5)


@pytest.mark.parametrize("way", ["branches", "mask", "plain"])
def test_rewards_do_not_depend_on_the_window_of_prompts(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(100, longest=6)
    expected = flat(scored(model, items))
    if way == "mask":
        use_masks(monkeypatch)
    for window in (32, 128):
        monkeypatch.setattr(scoring, "CHUNK", window)
        scorer = ItemScorer(model, 1_500, share=way != "plain")
        chunks = list(scorer.chunks(items))
        np.testing.assert_allclose(flat([item for c in chunks for item in c]), expected, atol=1e-5)
        assert scorer.work.tokens == sum(sum(item.n_tokens) for chunk in chunks for item in chunk)
        assert (scorer.work.shared > 0) == (way != "plain")


def test_the_check_is_cheap_and_not_repeated_for_slightly_longer_texts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, _ = tiny_model("llama")
    alone: list[int] = []
    plain = scoring.plain_rewards

    def counted(model: RewardModel, texts: Sequence[Any]) -> Any:
        alone.append(sum(map(len, texts)))
        return plain(model, texts)

    monkeypatch.setattr(scoring, "plain_rewards", counted)
    items = sorted(tiny_items(6 * scoring.CHUNK, longest=40), key=lambda item: len(str(item.responses)))
    found = scored(model, items)
    assert sum(alone) < 0.1 * sum(sum(item.n_tokens) for item in found)
    assert 1 <= len(alone) <= 9  # four in the first window, then at most one in each


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_a_model_spread_by_accelerate_shares_too(architecture: str, tmp_path: Path) -> None:
    """Accelerate's hooks move weights and inputs, as for a model spread over several devices."""
    model, _ = tiny_model(architecture)
    items = tiny_items(10)
    expected = flat(scored(model, items))
    accelerate.disk_offload(model.backbone, str(tmp_path), execution_device=torch.device("cpu"))
    assert any(parameter.is_meta for parameter in model.backbone.parameters())
    np.testing.assert_allclose(flat(scored(model, items)), expected, atol=1e-6)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_the_checkpoints_pad_decides_where_to_pool(architecture: str, share: bool) -> None:
    end = 3  # <|end|>, with which every text ends; the stock head skips it
    model, stock = tiny_model(architecture, pad=end)
    items = tiny_items(10)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    got = flat(scored(model, items, share=share))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    last = replace(model, recipe=replace(model.recipe, pooling="last_token"))
    assert np.abs(np.array(flat(scored(last, items, share=share))) - got).max() > 0.1


def test_equal_texts_have_equal_rewards() -> None:
    model, _ = tiny_model("llama")
    (same,) = scored(model, [Item("x", "c", "P", ("same", "same"), 1)])
    assert same.rewards[0] == pytest.approx(same.rewards[1], abs=1e-6)


def test_an_appended_token_is_pooled() -> None:
    model, stock = tiny_model("llama", append_token_id=9)
    (item,) = tiny_items(1)
    text = f"<s><|user|>{item.prompt}<|end|><|assistant|>{item.responses[0]}<|end|>"
    ids = model.tokenizer(text, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        expected = stock(input_ids=torch.tensor([[*ids, 9]])).logits.item()
    assert scored(model, [item])[0].rewards[0] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", ["dynamic", "longrope"])
def test_rotary_embeddings_that_depend_on_the_batch_get_texts_of_one_length(kind: str) -> None:
    model, stock = tiny_model("llama")
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4, "original_max_position_embeddings": 24}
    rope = {"rope_type": kind, "factor": 4.0, "rope_theta": 1e4, **(factors if kind == "longrope" else {})}
    changes = {"rope_parameters": rope, "max_position_embeddings": 24}
    config = type(model.config)(**{**model.config.to_dict(), **changes})

    def fresh() -> Any:  # the dynamic kind remembers lengths
        copy = type(stock)(config).eval()
        copy.load_state_dict(stock.state_dict())
        return copy

    model = replace(model, backbone=fresh().model, config=config)
    items = tiny_items(8, longest=30)
    expected = [
        slow_rewards(model, fresh(), [replace(item, responses=(response,))])[0][0]
        for item in items
        for response in item.responses
    ]
    with pytest.warns(UserWarning, match="tiny/llama"):
        got = flat(scored(model, items))
    np.testing.assert_allclose(got, expected, atol=1e-4)


def test_a_models_own_code_never_sees_padding() -> None:
    model, stock = tiny_model("llama")

    class Own(torch.nn.Module):
        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            assert bool(attention_mask.all())
            logits: torch.Tensor = stock.score(stock.model(input_ids).last_hidden_state[:, -1])
            return logits

    opaque = replace(model, kind="opaque", backbone=Own(), head=Output())
    items = tiny_items(12)
    np.testing.assert_allclose(flat(scored(opaque, items)), flat(scored(model, items)), atol=1e-5)


def test_flags_and_counts_are_returned() -> None:
    model, _ = tiny_model("llama")
    items = [Item("a", "c", "it is", ("", "no " * 500, "\0\U0001f642", "x" * 200_000), 1)]
    (item,) = scored(replace(model, max_length=64), items)
    assert item.truncated == (False, True, False, True)
    assert item.n_tokens[1] == item.n_tokens[3] == 64
    assert item.n_tokens[0] < 20
    assert np.isfinite(item.rewards).all()
    assert scored(model, []) == []


def test_a_reward_that_is_not_finite_names_item_and_response() -> None:
    model, _ = tiny_model("llama")
    items = [Item(f"item-{n}", "c", "is it", ("no", "7" if n == 1 else "yes"), 1) for n in range(3)]
    poison = model.tokenizer("7", add_special_tokens=False)["input_ids"][0]
    with torch.no_grad():
        model.backbone.get_input_embeddings().weight[poison] = float("nan")
    for share in (True, False):
        rewards = np.array([item.rewards for item in scored(model, items, share=share)])
        assert np.argwhere(~np.isfinite(rewards)).tolist() == [[1, 1]]
    with pytest.raises(ValueError, match="'item-1', response 1"):
        list(scored_chunks(Classifier(model), items))


@pytest.mark.parametrize("blind_to", ["everything", "branches", "fails"])
def test_sharing_that_is_wrong_is_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, blind_to: str
) -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(10)
    expected = flat(scored(model, items))
    right = sharing.tree_mask

    def blind(trees: torch.Tensor, branches: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if blind_to == "fails":
            return None
        if blind_to == "everything":
            return torch.zeros_like(right(trees, branches, *args, **kwargs))
        return right(trees, 0 * branches, *args, **kwargs)

    monkeypatch.setattr(sharing, "tree_mask", blind)
    use_masks(monkeypatch)
    with pytest.warns(UserWarning, match="tiny/llama"):
        got = flat(scored(model, items))
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("before_the_long_one", [5, scoring.CHUNK + 5])
def test_a_wrong_window_is_noticed_at_the_first_text_that_is_longer(
    monkeypatch: pytest.MonkeyPatch, before_the_long_one: int
) -> None:
    model, stock = tiny_model("llama")
    items = [*tiny_items(before_the_long_one, longest=3), *tiny_items(20, longest=3, seed=1)]
    long = items[before_the_long_one]
    items[before_the_long_one] = replace(long, responses=("yes " * 90, *long.responses))
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    use_masks(monkeypatch, windows={"full_attention": 50})
    with pytest.warns(UserWarning, match="tiny/llama"):
        got = flat(scored(model, items))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def _limited(function: Callable[..., Any], most: int, error: Exception, calls: list[int]) -> Any:
    """Make `function(model, batch)` run out of memory if the batch has more than `most` tokens."""

    def wrapped(model: RewardModel, batch: Any, *args: Any) -> Any:
        parts = [tree for row in batch for tree in row] if isinstance(batch[0], tuple) else batch
        calls.append(sum(len(part) for part in parts))
        if calls[-1] > most:
            raise error
        return function(model, batch, *args)

    return wrapped


@pytest.mark.parametrize(
    ("error", "share"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("can't allocate memory"), False),
        (MemoryError(), True),
    ],
)
def test_out_of_memory_halves_the_budget_and_continues(
    monkeypatch: pytest.MonkeyPatch, share: bool, error: Exception
) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)  # it is slow with the modules of all tests loaded
    model, _ = tiny_model("llama")
    items = tiny_items(40)
    expected = flat(scored(model, items))
    calls: list[int] = []
    for name in ("shared_rewards", "plain_rewards"):
        monkeypatch.setattr(scoring, name, _limited(getattr(scoring, name), 70, error, calls))
    seen: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scorer = ItemScorer(model, share=share, progress=lambda n, _: seen.append(n))
        got = flat([item for chunk in scorer.chunks(items) for item in chunk])
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert sum(seen) == len(expected)  # nothing scored twice
    assert 1 <= sum(tokens > 70 for tokens in calls) <= 8  # it learns
    assert calls[-1] <= 70


def test_a_single_response_that_does_not_fit_and_other_errors_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)
    model, _ = tiny_model("deberta-v2")
    for error, kind in ((MemoryError(), MemoryError), (KeyError("bug"), KeyError)):
        monkeypatch.setattr(scoring, "plain_rewards", _limited(scoring.plain_rewards, 3, error, []))
        with pytest.raises(kind, match="max_length" if kind is MemoryError else "bug"):
            scored(model, tiny_items(3))


def test_chunks_are_fixed_so_that_resuming_repeats_the_bits() -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(2 * scoring.CHUNK + 5)
    chunks = list(ItemScorer(model).chunks(items))
    assert [len(chunk) for chunk in chunks] == [scoring.CHUNK, scoring.CHUNK, 5]
    assert list(ItemScorer(model).chunks(items[scoring.CHUNK :])) == chunks[1:]


# In its own process: the instructions must be chosen before the first matrix product, and instructions that a
# CPU reports but does not have end the process.
NARROW = """
import json, warnings
import numpy as np, torch
from rmcalib.judges._scoring import ItemScorer
from tests.judges.tiny import tiny_items, tiny_model

warnings.simplefilter("error")
torch.set_num_threads(1)
items, worst = tiny_items(8), []
for architecture in ("llama", "gemma2"):
    model, _ = tiny_model(architecture)
    def rewards(**way):
        scored = [item for chunk in ItemScorer(model, **way).chunks(items) for item in chunk]
        return np.array([reward for item in scored for reward in item.rewards])
    exact = rewards()
    for dtype, bound in ((torch.float16, 0.01), (torch.bfloat16, 0.1)):
        model.backbone.to(dtype)
        model.dtype = dtype
        ways = [rewards(), rewards(share=False), rewards(share=False, token_budget=1)]
        drift = max(np.abs(way - exact).max() for way in ways) / max(1.0, np.abs(exact).max())
        worst.append(float(drift / bound))
print(json.dumps(worst))
"""


def test_the_drift_of_narrow_dtypes_is_small() -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    done = run_python(["-c", NARROW], env=environment)
    if done.returncode < 0:
        pytest.skip(f"this processor cannot multiply in half precision (signal {-done.returncode})")
    assert done.returncode == 0, done.stderr
    worst = json.loads(done.stdout.splitlines()[-1])
    assert all(0 < drift < 1 for drift in worst), worst

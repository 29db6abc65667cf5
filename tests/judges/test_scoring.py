from __future__ import annotations

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
from rmcalib.judges._inference import forward, packing, scoring
from rmcalib.judges._inference.architectures import CannotShare, how_to_share
from rmcalib.judges._inference.heads import Output
from rmcalib.judges._inference.loading import compile_layers
from rmcalib.judges._inference.scoring import score_items
from tests.judges.tiny import ARCHITECTURES, slow_rewards, tiny_items, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def scored(model: RewardModel, items: Sequence[Item], **options: Any) -> list[ScoredItem]:
    return [item for chunk in score_items(model, items, **options) for item in chunk]


def flat(items: Sequence[ScoredItem]) -> list[float]:
    return [reward for item in items for reward in item.rewards]


def use_masks(monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Share prompts with dense masks, as if neither of the other ways worked."""
    monkeypatch.setattr(scoring, "how_to_share", lambda m: replace(how_to_share(m).with_masks(), **changes))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rewards_equal_the_stock_classifier_one_response_at_a_time(architecture: str) -> None:
    model, stock = tiny_model(architecture)
    items = tiny_items(15, longest=40)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    assert np.ptp(expected) > 0.5
    if architecture == "deberta-v2":
        with pytest.raises(CannotShare):
            how_to_share(model)
    else:
        config: Any = model.backbone.config
        eager = config._attn_implementation == "eager"  # gemma2, for its soft-capping
        assert how_to_share(model).attention == ("mask" if eager else "branches")
    assert any(item.truncated[0] for item in scored(model, items, max_length=40))
    np.testing.assert_allclose(flat(scored(model, items)), expected, atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_rewards_do_not_depend_on_batching_order_or_sharing(architecture: str) -> None:
    model, _ = tiny_model(architecture)
    items = tiny_items(40)
    expected = {item.id: item for item in scored(model, items)}
    ways: list[dict[str, Any]] = [
        {},
        {"token_budget": 1},
        {"token_budget": 64},
        {"token_budget": 5_000},
        {"share": False},
        {"share": False, "token_budget": 200},
    ]
    for way in ways:
        for item in scored(model, items[::-1], **way):
            other = expected[item.id]
            np.testing.assert_allclose(item.rewards, other.rewards, atol=1e-5)
            assert item.n_tokens == other.n_tokens


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "deberta-v2"])
def test_masks_over_the_whole_row_give_the_same_rewards(
    monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    """As on accelerators, where attention is not computed branch by branch."""
    use_masks(monkeypatch)
    model, stock = tiny_model(architecture)
    items = tiny_items(15, longest=40)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    for budget in (60, 1_024, 10_000):
        np.testing.assert_allclose(flat(scored(model, items, token_budget=budget)), expected, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("attention", ["branches", "mask", "flex", "plain"])
def test_rewards_do_not_depend_on_the_packing_window(monkeypatch: pytest.MonkeyPatch, attention: Any) -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(100, longest=6)
    expected = flat(scored(model, items))
    monkeypatch.setattr(scoring, "how_to_share", lambda m: replace(how_to_share(m), attention=attention))
    for window, budget in [(32, 300), (64, 1_500), (128, 8_192)]:
        scorer = scoring.ItemScorer(model, token_budget=budget, share=attention != "plain")
        scorer.window = window
        chunks = list(scorer.chunks(items))
        assert [len(chunk) for chunk in chunks] == [32, 32, 32, 4]
        got = flat([item for chunk in chunks for item in chunk])
        np.testing.assert_allclose(got, expected, atol=1e-5)
        assert scorer.work.tokens == sum(sum(item.n_tokens) for chunk in chunks for item in chunk)
        assert (scorer.work.shared > 0) == (attention != "plain")


def test_compiled_layers_give_the_same_rewards() -> None:
    """Compiled without generating code, which needs a compiler and takes long."""
    model, _ = tiny_model("llama")
    items = tiny_items(3)
    expected = flat(scored(model, items))
    compile_layers(model.backbone, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        np.testing.assert_allclose(flat(scored(model, items)), expected, atol=1e-5)


@pytest.mark.parametrize("longest", [3, 40])
def test_the_check_is_cheap_and_not_repeated_for_slightly_longer_texts(
    monkeypatch: pytest.MonkeyPatch, longest: int
) -> None:
    model, _ = tiny_model("llama")
    alone: list[int] = []
    plain = forward.plain_rewards

    def counted(model: RewardModel, texts: Sequence[Any]) -> Any:
        alone.append(sum(map(len, texts)))
        return plain(model, texts)

    monkeypatch.setattr(forward, "plain_rewards", counted)
    items = sorted(tiny_items(6 * scoring.CHUNK, longest=longest), key=lambda item: len(str(item.responses)))
    chunks = list(score_items(model, items))
    assert sum(alone) < 0.1 * sum(sum(item.n_tokens) for chunk in chunks for item in chunk)
    assert 1 <= len(alone) <= 8


def test_eager_attention_shares_too() -> None:
    model, stock = tiny_model("llama", attention="eager")
    items = tiny_items(10)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    np.testing.assert_allclose(flat(scored(model, items)), expected, atol=1e-5)


@pytest.mark.parametrize("architecture", ["llama", "gemma2", "gpt_neox"])
def test_a_model_spread_by_accelerate_shares_too(architecture: str, tmp_path: Path) -> None:
    """Accelerate's hooks move weights and inputs, as for a model spread over several devices."""
    model, _ = tiny_model(architecture)
    items = tiny_items(10)
    expected = flat(scored(model, items))
    accelerate.disk_offload(model.backbone, str(tmp_path), execution_device=torch.device("cpu"))
    assert any(parameter.is_meta for parameter in model.backbone.parameters())
    np.testing.assert_allclose(flat(scored(model, items)), expected, atol=1e-6)


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize("architecture", ["llama", "gpt_neox", "gemma2"])
def test_the_checkpoints_pad_decides_where_to_pool(architecture: str, share: bool) -> None:
    end = 3  # <|end|>, with which every text ends; the stock head skips it
    model, stock = tiny_model(architecture, pad=end)
    items = tiny_items(10)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    got = flat(scored(model, items, share=share))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    last = replace(model, recipe=replace(model.recipe, pooling="last_token"))
    assert np.abs(np.array(flat(scored(last, items, share=share))) - got).max() > 0.1


def test_a_pooled_token_that_all_responses_share_gives_them_one_reward_and_a_warning() -> None:
    model, _ = tiny_model("llama", pad=3, pooling="before_first_pad")  # the end of the user's turn
    with pytest.warns(UserWarning, match="the same reward, for every prompt.*last_token"):
        items = scored(model, tiny_items(5))
    assert all(np.ptp(item.rewards) < 1e-5 for item in items)


def test_identical_responses_give_no_warning() -> None:
    model, _ = tiny_model("llama")
    (item,) = scored(model, [Item("x", "c", "P", ("same", "same"), 1)])
    assert item.rewards[0] == pytest.approx(item.rewards[1], abs=1e-6)


def test_an_appended_token_is_pooled() -> None:
    model, stock = tiny_model("llama", append_token_id=9)
    (item,) = tiny_items(1)
    ids = model.tokenizer(
        f"<s><|user|>{item.prompt}<|end|><|assistant|>{item.responses[0]}<|end|>", add_special_tokens=False
    )["input_ids"]
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
    torch.manual_seed(0)
    fresh = type(stock)(config).eval()
    fresh.load_state_dict(stock.state_dict())
    model = replace(model, backbone=fresh.model, config=config)
    items = tiny_items(12, longest=30)
    with pytest.raises(CannotShare, match="rotary"):
        how_to_share(model)
    expected = []
    for item in items:
        for response in item.responses:  # a fresh copy each: the dynamic kind remembers lengths
            copy = type(stock)(config).eval()
            copy.load_state_dict(stock.state_dict())
            expected += list(slow_rewards(model, copy, [replace(item, responses=(response,))])[0])
    with pytest.warns(UserWarning, match=r"rotary embeddings depend on the longest text"):
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
    (item,) = scored(model, items, max_length=64)
    assert item.id == "a"
    assert item.truncated == (False, True, False, True)
    assert item.n_tokens[1] == item.n_tokens[3] == 64
    assert item.n_tokens[0] < 20
    assert np.isfinite(item.rewards).all()


def test_no_items_give_no_chunks() -> None:
    model, _ = tiny_model("llama")
    assert scored(model, []) == []


@pytest.mark.parametrize("option", ["max_length", "token_budget"])
def test_limits_below_one_are_refused_at_once(option: str) -> None:
    model, _ = tiny_model("llama")
    options: dict[str, Any] = {option: 0}
    with pytest.raises(ValueError, match=f"{option}: must be at least 1, got 0"):
        score_items(model, [], **options)


def test_a_reward_that_is_not_finite_names_item_and_response() -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(3)
    poison = model.tokenizer("7", add_special_tokens=False)["input_ids"][0]
    items[1] = replace(items[1], responses=("yes", "7"), prompt="is it")
    items[0], items[2] = (replace(i, prompt="is it", responses=("no", "yes")) for i in (items[0], items[2]))
    with torch.no_grad():
        model.backbone.get_input_embeddings().weight[poison] = float("nan")  # type: ignore[operator]
    for share in (True, False):
        with pytest.raises(ValueError, match="item 'item-1', response 1: the model's reward is nan"):
            scored(model, items, share=share)


@pytest.mark.parametrize("blind_to", ["everything", "trees", "branches"])
def test_sharing_that_disagrees_is_dropped_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, blind_to: str
) -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(10)
    expected = flat(scored(model, items))
    right = packing.tree_mask

    def blind(trees: torch.Tensor, branches: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if blind_to == "everything":
            return torch.zeros_like(right(trees, branches, *args, **kwargs))
        trees, branches = (0 * trees, branches) if blind_to == "trees" else (trees, 0 * branches)
        return right(trees, branches, *args, **kwargs)

    monkeypatch.setattr(forward, "tree_mask", blind)
    use_masks(monkeypatch)
    with pytest.warns(UserWarning, match=r"tiny/llama: .*rewards differ by up to"):
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
    lengths = [n for item in scored(model, items, share=False) for n in item.n_tokens]
    assert sorted(lengths)[-2] < 50 < max(lengths)
    with pytest.warns(UserWarning, match=r"tiny/llama: .*rewards differ by up to"):
        got = flat(scored(model, items))
    np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize("architecture", [name for name in ARCHITECTURES if name != "deberta-v2"])
def test_windows_are_those_the_architecture_applies(architecture: str) -> None:
    """The stock model's last token depends on a distant one, unless every layer has a window."""
    model, stock = tiny_model(architecture)
    near = torch.arange(8, 38)[None]
    far = near.clone()
    far[0, 0] = 300  # 29 positions back; three layers with a window of 7 reach 18 positions back
    with torch.no_grad():
        states, moved = (stock.base_model(ids).last_hidden_state[0, -1] for ids in (near, far))
    unseen = bool((moved - states).abs().max() < 1e-6)
    assert unseen == all(window == 7 for window in how_to_share(model).windows.values())


def test_sharing_that_fails_is_dropped_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(10)
    expected = flat(scored(model, items))
    use_masks(monkeypatch)
    monkeypatch.setattr(forward, "tree_mask", lambda *_, **__: None)
    with pytest.warns(UserWarning, match=r"tiny/llama: .*does not work for this model \("):
        got = flat(scored(model, items))
    np.testing.assert_allclose(got, expected, atol=1e-5)


def _limited(
    function: Callable[..., Any], most: int, error: Exception, calls: list[int]
) -> Callable[..., Any]:
    """Make `function(model, batch)` run out of memory if the batch has more than `most` tokens."""

    def wrapped(model: RewardModel, batch: Any, *args: Any, **options: Any) -> Any:
        parts = [tree for row in batch for tree in row] if isinstance(batch[0], tuple) else batch
        tokens = sum(len(part) for part in parts)
        calls.append(tokens)
        if tokens > most:
            raise error
        return function(model, batch, *args, **options)

    return wrapped


@pytest.mark.parametrize("share", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
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
        monkeypatch.setattr(forward, name, _limited(getattr(forward, name), 70, error, calls))
    seen: list[int] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = flat(scored(model, items, share=share, progress=lambda n, _: seen.append(n)))
    np.testing.assert_allclose(got, expected, atol=1e-5)
    assert sum(seen) == len(expected)  # nothing scored twice
    failed = [tokens for tokens in calls if tokens > 70]
    assert 1 <= len(failed) <= 8  # it learns
    assert calls[-1] <= 70


def test_a_single_response_that_does_not_fit_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.collect", lambda: 0)
    model, _ = tiny_model("llama")
    monkeypatch.setattr(forward, "shared_rewards", _limited(forward.shared_rewards, 3, MemoryError(), []))
    monkeypatch.setattr(forward, "plain_rewards", _limited(forward.plain_rewards, 3, MemoryError(), []))
    with pytest.raises(MemoryError, match=r"a response of \d+ tokens does not fit.*--max-length"):
        scored(model, tiny_items(3))


def test_other_errors_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = tiny_model("deberta-v2")
    monkeypatch.setattr(forward, "plain_rewards", _limited(forward.plain_rewards, 0, KeyError("bug"), []))
    with pytest.raises(KeyError, match="bug"):
        scored(model, tiny_items(3))


def test_chunks_are_fixed_so_that_resuming_repeats_the_bits() -> None:
    model, _ = tiny_model("llama")
    items = tiny_items(2 * scoring.CHUNK + 5)
    chunks = list(score_items(model, items))
    assert [len(chunk) for chunk in chunks] == [scoring.CHUNK, scoring.CHUNK, 5]
    resumed = list(score_items(model, items[scoring.CHUNK :]))
    assert resumed == chunks[1:]


def test_progress_counts_every_response_and_token_once() -> None:
    model, _ = tiny_model("llama")
    seen: list[tuple[int, int]] = []
    items = scored(model, tiny_items(40), progress=lambda *counts: seen.append(counts))
    assert sum(n for n, _ in seen) == len(flat(items))
    assert sum(tokens for _, tokens in seen) == sum(sum(item.n_tokens) for item in items)


def test_stopping_early_works() -> None:
    model, _ = tiny_model("llama")
    chunks = score_items(model, tiny_items(100))
    assert len(next(chunks)) == scoring.CHUNK
    chunks.close()  # type: ignore[attr-defined]

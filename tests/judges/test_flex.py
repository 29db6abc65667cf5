"""FlexAttention over packed trees, uncompiled on the CPU: the same code that is compiled on CUDA."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.judges import RewardModel
from rmcalib.judges._inference import scoring
from rmcalib.judges._inference.architectures import how_to_share
from rmcalib.judges._inference.flex import BLOCK, visible_blocks
from rmcalib.judges._inference.packing import Text, pack, shared_batches, tree_mask
from rmcalib.judges._inference.templates import Encoded
from tests.judges.tiny import slow_rewards, tiny_items, tiny_model

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.mark.parametrize(
    ("architecture", "attention"),
    [("llama", "sdpa"), ("mistral-window", "sdpa"), ("gemma2", "eager"), ("qwen2-window", "sdpa")],
)
def test_flex_attention_gives_the_rewards_of_the_stock_classifier(
    monkeypatch: pytest.MonkeyPatch, architecture: str, attention: str
) -> None:
    monkeypatch.setattr(scoring, "how_to_share", lambda model: replace(how_to_share(model), attention="flex"))
    model, stock = tiny_model(architecture, attention=attention)
    if architecture == "gemma2":
        configs: tuple[Any, ...] = (stock.config, model.backbone.config)
        for config in configs:
            config.attn_logit_softcapping = 2.0  # strong enough to change rewards
        for layer in model.backbone.layers:  # type: ignore[union-attr]
            layer.self_attn.attn_logit_softcapping = 2.0
    items = tiny_items(8, longest=40)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    scorer = scoring.ItemScorer(model, token_budget=600)
    got = [reward for chunk in scorer.chunks(items) for item in chunk for reward in item.rewards]
    assert scorer.sharing is not None
    assert scorer.sharing.attention == "flex"
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_masks_are_used_if_flex_attention_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scoring, "how_to_share", lambda model: replace(how_to_share(model), attention="flex"))

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no Triton")

    monkeypatch.setattr("rmcalib.judges._inference.flex._kernel", lambda _: broken)
    model, stock = tiny_model("llama")
    items = tiny_items(5)
    expected = [reward for item in slow_rewards(model, stock, items) for reward in item]
    with pytest.warns(UserWarning, match=r"'flex' attention does not work.*no Triton.*Dense masks"):
        got = _rewards(model, items)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def _rewards(model: RewardModel, items: Any) -> list[float]:
    return [r for chunk in scoring.score_items(model, items) for item in chunk for r in item.rewards]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 300), st.lists(st.integers(0, 200), min_size=1, max_size=3)),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([None, 1, 40, 200]),
    st.booleans(),
)
def test_blocks_contain_all_that_is_attended_to_and_full_blocks_nothing_else(
    prompts: list[tuple[int, list[int]]], window: int | None, at_pooled: bool
) -> None:
    texts: list[Text] = []
    for number, (shared, own) in enumerate(prompts):
        for length in own:
            n = shared + length
            texts.append(Text(len(texts), number, Encoded((1,) * n, shared, False, False), n - 1))
    for rows in shared_batches(texts, budget=10_000, kappa=float("inf"), usual=1_000):
        packed = pack(rows, multiple=BLOCK, texts_multiple=BLOCK)
        layout = (torch.from_numpy(part) for part in (packed.trees, packed.branches, packed.positions))
        sees = (tree_mask(*layout, dtype=torch.float32, window=window)[0, 0] == 0).numpy()
        sees[packed.trees[0] < 0] = False
        queries = packed.pooled[0] if at_pooled else None
        if queries is not None:
            sees = sees[queries]
        blocks = sees.reshape(-1, BLOCK, sees.shape[1] // BLOCK, BLOCK)
        some, full = visible_blocks(packed, window, queries)
        assert (some >= blocks.any((1, 3))).all()
        assert (full <= blocks.all((1, 3))).all()
        assert (full <= some).all()

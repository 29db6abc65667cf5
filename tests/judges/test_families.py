"""Every causal family of transformers: prompts are shared with the right rewards, or not shared at all."""

from __future__ import annotations

import contextlib
import functools
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers

from rmcalib.judges._sharing import how_to_share
from rmcalib.judges._scoring import ItemScorer
from tests.judges.families import WINDOW, families, family_model, family_texts

# Families that are known to share prompts; an older transformers may not have all of them.
SHARE = {
    *("afmoe", "apertus", "arcee", "bitnet", "cohere", "cohere2", "cwm", "diffllama", "doge", "dots1"),
    *("ernie4_5", "ernie4_5_moe", "exaone4", "flex_olmo", "gemma", "gemma2", "gemma3_text", "glm", "glm4"),
    *("glm4_moe", "gpt_neox", "gpt_oss", "granite", "granitemoe", "granitemoeshared", "helium"),
    *("hunyuan_v1_dense", "hunyuan_v1_moe", "jais2", "jetmoe", "llama", "minimax_m2", "ministral"),
    *("ministral3", "mistral", "mixtral", "nanochat", "nemotron", "olmo", "olmo2", "olmo3", "olmoe"),
    *("persimmon", "phi", "phi3", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss"),
    *("smollm3", "solar_open", "stablelm", "starcoder2", "vaultgemma"),
}
OWN_ATTENTION = {"nemotron", "phimoe", "stablelm"}  # they do not use the interface
RECURRENT = {"mamba", "falcon_mamba", "jamba", "minimax", "olmo_hybrid", "qwen3_next", "recurrent_gemma"}

if transformers.__version__.startswith("4."):
    # PhiMoE's rotary embeddings are one table for the whole batch there, so single tokens cannot be selected.
    SHARE -= {"phimoe"}
    OWN_ATTENTION -= {"phimoe"}


@dataclass(frozen=True)
class Outcome:
    """The result of one family."""

    attention: str | None
    off_by: float
    notices: tuple[str, ...]


@functools.cache
def outcomes() -> dict[str, Outcome]:
    """Score a few texts alone and together, with every family of which a small model can be built and run."""
    found = {}
    texts = family_texts()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for family in families():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.suppress(Exception):  # transformers cannot build it, or it is not a causal model
                model = family_model(family)
                plain = ItemScorer(model, share=False, token_budget=1_000)
                alone = np.concatenate([plain.rewards([(text,)]) for group in texts for text in group])
                found[family] = Outcome("failed", np.inf, ())
        if family not in found:
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            scorer = ItemScorer(model, token_budget=1_000)
            together = scorer.rewards(texts)
        off_by = float(np.abs(together - alone).max() / max(1.0, np.ptp(alone)))
        notices = tuple(str(one.message) for one in caught if "does not work for this" in str(one.message))
        found[family] = Outcome(scorer.sharing.attention if scorer.sharing else None, off_by, notices)
    torch.set_num_threads(before)
    return found


def test_no_family_gets_wrong_rewards() -> None:
    assert len(outcomes()) >= 60
    assert {family: one for family, one in outcomes().items() if not one.off_by <= 1e-5} == {}


def test_the_families_that_can_share_do_and_the_others_say_why_not() -> None:
    sharing = {family for family, one in outcomes().items() if one.attention is not None}
    assert sharing >= SHARE & set(outcomes())
    assert len(SHARE & set(outcomes())) >= 40
    assert len(sharing) >= 45
    for family, one in outcomes().items():
        plain = [notice for notice in one.notices if "own copy of the prompt" in notice]
        assert len(plain) == (0 if family in sharing else 1), family
    assert not sharing & RECURRENT


def test_attention_outside_the_interface_is_found() -> None:
    for family in OWN_ATTENTION & set(outcomes()):
        assert outcomes()[family].attention == "mask", family
        assert outcomes()[family].notices == ()


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
    model.backbone.config.sliding_window = WINDOW  # type: ignore[union-attr]
    assert how_to_share(model).windows == windows
    assert model.backbone.config.sliding_window == WINDOW  # type: ignore[union-attr]

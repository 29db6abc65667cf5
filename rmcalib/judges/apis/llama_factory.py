"""LLaMA-Factory's PPO: whole texts (`reward_model_type: api`), answered by `scores`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmcalib.judges.apis._api import Api, Body, WholeTexts, step_of, texts_of
from rmcalib.judges.apis.samples import Sample, Scored


class LlamaFactory(Api):
    """What LLaMA-Factory sends."""

    name, title = "llama-factory", "LLaMA-Factory"
    served_at = ("/", "/get_reward")
    keys = (("messages",),)

    def read(self, body: Body, texts: WholeTexts) -> list[Sample]:
        """Return the samples of whole texts."""
        return texts.samples(texts_of(body, "messages"), step=step_of(body))

    def answer(self, path: str, model: str, scored: Sequence[Scored]) -> Any:  # noqa: ARG002
        """Return the rewards under its name for them."""
        return {"scores": [result.reward for result in scored]}

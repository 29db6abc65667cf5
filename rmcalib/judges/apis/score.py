"""Our own plain API: prompts and responses, answered with everything that is known of each reward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmcalib.judges.apis._api import Api, Body, WholeTexts, list_of, step_of
from rmcalib.judges.apis.samples import Sample, Scored, as_samples


class Score(Api):
    """`POST /score` of `rmcalib serve`."""

    name, title = "score", "score"
    served_at = ("/score",)
    keys = (("prompts", "responses"),)

    def read(self, body: Body, _: WholeTexts) -> list[Sample]:
        """Return the samples."""
        prompts, responses = body["prompts"], body["responses"]
        if not isinstance(prompts, list) or not isinstance(responses, list):
            raise ValueError("prompts, responses: expected lists of the same length")
        return as_samples(prompts, responses, list_of(body, "labels", len(responses)), step_of(body))

    def answer(self, path: str, model: str, scored: Sequence[Scored]) -> Any:  # noqa: ARG002
        """Return lists with one entry per sample."""
        names = {"rewards": "reward", "raw": "raw", "probabilities": "probability", "outside": "outside"}
        return {key: [getattr(result, name) for result in scored] for key, name in names.items()}

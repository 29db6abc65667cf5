"""Our own plain API: prompts and responses, answered with everything that is known of each reward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rmcalib.judges.apis._api import Api, Body, Text, WholeTexts, list_of, step_of
from rmcalib.judges.apis.samples import Sample, Scored, as_samples, split_conversation


class Score(Api):
    """`POST /score` of `rmcalib serve`."""

    name, title = "score", "score"
    paths = ("/score",)
    reads = "messages"
    cards = True
    start = "rmcalib serve --model MODEL"
    served_at = ("/score",)
    keys = (("prompts", "responses"),)

    def recognise(self, owners: Collection[str], paths: Collection[str]) -> bool:  # noqa: ARG002
        """Return whether it is `rmcalib serve`."""
        return "rmcalib" in owners

    def write(self, texts: Sequence[Text], limit: int) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return one body of conversations."""
        if not all(isinstance(text, list) and isinstance(text[0], dict) for text in texts):
            raise ValueError("rmcalib serve takes conversations here, not texts or token ids")
        split = [split_conversation(text, "messages") for text in texts]
        return [
            {"prompts": [prompt for prompt, _ in split], "responses": [response for _, response in split]}
        ]

    def rows(self, answer: Any) -> list[Any]:
        """Return the rewards as the model gave them, without a calibrator."""
        return [[reward] for reward in answer["raw"]]

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

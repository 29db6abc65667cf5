"""slime: one sample per request (`--rm-type remote_rm --rm-url URL`), answered by a bare number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmcalib.judges.apis._api import Api, Body, WholeTexts, step_of
from rmcalib.judges.apis.samples import Sample, Scored, as_sample


class Slime(Api):
    """What slime sends."""

    name, title = "slime", "slime"
    served_at = ("/", "/get_reward")
    keys = (("prompt", "response"),)

    def read(self, body: Body, _: WholeTexts) -> list[Sample]:
        """Return the sample."""
        label, step = body.get("label"), step_of(body)
        return [as_sample(body["prompt"], body["response"], "request", label=label, step=step)]

    def answer(self, path: str, model: str, scored: Sequence[Scored]) -> Any:  # noqa: ARG002
        """Return the reward."""
        return scored[0].reward

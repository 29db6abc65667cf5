"""OpenRLHF: `/get_reward` of its reward server, and what its agents send (`--reward.remote_url`)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from rmcalib.judges.apis._api import Api, Body, Text, WholeTexts, list_of, step_of, texts_of
from rmcalib.judges.apis.samples import Sample, Scored


class Openrlhf(Api):
    """OpenRLHF's `serve_rm`, which adds no special tokens to texts, and its agents."""

    name, title = "openrlhf", "OpenRLHF"
    paths = ("/get_reward",)
    reads = "texts"
    limit = "--max_len"
    start = "python -m openrlhf.cli.serve_rm --reward_pretrain MODEL"
    remedy = "Serve a model whose output is the reward itself"
    served_at = ("/", "/get_reward")
    keys = (("query",),)

    def recognise(self, owners: Collection[str], paths: Collection[str]) -> bool:  # noqa: ARG002
        """Return whether a server documents its path."""
        return self.paths[0] in paths

    def write(self, texts: Sequence[Text], limit: int) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return one body."""
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("OpenRLHF's server takes texts, not token ids")
        return [{"query": list(texts)}]

    def rows(self, answer: Any) -> list[Any]:
        """Return its rewards, which older versions put into lists."""
        return [row if isinstance(row, list) else [row] for row in answer["rewards"]]

    def read(self, body: Body, texts: WholeTexts) -> list[Sample]:
        """Return the samples of whole texts, which begin with their prompts."""
        queries = texts_of(body, "query")
        prompts, labels = (list_of(body, name, len(queries)) for name in ("prompts", "labels"))
        if prompts is not None:
            texts_of(body, "prompts")
        return texts.samples(queries, prompts, labels, step_of(body))

    def answer(self, path: str, model: str, scored: Sequence[Scored]) -> Any:  # noqa: ARG002
        """Return rewards. `scores` are probabilities: it filters by them; without any, by rewards."""
        answer: dict[str, Any] = {"rewards": [result.reward for result in scored]}
        if all(result.probability is not None for result in scored):
            answer["scores"] = [result.probability for result in scored]
        extra = {name: [float(getattr(result, name)) for result in scored] for name in ("raw", "outside")}
        return {**answer, "extra_logs": extra}

"""SGLang: its own `/classify`, which returns what the model puts out; `/v1/classify` applies a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmcalib.judges.apis._api import Api, Text


class Sglang(Api):
    """SGLang with `--is-embedding`; it is sent token ids."""

    name, title = "sglang", "SGLang"
    paths = ("/classify",)
    cards = True
    model_info = ("/get_model_info", "/model_info")
    version = ("/get_server_info", "/server_info")
    start = "python -m sglang.launch_server --model-path MODEL --is-embedding"
    remedy = "Serve a model with one label (*ForSequenceClassification) with --is-embedding"

    def write(self, texts: Sequence[Text], limit: int) -> list[dict[str, Any]]:  # noqa: ARG002
        """Return one body."""
        return [{"text" if isinstance(texts[0], str) else "input_ids": list(texts)}]

    def rows(self, answer: Any) -> list[Any]:
        """Return the outputs, which it calls embeddings."""
        return [row["embedding"] for row in answer]

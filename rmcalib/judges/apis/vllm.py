"""vLLM: `/classify` and `/pooling`, with chat messages, texts or token ids."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, ClassVar

from rmcalib.judges.apis._api import Api, Body, Text, WholeTexts, step_of
from rmcalib.judges.apis.samples import Sample, Scored, split_conversation

# Templates like Llama 3.2's write today's date into the text. This is their default date, which our own
# scorer uses too.
PINNED_DATE = {"date_string": "26 Jul 2024"}


class Vllm(Api):
    """vLLM with `--runner pooling`; it applies a sigmoid unless a request says otherwise."""

    name, title = "vllm", "vLLM"
    paths = ("/classify", "/pooling")
    reads = "messages"
    raw: ClassVar = {"use_activation": False}
    cards = True
    version = ("/version",)
    tokens = "/tokenize"
    chat: ClassVar = {"chat_template_kwargs": PINNED_DATE}
    chooses = True
    start = "vllm serve MODEL --runner pooling"
    remedy = "Update vLLM, or start it with --pooler-config '{\"use_activation\": false}'"
    served_at = paths
    keys = (("messages",), ("input",))

    def write(self, texts: Sequence[Text], limit: int) -> list[dict[str, Any]]:
        """Return a body per conversation, or one for texts or token ids."""
        cut = {"truncate_prompt_tokens": limit}
        if isinstance(texts[0], str) or isinstance(texts[0][0], int):
            return [{"input": list(texts), **cut}]
        return [{"messages": text, "add_generation_prompt": False, **self.chat, **cut} for text in texts]

    def rows(self, answer: Any) -> list[Any]:
        """Return the numbers of both paths."""
        rows = sorted(answer["data"], key=lambda row: row["index"])
        return [row.get("probs", row.get("data")) for row in rows]

    def read(self, body: Body, _: WholeTexts) -> list[Sample]:
        """Return a conversation, or texts and token ids as they are."""
        if any(body.get(name) for name in ("use_activation", "activation", "softmax")):
            raise ValueError(
                "use_activation: this server applies no sigmoid; its calibrator says what a reward means"
            )
        if "messages" in body:
            prompt, response = split_conversation(body["messages"], "messages")
            return [Sample(prompt, response, None, step_of(body))]
        given = body["input"]
        several = isinstance(given, list) and not all(map(_is_token, given))
        samples = []
        for number, text in enumerate(given if several else [given]):
            ids = isinstance(text, list) and bool(text) and all(map(_is_token, text))
            if not isinstance(text, str) and not ids:
                raise ValueError(f"input {number}: expected a text, or a list of token ids")
            samples.append(Sample(None, text if isinstance(text, str) else tuple(text), None, step_of(body)))
        return samples

    def answer(self, path: str, model: str, scored: Sequence[Scored]) -> Any:
        """Return rows of one number."""
        rows: list[dict[str, Any]] = [
            {"index": number, "label": "LABEL_0", "probs": [result.reward], "num_classes": 1}
            if path == "/classify"
            else {"index": number, "object": "pooling", "data": [result.reward]}
            for number, result in enumerate(scored)
        ]
        return {"object": "list", "created": int(time.time()), "model": model, "data": rows}


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

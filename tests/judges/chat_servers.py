"""A loopback server that answers like the chat API of vLLM or OpenAI, with failures on demand."""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.judges.serving import Reply, Request

Weights = Callable[[Sequence[Mapping[str, str]]], dict[str, float]]
"""From messages to the weights of next tokens, by the token's text."""


def quality(text: str) -> float:
    """A number between 0 and 1 that depends on a text."""
    return zlib.crc32(text.encode("utf-8", "replace")) / 2**32


def shown_answers(messages: Sequence[Mapping[str, str]]) -> list[str]:
    """The answers that a question shows, in their order."""
    return re.findall(r"\[Answer[^\]]*\]\n(.*?)\n\[End of", messages[-1]["content"], flags=re.DOTALL)


def by_quality(messages: Sequence[Mapping[str, str]], bias: float = 1.0) -> dict[str, float]:
    """Prefer good answers, and the first place by a factor `bias`; other tokens get half."""
    answers = shown_answers(messages)
    if len(answers) == 1:
        q = quality(answers[0])
        grades = {str(grade): math.exp(-((grade - 9 * q) ** 2) / 4) for grade in range(1, 10)}
        return {"Yes": 0.7 * q, " yes": 0.3 * q, "No": 1 - q, **grades}
    weights = {"ABCDEFGHIJ"[i]: 0.1 + quality(text) for i, text in enumerate(answers)}
    if "A" in weights:
        weights["A"] *= bias
    total = sum(weights.values()) or 1.0
    return {**{token: weight / total for token, weight in weights.items()}, "The": 1.0}


@dataclass
class Chat:
    """Answers as vLLM 0.32 does; the formats are recorded from a real server.

    `owner` is `vllm` or another, which has none of vLLM's additions. `top` limits the log-probabilities, None
    for a server without them. `texts` says what a sampled answer is.
    """

    model: str = "org/lm"
    answers_as: str | None = None
    owner: str = "vllm"
    weights: Weights = by_quality
    texts: Callable[[Request], str] = lambda _: "Best: A"
    top: int | None = 20
    refuses: Sequence[str] = ()
    faults: dict[int, Reply] = field(default_factory=dict)  # by the number of the chat request

    def __call__(self, request: Request) -> Reply:
        if request.path == "/version":
            return Reply({"version": "0.32.0"})
        if request.path == "/v1/models":
            card = {"id": self.model, "object": "model", "created": 1, "owned_by": self.owner}
            return Reply({"object": "list", "data": [card | {"root": f"/models/{self.model}"}]})
        if request.path != "/v1/chat/completions":
            return Reply({"detail": "Not Found"}, 404)
        if request.number in self.faults:
            return self.faults[request.number]
        body = request.body
        for name in self.refuses:
            if name in body:
                error = {"message": f"Unrecognized request argument: {name}", "type": "invalid_request_error"}
                return Reply({"error": error}, 400)
        if body.get("logprobs") and self.top is None:
            return self.answer(body, "A", None)
        if body.get("logprobs"):
            return self.with_logprobs(body)
        return self.answer(body, self.texts(request), None)

    def with_logprobs(self, body: dict[str, Any]) -> Reply:
        weights = {token: weight for token, weight in self.weights(body["messages"]).items() if weight > 0}
        choice = body.get("structured_outputs", {}).get("choice")
        if choice:
            weights = {token: weight for token, weight in weights.items() if token in choice}
        total = sum(weights.values())
        logprobs = {token: math.log(weight / total) for token, weight in weights.items()}
        if choice:
            logprobs["?"] = -9999.0
        shown = sorted(logprobs, key=lambda token: -logprobs[token])[
            : min(self.top or 0, body["top_logprobs"])
        ]
        rows = [{"token": t, "logprob": logprobs[t], "bytes": list(t.encode())} for t in shown]
        first = rows[0] if rows else {"token": "", "logprob": 0.0, "bytes": []}
        return self.answer(body, str(first["token"]), {"content": [{**first, "top_logprobs": rows}]})

    def answer(self, body: dict[str, Any], text: str, logprobs: Any) -> Reply:
        read = len(json.dumps(body["messages"]))
        choice = {
            "index": 0,
            "message": {"role": "assistant", "content": text},
            "logprobs": logprobs,
            "finish_reason": "stop",
        }
        return Reply(
            {
                "id": "x",
                "object": "chat.completion",
                "created": 1,
                "model": self.answers_as or body["model"],
                "choices": [choice],
                "usage": {"prompt_tokens": read, "total_tokens": read + 1, "completion_tokens": 1},
            }
        )

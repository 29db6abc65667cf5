"""Loopback servers that answer as vLLM, SGLang and OpenRLHF do, with faults on demand."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.judges.serving import Reply, Request

Squash = Callable[[float], float]
SIGMOID: Squash = lambda reward: 1 / (1 + math.exp(-reward))  # noqa: E731
ALWAYS_ONE: Squash = lambda _: 1.0  # noqa: E731
SIGN: Squash = lambda reward: math.copysign(1.0, reward)  # noqa: E731


def reward_of(text: Any, seed: int = 0) -> float:
    """A reward between -5 and 5 that depends on the whole text, or messages, or token ids."""
    return zlib.crc32(json.dumps(text).encode(), seed) / 2**32 * 10 - 5


@dataclass
class Vllm:
    """Answers as vLLM 0.32 does; the formats are recorded from a real server."""

    model: str = "org/rm"
    root: str = "org/rm"
    seed: int = 0
    max_length: int = 4096
    squash: Squash = SIGMOID
    knows: Sequence[str] = ("use_activation",)  # the parameters that switch the squashing off
    paths: Sequence[str] = ("/classify", "/pooling")
    rewards: Callable[[Any], float] | None = None
    faults: dict[int, Reply] = field(default_factory=dict)  # by the number of the scoring request

    def __call__(self, request: Request) -> Reply:
        if request.path == "/version":
            return Reply({"version": "0.32.0"})
        if request.path == "/v1/models":
            card = {"id": self.model, "object": "model", "created": 1, "owned_by": "vllm", "root": self.root}
            return Reply({"object": "list", "data": [card | {"max_model_len": self.max_length}]})
        if request.path not in self.paths:
            return Reply({"detail": "Not Found"}, 404)
        if request.number in self.faults:
            return self.faults[request.number]
        body = request.body
        if body["model"] != self.model:
            error = {"message": f"The model `{body['model']}` does not exist.", "type": "NotFoundError"}
            return Reply({"error": {**error, "param": "model", "code": 404}}, 404)
        texts = [body["messages"]] if "messages" in body else body["input"]
        return Reply(self.answer(request.path, texts, body))

    def answer(self, path: str, texts: list[Any], body: dict[str, Any]) -> dict[str, Any]:
        rows = []
        for index, text in enumerate(texts):
            reward = self.rewards(text) if self.rewards is not None else reward_of(text, self.seed)
            raw = any(body.get(name) is False for name in self.knows)
            value = reward if raw else self.squash(reward)
            if path == "/classify":
                rows.append({"index": index, "label": "LABEL_0", "probs": [value], "num_classes": 1})
            else:
                rows.append({"index": index, "object": "pooling", "data": [value]})
        tokens = min(sum(len(json.dumps(text)) for text in texts), body.get("truncate_prompt_tokens", 10**9))
        usage = {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}
        return {"id": "x", "object": "list", "created": 1, "model": self.model, "data": rows, "usage": usage}


@dataclass
class Sglang:
    """Answers as SGLang does, according to its documentation."""

    model: str = "org/rm"
    weights: str = "default"
    squash: Squash = float

    def __call__(self, request: Request) -> Reply:
        if request.path == "/v1/models":
            card = {"id": self.model, "object": "model", "created": 1, "owned_by": "sglang"}
            return Reply({"object": "list", "data": [card | {"root": self.model, "max_model_len": 512}]})
        if request.path == "/get_model_info":
            info = {"model_path": self.model, "tokenizer_path": self.model, "is_generation": False}
            return Reply({**info, "weight_version": self.weights})
        if request.path == "/server_info":
            return Reply({"version": "0.5.9"})
        if request.path != "/classify":
            return Reply({"detail": "Not Found"}, 404)
        rewards = [self.squash(reward_of(ids)) for ids in request.body["input_ids"]]
        return Reply([{"embedding": [reward], "meta_info": {"id": "x"}} for reward in rewards])


@dataclass
class Openrlhf:
    """Answers as OpenRLHF's `serve_rm` does, according to its source."""

    seed: int = 0

    def __call__(self, request: Request) -> Reply:
        if request.path == "/openapi.json":
            return Reply({"openapi": "3.1.0", "info": {}, "paths": {"/get_reward": {"post": {}}}})
        if request.path != "/get_reward":
            return Reply({"detail": "Not Found"}, 404)
        return Reply({"rewards": [reward_of(text, self.seed) for text in request.body["query"]]})

"""The requests that `serve` understands, and the answers that their senders expect.

A dialect is known by the path of a request and by its keys. It reads samples from the body, and writes an answer
from their rewards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmcalib.live.adapters import openrlhf_answer, openrlhf_samples
from rmcalib.live.meaning import Scored
from rmcalib.live.policy import PolicyTexts
from rmcalib.live.reward import as_samples
from rmcalib.live.samples import Sample, as_sample, split_conversation

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Texts:
    """What is done with whole texts that have a policy's template in them.

    They are taken apart (`policy`), or read by the judge as they are (`as_is`).
    """

    policy: PolicyTexts | None = None
    as_is: bool = False


@dataclass(frozen=True)
class Dialect:
    """How a client asks and what it reads.

    `paths` and `keys` tell dialects apart. `read` returns the samples of a body, or raises a ValueError. `write`
    returns the answer for the model's name, the body and the rewards.
    """

    name: str
    paths: tuple[str, ...]
    keys: tuple[str, ...]
    read: Callable[[Body, Texts], list[Sample]]
    write: Callable[[str, Body, Sequence[Scored]], Any]


def dialect_of(path: str, body: Any) -> Dialect:
    """Return the dialect of a request; a ValueError says what was expected."""
    if not isinstance(body, Mapping):
        raise ValueError(f"expected a JSON object, got {type(body).__name__}")
    here = [dialect for dialect in DIALECTS if path in dialect.paths]
    for dialect in here:
        if all(key in body for key in dialect.keys):
            return dialect
    known = "; ".join(f"{', '.join(one.keys)} ({one.name})" for one in here)
    raise ValueError(f"unknown keys: {', '.join(map(str, list(body)[:8])) or 'none'}; expected {known}")


def _texts(values: Any, name: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise ValueError(f"{name}: expected a list of texts")
    return values


def _list(body: Body, name: str, n: int) -> list[Any] | None:
    """Return an optional list with one entry per sample."""
    values = body.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or len(values) != n:
        raise ValueError(f"{name}: expected a list of {n}")
    return values


def _step(body: Body) -> int | None:
    step = body.get("step")
    if step is not None and (isinstance(step, bool) or not isinstance(step, int)):
        raise ValueError("step: expected a whole number")
    return step


# OpenRLHF


def _read_openrlhf(body: Body, texts: Texts) -> list[Sample]:
    queries = _texts(body["query"], "query")
    prompts, labels = _list(body, "prompts", len(queries)), _list(body, "labels", len(queries))
    if texts.as_is:
        known = labels or [None] * len(queries)
        return [Sample(None, text, label, _step(body)) for text, label in zip(queries, known, strict=True)]
    asked = None if prompts is None else _texts(prompts, "prompts")
    return openrlhf_samples(queries, asked, labels, texts.policy, _step(body))


def _write_openrlhf(_: str, __: Body, scored: Sequence[Scored]) -> Any:
    return openrlhf_answer(scored)


# slime


def _read_slime(body: Body, _: Texts) -> list[Sample]:
    return [as_sample(body["prompt"], body["response"], "request", label=body.get("label"), step=_step(body))]


def _write_slime(_: str, __: Body, scored: Sequence[Scored]) -> Any:
    return scored[0].reward


# LLaMA-Factory


def _read_llama_factory(body: Body, texts: Texts) -> list[Sample]:
    whole = _texts(body["messages"], "messages")
    if texts.as_is:
        return [Sample(None, text, None, _step(body)) for text in whole]
    return openrlhf_samples(whole, None, None, texts.policy, _step(body))


def _write_llama_factory(_: str, __: Body, scored: Sequence[Scored]) -> Any:
    return {"scores": [one.reward for one in scored]}


# vLLM


def _read_vllm_messages(body: Body, _: Texts) -> list[Sample]:
    _check_activation(body)
    prompt, response = split_conversation(body["messages"], "messages")
    return [Sample(prompt, response, None, _step(body))]


def _read_vllm_input(body: Body, _: Texts) -> list[Sample]:
    _check_activation(body)
    given = body["input"]
    several = isinstance(given, list) and not all(_is_token(one) for one in given)
    samples = []
    for number, text in enumerate(given if several else [given]):
        ids = isinstance(text, list) and bool(text) and all(map(_is_token, text))
        if not isinstance(text, str) and not ids:
            raise ValueError(f"input {number}: expected a text, or a list of token ids")
        samples.append(Sample(None, text if isinstance(text, str) else tuple(text), None, _step(body)))
    return samples


def _is_token(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check_activation(body: Body) -> None:
    if body.get("use_activation") or body.get("activation") or body.get("softmax"):
        raise ValueError(
            "use_activation: this server applies no sigmoid; its calibrator says what a reward means"
        )


def _write_vllm(path: str) -> Callable[[str, Body, Sequence[Scored]], Any]:
    def write(model: str, _: Body, scored: Sequence[Scored]) -> Any:
        rows: list[dict[str, Any]] = [
            {"index": number, "label": "LABEL_0", "probs": [one.reward], "num_classes": 1}
            if path == "/classify"
            else {"index": number, "object": "pooling", "data": [one.reward]}
            for number, one in enumerate(scored)
        ]
        return {"object": "list", "created": int(time.time()), "model": model, "data": rows}

    return write


# Our own


def _read_score(body: Body, _: Texts) -> list[Sample]:
    prompts, responses = body["prompts"], body["responses"]
    if not isinstance(prompts, list) or not isinstance(responses, list):
        raise ValueError("prompts, responses: expected lists of the same length")
    return as_samples(prompts, responses, _list(body, "labels", len(responses)), _step(body))


def _write_score(_: str, __: Body, scored: Sequence[Scored]) -> Any:
    return {
        "rewards": [one.reward for one in scored],
        "raw": [one.raw for one in scored],
        "probabilities": [one.probability for one in scored],
        "outside": [one.outside for one in scored],
    }


_ROOT = ("/", "/get_reward")
DIALECTS = (
    Dialect("OpenRLHF", _ROOT, ("query",), _read_openrlhf, _write_openrlhf),
    Dialect("slime", _ROOT, ("prompt", "response"), _read_slime, _write_slime),
    Dialect("LLaMA-Factory", _ROOT, ("messages",), _read_llama_factory, _write_llama_factory),
    Dialect("score", ("/score",), ("prompts", "responses"), _read_score, _write_score),
    *(
        Dialect("vLLM", (path,), (key,), read, _write_vllm(path))
        for path in ("/classify", "/pooling")
        for key, read in (("messages", _read_vllm_messages), ("input", _read_vllm_input))
    ),
)
PATHS = frozenset(path for dialect in DIALECTS for path in dialect.paths)

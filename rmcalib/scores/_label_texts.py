"""Where the texts of prompts and responses are: in a benchmark, or in columns of the table of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import IntArray
from rmcalib.benchmarks import Benchmark
from rmcalib.scores._files import Table
from rmcalib.scores._scores import Scores

_PROMPT = ("prompt_text", "prompt", "question", "instruction", "query", "problem", "input", "messages")
_RESPONSE = (
    "response_text",
    "response",
    "completion",
    "answer",
    "output",
    "generation",
    "text",
    "response_id",
)
"""In order of preference; scores keep short texts of a column `response` as `response_id`."""
TEXT_COLUMNS = {*_PROMPT, *_RESPONSE}
_LISTS = ("responses", "completions", "answers", "outputs", "candidates", "generations")
_PAIR = ("chosen", "rejected")


@dataclass(frozen=True)
class Texts:
    """The prompt and the response of each row of scores: (N,) each."""

    prompt: list[str]
    response: list[str]


def texts_of(scores: Scores, origin: Table, row: IntArray, benchmark: Benchmark | None) -> Texts | None:
    """Return the texts of all responses; None if there are none. ``row`` (N,) says where they are in their table."""
    if benchmark is not None:
        items = {item.id: item for item in benchmark.items}
        missing = [name for name in scores.item_id[scores.offsets[:-1]].tolist() if name not in items]
        if missing:
            raise ValueError(f"benchmark: {benchmark.name} has no prompt {missing[0]!r}")
        pairs = [*zip(scores.item_id.tolist(), scores.response.tolist(), strict=True)]
        return Texts(
            [_as_text(items[name].prompt) for name, _ in pairs],
            [items[name].responses[i] for name, i in pairs],
        )
    table: dict[str, Any] = {name: np.asarray(values)[row] for name, values in origin.columns.items()}
    columns: dict[str, Any] = {**table, **scores.extra}
    response = _responses(columns, scores.response.tolist())
    if response is None:
        return None
    prompt = next((columns[name] for name in _PROMPT if name in columns and _are_texts(columns[name])), None)
    return Texts([""] * len(scores) if prompt is None else [_as_text(text) for text in prompt], response)


def _responses(columns: Mapping[str, Any], number: Sequence[int]) -> list[str] | None:
    """Return the text of each response: from a column, a list, or chosen and rejected."""
    for name in _RESPONSE:
        if name in columns and _are_texts(columns[name]):
            return [_as_text(text) for text in columns[name]]
    for name in _LISTS:
        lists = columns.get(name)
        if lists is not None and all(isinstance(text, str) for text in lists):  # they were split by response
            return list(lists)
        if lists is not None and all(
            isinstance(responses, list) and len(responses) > i
            for responses, i in zip(lists, number, strict=True)
        ):
            return [_as_text(responses[i]) for responses, i in zip(lists, number, strict=True)]
    if all(name in columns and _are_texts(columns[name]) for name in _PAIR) and max(number) < len(_PAIR):
        return [_as_text(columns[_PAIR[i]][row]) for row, i in enumerate(number)]
    return None


def _are_texts(values: Any) -> bool:
    """Whether a column holds texts or messages, not ids."""
    given = [value for value in values[:200] if value is not None and value != ""]
    texts = [value for value in given if isinstance(value, (str, list, dict))]
    return len(texts) == len(given) > 0 and any(
        not isinstance(text, str) or " " in text.strip() for text in texts
    )


def _as_text(value: Any) -> str:
    """Return a text, or chat messages as one."""
    if isinstance(value, Mapping):
        return str(value.get("content", value))
    if isinstance(value, (list, tuple)):
        return "\n\n".join(
            f"[{message.get('role', '')}] {message.get('content', '')}"
            if isinstance(message, Mapping)
            else str(message)
            for message in value
        )
    return "" if value is None else str(value)

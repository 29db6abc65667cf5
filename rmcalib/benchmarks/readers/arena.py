"""Chatbot Arena: battles of two models, with the vote of the person who asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rmcalib._util.texts import LONE_SURROGATE
from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource
from rmcalib.benchmarks._items import Item, voted_item
from rmcalib.benchmarks._rows import Row, common_prompt, each

__all__ = ["ENTRIES"]

_WINNERS = {"model_a": (1, 0), "model_b": (0, 1), "tie": (0, 0), "both_bad": (0, 0)}
_OUTCOMES = ("winner_model_a", "winner_model_b", "winner_tie")
_WITHOUT_TEXT = "a message has no text, or broken characters"


def read_55k(row: Row) -> Item | str:
    """Read a battle; prompts and responses are lists of turns, written as JSON.

    Battles of several turns have no common prompt and are left out. So are broken texts.
    """
    turns = [_turns(row, name) for name in ("prompt", "response_a", "response_b")]
    if any(len(texts) != len(turns[0]) for texts in turns) or not turns[0]:
        raise row.error("prompt, response_a and response_b must have the same number of turns, at least one")
    won = [row.number(name) for name in _OUTCOMES]
    if sorted(won) != [0, 0, 1]:
        raise row.error(f"one of {', '.join(_OUTCOMES)} must be 1, the others 0")
    if len(turns[0]) > 1:
        return "the battle has several turns"
    prompt, first, second = (texts[0] for texts in turns)
    if not all(isinstance(text, str) and not LONE_SURROGATE.search(text) for text in (prompt, first, second)):
        return _WITHOUT_TEXT
    return voted_item(
        row.name("id"),
        "arena",
        prompt,
        (first, second),
        (int(won[0]), int(won[1])),
        ties=int(won[2]),
        columns=row.columns("model_a", "model_b"),
    )


def read_140k(row: Row) -> Item | str:
    """Read a battle; conversations that differ before the last response, and images, are left out."""
    talks = [row.rows("conversation_a"), row.rows("conversation_b")]
    if any(_has_image(message.values.get("content")) for talk in talks for message in talk):
        return "a message has an image"
    a, b = row.messages("conversation_a"), row.messages("conversation_b")
    if a[-1]["role"] != "assistant" or b[-1]["role"] != "assistant":
        raise row.error("a conversation must end with the assistant's response")
    found = common_prompt(a, b, row)
    if isinstance(found, str):
        return found
    prompt, *responses = found
    votes = row.choice("winner", _WINNERS)
    return voted_item(
        row.name("id"),
        "arena",
        prompt,
        responses,
        votes,
        ties=int(votes == (0, 0)),
        columns=row.columns("model_a", "model_b", "winner", "language", "is_code"),
    )


def _turns(row: Row, name: str) -> Sequence[Any]:
    value = row.value(name)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise row.error(f"{name!r} must be a list of texts, written as JSON") from None
    if not isinstance(value, (list, tuple)):
        raise row.error(f"{name!r} must be a list of texts, written as JSON")
    return value


def _has_image(content: Any) -> bool:
    parts = content if isinstance(content, (list, tuple)) else ()
    return any(isinstance(part, dict) and part.get("image") for part in parts)


ENTRIES = (
    BenchmarkEntry(
        name="arena-55k",
        title="Chatbot Arena, 55k battles",
        labels="votes",
        columns=("id", "prompt", "response_a", "response_b", *_OUTCOMES),
        read=each(read_55k),
        licence="Apache-2.0",
        homepage="https://huggingface.co/datasets/lmarena-ai/arena-human-preference-55k",
        prompts=55000,
        responses="2",
        hub=(HubSource("lmarena-ai/arena-human-preference-55k", "train"),),
        categories=("arena",),
    ),
    BenchmarkEntry(
        name="arena-140k",
        title="Chatbot Arena, 140k battles",
        labels="votes",
        columns=("id", "winner", "conversation_a", "conversation_b"),
        read=each(read_140k),
        licence="CC-BY-4.0",
        homepage="https://huggingface.co/datasets/lmarena-ai/arena-human-preference-140k",
        prompts=140000,
        responses="2",
        hub=(HubSource("lmarena-ai/arena-human-preference-140k", "train"),),
        categories=("arena",),
    ),
)

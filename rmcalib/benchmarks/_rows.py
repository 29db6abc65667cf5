"""Rows of benchmark files. Values are checked when they are read; errors name the file and the row."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rmcalib._util.texts import LONE_SURROGATE
from rmcalib.benchmarks._items import Item, Prompt

__all__ = ["ROLES", "Reader", "Row", "chat_prompt", "common_prompt", "each", "response_text"]

ROLES = ("system", "developer", "user", "assistant", "tool")
"""The roles that a chat message may have."""

Value = TypeVar("Value")


@dataclass(frozen=True)
class Row:
    """One row of a benchmark file, whose methods read and check its values.

    Parameters
    ----------
    where : str
        File and row number, for error messages.
    values : Mapping[str, Any]
        Values by column name.

    Examples
    --------
    >>> row = Row("x.jsonl, line 2", {"id": 7, "prompt": "Hi"})
    >>> row.name("id"), row.text("prompt")
    ('7', 'Hi')
    >>> row.text("answer")
    Traceback (most recent call last):
    ValueError: x.jsonl, line 2: no value for answer
    """

    where: str
    values: Mapping[str, Any]

    def error(self, problem: str) -> ValueError:
        """Return an error that names the place of the row."""
        return ValueError(f"{self.where}: {problem}")

    def has(self, name: str) -> bool:
        """Return whether a column has a value."""
        return self.values.get(name) is not None

    def value(self, name: str) -> Any:
        """Return a value, which must not be missing."""
        if not self.has(name):
            raise self.error(f"no value for {name}")
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a text."""
        return self._text(self.value(name), repr(name))

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; a text by itself is a list of one."""
        value = self.value(name)
        if isinstance(value, str):
            return (self._text(value, repr(name)),)
        if not isinstance(value, (list, tuple)) or not all(isinstance(text, str) for text in value):
            raise self.error(f"{name!r} must be a list of texts (or one text)")
        return tuple(self._text(text, repr(name)) for text in value)

    def name(self, *names: str, default: str | None = None) -> str:
        """Return an id or a category: a text that is not empty, or a number.

        Of several columns, the first that has a value counts; `default` is the result if none has one.
        """
        name = next((name for name in names if self.has(name)), names[-1])
        if default is not None and not self.has(name):
            return default
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, (str, int, float)) or not _is_finite(value):
            raise self.error(f"{name!r} is {_shown(value)}: it must be a text or a finite number")
        text = str(value)
        if "\0" in text:
            raise self.error(f"a NUL character in the {name}")
        if not text.strip():
            raise self.error(f"{name!r} is empty")
        return self._text(text, repr(name))

    def number(self, name: str) -> float:
        """Return a finite number, also from a text such as "1.5" (CSV files have only texts)."""
        value = self.value(name)
        try:
            number = float("nan") if isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if not math.isfinite(number):
            raise self.error(f"{name!r} is {_shown(value)}, not a number")
        return number

    def choice(self, name: str, choices: Mapping[str, Value]) -> Value:
        """Return the entry of `choices` for a value."""
        value = self.value(name)
        if not isinstance(value, str) or value not in choices:
            raise self.error(f"{name!r} is {_shown(value)}, not one of {', '.join(choices)}")
        return choices[value]

    def rows(self, name: str) -> list[Row]:
        """Return a list of objects as rows."""
        value = _from_json(self.value(name))
        if not isinstance(value, (list, tuple)) or not all(isinstance(part, Mapping) for part in value):
            raise self.error(f"{name!r} must be a list of objects")
        return [Row(f"{self.where}, {name} {i}", part) for i, part in enumerate(value)]

    def row(self, name: str) -> Row:
        """Return an object as a row."""
        value = _from_json(self.value(name))
        if not isinstance(value, Mapping):
            raise self.error(f"{name!r} must be an object")
        return Row(f"{self.where}, {name}", value)

    def messages(self, name: str) -> tuple[dict[str, str], ...]:
        """Return chat messages."""
        value = _from_json(self.value(name))
        if not isinstance(value, (list, tuple)) or not value:
            raise self.error(f"{name!r} must be a list of chat messages")
        return tuple(self._message(message) for message in value)

    def prompt(self, name: str) -> Prompt:
        """Return a text, or chat messages that end before the assistant's turn."""
        value = self.value(name)
        if isinstance(value, str):
            return self._text(value, repr(name))
        if not isinstance(value, (list, tuple)) or not value:
            raise self.error(f"{name!r} must be a text or a list of chat messages")
        return chat_prompt(self.messages(name), self)

    def columns(self, *names: str) -> dict[str, str]:
        """Return columns as texts, without those that have no text, number or truth value."""
        found = {name: _column(self.values[name]) for name in names if name in self.values}
        return {name: text for name, text in found.items() if text is not None}

    def _message(self, message: Any) -> dict[str, str]:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise self.error("a chat message needs the texts 'role' and 'content'")
        role, content = message["role"], message.get("content")
        if isinstance(content, (list, tuple)):  # parts of a message; images have no text
            parts = [part.get("text") for part in content if isinstance(part, Mapping)]
            content = "\n".join(part for part in parts if isinstance(part, str)) if parts else None
        if not isinstance(content, str):
            raise self.error("a chat message needs the texts 'role' and 'content'")
        if role not in ROLES:
            raise self.error(f"unknown chat role {_shown(role)} (have: {', '.join(ROLES)})")
        return {"role": role, "content": self._text(content, "a chat message")}

    def _text(self, value: Any, label: str) -> str:
        if not isinstance(value, str):
            raise self.error(f"{label} must be a text")
        if LONE_SURROGATE.search(value):
            raise self.error(f"a lone surrogate (\\ud800 to \\udfff) in {label}: fix the text")
        return value


Reader = Callable[[Iterable[Row]], Iterator[Item | str]]
"""Turns rows into items. Instead of an item it may yield the reason why a row is left out."""


def each(read: Callable[[Row], Item | str]) -> Reader:
    """Return a reader for formats in which every row is one prompt.

    Parameters
    ----------
    read : callable
        Takes a `Row` and returns an `Item`, or a str with the reason why the row is left out.

    Returns
    -------
    callable
        The `read` of a `BenchmarkEntry`.

    Examples
    --------
    >>> reader = each(lambda row: Item(row.name("id"), "quiz", row.text("q"), ("yes", "no"), 1))
    >>> [item.id for item in reader([Row("line 1", {"id": 7, "q": "Is it?"})])]
    ['7']
    """
    return lambda rows: (read(row) for row in rows)


def chat_prompt(messages: Sequence[dict[str, str]], row: Row) -> tuple[dict[str, str], ...]:
    """Return the messages of a prompt, which must end before the assistant's turn."""
    if not messages:
        raise row.error("no message before the response")
    if messages[-1]["role"] == "assistant":
        raise row.error("the prompt ends with the assistant's turn; it must end before it")
    return tuple(messages)


def common_prompt(
    first: Sequence[dict[str, str]], second: Sequence[dict[str, str]], row: Row
) -> tuple[Prompt, str, str] | str:
    """Split two conversations into their common prompt and the last message of each.

    If they differ before the last message, return the reason why the row is left out.
    """
    if list(first[:-1]) != list(second[:-1]):
        return "the two conversations differ before the last response"
    prompt = chat_prompt(first[:-1], row)
    return prompt, response_text(first[-1], row), response_text(second[-1], row)


def response_text(message: dict[str, str], row: Row) -> str:
    """Return the text of a message, which must be the assistant's."""
    if message["role"] != "assistant":
        raise row.error(f"the last message is the {message['role']}'s; it must be the assistant's response")
    return message["content"]


def _is_finite(value: str | float) -> bool:
    return isinstance(value, str) or math.isfinite(value)


def _column(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (str, int, float)) and value != "":
        return str(value)
    return None


def _from_json(value: Any) -> Any:
    """Parse a value that a CSV or Parquet file holds as JSON text."""
    if isinstance(value, str) and value[:1] in ("[", "{"):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

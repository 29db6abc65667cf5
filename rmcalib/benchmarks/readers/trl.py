"""TRL's preference format: `prompt` (optional), `chosen`, `rejected`, as texts or as chat messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rmcalib.benchmarks._entry import BenchmarkEntry
from rmcalib.benchmarks._items import Item, Prompt
from rmcalib.benchmarks._rows import Row, chat_prompt

__all__ = ["ENTRIES"]

_COLUMNS = ("prompt", "chosen", "rejected")
_IDS = ("id", "prompt_id")
_CATEGORIES = ("subset", "category")
_TURN = re.compile(r"\n\n(Human|Assistant):")
_DIFFERENT = "the two conversations differ before the last message"
_SAME = "both responses are the same"

Messages = Sequence[dict[str, str]]


def read(rows: Iterable[Row]) -> Iterator[Item | str]:
    """Read pairs. Without a prompt, it is what the two conversations or texts have in common."""
    for number, row in enumerate(rows):
        read_as = _chat if not isinstance(row.value("chosen"), str) else _texts
        found = read_as(row)
        if isinstance(found, str):
            yield found
            continue
        prompt, chosen, rejected = found
        if chosen == rejected:
            yield _SAME
            continue
        identifier = next((row.name(name) for name in _IDS if row.has(name)), str(number))
        category = next((row.name(name) for name in _CATEGORIES if row.has(name)), "all")
        more = row.columns(*(name for name in row.values if name not in (*_COLUMNS, *_IDS, *_CATEGORIES)))
        yield Item(identifier, category, prompt, (chosen, rejected), 1, columns=more)


def _chat(row: Row) -> tuple[Prompt, str, str] | str:
    chosen, rejected = row.messages("chosen"), row.messages("rejected")
    if row.has("prompt") and len(chosen) == len(rejected) == 1:
        prompt = row.prompt("prompt")
        return prompt, _response(chosen[0], row), _response(rejected[0], row)
    return _split(chosen, rejected, row)


def _texts(row: Row) -> tuple[Prompt, str, str] | str:
    chosen, rejected = row.text("chosen"), row.text("rejected")
    if row.has("prompt"):
        return row.prompt("prompt"), chosen, rejected
    if chosen == rejected:
        return _SAME
    if _TURN.match(chosen) and _TURN.match(rejected):
        return _split(_dialogue(chosen), _dialogue(rejected), row)
    # As TRL does it: the common beginning, without the space that ends it.
    shorter = min(len(chosen), len(rejected))
    common = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter)
    if common and chosen[common - 1] == " ":
        common -= 1
    if not common:
        raise row.error("no prompt, and 'chosen' and 'rejected' do not begin alike")
    return chosen[:common], chosen[common:], rejected[common:]


def _split(chosen: Messages, rejected: Messages, row: Row) -> tuple[Prompt, str, str] | str:
    """Divide two conversations into what comes before the last message, and the last messages."""
    if list(chosen[:-1]) != list(rejected[:-1]):
        return _DIFFERENT
    prompt = chat_prompt(chosen[:-1], row)
    return prompt, _response(chosen[-1], row), _response(rejected[-1], row)


def _dialogue(text: str) -> Messages:
    """Read a text of turns, each begun by an empty line and `Human:` or `Assistant:`."""
    roles = {"Human": "user", "Assistant": "assistant"}
    parts = _TURN.split(text)[1:]
    return [
        {"role": roles[who], "content": said.strip()}
        for who, said in zip(parts[::2], parts[1::2], strict=True)
    ]


def _response(message: dict[str, str], row: Row) -> str:
    if message["role"] != "assistant":
        raise row.error(f"the last message is the {message['role']}'s; it must be the assistant's response")
    return message["content"]


ENTRIES = (
    BenchmarkEntry(
        name="trl",
        title="TRL's preference format",
        labels="pairs",
        columns=("chosen", "rejected"),
        read=read,
        licence="yours",
        homepage="https://huggingface.co/docs/trl/dataset_formats",
        responses="2",
    ),
)

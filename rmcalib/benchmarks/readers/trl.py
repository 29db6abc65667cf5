"""TRL's preference format: `prompt` (optional), `chosen`, `rejected`, as texts or as chat messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rmcalib.benchmarks._entry import BenchmarkEntry
from rmcalib.benchmarks._items import Item, Prompt
from rmcalib.benchmarks._rows import Row, common_prompt, response_text

__all__ = ["ENTRIES"]

_COLUMNS = ("prompt", "chosen", "rejected")
_IDS = ("id", "prompt_id")
_CATEGORIES = ("subset", "category")
_TURN = re.compile(r"\n\n(Human|Assistant):")
_SAME = "both responses are the same"

Messages = Sequence[dict[str, str]]


def read(rows: Iterable[Row]) -> Iterator[Item | str]:
    """Read pairs. Without `prompt`, the prompt is the common beginning of the two conversations or texts."""
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
        identifier = row.name(*_IDS, default=str(number))
        category = row.name(*_CATEGORIES, default="all")
        more = row.columns(*(name for name in row.values if name not in (*_COLUMNS, *_IDS, *_CATEGORIES)))
        yield Item(identifier, category, prompt, (chosen, rejected), 1, columns=more)


def _chat(row: Row) -> tuple[Prompt, str, str] | str:
    chosen, rejected = row.messages("chosen"), row.messages("rejected")
    if row.has("prompt") and len(chosen) == len(rejected) == 1:
        prompt = row.prompt("prompt")
        return prompt, response_text(chosen[0], row), response_text(rejected[0], row)
    return common_prompt(chosen, rejected, row)


def _texts(row: Row) -> tuple[Prompt, str, str] | str:
    chosen, rejected = row.text("chosen"), row.text("rejected")
    if row.has("prompt"):
        return row.prompt("prompt"), chosen, rejected
    if chosen == rejected:
        return _SAME
    if _TURN.match(chosen) and _TURN.match(rejected):
        return common_prompt(_dialogue(chosen), _dialogue(rejected), row)
    # As TRL does: the common beginning, without a space at its end.
    shorter = min(len(chosen), len(rejected))
    common = next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter)
    if common and chosen[common - 1] == " ":
        common -= 1
    if not common:
        raise row.error("no prompt, and 'chosen' and 'rejected' have no common beginning")
    return chosen[:common], chosen[common:], rejected[common:]


def _dialogue(text: str) -> Messages:
    """Read a text of turns. Each turn begins with an empty line and `Human:` or `Assistant:`."""
    roles = {"Human": "user", "Assistant": "assistant"}
    parts = _TURN.split(text)[1:]
    return [
        {"role": roles[who], "content": said.strip()}
        for who, said in zip(parts[::2], parts[1::2], strict=True)
    ]


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

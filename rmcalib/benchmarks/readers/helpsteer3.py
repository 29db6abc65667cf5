"""HelpSteer3-Preference: two responses, compared by several annotators from -3 to 3."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource
from rmcalib.benchmarks._items import Item, voted_item
from rmcalib.benchmarks._rows import Row, chat_prompt

__all__ = ["ENTRIES"]


def read(rows: Iterable[Row]) -> Iterator[Item | str]:
    """Read comparisons; a negative preference is a vote for the first response, 0 is a tie.

    The column `individual_preference` keeps the strengths, such as `-2 -1 0`. A row without annotators has
    one vote, its overall preference.
    """
    for number, row in enumerate(rows):
        given = row.rows("individual_preference") if row.has("individual_preference") else []
        strengths = [_strength(annotator, "score") for annotator in given]
        overall = _strength(row, "overall_preference")
        counted = strengths or [overall]
        votes = (sum(value < 0 for value in counted), sum(value > 0 for value in counted))
        more = row.columns("domain", "language", "overall_preference")
        more["individual_preference"] = " ".join(map(str, strengths))
        yield voted_item(
            str(number),
            row.name("domain"),
            chat_prompt(row.messages("context"), row),
            (row.text("response1"), row.text("response2")),
            votes,
            ties=sum(value == 0 for value in counted),
            columns=more,
        )


def _strength(row: Row, name: str) -> int:
    value = row.number(name)
    if value not in range(-3, 4):
        raise row.error(f"{name!r} is {value:g}, not a whole number from -3 to 3")
    return int(value)


ENTRIES = (
    BenchmarkEntry(
        name="helpsteer3",
        title="HelpSteer3-Preference",
        labels="votes",
        columns=("domain", "context", "response1", "response2", "overall_preference"),
        read=read,
        licence="CC-BY-4.0",
        homepage="https://huggingface.co/datasets/nvidia/HelpSteer3",
        prompts=40476,
        responses="2",
        hub=(
            HubSource("nvidia/HelpSteer3", "train", "preference"),
            HubSource("nvidia/HelpSteer3", "validation", "preference"),
        ),
        categories=("general", "stem", "code", "multilingual"),
    ),
)

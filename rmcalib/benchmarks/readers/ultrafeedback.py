"""UltraFeedback and data sets like it: several responses with ratings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource
from rmcalib.benchmarks._items import Item
from rmcalib.benchmarks._rows import Row

__all__ = ["ENTRIES"]

_RATINGS = ("overall_score", "rating", "score")


def read(rows: Iterable[Row]) -> Iterator[Item | str]:
    """Read rated responses; those with the best rating are the correct ones.

    A row is left out if all its responses have the same rating. The column `ratings` keeps the ratings, in
    the order of the responses.
    """
    for number, row in enumerate(rows):
        completions = row.rows("completions")
        if len(completions) < 2:
            yield "fewer than two responses"
            continue
        ratings = [_rating(completion) for completion in completions]
        n_correct = ratings.count(max(ratings))
        if n_correct == len(ratings):
            yield "all responses have the same rating"
            continue
        order = sorted(range(len(ratings)), key=lambda i: -ratings[i])
        more = row.columns("source")
        more["ratings"] = " ".join(f"{ratings[i]:g}" for i in order)
        yield Item(
            row.name("id", default=str(number)),
            row.name("source", default="all"),
            row.prompt("instruction"),
            tuple(completions[i].text("response") for i in order),
            n_correct,
            columns=more,
        )


def _rating(completion: Row) -> float:
    name = next((name for name in _RATINGS if completion.has(name)), _RATINGS[0])
    return completion.number(name)


ENTRIES = (
    BenchmarkEntry(
        name="ultrafeedback",
        title="UltraFeedback and other ratings",
        labels="several",
        columns=("instruction", "completions"),
        read=read,
        licence="MIT",
        homepage="https://huggingface.co/datasets/openbmb/UltraFeedback",
        prompts=64000,
        responses="4",
        hub=(HubSource("openbmb/UltraFeedback", "train"),),
    ),
)

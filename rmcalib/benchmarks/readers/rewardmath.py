"""RewardMATH: one correct and nine wrong solutions per problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rmcalib.benchmarks._entry import BenchmarkEntry, OfficialScore, ScoredItems
from rmcalib.benchmarks._items import Item
from rmcalib.benchmarks._rows import Row
from rmcalib.benchmarks._winning import accuracy, mean_by_category, reciprocal_rank

__all__ = ["ENTRIES"]

_CORRECT = "human_to_GPT-4"


def read(rows: Iterable[Row]) -> Iterator[Item | str]:
    """Collect the solutions of each problem. There is one row per solution, in any order."""
    solutions: dict[str, list[Row]] = {}
    for row in rows:
        solutions.setdefault(row.text("problem"), []).append(row)
    for number, (problem, own) in enumerate(solutions.items()):
        authors = [row.name("solution_reference") for row in own]
        correct = [i for i, author in enumerate(authors) if author == _CORRECT]
        if len(correct) != 1 or len(own) < 2:
            raise own[0].error(
                f"the problem has {len(own)} solutions, {len(correct)} of them by {_CORRECT} (the correct "
                "one); it needs one correct and at least one other"
            )
        order = sorted(range(len(own)), key=lambda i: i != correct[0])
        texts = tuple("\n".join(own[i].texts("eval_solution")) for i in order)
        identifier = own[0].name("id", default=str(number))
        yield Item(identifier, "MATH", problem, texts, 1, columns=own[0].columns("subject", "level"))


def score(items: ScoredItems) -> list[OfficialScore]:
    """Fraction of problems where the correct solution beats all others, and its mean reciprocal rank."""
    return [accuracy(items)[0], mean_by_category("mean_reciprocal_rank", reciprocal_rank(items), items)[0]]


ENTRIES = (
    BenchmarkEntry(
        name="rewardmath",
        title="RewardMATH",
        labels="one",
        columns=("problem", "solution_reference", "eval_solution"),
        read=read,
        licence="MIT",
        homepage="https://github.com/kimsh0507/RewardMATH_official",
        prompts=483,
        responses="10",
        categories=("MATH",),
        official=score,
        official_about="accuracy (the correct solution beats all others) and mean reciprocal rank",
    ),
)

"""Judge the forecasts of one fold by every notion asked for: tidy rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import IntArray, check_choice
from rmcalib.calibration import (
    Discrepancy,
    NotionProtocol,
    full_rank,
    notion_interval,
    notion_null,
    sub_k,
    top_k,
)
from rmcalib.ranking import PairwiseProbabilities, RankingDistribution
from rmcalib.ranking.events import Family

__all__ = ["NOTIONS", "Questions", "evaluate", "kendall_tau"]

NOTIONS = ("rankwise", "rankwise-95", "full-rank")
"""rankwise: average over all events. rankwise-95: over the most frequent that make up 95% of occurrences.
full-rank: the strong notion, by the Dirichlet kernel."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Questions:
    """What is asked of every forecast.

    sub, top: the k of each family, left out where there are fewer labels. stagewise: go through the k of a
    family in turn and stop where the exact rankwise error exceeds ``threshold``. resamples: behind intervals
    and nulls (0: neither). intervals: bootstrap every error as well, which takes the longest of all.
    """

    sub: tuple[int, ...] = (2, 3)
    top: tuple[int, ...] = (1, 2, 3)
    notions: tuple[str, ...] = ("rankwise", "rankwise-95")
    protocols: tuple[NotionProtocol, ...] = ("exact",)
    discrepancies: tuple[Discrepancy, ...] = ("abs", "jeffreys_unit")
    resamples: int = 200
    intervals: bool = True
    stagewise: bool = False
    threshold: float = 0.1

    def __post_init__(self) -> None:
        """Check every option at once."""
        for notion in self.notions:
            check_choice(notion, "notion", NOTIONS)
        for protocol in self.protocols:
            check_choice(protocol, "protocol", ("exact", "reference"))
        for discrepancy in self.discrepancies:
            check_choice(discrepancy, "discrepancy", ("abs", "kl", "jeffreys", "jeffreys_unit"))
        looked_at = (self.notions, "rankwise"), (self.protocols, "exact"), (self.discrepancies, "abs")
        if self.stagewise and not all(name in asked for asked, name in looked_at):
            raise ValueError(
                "stagewise: goes by the exact rankwise error, so it needs notion rankwise and protocol exact"
            )
        bad = [k for k in self.sub if k < 2] + [k for k in self.top if k < 1]
        if bad:
            raise ValueError(f"k: {bad[0]} is too small; sub-k starts at 2, top-k at 1")


def evaluate(
    dist: RankingDistribution,
    orders: IntArray,
    questions: Questions,
    *,
    counted_on: IntArray,
    support: IntArray | None = None,
    rng: np.random.Generator | int = 0,
) -> list[Row]:
    """Return one row for each family, k, notion, protocol and discrepancy, and for tau and log loss.

    orders (n, m): what happened. counted_on: the training rankings, where frequent events are counted.
    support: the rankings the reference protocol would know of.

    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(100, 3, rng=np.random.default_rng(0))
    >>> rows = evaluate(data.forecast, data.orders, Questions(top=(), resamples=20), counted_on=data.orders)
    >>> [(row["notion"], row["k"]) for row in rows][:3]
    [('kendall_tau', 3), ('log_loss', 3), ('rankwise', 2)]
    """
    generator = np.random.default_rng(rng)
    rows = list(_scores(dist, orders))
    for family, ks in _asked(dist, questions):
        for k in ks:
            found = [
                row
                for protocol in questions.protocols
                for notion in questions.notions
                for row in _notion_rows(
                    dist, orders, family, k, notion, protocol, questions, counted_on, support, generator
                )
            ]
            rows += found
            if questions.stagewise and _exceeds(found, questions.threshold):
                break
    return rows


def kendall_tau(predicted: IntArray, orders: IntArray) -> float:
    """Return the mean of Kendall's tau between two lists of rankings (n, m).

    >>> kendall_tau(np.array([[0, 1, 2]]), np.array([[0, 2, 1]])).__round__(4)
    0.3333
    """
    m = orders.shape[1]
    first, second = np.triu_indices(m, 1)
    a, b = np.argsort(predicted, axis=1), np.argsort(orders, axis=1)
    agree = (a[:, first] < a[:, second]) == (b[:, first] < b[:, second])
    return float(2 * agree.mean() - 1)


def _asked(dist: RankingDistribution, questions: Questions) -> list[tuple[Family, list[int]]]:
    """Every family with the k that this forecast can answer: pairwise probabilities know sub-2 only."""
    if isinstance(dist, PairwiseProbabilities):
        return [("sub", [k for k in questions.sub if k == 2])]
    m = dist.n_items
    # The last place is settled by the others, so that top-m is the same as top-(m−1).
    return [
        ("sub", sorted(k for k in questions.sub if k <= m)),
        ("top", sorted(k for k in questions.top if k < m)),
    ]


def _scores(dist: RankingDistribution, orders: IntArray) -> Iterator[Row]:
    m = dist.n_items
    yield _row("", "kendall_tau", m, "exact", "", kendall_tau(dist.mode(), orders), len(orders))
    if not isinstance(dist, PairwiseProbabilities):
        likelihood = [float(value) for value in np.diagonal(dist.log_prob(orders))]
        yield _row("", "log_loss", m, "exact", "", -float(np.mean(likelihood)), len(orders))


def _notion_rows(
    dist: RankingDistribution,
    orders: IntArray,
    family: Family,
    k: int,
    notion: str,
    protocol: NotionProtocol,
    questions: Questions,
    counted_on: IntArray,
    support: IntArray | None,
    rng: np.random.Generator,
) -> Iterator[Row]:
    n = len(orders)
    coverage = 0.95 if notion == "rankwise-95" else None
    if notion == "full-rank":
        listed = support if protocol == "reference" else None
        result = full_rank(dist, orders, k=k, family=family, protocol=protocol, support=listed)
        norm = "l2-squared" if protocol == "exact" else "l1"
        yield _row(family, notion, k, protocol, norm, result.value, n)
        return
    ask = sub_k if family == "sub" else top_k
    for discrepancy in questions.discrepancies:
        if protocol == "reference":
            if discrepancy in ("abs", "kl", "jeffreys_unit"):
                result = ask(
                    dist,
                    orders,
                    k,
                    coverage=coverage,
                    protocol="reference",
                    support=support,
                    discrepancy=discrepancy,
                )
                yield _row(family, notion, k, protocol, discrepancy, result.value, n, result.n_events)
            continue
        counted = counted_on if coverage else None
        result = ask(dist, orders, k, coverage=coverage, counted_on=counted, discrepancy=discrepancy, rng=rng)
        row = _row(family, notion, k, protocol, discrepancy, result.value, n, result.n_events)
        if discrepancy == "abs" and questions.resamples:
            # Not the events of the result: those that the data chose must be chosen again in every draw.
            options: dict[str, Any] = {"coverage": coverage, "counted_on": counted}
            options |= {"resamples": questions.resamples, "rng": rng}
            if questions.intervals:
                interval = notion_interval(dist, orders, k, family, **options)
                row |= {"low": interval.low, "high": interval.high}
            if not isinstance(dist, PairwiseProbabilities):
                null = notion_null(dist, orders, k, family, **options)
                row |= {"null_mean": null.mean, "null_high": null.high, "p_value": null.p_value}
        yield row


def _row(
    family: str,
    notion: str,
    k: int,
    protocol: str,
    discrepancy: str,
    value: float,
    n: int,
    n_events: int | None = None,
) -> Row:
    return {
        "family": family,
        "notion": notion,
        "k": k,
        "protocol": protocol,
        "discrepancy": discrepancy,
        "value": value,
        "low": None,
        "high": None,
        "n": n,
        "n_events": n_events,
        "null_mean": None,
        "null_high": None,
        "p_value": None,
    }


def _exceeds(rows: list[Row], threshold: float) -> bool:
    key = ("rankwise", "exact", "abs")
    return any(
        (row["notion"], row["protocol"], row["discrepancy"]) == key and row["value"] > threshold
        for row in rows
    )

"""Evaluate the forecasts of one fold by several notions of calibration."""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from rmcalib._util.arrays import IntArray, check_choice
from rmcalib.calibration import NullTest, full_rank, stagewise, sub_k, top_k
from rmcalib.calibration.binning import Discrepancy
from rmcalib.calibration.notions import NotionProtocol, NotionResult
from rmcalib.ranking import PairMarginals, RankingDistribution
from rmcalib.ranking._listed import own_log_prob
from rmcalib.ranking.events import Family

NOTIONS = ("rankwise", "rankwise-95", "full-rank", "full-rank-95")
"""rankwise: average error over all events. rankwise-95: average over the most frequent events, which make up
95% of the occurrences. full-rank: the strong notion, by the Dirichlet kernel. full-rank-95: the same with the
95% filter, which only the reference protocol has."""

STAGEWISE = "stagewise"
"""The notion of rows whose value is not an error, but the first k with a too large one; empty if there is none."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Questions:
    """What an experiment measures for every forecast.

    Parameters
    ----------
    sub, top : tuples of int
        The values of k of each family; those above the number of labels are left out.
    notions : tuple of str
        Any of "rankwise" (all events), "rankwise-95" (the most frequent events, 95% of the occurrences),
        "full-rank" (the strong notion) and "full-rank-95" (the same with the public code's 95% filter; only
        in the reference protocol).
    protocols : tuple of {"exact", "reference"}
        How to measure: by the definition, or as the paper's public code does.
    discrepancies : tuple of str
        Discrepancies of the rankwise notions, as in :func:`rmcalib.calibration.ece`.
    bandwidth : float, optional
        Bandwidth of the kernel of the strong notion. By default it is chosen by leave-one-out likelihood
        (exact) or 1 (reference).
    resamples : int
        Number of simulated data sets for intervals and null tests; 0 leaves both out.
    intervals : bool
        Whether to compute intervals, which takes most of the time.
    stagewise : "test" or float, optional
        Also find the first k, from 2 on, whose rankwise error is too large, as :func:`rmcalib.calibration.stagewise`
        does: by a null test (exact protocol only), or above a number; the paper's is 0.1.

    Examples
    --------
    >>> Questions(sub=(2,), top=(1,), notions=("rankwise",), resamples=0).discrepancies
    ('abs', 'jeffreys_unit')
    """

    sub: tuple[int, ...] = (2, 3)
    top: tuple[int, ...] = (1, 2, 3)
    notions: tuple[str, ...] = ("rankwise", "rankwise-95")
    protocols: tuple[NotionProtocol, ...] = ("exact",)
    discrepancies: tuple[Discrepancy, ...] = ("abs", "jeffreys_unit")
    bandwidth: float | None = None
    resamples: int = 200
    intervals: bool = True
    stagewise: Literal["test"] | float | None = None

    @property
    def shown(self) -> tuple[str, ...]:
        """One discrepancy per notion for tables and figures: the first of rankwise, and those of full-rank."""
        return (*self.discrepancies[:1], "l2-squared", "l1")

    def __post_init__(self) -> None:
        """Check the options."""
        discrepancies = ("abs", "kl", "jeffreys", "jeffreys_unit")
        for name, given, choices in (
            ("notion", self.notions, NOTIONS),
            ("protocol", self.protocols, ("exact", "reference")),
            ("discrepancy", self.discrepancies, discrepancies),
        ):
            for each in given:
                check_choice(each, name, choices)
        if "full-rank-95" in self.notions and "reference" not in self.protocols:
            raise ValueError("notion: full-rank-95 is a filter of the reference protocol; ask for that one")
        if isinstance(self.stagewise, str):
            check_choice(self.stagewise, "stagewise", ("test",))
            if not self.resamples or "exact" not in self.protocols:
                raise ValueError("stagewise: 'test' needs resamples and the exact protocol; or give a number")
        elif self.stagewise is not None and not 0 < self.stagewise < 1:
            raise ValueError(f"stagewise: {self.stagewise:g} is not an error between 0 and 1, such as 0.1")
        bad = [k for k in self.sub if k < 2] + [k for k in self.top if k < 1]
        if bad:
            raise ValueError(f"k: {bad[0]} is too small; sub-k starts at 2, top-k at 1")


def evaluate(
    dist: PairMarginals,
    orders: IntArray,
    questions: Questions,
    *,
    counted_on: IntArray,
    support: IntArray | None = None,
    rng: np.random.Generator | int = 0,
) -> list[Row]:
    """Return one row per family, k, notion, protocol and discrepancy, and rows for tau and log loss.

    ``counted_on`` (N, m) are the training rankings, which determine the frequent events. ``support`` (R, m) are
    the rankings that the reference protocol sums over. Pair marginals answer sub-2 only.

    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(100, 3, rng=np.random.default_rng(0))
    >>> rows = evaluate(data.forecast, data.orders, Questions(top=(), resamples=20), counted_on=data.orders)
    >>> [(row["notion"], row["k"]) for row in rows][:3]
    [('kendall_tau', 3), ('log_loss', 3), ('rankwise', 2)]
    """
    fold = _Fold(dist, orders, questions, counted_on, support, np.random.default_rng(rng))
    rows = list(fold.scores())
    for family, ks in fold.families():
        for k in ks:
            for protocol in questions.protocols:
                for notion in questions.notions:
                    rows += fold.notion(family, k, notion, protocol)
        rows += fold.stages(family, max(ks, default=0))
    return rows


def kendall_tau(predicted: IntArray, orders: IntArray) -> float:
    """Return Kendall's tau between two arrays of rankings (n, m), averaged over rows.

    >>> kendall_tau(np.array([[0, 1, 2]]), np.array([[0, 2, 1]])).__round__(4)
    0.3333
    """
    m = orders.shape[1]
    first, second = np.triu_indices(m, 1)
    a, b = np.argsort(predicted, axis=1), np.argsort(orders, axis=1)
    agree = (a[:, first] < a[:, second]) == (b[:, first] < b[:, second])
    return float(2 * agree.mean() - 1)


class _Fold(NamedTuple):
    """A forecast, the observed rankings, and what to measure."""

    dist: PairMarginals
    orders: IntArray
    questions: Questions
    counted_on: IntArray
    support: IntArray | None
    rng: np.random.Generator

    @property
    def ranks(self) -> bool:
        """Whether the forecast is a distribution over rankings, not pair marginals only."""
        return isinstance(self.dist, RankingDistribution)

    def families(self) -> list[tuple[Family, list[int]]]:
        """Return the values of k that can be measured for this forecast in each family."""
        asked, m = self.questions, self.dist.n_items
        if not self.ranks:
            return [("sub", [k for k in asked.sub if k == 2])]
        # The last place follows from the others, so top-m equals top-(m−1).
        return [
            ("sub", sorted(k for k in asked.sub if k <= m)),
            ("top", sorted(k for k in asked.top if k < m)),
        ]

    def scores(self) -> Iterator[Row]:
        """Yield Kendall's tau, and the log loss if the forecast is a distribution."""
        values = {"kendall_tau": kendall_tau(self.dist.mode(), self.orders)}
        if isinstance(self.dist, RankingDistribution):
            values["log_loss"] = -float(own_log_prob(self.dist, self.orders).mean())
        for name, value in values.items():
            yield self._row("", self.dist.n_items, name, "exact", "", value)

    def notion(self, family: Family, k: int, notion: str, protocol: NotionProtocol) -> Iterator[Row]:
        """Yield the rows of one notion, one per discrepancy; none if the protocol does not have it."""
        exact, frequent = protocol == "exact", notion.endswith("-95")
        how: Row = {"protocol": protocol, "coverage": 0.95 if frequent else None}
        if not exact:
            how["support"] = self.support
        if notion.startswith("full-rank"):
            if exact and frequent:
                return
            how |= {"k": k, "family": family, "bandwidth": self.questions.bandwidth}
            strong = full_rank(self.dist, self.orders, **how)
            row = self._row(family, k, notion, protocol, "l2-squared" if exact else "l1", strong.value)
            yield row | (self._strong_columns(strong) if exact and self.questions.resamples else {})
            return
        if exact and frequent:
            how["counted_on"] = self.counted_on
        ask: Any = sub_k if family == "sub" else top_k
        for discrepancy in self.questions.discrepancies:
            if not exact and discrepancy == "jeffreys":  # the public code has the mapped one only
                continue
            weak = ask(self.dist, self.orders, k, discrepancy=discrepancy, **how)
            row = self._row(family, k, notion, protocol, discrepancy, weak.value)
            row["n_events"] = weak.n_events
            is_tested = exact and discrepancy == "abs" and self.questions.resamples
            yield row | (self._weak_columns(weak) if is_tested else {})

    def stages(self, family: Family, last: int) -> Iterator[Row]:
        """Yield the first k whose error is too large, and the last k that was examined, for each protocol."""
        rule = self.questions.stagewise
        if rule is None or last < 2 or not isinstance(self.dist, RankingDistribution):
            return
        how: Row = {"k_max": last, "family": family, "rng": self.rng.spawn(1)[0]}
        how |= {"resamples": self.questions.resamples} if rule == "test" else {"threshold": rule}
        for protocol in self.questions.protocols:
            if rule == "test" and protocol == "reference":
                continue
            how["support"] = None if protocol == "exact" else self.support
            walk = stagewise(self.dist, self.orders, protocol=protocol, **how)
            yield self._row(family, walk.results[-1].k, STAGEWISE, protocol, "abs", walk.uncalibrated_from)

    def _weak_columns(self, result: NotionResult) -> Row:
        resamples, columns = self.questions.resamples, {}
        if self.questions.intervals:
            # The same draws as the null test below, so that interval and test agree about 0.
            interval = result.interval(resamples=resamples, rng=deepcopy(self.rng))
            columns = {"low": interval.low, "high": interval.high}
        if self.ranks:
            columns |= _null_columns(result.null(resamples=resamples, rng=self.rng))
        return columns

    def _strong_columns(self, result: NotionResult) -> Row:
        """Return null test and interval. The interval is that of the excess, shifted by the null mean."""
        if not self.ranks:
            return {}
        resamples = self.questions.resamples
        null = result.null(resamples=resamples, rng=self.rng.spawn(1)[0])
        columns = _null_columns(null)
        if self.questions.intervals:
            excess = result.interval(resamples=resamples, rng=self.rng.spawn(1)[0])
            columns |= {"low": null.mean + excess.low, "high": null.mean + excess.high}
        return columns

    def _row(
        self, family: str, k: int, notion: str, protocol: str, discrepancy: str, value: float | None
    ) -> Row:
        what = {"family": family, "notion": notion, "k": k, "protocol": protocol, "discrepancy": discrepancy}
        return what | {"value": value, "n": len(self.orders)}


def _null_columns(null: NullTest) -> Row:
    return {"null_mean": null.mean, "null_high": null.high, "p_value": null.p_value}

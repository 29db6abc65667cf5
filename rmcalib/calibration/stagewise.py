"""Stagewise evaluation: k = 2, 3, ... until an error is too large for a calibrated forecast."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import check_integer
from rmcalib.calibration.errors import NullTest
from rmcalib.calibration.intervals import check_level
from rmcalib.calibration.notions import NotionResult, Weighting, sub_k, top_k
from rmcalib.ranking import RankingDistribution
from rmcalib.ranking.events import Family, check_k


class Stagewise(NamedTuple):
    """The result of `stagewise`.

    Attributes
    ----------
    results : tuple of NotionResult
        The results for k = 2, 3, ...
    uncalibrated_from : int or None
        The first k whose error is too large for a calibrated forecast; None if there is none.
    nulls : tuple of NullTest
        The test of each result.
    verdict : str
        A sentence that says so.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> found = stagewise(PlackettLuce([[2.0, 0.0, 0.0]] * 30), [[2, 1, 0]] * 30)
    >>> found.uncalibrated_from, len(found.results)
    (2, 1)
    """

    results: tuple[NotionResult, ...]
    uncalibrated_from: int | None
    verdict: str
    nulls: tuple[NullTest, ...]


def stagewise(
    dist: RankingDistribution,
    orders: ArrayLike,
    *,
    k_max: int | None = None,
    level: float = 0.95,
    resamples: int = 200,
    family: Family = "sub",
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    weighting: Weighting = "uniform",
    bins: int | ArrayLike = 10,
    rng: np.random.Generator | int = 0,
) -> Stagewise:
    """Evaluate k = 2, 3, ... and stop at the first error that is too large for a calibrated forecast.

    The paper recommends to stop where the error is large. How large errors are depends on k and on the number
    of instances: longer rankings have smaller probabilities, and noise alone makes an error. So each error is
    compared with its null, the errors of a calibrated forecast on as many instances. With K values of k, each
    is tested at (1 − level)/K, so that a calibrated forecast is stopped in at most 1 − level of all cases.

    A large error at one k says nothing certain about others: rankwise calibration at k implies rankwise
    calibration neither at larger nor at smaller k.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    k_max : int, optional
        Last k, by default m.
    level : float
        Confidence level of all tests together.
    resamples : int
        Number of simulated data sets of each null test; more are drawn if K tests need them.
    family : {"sub", "top"}
        Which events.
    coverage, counted_on, weighting, bins, rng
        As in `sub_k`.

    Returns
    -------
    Stagewise
        The results with their null tests, and the k at which the error is too large.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> stagewise(PlackettLuce([[2.0, 0.0, 0.0]] * 30), [[2, 1, 0]] * 30).verdict
    'miscalibrated at k = 2: the sub-2 error is 0.754, that of a calibrated forecast about 0.057 (p = 0.005)'
    """
    last = check_k(dist.n_items if k_max is None else k_max, dist.n_items, family)
    notion = sub_k if family == "sub" else top_k
    check_level(level)
    share = (1 - level) / max(last - 1, 1)
    draws = max(check_integer(resamples, "resamples", 1), int(np.ceil(1 / share)))
    results: list[NotionResult] = []
    nulls: list[NullTest] = []
    for k in range(2, last + 1):
        result = notion(
            dist, orders, k, coverage=coverage, counted_on=counted_on, weighting=weighting, bins=bins, rng=rng
        )
        null = result.null(resamples=draws, rng=rng)
        results.append(result)
        nulls.append(null)
        if null.p_value <= share:
            verdict = (
                f"miscalibrated at k = {k}: the {family}-{k} error is {result.value:.3f}, that of a "
                f"calibrated forecast about {null.mean:.3f} (p = {null.p_value:.2g})"
            )
            return Stagewise(tuple(results), k, verdict, tuple(nulls))
    verdict = f"no error up to k = {last} is too large for a calibrated forecast"
    return Stagewise(tuple(results), None, verdict, tuple(nulls))

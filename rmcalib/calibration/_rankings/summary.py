"""Several notions of one forecast: the summary, the stagewise procedure of the paper, and recalibration."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import IntArray, check_integer
from rmcalib.calibration._intervals import check_level
from rmcalib.calibration._nulls import NullTest
from rmcalib.calibration._rankings.inputs import Weighting, check_complete
from rmcalib.calibration._rankings.notions import sub_k, top_k
from rmcalib.calibration._rankings.results import NotionResult
from rmcalib.calibration._temperature import TemperatureFit, cross_fit, fit_temperature
from rmcalib.ranking import HasTemperature, RankingDistribution
from rmcalib.ranking.events import Family, check_k

__all__ = ["Stagewise", "Summary", "SummaryRow", "cross_fitted_temperature", "stagewise", "summarise"]


@dataclass(frozen=True)
class SummaryRow:
    """One notion in a `Summary`.

    Attributes
    ----------
    family, k
        The notion.
    value, low, high : float
        The error and its 95% interval.
    null_mean, null_high : float
        Mean and 95% point of the errors of a calibrated forecast.
    p_value : float
        The p-value of calibration.
    recalibrated : float or None
        The error after cross-fitted temperature scaling; None for forecasts without a temperature.

    Examples
    --------
    >>> row = SummaryRow("sub", 2, 0.08, 0.05, 0.11, 0.02, 0.03, 0.005, recalibrated=0.02)
    >>> row.value > row.null_high
    True
    """

    family: Family
    k: int
    value: float
    low: float
    high: float
    null_mean: float
    null_high: float
    p_value: float
    recalibrated: float | None


@dataclass(frozen=True)
class Summary:
    """The result of `summarise`.

    Attributes
    ----------
    rows : tuple of SummaryRow
        One row per notion.
    temperature : TemperatureFit or None
        The temperature of largest likelihood on all data; None for forecasts without a temperature.
    n, n_items : int
        Number of instances and of items.

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(100, 3, rng=np.random.default_rng(0))
    >>> summary = summarise(data.forecast, data.orders, sub=[2], top=[1], resamples=20)
    >>> summary.n, summary.n_items, len(summary.rows)
    (100, 3, 2)
    """

    rows: tuple[SummaryRow, ...]
    temperature: TemperatureFit | None
    n: int
    n_items: int


def summarise(
    dist: RankingDistribution,
    orders: ArrayLike,
    *,
    sub: Sequence[int] = (2, 3),
    top: Sequence[int] = (1, 2, 3),
    resamples: int = 200,
    folds: int = 5,
    rng: np.random.Generator | int = 0,
) -> Summary:
    """Evaluate a forecast of rankings by several sub-k and top-k notions.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    sub, top : sequences of int
        The values of k for each family. Values above m are left out.
    resamples : int
        Number of simulated data sets for each interval and null test.
    folds : int
        Folds of the cross-fitted temperature.
    rng : numpy Generator or int
        Source of randomness, or its seed.

    Returns
    -------
    Summary
        One row per notion, and the temperature of largest likelihood.

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(200, 3, confidence=3.0, rng=np.random.default_rng(0))
    >>> summary = summarise(data.forecast, data.orders, sub=[2], top=[1], resamples=50)
    >>> [(row.family, row.k, row.p_value < 0.05, row.recalibrated < row.value) for row in summary.rows]
    [('sub', 2, True, True), ('top', 1, True, True)]
    """
    array = check_complete(dist, orders, "summarise")
    generator = np.random.default_rng(rng)
    fit, recalibrated = None, None
    if isinstance(dist, HasTemperature):
        fit = fit_temperature(dist, array)
        recalibrated = cross_fitted_temperature(dist, array, folds=folds, rng=generator)
    rows = []
    wanted: list[tuple[Family, int]] = [("sub", k) for k in sub] + [("top", k) for k in top]
    for family, k in wanted:
        if k > dist.n_items:
            continue
        notion = sub_k if family == "sub" else top_k
        result = notion(dist, array, k)
        # With the same draws, the interval excludes 0 exactly if the test rejects.
        interval = result.interval(resamples=resamples, rng=deepcopy(generator))
        null = result.null(resamples=resamples, rng=generator)
        after = notion(recalibrated, array, k).value if recalibrated is not None else None
        rows.append(
            SummaryRow(
                family,
                k,
                interval.value,
                interval.low,
                interval.high,
                null.mean,
                null.high,
                null.p_value,
                after,
            )
        )
    return Summary(tuple(rows), fit, len(array), dist.n_items)


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


def cross_fitted_temperature(
    dist: HasTemperature, orders: IntArray, *, folds: int = 5, rng: np.random.Generator | int = 0
) -> HasTemperature:
    """Return the forecast with each instance at the temperature fitted on the other folds.

    Parameters
    ----------
    dist : PlackettLuce, Mallows or SparseRankings
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    folds : int
        Number of folds.
    rng : numpy Generator or int
        Source of randomness of the folds, or its seed.

    Returns
    -------
    HasTemperature
        A forecast of the same kind as ``dist``.

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(200, 3, rng=np.random.default_rng(0))
    >>> len(cross_fitted_temperature(data.forecast, data.orders))
    200
    """
    temperatures = cross_fit(
        len(orders),
        lambda train: fit_temperature(dist.take(train), orders[train]).temperature,
        lambda temperature, test: np.full(len(test), temperature),
        folds=folds,
        rng=rng,
    )
    return dist.at_temperature(temperatures)

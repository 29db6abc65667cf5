"""All notions of one forecast at once: errors, intervals, nulls, and what recalibration would do."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import IntArray
from rmcalib.calibration._rankings.notions import sub_k, top_k
from rmcalib.calibration._rankings.questions import check_complete
from rmcalib.calibration._temperature import (
    TemperatureFit,
    cross_fit,
    fit_temperature,
)
from rmcalib.ranking import HasTemperature, RankingDistribution
from rmcalib.ranking.events import Family

__all__ = ["Summary", "SummaryRow", "summarise"]


@dataclass(frozen=True)
class SummaryRow:
    """One notion: error with interval, null mean, 95% point and p-value, and the recalibrated error.

    ``recalibrated`` is the error after temperature scaling, cross-fitted; None where there is no temperature.
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
    """The rows, and the temperature of largest likelihood on all the data (None where there is none)."""

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
    """Evaluate a forecast of rankings by several sub-k and top-k notions at once.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    sub, top : sequences of int
        The k of each family; those above m are left out.
    resamples : int
        Number of simulated data sets behind each interval and null test.
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
        # The same draws for both, so that interval and test agree about 0.
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


def cross_fitted_temperature(
    dist: HasTemperature, orders: IntArray, *, folds: int = 5, rng: np.random.Generator | int = 0
) -> HasTemperature:
    """Return the forecast with every instance at the temperature fitted on the other folds.

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

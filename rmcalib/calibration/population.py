"""Exact calibration errors of finite joint distributions, to check how the notions relate to each other.

A finite joint distribution has instances x with weights P(x), the true distribution P(Π | x) and the
forecast h(x), both over the same list of rankings. Conditioning on a forecast means grouping the instances
with equal forecasts, so every notion of the paper can be evaluated without sampling. With
``fractions.Fraction`` entries (numpy object arrays) the arithmetic is exact, and the error of a calibrated
model is exactly zero.
"""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.arrays import BoolArray, check_choice
from rmcalib.ranking.events import Family, all_events, as_orders, check_k, occurs_unchecked, unique_rows

_SAME = 1e-9


def population_error(
    orders: ArrayLike,
    truth: ArrayLike,
    forecast: ArrayLike,
    *,
    strong: bool,
    family: Family | None = None,
    k: int | None = None,
    weights: ArrayLike | None = None,
) -> Any:
    """Return the population error of one notion, which is zero if and only if the model is calibrated.

    The error is Σ over events of E |P(event | forecast) − forecast|, averaged over sets of items for sub-k.
    Values closer than 1e-9 count as equal, unless they are fractions.

    Parameters
    ----------
    orders : int array (R, m)
        The rankings.
    truth, forecast : arrays (X, R)
        True and forecast probabilities of the rankings for each instance.
    strong : bool
        True conditions on the whole (marginal) distribution: full-rank calibration, or sub-k and top-k
        calibration with ``family`` and ``k``. False conditions on the probability of one event: rankwise,
        rankwise sub-k, rankwise top-k.
    family, k
        Which events; by default all rankings.
    weights : array of shape (X,), optional
        P(x), uniform by default.

    Returns
    -------
    float or Fraction

    Examples
    --------
    >>> orders = [[0, 1], [1, 0]]
    >>> population_error(orders, [[0.5, 0.5], [0.5, 0.5]], [[0.9, 0.1], [0.1, 0.9]], strong=False)
    0.8
    >>> population_error(orders, [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.5, 0.5]], strong=True)
    0.0
    """
    listed = as_orders(orders)
    n_items = listed.shape[1]
    if family is None:
        if k not in (None, n_items):
            raise ValueError(f"family: k = {k} needs family='sub' or family='top'")
        family, k = "top", n_items
    k = check_k(k, n_items, family)
    check_choice(strong, "strong", (True, False))
    true, predicted = _table(truth, "truth", len(listed)), _table(forecast, "forecast", len(listed))
    if len(true) != len(predicted):
        raise ValueError(f"forecast: {len(predicted)} instances for {len(true)} of the truth")
    mass = _masses(weights, len(true), exact=true.dtype == object)
    events = all_events(n_items, k)
    happens = occurs_unchecked(listed, events, family)
    true_marginals, forecasts = _marginals(true, happens), _marginals(predicted, happens)
    n_sets, which = 1, np.zeros(len(events), dtype=np.int64)
    if family == "sub" and k < n_items:
        _, which = unique_rows(np.sort(events, axis=1), n_items)
        n_sets = int(which.max()) + 1
    total = mass[0] * 0
    for set_number in range(n_sets):
        columns = np.flatnonzero(which == set_number)
        for given in [columns] if strong else columns[:, None]:
            total = total + _conditional_error(true_marginals[:, given], forecasts[:, given], mass)
    result = total / n_sets
    return float(result) if isinstance(result, float) else result


def _conditional_error(truth: NDArray[Any], forecast: NDArray[Any], mass: NDArray[Any]) -> Any:
    """Σ over groups of equal forecast rows of |Σ mass · (truth − forecast)|, summed over columns."""
    total = mass[0] * 0
    left = np.ones(len(forecast), dtype=bool)
    while left.any():
        group = left & _equal(forecast, forecast[int(np.argmax(left))])
        gap = (mass[group, None] * (truth[group] - forecast[group])).sum(axis=0)
        total = total + np.abs(gap).sum()
        left &= ~group
    return 0.0 if isinstance(total, float) and total < _SAME else total


def _equal(rows: NDArray[Any], row: NDArray[Any]) -> BoolArray:
    same = rows == row if rows.dtype == object else np.abs(rows - row) < _SAME
    result: BoolArray = same.astype(bool).all(axis=1)
    return result


def _marginals(table: NDArray[Any], happens: BoolArray) -> NDArray[Any]:
    # Fractions can be multiplied by integers, but not by booleans.
    return table @ (happens.astype(object) * 1 if table.dtype == object else happens.astype(np.float64))


def _table(values: ArrayLike, name: str, n_rankings: int) -> NDArray[Any]:
    table = np.asarray(values)
    if table.dtype != object:
        table = table.astype(np.float64)
    if table.ndim != 2 or table.shape[1] != n_rankings or not len(table):
        raise ValueError(f"{name}: expected shape (instances, {n_rankings}), got {table.shape}")
    sums = table.sum(axis=1)
    # Written so that NaN fails too.
    good = (table >= 0).all(axis=1) & (np.abs(sums - 1) <= _SAME)
    if not good.all():
        row = int(np.argmin(good.astype(bool)))
        raise ValueError(f"{name}: row {row} is not a probability distribution (sum {float(sums[row]):.6g})")
    return table


def _masses(weights: ArrayLike | None, n: int, *, exact: bool) -> NDArray[Any]:
    if weights is None:
        from fractions import Fraction

        return np.array([Fraction(1, n)] * n, dtype=object) if exact else np.full(n, 1 / n)
    mass = np.asarray(weights)
    mass = mass if mass.dtype == object else mass.astype(np.float64)
    if mass.shape != (n,) or not (mass >= 0).all() or not abs(mass.sum() - 1) <= _SAME:
        raise ValueError(f"weights: expected {n} numbers of at least 0 that sum to 1, got {weights!r}")
    return mass

"""Synthetic label-ranking data with a known truth, and forecasts with a known miscalibration.

``confidence`` changes the forecast, not the truth. With 1 the forecast is the truth itself (perfectly
calibrated). 2 doubles the log-utilities or dispersions (over-confident), 0.5 halves them (under-confident).
"""

from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import IntArray
from rmcalib.ranking._distribution import RankingDistribution
from rmcalib.ranking._mallows import Mallows
from rmcalib.ranking._plackett_luce import PlackettLuce

__all__ = ["Synthetic", "synthetic_mallows", "synthetic_plackett_luce"]


@dataclass(frozen=True)
class Synthetic:
    """Synthetic data: a forecast, the truth, and rankings drawn from the truth.

    Attributes
    ----------
    forecast : RankingDistribution
        The forecast: n instances, m items.
    truth : RankingDistribution
        The true distribution.
    orders : int array (n, m)
        One ranking per instance, drawn from the truth.

    Examples
    --------
    >>> data = synthetic_plackett_luce(5, 3, rng=np.random.default_rng(0))
    >>> data.forecast, data.orders.shape
    (PlackettLuce(5 instances, 3 items), (5, 3))
    """

    forecast: RankingDistribution
    truth: RankingDistribution
    orders: IntArray


def synthetic_plackett_luce(
    n: int, n_items: int, *, spread: float = 1.0, confidence: float = 1.0, rng: np.random.Generator
) -> Synthetic:
    """Draw log-utilities from N(0, spread²), and one Plackett-Luce ranking per instance.

    Parameters
    ----------
    n, n_items : int
        Number of instances and of items.
    spread : float
        Standard deviation of the true log-utilities.
    confidence : float
        Factor between the forecast's log-utilities and the true ones.
    rng : numpy Generator
        Source of randomness.

    Returns
    -------
    Synthetic
        Forecast, truth and rankings.

    Examples
    --------
    >>> data = synthetic_plackett_luce(5, 3, confidence=2.0, rng=np.random.default_rng(0))
    >>> data.orders.shape, bool(np.allclose(data.forecast.log_utilities, 2 * data.truth.log_utilities))
    ((5, 3), True)
    """
    utilities = rng.normal(scale=spread, size=(n, n_items))
    truth = PlackettLuce(utilities)
    return Synthetic(PlackettLuce(confidence * utilities), truth, truth.sample(1, rng)[0])


def synthetic_mallows(
    n: int, n_items: int, *, dispersion: float = 1.0, confidence: float = 1.0, rng: np.random.Generator
) -> Synthetic:
    """Draw centres and dispersions, uniform on (0, 2·dispersion), and one Mallows ranking per instance.

    Parameters
    ----------
    n, n_items : int
        Number of instances and of items.
    dispersion : float
        Mean of the true dispersions.
    confidence : float
        Factor between the forecast's dispersions and the true ones.
    rng : numpy Generator
        Source of randomness.

    Returns
    -------
    Synthetic
        Forecast, truth and rankings.

    Examples
    --------
    >>> synthetic_mallows(5, 3, rng=np.random.default_rng(0)).orders.shape
    (5, 3)
    """
    centers = rng.permuted(np.tile(np.arange(n_items), (n, 1)), axis=1)
    dispersions = rng.uniform(0, 2 * dispersion, size=n)
    truth = Mallows(centers, dispersions)
    return Synthetic(Mallows(centers, confidence * dispersions), truth, truth.sample(1, rng)[0])

"""Calibration: event tables in; errors, null tests, intervals, differences and temperatures out.

`Events` is a table of stated probabilities and what happened. `ece`, `ece_null`, `ece_interval` and
`reliability` take plain arrays. `sub_k`, `top_k`, `rankwise` and `full_rank` are the paper's notions for
distributions over rankings.
"""

from rmcalib.calibration.decomposition import Decomposition, corp
from rmcalib.calibration.equality import Equality, equal_temperatures
from rmcalib.calibration.errors import (
    NullTest,
    Reliability,
    ece,
    ece_interval,
    ece_null,
    reliability,
    smooth_ece,
)
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.events import Events
from rmcalib.calibration.full_rank import full_rank
from rmcalib.calibration.intervals import Difference, Interval, mean_interval
from rmcalib.calibration.maps import fit_isotonic, fit_platt
from rmcalib.calibration.notions import MonteCarloWarning, NotionResult, rankwise, sub_k, top_k
from rmcalib.calibration.population import population_error
from rmcalib.calibration.stagewise import Stagewise, stagewise
from rmcalib.calibration.temperature import (
    Scale,
    Softmax,
    TemperatureFit,
    cross_fitted_temperature,
    fit_temperature,
    fit_top_1_temperature,
)

__all__ = [
    "Decomposition",
    "Difference",
    "Equality",
    "Estimate",
    "Events",
    "Interval",
    "MonteCarloWarning",
    "NotionResult",
    "NullTest",
    "Reliability",
    "Scale",
    "Softmax",
    "Stagewise",
    "TemperatureFit",
    "corp",
    "cross_fitted_temperature",
    "ece",
    "ece_interval",
    "ece_null",
    "equal_temperatures",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
    "fit_top_1_temperature",
    "full_rank",
    "mean_interval",
    "population_error",
    "rankwise",
    "reliability",
    "smooth_ece",
    "stagewise",
    "sub_k",
    "top_k",
]

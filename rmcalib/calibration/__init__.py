"""Calibration: event tables in; errors, null tests, intervals, differences and temperatures out.

`Events` is a table of stated probabilities and what happened. `ece`, `ece_null`, `ece_interval` and
`reliability` take plain arrays. `sub_k`, `top_k`, `rankwise` and `full_rank` are the paper's notions for
distributions over rankings.
"""

from rmcalib.calibration.equality import equal_temperatures
from rmcalib.calibration.errors import ece, ece_interval, ece_null, reliability, smooth_ece
from rmcalib.calibration.estimates import Estimate, NullTest
from rmcalib.calibration.events import Events
from rmcalib.calibration.full_rank import full_rank
from rmcalib.calibration.intervals import Interval, mean_interval
from rmcalib.calibration.maps import corp
from rmcalib.calibration.notions import NotionResult, rankwise, stagewise, sub_k, top_k
from rmcalib.calibration.temperature import Scale, Softmax, fit_temperature

__all__ = [
    "Estimate",
    "Events",
    "Interval",
    "NotionResult",
    "NullTest",
    "Scale",
    "Softmax",
    "corp",
    "ece",
    "ece_interval",
    "ece_null",
    "equal_temperatures",
    "fit_temperature",
    "full_rank",
    "mean_interval",
    "rankwise",
    "reliability",
    "smooth_ece",
    "stagewise",
    "sub_k",
    "top_k",
]

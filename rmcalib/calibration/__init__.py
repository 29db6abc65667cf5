"""Calibration errors, the notions of the paper, their uncertainty, and recalibration."""

from rmcalib.calibration.binning import ErrorOptions
from rmcalib.calibration.differences import Difference, recentred_difference
from rmcalib.calibration.ece import Reliability, ece, reliability
from rmcalib.calibration.full_rank import full_rank
from rmcalib.calibration.intervals import (
    Interval,
    bootstrap_sums,
    ece_interval,
    mean_interval,
    recentred_interval,
)
from rmcalib.calibration.maps import (
    BetaMap,
    IsotonicMap,
    PlattMap,
    fit_beta,
    fit_isotonic,
    fit_platt,
    recalibrate_pairs,
)
from rmcalib.calibration.notion_intervals import notion_interval, notion_null
from rmcalib.calibration.notions import (
    MonteCarloWarning,
    NotionOptions,
    NotionResult,
    Stagewise,
    rankwise,
    stagewise,
    sub_k,
    top_k,
)
from rmcalib.calibration.nulls import Band, NullTest, consistency_band, ece_null, null_test
from rmcalib.calibration.population import population_error
from rmcalib.calibration.recalibration import (
    TemperatureFit,
    cross_fit,
    fit_temperature,
    fit_temperature_per_group,
    fit_top_1_temperature,
    scale_temperature,
    top_1_probabilities,
)
from rmcalib.calibration.scores import brier_score, log_score
from rmcalib.calibration.smooth import smooth_ece
from rmcalib.calibration.summary import Summary, SummaryRow, cross_fitted_temperature, summarise

__all__ = [
    "Band",
    "BetaMap",
    "Difference",
    "ErrorOptions",
    "Interval",
    "IsotonicMap",
    "MonteCarloWarning",
    "NotionOptions",
    "NotionResult",
    "NullTest",
    "PlattMap",
    "Reliability",
    "Stagewise",
    "Summary",
    "SummaryRow",
    "TemperatureFit",
    "bootstrap_sums",
    "brier_score",
    "consistency_band",
    "cross_fit",
    "cross_fitted_temperature",
    "ece",
    "ece_interval",
    "ece_null",
    "fit_beta",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
    "fit_temperature_per_group",
    "fit_top_1_temperature",
    "full_rank",
    "log_score",
    "mean_interval",
    "notion_interval",
    "notion_null",
    "null_test",
    "population_error",
    "rankwise",
    "recalibrate_pairs",
    "recentred_difference",
    "recentred_interval",
    "reliability",
    "scale_temperature",
    "smooth_ece",
    "stagewise",
    "sub_k",
    "summarise",
    "top_1_probabilities",
    "top_k",
]

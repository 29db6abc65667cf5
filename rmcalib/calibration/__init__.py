"""Calibration errors, the notions of the paper, their uncertainty, and recalibration."""

from rmcalib.calibration._binning import (
    BinSums,
    Discrepancy,
    EceOptions,
    ErrorOptions,
    bin_edges,
    bin_index,
    binned_error,
)
from rmcalib.calibration._differences import Difference, recentred_difference
from rmcalib.calibration._ece import Reliability, ece, reliability
from rmcalib.calibration._intervals import (
    Interval,
    Statistic,
    Worlds,
    binned_worlds,
    bootstrap_sums,
    check_level,
    ece_interval,
    mean_interval,
    recentred_interval,
    resampling_weights,
    share_limits,
)
from rmcalib.calibration._maps import (
    BetaMap,
    IsotonicMap,
    PlattMap,
    fit_beta,
    fit_isotonic,
    fit_platt,
    recalibrate_pairs,
)
from rmcalib.calibration._nulls import (
    Band,
    Draw,
    NullTest,
    compare_with_null,
    consistency_band,
    draw_one_per_group,
    ece_null,
    null_test,
)
from rmcalib.calibration._rankings.full_rank import full_rank
from rmcalib.calibration._rankings.notions import Stagewise, rankwise, stagewise, sub_k, top_k
from rmcalib.calibration._rankings.population import population_error
from rmcalib.calibration._rankings.questions import MonteCarloWarning
from rmcalib.calibration._rankings.reference import reference_top_1
from rmcalib.calibration._rankings.results import NotionProtocol, NotionResult
from rmcalib.calibration._rankings.summary import Summary, SummaryRow, cross_fitted_temperature, summarise
from rmcalib.calibration._rankings.uncertainty import notion_interval, notion_null
from rmcalib.calibration._scores import brier_score, log_score
from rmcalib.calibration._smooth import cosine_coefficients, fixed_points, residual_grid, smooth_ece
from rmcalib.calibration._temperature import (
    TemperatureFit,
    cross_fit,
    fit_temperature,
    fit_temperature_per_group,
    fit_top_1_temperature,
    scale_temperature,
    top_1_probabilities,
)

__all__ = [
    "Band",
    "BetaMap",
    "BinSums",
    "Difference",
    "Discrepancy",
    "Draw",
    "EceOptions",
    "ErrorOptions",
    "Interval",
    "IsotonicMap",
    "MonteCarloWarning",
    "NotionProtocol",
    "NotionResult",
    "NullTest",
    "PlattMap",
    "Reliability",
    "Stagewise",
    "Statistic",
    "Summary",
    "SummaryRow",
    "TemperatureFit",
    "Worlds",
    "bin_edges",
    "bin_index",
    "binned_error",
    "binned_worlds",
    "bootstrap_sums",
    "brier_score",
    "check_level",
    "compare_with_null",
    "consistency_band",
    "cosine_coefficients",
    "cross_fit",
    "cross_fitted_temperature",
    "draw_one_per_group",
    "ece",
    "ece_interval",
    "ece_null",
    "fit_beta",
    "fit_isotonic",
    "fit_platt",
    "fit_temperature",
    "fit_temperature_per_group",
    "fit_top_1_temperature",
    "fixed_points",
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
    "reference_top_1",
    "reliability",
    "resampling_weights",
    "residual_grid",
    "scale_temperature",
    "share_limits",
    "smooth_ece",
    "stagewise",
    "sub_k",
    "summarise",
    "top_1_probabilities",
    "top_k",
]

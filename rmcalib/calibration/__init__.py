"""Calibration errors, their intervals and null tests, the paper's notions for rankings, and recalibration.

```python
from rmcalib.calibration import ece, ece_interval, ece_null

ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])  # the calibration error
ece_interval([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])  # with a 95% interval
ece_null([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])  # compared with a calibrated forecast
```

`__all__` lists the names by subject, in the order of the documentation.
"""

from rmcalib.calibration._binning import (
    BinSums,
    Discrepancy,
    ErrorOptions,
    bin_edges,
    bin_index,
    bin_sums,
    binned_error,
)
from rmcalib.calibration._decomposition import Decomposition, ScaleLoss, corp, pair_scale_loss, scale_loss
from rmcalib.calibration._ece import Reliability, brier_score, ece, log_score, reliability
from rmcalib.calibration._equality import Equality, equal_temperatures
from rmcalib.calibration._inference import (
    Difference,
    Inference,
    binned_inference,
    difference,
    ece_interval,
    mean_difference,
    pairwise_inference,
    smooth_inference,
)
from rmcalib.calibration._intervals import (
    Interval,
    check_level,
    mean_interval,
    proportion_interval,
    resampling_weights,
    skew_interval,
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
from rmcalib.calibration._nulls import Band, Draw, NullTest, consistency_band, ece_null
from rmcalib.calibration._rankings.full_rank import full_rank
from rmcalib.calibration._rankings.inputs import MonteCarloWarning
from rmcalib.calibration._rankings.notions import notion_interval, notion_null, rankwise, sub_k, top_k
from rmcalib.calibration._rankings.population import population_error
from rmcalib.calibration._rankings.reference import reference_top_1
from rmcalib.calibration._rankings.results import NotionProtocol, NotionResult
from rmcalib.calibration._rankings.summary import (
    Stagewise,
    Summary,
    SummaryRow,
    cross_fitted_temperature,
    stagewise,
    summarise,
)
from rmcalib.calibration._rare import jump_interval
from rmcalib.calibration._smooth_ece import smooth_ece
from rmcalib.calibration._temperature import (
    TemperatureFit,
    cross_fit,
    fit_temperature,
    fit_temperature_per_group,
)
from rmcalib.calibration._top_1 import fit_top_1_temperature, temperature_interval, top_1_probabilities
from rmcalib.calibration._votes import (
    VoteForecasts,
    effective_votes,
    fit_ties,
    majority_agreements,
    vote_agreement_ceilings,
    vote_brier_ceilings,
    vote_briers,
    vote_error,
    vote_inference,
    vote_log_loss_ceilings,
    vote_log_losses,
    voter_disagreements,
    with_tie_outcome,
)

__all__ = [  # noqa: RUF022 (by subject)
    # Errors and scores of yes/no forecasts
    "ece",
    "smooth_ece",
    "reliability",
    "Reliability",
    "brier_score",
    "log_score",
    "corp",
    "Decomposition",
    # Their intervals, null tests and differences
    "ece_interval",
    "ece_null",
    "NullTest",
    "consistency_band",
    "Band",
    "mean_interval",
    "proportion_interval",
    "skew_interval",
    "jump_interval",
    "Interval",
    "binned_inference",
    "smooth_inference",
    "pairwise_inference",
    "Inference",
    "difference",
    "mean_difference",
    "Difference",
    # Notions for rankings
    "rankwise",
    "sub_k",
    "top_k",
    "full_rank",
    "NotionResult",
    "notion_null",
    "notion_interval",
    "stagewise",
    "Stagewise",
    "summarise",
    "Summary",
    "SummaryRow",
    "population_error",
    "reference_top_1",
    "MonteCarloWarning",
    # Temperatures and recalibration
    "fit_temperature",
    "fit_temperature_per_group",
    "cross_fitted_temperature",
    "TemperatureFit",
    "top_1_probabilities",
    "fit_top_1_temperature",
    "temperature_interval",
    "equal_temperatures",
    "Equality",
    "scale_loss",
    "pair_scale_loss",
    "ScaleLoss",
    "fit_platt",
    "PlattMap",
    "fit_beta",
    "BetaMap",
    "fit_isotonic",
    "IsotonicMap",
    "recalibrate_pairs",
    "cross_fit",
    # People's votes
    "VoteForecasts",
    "vote_log_losses",
    "vote_briers",
    "vote_error",
    "vote_inference",
    "effective_votes",
    "majority_agreements",
    "voter_disagreements",
    "vote_log_loss_ceilings",
    "vote_brier_ceilings",
    "vote_agreement_ceilings",
    "fit_ties",
    "with_tie_outcome",
    # Parts that metrics are built from
    "ErrorOptions",
    "BinSums",
    "bin_edges",
    "bin_index",
    "bin_sums",
    "binned_error",
    "resampling_weights",
    "check_level",
    # Types of options
    "Discrepancy",
    "Draw",
    "NotionProtocol",
]

"""Forecasts compared with people's votes: scores, noise ceilings, calibration error, ties."""

from rmcalib.calibration._votes._ceilings import (
    vote_agreement_ceilings,
    vote_brier_ceilings,
    vote_log_loss_ceilings,
)
from rmcalib.calibration._votes._error import effective_votes, vote_error, vote_inference
from rmcalib.calibration._votes._forecasts import (
    VoteForecasts,
    majority_agreements,
    vote_briers,
    vote_log_losses,
    voter_disagreements,
)
from rmcalib.calibration._votes._ties import fit_ties, with_tie_outcome

__all__ = [
    "VoteForecasts",
    "effective_votes",
    "fit_ties",
    "majority_agreements",
    "vote_agreement_ceilings",
    "vote_brier_ceilings",
    "vote_briers",
    "vote_error",
    "vote_inference",
    "vote_log_loss_ceilings",
    "vote_log_losses",
    "voter_disagreements",
    "with_tie_outcome",
]

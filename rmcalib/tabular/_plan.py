"""What an experiment does, and the columns of its results."""

from dataclasses import dataclass, field
from typing import Literal

from rmcalib._util.arrays import check_choice, check_integer
from rmcalib.tabular._evaluation import Questions
from rmcalib.tabular._learners import LEARNERS
from rmcalib.tabular._reference import REFERENCE_FOLDS

__all__ = ["COLUMNS", "Plan"]

COLUMNS = (
    *("dataset", "learner", "fold", "family", "notion", "k", "protocol", "discrepancy"),
    *("value", "low", "high", "n", "n_events", "null_mean", "null_high", "p_value", "training", "truth"),
)
"""Columns of the results: what a row is about, its value with its interval, test rows and events, what a
calibrated forecast would show (mean, 95% point, p-value), and how the run was made."""


@dataclass(frozen=True)
class Plan:
    """What an experiment does with every data set.

    Attributes
    ----------
    learners : tuple of str
        Some of ``LEARNERS``.
    folds : int
        Folds of the cross-validation.
    seed : int
        Seed of splits, networks and resampling.
    training : {"exact", "reference"}
        Train as the paper says, or as its public code does (always 5 folds, and its own seed, 42, for splits
        and networks).
    truth : {"data", "model"}
        Evaluate forecasts on the data, or on rankings drawn from the forecast itself, a control in which
        every forecast is calibrated.
    recalibrate : bool
        Fit on 80% of each training fold, fit a temperature on the other 20%, drawn at random, and report the
        same fit with it ("pl+t") and without ("pl"). rpc has no temperature. If all held-out rows are
        forecast right, which asks for a temperature of zero, none is applied.
    questions : Questions
        What is measured.
    """

    learners: tuple[str, ...] = ("pl", "mallows", "rc", "rpc", "pl-rpc")
    folds: int = 5
    seed: int = 0
    training: Literal["exact", "reference"] = "exact"
    truth: Literal["data", "model"] = "data"
    recalibrate: bool = False
    questions: Questions = field(default_factory=Questions)

    def __post_init__(self) -> None:
        """Check every option at once."""
        for name in self.learners:
            check_choice(name, "learner", tuple(LEARNERS))
        check_integer(self.folds, "folds", 2)
        check_integer(self.seed, "seed", 0)
        check_choice(self.training, "training", ("exact", "reference"))
        check_choice(self.truth, "truth", ("data", "model"))
        if self.training == "reference" and (self.folds != REFERENCE_FOLDS or self.recalibrate):
            raise ValueError("training: the reference setting has 5 folds and its own temperature")
        if self.truth == "model" and "rpc" in self.learners:
            raise ValueError("learner: rpc has no distribution over rankings to draw a truth from")

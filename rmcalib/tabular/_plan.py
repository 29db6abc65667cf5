"""The plan of an experiment, and the columns of its results."""

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
"""Columns of the results: what was measured, the value with its interval, numbers of test rows and events,
the null distribution (mean, 95% point, p-value), and how the run was made."""


@dataclass(frozen=True)
class Plan:
    """What an experiment does with each data set.

    Parameters
    ----------
    learners : tuple of str
        Names from ``LEARNERS``.
    folds : int
        Number of folds of the cross-validation.
    seed : int
        Seed of splits, networks and resampling.
    training : {"exact", "reference"}
        Train as the paper describes, or as its public code does (always with 5 folds, and with seed 42 for
        splits and networks).
    truth : {"data", "model"}
        Evaluate forecasts on the data, or on rankings drawn from the forecast itself. The latter is a
        control: every forecast is then calibrated.
    recalibrate : bool
        Fit each learner on 80% of the training fold, drawn at random, and a temperature on the other 20%.
        Report the same fit without it ("pl") and with it ("pl+t"). rpc has no temperature. If all held-out
        rows are forecast correctly, the best temperature would be zero, and none is applied.
    questions : Questions
        What to measure.

    Examples
    --------
    >>> Plan(learners=("pl", "mallows"), folds=10).seed
    0
    """

    learners: tuple[str, ...] = ("pl", "mallows", "rc", "rpc", "pl-rpc")
    folds: int = 5
    seed: int = 0
    training: Literal["exact", "reference"] = "exact"
    truth: Literal["data", "model"] = "data"
    recalibrate: bool = False
    questions: Questions = field(default_factory=Questions)

    def __post_init__(self) -> None:
        """Check the options."""
        for name in self.learners:
            check_choice(name, "learner", tuple(LEARNERS))
        check_integer(self.folds, "folds", 2)
        check_integer(self.seed, "seed", 0)
        check_choice(self.training, "training", ("exact", "reference"))
        check_choice(self.truth, "truth", ("data", "model"))
        if self.training == "reference" and (self.folds != REFERENCE_FOLDS or self.recalibrate):
            raise ValueError("training: the reference setting has 5 folds and its own temperature")
        if self.truth == "model" and "rpc" in self.learners:
            raise ValueError("learner: rpc has no distribution over rankings, which truth='model' needs")

"""Probabilistic label ranking on tabular data: data sets, learners, and cross-validated experiments."""

from rmcalib.tabular._datasets import DATASETS, Dataset, load_dataset, read_csv, synthetic_dataset
from rmcalib.tabular._evaluation import NOTIONS, Questions, evaluate, kendall_tau
from rmcalib.tabular._figures import errors_by_k, grouped_bars, paired_bars, scatter
from rmcalib.tabular._learners import (
    LEARNERS,
    Learner,
    LearnerFactory,
    MallowsLearner,
    PlackettLuceLearner,
    RankClassifier,
    make_learner,
)
from rmcalib.tabular._networks import Training
from rmcalib.tabular._pairwise import PairwiseLearner, PlackettLuceFromPairs, newman_utilities
from rmcalib.tabular._plan import COLUMNS, Plan
from rmcalib.tabular._prolr import ProlrResult, run_prolr
from rmcalib.tabular._sources import fetch, naive_bayes_rankings
from rmcalib.tabular._tables import fold_means, paired_points, read_results

__all__ = [
    "COLUMNS",
    "DATASETS",
    "LEARNERS",
    "NOTIONS",
    "Dataset",
    "Learner",
    "LearnerFactory",
    "MallowsLearner",
    "PairwiseLearner",
    "PlackettLuceFromPairs",
    "PlackettLuceLearner",
    "Plan",
    "ProlrResult",
    "Questions",
    "RankClassifier",
    "Training",
    "errors_by_k",
    "evaluate",
    "fetch",
    "fold_means",
    "grouped_bars",
    "kendall_tau",
    "load_dataset",
    "make_learner",
    "naive_bayes_rankings",
    "newman_utilities",
    "paired_bars",
    "paired_points",
    "read_csv",
    "read_results",
    "run_prolr",
    "scatter",
    "synthetic_dataset",
]

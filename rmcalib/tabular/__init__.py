"""Probabilistic label ranking on tabular data: data sets, learners, and cross-validated experiments."""

from rmcalib.tabular._datasets import DATASETS, Dataset, load_dataset, read_csv, synthetic_dataset
from rmcalib.tabular._evaluation import NOTIONS, Questions, evaluate, kendall_tau
from rmcalib.tabular._experiment import COLUMNS, Plan, read_rows, run_experiment, stagewise_verdicts
from rmcalib.tabular._learners import (
    LEARNERS,
    Learner,
    MallowsLearner,
    PlackettLuceLearner,
    RankClassifier,
    make_learner,
)
from rmcalib.tabular._networks import Training
from rmcalib.tabular._pairwise import PairwiseLearner, PlackettLuceFromPairs, newman_utilities
from rmcalib.tabular._sources import fetch, naive_bayes_rankings
from rmcalib.tabular._tables import fold_means

__all__ = [
    "COLUMNS",
    "DATASETS",
    "LEARNERS",
    "NOTIONS",
    "Dataset",
    "Learner",
    "MallowsLearner",
    "PairwiseLearner",
    "PlackettLuceFromPairs",
    "PlackettLuceLearner",
    "Plan",
    "Questions",
    "RankClassifier",
    "Training",
    "evaluate",
    "fetch",
    "fold_means",
    "kendall_tau",
    "load_dataset",
    "make_learner",
    "naive_bayes_rankings",
    "newman_utilities",
    "read_csv",
    "read_rows",
    "run_experiment",
    "stagewise_verdicts",
    "synthetic_dataset",
]

"""Probabilistic label ranking on tabular data: data sets, learners, and cross-validated experiments."""

from rmcalib.tabular._datasets import DATASETS, Dataset, load_dataset, read_csv, synthetic_dataset
from rmcalib.tabular._evaluation import Questions
from rmcalib.tabular._experiment import Plan
from rmcalib.tabular._learners import (
    LEARNERS,
    Learner,
    MallowsLearner,
    PairwiseLearner,
    PlackettLuceFromPairs,
    PlackettLuceLearner,
    RankClassifier,
    Training,
)
from rmcalib.tabular._prolr import ProlrResult, run_prolr
from rmcalib.tabular._sources import naive_bayes_rankings

__all__ = [
    "DATASETS",
    "LEARNERS",
    "Dataset",
    "Learner",
    "MallowsLearner",
    "PairwiseLearner",
    "PlackettLuceFromPairs",
    "PlackettLuceLearner",
    "Plan",
    "ProlrResult",
    "Questions",
    "RankClassifier",
    "Training",
    "load_dataset",
    "naive_bayes_rankings",
    "read_csv",
    "run_prolr",
    "synthetic_dataset",
]

"""Probabilistic label ranking on tabular data: data sets, learners, and cross-validated experiments."""

from rmcalib.tabular._datasets import (
    DATASETS,
    Dataset,
    load_dataset,
    naive_bayes_rankings,
    read_csv,
    synthetic_dataset,
)
from rmcalib.tabular._evaluation import Questions
from rmcalib.tabular._experiment import Plan, run_prolr
from rmcalib.tabular._learners import LEARNERS, PlackettLuceLearner, Training

__all__ = [
    "DATASETS",
    "LEARNERS",
    "Dataset",
    "PlackettLuceLearner",
    "Plan",
    "Questions",
    "Training",
    "load_dataset",
    "naive_bayes_rankings",
    "read_csv",
    "run_prolr",
    "synthetic_dataset",
]

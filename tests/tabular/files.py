"""The public label-ranking files, if RMCALIB_DATA names their folder, and small data for all other tests."""

import os

from rmcalib.tabular import DATASETS, Dataset, synthetic_dataset

FOLDER = os.environ.get("RMCALIB_DATA")
# iris and wine are made from scikit-learn's copies; the others need the public files.
AVAILABLE = tuple(DATASETS) if FOLDER else ("iris", "wine")


def small(n: int = 60, n_items: int = 3, seed: int = 0) -> Dataset:
    return synthetic_dataset(n, n_items, spread=2.0, seed=seed)[0]

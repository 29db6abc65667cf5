"""Where the public label-ranking files are, if they are there, and small data for everything else."""

from pathlib import Path

import pytest

from rmcalib.tabular import DATASETS, Dataset, synthetic_dataset

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "data" / "label_ranking"
needs_files = pytest.mark.skipif(not FOLDER.is_dir(), reason="the public data files are not on this machine")
# iris and wine are made from scikit-learn's copies; the others need the public files.
AVAILABLE = tuple(DATASETS) if FOLDER.is_dir() else ("iris", "wine")


def small(n: int = 60, n_items: int = 3, seed: int = 0) -> Dataset:
    return synthetic_dataset(n, n_items, spread=2.0, seed=seed)[0]

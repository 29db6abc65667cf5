"""From columns to numbers a learner can use, fitted on training rows alone."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.tabular._datasets import Dataset

__all__ = ["FeatureEncoder", "fit_encoder"]


@dataclass(frozen=True)
class FeatureEncoder:
    """Medians for missing numbers, means and standard deviations, and the categories of each text column."""

    columns: IntArray
    medians: FloatArray
    means: FloatArray
    scales: FloatArray
    categories: tuple[NDArray[np.str_], ...]

    def transform(self, data: Dataset, rows: IntArray) -> FloatArray:
        """Return features (len(rows), d): standardised numbers, then one column for each known category."""
        numbers = data.numeric[np.ix_(rows, self.columns)]
        numbers = (np.where(np.isnan(numbers), self.medians, numbers) - self.means) / self.scales
        hot = [data.texts[rows, column, None] == known for column, known in enumerate(self.categories)]
        return np.column_stack([numbers, *(block.astype(np.float64) for block in hot)])


def fit_encoder(data: Dataset, rows: IntArray, *, identifiers: bool = False) -> FeatureEncoder:
    """Learn the encoding from ``rows`` of ``data``; columns that only number the rows are left out.

    >>> from rmcalib.tabular import load_dataset
    >>> data = load_dataset("iris")
    >>> features = fit_encoder(data, np.arange(100)).transform(data, np.arange(100))
    >>> bool(np.allclose(features.mean(axis=0), 0)), bool(np.allclose(features.std(axis=0), 1))
    (True, True)
    """
    kept = [
        number
        for number, name in enumerate(data.numeric_names)
        if identifiers or name not in data.identifiers
    ]
    columns = np.array(kept, dtype=np.int64)
    numbers = data.numeric[np.ix_(rows, columns)]
    known = ~np.isnan(numbers)
    medians = np.zeros(len(columns))
    for column in np.flatnonzero(known.any(axis=0)):
        medians[column] = np.median(numbers[known[:, column], column])
    filled = np.where(known, numbers, medians)
    # By the range, not by the standard deviation, which rounding leaves at 1e-17 in a constant column.
    varies = filled.max(axis=0) > filled.min(axis=0)
    return FeatureEncoder(
        columns,
        medians,
        filled.mean(axis=0),
        np.where(varies, filled.std(axis=0), 1.0),
        tuple(np.unique(data.texts[rows, column]) for column in range(data.texts.shape[1])),
    )

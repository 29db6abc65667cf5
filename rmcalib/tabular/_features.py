"""Encode columns as numeric features; the encoding is fitted on training rows only."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.tabular._datasets import Dataset

__all__ = ["FeatureEncoder", "fit_encoder"]


@dataclass(frozen=True)
class FeatureEncoder:
    """Fitted transformers of the numeric ``columns`` and of the categories; None if there are none."""

    columns: IntArray
    numbers: Any
    categories: Any

    def transform(self, data: Dataset, rows: IntArray) -> FloatArray:
        """Return features (len(rows), d): standardised numbers, then one column per known category."""
        blocks = [np.empty((len(rows), 0))]
        if self.numbers is not None:
            blocks.append(self.numbers.transform(data.numeric[np.ix_(rows, self.columns)]))
        if self.categories is not None:
            blocks.append(self.categories.transform(data.texts[rows]))
        return np.column_stack(blocks)


def fit_encoder(data: Dataset, rows: IntArray, *, identifiers: bool = False) -> FeatureEncoder:
    """Learn the encoding from ``rows`` of ``data``.

    Missing numbers are replaced by the median, numbers are standardised, and categories are one-hot encoded.
    Categories that are not in ``rows`` are ignored. Columns that only number the rows are left out, unless
    ``identifiers``.

    >>> from rmcalib.tabular import load_dataset
    >>> data = load_dataset("iris")
    >>> features = fit_encoder(data, np.arange(100)).transform(data, np.arange(100))
    >>> bool(np.allclose(features.mean(axis=0), 0)), bool(np.allclose(features.std(axis=0), 1))
    (True, True)
    """
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    names = enumerate(data.numeric_names)
    kept = [number for number, name in names if identifiers or name not in data.identifiers]
    columns = np.array(kept, dtype=np.int64)
    numbers = categories = None
    if kept:
        imputer = SimpleImputer(strategy="median", keep_empty_features=True)
        numbers = make_pipeline(imputer, StandardScaler()).fit(data.numeric[np.ix_(rows, columns)])
    if data.texts.shape[1]:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        categories = encoder.fit(data.texts[rows])
    return FeatureEncoder(columns, numbers, categories)

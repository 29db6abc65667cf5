"""Tables over folds: means and spreads of the tidy results, for printing and for figures."""

import math
from collections.abc import Sequence

import numpy as np

from rmcalib.tabular._evaluation import Row

__all__ = ["fold_means", "paired_points"]

_KEYS = ("dataset", "learner", "family", "notion", "k", "protocol", "discrepancy", "training", "truth")


def fold_means(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each data set, learner and measure: mean, sd and se over folds, null, rejections.

    null_mean: mean over folds of what a calibrated forecast would show. rejected: share of folds with p < 5%.

    >>> row = dict.fromkeys(_KEYS, "x") | {"value": 0.1, "null_mean": None, "p_value": None}
    >>> fold_means([row, row | {"value": 0.3}])[0]["mean"]
    0.2
    """
    groups: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in _KEYS), []).append(row)
    return [dict(zip(_KEYS, key, strict=True)) | _summary(group) for key, group in groups.items()]


def paired_points(means: Sequence[Row], x: Row, y: Row, keys: Sequence[str] = _KEYS) -> list[Row]:
    """Pair two measures of the same thing: rows with "x" and "y" for figures that set one against the other.

    ``x`` and ``y`` say which rows are meant, such as {"discrepancy": "abs"}; all other keys pair them.

    >>> means = [{"learner": "pl", "discrepancy": d, "mean": v} for d, v in (("abs", 0.1), ("kl", 0.2))]
    >>> paired_points(means, {"discrepancy": "abs"}, {"discrepancy": "kl"}, ["learner", "discrepancy"])
    [{'learner': 'pl', 'x': 0.1, 'y': 0.2}]
    """
    rest = [key for key in keys if key not in x and key not in y]
    found: dict[tuple[object, ...], float] = {
        tuple(row[key] for key in rest): row["mean"] for row in means if _matches(row, y)
    }
    return [
        {key: row[key] for key in rest} | {"x": row["mean"], "y": found[place]}
        for row in means
        if _matches(row, x) and (place := tuple(row[key] for key in rest)) in found
    ]


def _matches(row: Row, wanted: Row) -> bool:
    return all(row[key] == value for key, value in wanted.items())


def _summary(group: Sequence[Row]) -> Row:
    values = np.array([row["value"] for row in group])
    sd = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    nulls = [row["null_mean"] for row in group if row["null_mean"] is not None]
    p_values = [row["p_value"] for row in group if row["p_value"] is not None]
    return {
        "mean": round(float(values.mean()), 12),
        "sd": sd,
        "se": sd / math.sqrt(len(values)),
        "folds": len(values),
        "null_mean": float(np.mean(nulls)) if nulls else None,
        "rejected": float(np.mean([p < 0.05 for p in p_values])) if p_values else None,
    }

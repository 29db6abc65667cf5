"""The catalogue of all metrics.

To add a metric to rmcalib, add one entry to a module of this package. To add one from another package, name a
`Metric` (or a list of them) in the entry point group ``rmcalib.metrics``. Either way it appears in
metrics.csv, on the pages, in `compare`, on the leaderboard and in ``--fail-if``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.metrics._catalogue._calibration import CALIBRATION, SMOOTH_RESAMPLES
from rmcalib.metrics._catalogue._decomposition import DECOMPOSITION
from rmcalib.metrics._catalogue._first_choice import FIRST_CHOICE
from rmcalib.metrics._catalogue._lengths import LENGTHS, MARGINS
from rmcalib.metrics._catalogue._metric import GROUPS, Measure, Metric
from rmcalib.metrics._catalogue._pairs import PAIRS
from rmcalib.metrics._catalogue._rewardbench import BENCHMARK_SCORE, official_of
from rmcalib.metrics._catalogue._scores import REFERENCE, SCORES
from rmcalib.metrics._catalogue._several import SEVERAL
from rmcalib.metrics._catalogue._temperature import FEWEST, INFORMATION, TEMPERATURE, scale
from rmcalib.metrics._catalogue._votes import VOTES
from rmcalib.metrics._forecasts import Forecasts
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = [
    "ENTRY_POINTS",
    "FEWEST",
    "GROUPS",
    "SMOOTH_RESAMPLES",
    "TRAINING_METRICS",
    "Metric",
    "catalogue",
    "chosen_metrics",
    "official_of",
    "scale",
]

ENTRY_POINTS = "rmcalib.metrics"
TRAINING_METRICS = (
    "mean_confidence",
    "accuracy",
    "overconfidence",
    "kept_information",
    "lost_information",
    "temperature",
    "ece",
    "ece_null_mean",
    "ece_p_value",
)
"""The metrics that are logged during training, and shown in the table of training steps."""
_OWN = (
    *FIRST_CHOICE,
    *INFORMATION,
    *PAIRS,
    *CALIBRATION,
    *SCORES,
    *DECOMPOSITION,
    *TEMPERATURE,
    *REFERENCE,
    *SEVERAL,
    *VOTES,
    *BENCHMARK_SCORE,
    *MARGINS,
    *LENGTHS,
)


@lru_cache(maxsize=1)
def catalogue() -> dict[str, Metric]:
    """Return all metrics: those of rmcalib, then those of other installed packages.

    Returns
    -------
    dict of str to Metric
        The metrics by name, in the order of tables.

    Examples
    --------
    >>> next(iter(catalogue())), catalogue()["ece"].better
    ('mean_confidence', 'low')
    """
    found = {metric.name: metric for metric in _OWN}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: (_home(one), one.name)):
        for metric in _load(point):
            if metric.name in found:
                other = found[metric.name].source or "rmcalib"
                raise ValueError(
                    f"{_place(point)}: there is a metric {metric.name!r} already, of {other}; rename yours"
                )
            found[metric.name] = metric
    return found


def chosen_metrics(names: Iterable[str] | None = None) -> tuple[Metric, ...]:
    """Return the metrics with some names, in the order of the catalogue.

    Parameters
    ----------
    names : Iterable[str], optional
        Names of metrics; by default all. A ValueError suggests a similar name for an unknown one.

    Returns
    -------
    tuple of Metric

    Examples
    --------
    >>> [metric.name for metric in chosen_metrics(["nll", "ece"])]
    ['ece', 'nll']
    >>> chosen_metrics(["eec"])
    Traceback (most recent call last):
    ...
    ValueError: metrics: unknown 'eec' (did you mean 'ece'?)
    """
    have = catalogue()
    if names is None:
        return tuple(have.values())
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in have:
            near = difflib.get_close_matches(str(name), have, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"have: {', '.join(have)}"
            raise ValueError(f"metrics: unknown {name!r} ({hint})")
    return tuple(metric for name, metric in have.items() if name in wanted)


def _load(point: EntryPoint) -> list[Metric]:
    """Load the metrics of an entry point; raise a ValueError with one line if it is broken."""
    try:
        found: Any = point.load()
    except Exception as error:
        raise ValueError(f"{_place(point)}: cannot load {point.value}: {_one_line(error)}") from error
    metrics = [found] if isinstance(found, Metric) else found
    if not isinstance(metrics, list | tuple) or not all(isinstance(one, Metric) for one in metrics):
        raise ValueError(
            f"{_place(point)}: {point.value} is a {type(found).__name__}, expected an rmcalib.metrics.Metric "
            "or a list of them"
        )
    return [
        replace(one, source=_home(point), statistic=_guarded(one, f"metric {one.name} of {_home(point)}"))
        for one in metrics
    ]


def _guarded(metric: Metric, place: str) -> Measure:
    """Turn errors in another package's metric into a ValueError with one line that names it."""

    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
        try:
            found = metric.statistic(forecasts, settings)
        except Exception as error:
            raise ValueError(f"{place}: {_one_line(error)}") from error
        if not isinstance(found, Statistic):
            raise ValueError(f"{place}: returned a {type(found).__name__}, expected a Statistic")
        if found.value is not None and not np.isfinite(found.value):
            found = Statistic.missing(found.n, found.note or "the value is not finite")
        if found.n != len(forecasts):
            raise ValueError(f"{place}: its n is {found.n}, but it was given {len(forecasts)} prompts")
        return found if found.resampled is None else replace(found, resampled=_checked(found, place))

    return statistic


def _checked(statistic: Statistic, place: str) -> Any:
    def resampled(weights: FloatArray) -> FloatArray:
        assert statistic.resampled is not None
        try:
            draws = np.asarray(statistic.resampled(weights), dtype=np.float64)
        except Exception as error:
            raise ValueError(f"{place}: resampled: {_one_line(error)}") from error
        if draws.shape != (len(weights),):
            raise ValueError(
                f"{place}: resampled returned shape {draws.shape}, expected ({len(weights)},): one value per "
                "resample"
            )
        return draws

    return resampled


def _home(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"


def _place(point: EntryPoint) -> str:
    return f"entry point {point.name!r} ({ENTRY_POINTS}) of {_home(point)}"


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())

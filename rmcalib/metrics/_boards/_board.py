"""Make a leaderboard: measure many models on the same benchmark, and rank them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rmcalib._util.terminal import clean_line
from rmcalib.judges import recipe_of_run, registry, why_no_calibration
from rmcalib.metrics._boards._correlation import Method
from rmcalib.metrics._boards._models import check_sortable, measure_model
from rmcalib.metrics._boards._ranking import Board, rank_models
from rmcalib.metrics._boards._two_way import ModelErrors, correlate_errors, model_errors
from rmcalib.metrics._catalogue import catalogue
from rmcalib.metrics._common import named_scores
from rmcalib.metrics._statistic import Settings
from rmcalib.metrics._table import OVERALL
from rmcalib.scores import Scores

__all__ = ["DEFAULT_METRIC", "Entry", "leaderboard", "measure_entries"]

Row = dict[str, Any]
DEFAULT_METRIC = "kept_information"
"""The metric that models are sorted by if none is given."""
_ALWAYS = ("kept_information", "lost_information", "ece", "ece_at_temperature", "reference_top_1")


@dataclass(frozen=True)
class Entry:
    """One model of a leaderboard.

    Attributes
    ----------
    name : str
        The name of the model.
    scores : Callable[[], Scores]
        A function that returns its scores, so that only one model is in memory at a time.
    no_calibration : str, optional
        Why its rewards are not utilities; None if they are.
    family : str, optional
        Models of one family are resampled together; by default the part of the name before the slash.

    Examples
    --------
    >>> entry = Entry("org/rm", lambda: Scores.from_arrays([[1.0, 0.0]]))
    >>> len(entry.scores())
    2
    """

    name: str
    scores: Callable[[], Scores]
    no_calibration: str | None = None
    family: str | None = None


def leaderboard(
    scores: Iterable[Scores] | Mapping[str, Scores],
    *,
    names: Sequence[str] | None = None,
    metric: str = DEFAULT_METRIC,
    methods: Sequence[Method] = ("kendall",),
    recipes: Iterable[str | Path] = (),
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Board:
    """Rank models by a metric, and correlate it with their scores.

    Parameters
    ----------
    scores : Iterable[Scores] | Mapping[str, Scores]
        The scores of each model, on the same benchmark; or a mapping from names to scores.
    names : Sequence[str], optional
        Names of the models; by default those in the manifests of the scores.
    metric : str
        The metric to sort by: one of the catalogue for which low, high or near 0 is better.
    methods : Sequence[Method]
        Coefficients of correlation: kendall, spearman, pearson.
    recipes : Iterable[str | Path]
        YAML files that describe more models. They say which rewards are not utilities.
    resamples, level, seed
        Number of resamples, confidence level and seed of the intervals.

    Returns
    -------
    Board
        Its ``table`` has one row per model, best first. Models that are not shown to be better than a uniform
        guess come last: ``better_than_guess`` is False if the upper limit of kept_information is below 0, or
        the lower limit of accuracy is not above that of a random choice.

    Examples
    --------
    >>> def made(confidence):
    ...     columns = {"item_id": ["a", "a", "b", "b"], "category": ["x"] * 4, "response": [0, 1] * 2,
    ...                "is_correct": [True, False] * 2, "reward": [confidence, 0.0, 0.0, confidence]}
    ...     return Scores.from_columns(columns)
    >>> board = leaderboard({"bold": made(3.0), "timid": made(0.1)}, metric="brier", resamples=20)
    >>> board.table["model"].tolist()
    ['timid', 'bold']
    """
    known = registry(recipes)
    entries = []
    for name, one in named_scores(scores, names, least=1, caller="leaderboard").items():
        recipe = recipe_of_run(name, one.manifest, known)
        entries.append(Entry(name, partial(_itself, one), why_no_calibration(recipe), recipe.family))
    settings = Settings(resamples=resamples, level=level, seed=seed)
    return measure_entries(entries, metric=metric, methods=methods, settings=settings)


def measure_entries(
    entries: Sequence[Entry],
    *,
    metric: str,
    methods: Sequence[Method] = ("kendall",),
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Board:
    """Measure and rank models, reading the scores of one after the other.

    Parameters
    ----------
    entries : Sequence[Entry]
        One per model.
    metric : str
        The metric to sort by.
    methods : Sequence[Method]
        Coefficients of correlation.
    settings : Settings, optional
        Bins, resamples, level and seed.
    on_model : Callable[[int, int, str], None], optional
        Called before each model is read, with the number of models done, their total number and the name.

    Returns
    -------
    Board

    Examples
    --------
    >>> made = {"a": [[1.0, 0.0]] * 3, "b": [[0.0, 1.0]] * 3}
    >>> entries = [Entry(name, partial(Scores.from_arrays, rewards)) for name, rewards in made.items()]
    >>> measure_entries(entries, metric="accuracy", settings=Settings(resamples=20)).models[0]["model"]
    'a'
    """
    settings = settings or Settings()
    check_sortable(metric)
    metrics: list[Row] = []
    curves: tuple[list[Row], list[Row]] = ([], [])
    prompts: dict[str, str] = {}
    sizes: dict[str, float] = {}
    chance: dict[str, float] = {}
    errors: dict[str, ModelErrors] = {}
    for i, entry in enumerate(entries):
        if on_model is not None:
            on_model(i, len(entries), entry.name)
        scores = entry.scores()
        found = measure_model(
            scores, model=entry.name, no_calibration=entry.no_calibration, settings=settings
        )
        metrics += [{**row, "category": clean_line(row["category"])} for row in found.metrics]
        curves[0].extend(found.reliability)
        curves[1].extend(found.rejection)
        prompts[entry.name] = _digest(scores)
        sizes[entry.name] = round(len(scores) / scores.n_items, 1)
        if found.chance is not None:
            chance[entry.name] = found.chance
        if entry.no_calibration is None and (own := model_errors(scores)) is not None:
            errors[entry.name] = own
    return rank_models(
        [entry.name for entry in entries],
        metrics,
        metric=metric,
        categories=[name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL],
        correlated=tuple(dict.fromkeys((metric, *_ALWAYS))),
        ranked_by=("accuracy", *_ALWAYS),
        chance=chance,
        methods=methods,
        settings=settings,
        curves=curves,
        notes=_size_notes(metric, sizes) + _prompt_notes(prompts),
        split_correlations=correlate_errors(
            errors, families={one.name: one.family for one in entries if one.family}, settings=settings
        ),
    )


def _size_notes(metric: str, sizes: Mapping[str, float]) -> list[str]:
    """Warn if models with different numbers of responses are sorted by a metric that depends on them."""
    different = sorted(set(sizes.values()))
    if len(different) < 2 or not catalogue()[metric].depends_on_m:
        return []
    shown = ", ".join(f"{size:g}" for size in different)
    return [
        f"Models were scored with different numbers of responses per prompt ({shown}), and "
        f"{catalogue()[metric].label} depends on that number: do not compare their ranks. "
        f"{catalogue()[DEFAULT_METRIC].label.capitalize()} can be compared."
    ]


def _prompt_notes(prompts: Mapping[str, str]) -> list[str]:
    """Warn if models were scored on different prompts; ``prompts`` has a digest of them for each model."""
    if len(set(prompts.values())) < 2:
        return []
    odd = ", ".join(_odd_ones(prompts))
    return [
        f"Not all models were scored on the same prompts. These differ from most: {odd}. Compare with care."
    ]


def _odd_ones(prompts: Mapping[str, str]) -> list[str]:
    found = list(prompts.values())
    usual = max(dict.fromkeys(found), key=found.count)
    return [name for name, digest in prompts.items() if digest != usual]


def _digest(scores: Scores) -> str:
    ids = "\0".join(scores.item_id.tolist()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(ids).hexdigest()


def _itself(scores: Scores) -> Scores:
    return scores

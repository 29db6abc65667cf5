"""Leaderboards: measure many models on the same benchmark, and rank them by what their probabilities are worth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib._util.terminal import clean_line
from rmcalib.calibration.errors import reliability
from rmcalib.judges import registry
from rmcalib.judges._registry import recipe_of_run, why_no_calibration
from rmcalib.metrics.catalogue import Metric, catalogue
from rmcalib.metrics.comparison import named_scores
from rmcalib.metrics.correlation import (
    LEADERBOARD,
    ModelErrors,
    correlate_errors,
    correlation_rows,
    model_errors,
)
from rmcalib.metrics.diagrams import bin_rows, rejection_rows
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.ranks import rank_sets
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import OVERALL, Row, parts_of, tidy_row
from rmcalib.metrics.views import Part, whole_part
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

DEFAULT_METRIC = "kept_information"
"""The metric that models are sorted by if none is given."""
SCORE = "rewardbench_score"
"""The metric that is the score of a model, over all categories and in each of them."""
BOARD_DRAWS = 200
"""The number of simulated data sets for calibration errors on a leaderboard."""
_ALWAYS = ("kept_information", "lost_information", "ece", "ece_at_temperature", "reference_top_1")
_UNINFORMATIVE = (
    "these prompts do not show that its rewards have usable information; at a high temperature such rewards "
    "give a uniform guess, whose ECE is near 0"
)


@dataclass(frozen=True)
class Entry:
    """One model of a leaderboard: its name, how to read its scores, why it is not calibrated, and its family."""

    name: str
    scores: Callable[[], Scores]
    no_calibration: str | None = None
    family: str | None = None


@dataclass(frozen=True)
class Board(Shown):
    """Models ranked by a metric, as tidy tables.

    Attributes
    ----------
    metric, score : str
        What models are sorted by, and the metric that is their score.
    categories : list of str
        The categories of the benchmark.
    models : list of dict
        One row per model, best first. Models that are worse than a uniform guess, or not shown to be right more
        often than by chance, come after the others; models without a rank come last, with the reason in ``why``.
    metrics : list of dict
        One row per model, category and metric.
    correlations, split_correlations : list of dict
        Correlations of errors with scores over models, and from different halves of the prompts.
    ranks, reliability, rejection : list of dict
        Ranks by several metrics; reliability and rejection curves of each model.
    notes : list of str
        Warnings for readers.
    settings : Settings
        How the metrics were computed.
    benchmark, protocol, score_name : str
        What models were measured on, how, and the name of the score over all categories.
    check : list of dict
        Our scores against official ones.
    training : list of dict
        One row per step, if the models are steps of one training run.
    """

    metric: str
    score: str
    categories: list[str]
    models: list[Row]
    metrics: list[Row]
    correlations: list[Row]
    split_correlations: list[Row]
    ranks: list[Row]
    reliability: list[Row]
    rejection: list[Row]
    notes: list[str]
    settings: Settings
    benchmark: str = ""
    protocol: str = "exact"
    score_name: str = "score"
    check: list[Row] = field(default_factory=list)
    training: list[Row] = field(default_factory=list)

    @property
    def table(self) -> pandas.DataFrame:
        """One row per model: rank, score, every metric with its interval, categories."""
        import pandas

        return pandas.DataFrame(self.wide_rows())

    def wide_rows(self) -> list[Row]:
        """Return one flat row per model: rank, score, values with their intervals, categories, ranks."""
        keys = list(dict.fromkeys([self.metric, *(key for row in self.models for key in row["values"])]))
        bounded = {
            key for row in self.models for key, found in row["values"].items() if found["low"] is not None
        }
        rows = []
        for row in self.models:
            flat: Row = {name: row[name] for name in ("rank", "rank_low", "rank_high", "model", "score")}
            flat["better_than_guess"] = row["better_than_guess"]
            for key in keys:
                found = row["values"].get(key)
                flat[key] = found and found["value"]
                if key in bounded:
                    flat[f"{key}_low"] = found and found["low"]
                    flat[f"{key}_high"] = found and found["high"]
            flat |= {f"score[{name}]": row["category_scores"][name] for name in self.categories}
            flat |= {f"rank_by[{by}]": rank for by, rank in row["ranks"].items()}
            if "scale" in row:
                flat["bradley_terry"] = row["scale"]
            rows.append(flat | {"note": row["why"] or row.get("mark", "")})
        return rows

    def __repr__(self) -> str:
        """Return the first ten models, one line each."""
        lines = [
            f"{row['rank'] or '-':>3}  {row['model']}  {self.metric} "
            + (f"{found['value']:.3f}" if (found := row["values"].get(self.metric)) else row["why"])
            for row in self.models[:10]
        ]
        more = [f"     and {len(self.models) - 10} more"] if len(self.models) > 10 else []
        return "\n".join([f"Leaderboard of {len(self.models)} models", *lines, *more])


def leaderboard(
    scores: Iterable[Any] | Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    metric: str = DEFAULT_METRIC,
    recipes: Iterable[Any] = (),
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Board:
    """Rank models by a metric, and correlate their calibration with their scores.

    Parameters
    ----------
    scores : several of Scores, DataFrames or paths, or a mapping from names to them
        The models.
    names : sequence of str, optional
        Their names; default those of the scores. Unnamed and equal ones are numbered.
    metric : str
        What to sort by.
    recipes : paths, optional
        Files of recipes, which say whether rewards are log-utilities.
    resamples, level, seed
        How intervals are computed.

    Returns
    -------
    Board
        Its ``table`` has one row per model, best first: rank, rank_low and rank_high (the ranks that it may
        have), better_than_guess (False if the upper limit of kept_information is below 0, or the lower limit
        of accuracy is not above that of a random choice), and the metrics.

    Examples
    --------
    >>> from rmcalib import Scores
    >>> good = Scores.from_arrays([[2.0, 0.0]] * 9 + [[0.0, 2.0]])
    >>> board = leaderboard([good, good.at_temperature(100.0)], names=["good", "flat"], resamples=50)
    >>> [row["model"] for row in board.models]
    ['good', 'flat']
    """
    known = registry(recipes)
    entries = []
    for name, one in named_scores(scores, names).items():
        recipe = recipe_of_run(name, one.manifest, known)
        entries.append(Entry(name, partial(_itself, one), why_no_calibration(recipe), recipe.family))
    settings = Settings(resamples=resamples, level=level, seed=seed)
    return measure_entries(entries, metric=metric, settings=settings)


def sortable_metrics() -> list[str]:
    """Return the names of the metrics that a leaderboard can be sorted by."""
    return [name for name, one in catalogue().items() if one.ranked != "nowhere" and one.better is not None]


def check_sortable(metric: str) -> None:
    """Raise a ValueError unless a leaderboard can be sorted by this metric."""
    if metric not in sortable_metrics():
        raise ValueError(f"metric: unknown {metric!r} (have: {', '.join(sortable_metrics())})")


def measure_entries(
    entries: Sequence[Entry],
    *,
    metric: str = DEFAULT_METRIC,
    settings: Settings | None = None,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Board:
    """Measure and rank models, reading the scores of one after the other."""
    settings = settings or Settings()
    check_sortable(metric)
    metrics: list[Row] = []
    curves: tuple[list[Row], list[Row]] = ([], [])
    chance: dict[str, float] = {}
    prompts: dict[str, str] = {}
    sizes: dict[str, float] = {}
    errors: dict[str, ModelErrors] = {}
    worth: dict[str, tuple[float, FloatArray]] = {}
    for i, entry in enumerate(entries):
        if on_model is not None:
            on_model(i, len(entries), entry.name)
        scores = entry.scores()
        whole = whole_part(scores, seed=settings.seed)
        metrics += [
            {"model": entry.name, **row, "category": clean_line(row["category"])}
            for row in board_rows(whole, settings, entry.no_calibration)
        ]
        prompts[entry.name] = _digest(scores)
        sizes[entry.name] = round(len(scores) / scores.n_items, 1)
        one = whole.prompts("one")
        if one is None:
            continue
        chance[entry.name] = float((1 / one.sizes).mean())
        if entry.no_calibration is not None:
            continue
        diagram = reliability(one.top_1.p, one.top_1.y, bins=settings.bins)
        curves[0].extend({"model": entry.name, **row} for row in bin_rows(diagram))
        curves[1].extend({"model": entry.name, **row} for row in rejection_rows(one, settings.seed))
        worth[entry.name] = one.scale.kept, one.scale.kept_influence()
        errors[entry.name] = model_errors(one)
    board = rank_models(
        [entry.name for entry in entries],
        metrics,
        metric=metric,
        categories=[name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL],
        correlated=tuple(dict.fromkeys((metric, *_ALWAYS))),
        ranked_by=("accuracy", *_ALWAYS),
        chance=chance,
        settings=settings,
        curves=curves,
        notes=_size_notes(metric, sizes) + _prompt_notes(prompts),
        split_correlations=correlate_errors(
            errors, {one.name: one.family for one in entries if one.family}, settings
        ),
    )
    same_prompts = len({prompts[name] for name in worth}) == 1
    return _with_rank_sets(board, worth) if metric == DEFAULT_METRIC and same_prompts else board


def board_rows(
    whole: Part,
    settings: Settings,
    no_calibration: str | None = None,
    metrics: Sequence[Metric] | None = None,
) -> list[Row]:
    """Return the rows of the metrics that a leaderboard shows, with fewer simulated data sets."""
    fewer = replace(settings, resamples=min(BOARD_DRAWS, settings.resamples))
    wanted = [one for one in catalogue().values() if one.ranked != "nowhere"] if metrics is None else metrics
    return [
        row
        for part in parts_of(whole)
        for one in wanted
        if one.ranked == "everywhere" or part.name == OVERALL
        if (row := tidy_row(one, part, fewer, no_calibration)) is not None
    ]


def rank_models(
    models: Sequence[str],
    metrics: Sequence[Row],
    *,
    metric: str,
    categories: Sequence[str],
    correlated: Sequence[str],
    ranked_by: Sequence[str],
    settings: Settings,
    chance: Mapping[str, float] | None = None,
    curves: tuple[list[Row], list[Row]] = ([], []),
    notes: Sequence[str] = (),
    split_correlations: Sequence[Row] = (),
) -> Board:
    """Rank models by rows of metrics, and correlate errors with scores. ``chance``: accuracy of a random choice."""
    found: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in models}
    for row in metrics:
        found[row["model"]][row["category"], row["metric"]] = row
    notes, score = list(notes), SCORE
    if not np.isfinite(_column(found, SCORE)).any():
        score = "accuracy"
        notes.append("There is no score over all categories, so accuracy is used instead.")
    scores = _column(found, score)
    columns = {name: scores if name == "score" else _column(found, name) for name in (*ranked_by, metric)}
    if "ece_at_temperature" in columns:
        columns["ece_at_temperature"][_uninformative(found)] = np.nan
    informed = [_better_than_guess(found[name], (chance or {}).get(name)) for name in models]
    guesses = np.array([one is False for one in informed], dtype=bool)
    ranks = {
        name: _ranks(_badness(name, values), guesses & (name not in ("score", "accuracy")))
        for name, values in columns.items()
    }
    rows = [
        _wide(found[name], name, categories, metric, scores[i])
        | {"ranks": {by: ranks[by][i] for by in ranked_by}, "rank": ranks[metric][i]}
        | {"rank_low": None, "rank_high": None, "better_than_guess": informed[i]}
        for i, name in enumerate(models)
    ]
    for row in rows:
        if row["rank"] is None and metric in row["values"]:
            row["why"] = _UNINFORMATIVE
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0, row["model"]))
    # One category is the same as all of them together.
    several = categories if len(categories) > 1 else ()
    targets = {LEADERBOARD: scores} | {name: _column(found, SCORE, name) for name in several}
    correlations = [
        row
        for name in correlated
        for row in correlation_rows(name, _badness(name, _column(found, name)), targets, settings)
    ]
    return Board(
        metric=metric,
        score=score,
        categories=list(categories),
        models=rows,
        metrics=list(metrics),
        correlations=correlations,
        split_correlations=list(split_correlations),
        ranks=[
            {"model": row["model"], "by": by, "rank": row["ranks"][by]}
            for row in rows
            for by in ranked_by
            if row["ranks"][by] is not None
        ],
        reliability=curves[0],
        rejection=curves[1],
        notes=[*notes, *_rank_notes(metric, rows)],
        settings=settings,
    )


def _with_rank_sets(board: Board, worth: Mapping[str, tuple[float, FloatArray]]) -> Board:
    """Add the ranks that each model may have, among the models that have one."""
    names = list(worth)
    sets = rank_sets(
        [worth[name][0] for name in names],
        [worth[name][1] for name in names],
        level=board.settings.level,
        resamples=board.settings.resamples,
        seed=board.settings.seed,
    )
    known = dict(zip(names, sets, strict=True))
    models = [
        row
        if row["model"] not in known
        else row | dict(zip(("rank_low", "rank_high"), known[row["model"]], strict=True))
        for row in board.models
    ]
    return replace(board, models=models)


def _better_than_guess(found: Mapping[tuple[str, str], Row], chance: float | None) -> bool | None:
    """False if a model is worse than a uniform guess, or not shown to be right more often; None if unknown."""
    kept, accuracy, pairs = (
        found.get((OVERALL, name), {}) for name in ("kept_information", "accuracy", "pairwise_accuracy")
    )
    if kept.get("high") is not None and kept["high"] < 0:
        return False
    if accuracy.get("low") is not None and chance is not None:
        return bool(accuracy["low"] > chance)
    return bool(pairs["low"] > 0.5) if pairs.get("low") is not None else None  # a judge of pairs only


def _ranks(errors: FloatArray, last: BoolArray) -> list[int | None]:
    """1 for the best; ``last`` come after the others; equal ones share the better rank; None for no value."""
    known = [(bool(late), error) for late, error in zip(last, errors, strict=True) if np.isfinite(error)]
    return [
        1 + int(sum(other < (bool(late), error) for other in known)) if np.isfinite(error) else None
        for late, error in zip(last, errors, strict=True)
    ]


def _column(
    found: Mapping[str, Mapping[tuple[str, str], Row]], name: str, category: str = OVERALL
) -> FloatArray:
    """Return the values of a metric, one per model (n,); NaN where there is none."""
    values = [rows.get((category, name), {}).get("value") for rows in found.values()]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _uninformative(found: Mapping[str, Mapping[tuple[str, str], Row]]) -> BoolArray:
    """Return which models (n,) are not shown to have usable information: its interval reaches 0."""
    usable = [rows.get((OVERALL, "usable_information"), {}) for rows in found.values()]
    return np.array([row.get("low") is not None and row["low"] <= 0 for row in usable], dtype=bool)


def _badness(name: str, values: FloatArray) -> FloatArray:
    """Numbers that are smaller for better values (n,)."""
    if name == "score":
        return -values
    metric = catalogue().get(name)
    return values if metric is None else np.array([metric.badness(value) for value in values])


def _wide(
    found: Mapping[tuple[str, str], Row], name: str, categories: Sequence[str], metric: str, score: float
) -> Row:
    def of(category: str, wanted: str) -> Row | None:
        row = found.get((category, wanted))
        return None if row is None or row["value"] is None else row

    own = [name for category, name in found if category == OVERALL]
    values = {key: of(OVERALL, key) for key in dict.fromkeys((metric, *catalogue(), *own))}
    main = found.get((OVERALL, metric))
    has_value = main is not None and main["value"] is not None
    category_score = {c: of(c, SCORE) for c in categories}
    return {
        "model": name,
        "why": "" if has_value else (main or {}).get("note") or "not measured",
        "score": float(score) if np.isfinite(score) else None,
        "values": {key: row for key, row in values.items() if row is not None},
        "category_scores": {c: None if r is None else r["value"] for c, r in category_score.items()},
        "category_ece": {c: row for c in categories if (row := of(c, "ece")) is not None},
    }


def _rank_notes(metric: str, rows: Sequence[Row]) -> list[str]:
    notes = []
    known = [row["rank"] for row in rows if row["rank"] is not None]
    if len(known) > 1 and len(set(known)) == 1:
        label = catalogue()[metric].label if metric in catalogue() else metric
        notes.append(f"All models have the same {label}, so their order has no meaning.")
    if len(known) < 3:
        notes.append("Correlations need at least three models with probabilities.")
    return notes


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
    found = list(prompts.values())
    if len(set(found)) < 2:
        return []
    usual = max(dict.fromkeys(found), key=found.count)
    odd = ", ".join(name for name, digest in prompts.items() if digest != usual)
    return [
        f"Not all models were scored on the same prompts. These differ from most: {odd}. Compare with care."
    ]


def _digest(scores: Scores) -> str:
    ids = "\0".join(scores.item_id.tolist()).encode("utf-8", "surrogatepass")
    return hashlib.sha256(ids).hexdigest()


def _itself(scores: Scores) -> Scores:
    return scores

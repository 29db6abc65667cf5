"""Leaderboards: measure many models on the same benchmark, and rank them by what their probabilities are worth."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, chunks
from rmcalib._util.display import clean_line
from rmcalib.calibration.clusters import by_cluster, student_quantile, too_few_clusters
from rmcalib.metrics import correlation
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.comparison import named_scores
from rmcalib.metrics.measures import Settings, pointwise_worth
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import OVERALL, Row, bin_rows, parts_of, rejection_rows, tidy_row
from rmcalib.metrics.views import Part, whole_part
from rmcalib.scores import Scores
from rmcalib.scores.scale import View, family_of

DEFAULT_METRIC = "kept_information"
DEFAULT_METRIC_OF: dict[View, str] = {"top_1": DEFAULT_METRIC, "pointwise": "pointwise_kept_information"}
"""The metric that models are sorted by if none is given: a proper score of what is stated."""
SCORE = "rewardbench_score"
"""The metric that is the score of a model, over all categories and in each of them."""
BOARD_DRAWS = 200
"""The number of simulated data sets for calibration errors on a leaderboard."""
_ALWAYS = ("kept_information", "lost_information", "ece", "ece_at_temperature", "reference_top_1")


@dataclass(frozen=True)
class Entry:
    """One model of a leaderboard: its name, its scores or how to read them, and its family."""

    name: str
    scores: Scores | Callable[[], Scores]
    family: str


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
    reliability, rejection : list of dict
        Reliability and rejection curves of each model.
    notes : list of str
        Warnings for readers.
    settings : Settings
        How the metrics were computed.
    benchmark, protocol : str
        What models were measured on, and how.
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
    settings: Settings
    split_correlations: list[Row] = field(default_factory=list)
    reliability: list[Row] = field(default_factory=list)
    rejection: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    benchmark: str = ""
    protocol: str = "exact"
    check: list[Row] = field(default_factory=list)
    training: list[Row] = field(default_factory=list)

    @property
    def ranks(self) -> list[Row]:
        """One row per model and metric that models are ranked by."""
        return [
            {"model": row["model"], "by": by, "rank": rank}
            for row in self.models
            for by, rank in row["ranks"].items()
            if rank is not None
        ]

    def table_rows(self) -> list[Row]:
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
                flat["scale"] = row["scale"]
            rows.append(flat | {"note": row["why"] or row.get("mark", "")})
        return rows

    def __repr__(self) -> str:
        """Return the first ten models, one line each."""
        first = self.table[["rank", "model", self.metric]].head(10)
        return f"Leaderboard of {len(self.models)} models\n{first.to_string(index=False)}"


def leaderboard(
    scores: Iterable[Any] | Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    metric: str | None = None,
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
    metric : str, optional
        What to sort by; default ``kept_information``, or ``pointwise_kept_information`` where labels say of each
        response whether it is correct.
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
    entries = [Entry(name, one, family_of(name)) for name, one in named_scores(scores, names).items()]
    settings = Settings(resamples=resamples, level=level, seed=seed)
    return measure_entries(entries, metric=metric, settings=settings)


def check_sortable(metric: str) -> None:
    """Raise a ValueError unless a leaderboard can be sorted by this metric."""
    have = [name for name, one in catalogue().items() if one.ranked != "nowhere" and one.better is not None]
    if metric not in have:
        raise ValueError(f"metric: unknown {metric!r} (have: {', '.join(have)})")


def measure_entries(
    entries: Sequence[Entry],
    *,
    metric: str | None = None,
    settings: Settings,
    on_model: Callable[[int, int, str], None] | None = None,
) -> Board:
    """Measure and rank models, reading the scores of one after the other."""
    if metric is not None:
        check_sortable(metric)
    views: dict[str, View] = {}
    metrics: list[Row] = []
    curves: list[Row] = []
    rejection: list[Row] = []
    prompts: dict[str, str] = {}
    sizes: dict[str, float] = {}
    chance: dict[str, float] = {}
    worth: dict[str, correlation.Measured] = {}
    errors: dict[tuple[str, int], dict[str, correlation.ModelErrors]] = {}  # of models on the same prompts
    for i, entry in enumerate(entries):
        name, scores = entry.name, entry.scores() if callable(entry.scores) else entry.scores
        if on_model is not None:
            on_model(i, len(entries), name)
        whole = whole_part(scores, seed=settings.seed)
        metrics += [{"model": name, **row} for row in _board_rows(whole, settings)]
        views[name] = scores.view
        prompts[name] = _digest(scores)
        sizes[name] = round(len(scores) / scores.n_items, 1)
        if scores.view == "pointwise":
            own = whole.prompts("labelled")
            if own is not None and scores.refusal() is None:
                curves += [{"model": name, **row} for row in bin_rows(own.pointwise, settings)]
                worth[name] = _pointwise_worth(own)
                errors.setdefault((_digest(own.scores), len(worth[name][1])), {})
            continue
        one = whole.prompts("one")
        if one is not None:
            chance[name] = float((1 / one.sizes).mean())
        if one is None or scores.refusal() is not None:
            continue
        curves += [{"model": name, **row} for row in bin_rows(one.top_1, settings)]
        rejection += [{"model": name, **row} for row in rejection_rows(one, settings.seed)]
        order = np.argsort(one.scores.item_id[one.starts])
        cluster = None if one.cluster is None else one.cluster[order]
        if too_few_clusters(cluster):
            continue
        worth[name] = one.scale.kept, by_cluster(one.scale.kept_influence()[order], cluster)
        # Models may differ in which prompts have one correct response, and in their clusters.
        same = _digest(one.scores), len(worth[name][1])
        errors.setdefault(same, {})[name] = correlation.model_errors(one)
    metric = metric or DEFAULT_METRIC_OF[_common_view(views)]
    board = rank_models(
        [entry.name for entry in entries],
        metrics,
        metric=metric,
        ranked_by=("accuracy", *_ALWAYS),
        chance=chance,
        settings=settings,
    )
    if metric in DEFAULT_METRIC_OF.values() and len(errors) == 1:
        sets = dict(zip(worth, rank_sets(list(worth.values()), settings), strict=True))
        for row in board.models:
            row["rank_low"], row["rank_high"] = sets.get(row["model"], (None, None))
    families = {one.name: one.family for one in entries}
    most = max(errors.values(), key=len, default={})
    return replace(
        board,
        split_correlations=correlation.correlate_errors(most, families, settings),
        reliability=curves,
        rejection=rejection,
        notes=_size_notes(metric, sizes) + _prompt_notes(prompts),
    )


def _common_view(views: Mapping[str, View]) -> View:
    """Return the view of all models, or raise a ValueError that names two with different ones."""
    by_view = {view: name for name, view in views.items()}
    if len(by_view) > 1:
        raise ValueError(
            f"labels mean different things: of {by_view['top_1']!r} they name the best response, of "
            f"{by_view['pointwise']!r} they say which are correct; state it for both (labels_are, --labels-are)"
        )
    return next(iter(by_view), "top_1")


def _pointwise_worth(part: Part) -> correlation.Measured:
    """Return the kept information per response, and what each prompt or cluster, by id, contributes to it."""
    events = part.pointwise
    worth = pointwise_worth(events)
    value = float(worth.mean())
    prompt = part.prompt[~np.isnan(part.label)]
    of_prompt = np.zeros(len(part))
    np.add.at(of_prompt, prompt, (worth - value) / len(worth))
    order = np.argsort(part.scores.item_id[part.starts])
    cluster = None if part.cluster is None else part.cluster[order]
    return value, by_cluster(of_prompt[order], cluster)


def _board_rows(whole: Part, settings: Settings) -> list[Row]:
    """Return the rows of the metrics that a leaderboard shows, with fewer simulated data sets."""
    fewer = replace(settings, resamples=min(BOARD_DRAWS, settings.resamples))
    return [
        row | {"category": clean_line(row["category"])}
        for part in parts_of(whole)
        for one in catalogue().values()
        if one.ranked == "everywhere" or (one.ranked == "overall" and part.name == OVERALL)
        if (row := tidy_row(one, part, fewer)) is not None
    ]


def rank_models(
    models: Sequence[str],
    metrics: Sequence[Row],
    *,
    metric: str,
    ranked_by: Sequence[str],
    settings: Settings,
    chance: Mapping[str, float] | None = None,
) -> Board:
    """Rank models by rows of metrics, and correlate errors with scores. ``chance``: accuracy of a random choice."""
    found: dict[str, dict[tuple[str, str], Row]] = {name: {} for name in models}
    for row in metrics:
        found[row["model"]][row["category"], row["metric"]] = row
    categories = [name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL]

    def column(name: str, category: str = OVERALL) -> FloatArray:
        """Return the values of a metric, one per model (n,); NaN where there is none."""
        values = [rows.get((category, name), {}).get("value") for rows in found.values()]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    known = [name for name in (SCORE, "accuracy", "best_of_n") if np.isfinite(column(name)).any()]
    score = known[0] if known else "accuracy"
    scores = column(score)
    informed = [_better_than_guess(found[name], (chance or {}).get(name)) for name in models]
    guesses = np.array([one is False for one in informed], dtype=bool)
    errors = {name: _badness(name, column(name)) for name in (*ranked_by, metric)} | {"score": -scores}
    if "ece_at_temperature" in errors:
        # At a high temperature, rewards without usable information give a uniform guess, whose ECE is near 0.
        usable = (rows.get((OVERALL, "usable_information"), {}).get("low") for rows in found.values())
        errors["ece_at_temperature"][[low is not None and low <= 0 for low in usable]] = np.nan
    ranks = {
        name: _ranks(values, guesses & (name not in ("score", "accuracy"))) for name, values in errors.items()
    }
    rows: list[Row] = []
    for i, name in enumerate(models):
        own = found[name]
        main = own.get((OVERALL, metric), {"value": None, "note": ""})
        why = main["note"] or ("not measured" if main["value"] is None else "no usable information is shown")
        rows.append(
            {
                "model": name,
                "rank": ranks[metric][i],
                "rank_low": None,
                "rank_high": None,
                "better_than_guess": informed[i],
                "score": float(scores[i]) if np.isfinite(scores[i]) else None,
                "values": {
                    key: row
                    for (category, key), row in own.items()
                    if category == OVERALL and row["value"] is not None
                },
                "category_scores": {
                    name: own.get((name, SCORE if score != "best_of_n" else score), {}).get("value")
                    for name in categories
                },
                "ranks": {by: ranks[by][i] for by in ranked_by},
                "why": "" if ranks[metric][i] is not None else why,
            }
        )
    rows.sort(key=lambda row: (row["rank"] is None, row["rank"] or 0, row["model"]))
    # One category is the same as all of them together.
    several = categories if len(categories) > 1 else ()
    targets = {correlation.LEADERBOARD: scores} | {name: column(SCORE, name) for name in several}
    correlated = [name for name in dict.fromkeys((metric, *ranked_by)) if name not in ("score", "accuracy")]
    return Board(
        metric=metric,
        score=score,
        categories=categories,
        models=rows,
        metrics=list(metrics),
        correlations=[
            row
            for name in correlated
            for row in correlation.correlation_rows(name, _badness(name, column(name)), targets, settings)
        ],
        settings=settings,
    )


def _digest(scores: Scores) -> str:
    """Return a hash of the ids of all responses, in any order."""
    ids = "\0".join(sorted(scores.item_id.tolist()))
    return hashlib.sha256(ids.encode("utf-8", "surrogatepass")).hexdigest()


def rank_sets(measured: Sequence[correlation.Measured], settings: Settings) -> list[tuple[int, int]]:
    """Return for each model the ranks that it may have: [1 + number surely better, M − number surely worse].

    Models are given by their values, of which larger ones are better, and what each prompt, or cluster of them,
    contributes to the deviation of that value (n,). A model is surely better if the difference is larger than the
    95% point of the largest of all standardised differences, from a multiplier bootstrap (Mogstad et al. 2024), as a
    quantile of Student's t instead of the normal distribution.
    """
    from scipy.special import ndtr

    value = np.array([value for value, _ in measured])
    influence = np.array([influence for _, influence in measured])
    n_models, n = influence.shape
    if n_models < 2 or n < 2:
        return [(1, n_models)] * n_models
    one, other = np.triu_indices(n_models, 1)
    covariance = influence @ influence.T * n / (n - 1)
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[one] + variance[other] - 2 * covariance[one, other], 0.0))
    known = spread > 1e-12 * max(float(np.sqrt(variance.max())), 1e-300)
    rng, largest = np.random.default_rng(settings.seed), []
    for part in chunks(settings.resamples, max(n, len(one))):
        moved = rng.standard_normal((part.stop - part.start, n)) @ influence.T
        ratio = np.abs(moved[:, one] - moved[:, other])[:, known] / spread[known]
        largest.append(ratio.max(axis=1, initial=0.0))
    normal = float(ndtr(np.quantile(np.concatenate(largest), settings.level)))
    limit = student_quantile(2 * normal - 1, n - 1)
    difference = value[one] - value[other]
    surely = np.where(known, np.abs(difference) > limit * spread, np.abs(difference) > 1e-12)
    better, worse = np.where(difference > 0, one, other)[surely], np.where(difference > 0, other, one)[surely]
    above, below = np.bincount(worse, minlength=n_models), np.bincount(better, minlength=n_models)
    return [(1 + int(up), n_models - int(down)) for up, down in zip(above, below, strict=True)]


def _better_than_guess(found: Mapping[tuple[str, str], Row], chance: float | None) -> bool | None:
    """False if a model is worse than a uniform guess, or not shown to be right more often; None if unknown."""
    kept, accuracy, pairs = (
        found.get((OVERALL, name), {}) for name in ("kept_information", "accuracy", "pairwise_accuracy")
    )
    of_responses, order = (
        found.get((OVERALL, name), {}) for name in ("pointwise_kept_information", "within_prompt_auroc")
    )
    if any(one.get("high") is not None and one["high"] < 0 for one in (kept, of_responses)):
        return False
    if of_responses.get("high") is not None and order.get("low") is not None:
        return bool(order["low"] > 0.5)
    if accuracy.get("low") is not None and chance is not None:
        return bool(accuracy["low"] > chance)
    return bool(pairs["low"] > 0.5) if pairs.get("low") is not None else None  # a judge of pairs only


def _ranks(errors: FloatArray, last: BoolArray) -> list[int | None]:
    """1 for the best; ``last`` come after the others; equal ones share the better rank; None for no value."""
    places = [
        (late, error) if np.isfinite(error) else None
        for late, error in zip(last.tolist(), errors.tolist(), strict=True)
    ]
    ordered = sorted(place for place in places if place is not None)
    return [None if place is None else 1 + ordered.index(place) for place in places]


def _badness(name: str, values: FloatArray) -> FloatArray:
    """Numbers that are smaller for better values (n,); columns of a user's table are errors."""
    metric = catalogue().get(name)
    return values if metric is None else np.array([metric.badness(value) for value in values])


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

"""Leaderboards: measure many models on the same benchmark, and rank them by kept information."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, chunks
from rmcalib._util.display import clean_line
from rmcalib.calibration.clusters import by_cluster, student_quantile, too_few_clusters
from rmcalib.leaderboards import correlation
from rmcalib.metrics.audit import holm
from rmcalib.metrics.catalogue import PLAIN, catalogue, shown_metric
from rmcalib.metrics.comparison import named_scores
from rmcalib.metrics.measures import Settings, pointwise_worth
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import OVERALL, Row, bin_rows, estimate_of, parts_of, rejection_rows, tidy_row
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.scores import Scores
from rmcalib.scores._joining import id_columns
from rmcalib.scores.scale import View, family_of

DEFAULT_METRIC = "kept_information"
DEFAULT_METRIC_OF: dict[View, str] = {"top_1": DEFAULT_METRIC, "pointwise": "pointwise_kept_information"}
"""The metric that models are sorted by if none is given: a proper score of what is stated."""
SCORE = "rewardbench_score"
"""The metric that is the score of a model, over all categories and in each of them."""
BOARD_DRAWS = 200
"""The number of simulated data sets for calibration errors on a leaderboard."""
_SCORES = (SCORE, "accuracy", "best_of_n")  # in the order of preference
_GAP_OF: dict[View, str] = {"top_1": "overconfidence", "pointwise": "pointwise_gap"}
_SMALLEST_P = 1e-6
_ALWAYS = ("kept_information", "lost_information", "ece", "ece_at_temperature", "reference_top_1")
_Cells = dict[tuple[str, str], Row]  # of one model, by category and metric


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
        One row per model, best first. Models that are worse than a uniform guess, or not significantly
        better than a random choice, come after the others; models without a rank come last, with the reason in ``why``.
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
    sources : dict of str to str
        Where the scores of models can be read again.
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
    sources: dict[str, str] = field(default_factory=dict)

    @property
    def best(self) -> str | None:
        """The model that is better than all others, by the test of ranks; None if none is clearly the best."""
        first = self.models[0] if len(self.models) > 1 else {}
        return first["model"] if first.get("rank_high") == 1 else None

    @property
    def ranks(self) -> list[Row]:
        """One row per model and metric that models are ranked by."""
        return [
            {"model": row["model"], "by": by, "rank": rank}
            for row in self.models
            for by, rank in row["ranks"].items()
            if rank is not None
        ]

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.leaderboards.page import board_document

        return board_document(self)

    def table_rows(self) -> list[Row]:
        """Return one flat row per model: rank, score, values with their intervals, categories, ranks."""
        keys = list(dict.fromkeys([self.metric, *(key for row in self.models for key in row["values"])]))
        bounded = {
            key for row in self.models for key, cell in row["values"].items() if cell["low"] is not None
        }
        rows = []
        for row in self.models:
            flat: Row = {name: row[name] for name in ("rank", "rank_low", "rank_high", "model", "score")}
            flat["better_than_guess"] = row["better_than_guess"]
            for key in keys:
                cell = row["values"].get(key)
                flat[key] = cell and cell["value"]
                if key in bounded:
                    flat |= {f"{key}_{end}": cell and cell[end] for end in ("low", "high")}
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
    entries = [Entry(name, each, family_of(name)) for name, each in named_scores(scores, names).items()]
    settings = Settings(resamples=resamples, level=level, seed=seed)
    return measure_entries(entries, metric=metric, settings=settings)


def check_sortable(metric: str) -> None:
    """Raise a ValueError unless a leaderboard can be sorted by this metric."""
    have = [
        name for name, each in catalogue().items() if each.ranked != "nowhere" and each.better is not None
    ]
    if metric not in have and metric not in PLAIN:
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
    models = []
    for i, entry in enumerate(entries):
        if on_model is not None:
            on_model(i, len(entries), entry.name)
        scores = entry.scores() if callable(entry.scores) else entry.scores
        models.append(_measure(entry.name, scores, settings))
    view = _common_view(models)
    metric = DEFAULT_METRIC_OF[view] if metric is None else shown_metric(metric, view)
    board = rank_models(
        [model.name for model in models],
        [row for model in models for row in model.metrics],
        metric=metric,
        ranked_by=("accuracy", *_ALWAYS),
        chance={model.name: model.chance for model in models if model.chance is not None},
        settings=settings,
    )
    gaps = [model.gap for model in models if model.gap is not None]
    corrected = iter(holm([gap["p_value"] for gap in gaps]))
    shown = {
        model.name: model.gap | {"shown": next(corrected) <= 1 - settings.level}
        for model in models
        if model.gap is not None
    }
    for row in board.models:
        row["gap"] = shown.get(row["model"])
    # Models may differ in which prompts have one correct response, and in their clusters.
    on_prompts: dict[tuple[str, int], dict[str, _Model]] = {}
    for model in models:
        if model.worth is not None:
            on_prompts.setdefault((model.labelled, len(model.worth[1])), {})[model.name] = model
    if metric in DEFAULT_METRIC_OF.values() and len(on_prompts) == 1:
        (same,) = on_prompts.values()
        worth = [model.worth for model in same.values() if model.worth is not None]
        sets = dict(zip(same, rank_sets(worth, settings), strict=True))
        for row in board.models:
            row["rank_low"], row["rank_high"] = sets.get(row["model"], (None, None))
    most = max(on_prompts.values(), key=len, default={})
    errors = {name: model.errors for name, model in most.items() if model.errors is not None}
    families = {entry.name: entry.family for entry in entries}
    return replace(
        board,
        split_correlations=correlation.correlate_errors(errors, families, settings),
        reliability=[row for model in models for row in model.reliability],
        rejection=[row for model in models for row in model.rejection],
        notes=_size_notes(metric, models) + _prompt_notes(models),
    )


@dataclass(frozen=True)
class _Model:
    """What a leaderboard keeps of a model, so that its scores can be dropped.

    ``prompts`` and ``labelled`` are digests of the ids of all prompts and of those that are measured, ``labels`` of the
    labels, with the column that tells responses apart, ``size`` the number of responses per prompt, ``chance`` the
    accuracy of a random choice, ``gap`` its value and p-value, ``worth`` the kept information.
    """

    name: str
    view: View
    prompts: str
    size: float
    metrics: list[Row]
    chance: float | None = None
    labelled: str = ""
    labels: tuple[str, str] = ("", "")
    gap: Row | None = None
    worth: correlation.Measured | None = None
    errors: correlation.ModelErrors | None = None
    reliability: list[Row] = field(default_factory=list)
    rejection: list[Row] = field(default_factory=list)


def _measure(name: str, scores: Scores, settings: Settings) -> _Model:
    """Measure one model."""

    def named(rows: Iterable[Row]) -> list[Row]:
        return [{"model": name, **row} for row in rows]

    whole = whole_part(scores, seed=settings.seed)
    size = round(len(scores) / scores.n_items, 1)
    rows = named(_board_rows(whole, settings))
    model = _Model(name, scores.view, _digest(scores), size, rows, gap=_gap_test(whole, settings))
    model = replace(model, labels=_labels_digest(scores))
    part = whole.prompts("labelled" if scores.view == "pointwise" else "one")
    if part is None:
        return model
    if scores.view != "pointwise":
        model = replace(model, chance=float((1 / part.sizes).mean()))
    if scores.refusal() is not None:
        return model
    model = replace(model, labelled=_digest(part.scores))
    if scores.view == "pointwise":
        curves = named(bin_rows(part.pointwise, settings))
        return replace(model, reliability=curves, worth=_pointwise_worth(part))
    curves = named(bin_rows(part.top_1, settings))
    model = replace(model, reliability=curves, rejection=named(rejection_rows(part, settings.seed)))
    order = np.argsort(part.scores.item_id[part.starts])
    cluster = None if part.cluster is None else part.cluster[order]
    if too_few_clusters(cluster):
        return model
    worth = part.scale.kept, by_cluster(part.scale.kept_influence()[order], cluster)
    return replace(model, worth=worth, errors=correlation.model_errors(part))


def _gap_test(whole: Part, settings: Settings) -> Row | None:
    """Return the gap of a model, and the p-value of none: the smallest error of an interval that leaves out 0."""
    for name in (_GAP_OF[whole.scores.view], "pairwise_overconfidence"):
        gap = estimate_of(catalogue()[name], whole, settings)
        if gap is not None and gap.value is not None and gap.n >= FEWEST and not gap.why_no_interval:
            break
    else:
        return None

    def excluded(p: float) -> bool:
        limits = gap.interval(1 - p)
        return limits is not None and not limits.low <= 0 <= limits.high

    low, high = _SMALLEST_P, 1 - settings.level
    if not excluded(high):
        return {"value": gap.value, "p_value": 1.0}
    if excluded(low):
        return {"value": gap.value, "p_value": low}
    while high > 1.05 * low:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if excluded(middle) else (middle, high)
    return {"value": gap.value, "p_value": high}


def _common_view(models: Sequence[_Model]) -> View:
    """Return the view of all models, or raise a ValueError that names two with different ones."""
    by_view = {model.view: model.name for model in models}
    if len(by_view) > 1:
        raise ValueError(
            f"labels mean different things: of {by_view['top_1']!r} they name the best response, of "
            f"{by_view['pointwise']!r} they say which are correct; make a report of each kind"
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
        for metric in catalogue().values()
        if metric.ranked == "everywhere" or (metric.ranked == "overall" and part.name == OVERALL)
        if (row := tidy_row(metric, part, fewer)) is not None
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
    measured: dict[str, _Cells] = {name: {} for name in models}
    for row in metrics:
        measured[row["model"]][row["category"], row["metric"]] = row
    categories = [name for name in dict.fromkeys(row["category"] for row in metrics) if name != OVERALL]

    def column(name: str, category: str = OVERALL) -> FloatArray:
        """Return the values of a metric, one per model (n,); NaN where there is none."""
        values = [cells.get((category, name), {}).get("value") for cells in measured.values()]
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)

    score = next((name for name in _SCORES if np.isfinite(column(name)).any()), "accuracy")
    scores = column(score)
    informed = [_better_than_guess(measured[name], (chance or {}).get(name)) for name in models]
    guesses = np.array([better is False for better in informed], dtype=bool)
    errors = {name: _badness(name, column(name)) for name in (*ranked_by, metric)} | {"score": -scores}
    if "ece_at_temperature" in errors:
        # At a high temperature, rewards without usable information give a uniform guess, whose ECE is near 0.
        usable = (cells.get((OVERALL, "usable_information"), {}).get("low") for cells in measured.values())
        errors["ece_at_temperature"][[low is not None and low <= 0 for low in usable]] = np.nan
    ranks = {
        name: _ranks(values, guesses & (name not in ("score", "accuracy"))) for name, values in errors.items()
    }
    rows: list[Row] = []
    for i, (name, cells) in enumerate(measured.items()):
        main = cells.get((OVERALL, metric), {"value": None, "note": ""})
        why = main["note"] or ("not measured" if main["value"] is None else "no usable information was found")
        of_category = SCORE if score != "best_of_n" else score
        rows.append(
            {
                "model": name,
                "rank": ranks[metric][i],
                "rank_low": None,
                "rank_high": None,
                "better_than_guess": informed[i],
                "gap": None,
                "score": float(scores[i]) if np.isfinite(scores[i]) else None,
                "values": {
                    key: row
                    for (category, key), row in cells.items()
                    if category == OVERALL and row["value"] is not None
                },
                "category_scores": {
                    category: cells.get((category, of_category), {}).get("value") for category in categories
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
    return _hash_of(scores.item_id.tolist())


def _labels_digest(scores: Scores) -> tuple[str, str]:
    """Return the column that tells responses apart, if there is one, and a hash of the labels, in any order."""
    name, ids = next(iter(id_columns(scores).items()), ("", [""] * len(scores)))
    rows = zip(scores.item_id.tolist(), ids, scores.label.tolist(), strict=True)
    return name, _hash_of(f"{item}\0{response}\0{label:g}" for item, response, label in rows)


def _hash_of(texts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(sorted(texts)).encode("utf-8", "surrogatepass")).hexdigest()


def rank_sets(measured: Sequence[correlation.Measured], settings: Settings) -> list[tuple[int, int]]:
    """Return for each model the ranks that it may have: [1 + number surely better, M − number surely worse].

    Models are given by their values (larger is better) and what each prompt, or cluster of them,
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
    first, second = np.triu_indices(n_models, 1)
    covariance = influence @ influence.T * n / (n - 1)
    variance = np.diag(covariance)
    spread = np.sqrt(np.maximum(variance[first] + variance[second] - 2 * covariance[first, second], 0.0))
    varies = spread > 1e-12 * max(float(np.sqrt(variance.max())), 1e-300)
    rng, largest = np.random.default_rng(settings.seed), []
    for part in chunks(settings.resamples, max(n, len(first))):
        moved = rng.standard_normal((part.stop - part.start, n)) @ influence.T
        ratio = np.abs(moved[:, first] - moved[:, second])[:, varies] / spread[varies]
        largest.append(ratio.max(axis=1, initial=0.0))
    normal = float(ndtr(np.quantile(np.concatenate(largest), settings.level)))
    limit = student_quantile(2 * normal - 1, n - 1)
    difference = value[first] - value[second]
    surely = np.where(varies, np.abs(difference) > limit * spread, np.abs(difference) > 1e-12)
    better, worse = (
        np.where(difference > 0, first, second)[surely],
        np.where(difference > 0, second, first)[surely],
    )
    above, below = np.bincount(worse, minlength=n_models), np.bincount(better, minlength=n_models)
    return [(1 + int(up), n_models - int(down)) for up, down in zip(above, below, strict=True)]


def _better_than_guess(cells: _Cells, chance: float | None) -> bool | None:
    """False if a model is worse than a uniform guess, or not significantly better; None if unknown."""
    kept, accuracy, pairs = (
        cells.get((OVERALL, name), {}) for name in ("kept_information", "accuracy", "pairwise_accuracy")
    )
    of_responses, order = (
        cells.get((OVERALL, name), {}) for name in ("pointwise_kept_information", "within_prompt_auroc")
    )
    if any(row.get("high") is not None and row["high"] < 0 for row in (kept, of_responses)):
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


def _size_notes(metric: str, models: Sequence[_Model]) -> list[str]:
    """Warn if models with different numbers of responses are sorted by a metric that depends on them."""
    sizes = sorted({model.size for model in models})
    if len(sizes) < 2 or not catalogue()[metric].depends_on_m:
        return []
    shown = ", ".join(f"{size:g}" for size in sizes)
    return [
        f"Models were scored with different numbers of responses per prompt ({shown}), and "
        f"{catalogue()[metric].label} depends on that number: do not compare their ranks. "
        f"{catalogue()[DEFAULT_METRIC].label.capitalize()} can be compared."
    ]


def _prompt_notes(models: Sequence[_Model]) -> list[str]:
    """Warn if models were scored on different prompts, or with different labels of the same responses."""
    for what, kinds in (
        ("on the same prompts", [("", model.prompts) for model in models]),
        ("with the same labels", [model.labels for model in models]),
    ):
        usual: dict[str, str] = {}
        for kind, digest in sorted(kinds, key=kinds.count, reverse=True):
            usual.setdefault(kind, digest)
        odd = [
            model.name for model, (kind, digest) in zip(models, kinds, strict=True) if digest != usual[kind]
        ]
        if odd:
            return [
                f"Not all models were scored {what}. These differ from most: {', '.join(odd)}. Compare with care."
            ]
    return []

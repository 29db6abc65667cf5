"""Correlations of calibration errors with scores over models: Kendall's tau-b, with bootstrap intervals.

`correlation_rows` takes errors and scores from the same prompts, as the paper does. But the models of a
leaderboard answer the same prompts, so the choice of prompts affects the errors and the accuracies of all of
them. In `correlate_errors`, the error comes from one half of the prompts and the accuracy from the other,
averaged over many splits, and intervals resample both models and prompts. Errors and accuracies on parts of
the prompts follow from the influence of each prompt, so nothing is fitted again.

A resample of models is a vector of weights that says how often each model was drawn. Tau is a function of
weighted sums, so a thousand resamples take a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, chunks
from rmcalib.calibration.errors import error_influence, event_error
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.views import Part

Row = dict[str, Any]
FEW_MODELS = 10
LEADERBOARD = "leaderboard"
_FEWEST = 3  # models: two are always in order
_FEW = 6  # models: resamples of fewer hardly differ, so their interval would be far too narrow
_SPLITS = 100
_NOTHING = dict.fromkeys(("value", "low", "high", "p_value"))

Measured = tuple[float, FloatArray]  # a value, and the influence (n,) of each prompt on it
SmallFloats = npt.NDArray[np.float32]
Stacked = tuple[FloatArray, FloatArray]  # values (M,) and influences (M, n)


def correlation_rows(
    metric: str, errors: FloatArray, targets: Mapping[str, FloatArray], settings: Settings
) -> list[Row]:
    """Correlate an error of each model (n,) with each kind of score, NaN left out. The leaderboard counts by rank."""
    rows = []
    for target, values in targets.items():
        kept = np.isfinite(errors) & np.isfinite(values)
        worse = ranks_from_scores(values[kept]) if target == LEADERBOARD else -values[kept]
        found = correlate(errors[kept], worse, settings)
        rows.append({"metric": metric, "target": target, "method": "kendall", **found})
    return rows


def correlate(x: FloatArray, y: FloatArray, settings: Settings) -> Row:
    """Correlate two numbers of each model (n,), with a percentile bootstrap interval over the models."""
    from scipy.stats import kendalltau

    n = len(x)
    if n < _FEWEST:
        return {**_NOTHING, "n": n, "note": f"needs at least {_FEWEST} models"}
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return {**_NOTHING, "n": n, "note": "all models are equal"}
    weights = resampling_weights(settings.resamples, n, np.random.default_rng(settings.seed))
    # A resample of one model many times has no coefficient.
    level = settings.level
    low, high = np.nanquantile(kendall(x, y, weights), [(1 - level) / 2, (1 + level) / 2]).tolist()
    if n < _FEW:
        low, high = -1.0, 1.0
    found = {"value": float(kendall(x, y, np.ones((1, n)))[0]), "low": low, "high": high}
    return {**found, "p_value": float(kendalltau(x, y).pvalue), "n": n, "note": ""}


def kendall(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """Return tau-b of weighted models: (R, n) weights -> (R,). Copies of a model are tied with each other."""
    sx, sy = np.sign(x[:, None] - x), np.sign(y[:, None] - y)

    def pairs(signs: FloatArray) -> FloatArray:
        return np.einsum("rn,rn->r", weights @ signs, weights)

    return np.clip(_ratio(pairs(sx * sy), pairs(np.abs(sx)), pairs(np.abs(sy))), -1, 1)


def _ratio(together: FloatArray, alone_x: FloatArray, alone_y: FloatArray) -> FloatArray:
    """Return together/√(alone_x · alone_y), NaN where all values are tied."""
    spread = np.sqrt(alone_x * alone_y)
    return np.divide(together, spread, out=np.full(len(spread), np.nan), where=spread > 0)


def resampling_weights(resamples: int, n: int, rng: np.random.Generator) -> FloatArray:
    """Draw how often each of n models occurs in each bootstrap resample: (R, n)."""
    drawn = rng.integers(n, size=(resamples, n)) + n * np.arange(resamples)[:, None]
    return np.bincount(drawn.reshape(-1), minlength=resamples * n).reshape(resamples, n).astype(np.float64)


def ranks_from_scores(scores: FloatArray) -> FloatArray:
    """Number models 1, 2, ... from the best score down; equal scores keep their order, if not all are equal."""
    if len(scores) and np.ptp(scores) == 0:
        return np.ones(len(scores))
    ranks = np.empty(len(scores))
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


@dataclass(frozen=True)
class ModelErrors:
    """The data of one model for correlations over models: n prompts with one correct response."""

    ids: npt.NDArray[np.str_]
    category: npt.NDArray[np.str_]
    right: FloatArray
    errors: Mapping[str, Measured]


def model_errors(whole: Part) -> ModelErrors | None:
    """Return the errors of one model, with the influence of each prompt on them."""
    part = whole.prompts("one")
    if part is None:
        return None
    ids = part.scores.item_id[part.starts]
    order = np.argsort(ids)
    errors = {name: found for name, measure in _MEASURES.items() if (found := measure(part)) is not None}
    return ModelErrors(
        ids[order],
        part.category[order],
        part.first_choice.y[order],
        {name: (value, influence[order]) for name, (value, influence) in errors.items()},
    )


def correlate_errors(
    models: Mapping[str, ModelErrors], families: Mapping[str, str], settings: Settings
) -> list[Row]:
    """Correlate the errors of models with their accuracy."""
    parts = _on_shared_prompts(models)
    names = list(parts)
    if not names or len(parts[names[0]].ids) < 2:
        return []
    category = parts[names[0]].category
    family = [families.get(name) or name.partition("/")[0] for name in names]
    _, clusters = np.unique(family, return_inverse=True)
    several = sorted(set(category.tolist()))
    targets = {"accuracy": np.ones(len(category), dtype=bool)}
    targets |= {name: category == name for name in several if len(several) > 1}
    rows = []
    for metric in _MEASURES:
        having = [name for name in names if metric in parts[name].errors]
        kept = np.array([name in having for name in names], dtype=bool)
        n_families = len(set(clusters[kept].tolist()))
        taus: list[Row] = [_NOTHING for _ in targets]
        if len(having) >= _FEWEST:
            taus = two_way_kendall(
                [parts[name].errors[metric] for name in having],
                [[_accuracy(parts[name].right, members) for name in having] for members in targets.values()],
                clusters[kept],
                settings,
            )
        for (target, members), tau in zip(targets.items(), taus, strict=True):
            counts = {"n": len(having), "families": n_families, "prompts": int(members.sum())}
            about = {"metric": metric, "target": target, "method": "kendall"}
            rows.append(about | tau | counts | {"note": _too_few(len(having), n_families)})
    return rows


def _too_few(n_models: int, n_families: int) -> str:
    """Say that there are too few models, or families; empty if there are enough."""
    if n_families >= FEW_MODELS:
        return ""
    what, n = ("families of models", n_families) if n_models >= FEW_MODELS else ("models", n_models)
    return f"too few {what} ({n}; at least {FEW_MODELS} are needed)"


def two_way_kendall(
    errors: Sequence[Measured],
    targets: Sequence[Sequence[Measured]],
    clusters: IntArray,
    settings: Settings,
) -> list[Row]:
    """Return Kendall's tau of minus the errors and each kind of score, from different prompts."""
    rng = np.random.default_rng(settings.seed)
    error, scores = _stacked(errors), [_stacked(one) for one in targets]
    n_models, n = error[1].shape
    whole = _split_taus(error, scores, np.ones((_SPLITS, n)), np.ones((_SPLITS, n_models)), rng)
    _, clusters = np.unique(clusters, return_inverse=True)
    parts = []
    for part in chunks(settings.resamples, n + n_models**2):
        size = part.stop - part.start
        models = resampling_weights(size, int(clusters.max()) + 1, rng)[:, clusters]
        parts.append(_split_taus(error, scores, resampling_weights(size, n, rng), models, rng))
    drawn = np.concatenate(parts, axis=1)
    values = whole.mean(axis=1).tolist()
    return [_interval(value, row, settings.level) for value, row in zip(values, drawn, strict=True)]


def _interval(value: float, drawn: FloatArray, level: float) -> Row:
    """The row of one kind of score, from the values of tau on resamples (R,)."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn) or not np.isfinite(value):
        return _NOTHING
    # Resampling prompts adds noise a second time and moves all draws towards 0, so only their spread is used.
    around = value + drawn - drawn.mean()
    low, high = np.quantile(around, [(1 - level) / 2, (1 + level) / 2]).tolist()
    beyond = min(int((around <= 0).sum()), int((around >= 0).sum()))
    return {
        "value": value,
        "low": max(low, -1.0),
        "high": min(high, 1.0),
        "p_value": min(1.0, 2 * (beyond + 1) / (len(around) + 1)),
    }


def _split_taus(
    error: Stacked,
    scores: Sequence[Stacked],
    prompts: FloatArray,
    models: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Tau (T, R) of errors on a random half of the prompts and scores on the other half, both ways."""
    size, n = prompts.shape
    i, j = np.triu_indices(models.shape[1], 1)
    drawn = models.T.astype(np.float32)
    pairs = drawn[i] * drawn[j]
    half = rng.permuted(np.broadcast_to(np.arange(n) < n // 2, (size, n)), axis=1)

    def signs(measured: Stacked, weights: FloatArray) -> SmallFloats:
        value, influence = measured
        own = influence.any(axis=0)  # prompts of other categories have no influence
        values = value[:, None] + influence[:, own] @ weights[:, own].T
        # Signs of float64 differences: in float32, close values would be tied.
        return np.sign(values[i] - values[j]).astype(np.float32)

    found = []
    for one in (half, ~half):
        first, second = (_rescaled(np.where(mask, prompts, 0.0)) for mask in (one, ~one))
        x = -signs(error, first)
        found.append([_taus(x, signs(score, second), pairs) for score in scores])
    return np.asarray(np.mean(found, axis=0))


def _taus(x: SmallFloats, y: SmallFloats, weights: SmallFloats) -> FloatArray:
    """Tau-b (R,) from the signs x and y of differences between models (P, R), for weighted pairs."""
    weighted = weights * x
    parts = ((weighted, y), (weighted, x), (weights * y, y))
    return _ratio(*(np.einsum("pr,pr->r", a, b).astype(np.float64) for a, b in parts))


def _rescaled(weights: FloatArray) -> FloatArray:
    """Weights (R, n) whose rows sum to n."""
    return weights * weights.shape[1] / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def _stacked(measured: Sequence[Measured]) -> Stacked:
    return np.array([value for value, _ in measured]), np.array([influence for _, influence in measured])


def _on_shared_prompts(models: Mapping[str, ModelErrors]) -> dict[str, ModelErrors]:
    """Return the models on the prompts that all of them have; errors there follow from the influences."""
    every = [set(one.ids.tolist()) for one in models.values()]
    shared = list(set.intersection(*every)) if every else []
    return {name: _restricted(one, np.isin(one.ids, shared)) for name, one in models.items()}


def _restricted(one: ModelErrors, kept: BoolArray) -> ModelErrors:
    """Return a model on some of its prompts."""
    if kept.all():
        return one
    more = len(kept) / max(int(kept.sum()), 1)
    errors = {}
    for name, (value, influence) in one.errors.items():
        rest = influence[kept] * more
        errors[name] = value + float(rest.sum()), rest - rest.sum() / max(len(rest), 1)
    return ModelErrors(one.ids[kept], one.category[kept], one.right[kept], errors)


def _accuracy(right: FloatArray, members: BoolArray) -> Measured:
    """Return the accuracy on some prompts."""
    value = float(right[members].mean())
    return value, np.where(members, right - value, 0.0) / int(members.sum())


def _log_temperature(part: Part) -> Measured | None:
    fit = part.scale.fit
    if fit.at_limit is not None:
        return None
    value = float(np.log(fit.temperature))
    return abs(value), np.sign(value) * part.scale.temperature_influence() / fit.temperature


_MEASURES: dict[str, Callable[[Part], Measured | None]] = {
    "ece": lambda part: (event_error(part.top_1), error_influence(part.top_1)),
    "lost_information": lambda part: (part.scale.lost, part.scale.lost_influence()),
    "abs_log_temperature": _log_temperature,
}

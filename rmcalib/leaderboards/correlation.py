"""Correlations of calibration errors with scores over models.

`correlation_rows` is the paper's version: errors and scores from the same prompts, and resampled models.

`correlate_errors` removes the effect of shared prompts. The models of a leaderboard answer the same prompts, so
the choice of prompts affects the errors and the accuracies of all of them. Here the error comes from one half of
the prompts and the accuracy from the other, averaged over many splits, and intervals resample both models and
prompts. Errors and accuracies on parts of the prompts follow from the influence of each prompt, so nothing is
fitted again.

A resample is a vector of weights that says how often each model, or prompt, was drawn, so a thousand resamples
take a few matrix products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, chunks
from rmcalib.calibration.errors import error_influence, event_error
from rmcalib.calibration.intervals import resampling_weights
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import Row
from rmcalib.metrics.views import Part

LEADERBOARD = "leaderboard"
"""The target that is the score over all categories."""
SAME_PROMPTS, SPLIT_HALVES = "same prompts", "split halves"
"""Where errors and scores come from: the column ``source`` of correlations."""
FEW_FAMILIES = 10
"""With fewer families of models, correlations have little meaning."""
Measured = tuple[float, FloatArray]  # a value, and the influence (n,) of each prompt on it
Stacked = tuple[FloatArray, FloatArray]  # values (M,) and influences (M, n)
SmallFloats = npt.NDArray[np.float32]
Weighed = tuple[SmallFloats, SmallFloats, FloatArray]  # see `_weighed`
_ERRORS = ("ece", "lost_information", "abs_log_temperature")
_FEWEST = 3  # models: two are always in order
_FEW = 6  # models: resamples of fewer hardly differ, so their interval would be far too narrow
_SPLITS = 100
_NOTHING = dict.fromkeys(("value", "low", "high", "p_value"))


def correlation_rows(
    metric: str, errors: FloatArray, targets: Mapping[str, FloatArray], settings: Settings
) -> list[Row]:
    """Correlate the errors of models (n,) with each kind of score (n,) by Kendall's tau-b.

    It is positive if models with small errors have large scores. Models without one of the two, NaN, are left out.
    """
    from scipy.stats import rankdata

    rows = []
    for target, scores in targets.items():
        kept = np.isfinite(errors) & np.isfinite(scores)
        worse = -scores[kept]
        if target == LEADERBOARD and len(np.unique(worse)) > 1:
            worse = rankdata(worse, method="ordinal")  # equal scores keep their order, as on a leaderboard
        about = {"metric": metric, "target": target, "source": SAME_PROMPTS, "method": "kendall"}
        rows.append(about | _kendall_row(errors[kept], worse, settings))
    return rows


def _kendall_row(x: FloatArray, y: FloatArray, settings: Settings) -> Row:
    """Tau-b of two numbers of each model, with a percentile bootstrap interval over the models."""
    from scipy.stats import kendalltau

    n = len(x)
    if n < _FEWEST:
        return {**_NOTHING, "n": n, "note": f"needs at least {_FEWEST} models"}
    if np.ptp(x) == 0 or np.ptp(y) == 0:
        return {**_NOTHING, "n": n, "note": "all models are equal"}
    weights = resampling_weights(settings.resamples, n, np.random.default_rng(settings.seed))
    pairs = _pair_weights(weights)
    drawn = _taus(_weighed(_signs(x[:, None]), pairs), _weighed(_signs(y[:, None]), pairs))
    # A resample of one model many times has no coefficient.
    limits = np.nanquantile(drawn, [(1 - settings.level) / 2, (1 + settings.level) / 2])
    low, high = limits.tolist() if n >= _FEW else (-1.0, 1.0)
    tested = kendalltau(x, y)
    value, p_value = float(np.clip(tested.statistic, -1, 1)), float(tested.pvalue)
    return {"value": value, "low": low, "high": high, "p_value": p_value, "n": n, "note": ""}


# Errors and accuracies from different prompts.


@dataclass(frozen=True)
class ModelErrors:
    """The data of one model for correlations over models: n prompts with one correct response, ordered by id."""

    category: npt.NDArray[np.str_]
    right: FloatArray
    errors: Mapping[str, Measured]


def model_errors(part: Part) -> ModelErrors:
    """Return the errors of one model, with the influence of each prompt on them."""
    order = np.argsort(part.scores.item_id[part.starts])
    scale, fit = part.scale, part.scale.fit
    errors = {
        "ece": (event_error(part.top_1), error_influence(part.top_1)[order]),
        "lost_information": (scale.lost, scale.lost_influence()[order]),
    }
    if fit.at_limit is None:
        log = float(np.log(fit.temperature))
        influence = np.sign(log) * scale.temperature_influence() / fit.temperature
        errors["abs_log_temperature"] = abs(log), influence[order]
    return ModelErrors(part.category[order], part.first_choice.y[order], errors)


def correlate_errors(
    models: Mapping[str, ModelErrors], families: Mapping[str, str], settings: Settings
) -> list[Row]:
    """Correlate the errors of models on the same prompts with their accuracy."""
    category = next((model.category for model in models.values()), np.array([]))
    if len(category) < 2:
        return []
    several = sorted(set(category.tolist()))
    targets = {"accuracy": np.ones(len(category), dtype=bool)}
    targets |= {name: category == name for name in several if len(several) > 1}
    # Errors that the same models have share all resamples.
    sharing: dict[tuple[str, ...], list[str]] = {}
    for metric in _ERRORS:
        having = tuple(name for name, model in models.items() if metric in model.errors)
        sharing.setdefault(having, []).append(metric)
    rows: list[Row] = []
    for having, metrics in sharing.items():
        different, family = np.unique([families[name] for name in having], return_inverse=True)
        few = f"too few families of models ({len(different)}; at least {FEW_FAMILIES} are needed)"
        taus: list[list[Row]] = [[_NOTHING for _ in targets] for _ in metrics]
        if len(having) >= _FEWEST:
            errors = [_stacked([models[name].errors[metric] for name in having]) for metric in metrics]
            scores = [
                _stacked([_accuracy(models[name].right, members) for name in having])
                for members in targets.values()
            ]
            taus = _two_way_kendall(errors, scores, family, settings)
        for metric, of_metric in zip(metrics, taus, strict=True):
            for (target, members), tau in zip(targets.items(), of_metric, strict=True):
                counts = {"n": len(having), "families": len(different), "prompts": int(members.sum())}
                about = {"metric": metric, "target": target, "source": SPLIT_HALVES, "method": "kendall"}
                rows.append(about | tau | counts | {"note": few if len(different) < FEW_FAMILIES else ""})
    return sorted(rows, key=lambda row: _ERRORS.index(row["metric"]))


def _two_way_kendall(
    errors: Sequence[Stacked], scores: Sequence[Stacked], family: IntArray, settings: Settings
) -> list[list[Row]]:
    """Return Kendall's tau of minus each kind of error and each kind of score, from different prompts."""
    rng = np.random.default_rng(settings.seed)
    n_models, n = errors[0][1].shape
    whole = _split_taus(errors, scores, np.ones((_SPLITS, n)), np.ones((_SPLITS, n_models)), rng)
    parts = []
    for part in chunks(settings.resamples, n + n_models**2):
        size = part.stop - part.start
        models = resampling_weights(size, int(family.max()) + 1, rng)[:, family]
        parts.append(_split_taus(errors, scores, resampling_weights(size, n, rng), models, rng))
    drawn = np.concatenate(parts, axis=2)
    return [
        [_interval(float(value), row, settings.level) for value, row in zip(values, resampled, strict=True)]
        for values, resampled in zip(whole.mean(axis=2), drawn, strict=True)
    ]


def _interval(value: float, drawn: FloatArray, level: float) -> Row:
    """The row of one kind of score, from the values of tau on resamples (R,)."""
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn) or not np.isfinite(value):
        return _NOTHING
    # Resampling prompts adds noise a second time and moves all draws towards 0, so only their spread is used.
    around = value + drawn - drawn.mean()
    low, high = np.quantile(around, [(1 - level) / 2, (1 + level) / 2]).tolist()
    beyond = min(int((around <= 0).sum()), int((around >= 0).sum()))
    p_value = min(1.0, 2 * (beyond + 1) / (len(around) + 1))
    return {"value": value, "low": max(low, -1.0), "high": min(high, 1.0), "p_value": p_value}


def _split_taus(
    errors: Sequence[Stacked],
    scores: Sequence[Stacked],
    prompts: FloatArray,
    models: FloatArray,
    rng: np.random.Generator,
) -> FloatArray:
    """Tau (E, T, R) of errors on a random half of the prompts and scores on the other half, both ways."""
    size, n = prompts.shape
    pairs = _pair_weights(models)
    half = rng.permuted(np.broadcast_to(np.arange(n) < n // 2, (size, n)), axis=1)

    def signs(measured: Stacked, weights: FloatArray) -> SmallFloats:
        value, influence = measured
        members = influence.any(axis=0)  # prompts of other categories have no influence
        return _signs(value[:, None] + influence[:, members] @ weights[:, members].T)

    taus = np.zeros((len(errors), len(scores), size))
    for mask in (half, ~half):
        first, second = (_rescaled(np.where(part, prompts, 0.0)) for part in (mask, ~mask))
        xs = [_weighed(-signs(error, first), pairs) for error in errors]
        for i, score in enumerate(scores):
            y = _weighed(signs(score, second), pairs)
            for k, x in enumerate(xs):
                taus[k, i] += _taus(x, y) / 2
    return taus


def _signs(values: FloatArray) -> SmallFloats:
    """Return the signs of the differences between models (M, R) of each pair: (P, R)."""
    i, j = np.triu_indices(len(values), 1)
    # Of float64 differences: in float32, close values would be tied.
    return np.sign(values[i] - values[j]).astype(np.float32)


def _pair_weights(weights: FloatArray) -> SmallFloats:
    """Return how often each pair of models is in resamples with these weights (R, M): (P, R)."""
    i, j = np.triu_indices(weights.shape[1], 1)
    drawn = weights.T.astype(np.float32)
    return drawn[i] * drawn[j]


def _weighed(signs: SmallFloats, weights: SmallFloats) -> Weighed:
    """Return signs (P, R), the same times the weights of pairs, and the sums (R,) of weights of those not 0."""
    weighted = weights * signs
    return signs, weighted, np.einsum("pr,pr->r", weighted, signs).astype(np.float64)


def _taus(x: Weighed, y: Weighed) -> FloatArray:
    """Tau-b (R,) from weighed signs of differences between models; NaN if all tie.

    Copies of a model are tied with each other, so they add nothing.
    """
    together = np.einsum("pr,pr->r", x[1], y[0]).astype(np.float64)
    spread = np.sqrt(x[2] * y[2])
    ratio = np.divide(together, spread, out=np.full(len(spread), np.nan), where=spread > 0)
    return np.clip(ratio, -1, 1)


def _rescaled(weights: FloatArray) -> FloatArray:
    """Weights (R, n) whose rows sum to n."""
    return weights * weights.shape[1] / np.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def _stacked(measured: Sequence[Measured]) -> Stacked:
    return np.array([value for value, _ in measured]), np.array([influence for _, influence in measured])


def _accuracy(right: FloatArray, members: BoolArray) -> Measured:
    """Return the accuracy on some prompts."""
    value = float(right[members].mean())
    return value, np.where(members, right - value, 0.0) / int(members.sum())

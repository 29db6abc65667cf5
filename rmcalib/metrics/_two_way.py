"""Does calibration go with accuracy? Correlations over models that shared prompts cannot feign.

The models of a leaderboard answer the same prompts, so a lucky draw of prompts moves the errors and the
accuracies of all of them together. Here the error comes from one half of the prompts and the accuracy from
the other, averaged over many splits, and intervals resample both models and prompts. Errors and accuracies on
parts of the prompts follow from the influence of each prompt, so nothing is fitted again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_integer
from rmcalib.calibration import ErrorOptions, binned_inference, check_level, resampling_weights
from rmcalib.metrics._catalogue import scale
from rmcalib.metrics._correlation import kendall
from rmcalib.metrics._forecasts import Forecasts, accuracy_of, forecast, select_prompts, top_1_prompts
from rmcalib.metrics._statistic import Settings
from rmcalib.scores import Scores

__all__ = ["correlate_models", "two_way_kendall"]

Row = dict[str, Any]
FEW_MODELS = 10
_SPLITS = 100

Measured = tuple[float, FloatArray]  # a value, and the influence (n,) of each prompt on it


def correlate_models(
    scores: Mapping[str, Scores],
    *,
    families: Mapping[str, str] | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Row]:
    """Correlate the ECE, lost information and |log T| of models with their accuracy.

    Kendall's tau is positive if better calibrated models are more accurate. The ECE depends on the scale of
    the rewards, and so does its correlation; lost information and |log T| say how much of it is scale.

    Parameters
    ----------
    scores : the scores of each model; the prompts with one correct response that all models have are used.
    families : the family of each model, such as its base model or its maker. Models of a family are resampled
        together. By default the part of the name before the slash.
    resamples, level, seed : of the intervals.

    Returns
    -------
    Rows of metric, target, method, value, low, high, p_value, n (models), families, prompts and note.

    Examples
    --------
    >>> def made(seed):
    ...     rewards = np.random.default_rng(seed).normal(size=(30, 2)) + [1.0, 0.0]
    ...     return Scores.from_columns({
    ...         "item_id": np.repeat(np.arange(30).astype(str), 2), "category": ["x"] * 60,
    ...         "response": [0, 1] * 30, "is_correct": [True, False] * 30, "reward": rewards.ravel()})
    >>> rows = correlate_models({f"org-{i}/rm": made(i) for i in range(4)}, resamples=50)
    >>> [row["metric"] for row in rows], rows[0]["note"]
    (['ece', 'lost_information', 'abs_log_temperature'], 'too few models: 4, and at least 10 are needed')
    """
    check_level(level)
    check_integer(resamples, "resamples", 1)
    parts = _common(scores)
    names = list(parts)
    family = [(families or {}).get(name) or name.partition("/")[0] for name in names]
    _, clusters = np.unique(family, return_inverse=True)
    prompts = len(next(iter(parts.values()))) if parts else 0
    rows = []
    for metric, measure in _MEASURES.items():
        found = {name: measured for name, part in parts.items() if (measured := measure(part)) is not None}
        kept = np.array([name in found for name in names], dtype=bool)
        about: Row = {"metric": metric, "target": "accuracy", "method": "kendall"}
        counts = {"n": len(found), "families": len(set(clusters[kept])), "prompts": prompts}
        tau: Row = dict.fromkeys(("value", "low", "high", "p_value"))
        if len(found) >= 3:
            tau = two_way_kendall(
                [found[name] for name in found],
                [_accuracy(parts[name]) for name in found],
                clusters=clusters[kept],
                resamples=resamples,
                level=level,
                seed=seed,
            )
        few = len(set(clusters[kept])) < FEW_MODELS
        note = f"too few models: {len(found)}, and at least {FEW_MODELS} are needed" if few else ""
        if few and len(found) >= FEW_MODELS:
            note = f"too few families of models: {counts['families']}, and at least {FEW_MODELS} are needed"
        rows.append(about | tau | counts | {"note": note})
    return rows


def two_way_kendall(
    errors: Sequence[Measured],
    scores: Sequence[Measured],
    *,
    clusters: IntArray,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Row:
    """Return Kendall's tau of minus the errors and the scores of models, taken from different prompts.

    Parameters
    ----------
    errors, scores : the value of each of M models, and the influence (n,) of each prompt on it.
    clusters : (M,) the family of each model.
    resamples, level, seed : of the interval.

    Returns
    -------
    A row of value (the mean over splits), low, high and p_value.
    """
    rng = np.random.default_rng(seed)
    (e, e_influence), (s, s_influence) = (_stacked(one) for one in (errors, scores))
    n = e_influence.shape[1]
    whole = [_split_tau(e, s, e_influence, s_influence, np.ones(n), rng) for _ in range(_SPLITS)]
    value = float(np.mean(whole))
    _, clusters = np.unique(clusters, return_inverse=True)
    n_clusters = int(clusters.max()) + 1
    draws = []
    for models, prompts in zip(
        resampling_weights(resamples, n_clusters, rng), resampling_weights(resamples, n, rng), strict=True
    ):
        weights = models[clusters]
        draws.append(_split_tau(e, s, e_influence, s_influence, prompts, rng, weights))
    drawn = np.array(draws)
    drawn = drawn[np.isfinite(drawn)]
    if not len(drawn) or not np.isfinite(value):
        return dict.fromkeys(("value", "low", "high", "p_value"))
    # Resampling prompts adds noise a second time, which pulls every draw towards 0: only their spread counts.
    low, high = np.quantile(drawn - drawn.mean(), [(1 - level) / 2, (1 + level) / 2])
    return {
        "value": value,
        "low": max(value + float(low), -1.0),
        "high": min(value + float(high), 1.0),
        "p_value": _normal_p(value, float(drawn.std())),
    }


def _split_tau(
    e: FloatArray,
    s: FloatArray,
    e_influence: FloatArray,
    s_influence: FloatArray,
    prompts: FloatArray,
    rng: np.random.Generator,
    models: FloatArray | None = None,
) -> float:
    """Tau of errors on a random half of the prompts and scores on the other half, both ways."""
    half = rng.permutation(len(prompts)) < len(prompts) // 2
    models = np.ones(len(e)) if models is None else models
    found = []
    for one in (half, ~half):
        first, second = (_rescaled(np.where(mask, prompts, 0.0)) for mask in (one, ~one))
        found.append(kendall(-(e + e_influence @ first), s + s_influence @ second, models[None])[0])
    return float(np.mean(found))


def _rescaled(weights: FloatArray) -> FloatArray:
    """Weights that sum to the number of prompts."""
    return weights * len(weights) / max(float(weights.sum()), 1.0)


def _stacked(measured: Sequence[Measured]) -> tuple[FloatArray, FloatArray]:
    return np.array([value for value, _ in measured]), np.array([influence for _, influence in measured])


def _normal_p(value: float, spread: float) -> float:
    from scipy.special import ndtr

    return float(2 * ndtr(-abs(value) / spread)) if spread > 0 else float(value == 0)


def _common(scores: Mapping[str, Scores]) -> dict[str, Forecasts]:
    """The forecasts of the prompts that all models have, in the same order."""
    parts: dict[str, tuple[Forecasts, list[str]]] = {}
    for name, one in scores.items():
        everything = forecast(one)
        part = select_prompts(everything, top_1_prompts(everything))
        parts[name] = part, one.item_id[one.offsets[:-1]][part.source].tolist()
    shared = set.intersection(*(set(ids) for _, ids in parts.values())) if parts else set()
    if len(shared) < 2:
        raise ValueError("scores: the models share fewer than two prompts with exactly one correct response")
    order = {name: i for i, name in enumerate(sorted(shared))}
    return {name: _ordered(part, [order.get(one, -1) for one in ids]) for name, (part, ids) in parts.items()}


def _ordered(part: Forecasts, place: list[int]) -> Forecasts:
    """The prompts with a place, in the order of their places."""
    at = np.array(place)
    wanted = np.flatnonzero(at >= 0)
    wanted = wanted[np.argsort(at[wanted], kind="stable")]
    rows = np.concatenate([np.arange(part.offsets[i], part.offsets[i + 1]) for i in wanted])
    return Forecasts(
        log_probability=part.log_probability[rows],
        is_correct=part.is_correct[rows],
        reward=part.reward[rows],
        length=part.length[rows],
        offsets=np.concatenate([[0], np.cumsum(part.sizes[wanted])]).astype(np.int64),
        source=part.source[wanted],
        category=part.category[wanted],
        one_answer=part.one_answer[wanted],
        scores=part.scores,
        whole=part.whole,
    )


def _accuracy(part: Forecasts) -> Measured:
    right = accuracy_of(part)
    return float(right.mean()), (right - right.mean()) / len(right)


def _ece(part: Forecasts) -> Measured | None:
    y = part.is_correct.astype(np.float64)
    options = ErrorOptions(bins=Settings().bins)
    found = binned_inference(part.probability, y, part.prompt, options, one_per_group=True, resamples=1)
    return found.value, found.influence


def _lost(part: Forecasts) -> Measured | None:
    found = scale(part, Settings().level)
    return found.lost.value, found.lost_influence


def _log_temperature(part: Forecasts) -> Measured | None:
    found = scale(part, Settings().level)
    if found.at_limit is not None:
        return None
    value = float(np.log(found.temperature.value))
    return abs(value), np.sign(value) * found.temperature_influence / found.temperature.value


_MEASURES: dict[str, Callable[[Forecasts], Measured | None]] = {
    "ece": _ece,
    "lost_information": _lost,
    "abs_log_temperature": _log_temperature,
}

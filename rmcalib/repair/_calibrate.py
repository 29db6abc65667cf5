"""Fit a temperature, measure the gain on held-out prompts, and refuse a temperature that does not help."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib import __version__
from rmcalib._util.arrays import FloatArray, IntArray, segment_log_softmax
from rmcalib._util.terminal import count
from rmcalib.calibration import (
    Interval,
    cross_fit,
    equal_temperatures,
    fit_top_1_temperature,
    mean_interval,
    temperature_interval,
)
from rmcalib.metrics import FEWEST, Forecasts, Settings, metric_rows, select_prompts
from rmcalib.repair._calibrator import Calibrator, labelled_forecasts
from rmcalib.runs import content_hash
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["METRIC_LABELS", "Calibration", "RefusedError", "calibrate", "held_out_temperatures"]

METRIC_LABELS = {
    "mean_confidence": "says",
    "accuracy": "right",
    "overconfidence": "gap",
    "lost_information": "lost information",
    "usable_information": "usable information",
    "nll": "log loss",
}
"""The metrics that are reported before and after calibration, with their labels in tables."""


_CLOSE = 1.25  # a scale within this factor of the right one is right


class RefusedError(ValueError):
    """Raised by `calibrate` if a temperature does not help; the message says why.

    ``reason``: "few" prompts; "uninformative" rewards, or "not shown" to be better than a uniform guess;
    "perfect" if every first choice is correct; "on scale", or "not shown to be off" where the prompts are too
    few to tell.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Calibration:
    """The result of :func:`calibrate`: a calibrator, and the gain that was measured on held-out prompts.

    Attributes
    ----------
    calibrator : Calibrator
        The calibrator, fitted on all prompts.
    rows : list[dict[str, Any]]
        Tidy rows (stage "before" or "after", category, metric, value, low, high, n). "after" is measured on
        held-out prompts: each fifth of them has the temperature that was fitted on the others.
    gain : tuple[float, float, float]
        How much lower the log loss is on held-out prompts, with its interval: (value, low, high).
    log_loss_uniform : float
        The log loss of a uniform guess.
    categories : list[dict[str, Any]]
        One row per category with its own temperature (category, temperature, low, high, n).
    p_equal : float, optional
        p-value of the likelihood-ratio test that all categories have the same temperature; None if there is
        only one category.
    warnings : list[str]
        Sentences to read before using the calibrator.

    Examples
    --------
    >>> rewards = np.tile([[4.0, 0.0], [4.0, 0.0], [0.0, 4.0]], (40, 1))
    >>> result = calibrate(Scores.from_arrays(rewards))
    >>> round(result.calibrator.temperature, 2)
    5.77
    >>> result.table[["stage", "metric", "value"]].round(2).values.tolist()[0]
    ['before', 'mean_confidence', 0.98]
    """

    calibrator: Calibrator
    rows: list[dict[str, Any]]
    gain: tuple[float, float, float]
    log_loss_uniform: float
    categories: list[dict[str, Any]]
    p_equal: float | None
    warnings: list[str]

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a pandas table."""
        import pandas

        return pandas.DataFrame(self.rows)


def calibrate(scores: Scores, *, level: float = 0.95, folds: int = 5, seed: int = 0) -> Calibration:
    """Fit the temperature of a judge's rewards, and measure the gain on held-out prompts.

    The temperature T minimises the log loss of softmax(rewards / T) over the prompts.

    Parameters
    ----------
    scores : Scores
        The rewards. Only prompts with exactly one correct response are used.
    level : float
        Confidence level of all intervals.
    folds : int
        Number of folds of the cross-fitting.
    seed : int
        Seed of the split into folds.

    Returns
    -------
    Calibration
        The calibrator is its attribute ``calibrator``.

    Raises
    ------
    RefusedError
        If the held-out log loss is not lower than without a temperature, or not lower than that of a uniform
        guess; or if there are fewer than 20 prompts.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> utilities = rng.gumbel(size=(400, 4)) + (np.arange(4) == 0)
    >>> noise = rng.gumbel(size=(400, 4))
    >>> correct = (utilities + noise).argmax(axis=1)
    >>> result = calibrate(Scores.from_arrays(3 * utilities, correct))
    >>> bool(2.5 < result.calibrator.temperature < 4), bool(result.gain[1] > 0)
    (True, True)
    """
    part = labelled_forecasts(scores)
    n = len(part)
    if n < FEWEST:
        raise RefusedError(
            "few",
            f"{count(n, 'prompt')} with one correct response; a temperature needs at least {FEWEST}",
        )
    fit = fit_top_1_temperature(part.reward, part.is_correct, part.prompt)
    _refuse_limits(fit.at_limit)
    held_out = held_out_temperatures(part, folds, seed)
    before, after = _losses(part, np.ones(n)), _losses(part, held_out)
    uniform = float(np.log(part.sizes).mean())
    gained = mean_interval(before - after, level=level)
    found = temperature_interval(part.reward, part.is_correct, part.prompt, level=level)
    _refuse_losses(before, after, np.log(part.sizes), found)
    categories, p_equal = _by_category(part, level)
    return Calibration(
        calibrator=Calibrator(
            temperature=fit.temperature,
            low=found.low,
            high=found.high,
            level=level,
            model=str(scores.manifest.get("model") or ""),
            fitted_on=_about(scores, part),
            versions=_versions(),
        ),
        rows=_rows(scores, part, held_out, Settings(level=level, seed=seed)),
        gain=(gained.value, gained.low, gained.high),
        log_loss_uniform=uniform,
        categories=categories,
        p_equal=p_equal,
        warnings=_warnings(gained.low, categories, p_equal, level),
    )


def _refuse_limits(at_limit: str | None) -> None:
    if at_limit == "hot":
        raise RefusedError(
            "uninformative",
            "no temperature helps: a uniform guess is at least as good as these rewards, so they do not say "
            "which response is correct",
        )
    if at_limit == "cold":
        raise RefusedError(
            "perfect",
            "every first choice is correct, so a lower temperature is always better. Use more difficult "
            "prompts",
        )


def _refuse_losses(before: FloatArray, after: FloatArray, uniform: FloatArray, best: Interval) -> None:
    """Refuse a temperature that does not lower the held-out log losses (n,) of the prompts."""
    told, n = float(after.mean()), count(len(after), "prompt")
    if told >= uniform.mean():
        worse = mean_interval(after - uniform, level=best.level).low > 0
        raise RefusedError(
            "uninformative" if worse else "not shown",
            f"on held-out prompts, the log loss with a temperature is {told:.4f}, and that of a uniform "
            f"guess is {uniform.mean():.4f}: "
            + (
                "there is nothing to calibrate" if worse else f"{n} do not show that the rewards say anything"
            ),
        )
    if told >= before.mean():
        known = best.low >= 1 / _CLOSE and best.high <= _CLOSE
        limits = f"the best temperature is between {best.low:.3g} and {best.high:.3g}"
        raise RefusedError(
            "on scale" if known else "not shown to be off",
            f"on held-out prompts, the log loss is {told:.4f} with a temperature and {before.mean():.4f} "
            "without: the rewards are "
            + (
                f"on the right scale already ({limits})"
                if known
                else f"not shown to be off by {n} ({limits})"
            ),
        )


def held_out_temperatures(part: Forecasts, folds: int, seed: int) -> FloatArray:
    """Return the temperature of each prompt (n,), fitted on the other folds."""
    n = len(part)

    def fit(index: IntArray) -> float:
        kept = np.zeros(n, dtype=bool)
        kept[index] = True
        chosen = select_prompts(part, kept)
        return fit_top_1_temperature(chosen.reward, chosen.is_correct, chosen.prompt).temperature

    temperatures: FloatArray = cross_fit(
        n, fit, lambda found, test: np.full(len(test), found), folds=min(folds, n), rng=seed
    )
    return temperatures


def _losses(part: Forecasts, temperatures: FloatArray) -> FloatArray:
    """Return −log P(correct) of each prompt (n,) with rewards divided by the prompt's temperature."""
    logs = segment_log_softmax(part.reward / np.repeat(temperatures, part.sizes), part.sizes)
    return -logs[part.is_correct]


def _rows(
    scores: Scores, part: Forecasts, temperatures: FloatArray, settings: Settings
) -> list[dict[str, Any]]:
    kept = np.zeros(scores.decided().n_items, dtype=bool)
    kept[part.source] = True
    chosen = scores.decided().take(kept)
    held_out = replace(chosen, reward=chosen.reward / np.repeat(temperatures, part.sizes))
    stages = {"before": chosen, "after": held_out}
    return [
        {"stage": stage, **{key: row[key] for key in ("category", "metric", "value", "low", "high", "n")}}
        for stage, of in stages.items()
        for row in metric_rows(of, model="", benchmark="", metrics=tuple(METRIC_LABELS), settings=settings)
    ]


def _by_category(part: Forecasts, level: float) -> tuple[list[dict[str, Any]], float | None]:
    """Return each category's own temperature, and the p-value of the test that they are equal."""
    rows: list[dict[str, Any]] = []
    sets = []
    for name in dict.fromkeys(part.category.tolist()):
        own = select_prompts(part, part.category == name)
        if len(own) < FEWEST:
            continue
        found = temperature_interval(own.reward, own.is_correct, own.prompt, level=level)
        limits = {"temperature": found.value, "low": found.low, "high": found.high}
        rows.append({"category": name, **limits, "n": len(own)})
        sets.append((own.reward, own.is_correct, own.prompt))
    return rows, equal_temperatures(sets).p_value if len(sets) > 1 else None


def _warnings(
    gain_low: float, categories: Sequence[dict[str, Any]], p_equal: float | None, level: float
) -> list[str]:
    warnings = []
    if gain_low <= 0:
        warnings.append("The gain in log loss may be due to chance: its interval includes 0.")
    if p_equal is not None and p_equal < 1 - level:
        ends = sorted(categories, key=lambda row: float(row["temperature"]))
        shown = [f"{row['category']}: {_temperature_text(row['temperature'])}" for row in (ends[0], ends[-1])]
        warnings.append(
            f"The categories need different temperatures (p = {p_equal:.2g}; {', '.join(shown)}). One "
            "temperature is right only for prompts with the same mixture of categories."
        )
    return warnings


def _temperature_text(temperature: float) -> str:
    return f"{temperature:.3g}" if np.isfinite(temperature) else "∞"


def _about(scores: Scores, part: Forecasts) -> dict[str, Any]:
    manifest = scores.manifest
    names, counts = np.unique(part.category, return_counts=True)
    return {
        "benchmark": manifest.get("benchmark"),
        "revision": manifest.get("benchmark_revision"),
        "n": len(part),
        "categories": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "scores": content_hash(scores),
        "model_revision": manifest.get("model_revision"),
        "judge": manifest.get("kind"),
    }


def _versions() -> dict[str, str]:
    others = {name: importlib.metadata.version(name) for name in ("numpy", "scipy")}
    return {"rmcalib": __version__, **others}

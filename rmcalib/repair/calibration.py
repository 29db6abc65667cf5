"""Fit a temperature, measure the gain on held-out prompts, and refuse a temperature that does not help."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rmcalib import __version__
from rmcalib._util.arrays import FloatArray, IntArray, check_choice
from rmcalib._util.display import count
from rmcalib.calibration import equal_temperatures, mean_interval
from rmcalib.calibration.clusters import too_few_clusters
from rmcalib.calibration.intervals import check_level
from rmcalib.metrics.catalogue import chosen_metrics
from rmcalib.metrics.measures import Settings, log_losses
from rmcalib.metrics.results import Shown
from rmcalib.metrics.table import metric_rows, temperature_rows
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.repair.calibrator import (
    MOST_MARKS,
    Calibrator,
    fit_pointwise,
    labelled_part,
    prompt_marks,
    quantiles,
    says_nothing,
)
from rmcalib.scores import Scores, load_scores

View = Literal["top_1", "pointwise"]
METRICS: dict[View, tuple[str, ...]] = {
    "top_1": (
        "mean_confidence",
        "accuracy",
        "overconfidence",
        "lost_information",
        "usable_information",
        "nll",
    ),
    "pointwise": ("pointwise_confidence", "pointwise_accuracy", "pointwise_gap", "pointwise_log_loss"),
}
"""The metrics that are reported before and after calibration."""
_CLOSE = 1.25  # a scale within this factor of the right one is right


class RefusedError(ValueError):
    """Raised by `calibrate` if a temperature does not help; the message says why.

    ``reason``: "few" prompts; "uninformative" rewards, or "not shown" to be better than a guess; "perfect" if
    every first choice is correct; "on scale", or "not shown to be off" where the prompts are too few to tell.
    """

    def __init__(self, reason: str, message: str) -> None:
        """Keep the reason, one of those above."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, repr=False)
class Calibration(Shown):
    """The result of `calibrate`: a calibrator, and the gain that was measured on held-out prompts.

    Attributes
    ----------
    calibrator : Calibrator
        The calibrator, fitted on all prompts.
    view : {"top_1", "pointwise"}
        Whether one response of a prompt is the best, or each one is correct or not.
    rows : list of dict
        Tidy rows (stage "before" or "after", category, metric, value, low, high, n, note). "after" is measured on
        held-out prompts: each fifth of them has the temperature that was fitted on the others.
    gain : tuple of float
        How much lower the log loss is on held-out prompts, with its interval: (value, low, high).
    categories : list of dict
        One row per category with its own temperature (category, temperature, low, high, n).
    p_equal : float, optional
        p-value of the test that all categories have the same temperature; None if it was not tested: for
        fewer than two categories, with clusters, and for single responses.
    n, n_clusters : int
        Numbers of prompts, and of clusters of prompts.
    """

    calibrator: Calibrator
    view: View
    rows: list[dict[str, Any]]
    gain: tuple[float, float, float]
    categories: list[dict[str, Any]]
    p_equal: float | None
    n: int
    n_clusters: int

    @property
    def temperature(self) -> float:
        """The temperature that rewards are divided by."""
        return self.calibrator.temperature

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.calibrations import calibration_document

        return calibration_document(self)

    def __repr__(self) -> str:
        """Return the temperature with its interval."""
        fit = self.calibrator
        b = "" if fit.threshold is None else f", b = {fit.threshold:.3g}"
        return f"Calibration(T = {fit.temperature:.3g} [{fit.low:.3g}, {fit.high:.3g}]{b}, {self.n} prompts)"


def calibrate(scores: Any, *, view: View | None = None, level: float = 0.95, seed: int = 0) -> Calibration:
    """Fit the temperature of a judge's rewards, and measure the gain on held-out prompts.

    The temperature T minimises the log loss of softmax(rewards/T) over the prompts with exactly one correct
    response. Where responses are labelled one by one, such as samples of a policy, T and b minimise the log
    loss of P(correct) = σ((reward − b)/T) over the responses. Prompts of a cluster stay in one fold.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards of labelled prompts: a file, a run folder or a table; see `load_scores`.
    view : {"top_1", "pointwise"}, optional
        Which of the two; default the one that the labels mean (`Scores.labels`).
    level : float
        Confidence level of all intervals.
    seed : int
        Seed of the split into five folds.

    Returns
    -------
    Calibration
        ``temperature``, ``calibrator``, ``table``, ...

    Raises
    ------
    RefusedError
        If the interval of the temperature holds 1; if the held-out log loss is not lower than without a
        temperature, or not lower than that of a guess; if there are fewer than 20 prompts, or too few clusters.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> utilities = rng.gumbel(size=(400, 4)) + (np.arange(4) == 0)
    >>> correct = (utilities + rng.gumbel(size=(400, 4))).argmax(axis=1)
    >>> result = calibrate(Scores.from_arrays(3 * utilities, correct))
    >>> bool(2.5 < result.temperature < 4), bool(result.gain[1] > 0)
    (True, True)
    """
    check_level(level)
    given = load_scores(scores)
    if (reason := given.refusal("fit")) is not None:
        raise ValueError(f"{given.name}: no temperature can be fitted: {reason}")
    if view is None:
        view = given.view
    check_choice(view, "view", tuple(METRICS))
    if view == "top_1":
        given = given if given.view == "top_1" else given.labelled_as("best")
    part = labelled_part(given, "one" if view == "top_1" else "labelled")
    if len(part) < FEWEST:
        what = "one correct response" if view == "top_1" else "labels"
        raise RefusedError(
            "few", f"{count(len(part), 'prompt')} with {what}; a temperature needs at least {FEWEST}"
        )
    part = replace(part, seed=seed)
    if too_few_clusters(part.cluster):
        raise RefusedError(
            "few",
            "there are too few clusters of prompts, or one is too large, to fit a temperature",
        )
    fit = (_top_1 if view == "top_1" else _pointwise)(part, level)
    _refuse(fit)
    gained = mean_interval(fit.before - fit.after, clusters=fit.cluster, level=level)
    categories, p_equal = _by_category(part, level) if view == "top_1" else ([], None)
    moved = whole_part(replace(part.scores, reward=fit.held_out), seed=seed)
    settings, metrics = Settings(level=level, seed=seed), chosen_metrics(METRICS[view])
    return Calibration(
        calibrator=documented(fit.calibrator, given, part),
        view=view,
        rows=[
            {"stage": stage, **row}
            for stage, of in (("before", part), ("after", moved))
            for row in metric_rows(of, metrics, settings)
        ],
        gain=(gained.value, gained.low, gained.high),
        categories=categories,
        p_equal=p_equal,
        n=len(part),
        n_clusters=part.n_clusters,
    )


@dataclass(frozen=True)
class _Fit:
    """A fitted calibrator, and log losses (n,) before it, after it on held-out prompts, and of a guess.

    ``held_out`` are the rewards with held-out calibration, ``cluster`` is that of the losses, and ``off_scale`` says
    whether the rewards are on the wrong scale as they are.
    """

    calibrator: Calibrator
    held_out: FloatArray
    before: FloatArray
    after: FloatArray
    guess: FloatArray
    cluster: IntArray | None
    off_scale: bool


def _top_1(part: Part, level: float) -> _Fit:
    fit = part.scale.fit
    if fit.at_limit == "hot":
        raise RefusedError(
            "uninformative", "no temperature helps: a uniform guess is at least as good as these rewards"
        )
    if fit.at_limit == "cold":
        raise RefusedError(
            "perfect",
            "every first choice is correct, so a lower temperature is always better. Use harder prompts",
        )
    held_out = part.at_temperature
    best = part.scale.temperature_interval(level)
    weight = 1.0 if part.weight is None else part.weight
    before, after = (-at.log_p[at.is_correct] * weight for at in (part, held_out))
    calibrator = Calibrator(fit.temperature, best.low, best.high, level)
    rewards = part.reward / np.repeat(held_out.pl.temperature, part.sizes)
    off_scale = not best.low <= 1 <= best.high
    return _Fit(calibrator, rewards, before, after, np.log(part.sizes) * weight, part.cluster, off_scale)


def _pointwise(part: Part, level: float) -> _Fit:
    stated = part.pointwise
    calibrator = None if np.ptp(stated.y) == 0 else fit_pointwise(part, level)
    if calibrator is None or says_nothing(calibrator.temperature, part.reward):
        raise RefusedError(
            "uninformative",
            "no temperature helps: correct responses do not have larger rewards than wrong ones",
        )
    held_out, rate = part.pointwise_fitted, stated.y.mean()
    base_rate = replace(stated, logit=np.full(len(stated), np.log(rate / (1 - rate))))
    before, after, guess = (log_losses(events) for events in (stated, held_out, base_rate))
    rewards = part.reward.copy()
    rewards[~np.isnan(part.label)] = held_out.logit
    wide = fit_pointwise(part, (1 + level) / 2)  # two numbers are looked at, T and b
    assert wide.threshold_low is not None
    assert wide.threshold_high is not None
    off_scale = not (wide.low <= 1 <= wide.high and wide.threshold_low <= 0 <= wide.threshold_high)
    return _Fit(calibrator, rewards, before, after, guess, stated.cluster, off_scale)


def _refuse(fit: _Fit) -> None:
    """Refuse a temperature that does not lower the held-out log losses, or that chance can explain."""
    best = fit.calibrator
    stated, held_out, guessed = (float(values.mean()) for values in (fit.before, fit.after, fit.guess))
    losses = f"held-out log loss: {held_out:.4f} with a temperature, {stated:.4f} without, {guessed:.4f} of a guess"
    if held_out >= guessed:
        worse = mean_interval(fit.after - fit.guess, clusters=fit.cluster, level=best.level).low > 0
        why = (
            "there is nothing to calibrate"
            if worse
            else "on these prompts the rewards are not significantly better than a guess"
        )
        raise RefusedError("uninformative" if worse else "not shown", f"{why}; {losses}")
    if held_out >= stated or not fit.off_scale:
        is_right = best.low >= 1 / _CLOSE and best.high <= _CLOSE
        why = "on the right scale already" if is_right else "not significantly off on these prompts"
        raise RefusedError(
            "on scale" if is_right else "not shown to be off",
            f"the rewards are {why}: the best temperature is between {best.low:.3g} and {best.high:.3g}; {losses}",
        )


def _by_category(part: Part, level: float) -> tuple[list[dict[str, Any]], float | None]:
    """Return each category's own temperature, and the p-value of the test that they are equal."""
    parts = {name: part.take(part.category == name) for name in part.categories}
    parts = {name: members for name, members in parts.items() if len(members) >= FEWEST}
    rows = temperature_rows("category", parts, level)
    if len(parts) < 2:
        return rows, None
    return rows, equal_temperatures([members.scale for members in parts.values()]).p_value


def documented(calibrator: Calibrator, scores: Scores, part: Part) -> Calibrator:
    """Return a calibrator with a record of its fit: these scores, or the ``part`` of them that was used."""
    manifest = scores.manifest
    names, counts = np.unique(part.category, return_counts=True)
    fitted_on = {
        "benchmark": manifest.get("benchmark"),
        "revision": manifest.get("benchmark_revision"),
        "n": len(part),
        "clusters": part.n_clusters,
        "categories": dict(zip(names.tolist(), counts.tolist(), strict=True)),
        "scores": scores.content_hash(),
        "model_revision": manifest.get("model_revision"),
        "judge": manifest.get("kind"),
    }
    versions = {name: importlib.metadata.version(name) for name in ("numpy", "scipy")}
    return replace(
        calibrator,
        model=str(manifest.get("model") or ""),
        fitted_on=fitted_on,
        reference=quantiles(part.reward),
        prompts="".join(sorted(prompt_marks(part))[:MOST_MARKS]),
        versions={"rmcalib": __version__, **versions},
    )

"""Metrics of the answers of a language model that judges: calibration of yes and no, cost of few votes."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import Interval, ece_interval, mean_interval
from rmcalib.metrics.measures import Settings
from rmcalib.scores import Scores


def answer_rows(scores: Scores, settings: Settings | None = None) -> list[dict[str, Any]]:
    """Measure the answers that a judge gives in addition to its rewards."""
    settings = settings or Settings()
    prompt = np.repeat(np.arange(scores.n_items), np.diff(scores.offsets))
    y = scores.is_correct.astype(np.float64)
    return [*_yes_rows(scores, y, prompt, settings), *_vote_rows(scores, y, prompt, settings)]


def _yes_rows(scores: Scores, y: FloatArray, prompt: IntArray, settings: Settings) -> list[dict[str, Any]]:
    known = np.isfinite(scores.details.get("p_yes", np.full(len(y), np.nan)))
    if not known.any():
        return []
    p, y, prompt = np.clip(scores.details["p_yes"][known], 0, 1), y[known], prompt[known]
    ece = ece_interval(
        p,
        y,
        groups=prompt,
        draw="independent",
        clusters=prompt,
        bins=settings.bins,
        resamples=settings.resamples,
        level=settings.level,
        rng=settings.seed,
    )
    gap = mean_interval(p - y, clusters=prompt, level=settings.level)
    brier = mean_interval((p - y) ** 2, clusters=prompt, level=settings.level)
    n = len(p)
    return [
        _row("yes_gap", gap, n, "mean P(yes) minus the fraction of correct responses"),
        _row("yes_ece", ece, n, "calibration error of P(yes), over responses"),
        _row("yes_brier", brier, n, "Brier score of P(yes), over responses"),
    ]


def _vote_rows(scores: Scores, y: FloatArray, prompt: IntArray, settings: Settings) -> list[dict[str, Any]]:
    votes, counts = scores.details.get("votes"), scores.details.get("vote_count")
    if votes is None or counts is None:
        return []
    rows = []
    read = counts >= 2  # False for NaN
    if read.any():
        v, n = votes[read], counts[read]
        square = (v / n - y[read]) ** 2
        fair = square - v * (n - v) / (n**2 * (n - 1))
        meaning = "Brier score of the fraction of votes, over responses"
        for name, values, text in (
            ("votes_brier", square, meaning),
            ("votes_fair_brier", fair, f"{meaning}, expected for infinitely many votes"),
        ):
            interval = mean_interval(values, clusters=prompt[read], level=settings.level)
            rows.append(_row(name, interval, len(v), text))
    low, high = scores.details.get("low"), scores.details.get("high")
    if low is not None and high is not None:
        top = np.maximum.reduceat(scores.reward, scores.offsets[:-1])[prompt]
        first = np.flatnonzero(scores.reward == top)
        _, one_each = np.unique(prompt[first], return_index=True)
        width = (high - low)[first[one_each]]
        width = width[np.isfinite(width)]
        if len(width):
            interval = mean_interval(width, level=settings.level)
            meaning = "mean width of the 95% interval of the first choice's fraction of votes"
            rows.append(_row("votes_width", interval, len(width), meaning))
    return rows


def _row(name: str, interval: Interval, n: int, meaning: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": interval.value,
        "low": interval.low,
        "high": interval.high,
        "n": n,
        "meaning": meaning,
    }

"""A panel where each response is correct or not: P(correct) = σ(Σ_j w_j x_j + c).

x_j = (r_j − b_j)/T_j are the log-odds of judge j alone, fitted on the labels; the weights and c are a logistic
regression on them. Everything is fitted on the prompts of some folds and measured on another one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration.maps import fit_logistic, fit_sigmoid
from rmcalib.calibration.temperature import cross_fit
from rmcalib.metrics.views import shares_of_largest

BASE_RATE, BEST = "base rate", "best member"
HOT = 1e9  # a temperature above this many spreads of the rewards says nothing


@dataclass(frozen=True)
class ResponseFit:
    """What was fitted on some prompts: each judge's log-odds x = slope · r + shift, and panels of them.

    ``slope`` and ``shift`` are (J,), with slope 0 for a judge whose rewards do not rise with the labels. ``panels``
    has the weights of the x and the intercept of each panel: (J + 1,).
    """

    slope: FloatArray
    shift: FloatArray
    panels: dict[str, FloatArray]

    def alone(self, rewards: FloatArray) -> FloatArray:
        """Return the log-odds (J, N) of each judge alone."""
        return self.slope[:, None] * rewards + self.shift[:, None]

    def logits(self, panel: str, rewards: FloatArray) -> FloatArray:
        """Return the log-odds (N,) of a panel for rewards (J, N)."""
        weights = self.panels[panel]
        return np.asarray(weights[:-1] @ self.alone(rewards) + weights[-1])


def fit_responses(rewards: FloatArray, labels: FloatArray) -> ResponseFit:
    """Fit each judge alone, then the weights of the panel and of each panel without one judge.

    ``rewards`` (J, N) and ``labels`` (N,) are of labelled responses.
    """
    n_judges = len(rewards)
    slope, shift = np.zeros(n_judges), np.zeros(n_judges)
    rate = (labels.sum() + 1) / (len(labels) + 2)
    for j, row in enumerate(rewards):
        judge = fit_sigmoid(row, labels)
        if judge.temperature < HOT * (float(row.std()) or 1.0):
            slope[j], shift[j] = 1 / judge.temperature, -judge.threshold / judge.temperature
        else:
            shift[j] = np.log(rate / (1 - rate))
    fit = ResponseFit(slope, shift, {})
    x, informed = fit.alone(rewards), slope > 0
    best = int(np.argmin([response_losses(row, labels).mean() for row in x]))
    fit.panels[BASE_RATE] = np.append(np.zeros(n_judges), np.log(rate / (1 - rate)))
    fit.panels[BEST] = np.append(np.eye(n_judges)[best], 0.0)
    fit.panels["mean"] = np.append(np.full(n_judges, 1 / n_judges), 0.0)
    fit.panels["weights"] = _weights(x, labels, informed)
    for j in range(n_judges):
        fit.panels[f"without {j}"] = _weights(x, labels, informed & (np.arange(n_judges) != j))
    return fit


def _weights(x: FloatArray, labels: FloatArray, used: BoolArray) -> FloatArray:
    """Return the weights of the log-odds x (J, N) and the intercept: (J + 1,); 0 for judges that are not used."""
    weights = np.zeros(len(x) + 1)
    weights[np.append(used, True)] = fit_logistic(x[used].T, labels)
    return weights


def response_losses(logits: FloatArray, labels: FloatArray) -> FloatArray:
    """Return the log loss of each response (N,) for log-odds and labels (N,)."""
    return np.logaddexp(0.0, logits) - labels * logits


def first_right(logits: FloatArray, labels: FloatArray, sizes: IntArray) -> FloatArray:
    """Return the label of each prompt's first choice (n,), the mean over ties; NaN if one of them has none."""
    share = shares_of_largest(logits, sizes)
    starts = np.cumsum(sizes) - sizes
    return np.asarray(np.add.reduceat(np.where(share > 0, labels, 0.0) * share, starts))


def held_out_responses(
    rewards: FloatArray, labels: FloatArray, sizes: IntArray, cluster: IntArray | None, seed: int
) -> tuple[list[ResponseFit], IntArray]:
    """Return one fit per fold, on the labelled responses to prompts of the others, and each prompt's fold (n,)."""
    prompt, labelled = np.repeat(np.arange(len(sizes)), sizes), ~np.isnan(labels)
    fits: list[ResponseFit] = []

    def fit(train: IntArray) -> float:
        rows = labelled & np.isin(prompt, train)
        fits.append(fit_responses(rewards[:, rows], labels[rows]))
        return len(fits) - 1.0

    number = cross_fit(len(sizes), fit, lambda which, _: np.array(which), groups=cluster, rng=seed)
    return fits, number.astype(np.int64)

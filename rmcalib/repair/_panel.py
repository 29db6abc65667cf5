"""Fit a panel of judges on arrays: a temperature for each, and the weights of their log-probabilities.

Rows are the responses of all prompts, in the order of the prompts. ``sizes`` (n,) holds the number of
responses of each prompt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, segment_log_softmax
from rmcalib.calibration import cross_fit, fit_top_1_temperature

__all__ = ["PanelData", "PanelFit", "cross_fitted", "fit_panel", "fit_weights", "losses", "right"]

MOST_WEIGHT = 10.0
"""The largest weight of a judge."""
_COLDEST = 100.0  # the largest inverse temperature, relative to the spread of the rewards


@dataclass(frozen=True)
class PanelData:
    """The rewards of J judges for the same N responses, and which ones are correct.

    Attributes
    ----------
    rewards : float array (J, N)
        Rewards.
    correct : bool array (N,)
        True for the one correct response of each prompt.
    sizes : int array (n,)
        Number of responses of each prompt.
    """

    rewards: FloatArray
    correct: BoolArray
    sizes: IntArray

    @property
    def starts(self) -> IntArray:
        """The row at which each prompt starts: (n,)."""
        starts: IntArray = np.cumsum(self.sizes) - self.sizes
        return starts

    def take(self, prompts: IntArray) -> PanelData:
        """Return the data of some prompts, given by number."""
        kept = np.zeros(len(self.sizes), dtype=bool)
        kept[prompts] = True
        rows = np.repeat(kept, self.sizes)
        return PanelData(self.rewards[:, rows], self.correct[rows], self.sizes[kept])

    def logs(self, inverse: FloatArray) -> FloatArray:
        """Return each judge's log-probabilities (J, N) at inverse temperatures (J,) or (J, n)."""
        each = inverse[:, None] if inverse.ndim == 1 else np.repeat(inverse, self.sizes, axis=1)
        return np.stack([segment_log_softmax(row, self.sizes) for row in self.rewards * each])


@dataclass(frozen=True)
class PanelFit:
    """Parameters that were fitted on the prompts of some folds, or on all prompts.

    Attributes
    ----------
    inverse : float array (J,)
        1/T of each judge; 0 if a uniform guess is as good as its rewards.
    weights : float array (J,)
        Weights of the judges' log-probabilities in the panel.
    without : float array (J, J)
        Row j holds the weights of the panel without judge j, whose own weight is 0.
    best : int
        Number of the judge with the smallest log loss at its own temperature.
    """

    inverse: FloatArray
    weights: FloatArray
    without: FloatArray
    best: int


def fit_panel(data: PanelData) -> PanelFit:
    """Fit the temperatures, then the weights of the whole panel and of each panel without one judge."""
    inverse = np.array([_inverse_temperature(row, data) for row in data.rewards])
    logs = data.logs(inverse)
    informed = inverse > 0
    n_judges = len(inverse)
    without = np.stack(
        [fit_weights(logs, data, informed & (np.arange(n_judges) != j)) for j in range(n_judges)]
    )
    means = [losses(row, data).mean() for row in logs]
    return PanelFit(inverse, fit_weights(logs, data, informed), without, int(np.argmin(means)))


def fit_weights(logs: FloatArray, data: PanelData, used: BoolArray) -> FloatArray:
    """Return the weights w ≥ 0 (J,) for which softmax(Σ_j w_j log p_j) has the smallest log loss.

    ``logs`` (J, N) are log-probabilities; judges that are not ``used`` (J,) have weight 0. The problem is
    convex.

    >>> rewards, correct = np.array([[2.0, 0.0, 2.0, 0.0, 0.0, 2.0]]), np.array([True, False] * 3)
    >>> data = PanelData(rewards, correct, np.array([2, 2, 2]))
    >>> fit_weights(data.logs(np.ones(1)), data, np.ones(1, dtype=bool)).round(3)
    array([0.347])
    """
    from scipy.optimize import minimize

    weights = np.zeros(len(logs))
    if not used.any():
        return weights
    part, starts, n = logs[used], data.starts, len(data.sizes)
    won = part[:, data.correct].sum(axis=1)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        log_p = segment_log_softmax(w @ part, data.sizes)
        expected = np.add.reduceat(np.exp(log_p) * part, starts, axis=1).sum(axis=1)
        return float(-log_p[data.correct].mean()), (expected - won) / n

    found = minimize(
        loss,
        np.full(len(part), 1 / len(part)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, MOST_WEIGHT)] * len(part),
        options={"ftol": 1e-12, "gtol": 1e-8},
    )
    weights[used] = found.x
    return weights


def cross_fitted(data: PanelData, *, folds: int, seed: int) -> list[PanelFit]:
    """Return one fit per prompt (n,), each fitted on the prompts of the other folds."""
    fits: list[PanelFit] = []

    def fit(train: IntArray) -> int:
        fits.append(fit_panel(data.take(train)))
        return len(fits) - 1

    n = len(data.sizes)
    number = cross_fit(n, fit, lambda which, test: np.full(len(test), float(which)), folds=folds, rng=seed)
    return [fits[int(which)] for which in number]


def losses(logs: FloatArray, data: PanelData) -> FloatArray:
    """Return −log P(correct) of each prompt (n,) for log-probabilities or logits (N,)."""
    return -segment_log_softmax(logs, data.sizes)[data.correct]


def right(logits: FloatArray, data: PanelData) -> FloatArray:
    """Return 1 if the correct response has the largest logit, 1/t if t responses share it, else 0: (n,)."""
    top = np.repeat(np.maximum.reduceat(logits, data.starts), data.sizes)
    shared = np.add.reduceat(logits == top, data.starts, dtype=np.float64)
    return (logits == top)[data.correct] / shared


def _inverse_temperature(rewards: FloatArray, data: PanelData) -> float:
    prompts = np.repeat(np.arange(len(data.sizes)), data.sizes)
    found = fit_top_1_temperature(rewards, data.correct, prompts)
    if found.at_limit == "hot":
        return 0.0
    means = np.add.reduceat(rewards, data.starts) / data.sizes
    spread = float(np.std(rewards - np.repeat(means, data.sizes))) or 1.0
    return min(1 / found.temperature, _COLDEST / spread)

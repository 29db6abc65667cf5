"""The fits of a panel, on arrays: the scale of each judge alone, then the weights of all judges.

x_j = slope_j · r_j + shift_j is what judge j says alone, and z = Σ_j w_j x_j + c what a panel says. Where one response
is the best of its prompt (`BestResponses`), z are log-utilities, P = softmax(z), and shift and c are 0. Where each
response is correct or not (`SingleResponses`), z are log-odds, P = σ(z), and w and c a logistic regression.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from scipy.special import expit

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, segment_log_softmax
from rmcalib.calibration import Softmax
from rmcalib.calibration.maps import fit_logistic, fit_sigmoid
from rmcalib.calibration.temperature import cross_fit
from rmcalib.metrics.views import shares_of_largest
from rmcalib.repair.calibrator import says_nothing

BEST = "best member"
MOST_WEIGHT = 10.0
"""The largest weight of a judge of the best response."""
_COLDEST = 100.0  # the largest inverse temperature, relative to the spread of the rewards


@dataclass(frozen=True)
class PanelFit:
    """What was fitted on the prompts of some folds, or on all prompts.

    ``slope`` and ``shift`` are (J,), with slope 0 for a judge that is no better than a guess. ``panels`` has the
    weights of the x and the constant (J + 1,) of each panel: the guess, "best member", "mean", "weights", "member j"
    (number j alone) and "without j" (the weights of the others).
    """

    slope: FloatArray
    shift: FloatArray
    panels: dict[str, FloatArray]

    def logits(self, panel: str, rewards: FloatArray) -> FloatArray:
        """Return what a panel says (N,) about responses with rewards (J, N)."""
        *weights, constant = self.panels[panel]
        return np.asarray(weights @ _alone(self.slope, self.shift, rewards) + constant)

    def coefficients(self, panel: str) -> FloatArray:
        """Return what a panel multiplies the rewards by: (J,)."""
        return self.panels[panel][:-1] * self.slope


@dataclass(frozen=True)
class PanelData(ABC):
    """The rewards (J, N) of J judges for the same responses, with labels (N,), prompt by prompt.

    ``sizes`` (n,) are the prompts' numbers of responses, ``cluster`` (n,) which prompts belong together.
    """

    rewards: FloatArray
    labels: FloatArray
    sizes: IntArray
    cluster: IntArray | None = None
    guess: ClassVar[str]

    @property
    def starts(self) -> IntArray:
        """The first row of each prompt."""
        return np.cumsum(self.sizes) - self.sizes

    def take(self, prompts: IntArray) -> Self:
        """Return the data of some prompts, given by number, without their clusters."""
        kept = np.isin(np.arange(len(self.sizes)), prompts)
        rows = np.repeat(kept, self.sizes)
        return replace(
            self,
            rewards=self.rewards[:, rows],
            labels=self.labels[rows],
            sizes=self.sizes[kept],
            cluster=None,
        )

    def first_right(self, logits: FloatArray) -> FloatArray:
        """Return the label of each prompt's first choice (n,), the mean over ties; NaN if one of them has none."""
        share = shares_of_largest(logits, self.sizes)
        return np.asarray(np.add.reduceat(np.where(share > 0, self.labels, 0.0) * share, self.starts))

    @property
    def guess_logit(self) -> float:
        """What a guess says of every response."""
        return 0.0

    @abstractmethod
    def fit_judge(self, reward: FloatArray) -> tuple[float, float]:
        """Return the slope and the shift of a judge alone; slope 0 if it is no better than a guess."""

    @abstractmethod
    def fit_weights(self, x: FloatArray, used: BoolArray) -> FloatArray:
        """Return the weights of x (J, N) and the constant: (J + 1,); judges that are not ``used`` (J,) have 0."""

    @abstractmethod
    def losses(self, logits: FloatArray) -> FloatArray:
        """Return the log losses of what is labelled: prompts, or responses."""

    @abstractmethod
    def slopes(self, fit: PanelFit, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return the slopes of the log-likelihood of the weights at their fit, loss by loss, and its curvature."""


@dataclass(frozen=True)
class BestResponses(PanelData):
    """Prompts with one correct response each. Rewards should have mean 0 within prompts, so that sums stay exact."""

    guess: ClassVar[str] = "uniform guess"

    def fit_judge(self, reward: FloatArray) -> tuple[float, float]:
        """Return 1/T, and no shift."""
        fit = Softmax(reward, self.labels == 1, self.sizes).fit()
        spread = float(np.std(reward)) or 1.0
        return 0.0 if fit.at_limit == "hot" else min(1 / fit.temperature, _COLDEST / spread), 0.0

    def fit_weights(self, x: FloatArray, used: BoolArray) -> FloatArray:
        """Return the weights ≥ 0 with the smallest log loss, a convex problem, and the constant 0.

        >>> rewards, labels = np.array([[1.0, -1.0, 1.0, -1.0, -1.0, 1.0]]), np.array([1.0, 0.0] * 3)
        >>> data = BestResponses(rewards, labels, np.array([2, 2, 2]))
        >>> data.fit_weights(rewards, np.ones(1, dtype=bool)).round(3)
        array([0.347, 0.   ])
        """
        from scipy.optimize import minimize

        correct = self.labels == 1
        won = x[:, correct].sum(axis=1)

        def loss(w: FloatArray) -> tuple[float, FloatArray]:
            log_p = segment_log_softmax(w @ x, self.sizes)
            return float(-log_p[correct].mean()), (x @ np.exp(log_p) - won) / len(self.sizes)

        solution = minimize(
            loss,
            used / max(int(used.sum()), 1),
            jac=True,
            method="L-BFGS-B",
            bounds=[(0.0, MOST_WEIGHT * is_used) for is_used in used],
            options={"ftol": 1e-12, "gtol": 1e-8},
        )
        return np.append(solution.x, 0.0)

    def losses(self, logits: FloatArray) -> FloatArray:
        """Return −log P(correct) of each prompt."""
        return -segment_log_softmax(logits, self.sizes)[self.labels == 1]

    def slopes(self, fit: PanelFit, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return slopes (n, J) and curvature (J, J) in the coefficients of the rewards."""
        p = np.exp(segment_log_softmax(fit.logits("weights", self.rewards), self.sizes))
        expected = np.add.reduceat(p * self.rewards, self.starts, axis=1)
        centred = (self.rewards - np.repeat(expected, self.sizes, axis=1))[used]
        return centred[:, self.labels == 1].T, (centred * p) @ centred.T


@dataclass(frozen=True)
class SingleResponses(PanelData):
    """Responses that are correct or not, each on its own; labels may be NaN."""

    guess: ClassVar[str] = "base rate"

    @property
    def labelled(self) -> BoolArray:
        """Which responses have a label."""
        return ~np.isnan(self.labels)

    @property
    def guess_logit(self) -> float:
        """The log-odds of the base rate, moved a little towards 1/2."""
        rate = (np.nansum(self.labels) + 1) / (self.labelled.sum() + 2)
        return float(np.log(rate / (1 - rate)))

    def fit_judge(self, reward: FloatArray) -> tuple[float, float]:
        """Return 1/T and −b/T; a judge whose rewards do not rise with the labels says the base rate."""
        reward = reward[self.labelled]
        fit = fit_sigmoid(reward, self.labels[self.labelled])
        if says_nothing(fit.temperature, reward):
            return 0.0, self.guess_logit
        return 1 / fit.temperature, -fit.threshold / fit.temperature

    def fit_weights(self, x: FloatArray, used: BoolArray) -> FloatArray:
        """Return the weights and the constant of a logistic regression."""
        weights = np.zeros(len(x) + 1)
        rows = self.labelled
        weights[np.append(used, True)] = fit_logistic(x[used][:, rows].T, self.labels[rows])
        return weights

    def losses(self, logits: FloatArray) -> FloatArray:
        """Return the log loss of each labelled response."""
        logits = logits[self.labelled]
        return np.logaddexp(0.0, logits) - self.labels[self.labelled] * logits

    def slopes(self, fit: PanelFit, used: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Return slopes (responses, J + 1) and curvature (J + 1, J + 1) in the coefficients and the constant."""
        rewards, y = self.rewards[:, self.labelled], self.labels[self.labelled]
        p = np.asarray(expit(fit.logits("weights", rewards)))
        features = np.column_stack([rewards[used].T, np.ones(len(y))])
        return features * (y - p)[:, None], (features * (p * (1 - p))[:, None]).T @ features


def fit_panel(data: PanelData) -> PanelFit:
    """Fit each judge alone, then the weights of the panel and of each panel without one judge."""
    n_judges = len(data.rewards)
    slope, shift = np.array([data.fit_judge(reward) for reward in data.rewards]).T
    x, informed, judges = _alone(slope, shift, data.rewards), slope > 0, np.arange(n_judges)
    members = np.eye(n_judges, n_judges + 1)
    best = int(np.argmin([data.losses(each).mean() for each in x]))
    panels = {
        data.guess: np.append(np.zeros(n_judges), data.guess_logit),
        BEST: members[best],
        "mean": members.mean(axis=0),
        "weights": data.fit_weights(x, informed),
    }
    for j in judges:
        panels[f"member {j}"] = members[j]
        panels[f"without {j}"] = data.fit_weights(x, informed & (judges != j))
    return PanelFit(slope, shift, panels)


def held_out(data: PanelData, seed: int) -> tuple[dict[str, FloatArray], list[int]]:
    """Return what each panel says (N,), and the best member for each prompt (n,), both fitted on other folds."""
    fits: list[PanelFit] = []

    def fit(train: IntArray) -> float:
        fits.append(fit_panel(data.take(train)))
        return len(fits) - 1.0

    n = len(data.sizes)
    fold = cross_fit(n, fit, lambda number, _: np.array(number), groups=data.cluster, rng=seed)
    logits = {name: np.empty(len(data.labels)) for name in fits[0].panels}
    best = np.zeros(n, dtype=np.int64)
    for number, fitted in enumerate(fits):
        rows = np.repeat(fold == number, data.sizes)
        for name, values in logits.items():
            values[rows] = fitted.logits(name, data.rewards[:, rows])
        best[fold == number] = np.argmax(fitted.panels[BEST][:-1])
    return logits, best.tolist()


def _alone(slope: FloatArray, shift: FloatArray, rewards: FloatArray) -> FloatArray:
    """Return what each judge says alone: (J, N)."""
    return slope[:, None] * rewards + shift[:, None]

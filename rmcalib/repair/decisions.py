"""Decide with probabilities: when to accept a judge's choice, what it costs, and best-of-k."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration import mean_interval
from rmcalib.calibration.events import design_effect
from rmcalib.calibration.intervals import check_level
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import FEWEST, Part
from rmcalib.repair.calibrator import labelled_part
from rmcalib.repair.thresholds import Threshold, exact_limits, log_odds, safe_threshold

if TYPE_CHECKING:
    import pandas

FRACTIONS = tuple(round(0.05 * i, 2) for i in range(1, 21))
"""The fractions of prompts for which the accuracy-rejection curve is computed."""
MOST = 32
"""Up to this many responses, every k is reported; above it, only powers of two and the largest k."""


@dataclass(frozen=True)
class Regret:
    """The cost of acting on the stated probabilities, compared with calibrated ones.

    A wrong response costs 1, asking a person costs `ask_cost`.

    Attributes
    ----------
    threshold : float
        1 − ask_cost. Accepting costs less than asking if the probability is at least this.
    accepted : float
        Fraction of prompts that are accepted by the stated probabilities.
    believed : float
        Mean cost per prompt that the stated probabilities predict.
    cost : float
        Mean cost per prompt that was measured.
    calibrated_accepted, calibrated_cost : float
        The same with calibrated probabilities: the temperature of each prompt was fitted on other prompts.
    value, low, high : float
        The regret, cost − calibrated_cost, with its interval.
    """

    threshold: float
    accepted: float
    believed: float
    cost: float
    calibrated_accepted: float
    calibrated_cost: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Decisions(Shown):
    """The result of `decide`.

    Attributes
    ----------
    n : int
        Number of prompts with one correct response.
    alpha, level : float
        Accepted responses are wrong at most `alpha` of the time, with confidence `level`.
    ask_cost : float
        The cost of asking a person, as a fraction of the cost of a wrong response.
    choice : Threshold
        The threshold, and the prompts that it accepts.
    curve : list of dict
        The accuracy-rejection curve: one row per fraction of prompts, the most confident ones first
        (fraction, n, threshold, says, right, low, high). The limits are exact for each point alone.
    best_of : list of dict
        One row per k (k, n, right, low, high, says): the choice among k responses drawn at random.
    regret : Regret, optional
        The cost of acting on the stated probabilities; None with fewer than 20 prompts.
    """

    n: int
    alpha: float
    level: float
    ask_cost: float
    choice: Threshold
    curve: list[dict[str, Any]]
    best_of: list[dict[str, Any]]
    regret: Regret | None

    @property
    def table(self) -> pandas.DataFrame:
        """The accuracy-rejection curve as a pandas table."""
        import pandas

        return pandas.DataFrame(self.curve)

    @property
    def asked(self) -> float:
        """The fraction of prompts that a person has to decide."""
        return 1 - self.choice.accepted

    @property
    def cost_of_asking(self) -> float:
        """The mean cost per prompt of asking a person."""
        return self.asked * self.ask_cost

    def content(self) -> dict[str, Any]:
        """Return all results as a dictionary that can be written as JSON."""
        return {**asdict(self), "asked": self.asked, "cost_of_asking": self.cost_of_asking}

    def __repr__(self) -> str:
        """Return the threshold, and how many prompts it accepts."""
        found = self.choice
        return f"Decisions(threshold = {found.threshold}, accepts {found.accepted:.0%} of {self.n} prompts)"


def decide(
    scores: Any, *, alpha: float = 0.1, level: float = 0.95, ask_cost: float | None = None, seed: int = 0
) -> Decisions:
    """Find when a judge's first choice can be accepted without asking a person, and what that costs.

    Accepting everything is tested first, with a fifth of 1 − level. If that fails, thresholds that were fixed
    in advance are tested with the rest from the highest down, each with an exact binomial bound, until one
    fails. Accept a response if its probability is at least the last threshold that passed. Accepted responses
    are then wrong at most `alpha` of the time, with confidence `level`, on prompts like these.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards; see `load_scores`. Only prompts with exactly one correct response are used. The prompts
        of a cluster count as fewer, by their design effect.
    alpha : float
        The largest fraction of wrong responses among the accepted ones.
    level : float
        Confidence of the guarantee, and of all intervals.
    ask_cost : float, optional
        The cost of asking a person, as a fraction of the cost of a wrong response; default `alpha`.
    seed : int
        Seed of the folds of the regret.

    Returns
    -------
    Decisions

    Examples
    --------
    >>> from rmcalib.scores import Scores
    >>> rng = np.random.default_rng(0)
    >>> utilities = 4 * rng.normal(size=(600, 3))
    >>> correct = (utilities + rng.gumbel(size=(600, 3))).argmax(axis=1)
    >>> found = decide(Scores.from_arrays(utilities, correct), alpha=0.1)
    >>> found.choice.wrong < 0.1, found.choice.accepted > 0.5
    (True, True)
    """
    part = labelled_part(scores)
    return decide_part(part, alpha=alpha, level=level, ask_cost=ask_cost, seed=seed)


def decide_part(
    part: Part, *, alpha: float = 0.1, level: float = 0.95, ask_cost: float | None = None, seed: int = 0
) -> Decisions:
    """Do the same as `decide`, from a part whose prompts have one correct response each."""
    check_level(level)
    for name, value in (("alpha", alpha), ("ask_cost", ask_cost)):
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{name}: {value} is not between 0 and 1")
    asking = alpha if ask_cost is None else ask_cost
    events = part.first_choice
    odds, right = log_odds(events.log_p), events.y
    wrong = right < 1  # of several tied first choices, any may be taken
    design = _design(wrong, part.cluster)
    return Decisions(
        n=len(part),
        alpha=alpha,
        level=level,
        ask_cost=asking,
        choice=safe_threshold(odds, wrong, alpha=alpha, level=level, design=design),
        curve=_curve(odds, events.p, right, level, design),
        best_of=best_of_rows(part, level),
        regret=_regret(part, seed, asking, level),
    )


def _design(wrong: BoolArray, cluster: IntArray | None) -> float:
    """Return how many prompts count as one, because the prompts of a cluster are wrong together."""
    if cluster is None:
        return 1.0
    if wrong.all() or not wrong.any():  # all agree: count clusters, which may agree because they are alike
        return len(wrong) / (int(cluster.max()) + 1)
    return design_effect((wrong - wrong.mean())[:, None], cluster)


def _curve(
    odds: FloatArray, p: FloatArray, right: FloatArray, level: float, design: float
) -> list[dict[str, Any]]:
    """Return the accuracy on the most confident fraction of the prompts, for each fraction."""
    order = np.argsort(-odds, kind="stable")
    counts = np.maximum(np.ceil(np.array(FRACTIONS) * len(odds) - 1e-9).astype(int), 1)
    rights = np.cumsum(right[order])[counts - 1]
    says = np.cumsum(p[order])[counts - 1] / counts
    low, high = exact_limits(rights / design, counts / design, level)
    return [
        {
            "fraction": float(counts[i] / len(odds)),
            "n": int(counts[i]),
            "threshold": float(p[order[counts[i] - 1]]),
            "says": float(says[i]),
            "right": float(rights[i] / counts[i]),
            "low": float(low[i]),
            "high": float(high[i]),
        }
        for i in np.unique(counts, return_index=True)[1]
    ]


def _regret(part: Part, seed: int, asking: float, level: float) -> Regret | None:
    if len(part) < FEWEST:
        return None
    stated = part.first_choice
    calibrated = replace(part, seed=seed, _made={}, _known={}).at_temperature.first_choice
    wrong = 1 - stated.y
    accepted, accepted_then = stated.p >= 1 - asking, calibrated.p >= 1 - asking
    cost, cost_then = (np.where(each, wrong, asking) for each in (accepted, accepted_then))
    found = mean_interval(cost - cost_then, clusters=part.cluster, level=level)
    return Regret(
        threshold=1 - asking,
        accepted=float(accepted.mean()),
        believed=float(np.where(accepted, 1 - stated.p, asking).mean()),
        cost=float(cost.mean()),
        calibrated_accepted=float(accepted_then.mean()),
        calibrated_cost=float(cost_then.mean()),
        value=found.value,
        low=found.low,
        high=found.high,
    )


def best_of_rows(part: Part, level: float = 0.95) -> list[dict[str, Any]]:
    """Return how often the best of k responses is correct, and the judge's probability of it, for k = 1..m.

    The k responses are drawn at random from the m of a prompt, and the one with the largest reward is chosen.
    Both numbers are exact averages over all subsets. "says" is the mean probability of the chosen response
    among all m. Only prompts with the most common number of responses are used.
    """
    sizes, counts = np.unique(part.sizes, return_counts=True)
    m = int(sizes[np.argmax(counts)])
    own = part if len(sizes) == 1 else part.take(part.sizes == m)
    shape = (len(own), m)
    reward, p = own.reward.reshape(shape), np.exp(own.log_p).reshape(shape)
    correct = own.is_correct.reshape(shape).astype(np.float64)
    order = np.argsort(-reward, axis=1, kind="stable")
    ranked_reward, ranked_p, ranked_correct = (
        np.take_along_axis(values, order, axis=1) for values in (reward, p, correct)
    )
    numbers = np.arange(1, m + 1) if m <= MOST else np.unique([*(2 ** np.arange(m.bit_length())), m])
    weights = _chosen_weights(m, numbers)
    right = _averaged_over_ties(ranked_reward, ranked_correct) @ weights
    says = (ranked_p @ weights).mean(axis=0)
    rows = []
    for i, k in enumerate(numbers):
        found = mean_interval(right[:, i], clusters=own.cluster, level=level)
        limits = {"low": max(found.low, 0.0), "high": min(found.high, 1.0)}
        rows.append({"k": int(k), "n": len(own), "right": found.value, **limits, "says": float(says[i])})
    return rows


def _chosen_weights(m: int, k: IntArray) -> FloatArray:
    """Return the probability that the response of rank r (best first) is the best of k drawn out of m.

    C(m − 1 − r, k − 1) / C(m, k) for r = 0..m − 1: float (m, K) for K values of k. Columns sum to one.

    >>> _chosen_weights(3, np.array([1, 2, 3])).round(3)
    array([[0.333, 0.667, 1.   ],
           [0.333, 0.333, 0.   ],
           [0.333, 0.   , 0.   ]])
    """
    from scipy.special import gammaln

    below = np.arange(m - 1, -1, -1)[:, None]
    possible = below >= k - 1
    left = np.where(possible, below - (k - 1), 0)
    logs = (gammaln(below + 1) - gammaln(left + 1)) - (gammaln(m + 1) - gammaln(m - k + 1)) + np.log(k)
    return np.where(possible, np.exp(logs), 0.0)


def _averaged_over_ties(reward: FloatArray, values: FloatArray) -> FloatArray:
    """Replace values (n, m) by their mean over equal rewards, which are in descending order."""
    new = np.ones(reward.shape, dtype=bool)
    new[:, 1:] = reward[:, 1:] != reward[:, :-1]
    group = np.cumsum(new.ravel()) - 1
    means = np.bincount(group, values.ravel()) / np.bincount(group)
    averaged: FloatArray = means[group].reshape(reward.shape)
    return averaged

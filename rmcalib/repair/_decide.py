"""Decide with probabilities: when to accept a judge's choice, what it costs, and best-of-k."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration import check_level, mean_interval
from rmcalib.metrics import FEWEST, Forecasts, accuracy_of
from rmcalib.repair._best_of import best_of_rows
from rmcalib.repair._calibrate import held_out_temperatures
from rmcalib.repair._calibrator import labelled_forecasts
from rmcalib.repair._thresholds import Threshold, exact_limits, log_odds, safe_threshold
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["Decisions", "Regret", "decide", "decide_forecasts"]

FRACTIONS = tuple(round(0.05 * i, 2) for i in range(1, 21))
"""The fractions of prompts for which the accuracy-rejection curve is computed."""


@dataclass(frozen=True)
class Regret:
    """The cost of acting on the stated probabilities, compared with calibrated ones.

    A wrong response costs 1. Asking a person costs `ask_cost`.

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

    Examples
    --------
    >>> rewards = np.tile([[9.0, 0.0], [9.0, 0.0], [0.0, 9.0]], (20, 1))
    >>> regret = decide(Scores.from_arrays(rewards), alpha=0.1).regret
    >>> round(regret.cost, 3), round(regret.calibrated_cost, 3), round(regret.value, 3)
    (0.333, 0.1, 0.233)
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


@dataclass(frozen=True)
class Decisions:
    """The result of :func:`decide`.

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
    curve : list[dict[str, Any]]
        The accuracy-rejection curve: one row per fraction of prompts, the most confident ones first
        (fraction, n, threshold, says, right, low, high). The limits are exact for each point alone.
    best_of : list[dict[str, Any]]
        One row per k (k, n, right, low, high, says): the choice among k responses drawn at random.
    regret : Regret, optional
        The cost of acting on the stated probabilities; None with fewer than 20 prompts.

    Examples
    --------
    >>> found = decide(Scores.from_arrays([[9.0, 0.0]] * 100))
    >>> found.choice.accepted, found.asked
    (1.0, 0.0)
    >>> found.table[["fraction", "n", "right"]].values.tolist()[0]
    [0.05, 5.0, 1.0]
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

    @property
    def sentences(self) -> list[str]:
        """The result in words."""
        return [*_threshold_words(self), *_regret_words(self.regret), *_best_of_words(self.best_of)]

    def content(self) -> dict[str, Any]:
        """Return all results as a dictionary that can be written as JSON."""
        return {
            **asdict(self),
            "asked": self.asked,
            "cost_of_asking": self.cost_of_asking,
            "sentences": self.sentences,
        }


def decide(
    scores: Scores, *, alpha: float = 0.1, level: float = 0.95, ask_cost: float | None = None, seed: int = 0
) -> Decisions:
    """Find when a judge's first choice can be accepted without asking a person, and what that costs.

    Accepting everything is tested first, with a fifth of 1 − level. If that fails, thresholds that were fixed
    in advance are tested with the rest from the highest down, each with an exact binomial bound, until one
    fails. Accept a response if its probability is at least the last threshold that passed. Accepted responses
    are then wrong at most `alpha` of the time, with confidence `level`, on prompts like these.

    Parameters
    ----------
    scores : Scores
        The rewards. Only prompts with exactly one correct response are used.
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
    >>> rng = np.random.default_rng(0)
    >>> utilities = 4 * rng.normal(size=(600, 3))
    >>> correct = (utilities + rng.gumbel(size=(600, 3))).argmax(axis=1)
    >>> found = decide(Scores.from_arrays(utilities, correct), alpha=0.1)
    >>> found.choice.wrong < 0.1, found.choice.accepted > 0.5
    (True, True)
    """
    return decide_forecasts(
        labelled_forecasts(scores), alpha=alpha, level=level, ask_cost=ask_cost, seed=seed
    )


def decide_forecasts(
    part: Forecasts, *, alpha: float = 0.1, level: float = 0.95, ask_cost: float | None = None, seed: int = 0
) -> Decisions:
    """Do the same as :func:`decide`, from forecasts instead of scores.

    Parameters
    ----------
    part : Forecasts
        Forecasts of prompts with one correct response each.
    alpha, level, ask_cost, seed
        As for `decide`.

    Returns
    -------
    Decisions

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> decide_forecasts(forecast(Scores.from_arrays([[9.0, 0.0]] * 100))).choice.accepted
    1.0
    """
    check_level(level)
    for name, value in (("alpha", alpha), ("ask_cost", ask_cost)):
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{name}: {value} is not between 0 and 1")
    asking = alpha if ask_cost is None else ask_cost
    right = accuracy_of(part)
    best = np.maximum.reduceat(part.log_probability, part.starts)
    odds, says = log_odds(best), np.exp(best)
    return Decisions(
        n=len(part),
        alpha=alpha,
        level=level,
        ask_cost=asking,
        choice=safe_threshold(odds, right < 1, alpha=alpha, level=level),
        curve=_curve(odds, says, right, level),
        best_of=best_of_rows(part, level),
        regret=_regret(part, says, 1 - right, asking, level, seed),
    )


def _curve(odds: FloatArray, p: FloatArray, right: FloatArray, level: float) -> list[dict[str, Any]]:
    """Return the accuracy on the most confident fraction of the prompts, for each fraction."""
    order = np.argsort(-odds, kind="stable")
    counts = np.maximum(np.ceil(np.array(FRACTIONS) * len(odds) - 1e-9).astype(int), 1)
    rights = np.cumsum(right[order])[counts - 1]
    says = np.cumsum(p[order])[counts - 1] / counts
    low, high = exact_limits(rights, counts, level)
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


def _regret(
    part: Forecasts, p: FloatArray, wrong: FloatArray, asking: float, level: float, seed: int
) -> Regret | None:
    if len(part) < FEWEST:
        return None
    best = np.maximum.reduceat(part.reward, part.starts)
    spread = (part.reward - np.repeat(best, part.sizes)) / np.repeat(
        held_out_temperatures(part, 5, seed), part.sizes
    )
    calibrated = 1 / np.add.reduceat(np.exp(spread), part.starts)
    accepted, accepted_then = p >= 1 - asking, calibrated >= 1 - asking
    cost, cost_then = (np.where(each, wrong, asking) for each in (accepted, accepted_then))
    found = mean_interval(cost - cost_then, level=level)
    return Regret(
        threshold=1 - asking,
        accepted=float(accepted.mean()),
        believed=float(np.where(accepted, 1 - p, asking).mean()),
        cost=float(cost.mean()),
        calibrated_accepted=float(accepted_then.mean()),
        calibrated_cost=float(cost_then.mean()),
        value=found.value,
        low=found.low,
        high=found.high,
    )


def _threshold_words(found: Decisions) -> list[str]:
    choice, sure = found.choice, f"{found.level:.0%} confidence"
    if choice.threshold is None:
        if choice.wrong is None:
            return [
                f"Too few prompts for a threshold: even without an error, {choice.fewest} accepted responses "
                f"are needed to guarantee that at most {found.alpha:.0%} are wrong with {sure}."
            ]
        return [
            f"No threshold could be shown, with {found.n:,} prompts and {sure}, to keep accepted responses "
            f"wrong at most {found.alpha:.0%} of the time: of its {choice.n:,} surest choices, "
            f"{choice.wrong:.1%} are wrong. Without one, a person decides all prompts."
        ]
    rest = "" if found.asked == 0 else f" A person decides the other {found.asked:.0%}."
    when = "always" if choice.threshold == 0 else f"if its probability is at least {choice.threshold:.10g}"
    return [
        f"Accept its first choice {when}: that accepts {choice.accepted:.0%} of the prompts. Of these "
        f"{choice.n:,}, {choice.wrong:.1%} are wrong here, and at most {found.alpha:.0%} on other prompts "
        f"like these, with {sure}.{rest} If asking costs {found.ask_cost:.2g} of what a wrong response "
        f"costs, that is {found.cost_of_asking:.3f} per prompt."
    ]


def _regret_words(regret: Regret | None) -> list[str]:
    if regret is None:
        return []
    chance = ", which chance can explain" if regret.low <= 0 <= regret.high else ""
    return [
        f"If you act on its own probabilities, you accept above {regret.threshold:.3g} "
        f"({regret.accepted:.0%} of the prompts) and expect a cost of {regret.believed:.3f} per prompt. The "
        f"true cost is {regret.cost:.3f}; with calibrated probabilities it would be "
        f"{regret.calibrated_cost:.3f}. The difference, the regret, is {regret.value:z.3f} "
        f"[{regret.low:z.3f}, {regret.high:z.3f}]{chance}."
    ]


def _best_of_words(rows: list[dict[str, Any]]) -> list[str]:
    if len(rows) < 2:
        return []
    last = rows[-1]
    return [
        f"The best of {last['k']} responses by its rewards is right {last['right']:.0%} of the time, and it "
        f"says {last['says']:.0%}. One response at random is right {rows[0]['right']:.0%} of the time."
    ]

"""Temperatures: the scale of rewards, what a wrong scale loses, and temperatures of distributions over rankings.

Forecasts of which response of a prompt is the best, and of which one of a pair is better, are one family,
`Softmax`: the mean log loss is convex in β = 1/T. `Scale` fits T and measures what T = 1 loses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util import arrays
from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, find_root
from rmcalib.calibration import intervals
from rmcalib.calibration.clusters import MeanError, mean_error, prompts_per_observation, student_quantile
from rmcalib.calibration.intervals import Interval, Limits
from rmcalib.calibration.notions import check_complete
from rmcalib.ranking import RankingDistribution
from rmcalib.ranking._distribution import HasTemperature

REWARD_RANGE = (-230.0, 230.0)
"""Range of log β for rewards, which may be on any scale up to 1e100."""
_RANKING_RANGE = (-20.0, 20.0)
_FOLDS = 5
_STEP = 0.02  # of log β, from one that may be near the best
_SAMPLED = 20_000  # choices, whose best temperature is near that of more
Model = TypeVar("Model")


@dataclass(frozen=True)
class TemperatureFit:
    """The temperature of largest likelihood.

    Attributes
    ----------
    temperature : float
        T̂, or the end of the search range where ``at_limit`` is set.
    at_limit : str or None
        "cold" (T → 0: every forecast is right), "hot" (T → ∞: a uniform forecast is as good), or None.
    """

    temperature: float
    at_limit: str | None = None

    @property
    def optimum(self) -> float:
        """The optimum itself: ``temperature``, or 0 or infinity where ``at_limit`` is set."""
        return {"cold": 0.0, "hot": np.inf}.get(self.at_limit or "", self.temperature)


def fit_temperature(dist: RankingDistribution, orders: ArrayLike) -> TemperatureFit:
    """Fit the temperature of a forecast of rankings by maximum likelihood.

    Parameters
    ----------
    dist : RankingDistribution with a temperature
        The forecast: n instances, m items.
    orders : int (n, m)
        What happened: the items of each instance, best first.

    Returns
    -------
    TemperatureFit

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> fit = fit_temperature(PlackettLuce([[1.0, 0.0]] * 4), [[0, 1], [0, 1], [0, 1], [1, 0]])
    >>> round(fit.temperature, 3)  # 1 / log 3
    0.91
    """
    array = check_complete(dist, orders, "a temperature")
    if not isinstance(dist, HasTemperature):
        raise ValueError(
            f"dist: {type(dist).__name__} has no temperature (needs at_temperature and temperature_slope)"
        )
    return find_temperature(dist.temperature_slope(array), _RANKING_RANGE)


def cross_fit(
    n: int,
    fit: Callable[[IntArray], Model],
    predict: Callable[[Model, IntArray], FloatArray],
    *,
    groups: ArrayLike | None = None,
    rng: np.random.Generator | int = 0,
) -> FloatArray:
    """Predict every row with a model fitted on the other ones of five folds, so that no row is used to predict itself.

    ``fit`` maps row numbers to a model, ``predict`` maps a model and row numbers to numbers. Rows of a group
    stay in one fold; there are at most as many folds as groups.
    """
    index = arrays.as_groups(groups, arrays.check_integer(n, "n", 2))
    n_groups = int(index.max()) + 1
    if n_groups < 2:
        raise ValueError("all prompts belong to one cluster: at least two clusters are needed")
    folds = min(_FOLDS, n_groups)
    fold = np.random.default_rng(rng).permutation(np.arange(n_groups) % folds)[index]
    result = np.empty(n)
    for number in range(folds):
        test = np.flatnonzero(fold == number)
        result[test] = predict(fit(np.flatnonzero(fold != number)), test)
    return result


def find_temperature(
    slope: Callable[[float], float],
    log_range: tuple[float, float] = REWARD_RANGE,
    near: float | None = None,
) -> TemperatureFit:
    """Find the zero of ``slope``, an increasing function of β = 1/T, by a search over log β.

    A temperature that is ``near`` the one in question saves most evaluations; it need not be.
    """

    @lru_cache
    def at(log_beta: float) -> float:
        return slope(np.exp(log_beta))

    low, high = log_range
    if near is not None:
        middle = float(np.clip(-np.log(near), low, high))
        low = _walk(lambda log_beta: at(log_beta) < 0, middle, -_STEP, low)
        high = _walk(lambda log_beta: at(log_beta) > 0, middle, _STEP, high)
    if at(low) >= 0:
        return TemperatureFit(float(np.exp(-low)), "hot")
    if at(high) <= 0:
        return TemperatureFit(float(np.exp(-high)), "cold")
    # Brent's method needs about twenty evaluations, bisection fifty and more.
    beta = float(np.exp(find_root(at, low, high, tolerance=1e-14)))
    return TemperatureFit(1 / beta)


def _walk(is_beyond: Callable[[float], bool], start: float, step: float, end: float) -> float:
    """Return the first point that is beyond something, in growing steps from ``start``; else ``end``."""
    while start != end and not is_beyond(start):
        start = min(start + step, end) if step > 0 else max(start + step, end)
        step *= 4
    return start


@dataclass(frozen=True, eq=False)
class Softmax:
    """Choices with probabilities softmax(r/T): rewards r (N,), choice by choice, one of them correct.

    A choice is one of the responses of a prompt, or, with ``prompt`` (P,), one of its pairs: the pairs of a
    prompt are averaged first. ``weight`` (n,) of mean 1 multiplies the numbers of each prompt, if prompts were
    drawn with unequal probabilities: means are then weighted means.
    """

    r: FloatArray
    correct: BoolArray
    sizes: IntArray
    prompt: IntArray | None = None
    weight: FloatArray | None = None

    @classmethod
    def from_arrays(cls, rewards: ArrayLike, outcomes: ArrayLike, groups: ArrayLike) -> Softmax:
        """Build from checked arrays (N,) in any order."""
        r, y = arrays.as_floats(rewards, "rewards", ndim=1), arrays.as_outcomes(outcomes)
        if len(r) != len(y):
            raise ValueError(f"outcomes: {len(y)} outcomes for {len(r)} rewards")
        index = arrays.as_groups(groups, len(r))
        happened = np.bincount(index, y)
        if (happened != 1).any():
            group = int(np.argmax(happened != 1))
            raise ValueError(
                f"outcomes: group number {group} has {int(happened[group])} outcomes of 1, expected exactly one"
            )
        order = np.argsort(index, kind="stable")
        return cls(r[order], y[order] == 1, np.bincount(index))

    @classmethod
    def of_pairs(cls, log_odds: FloatArray, prompt: IntArray) -> Softmax:
        """Build from the log-odds (P,) of what happened in each pair, with its prompt."""
        n = len(log_odds)
        r = np.column_stack([log_odds, np.zeros(n)]).reshape(-1)
        return cls(r, np.tile([True, False], n), np.full(n, 2), prompt)

    @cached_property
    def below(self) -> FloatArray:
        """The rewards minus the largest of their prompt, so that nothing overflows."""
        return self.r - np.repeat(arrays.group_max(self.r, self.sizes), self.sizes)

    @cached_property
    def _below_correct(self) -> FloatArray:
        """The same of the correct alternative of each choice: (P,)."""
        return self.below[self.correct]

    def _sums(self, values: FloatArray) -> FloatArray:
        """Return the sum over the alternatives of each choice: (N,) -> (P,)."""
        return arrays.group_sums(values, self.sizes)

    @cached_property
    def _weight(self) -> FloatArray:
        """What each choice counts for its prompt: (P,)."""
        if self.prompt is None:
            return np.ones(len(self.sizes))
        return 1 / np.bincount(self.prompt)[self.prompt]

    def _per_prompt(self, values: FloatArray) -> FloatArray:
        """Return the mean over the choices of each prompt: (P,) -> (n,)."""
        if self.prompt is not None:
            values = np.bincount(self.prompt, values * self._weight).astype(np.float64)
        return values if self.weight is None else values * self.weight

    @property
    def uniform(self) -> FloatArray:
        """The log loss of a uniform guess for each prompt: log m."""
        return self._per_prompt(np.log(self.sizes))

    @property
    def independent(self) -> float:
        """The least factor of the variance of slopes: 1 if a prompt is one observation."""
        return float(self._weight.mean())

    def fit(self, near: float | None = None) -> TemperatureFit:
        """Return the best temperature, which may be ``near`` another one."""
        if near is None and len(self.sizes) > 2 * _SAMPLED:
            near = self._sample().fit().temperature
        fitted = find_temperature(self.mean_slope, near=near)
        if fitted.at_limit == "cold" and (self._below_correct < 0).any():
            return replace(fitted, at_limit=None)  # the optimum lies beyond the range: rewards are very close
        return fitted

    def _sample(self) -> Softmax:
        """Return some of the choices, from all parts of the table."""
        kept = np.zeros(len(self.sizes), dtype=bool)
        kept[:: len(kept) // _SAMPLED] = True
        rows = np.repeat(kept, self.sizes)
        return Softmax(self.r[rows], self.correct[rows], self.sizes[kept])

    def losses(self, temperature: float) -> FloatArray:
        """Return −log P(correct)."""
        if temperature == 0:  # only the largest reward has a probability; equal ones share it
            ties = self._sums((self.below == 0).astype(np.float64))
            return self._per_prompt(np.where(self._below_correct == 0, np.log(ties), np.inf))
        logits = self.below / temperature
        return self._per_prompt(np.log(self._sums(np.exp(logits))) - self._below_correct / temperature)

    def mean_slope(self, beta: float) -> float:
        """Return the mean of E[r] − r_correct."""
        odds = np.exp(self.below * beta)
        expected = self._sums(odds * self.below) / self._sums(odds)
        return float(self._per_prompt(expected - self._below_correct).mean())

    def slopes(self, temperature: float) -> tuple[FloatArray, FloatArray]:
        """Return slope and curvature by log β."""
        logits, p = self.below / temperature, self._probabilities(temperature)
        mean = self._sums(p * logits)
        spread = self._sums(p * (logits - np.repeat(mean, self.sizes)) ** 2)
        return self._per_prompt(mean - self._below_correct / temperature), self._per_prompt(spread)

    def margins(self) -> tuple[FloatArray, FloatArray]:
        """Return the reward of the first choice minus that of the correct response, and of the runner-up.

        Of the pairs of a prompt, the closest is the one that may be wrong next.
        """
        first, second = intervals.first_and_next(self.r, self.sizes)
        wrong = self._per_prompt(self.r[first] - self.r[self.correct])
        closest = self.r[first] - self.r[second]
        if self.prompt is not None:
            distance, closest = closest * self._weight, np.full(len(wrong), np.inf)
            np.minimum.at(closest, self.prompt, distance)
        return wrong, closest if self.weight is None else closest * self.weight

    def divergence(self, temperature: float) -> float | None:
        """Return what T = 1 loses if softmax(r/T) is true: the mean KL divergence of softmax(r) from it.

        The pairs of a prompt depend on each other: for them it is not known.
        """
        from scipy.special import xlogy

        if self.prompt is not None:
            return None
        logs = arrays.segment_log_softmax(self.below, self.sizes)
        q = self._probabilities(temperature)
        return max(float(self._per_prompt(self._sums(xlogy(q, q) - q * logs)).mean()), 0.0)

    def information(self, temperature: float) -> float:
        """Return how much less than a uniform guess softmax(r/T) loses on average, if it is true."""
        from scipy.special import entr

        entropy = self._sums(entr(self._probabilities(temperature)))
        return float((self.uniform - self._per_prompt(entropy)).mean())

    def _probabilities(self, temperature: float) -> FloatArray:
        """Return softmax(r/T): (N,)."""
        q = (self.below == 0).astype(np.float64) if temperature == 0 else np.exp(self.below / temperature)
        return np.asarray(q / np.repeat(self._sums(q), self.sizes))

    def slopes_of_nothing(self) -> tuple[FloatArray, FloatArray]:
        """Return slopes and curvatures by β at 0: mean(r) − r_correct and the variance of r of each prompt."""
        mean = self._sums(self.r) / self.sizes
        spread = self._sums((self.r - np.repeat(mean, self.sizes)) ** 2) / self.sizes
        return self._per_prompt(mean - self.r[self.correct]), self._per_prompt(spread)


@dataclass(frozen=True, eq=False)
class Scale:
    """How much information the scale of the rewards keeps and loses; u is the mean log loss of a uniform guess::

        kept   = 1 − NLL(1)/u           information of the probabilities as stated
        lost   = (NLL(1) − NLL(T̂))/u    lost by the wrong scale; 0 on the right scale, no upper bound
        usable = 1 − NLL(T̂)/u           = kept + lost: information of the rewards at their best scale

    The interval of lost information is based on the root √(2 delta), whose error is nearly normal even where
    delta is close to 0, united with the losses that would result if the forecasts at T were true, for T in
    its interval: it holds 0 if the interval of the temperature holds 1.

    Examples
    --------
    >>> scale = Scale(Softmax.from_arrays([6.0, 0.0] * 4, [1, 0, 1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 2, 2, 3, 3]))
    >>> round(scale.lost, 3), round(scale.usable, 3), round(scale.fit.temperature, 3)
    (1.356, 0.189, 5.461)
    """

    model: Softmax
    cluster: IntArray | None = None

    @cached_property
    def fit(self) -> TemperatureFit:
        """The temperature of largest likelihood."""
        return self.model.fit()

    @cached_property
    def _slopes(self) -> tuple[FloatArray, FloatArray]:
        return self.model.slopes(self.fit.temperature)

    @cached_property
    def _now(self) -> FloatArray:
        return self.model.losses(1.0)

    @cached_property
    def _best(self) -> FloatArray:
        return self.model.losses(self.fit.optimum)

    @cached_property
    def unit(self) -> float:
        """U: the mean log loss of a uniform guess (1 if every prompt has a single response)."""
        return float(self.model.uniform.mean()) or 1.0

    @cached_property
    def delta(self) -> float:
        """NLL(1) − NLL(T̂) in nats per prompt."""
        return max(float((self._now - self._best).mean()), 0.0)

    @property
    def n(self) -> int:
        """The number of prompts."""
        return len(self._now)

    @property
    def lost(self) -> float:
        """Lost information."""
        return self.delta / self.unit

    @property
    def usable(self) -> float:
        """Usable information."""
        return 1 - float(self._best.mean()) / self.unit

    @property
    def kept(self) -> float:
        """Kept information."""
        return 1 - float(self._now.mean()) / self.unit

    @cached_property
    def _gain(self) -> FloatArray:
        # The mean log number of responses varies between samples of prompts, too.
        return np.asarray(self._now - self._best - self.delta * self.model.uniform / self.unit)

    def worth(self, share: float, losses: FloatArray) -> FloatArray:
        """Return what each prompt contributes to the deviation of 1 − mean loss/u: (n,), sums to 0."""
        worth = ((1 - share) * self.model.uniform - losses) / self.unit
        return np.asarray(worth - worth.mean())

    def lost_influence(self) -> FloatArray:
        """Return what each prompt contributes to the deviation of lost information."""
        return (self._gain - self._gain.mean()) / (self.unit * self.n)

    def usable_influence(self) -> FloatArray:
        """Return what each prompt contributes to the deviation of usable information."""
        return self.worth(self.usable, self._best) / self.n

    def kept_influence(self) -> FloatArray:
        """Return what each prompt contributes to the deviation of kept information."""
        return self.worth(self.kept, self._now) / self.n

    def temperature_influence(self) -> FloatArray:
        """Return what each prompt contributes to the deviation of the temperature."""
        if self.fit.at_limit is not None:
            return np.zeros(self.n)
        slope, curvature = self._slopes
        return self.fit.temperature * (slope - slope.mean()) / max(float(curvature.mean()), 1e-300) / self.n

    def temperature_interval(self, level: float = 0.95) -> Interval:
        """Return the temperature with its likelihood-ratio interval, robust to a wrong model."""
        return Interval(self.fit.optimum, *self.temperature_limits(level), level)

    def lost_interval(self, level: float = 0.95) -> Interval:
        """Return lost information with its interval."""
        limits, more = self.temperature_limits(level), self._with_more_errors(level)
        on_scale = limits[0] <= 1 <= limits[1]
        low, high = self._root_limits(self._gain, self.delta, self._near(on_scale), level)
        if_true = [loss for loss in map(self.model.divergence, limits) if loss is not None]
        low, high = min([low, more.delta, *if_true]), max([high, more.delta, *if_true])
        return Interval(self.lost, 0.0 if on_scale else low / self.unit, high / self.unit, level)

    def usable_interval(self, level: float = 0.95) -> Interval:
        """Return usable information with its interval, in [0, 1]."""
        worth = self.worth(self.usable, self._best)
        below, above = intervals.skew_interval(worth, level, self.cluster)
        if np.isinf(self._likelihood_limits(level)[1]):
            # Usable information is the gain over a uniform guess, and near 0 its root is normal.
            near = self._error_at_zero(*self.model.slopes_of_nothing())
            root = self._root_limits(worth * self.unit, max(self.usable, 0.0) * self.unit, near, level)
            above = max(above, root[1] / self.unit - self.usable)
        least = 1 - self._with_more_errors(level).best / self.unit
        if self.cluster is not None:  # few clusters that are all right by chance: see `_linear_high`
            least = min(least, self.model.information(self.temperature_limits(level)[1]) / self.unit)
        low = max(min(self.usable + below, least), 0.0)
        return Interval(self.usable, low, min(self.usable + above, 1.0), level)

    def lost_centre(self, level: float = 0.95) -> float:
        """Return lost information without the bias of noise, for differences."""
        limits = self.temperature_limits(level)
        near = self._near(limits[0] <= 1 <= limits[1])
        # For rewards on the right scale, delta is near² χ²/2 with one degree of freedom, of median 0.455.
        return max(self.delta - 0.455 * near**2 / 2, 0.0) / self.unit

    def temperature_limits(self, level: float) -> Limits:
        """Return the limits of the temperature; the upper one may be infinite."""
        low, high = self._likelihood_limits(level)
        high = max(high, self._with_more_errors(level).temperature, self._linear_high(level))
        return min(low, self._with_fewer_errors(level)), self._skewed_high(high, level)

    def _skewed_high(self, high: float, level: float) -> float:
        """Return the upper limit of T, moved to where the interval of the mean slope excludes 0.

        Wrong choices with large margins are rare and weigh much, so a sample may miss them. The interval of the mean
        slope is corrected for skewness; one step of Newton's method is enough.
        """
        if self.fit.at_limit is not None or not np.isfinite(high):
            return high
        slope, curvature = self.model.slopes(high)
        mean, curved = float(slope.mean()), float(curvature.mean())
        (_, most), holds = intervals.skew_limits(mean, mean_error(slope, self.cluster), level)
        if most <= 0 or not holds or curved <= 0:
            return high
        return high * float(np.exp(min(most / curved, 700.0)))

    def _linear_high(self, level: float) -> float:
        """Return the upper limit of T from the standard error of 1/T, by clusters; 0 without them.

        Few clusters that are all right by chance make the likelihood too sure that T is small.
        """
        if self.cluster is None or self.fit.at_limit is not None:
            return 0.0
        curvature = float(self._slopes[1].mean())
        margin = self._slope_error().margin(level) / max(curvature, 1e-300)  # relative
        return self.fit.temperature / (1 - margin) if margin < 1 else np.inf

    @cached_property
    def _likelihood_limits(self) -> Callable[[float], Limits]:
        return lru_cache(self._find_limits)

    def _find_limits(self, level: float) -> Limits:
        n, best = self.n, float(self._best.mean())
        width = student_quantile(level, np.inf) ** 2 / 2 * self.wider_factor(level)

        @lru_cache
        def excess(log_t: float) -> float:
            return float(self.model.losses(float(np.exp(log_t))).mean() - best) * n - width

        low, middle, high = -REWARD_RANGE[1], float(np.log(self.fit.temperature)), -REWARD_RANGE[0]
        if excess(middle) > 0:  # the best temperature is beyond the range, as for rewards of 1e100
            return (
                (self.fit.temperature, np.inf) if self.fit.at_limit == "hot" else (0.0, self.fit.temperature)
            )
        curvature = 0.0 if self.fit.at_limit else n * float(self._slopes[1].mean())
        # That of a parabola, and a little more.
        step = 1.2 * np.sqrt(2 * width / curvature) if curvature > 0 else np.inf
        low, high = (
            _walk(lambda log_t: excess(log_t) > 0, middle, *way) for way in ((-step, low), (step, high))
        )
        below = 0.0 if excess(low) <= 0 else float(np.exp(find_root(excess, low, middle, tolerance=1e-10)))
        above = (
            np.inf if excess(high) <= 0 else float(np.exp(find_root(excess, middle, high, tolerance=1e-10)))
        )
        return below, above

    def wider_factor(self, level: float) -> float:
        """Return `variance_factor`, and more with few clusters, which estimate it poorly: (t/z)² times as much.

        Without clusters, the likelihood itself says how much the slopes vary.
        """
        if self.cluster is None:
            return self.variance_factor()
        t, z = (student_quantile(level, freedom) for freedom in (self._slope_error().freedom, np.inf))
        return self.variance_factor() * (t / z) ** 2

    def _slope_error(self) -> MeanError:
        return mean_error(self._slopes[0], self.cluster)

    def variance_factor(self) -> float:
        """Return how much more the slopes vary than if the forecasts at T̂ were true; at least that of independence."""
        if self.fit.at_limit is not None or self.n < 2:
            return prompts_per_observation(np.zeros(self.n), self.cluster)
        slope, curvature = self._slopes
        spread = self.n * mean_error(slope, self.cluster).se ** 2
        curved = float(curvature.mean())
        return max(self.model.independent, spread / curved) if curved > 0 else self.model.independent

    @cached_property
    def _with_more_errors(self) -> Callable[[float], _More]:
        return lru_cache(self._fit_more)

    def _fit_more(self, level: float) -> _More:
        """Fit the temperature to losses with more wrong choices than were seen: as many as an exact interval allows.

        The loss of a wrong choice exceeds that of a right one by the margin of their rewards over T.
        """
        margin = intervals.frequency_distances(*self.model.margins(), level, self.cluster)[0]
        fit = find_temperature(lambda beta: self.model.mean_slope(beta) + margin, near=self.fit.temperature)
        now = float(self._now.mean())
        if fit.at_limit == "cold":
            best = float(self.model.losses(0.0).mean())
            return _More(0.0, best, max(now - best, 0.0))
        best = float(self.model.losses(fit.temperature).mean()) + margin / fit.temperature
        return _More(fit.optimum, best, max(now + margin - best, 0.0))

    def _with_fewer_errors(self, level: float) -> float:
        """Return the temperature with as few wrong choices as an exact interval of their frequency allows.

        Where hardly any choice is wrong, T is given only for samples that have one: too many for their size.
        """
        margin = intervals.frequency_distances(*self.model.margins(), level, self.cluster)[1]
        near = self.fit.temperature
        return find_temperature(lambda beta: self.model.mean_slope(beta) - margin, near=near).optimum

    def _near(self, on_scale: bool) -> float:
        return self._error_at_zero(*self.model.slopes(1.0)) if on_scale else 0.0

    def _error_at_zero(self, slope: FloatArray, curvature: FloatArray) -> float:
        """Return the standard error of √(2 delta) for delta near 0, from slopes and curvatures there."""
        if len(slope) < 2 or not curvature.mean() > 0:
            return 0.0
        return mean_error(slope, self.cluster).se / float(np.sqrt(curvature.mean()))

    def _root_limits(self, gain: FloatArray, delta: float, near: float, level: float) -> Limits:
        """Return the limits of delta from s = √(2 delta), with standard error se(gain)/s or ``near``."""
        root = float(np.sqrt(2 * delta))
        error = mean_error(gain, self.cluster)
        away = error.se / root if len(gain) > 1 and root > 1e-9 else 0.0
        margin = student_quantile(level, error.freedom) * max(near, away)
        return max(0.0, root - margin) ** 2 / 2, (root + margin) ** 2 / 2


@dataclass(frozen=True)
class _More:
    """The best temperature, its loss, and the loss of T = 1 beyond it, if more choices were wrong."""

    temperature: float
    best: float
    delta: float

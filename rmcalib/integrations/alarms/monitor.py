"""The engine of all alarms: a mean over prompts, tested again and again without losing its error level.

A look is a step, or as many steps as bring `FEWEST` labelled prompts. At every look, the mean of a statistic over the
whole run, over the last ``window`` looks and over the last four windows is compared with a margin: a Student test with
prompts as clusters, because a prompt that returns keeps its hidden difficulty.

The error budget α is spent equally over the looks up to a horizon H: half of it over the first H looks, half of the
rest over the next 2H, and so on, so that late drifts are found and a run may have any length. The limit of each look
follows from the budget that was spent (Lan and DeMets 1983): 40,000 random walks without a drift, with the variances
of the looks so far, are followed beside the run. The limit is the number that the wanted fraction of them exceeds at
this look for the first time. Walks of prompts that return are correlated more than these, so that their maximum is
smaller (Slepian's inequality).

A reference that was fitted on few prompts is off by the same amount at every look. Its error is bounded once, with a
fifth of α, and the bound is added to the margin.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, stdtrit

from rmcalib._util.arrays import FloatArray
from rmcalib.integrations.alarms.check import COLUMNS, Check, Sums
from rmcalib.metrics.views import FEWEST
from rmcalib.repair import Calibrator

REFERENCE_SHARE = 0.2
"""The share of the error budget for the error of a reference, or of a start."""
HORIZON = 100
"""Looks over which the first half of the budget is spent."""
LONGER = 4
"""How many windows the longer window has."""
_WALKS = 40_000
Walks = npt.NDArray[np.float32]


@dataclass
class Moments:
    """Sums of the rows of `Sums`, and of their products, kept up to date without adding up everything again."""

    rows: FloatArray = field(default_factory=lambda: np.zeros((0, COLUMNS)))
    """By the numbers of prompts."""
    prompts: int = 0
    totals: FloatArray = field(default_factory=lambda: np.zeros(COLUMNS))
    products: FloatArray = field(default_factory=lambda: np.zeros(3))
    """Of residual², residual · samples, samples²."""

    def add(self, sums: Sums) -> None:
        """Add the sums of further samples."""
        missing = int(sums.prompt.max(initial=-1)) + 1 - len(self.rows)
        if missing > 0:
            self.rows = np.pad(self.rows, ((0, missing + len(self.rows)), (0, 0)))
        old = self.rows[sums.prompt]
        both = old + sums.values
        self.rows[sums.prompt] = both
        self.prompts += int((old[:, 1] == 0).sum())
        self.totals += sums.values.sum(axis=0)
        self.products += _products(both) - _products(old)


def _products(rows: FloatArray) -> FloatArray:
    residual, samples = rows[:, 0], rows[:, 1]
    return np.array([residual @ residual, residual @ samples, samples @ samples])


@dataclass(frozen=True)
class Mean:
    """A mean over samples with its standard error, and its derivatives by the slope and shift of a reference."""

    value: float
    error: float
    slope: FloatArray
    prompts: int

    @classmethod
    def of(cls, n: int, totals: FloatArray, products: FloatArray) -> Mean:
        """Return the mean from sums over n prompts, with prompts as clusters."""
        total = totals[1]
        value = totals[0] / total
        spread = products[0] - 2 * value * products[1] + value**2 * products[2]
        between = max(float(spread), 0.0) * n / max(n - 1, 1)
        # Few samples may all agree by chance: never less than the variance that was stated.
        error = float(np.sqrt(max(between, totals[2])) / total)
        return cls(float(value), error, totals[3:] / total, n)

    @classmethod
    def over(cls, sums: Sums) -> Mean:
        """Return the mean of sums."""
        return cls.of(len(sums.prompt), sums.values.sum(axis=0), _products(sums.values))


def spent(looks: int, horizon: int = HORIZON) -> float:
    """Return the fraction of the error budget that is spent after some looks.

    >>> spent(0), spent(100), spent(300), spent(50)
    (0.0, 0.5, 0.75, 0.25)
    """
    ahead = 1 + looks / horizon
    doublings = int(np.log2(ahead))
    rest = 0.5**doublings
    return 1 - rest + rest / 2 * (ahead * rest - 1)


@dataclass
class Boundary:
    """The limits of a test at every look, in standard errors of a normal mean; see the module."""

    alpha: float
    horizon: int
    windows: tuple[int, ...]
    looks: int = 0
    _sums: list[Walks] = field(default_factory=list, repr=False)
    _variances: list[float] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        """Start the walks."""
        self._rng = np.random.default_rng(0)
        self._now: Walks = np.zeros(_WALKS, dtype=np.float32)
        self._alive = np.ones(_WALKS, dtype=bool)
        self._sums.append(self._now)
        self._variances.append(0.0)

    def limit(self, variance: float) -> float:
        """Return the limit of the next look, which adds a step of this variance to the walks."""
        self.looks += 1
        noise = self._rng.standard_normal(_WALKS, dtype=np.float32)
        self._now = self._now + np.float32(np.sqrt(variance)) * noise
        self._sums.append(self._now)
        self._variances.append(self._variances[-1] + variance)
        longest = max(self.windows)
        del self._sums[: -longest - 1]
        del self._variances[: -longest - 1]
        largest = self._now / np.float32(np.sqrt(self._total()))
        for window in self.windows:
            start = max(len(self._sums) - 1 - window, 0)
            wide = self._variances[-1] - self._variances[start]
            np.maximum(largest, (self._now - self._sums[start]) / np.float32(np.sqrt(wide)), out=largest)
        largest[~self._alive] = -np.inf
        most = max(int(self.alpha * spent(self.looks, self.horizon) * _WALKS) - int((~self._alive).sum()), 0)
        if most == 0:
            return float(np.inf)
        limit = float(np.partition(largest, _WALKS - most - 1)[_WALKS - most - 1])
        self._alive &= largest <= limit
        return limit

    def _total(self) -> float:
        return self._variances[-1] or 1.0


@dataclass
class Monitor:
    """Follows one statistic of a run, and keeps its alarms.

    Parameters
    ----------
    check : Check
        What is followed.
    alpha : float
        The chance of any false alarm of this kind over the whole run.
    margin : float
        Means up to this size raise no alarm.
    window : int
        How many of the last looks are also tested by themselves.
    both_sides : bool
        Whether too small is an alarm as well.
    horizon : int
        Looks over which half of the budget is spent.
    """

    check: Check
    alpha: float
    margin: float
    window: int = 10
    both_sides: bool = False
    horizon: int = HORIZON
    reference: Calibrator | None = None
    alarms: list[dict[str, Any]] = field(default_factory=list)
    extra: float = 0.0
    """What was added to the margin at the last look, for the error of the reference or of the start."""
    reach: float | None = None
    """What the mean over the run would have to exceed at the last look."""
    _is_old: bool = False
    _limit: float = float("inf")
    _steps: dict[float, Sums] = field(default_factory=dict, repr=False)
    _waiting: list[float] = field(default_factory=list, repr=False)
    _looks: list[Sums] = field(default_factory=list, repr=False)
    _begins: list[float] = field(default_factory=list, repr=False)
    """The first step of each look."""
    _start: list[Sums] = field(default_factory=list, repr=False)
    _all: Moments = field(default_factory=Moments, repr=False)
    _holds: set[int] = field(default_factory=set, repr=False)

    def __post_init__(self) -> None:
        """Share the budget between the sides."""
        self.signs = self.check.sides if self.both_sides else self.check.sides[:1]
        tested = self.alpha * (1 - REFERENCE_SHARE) / len(self.signs)
        self._boundary = Boundary(tested, self.horizon, (self.window, LONGER * self.window))

    @property
    def looks(self) -> int:
        """The number of looks so far."""
        return self._boundary.looks

    def add(self, step: float, sums: Sums | None) -> None:
        """Add the sums of a step, and test if it completes a look. A step that is replaced is tested by `settle`."""
        if step in self._steps:
            self._is_old = True
            del self._steps[step]
        if sums is None or not len(sums.prompt):
            return
        self._steps[step] = sums
        if self._is_old:
            return
        self._waiting.append(step)
        look = self._next_look()
        if look is not None:
            self._all.add(look)
            self._boundary_step(look)
            self._test(step)

    def remove(self, step: float) -> None:
        """Take a step out of the evidence. The looks that were made stay counted."""
        if self._steps.pop(step, None) is not None:
            self._rebuild()

    def drop_alarms(self) -> None:
        """Forget the alarms; one that still holds at the next look is raised then."""
        self.alarms.clear()
        self._holds.clear()

    def settle(self) -> None:
        """Add up everything again after steps were replaced, and test once."""
        if not self._is_old:
            return
        self._is_old = False
        self._rebuild()
        if self._looks:
            # Looks that were missed count as made.
            new = self._looks[self._boundary.looks :] or self._looks[-1:]
            for look in new:
                self._boundary_step(look)
            self._test(max(self._steps))

    def _rebuild(self) -> None:
        self._waiting, self._looks, self._begins, self._start, self._all = [], [], [], [], Moments()
        for step in sorted(self._steps):
            self._waiting.append(step)
            self._next_look()
        self._all.add(Sums.merged(self._looks))

    def _next_look(self) -> Sums | None:
        """Return the steps that are waiting as a look, if they have enough prompts and are not part of the start."""
        look = Sums.merged([self._steps[step] for step in self._waiting])
        if len(look.prompt) < FEWEST:
            return None
        begin, self._waiting = self._waiting[0], []
        if self.check.from_start and len(self._start) < self.window:
            self._start.append(look)
            return None
        self._looks.append(look)
        self._begins.append(begin)
        return look

    def _boundary_step(self, look: Sums) -> None:
        error = Mean.over(look).error * float(look.values[:, 1].sum())
        self._limit = self._boundary.limit(max(error**2, 1e-12))

    def _test(self, step: float) -> None:
        limit = self._limit
        means = {"run": Mean.of(self._all.prompts, self._all.totals, self._all.products)}
        begins = {"run": self._begins[0]}
        for window in (self.window, LONGER * self.window):
            if window < len(self._looks):
                means[f"last {window} looks"] = Mean.over(Sums.merged(self._looks[-window:]))
                begins[f"last {window} looks"] = self._begins[-window]
        if self.check.from_start:  # what was long ago says nothing about now
            means = {over: mean for over, mean in means.items() if over != "run"} or means
        newest = means.get(f"last {self.window} looks", next(iter(means.values())))
        start, start_error, start_prompts = self._of_start()
        for sign in self.signs:
            crossed = []
            for over, mean in means.items():
                extra = self._of_reference(mean.slope)
                extra += (
                    float(stdtrit(max(start_prompts - 1, 1), 1 - REFERENCE_SHARE * self.alpha)) * start_error
                )
                self.extra = extra
                far = float(stdtrit(mean.prompts - 1, ndtr(limit))) if np.isfinite(limit) else np.inf
                beyond = self._margin(start) + extra + far * mean.error
                self.reach = beyond if over == "run" else self.reach
                size = sign * (mean.value - start)
                if size > beyond:
                    about = {
                        "over": over,
                        "first_step": begins[over],
                        "value": mean.value - start,
                        "error": mean.error,
                        "limit": beyond,
                    }
                    crossed.append({**about, "margin": self._margin(start) + extra, "prompts": mean.prompts})
            self._note(step, sign, crossed, sign * (newest.value - start) <= self._margin(start))

    def _note(self, step: float, sign: int, crossed: list[dict[str, Any]], is_over: bool) -> None:
        """Keep an alarm, once for each direction until the newest window is back within the margin.

        Later alarms are those of the newest window: longer ones still contain what was reported.
        """
        if is_over:
            self._holds.discard(sign)
        direction = "above" if sign > 0 else "below"
        if any(alarm["direction"] == direction for alarm in self.alarms):
            crossed = [mean for mean in crossed if mean["over"] == f"last {self.window} looks"]
        if crossed and sign not in self._holds:
            self._holds.add(sign)
            about = {"step": step, "what": self.check.name, "direction": direction}
            alarm = {**about, **crossed[0], "look": self.looks}
            self.alarms.append({**alarm, "reason": self.check.sentence(alarm)})

    def _margin(self, start: float) -> float:
        """Return the margin; that of a change may be a fraction of the start."""
        margin = self.margin if self.check.margin is None else self.check.margin
        return margin * abs(start) if self.check.relative else margin

    def _of_start(self) -> tuple[float, float, int]:
        if not self.check.from_start:
            return 0.0, 0.0, 2
        mean = Mean.over(Sums.merged(self._start))
        return mean.value, mean.error, mean.prompts

    def _of_reference(self, slope: FloatArray) -> float:
        """Return the bound of the error of the reference, for a mean with these derivatives."""
        reference = self.reference
        if reference is None or reference.covariance is None or not slope.any():
            return 0.0
        return reference_bound(reference, slope, self.alpha)


def reference_bound(reference: Calibrator, slope: FloatArray, alpha: float) -> float:
    """Return what the error of a fitted reference may add to a mean with these derivatives by slope and shift."""
    error = float(np.sqrt(max(slope @ np.array(reference.covariance) @ slope, 0.0)))
    freedom = max(reference.fitted_on.get("clusters", np.inf) - 2, 1)
    return float(stdtrit(freedom, 1 - REFERENCE_SHARE * alpha / 2)) * error

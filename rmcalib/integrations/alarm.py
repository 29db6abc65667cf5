"""An alarm that stays valid however often one looks at a training run.

Two statements are tested at every look, on all samples so far and on the last ``window`` steps:

- gap: the mean of (stated probability − correct) is within ± margin of 0;
- order: of a correct and a wrong response to one prompt, the preferred one is correct as often as the rewards
  say, or at most a margin less often. σ(|r_i − r_j|/T) is the stated probability.

Each test is a Student test of a mean, with prompts as clusters: a prompt that returns is one cluster, whatever
the number of its samples, because its hidden difficulty stays. Look k spends α/(k (k + 1)), half for the gap
and half for the order, half of each for all samples and half for the window. The sum over all looks is α, so
the chance of any false alarm is at most α (a union bound: looks may depend on each other in any way).

A reference that was fitted on few prompts is off by the same amount at every look. Its error is bounded once,
with a fifth of α, and the bound is added to the margin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.metrics.views import decided_pairs
from rmcalib.repair import Calibrator

FEWEST = 20
"""The smallest number of prompts for a test."""
REFERENCE_SHARE = 0.2
"""The share of 1 − level for the error of a reference."""


@dataclass(frozen=True)
class Sums:
    """Sums over the samples of each prompt of a step: the prompts by number, and one row of values for each.

    The columns of ``values`` (prompts, 3 + q): stated − observed; the number of samples; p(1 − p); and the
    derivatives of the stated probabilities by the q parameters of the reference.
    """

    prompt: IntArray
    values: FloatArray

    @classmethod
    def of(cls, prompt: IntArray, columns: Iterable[FloatArray]) -> Sums:
        """Add up the rows of each prompt."""
        own, index = np.unique(prompt, return_inverse=True)
        totals = [np.bincount(index, column, len(own)) for column in columns]
        return cls(own, np.column_stack(totals).astype(np.float64))


class Mean(NamedTuple):
    """A mean of residuals with its standard error, clustered by prompt; ``n`` is the number of prompts.

    ``slope`` (q,) are its derivatives by the parameters of the reference.
    """

    value: float
    error: float
    slope: FloatArray
    n: int


def mean_of(sums: Sums) -> Mean | None:
    """Return the mean of the residuals; None for too few prompts."""
    n, totals = len(sums.prompt), sums.values.sum(axis=0)
    if n < FEWEST:
        return None
    residual, count = sums.values[:, 0], sums.values[:, 1]
    value = float(totals[0] / totals[1])
    between = float(((residual - value * count) ** 2).sum()) * n / (n - 1)
    # Few samples may all agree by chance: never less than the variance that was stated.
    variance = max(between, float(totals[2])) / totals[1] ** 2
    return Mean(value, float(np.sqrt(variance)), totals[3:] / totals[1], n)


@dataclass
class Alarm:
    """Follows the gap and the order within prompts of a run, and keeps the first alarm.

    Parameters
    ----------
    level : float
        1 − the chance of any false alarm over the whole run.
    margin : float
        Gaps up to this size raise no alarm.
    window : int
        How many of the last steps are also tested by themselves.
    reference : Calibrator, optional
        What the stated probabilities are made of. If it was fitted, its covariance allows for its error.
    """

    level: float = 0.95
    margin: float = 0.03
    window: int = 10
    reference: Calibrator | None = None
    alarm: dict[str, Any] | None = None
    looks: int = 0
    _steps: dict[str, dict[float, Sums]] = field(default_factory=lambda: {"gap": {}, "order": {}})
    _all: dict[str, Sums] = field(default_factory=dict)

    def add(self, step: float, gap: Sums, order: Sums) -> None:
        """Add a step, or replace it, and test."""
        means: dict[tuple[str, str], Mean | None] = {}
        for what, new in (("gap", gap), ("order", order)):
            steps = self._steps[what]
            is_next = len(steps) > 0 and step not in steps
            steps[step] = new
            self._all[what] = _merged([self._all[what], new] if is_next else [*steps.values()])
            last = _merged([steps[one] for one in sorted(steps)[-self.window :]])
            means[what, "run"] = mean_of(self._all[what])
            means[what, f"last {self.window} steps"] = mean_of(last)
        tested = {about: mean for about, mean in means.items() if mean is not None}
        self.looks += bool(tested)
        for (what, over), mean in tested.items():
            self._test(step, what, over, mean)

    def _test(self, step: float, what: str, over: str, found: Mean) -> None:
        from scipy.special import stdtrit

        alpha, beyond = 1 - self.level, self.margin
        reference = self.reference
        if reference is not None and reference.covariance is not None:
            q = len(found.slope)  # the order depends on the slope of the reference only
            covariance = np.array(reference.covariance)[:q, :q]
            error = float(np.sqrt(found.slope @ covariance @ found.slope))
            freedom = max(reference.fitted_on.get("clusters", np.inf) - 2, 1)
            beyond += float(stdtrit(freedom, 1 - REFERENCE_SHARE * alpha / 4)) * error
            alpha *= 1 - REFERENCE_SHARE
        alpha /= 4 * self.looks * (self.looks + 1)
        beyond += float(stdtrit(found.n - 1, 1 - alpha / 2)) * found.error
        size = abs(found.value) if what == "gap" else found.value
        if self.alarm is None and size > beyond:
            about = {"step": step, "what": what, "over": over, "value": found.value, "error": found.error}
            self.alarm = {**about, "limit": beyond, "prompts": found.n, "look": self.looks}


def gap_sums(prompt: IntArray, p: FloatArray, y: FloatArray, x: FloatArray) -> Sums:
    """Return the sums of p − y over the samples of each prompt; x (N,) are the log-odds of p."""
    spread = p * (1 - p)
    return Sums.of(prompt, [p - y, np.ones(len(p)), spread, spread * x, spread])


def pair_sums(prompt: IntArray, y: FloatArray, x: FloatArray) -> Sums:
    """Return the means over pairs of a correct and a wrong sample of each prompt: one value per prompt.

    Stated is σ(|x_i − x_j|), observed whether the one with the larger x is correct (a tie counts 1/2).
    """
    from scipy.special import expit

    order = np.argsort(prompt, kind="stable")
    prompt, y, x = prompt[order], y[order], x[order]
    one, other = decided_pairs(np.unique(prompt, return_inverse=True)[1], y)
    d = x[one] - x[other]
    p = np.asarray(expit(np.abs(d)))
    spread = p * (1 - p)
    sums = Sums.of(prompt[one], [p - np.heaviside(d, 0.5), np.ones(len(d)), spread, spread * np.abs(d)])
    count = sums.values[:, [1]]
    # The mean of a prompt counts once, and its variance falls with the number of pairs.
    return Sums(sums.prompt, sums.values / count / np.where(np.arange(4) == 2, count, 1.0))


def _merged(parts: list[Sums]) -> Sums:
    """Add up the sums of each prompt."""
    prompt = np.concatenate([one.prompt for one in parts])
    return Sums.of(prompt, np.concatenate([one.values for one in parts]).T)

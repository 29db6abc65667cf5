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

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.metrics.views import FEWEST, decided_pairs
from rmcalib.repair import Calibrator

REFERENCE_SHARE = 0.2
"""The share of 1 − level for the error of a reference."""


@dataclass(frozen=True)
class Sums:
    """Sums over the samples of each prompt, by number: one row of ``values`` (prompts, 5) for each.

    The columns are the residual (stated − observed), the number of samples, the variance p(1 − p) that was stated,
    and the derivatives of the stated p by the slope and the shift of the reference.
    """

    prompt: IntArray
    values: FloatArray

    @classmethod
    def of(cls, prompt: IntArray, values: FloatArray) -> Sums:
        """Add up the rows of each prompt."""
        own, index = np.unique(prompt, return_inverse=True)
        totals = [np.bincount(index, column, len(own)) for column in values.T]
        return cls(own, np.column_stack(totals).astype(np.float64))


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
        """Add a step, or replace it, and test. The sums are those of `gap_sums` and `pair_sums`."""
        found = {}
        for what, new in (("gap", gap), ("order", order)):
            steps = self._steps[what]
            is_next = len(steps) > 0 and step not in steps
            steps[step] = new
            self._all[what] = _merged([self._all[what], new] if is_next else [*steps.values()])
            found[what, "run"] = self._all[what]
            last = [steps[one] for one in sorted(steps)[-self.window :]]
            found[what, f"last {self.window} steps"] = _merged(last)
        tested = {about: sums for about, sums in found.items() if len(sums.prompt) >= FEWEST}
        self.looks += bool(tested)
        for (what, over), sums in tested.items():
            self._test(step, what, over, sums)

    def _test(self, step: float, what: str, over: str, sums: Sums) -> None:
        from scipy.special import stdtrit

        residual, samples, variance = sums.values.T[:3]
        n, total = len(sums.prompt), samples.sum()
        value = float(residual.sum() / total)
        between = float(((residual - value * samples) ** 2).sum()) * n / (n - 1)
        # Few samples may all agree by chance: never less than the variance that was stated.
        error = float(np.sqrt(max(between, variance.sum())) / total)
        alpha, beyond, reference = 1 - self.level, self.margin, self.reference
        if reference is not None and reference.covariance is not None:
            slope = sums.values[:, 3:].sum(axis=0) / total
            its_error = float(np.sqrt(slope @ np.array(reference.covariance) @ slope))
            freedom = max(reference.fitted_on.get("clusters", np.inf) - 2, 1)
            beyond += float(stdtrit(freedom, 1 - REFERENCE_SHARE * alpha / 4)) * its_error
            alpha *= 1 - REFERENCE_SHARE
        alpha /= 4 * self.looks * (self.looks + 1)
        beyond += float(stdtrit(n - 1, 1 - alpha / 2)) * error
        size = abs(value) if what == "gap" else value
        if self.alarm is None and size > beyond:
            about = {"step": step, "what": what, "over": over, "value": value, "error": error}
            self.alarm = {**about, "limit": beyond, "prompts": n, "look": self.looks}


def gap_sums(prompt: IntArray, p: FloatArray, y: FloatArray, x: FloatArray) -> Sums:
    """Return the sums of samples with stated probabilities p, their log-odds x, and outcomes y."""
    spread = p * (1 - p)
    return Sums.of(prompt, np.column_stack([p - y, np.ones(len(p)), spread, spread * x, spread]))


def pair_sums(prompt: IntArray, y: FloatArray, x: FloatArray) -> Sums:
    """Return the same of pairs of a correct and a wrong sample of a prompt; the mean of a prompt counts once.

    Stated is σ(|x_i − x_j|), observed whether the one with the larger x is correct (a tie counts 1/2).
    """
    from scipy.special import expit

    order = np.argsort(prompt, kind="stable")
    prompt, y, x = prompt[order], y[order], x[order]
    one, other = decided_pairs(np.unique(prompt, return_inverse=True)[1], y)
    d = x[one] - x[other]
    sums = gap_sums(prompt[one], np.asarray(expit(np.abs(d))), np.heaviside(d, 0.5), np.abs(d))
    n_pairs = sums.values[:, 1].copy()
    sums.values[:] /= n_pairs[:, None]
    sums.values[:, 2] /= n_pairs  # the variance of a mean falls with the number of pairs
    sums.values[:, 4] = 0.0  # a difference does not depend on the shift
    return sums


def _merged(parts: Sequence[Sums]) -> Sums:
    """Add up the sums of each prompt."""
    prompt = np.concatenate([one.prompt for one in parts])
    return Sums.of(prompt, np.concatenate([one.values for one in parts]))

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

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.metrics.views import decided_pairs
from rmcalib.repair import Calibrator

if TYPE_CHECKING:
    import pandas

FEWEST = 20
"""The smallest number of prompts for a test."""
REFERENCE_SHARE = 0.2
"""The share of 1 − level for the error of a reference."""


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
    _steps: dict[str, dict[float, pandas.DataFrame]] = field(default_factory=lambda: {"gap": {}, "order": {}})
    _all: dict[str, pandas.DataFrame] = field(default_factory=dict)

    def add(self, step: float, gap: pandas.DataFrame, order: pandas.DataFrame) -> None:
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
        tested = {about: sums for about, sums in found.items() if len(sums) >= FEWEST}
        self.looks += bool(tested)
        for (what, over), sums in tested.items():
            self._test(step, what, over, sums)

    def _test(self, step: float, what: str, over: str, sums: pandas.DataFrame) -> None:
        from scipy.special import stdtrit

        n, total = len(sums), sums.sum()
        value = float(total["residual"] / total["samples"])
        between = float(((sums["residual"] - value * sums["samples"]) ** 2).sum()) * n / (n - 1)
        # Few samples may all agree by chance: never less than the variance that was stated.
        error = float(np.sqrt(max(between, total["variance"])) / total["samples"])
        alpha, beyond, reference = 1 - self.level, self.margin, self.reference
        if reference is not None and reference.covariance is not None:
            slope = (total[["by_slope", "by_shift"]] / total["samples"]).to_numpy()
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


def gap_sums(prompt: IntArray, p: FloatArray, y: FloatArray, x: FloatArray) -> pandas.DataFrame:
    """Return sums over the samples of each prompt, for stated probabilities p with log-odds x, and outcomes y.

    The columns are residual (p − y), samples (their number), variance p(1 − p), and the derivatives of p by the
    slope and the shift of the reference.
    """
    import pandas

    spread = p * (1 - p)
    columns = {
        "residual": p - y,
        "samples": 1.0,
        "variance": spread,
        "by_slope": spread * x,
        "by_shift": spread,
    }
    return pandas.DataFrame(columns).groupby(prompt).sum()


def pair_sums(prompt: IntArray, y: FloatArray, x: FloatArray) -> pandas.DataFrame:
    """Return the same of pairs of a correct and a wrong sample of a prompt; the mean of a prompt counts once.

    Stated is σ(|x_i − x_j|), observed whether the one with the larger x is correct (a tie counts 1/2).
    """
    from scipy.special import expit

    order = np.argsort(prompt, kind="stable")
    prompt, y, x = prompt[order], y[order], x[order]
    one, other = decided_pairs(np.unique(prompt, return_inverse=True)[1], y)
    d = x[one] - x[other]
    sums = gap_sums(prompt[one], np.asarray(expit(np.abs(d))), np.heaviside(d, 0.5), np.abs(d))
    means = sums.div(sums["samples"], axis=0)
    means["variance"] /= sums["samples"]  # it falls with the number of pairs
    return means.assign(by_shift=0.0)  # a difference does not depend on the shift


def _merged(parts: list[pandas.DataFrame]) -> pandas.DataFrame:
    """Add up the sums of each prompt."""
    import pandas

    return pandas.concat(parts).groupby(level=0).sum()

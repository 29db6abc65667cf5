"""A reference that is fitted on the first prompts of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rmcalib.integrations.alarms.monitor import reference_bound
from rmcalib.metrics.views import FEWEST, whole_part
from rmcalib.repair.calibrator import Calibrator, fit_pointwise
from rmcalib.scores.rollouts import StepSamples
from rmcalib.scores.rollouts.samples import scores_of

FIRST_FIT = 200
"""Labelled prompts before which a reference is not fitted, unless the user says so."""
DECISIVE = 4 * FIRST_FIT
"""Labelled prompts after which rewards that were taken as log-odds are not something else."""
# T and b of log-odds are not surely beyond these, however wrong they are.
_T, _B = 2.0, 4.0
_NARROWEST = 0.01  # a reference need not be better than this, however small the margin


@dataclass
class StartFit:
    """Collects labelled samples until the error of b and T is at most the margin.

    Parameters
    ----------
    margin, alpha : float
        Of the alarm about the gap.
    prompts : int, optional
        How many labelled prompts the user asks for.
    """

    margin: float
    alpha: float
    prompts: int | None = None
    _steps: dict[float, StepSamples] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Say how many prompts are needed."""
        self._needs = self.prompts or FIRST_FIT

    @property
    def waiting(self) -> int:
        """How many labelled prompts are still needed."""
        return max(self._needs - self._n_prompts(), 1)

    def remove(self, step: float) -> None:
        """Leave a step out."""
        self._steps.pop(step, None)

    def add(self, samples: StepSamples) -> Calibrator | None:
        """Add the labelled samples of a step; return the reference if they suffice."""
        before = self._n_prompts()
        self._steps[samples.step] = samples.take(~np.isnan(samples.label))
        n = self._n_prompts()
        if n <= before and n >= FEWEST:  # the same prompts return: there will be no more
            return self._fitted()
        if n < self._needs:
            return None
        return self._fitted(None if self.prompts is not None else max(self.margin, _NARROWEST))

    def _n_prompts(self) -> int:
        return _count_prompts(self._steps.values())

    def _fitted(self, most: float | None = None) -> Calibrator | None:
        """Fit b and T, if their error adds at most ``most``; otherwise say how many more prompts are needed."""
        whole = whole_part(scores_of([*self._steps.values()], "start", "the first steps"))
        fitted = fit_pointwise(whole)
        if most is not None:
            x = (whole.reward - (fitted.threshold or 0.0)) / fitted.temperature
            spread = 1 / (2 + 2 * np.cosh(x))
            bound = reference_bound(fitted, np.array([(spread * x).mean(), spread.mean()]), self.alpha)
            if bound > most:
                n = self._n_prompts()
                self._needs = max(int(n * min((bound / most) ** 2, 2.0)), n + FEWEST)
                return None
        return replace(fitted, reference=(float(whole.reward.min()), float(whole.reward.max())))


def is_another_scale(steps: Mapping[float, StepSamples]) -> bool | None:
    """Return whether rewards that were taken as log-odds are something else; None if labels do not show it yet.

    T and b of the first labelled prompts decide. They are surely beyond their limits, or surely within, or, from
    200 prompts, likely within. Otherwise twice and four times as many prompts decide.
    """
    for most in (FIRST_FIT, 2 * FIRST_FIT, DECISIVE):
        first: list[StepSamples] = []
        for _, samples in sorted(steps.items()):
            first.append(samples.take(~np.isnan(samples.label)))
            if _count_prompts(first) >= most:
                break
        fitted = fit_pointwise(whole_part(scores_of(first, "start", "the first steps")))
        t, b = fitted.temperature, fitted.threshold
        b_low, b_high = fitted.threshold_low, fitted.threshold_high
        assert b is not None
        assert b_low is not None
        assert b_high is not None
        if fitted.low > _T or fitted.high < 1 / _T or b_low > _B or b_high < -_B:
            return True
        if fitted.low >= 1 / _T and fitted.high <= _T and b_low >= -_B and b_high <= _B:
            return False
        if _count_prompts(first) < most:
            return None
        if 1 / _T <= t <= _T and -_B <= b <= _B:
            return False
    return False


def _count_prompts(steps: Iterable[StepSamples]) -> int:
    return len({prompt for samples in steps for prompt in samples.labelled_prompts.tolist()})

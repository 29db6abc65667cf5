"""Data sets drawn under alternatives of growing miscalibration."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration._draws import draw_sums, expected_sums
from rmcalib.calibration._outcomes import Outcomes
from rmcalib.calibration._rare import outcome_limits

__all__ = ["DRAWS", "FEWER_DRAWS", "FEWER_STEPS", "STEPS", "rare_errors", "simulate"]

Steps = tuple[tuple[float, int], ...]

STEPS: Steps = ((1.0, 8), (3.0, 4), (8.0, 2))
"""Sizes of the alternatives, as multiples of the observed miscalibration: 8 steps up to 1, 4 up to 3, ..."""
FEWER_STEPS: Steps = ((1.0, 4), (3.0, 2), (8.0, 1))
"""The same for errors that take longer to compute."""
DRAWS = 400
"""Data sets drawn under each alternative, at most."""
FEWER_DRAWS = 200
"""The same for errors that take longer to compute."""


def simulate(
    outcomes: Outcomes,
    probabilities: Callable[[float], FloatArray],
    errors: Callable[[FloatArray], FloatArray],
    true_error: Callable[[FloatArray], FloatArray],
    *,
    steps: Steps,
    resamples: int,
    rng: np.random.Generator | int,
    most: int = DRAWS,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return errors drawn under the null (R,) and under alternatives (S, D), and their true errors (S,).

    ``probabilities`` maps the size of an alternative to the probabilities of the outcomes (A,). They are
    computed at the ends of ``steps``; the alternatives between two ends are mixtures of both. ``errors`` maps
    sums (..., q) to errors, ``true_error`` expected sums to true errors. D is at most ``most``. See
    `draw_sums`.
    """
    sizes, n_steps = zip(*steps, strict=True)
    ends = [probabilities(size) for size in (0.0, *sizes)]
    generator = np.random.default_rng(rng)
    null, drawn = draw_sums(outcomes, ends, n_steps, resamples=resamples, most=most, rng=generator)
    expected = expected_sums(outcomes, ends)
    mixed = [expected[0][None]]
    for n, before, after in zip(n_steps, expected[:-1], expected[1:], strict=True):
        mixed.append(before + np.arange(1, n + 1)[:, None] / n * (after - before))
    truths = np.maximum.accumulate(true_error(np.concatenate(mixed)))
    return errors(null), errors(drawn).T, truths - truths[0]


def rare_errors(
    outcomes: Outcomes,
    probability: FloatArray,
    happened: FloatArray,
    true_error: Callable[[FloatArray], FloatArray],
) -> Callable[[float], tuple[float, float]]:
    """Return the function that maps a level to the true errors with fewer and with more wrong choices.

    ``probability`` and ``happened`` (A,) belong to the outcomes; see `outcome_limits`.
    """

    def at(level: float) -> tuple[float, float]:
        shares = outcome_limits(probability, happened, outcomes.sizes, level)
        fewer, more = true_error(np.maximum(expected_sums(outcomes, shares), 0.0))
        return float(fewer), float(more)

    return at

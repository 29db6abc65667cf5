"""Data sets drawn under alternatives of growing miscalibration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_integer, chunks
from rmcalib.calibration._nulls import SmallInts, choose_rows

__all__ = ["DRAWS", "FEWER_DRAWS", "FEWER_STEPS", "STEPS", "Outcomes", "simulate"]

Steps = tuple[tuple[float, int], ...]

STEPS: Steps = ((1.0, 8), (3.0, 4), (8.0, 2))
"""Sizes of the alternatives, as multiples of the observed miscalibration: 8 steps up to 1, 4 up to 3, ..."""
FEWER_STEPS: Steps = ((1.0, 4), (3.0, 2), (8.0, 1))
"""The same for errors that take longer to compute."""
DRAWS = 400
"""Data sets drawn under each alternative, at most."""
FEWER_DRAWS = 200
"""The same for errors that take longer to compute."""


class Outcomes(Protocol):
    """What `simulate` needs to know about mutually exclusive outcomes, as `OutcomeGroups` has it."""

    @property
    def sizes(self) -> IntArray:
        """Number of outcomes of each group (G,)."""

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        """Sums (R, n_steps, q) over outcomes (R, G) that happened, by ``step`` (R, G)."""

    def expected(self, q: FloatArray) -> FloatArray:
        """Expected sums (q,) for outcomes with probabilities q (A,)."""


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
    """Draw errors under the null (R,) and under alternatives (S, D), and return the true errors (S,).

    ``probabilities`` maps the size of an alternative to the probabilities of the outcomes (A,). They are
    computed at the ends of ``steps``; the alternatives between two ends are mixtures: of each group, an
    outcome of the one end or of the other. One pass over the draws then serves all alternatives: each group
    has a random step at which it changes from one end to the other. ``most`` limits the number D.
    """
    resamples = check_integer(resamples, "resamples", 1)
    generator = np.random.default_rng(rng)
    (mixer,) = generator.spawn(1)
    ends = [probabilities(size) for size in (0.0, *(size for size, _ in steps))]
    n_groups, once = len(outcomes.sizes), np.zeros((1, 1), dtype=np.int32)
    null, parts = np.empty(resamples), []
    for part in chunks(resamples, n_groups):
        uniform = generator.random((part.stop - part.start, n_groups), dtype=np.float32)
        rows = choose_rows(uniform, ends[0], outcomes.sizes)
        null[part] = errors(outcomes.counts(rows, once, 1)[:, 0])
        kept = min(part.stop, most) - part.start
        if kept <= 0:
            continue
        mixing = mixer.random((kept, n_groups), dtype=np.float32)
        drawn, after = [null[part][:kept, None]], None
        for (_, n_steps), q in zip(steps, ends[1:], strict=True):
            step = (mixing * n_steps).astype(np.int32)
            if after is None:
                before = outcomes.counts(rows[:kept], step, n_steps)
            else:  # numbers of steps are powers of 2: a step here is several of those before
                before = after.reshape(kept, n_steps, -1, after.shape[-1]).sum(axis=2)
            rows = choose_rows(uniform[:kept], q, outcomes.sizes)
            after = outcomes.counts(rows, step, n_steps)
            drawn.append(errors(before.sum(axis=1, keepdims=True) + np.cumsum(after - before, axis=1)))
        parts.append(np.concatenate(drawn, axis=1))
    expected = [outcomes.expected(q) for q in ends]
    mixed = [expected[0][None]]
    for (_, n_steps), before, after in zip(steps, expected[:-1], expected[1:], strict=True):
        mixed.append(before + np.arange(1, n_steps + 1)[:, None] / n_steps * (after - before))
    truths = np.maximum.accumulate(true_error(np.concatenate(mixed)))
    return null, np.concatenate(parts).T, truths - truths[0]

"""Intervals and tests of calibration errors, by simulating alternatives and inverting.

Sampling noise pushes a calibration error up, so quantiles of resampled errors lie too high. Instead, outcomes
are drawn under alternatives whose miscalibration has the observed shape and a growing size: none, the
observed one, and more. The interval holds the true errors of all alternatives under which the observed error
is not extreme. The alternative without miscalibration is the null of `ece_null`, so that interval and test
agree. The interval is united with the one for smooth statistics, which is right for large errors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_groups, check_choice, check_integer, chunks
from rmcalib.calibration._binning import (
    BinSums,
    Discrepancy,
    ErrorOptions,
    Norm,
    Spacing,
    as_bins,
    bin_edges,
    bin_index,
    binned_error,
    grouped_sums,
    unpack_bins,
)
from rmcalib.calibration._ece import as_forecast
from rmcalib.calibration._intervals import (
    Interval,
    binned_worlds,
    bootstrap_sums,
    check_level,
    recentred_interval,
    resampled_sums,
    skew_interval,
    student_quantile,
)
from rmcalib.calibration._nulls import (
    Draw,
    NullTest,
    OutcomeGroups,
    choose_rows,
    compare_with_null,
    is_one_per_group,
    sorted_rows,
)

__all__ = ["Inference", "binned_inference", "ece_interval", "simulate"]

IntervalMethod = Literal["inverted", "recentred", "percentile"]
Steps = tuple[tuple[float, int], ...]

STEPS: Steps = ((1.0, 8), (3.0, 4), (8.0, 2))
"""Sizes of the alternatives, as multiples of the observed miscalibration: 8 steps up to 1, 4 up to 3, ..."""
FEWER_STEPS: Steps = ((1.0, 4), (3.0, 2), (8.0, 1))
"""The same for errors that take longer to compute."""
DRAWS = 400
"""The largest number of data sets drawn under an alternative."""
_INFINITE = 1e6  # factor on expected sums that makes them those of unlimited data


@dataclass(frozen=True)
class Inference:
    """A calibration error with what its interval, its null test and differences need.

    Attributes
    ----------
    value: the observed error.
    null: (R,) errors under outcomes drawn from the forecast itself.
    draws: (S, D) errors drawn under S alternatives of growing size; the first one is the null.
    truths: (S,) the true errors of the alternatives.
    influence: (G,) how much each group contributes to the deviation of the value; sums to 0.
    largest: the largest possible error.
    square: an unbiased estimate of the squared error and its standard error, for debiased errors.
    """

    value: float
    null: FloatArray
    draws: FloatArray
    truths: FloatArray
    influence: FloatArray
    largest: float = 1.0
    square: tuple[float, float] | None = None

    def test(self) -> NullTest:
        """Return the test of calibration: how often a calibrated forecast shows so large an error."""
        return compare_with_null(self.value, self.null)

    def interval(self, level: float = 0.95) -> Interval:
        """Return the interval; it excludes 0 exactly if the test's p-value is at most 1 − level."""
        check_level(level)
        alpha = round(1 - level, 12)
        below, above = self._smooth_limits(level)
        smallest, largest = np.quantile(self.draws, [alpha / 2, 1 - alpha / 2], axis=1)
        # Quantiles grow with the size of the alternative; running maxima remove the noise of the simulation.
        high = float(np.interp(self.value, np.maximum.accumulate(smallest), self.truths))
        high = max(min(max(high, above), self.largest), self.value)
        if self.test().p_value > alpha:
            return Interval(self.value, 0.0, high, level, len(self.null))
        # No error is smaller than 0, so calibration itself is tested on one side.
        rank = int(alpha * (len(self.null) + 1) + 1e-9)
        largest[0] = np.partition(self.null, -rank)[-rank]
        low = float(np.interp(self.value, np.maximum.accumulate(largest), self.truths))
        low = min(low, below) if below > 0 else low
        return Interval(self.value, min(max(low, 1e-3 * self.value), self.value), high, level, len(self.null))

    def _smooth_limits(self, level: float) -> tuple[float, float]:
        """Limits of the error as if it were a smooth function of means."""
        if self.square is None:
            below, above = skew_interval(self.influence * len(self.influence), level)
            return self.value + below, self.value + above
        middle, margin = self.square[0], student_quantile(level, len(self.influence)) * self.square[1]
        return float(np.sqrt(max(middle - margin, 0.0))), float(np.sqrt(max(middle + margin, 0.0)))


def ece_interval(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    draw: Draw = "auto",
    resamples: int = 1000,
    level: float = 0.95,
    method: IntervalMethod = "inverted",
    rng: np.random.Generator | int = 0,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
) -> Interval:
    """Return the binned calibration error with a confidence interval.

    Sampling noise only ever adds to an ECE, so quantiles of resampled errors lie too high and never reach 0,
    even for a calibrated forecast. The default method asks instead which true errors make the observed one
    likely: see `binned_inference`. ``results/statistics.md`` has the measured coverage.

    Parameters
    ----------
    probabilities: (n,) forecasts in [0, 1].
    outcomes: (n,) 1 if the event happened, 0 otherwise.
    groups: (n,) labels of rows that belong together, such as the responses to one prompt.
    draw: how outcomes are simulated, as for `ece_null`.
    resamples: number of simulated data sets, or of bootstrap resamples.
    level: confidence level.
    method: "inverted" simulates alternatives and inverts. "recentred" does the same with resampled bin sums
        whose observed gaps are scaled; "percentile" takes quantiles of resampled errors. Bin edges stay those
        of the data.
    rng: generator or seed. With the same seed, "inverted" excludes 0 exactly if `ece_null` rejects.
    bins, spacing, discrepancy, norm, debias: as for `ece`.

    Returns
    -------
    Interval: the error and its limits.

    Examples
    --------
    >>> p = np.linspace(0.05, 0.95, 200)
    >>> y = np.random.default_rng(0).random(200) < p ** 2
    >>> interval = ece_interval(p, y)
    >>> 0 < interval.low < interval.value < interval.high
    True
    """
    check_choice(method, "method", ("inverted", "recentred", "percentile"))
    check_level(level)
    p, y = as_forecast(probabilities, outcomes)
    options = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    index = as_groups(groups, len(p))
    if method == "inverted":
        one = is_one_per_group(draw, groups, p, y)
        found = binned_inference(p, y, index, options, one_per_group=one, resamples=resamples, rng=rng)
        return found.interval(level)
    edges = bin_edges(p, options)
    sums = grouped_sums(p, y, index, bin_index(p, edges), len(edges) - 1)
    generator = np.random.default_rng(rng)
    if method == "percentile":
        return bootstrap_sums(
            sums,
            lambda rows: binned_error(unpack_bins(rows), options),
            resamples=resamples,
            level=level,
            rng=generator,
        )
    total, replicates = unpack_bins(sums.sum(axis=0)), unpack_bins(resampled_sums(sums, resamples, generator))
    alternatives = binned_worlds(total, replicates, options)
    return recentred_interval(float(binned_error(total, options)), *alternatives, level=level)


def binned_inference(
    p: FloatArray,
    y: FloatArray,
    groups: IntArray,
    options: ErrorOptions,
    *,
    one_per_group: bool,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Inference:
    """Return the inference of a binned error: its interval, null test, and what differences need.

    Under the alternative of size s, a row of bin b happens with probability p + s · gap_b, where gap_b is the
    observed frequency minus the mean forecast of the bin. With ``one_per_group`` these are scaled to sum to 1
    within each group and exactly one row happens; otherwise rows are independent.

    Parameters
    ----------
    p, y, groups: (N,) forecasts, 0/1 outcomes, and group numbers 0, ..., G − 1.
    options: how the error is computed.
    one_per_group: whether exactly one row of each group happens.
    resamples: data sets drawn under the null; at most 400 are drawn under each alternative.
    rng: generator or seed. The same seed gives the same null as `ece_null`.

    Returns
    -------
    Inference

    Examples
    --------
    >>> p, groups = np.tile([0.9, 0.1], 50), np.repeat(np.arange(50), 2)
    >>> y = np.where(np.arange(100) < 60, np.tile([1.0, 0.0], 50), np.tile([0.0, 1.0], 50))
    >>> found = binned_inference(p, y, groups, ErrorOptions(), one_per_group=True)
    >>> round(found.value, 3), found.test().p_value < 0.01, found.interval().low > 0.1
    (0.3, True, True)
    """
    order, groups = sorted_rows(p, y, groups)
    p, y = p[order], y[order]
    edges = bin_edges(p, options)
    n_bins, index = len(edges) - 1, bin_index(p, edges)
    sums = grouped_sums(p, y, groups, index, n_bins)
    total = unpack_bins(sums.sum(axis=0))
    gap = ((total.outcome - total.probability) / np.maximum(total.count, 1))[index]
    outcomes = OutcomeGroups.of_rows(groups, index, n_bins, one_per_group=one_per_group)

    def errors(happened: FloatArray, scale: float = 1.0) -> FloatArray:
        fixed = (np.broadcast_to(scale * x, happened.shape) for x in (total.count, total.probability))
        return binned_error(BinSums(*fixed, happened), options)

    null, draws, truths = simulate(
        outcomes,
        lambda size: outcomes.probabilities(p + size * gap),
        errors,
        lambda expected: errors(_INFINITE * expected, _INFINITE),
        steps=STEPS,
        resamples=resamples,
        rng=rng,
    )
    squared = options.debias and options.norm == 2 and len(sums) > 1
    return Inference(
        value=float(binned_error(total, options)),
        null=null,
        draws=draws,
        truths=truths,
        influence=binned_influence(sums, options),
        largest=1.0 if options.discrepancy in ("abs", "jeffreys_unit") else np.inf,
        square=_squared_error(sums) if squared else None,
    )


class Outcomes(Protocol):
    """What `simulate` needs to know about mutually exclusive outcomes, as `OutcomeGroups` has it."""

    @property
    def sizes(self) -> IntArray:
        """Number of outcomes of each group (G,)."""

    def counts(self, rows: IntArray, step: IntArray, n_steps: int) -> FloatArray:
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
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Draw errors under the null (R,) and under alternatives (S, D), and return the true errors (S,).

    ``probabilities`` maps the size of an alternative to the probabilities of the outcomes (A,). They are
    computed at the ends of ``steps``; the alternatives between two ends are mixtures: of each group, an
    outcome of the one end or of the other. One pass over the draws then serves all alternatives: each group
    has a random step at which it changes from one end to the other.
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
        kept = min(part.stop, DRAWS) - part.start
        if kept <= 0:
            continue
        mixing = mixer.random((kept, n_groups), dtype=np.float32)
        rows, drawn = rows[:kept], [null[part][:kept, None]]
        for (_, n_steps), q in zip(steps, ends[1:], strict=True):
            step = (mixing * n_steps).astype(np.int32)
            before = outcomes.counts(rows, step, n_steps)
            rows = choose_rows(uniform[:kept], q, outcomes.sizes)
            changes = outcomes.counts(rows, step, n_steps) - before
            drawn.append(errors(before.sum(axis=1, keepdims=True) + np.cumsum(changes, axis=1)))
        parts.append(np.concatenate(drawn, axis=1))
    expected = [outcomes.expected(q) for q in ends]
    mixed = [expected[0][None]]
    for (_, n_steps), before, after in zip(steps, expected[:-1], expected[1:], strict=True):
        mixed.append(before + np.arange(1, n_steps + 1)[:, None] / n_steps * (after - before))
    truths = np.maximum.accumulate(true_error(np.concatenate(mixed)))
    return null, np.concatenate(parts).T, truths - truths[0]


def binned_influence(sums: FloatArray, options: ErrorOptions) -> FloatArray:
    """Return the influence of each group (G,) on a binned error, for bin sums (G, 3B) of the groups.

    The derivative of the error by the total sums, times what the group adds to them.
    """
    total, step = sums.sum(axis=0), 1e-4
    moves = step * np.eye(len(total))
    up, down = (binned_error(unpack_bins(np.maximum(total + move, 0.0)), options) for move in (moves, -moves))
    influence: FloatArray = sums @ ((up - down) / (2 * step))
    return influence - influence.mean()


def _squared_error(sums: FloatArray) -> tuple[float, float]:
    """Estimate Σ_b π_b gap_b² without bias, and its standard error, for bin sums (G, 3B) of the groups.

    With z_gb the residual sum of group g in bin b, c_gb its number of rows, m the mean number of rows and π_b
    the fraction of rows in bin b: U = Σ_b [(Σ_g z_gb)² − Σ_g z_gb²] / (G(G − 1) π_b m²), a U-statistic.
    """
    count, probability, outcome = np.split(sums, 3, axis=1)
    filled = count.sum(axis=0) > 0
    count, z = count[:, filled], (outcome - probability)[:, filled]
    n, rows = len(sums), float(count.sum()) / len(sums)
    weight = count.sum(axis=0) / count.sum()
    total = z.sum(axis=0)
    value = float(((total**2 - (z**2).sum(axis=0)) / weight).sum()) / (n * (n - 1) * rows**2)
    mean = total / (n * rows)
    linear = (2 * mean * z / (weight * rows) - mean**2 * count / (weight**2 * rows)).sum(axis=1)
    cross = np.cov(z.T / rows, ddof=1).reshape(len(weight), -1) / np.sqrt(np.outer(weight, weight))
    variance = float(linear.var(ddof=1)) / n + 2 * float((cross**2).sum()) / n**2
    return value, float(np.sqrt(variance))

"""Calibration errors of event tables: binned ones, with null tests and intervals by simulation, and the smooth one.

The interval of a binned error is found by simulating and inverting: data sets are drawn whose miscalibration is a
multiple of the observed one, and the interval holds the true errors under which the observed error is not
extreme. The multiple 0 is the world of the null test, so interval and test agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, chunks
from rmcalib.calibration import binning, intervals, simulation, smoothing
from rmcalib.calibration import clusters as clustering
from rmcalib.calibration.binning import USUAL, BinSums, ErrorKeywords, ErrorOptions, binned_error
from rmcalib.calibration.estimates import Estimate, NullTest, compare_with_null
from rmcalib.calibration.events import Draw, Events, OneOf, Winners
from rmcalib.calibration.intervals import Interval, Limits
from rmcalib.calibration.simulation import Alternatives, Simulation

ONE_BIN = "all probabilities are in one bin, where this error is 0 whatever the rewards are worth"
TrueError = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Reliability:
    """The numbers of a reliability diagram, for B bins; ``pandas.DataFrame(vars(diagram))`` is a table of them.

    Attributes
    ----------
    low, high : float (B,)
        Edges of each bin.
    count : float (B,)
        Number of forecasts in the bin.
    confidence : float (B,)
        Their mean; NaN in empty bins.
    frequency : float (B,)
        How often the event happened; NaN in empty bins.
    """

    low: FloatArray
    high: FloatArray
    count: FloatArray
    confidence: FloatArray
    frequency: FloatArray


def ece(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    bins: int = 10,
    spacing: binning.Spacing = "width",
    discrepancy: binning.Discrepancy = "abs",
    norm: binning.Norm = 1,
    debias: bool = False,
) -> float:
    """Return the expected calibration error (ECE): Σ_b |I_b|/n · |freq(I_b) − conf(I_b)|.

    Bins are left-closed, with p = 1 in the last one.

    Parameters
    ----------
    probabilities : float (n,)
        Forecasts in [0, 1].
    outcomes : float (n,)
        1 if the event happened, 0 otherwise; fractions, such as those of votes, are allowed.
    bins : int
        Number of bins.
    spacing : {"width", "mass", "log"}
        Bins of equal width, of equal mass, or logarithmic from 1e-12.
    discrepancy : {"abs", "kl", "jeffreys", "jeffreys_unit"}
        How the frequency f and the mean forecast c of a bin are compared. "abs" is |f − c|. "kl" is the
        Bernoulli divergence KL(f‖c). "jeffreys" is J = KL(f‖c) + KL(c‖f) with f smoothed to
        (n₁ + ½)/(n + 1). "jeffreys_unit" is 1 − exp(−J), which lies in [0, 1).
    norm : {1, 2, "max"}
        Weighted mean over bins, root of the weighted mean square, or the largest.
    debias : bool
        Subtract the sampling variance f(1 − f)/(n − 1) from each squared difference ("abs" only).

    Returns
    -------
    float
        The error; 0 if every bin's frequency equals its mean forecast.

    Examples
    --------
    >>> ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1])
    0.1
    >>> ece([0.25, 0.25, 0.25, 0.25], [0, 0, 0, 1])
    0.0
    """
    options = ErrorOptions(bins, spacing, discrepancy, norm, debias)
    return event_error(Events.from_arrays(probabilities, outcomes), options)


def reliability(
    probabilities: ArrayLike, outcomes: ArrayLike, *, bins: int = 10, spacing: binning.Spacing = "width"
) -> Reliability:
    """Return the reliability diagram of forecasts of yes/no outcomes.

    Parameters
    ----------
    probabilities, outcomes, bins, spacing
        As for `ece`.

    Returns
    -------
    Reliability
        Edges, counts, mean forecasts and frequencies of the bins.

    Examples
    --------
    >>> diagram = reliability([0.2, 0.4, 0.9], [0, 1, 1], bins=2)
    >>> diagram.count, diagram.confidence.round(2), diagram.frequency
    (array([2., 1.]), array([0.3, 0.9]), array([0.5, 1. ]))
    """
    events = Events.from_arrays(probabilities, outcomes)
    edges, sums = _observed_sums(events, ErrorOptions(bins, spacing))
    count = np.where(sums.count > 0, sums.count, np.nan)
    return Reliability(edges[:-1], edges[1:], sums.count, sums.probability / count, sums.outcome / count)


def ece_null(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    draw: Draw = "auto",
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
    **options: Unpack[ErrorKeywords],
) -> NullTest:
    """Compare the binned error with its distribution under outcomes drawn from the forecast itself.

    Parameters
    ----------
    probabilities, outcomes : float (n,)
        As for `ece`.
    groups : array (n,), optional
        Labels of rows that belong together, such as the responses to one prompt.
    clusters : array (n,), optional
        Labels of groups that belong together, such as near-duplicate prompts.
    draw : Draw
        "one_per_group" draws exactly one row of each group, whose probabilities sum to 1; "independent" draws
        every row by itself; "auto" uses the former if the data has this form.
    resamples : int
        Number of simulated data sets.
    rng : numpy Generator or int
        Generator or seed.
    **options
        ``bins``, ``spacing``, ``discrepancy``, ``norm`` and ``debias``, as for `ece`.

    Returns
    -------
    NullTest
        The error, the mean and 95% point of its null distribution, and the p-value.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random(500)
    >>> bool(ece_null(p, rng.random(500) < p).p_value > 0.05), ece_null(p, np.ones(500)).p_value < 0.01
    (True, True)
    """
    how = ErrorOptions(**options)
    events = Events.from_arrays(probabilities, outcomes, groups=groups, draw=draw, clusters=clusters)
    return _binned(events, how, resamples, rng).test()


def ece_interval(
    probabilities: ArrayLike,
    outcomes: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    draw: Draw = "auto",
    resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    **options: Unpack[ErrorKeywords],
) -> Interval:
    """Return the binned calibration error with a confidence interval, by simulating and inverting.

    Sampling noise increases an ECE, so quantiles of resampled errors lie too high and never reach 0, even for
    a calibrated forecast. The interval holds the true errors that make the observed one likely.
    ``results/statistics.md`` has the measured coverage.

    Parameters
    ----------
    probabilities, outcomes, groups, clusters, draw, resamples, rng
        As for `ece_null`. With the same seed, the interval excludes 0 exactly if the test rejects.
    level : float
        Confidence level.
    **options
        ``bins``, ``spacing``, ``discrepancy``, ``norm`` and ``debias``, as for `ece`.

    Returns
    -------
    Interval
        The error and its limits.

    Examples
    --------
    >>> p = np.linspace(0.05, 0.95, 200)
    >>> y = np.random.default_rng(0).random(200) < p ** 2
    >>> interval = ece_interval(p, y)
    >>> 0 < interval.low < interval.value < interval.high
    True
    """
    intervals.check_level(level)
    how = ErrorOptions(**options)
    events = Events.from_arrays(probabilities, outcomes, groups=groups, draw=draw, clusters=clusters)
    simulated = _binned(events, how, resamples, rng)
    return Interval(simulated.value, *simulated.limits(level), level)


def smooth_ece(probabilities: ArrayLike, outcomes: ArrayLike) -> float:
    """Return the smooth ECE (Błasiok and Nakkiran 2024), which needs no bins and no bandwidth.

    The residuals y − p are smoothed along p by a Gaussian, reflected at 0 and 1; the error is the width σ at
    which the mean absolute smoothed residual is σ.

    Parameters
    ----------
    probabilities, outcomes : float (n,)
        As for `ece`.

    Returns
    -------
    float

    Examples
    --------
    >>> round(smooth_ece([0.1, 0.1, 0.9, 0.9], [0, 0, 1, 1]), 3)
    0.1
    """
    events = Events.from_arrays(probabilities, outcomes)
    return smoothing.smooth_error(events.p[events.observed], events.y[events.observed])


def consistency_band(
    events: Events,
    *,
    bins: int = 10,
    level: float = 0.95,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> tuple[FloatArray, FloatArray]:
    """Return where the bars (B,) of a reliability diagram would lie if the forecast were calibrated."""
    index = _bins_of(events, ErrorOptions(bins))
    alternatives, ends = events.joint.alternatives(index, bins), [events.joint.probabilities()]
    generator = np.random.default_rng(rng)
    happened, _ = simulation.draw_sums(alternatives, ends, (), resamples=resamples, most=0, rng=generator)
    effect = 1.0, np.inf
    if events.cluster is not None:
        effect = _design_effect(_prompt_sums(events, index, bins), events.cluster)
    wider = simulation.widening(effect, resamples, generator)
    if wider is not None:
        expected = simulation.expected_sums(alternatives, ends)
        happened = np.maximum(expected + wider[:, None] * (happened - expected), 0.0)
    count = np.bincount(index, minlength=bins).astype(np.float64)
    low, high = np.quantile(happened, [(1 - level) / 2, (1 + level) / 2], axis=0)
    nonempty = np.where(count > 0, count, np.nan)
    return low / nonempty, high / nonempty


def event_error(events: Events, options: ErrorOptions = USUAL) -> float:
    """Return the binned error of the observed events."""
    value = float(binned_error(_observed_sums(events, options)[1], options))
    return 0.0 if abs(value) < 1e-15 else value  # exactly 0 for perfectly calibrated data


def binned(
    events: Events,
    options: ErrorOptions = USUAL,
    *,
    resamples: int = 1000,
    rng: np.random.Generator | int = 0,
) -> Estimate:
    """Estimate the binned error of a table. It is simulated when the interval or the test is asked for."""
    made = lru_cache(lambda: _binned(events, options, resamples, rng))
    estimate = Estimate(
        event_error(events, options),
        events.n_prompts,
        limits=lambda level: made().limits(level),
        influence=lambda: made().influence,
        null=lambda: made().test(),
        centre=lambda: made().centre(),
        cluster=events.cluster,
    )
    if options.spacing != "width" or not len(events):
        return estimate
    count = np.bincount(binning.bin_index(events.p, binning.bin_edges(events.p, options)))
    fullest = float(count.max() / count.sum())
    if fullest == 1 and isinstance(events.joint, OneOf):  # exactly one event of each prompt happens
        return replace(estimate, null=None, fullest=fullest, note=ONE_BIN)
    return replace(estimate, fullest=fullest)


def error_influence(events: Events, options: ErrorOptions = USUAL) -> FloatArray:
    """Return the influence of each prompt (n,) on the binned error, without simulating anything."""
    return _influence(_prompt_sums(events, _bins_of(events, options), options.bins), options)


@dataclass(frozen=True, eq=False)
class _Simulated:
    """A calibration error with the simulated data sets behind its interval and its null test.

    ``influence`` (n,) is what each prompt contributes to the deviation of the error, ``square`` an unbiased
    estimate of a squared error with its standard error, ``unseen`` the largest error of a prompt that is
    unlike all observed ones, and ``rarely`` maps a level to the errors if as few and as many choices are
    wrong as their exact interval allows.
    """

    value: float
    simulation: Simulation
    influence: FloatArray
    cluster: IntArray | None
    rarely: Callable[[float], Limits] | None
    largest: float = 1.0
    square: tuple[float, float] | None = None
    unseen: float = 0.0

    def test(self) -> NullTest:
        """Return the test of calibration: how often a calibrated forecast shows so large an error."""
        return compare_with_null(self.value, self.simulation.null)

    def centre(self) -> float:
        """Return the error without the bias of noise: the one under which half of the draws exceed the value."""
        return simulation.invert(self.value, np.median(self.simulation.draws, axis=1), self.simulation.truths)

    def limits(self, level: float) -> Limits:
        """Return the interval; it excludes 0 exactly if the test's p-value is at most 1 − level."""
        drawn, truths, null = self.simulation.draws, self.simulation.truths, self.simulation.null
        alpha = round(1 - level, 12)
        below, above = self._smooth_limits(level)
        smallest, largest = np.quantile(drawn, [alpha / 2, 1 - alpha / 2], axis=1)
        high = simulation.invert(self.value, smallest, truths)
        # With probability 1 − alpha, at most this fraction of all prompts is unlike the observed ones.
        n = len(self.influence)
        n_seen = n / clustering.prompts_per_observation(np.zeros(n), self.cluster)
        rest = self.unseen * (1 - alpha ** (1 / n_seen))
        fewer, more = (self.value, 0.0) if self.rarely is None else self.rarely(level)
        high = max(min(max(high, above, rest, more), self.largest), self.value)
        if self.test().p_value > alpha:
            return 0.0, high
        # No error is smaller than 0, so calibration itself is tested on one side.
        rank = int(alpha * (len(null) + 1) + 1e-9)
        largest[0] = np.partition(null, -rank)[-rank]
        low = simulation.invert(self.value, largest, truths)
        # The simulations keep the number of forecasts in each bin, which a squared error depends on strongly.
        if below > 0 or self.square is not None:
            low = min(low, below)
        # The test rejects 0, even if nothing more is known.
        return min(max(min(low, fewer), 1e-3 * self.value), self.value), high

    def _smooth_limits(self, level: float) -> Limits:
        """Limits of the error as if it were a smooth function of means."""
        scaled = self.influence * len(self.influence)
        if self.square is None:
            below, above = intervals.skew_interval(scaled, level, self.cluster)
            return self.value + below, self.value + above
        freedom = clustering.mean_error(scaled, self.cluster).freedom
        middle, margin = self.square[0], clustering.student_quantile(level, freedom) * self.square[1]
        return float(np.sqrt(max(middle - margin, 0.0))), float(np.sqrt(max(middle + margin, 0.0)))


def _binned(
    events: Events, options: ErrorOptions, resamples: int, rng: np.random.Generator | int
) -> _Simulated:
    """Simulate the binned error.

    For size s, the miscalibrated worlds have probabilities p + s · gap of their bin (see
    `Joint.probabilities`).
    """
    index = _bins_of(events, options)
    sums = _prompt_sums(events, index, options.bins)
    total = binning.unpack_bins(sums.sum(axis=0))
    gap = (total.outcome - total.probability) / np.maximum(total.count, 1)
    pairs = isinstance(events.joint, Winners)
    scale = 1e6 if options.discrepancy == "abs" else 1.0  # bin sums of unlimited data, for debiased errors

    def errors(drawn: FloatArray, scale: float = 1.0) -> FloatArray:
        if pairs:  # which pairs are observed depends on who wins
            return binned_error(binning.unpack_bins(scale * drawn), options)
        count = np.broadcast_to(scale * total.count, drawn.shape)
        probability = np.broadcast_to(scale * total.probability, drawn.shape)
        return binned_error(BinSums(count, probability, scale * drawn), options)

    def true_error(expected: FloatArray) -> FloatArray:
        return errors(expected if pairs else np.minimum(expected, total.count), scale)

    alternatives = events.joint.alternatives(index, options.bins)
    n, squared = len(sums), options.debias and options.norm == 2
    influence, design_effect = _influence(sums, options), _design_effect(sums, events.cluster)
    by_cluster = clustering.by_cluster(sums, events.cluster) if squared else sums[:0]
    square = _squared_error(by_cluster) if len(by_cluster) > 1 else None
    del sums, by_cluster  # they are large
    lone = isinstance(events.joint, OneOf) and (total.count > 0).sum() == 1
    return _Simulated(
        value=event_error(events, options),
        simulation=simulation.simulate(
            alternatives,
            lambda size: events.joint.probabilities((size * gap)[index] if size else None),
            errors,
            true_error,
            resamples=resamples,
            rng=rng,
            design_effect=design_effect,
            fewer=pairs,
        ),
        influence=influence,
        cluster=events.cluster,
        rarely=_rare_errors(events, alternatives, true_error),
        largest=1.0 if options.discrepancy in ("abs", "jeffreys_unit") else np.inf,
        square=square,
        # Exactly one row of each prompt happens, so a single bin has no gap, whatever the forecast.
        unseen=2 * n / len(events) if lone else 0.0,
    )


def _rare_errors(
    events: Events, alternatives: Alternatives, true_error: TrueError
) -> Callable[[float], Limits] | None:
    """Return the function that maps a level to the true errors with fewer and with more wrong choices."""
    happened = events.joint.happened(events.y)
    if happened is None:
        return None
    sizes, cluster = alternatives.sizes, events.cluster
    if cluster is not None and len(sizes) > events.n_prompts:  # every row is decided by itself
        cluster = cluster[events.prompt]

    def at(level: float) -> Limits:
        shares = intervals.outcome_limits(events.joint.probabilities(), happened, sizes, level, cluster)
        fewer, more = true_error(np.maximum(simulation.expected_sums(alternatives, shares), 0.0))
        return float(fewer), float(more)

    return at


def _bins_of(events: Events, options: ErrorOptions) -> IntArray:
    """Return the bin of each row: (N,)."""
    return binning.bin_index(events.p, binning.bin_edges(events.p, options))


def _prompt_sums(events: Events, index: IntArray, bins: int) -> FloatArray:
    """Return the bin sums (n, 3B) of the observed rows of each prompt, for the bin of each row (N,)."""
    sums = np.empty((events.n_prompts, 3, bins))
    for part in chunks(events.n_prompts, 3 * bins):
        n = min(part.stop, events.n_prompts) - part.start
        rows = slice(*np.searchsorted(events.prompt, [part.start, part.start + n]))
        rows = rows.start + np.flatnonzero(events.observed[rows])
        cell = (events.prompt[rows] - part.start) * bins + index[rows]
        summed = binning.bin_sums(cell, events.p[rows], events.y[rows], n * bins)
        for place, values in enumerate((summed.count, summed.probability, summed.outcome)):
            sums[part, place] = values.reshape(n, -1)
    return sums.reshape(events.n_prompts, -1)


def _observed_sums(events: Events, options: ErrorOptions) -> tuple[FloatArray, BinSums]:
    """Return the edges of the bins, and the sums of the observed events."""
    edges, rows = binning.bin_edges(events.p, options), events.observed
    p, y = events.p[rows], events.y[rows]
    return edges, binning.bin_sums(binning.bin_index(p, edges), p, y, options.bins)


def _design_effect(sums: FloatArray, cluster: IntArray | None) -> tuple[float, float]:
    """Return the design effect of the bin sums (n, 3B) of the prompts, and its degrees of freedom."""
    bins = binning.unpack_bins(sums)
    return clustering.design_effect(bins.outcome - bins.probability, bins.count, cluster)


def _influence(sums: FloatArray, options: ErrorOptions) -> FloatArray:
    """Return the influence of each prompt (n,) on a binned error, for the bin sums (n, 3B) of the prompts."""
    scale = 1e6 if options.discrepancy == "abs" else 1.0
    total, step = scale * sums.sum(axis=0), 1e-4 * scale
    moved = np.concatenate([total + step * np.eye(len(total)), total - step * np.eye(len(total))])
    bins = binning.unpack_bins(np.maximum(moved, 0.0))
    bins = replace(bins, outcome=np.minimum(bins.outcome, bins.count))
    errors = binned_error(bins, options)
    up, down = np.split(errors, 2)
    influence: FloatArray = scale * (sums @ ((up - down) / (2 * step)))
    return influence - influence.mean()


def _squared_error(sums: FloatArray) -> tuple[float, float]:
    """Estimate Σ_b π_b gap_b² without bias, and its standard error, for bin sums (n, 3B) of the prompts.

    U = Σ_b [(Σ z_b)² − Σ z_b²] / (n(n − 1) π_b m²) with residual sums z of each prompt and m rows per prompt.
    """
    bins = binning.unpack_bins(sums)
    bins = bins[:, bins.count.sum(axis=0) > 0]
    count, z = bins.count, bins.outcome - bins.probability
    n, rows = len(sums), float(count.sum()) / len(sums)
    weight = count.sum(axis=0) / count.sum()
    total = z.sum(axis=0)
    value = float(((total**2 - (z**2).sum(axis=0)) / weight).sum()) / (n * (n - 1) * rows**2)
    mean = total / (n * rows)
    linear = (2 * mean * z / (weight * rows) - mean**2 * count / (weight**2 * rows)).sum(axis=1)
    cross = np.cov(z.T / rows, ddof=1).reshape(len(weight), -1) / np.sqrt(np.outer(weight, weight))
    variance = float(linear.var(ddof=1)) / n + 2 * float((cross**2).sum()) / n**2
    return value, float(np.sqrt(variance))

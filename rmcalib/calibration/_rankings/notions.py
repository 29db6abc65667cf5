"""The weak notions of the paper: rankwise, rankwise sub-k and rankwise top-k calibration."""

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import check_choice
from rmcalib.calibration._binning import Discrepancy, ErrorOptions, Norm, Spacing, as_bins
from rmcalib.calibration._ece import round_off
from rmcalib.calibration._intervals import Interval
from rmcalib.calibration._nulls import NullTest
from rmcalib.calibration._rankings.inputs import (
    MAX_EVENTS,
    NotionInputs,
    OpenEvents,
    Selection,
    Weighting,
    check_complete,
    check_orders_for,
    event_chunks,
    event_errors,
    event_sums,
    event_weights,
    n_bins,
)
from rmcalib.calibration._rankings.results import NotionProtocol, NotionResult
from rmcalib.calibration._rankings.uncertainty import RankwiseUncertainty
from rmcalib.ranking import PairMarginals, PartialRankings, RankingDistribution
from rmcalib.ranking.events import Family

__all__ = ["notion_interval", "notion_null", "rankwise", "sub_k", "top_k"]


def sub_k(
    dist: PairMarginals,
    orders: ArrayLike | PartialRankings,
    k: int,
    *,
    events: ArrayLike | None = None,
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    max_events: int = MAX_EVENTS,
    weighting: Weighting = "uniform",
    open_events: OpenEvents = "leave_out",
    protocol: NotionProtocol = "exact",
    support: ArrayLike | None = None,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
    rng: np.random.Generator | int = 0,
) -> NotionResult:
    """Return the rankwise sub-k calibration error (Definition 6 of the paper).

    For every sub-k event, an ordered choice of k items, the forecast gives the probability that these items
    are in this relative order. The error of the event is the binned ECE of that probability over instances.
    The result is the average over events.

    Parameters
    ----------
    dist : RankingDistribution, or PairMarginals for k = 2
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    k : int
        Number of items of an event, from 2 to m.
    events : int array (E, k), optional
        The events to average over. By default all of them, if there are at most ``max_events``.
    coverage : float, optional
        Average only over the most frequent events that together make up this fraction of all occurrences.
        The default is 0.95 if there are more than ``max_events`` events.
    counted_on : int array (N, m), optional
        Rankings in which events are counted, such as the training fold. By default they are counted in
        ``orders``, which makes rare events look more frequent than they are. ``null`` and ``interval`` of the
        result allow for that; the value alone does not.
    max_events : int
        Largest number of events for which all are used.
    weighting : {"uniform", "frequency", "probability"}
        Weights of the average over events: equal, by frequency in the data, or by mean probability.
    open_events : {"leave_out", "marginalise"}
        What to do where a partial ranking does not decide an event. "leave_out" leaves the instance out of
        that event. "marginalise" uses the probability of the event given what was observed
        (`conditional_probabilities`).
    protocol : {"exact", "reference"}
        "exact" follows the definition; "reference" does what the paper's public code does.
    support : int array (R, m), optional
        For the reference protocol: the rankings over which it sums.
    bins, spacing, discrepancy, norm, debias
        How the error of one event is computed, as in `ece`.
    rng : numpy Generator or int
        Used only if marginals have to be estimated by sampling.

    Returns
    -------
    NotionResult
        The error as ``value``; its methods ``null`` and ``interval`` give its uncertainty.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> result = sub_k(PlackettLuce([[2.0, 0.0, 0.0]] * 3), [[0, 1, 2]] * 3, 2)
    >>> round(result.value, 4), result.n_events
    (0.2461, 6)
    """
    error = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    selection = Selection(events, coverage, counted_on, max_events)
    checked = check_orders_for(dist, orders)
    inputs = NotionInputs(dist, checked, k, "sub", selection, weighting, error, open_events)
    return _evaluate(inputs, protocol, support, rng)


def top_k(
    dist: RankingDistribution,
    orders: ArrayLike | PartialRankings,
    k: int,
    *,
    events: ArrayLike | None = None,
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    max_events: int = MAX_EVENTS,
    weighting: Weighting = "uniform",
    open_events: OpenEvents = "leave_out",
    protocol: NotionProtocol = "exact",
    support: ArrayLike | None = None,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
    rng: np.random.Generator | int = 0,
) -> NotionResult:
    """Return the rankwise top-k calibration error (Definition 7 of the paper).

    As `sub_k`, for top-k events: the ranking starts with exactly these k items, in this order.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    k : int
        Number of items of an event, from 1 to m.
    events, coverage, counted_on, max_events, weighting, open_events, protocol, support
        Which events and how they are averaged, as in `sub_k`.
    bins, spacing, discrepancy, norm, debias
        How the error of one event is computed, as in `ece`.
    rng : numpy Generator or int
        Used only if marginals have to be estimated by sampling.

    Returns
    -------
    NotionResult
        The error as ``value``; its methods ``null`` and ``interval`` give its uncertainty.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> top_k(PlackettLuce([[0.0, 0.0]] * 4), [[0, 1], [0, 1], [0, 1], [1, 0]], 1).value
    0.25
    """
    error = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    selection = Selection(events, coverage, counted_on, max_events)
    checked = check_orders_for(dist, orders)
    inputs = NotionInputs(dist, checked, k, "top", selection, weighting, error, open_events)
    return _evaluate(inputs, protocol, support, rng)


def rankwise(
    dist: RankingDistribution,
    orders: ArrayLike | PartialRankings,
    *,
    events: ArrayLike | None = None,
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    max_events: int = MAX_EVENTS,
    weighting: Weighting = "uniform",
    open_events: OpenEvents = "leave_out",
    protocol: NotionProtocol = "exact",
    support: ArrayLike | None = None,
    bins: int | ArrayLike = 10,
    spacing: Spacing = "width",
    discrepancy: Discrepancy = "abs",
    norm: Norm = 1,
    debias: bool = False,
    rng: np.random.Generator | int = 0,
) -> NotionResult:
    """Return the rankwise calibration error (Definition 2 of the paper): every complete ranking is an event.

    This is `top_k` with k = m.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    events, coverage, counted_on, max_events, weighting, open_events, protocol, support
        Which events and how they are averaged, as in `sub_k`.
    bins, spacing, discrepancy, norm, debias
        How the error of one event is computed, as in `ece`.
    rng : numpy Generator or int
        Used only if marginals have to be estimated by sampling.

    Returns
    -------
    NotionResult
        The error as ``value``; its methods ``null`` and ``interval`` give its uncertainty.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> rankwise(PlackettLuce([[0.0, 0.0]] * 2), [[0, 1], [1, 0]]).value
    0.0
    """
    error = ErrorOptions(as_bins(bins), spacing, discrepancy, norm, debias)
    selection = Selection(events, coverage, counted_on, max_events)
    checked = check_orders_for(dist, orders)
    inputs = NotionInputs(dist, checked, dist.n_items, "top", selection, weighting, error, open_events)
    return _evaluate(inputs, protocol, support, rng)


def notion_null(
    dist: RankingDistribution,
    orders: ArrayLike | PartialRankings,
    k: int,
    family: Family,
    *,
    resamples: int = 200,
    rng: np.random.Generator | int = 0,
    events: ArrayLike | None = None,
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    max_events: int = MAX_EVENTS,
    weighting: Weighting = "uniform",
    open_events: OpenEvents = "leave_out",
    bins: int | ArrayLike = 10,
) -> NullTest:
    """Compare a sub-k or top-k error with its distribution under rankings drawn from the forecast itself.

    This is ``sub_k(...).null(...)`` or ``top_k(...).null(...)``, with the family as an argument.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened. With partial rankings, the same is observed of each drawn ranking: the same items, and
        ties of the same sizes.
    k : int
        Number of items of an event.
    family : {"sub", "top"}
        Which events.
    resamples : int
        Number of simulated data sets.
    rng : numpy Generator or int
        Source of randomness, or its seed.
    events, coverage, counted_on, max_events, weighting, open_events, bins
        As in `sub_k`. Events that are selected by their frequency in ``orders`` are selected again in
        every draw.

    Returns
    -------
    NullTest
        The error, the null's mean and 95% point, and the p-value of calibration.

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, confidence=3.0, rng=np.random.default_rng(0))
    >>> notion_null(data.forecast, data.orders, 2, "sub").p_value < 0.01
    True
    """
    selection = Selection(events, coverage, counted_on, max_events)
    error = ErrorOptions(as_bins(bins))
    checked = check_orders_for(dist, orders)
    inputs = NotionInputs(dist, checked, k, family, selection, weighting, error, open_events)
    return RankwiseUncertainty(inputs).null(resamples=resamples, rng=rng)


def notion_interval(
    dist: PairMarginals,
    orders: ArrayLike | PartialRankings,
    k: int,
    family: Family,
    *,
    resamples: int = 200,
    level: float = 0.95,
    rng: np.random.Generator | int = 0,
    events: ArrayLike | None = None,
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    max_events: int = MAX_EVENTS,
    weighting: Weighting = "uniform",
    open_events: OpenEvents = "leave_out",
    bins: int | ArrayLike = 10,
) -> Interval:
    """Return a sub-k or top-k error with its confidence interval.

    This is ``sub_k(...).interval(...)`` or ``top_k(...).interval(...)``, with the family as an argument.

    Parameters
    ----------
    dist : RankingDistribution, or PairMarginals for sub-2
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened.
    k : int
        Number of items of an event.
    family : {"sub", "top"}
        Which events.
    resamples : int
        Number of simulated data sets.
    level : float
        Probability that the interval contains the true error.
    rng : numpy Generator or int
        Source of randomness, or its seed.
    events, coverage, counted_on, max_events, weighting, open_events, bins
        As in `sub_k`.

    Returns
    -------
    Interval
        The error and its limits.

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(300, 3, rng=np.random.default_rng(0))
    >>> interval = notion_interval(data.forecast, data.orders, 2, "sub")
    >>> interval.low, bool(interval.value > 0)
    (0.0, True)
    """
    selection = Selection(events, coverage, counted_on, max_events)
    error = ErrorOptions(as_bins(bins))
    checked = check_orders_for(dist, orders)
    inputs = NotionInputs(dist, checked, k, family, selection, weighting, error, open_events)
    return RankwiseUncertainty(inputs).interval(resamples=resamples, level=level, rng=rng)


def _evaluate(
    inputs: NotionInputs,
    protocol: NotionProtocol,
    support: ArrayLike | None,
    rng: np.random.Generator | int,
) -> NotionResult:
    check_choice(protocol, "protocol", ("exact", "reference"))
    if protocol == "reference":
        return _evaluate_reference(inputs, support)
    if support is not None:
        raise ValueError("support: only for protocol='reference'; exact marginals need no list of rankings")
    events, how = inputs.choose()
    per_event, weights = np.empty(len(events)), np.empty(len(events))
    worst = 0.0
    for chunk in event_chunks(inputs, events, np.random.default_rng(rng)):
        sums = event_sums(chunk.bin_of, chunk.probabilities, chunk.outcomes, n_bins(inputs.error))
        per_event[chunk.columns] = event_errors(sums, inputs.error)
        weights[chunk.columns] = event_weights(inputs.weighting, sums)
        worst = max(worst, chunk.marginal_error)
    if weights.sum() == 0:
        if isinstance(inputs.orders, PartialRankings):
            raise ValueError(f"orders: the partial rankings decide none of the {len(events)} events")
        raise ValueError(
            f"weighting: {inputs.weighting!r} gives every one of the {len(events)} events weight 0"
        )
    weights /= weights.sum()
    value = round_off(float(weights @ per_event))
    return NotionResult(
        value,
        per_event,
        events,
        weights,
        inputs.family,
        inputs.k,
        len(inputs.dist),
        "exact",
        how,
        worst,
        RankwiseUncertainty(inputs),
    )


def _evaluate_reference(inputs: NotionInputs, support: ArrayLike | None) -> NotionResult:
    from rmcalib.calibration._rankings.reference import reference_notion

    chosen = inputs.selection
    given = {"events": chosen.events, "counted_on": chosen.counted_on}
    named = [name for name, value in given.items() if value is not None]
    if chosen.max_events != MAX_EVENTS:
        named.append("max_events")
    if named:
        raise ValueError(f"{', '.join(named)}: the reference protocol chooses its own events")
    return reference_notion(
        inputs.dist,
        check_complete(inputs.dist, inputs.orders, "the reference protocol"),
        inputs.k,
        inputs.family,
        coverage=chosen.coverage,
        weighting=inputs.weighting,
        support=support,
        error=inputs.error,
    )

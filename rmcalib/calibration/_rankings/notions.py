"""The weak notions of the paper: rankwise, rankwise sub-k and rankwise top-k, and the stagewise walk."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import check_choice
from rmcalib.calibration._binning import Discrepancy, ErrorOptions, Norm, Spacing, as_bins
from rmcalib.calibration._ece import round_off
from rmcalib.calibration._rankings.questions import (
    MAX_EVENTS,
    OpenEvents,
    Question,
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
from rmcalib.ranking.events import Family, check_k

__all__ = ["Stagewise", "rankwise", "stagewise", "sub_k", "top_k"]


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
    are in this relative order. The error of the event is the binned ECE of that probability over instances;
    the result is the average over events.

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
        Above ``max_events`` events it is 0.95.
    counted_on : int array (N, m), optional
        Rankings in which events are counted, such as the training fold. Without it they are counted in
        ``orders``, which makes rare events look more frequent than they are. ``null`` and ``interval`` of the
        result allow for that; the value alone does not.
    max_events : int
        Largest number of events that are all looked at.
    weighting : {"uniform", "frequency", "probability"}
        Weights of the average over events: equal, by frequency in the data, or by mean probability.
    open_events : {"leave_out", "marginalise"}
        What to do where a partial ranking does not settle an event. "leave_out" leaves the instance out of
        that event. "marginalise" takes the probability of the event given what was observed
        (:func:`rmcalib.ranking.conditional_probabilities`).
    protocol : {"exact", "reference"}
        "exact" follows the definition; "reference" does what the paper's public code does.
    support : int array (R, m), optional
        For the reference protocol: the rankings that its marginals are sums over.
    bins, spacing, discrepancy, norm, debias
        How the error of one event is computed, as in :func:`rmcalib.calibration.ece`.
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
    question = Question(dist, checked, k, "sub", selection, weighting, error, open_events)
    return _answer(question, protocol, support, rng)


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

    As :func:`sub_k`, with top-k events: the ranking starts with exactly these k items, in this order.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    k : int
        Number of items of an event, from 1 to m.
    events, coverage, counted_on, max_events, weighting, open_events, protocol, support
        Which events and how they are averaged, as in :func:`sub_k`.
    bins, spacing, discrepancy, norm, debias
        How the error of one event is computed, as in :func:`rmcalib.calibration.ece`.
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
    question = Question(dist, checked, k, "top", selection, weighting, error, open_events)
    return _answer(question, protocol, support, rng)


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
    """Return the rankwise calibration error (Definition 2 of the paper): every full ranking is an event.

    It is :func:`top_k` with k = m.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m) or PartialRankings
        What happened: the items of each instance, best first.
    events, coverage, counted_on, max_events, weighting, open_events, protocol, support
        Which events and how they are averaged, as in :func:`sub_k`.
    bins, spacing, discrepancy, norm, debias
        How the error of one event is computed, as in :func:`rmcalib.calibration.ece`.
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
    question = Question(dist, checked, dist.n_items, "top", selection, weighting, error, open_events)
    return _answer(question, protocol, support, rng)


class Stagewise(NamedTuple):
    """The outcome of :func:`stagewise`: the results for k = 2, 3, ... and a sentence on them."""

    results: tuple[NotionResult, ...]
    uncalibrated_from: int | None
    verdict: str


def stagewise(
    dist: RankingDistribution,
    orders: ArrayLike,
    *,
    k_max: int | None = None,
    threshold: float = 0.1,
    family: Family = "sub",
    coverage: float | None = None,
    counted_on: ArrayLike | None = None,
    weighting: Weighting = "uniform",
    bins: int | ArrayLike = 10,
    rng: np.random.Generator | int = 0,
) -> Stagewise:
    """Go through k = 2, 3, ... and stop where the error exceeds ``threshold``, as the paper advises.

    A model that is off on pairs is off on longer rankings too, although their ECE gets small simply because
    their probabilities do.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast: n instances, m items.
    orders : int array (n, m)
        What happened: the items of each instance, best first.
    k_max : int, optional
        Last k, by default m.
    threshold : float
        Largest error at which the walk goes on.
    family : {"sub", "top"}
        Which events.
    coverage, counted_on, weighting, bins, rng
        As in :func:`sub_k`.

    Returns
    -------
    Stagewise
        The results, the k at which the error is too large (None if there is none), and a sentence.

    Examples
    --------
    >>> from rmcalib.ranking import PlackettLuce
    >>> stagewise(PlackettLuce([[2.0, 0.0, 0.0]] * 3), [[0, 1, 2]] * 3).verdict
    'uncalibrated from k = 2 on: the sub-2 error of 0.246 is above 0.1'
    """
    last = check_k(dist.n_items if k_max is None else k_max, dist.n_items, family)
    ask = sub_k if family == "sub" else top_k
    results: list[NotionResult] = []
    for k in range(2, last + 1):
        result = ask(
            dist, orders, k, coverage=coverage, counted_on=counted_on, weighting=weighting, bins=bins, rng=rng
        )
        results.append(result)
        if result.value > threshold:
            verdict = (
                f"uncalibrated from k = {k} on: the {family}-{k} error of {result.value:.3f} "
                f"is above {threshold:g}"
            )
            return Stagewise(tuple(results), k, verdict)
    return Stagewise(tuple(results), None, f"no error above {threshold:g} up to k = {last}")


def _answer(
    question: Question,
    protocol: NotionProtocol,
    support: ArrayLike | None,
    rng: np.random.Generator | int,
) -> NotionResult:
    check_choice(protocol, "protocol", ("exact", "reference"))
    if protocol == "reference":
        return _reference_answer(question, support)
    if support is not None:
        raise ValueError("support: belongs to protocol='reference'; exact marginals need no list of rankings")
    events, how = question.choose()
    per_event, weights = np.empty(len(events)), np.empty(len(events))
    worst = 0.0
    for chunk in event_chunks(question, events, np.random.default_rng(rng)):
        sums = event_sums(chunk.bin_of, chunk.probabilities, chunk.outcomes, n_bins(question.error))
        per_event[chunk.columns] = event_errors(sums, question.error)
        weights[chunk.columns] = event_weights(question.weighting, sums)
        worst = max(worst, chunk.marginal_error)
    if weights.sum() == 0:
        if isinstance(question.orders, PartialRankings):
            raise ValueError(f"orders: the partial rankings settle none of the {len(events)} events")
        raise ValueError(
            f"weighting: {question.weighting!r} gives every one of the {len(events)} events weight 0"
        )
    weights /= weights.sum()
    value = round_off(float(weights @ per_event))
    return NotionResult(
        value,
        per_event,
        events,
        weights,
        question.family,
        question.k,
        len(question.dist),
        "exact",
        how,
        worst,
        RankwiseUncertainty(question),
    )


def _reference_answer(question: Question, support: ArrayLike | None) -> NotionResult:
    from rmcalib.calibration._rankings.reference import reference_notion

    chosen = question.selection
    given = {"events": chosen.events, "counted_on": chosen.counted_on}
    named = [name for name, value in given.items() if value is not None]
    if chosen.max_events != MAX_EVENTS:
        named.append("max_events")
    if named:
        raise ValueError(f"{', '.join(named)}: the reference protocol chooses its own events")
    return reference_notion(
        question.dist,
        check_complete(question.dist, question.orders, "the reference protocol"),
        question.k,
        question.family,
        coverage=chosen.coverage,
        weighting=question.weighting,
        support=support,
        error=question.error,
    )

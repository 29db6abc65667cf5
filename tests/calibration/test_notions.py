"""The notions of calibration for rankings, their null tests and intervals, compared with slow code."""

import math
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy.stats import dirichlet

from rmcalib.calibration import full_rank, rankwise, stagewise, sub_k, top_k
from rmcalib.ranking import (
    ExplicitRankings,
    Mallows,
    PairwiseProbabilities,
    PartialRankings,
    PlackettLuce,
    all_rankings,
    conditional_probabilities,
    ranks_from_orders,
)
from rmcalib.ranking import _mallows as mallows_module
from rmcalib.ranking.events import all_events, most_frequent
from rmcalib.ranking.synthetic import Synthetic, synthetic_mallows, synthetic_plackett_luce
from tests import oracles

NOTIONS: dict[str, Any] = {"sub": sub_k, "top": top_k}
BOTH = pytest.mark.parametrize("generate", [synthetic_plackett_luce, synthetic_mallows])


def data(n: int = 40, m: int = 4, confidence: float = 1.0, seed: int = 0) -> Synthetic:
    return synthetic_plackett_luce(n, m, confidence=confidence, rng=np.random.default_rng(seed))


def true_error(d: Synthetic, events: Any) -> float:
    pairs = zip(d.forecast.sub(events).T.tolist(), d.truth.sub(events).T.tolist(), strict=True)
    return float(np.mean([oracles.ece(p, q) for p, q in pairs]))


def pairwise(d: Synthetic) -> Any:
    matrix = np.full((len(d.orders), d.forecast.n_items, d.forecast.n_items), 0.5)
    for i, j in all_events(d.forecast.n_items, 2).tolist():
        matrix[:, i, j] = d.forecast.sub([[i, j]])[:, 0]
    return PairwiseProbabilities(matrix)


# Values.


@pytest.mark.parametrize("family", NOTIONS)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_notions_average_the_errors_of_events(family: str, k: int) -> None:
    d = data()
    result = NOTIONS[family](d.forecast, d.orders, k)
    densities = [oracles.plackett_luce(row) for row in d.forecast.log_utilities.tolist()]  # type: ignore[attr-defined]
    expected, share = [], []
    for event in all_events(4, k).tolist():
        p = [oracles.marginal(density, 4, event, family) for density in densities]
        y = [float(oracles.happens(tuple(order), event, family)) for order in d.orders.tolist()]
        expected.append(oracles.ece(p, y))
        share.append((np.mean(y), np.mean(p)))
    assert np.allclose(result.per_event, expected, atol=1e-9)
    assert result.value == pytest.approx(np.mean(expected))
    assert result.n_events == math.perm(4, k)
    for weighting, weights in zip(("frequency", "probability"), np.transpose(share), strict=True):
        weighted = NOTIONS[family](d.forecast, d.orders, k, weighting=weighting)
        assert weighted.value == pytest.approx(weights @ result.per_event / weights.sum())
    if (family, k) == ("top", 4):
        assert rankwise(d.forecast, d.orders).value == result.value


def test_coverage_chooses_events_and_drops_no_instance() -> None:
    d, train = data(200, 5), data(300, 5, seed=9)
    everything = sub_k(d.forecast, d.orders, 3)
    found = sub_k(d.forecast, d.orders, 3, coverage=0.5)
    counted = sub_k(d.forecast, d.orders, 3, coverage=0.8, counted_on=train.orders)
    limited = sub_k(d.forecast, d.orders, 3, max_events=50)
    for result, events in (
        (found, most_frequent(d.orders, 3, "sub", 0.5)),
        (counted, most_frequent(train.orders, 3, "sub", 0.8)),
        (limited, most_frequent(d.orders, 3, "sub", 0.95)),
    ):
        assert (result.events == events).all()
        assert result.n == 200
        where = [np.flatnonzero((everything.events == event).all(axis=1))[0] for event in events]
        assert np.allclose(result.per_event, everything.per_event[where])


def test_chunk_size_does_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    d = data(100, 5)
    whole = sub_k(d.forecast, d.orders, 3)
    strong = full_rank(d.forecast, d.orders, family="sub", k=3)
    monkeypatch.setattr("rmcalib._util.arrays.chunks.__defaults__", (700,))
    assert sub_k(d.forecast, d.orders, 3).value == pytest.approx(whole.value, abs=1e-14)
    assert full_rank(d.forecast, d.orders, family="sub", k=3).value == pytest.approx(strong.value, abs=1e-12)


def test_marginals_that_take_too_long_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    d = synthetic_mallows(30, 6, rng=np.random.default_rng(0))
    monkeypatch.setattr(mallows_module, "MAX_WORK", 10.0)
    with pytest.raises(ValueError, match="sub-3"):
        sub_k(d.forecast, d.orders, 3)


# Null tests and intervals.


@BOTH
def test_null_accepts_the_truth_and_rejects_a_distorted_forecast(generate: Any) -> None:
    for confidence, calibrated in ((1.0, True), (3.0, False), (0.2, False)):
        d = generate(1500, 4, confidence=confidence, rng=np.random.default_rng(5))
        for family, k in (("sub", 2), ("top", 1)):
            null = NOTIONS[family](d.forecast, d.orders, k).null(resamples=60)
            assert (null.p_value > 0.02) is calibrated, (confidence, family, k)


SELECTIONS: list[tuple[int, str, dict[str, Any]]] = [
    (3, "sub", {}),
    (3, "top", {"coverage": 0.9}),
    (3, "top", {"coverage": 0.5, "weighting": "frequency"}),
    (4, "sub", {"max_events": 50}),
]


@pytest.mark.parametrize(("k", "family", "options"), SELECTIONS)
@pytest.mark.parametrize("chunk", [None, 700])
def test_the_null_is_the_error_of_drawn_rankings_with_their_own_events(
    k: int, family: str, options: dict[str, Any], chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = data(40, 6)
    result = NOTIONS[family](d.forecast, d.orders, k, **options)
    draws = d.forecast.sample(20, np.random.default_rng(3))
    drawn = [NOTIONS[family](d.forecast, orders, k, **options).value for orders in draws]
    if chunk is not None:
        monkeypatch.setattr("rmcalib._util.arrays.chunks.__defaults__", (chunk,))
    null = result.null(resamples=20, rng=3)
    assert (null.value, null.mean) == pytest.approx((result.value, np.mean(drawn)), abs=1e-14)
    assert null.high == pytest.approx(np.quantile(drawn, 0.95), abs=1e-14)
    assert null.excess == pytest.approx(result.value - np.mean(drawn), abs=1e-14)


@pytest.mark.parametrize(("k", "family", "options"), SELECTIONS[1:])
def test_calibrated_forecasts_pass_however_the_events_are_chosen(
    k: int, family: str, options: dict[str, Any]
) -> None:
    rejected = excluded = 0
    for seed in range(8):
        d = data(60, 6, seed=seed)
        result = NOTIONS[family](d.forecast, d.orders, k, **options)
        rejected += result.null(resamples=39, rng=seed).p_value <= 0.05
        if seed < 3:
            excluded += result.interval(resamples=39, rng=seed).low > 0
    assert rejected <= 2
    assert excluded <= 1


@pytest.mark.parametrize("options", [{}, {"coverage": 0.8}, {"max_events": 20}])
def test_intervals_find_miscalibration(options: dict[str, Any]) -> None:
    d = data(300, 5, confidence=4.0)
    result = sub_k(d.forecast, d.orders, 3, **options)
    interval = result.interval(resamples=50)
    assert 0.05 < interval.low < true_error(d, result.events) < interval.high
    assert result.null(resamples=50).p_value < 0.05


@pytest.mark.parametrize("confidence", [0.4, 1.0, 1.3, 3.0])
def test_an_interval_excludes_zero_exactly_if_the_test_rejects(confidence: float) -> None:
    for seed in range(5):
        d = data(60, confidence=confidence, seed=seed)
        result = sub_k(d.forecast, d.orders, 2)
        null, interval = result.null(resamples=39, rng=seed), result.interval(resamples=39, rng=seed)
        assert (interval.low > 0) is (null.p_value <= 0.05)
        assert interval.low <= result.value <= interval.high


def test_intervals_contain_the_true_error() -> None:
    covered = 0
    for seed in range(20):
        d = data(150, confidence=3.0, seed=seed)
        interval = sub_k(d.forecast, d.orders, 2).interval(resamples=50, rng=seed)
        covered += interval.low <= true_error(d, all_events(4, 2)) <= interval.high
    assert covered >= 17


def test_pair_marginals_have_sub_2_and_its_interval_but_no_null() -> None:
    d = data(200, 3)
    pairs, expected = pairwise(d), sub_k(d.forecast, d.orders, 2).value
    result = sub_k(pairs, d.orders, 2)
    interval = result.interval(resamples=50)
    assert result.value == pytest.approx(expected)
    assert interval.low <= result.value <= interval.high
    calls: list[Any] = [
        lambda: result.null(resamples=50),
        lambda: sub_k(pairs, d.orders, 3),
        lambda: top_k(pairs, d.orders, 1),
        lambda: rankwise(pairs, d.orders),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="pair"):
            call()


def test_stagewise_stops_at_the_first_large_error() -> None:
    good, bad = data(200), data(200, confidence=5.0)
    walk, stopped = stagewise(good.forecast, good.orders), stagewise(bad.forecast, bad.orders)
    assert ([result.k for result in walk.results], walk.uncalibrated_from) == ([2, 3, 4], None)
    assert walk.nulls[1] == walk.results[1].null()
    assert (len(stopped.results), stopped.uncalibrated_from) == (1, 2)
    few = [data(30, seed=seed) for seed in range(8)]  # noise alone makes errors above 0.1
    assert sum(stagewise(d.forecast, d.orders).uncalibrated_from is not None for d in few) <= 2
    papers = [stagewise(d.forecast, d.orders, threshold=0.1) for d in few]
    assert sum(walk.uncalibrated_from is not None for walk in papers) >= 6
    assert {walk.nulls for walk in papers} == {()}


@pytest.mark.parametrize("family", ["sub", "top"])
def test_stagewise_by_a_threshold_stops_at_the_first_error_above_it(family: Any) -> None:
    d = data(100, confidence=2.0)
    ask = sub_k if family == "sub" else top_k
    values = {k: ask(d.forecast, d.orders, k).value for k in (2, 3, 4)}
    for threshold in (*values.values(), 0.0, 1.0):
        walk = stagewise(d.forecast, d.orders, threshold=threshold, family=family)
        first = next((k for k, value in values.items() if value > threshold), None)
        assert walk.uncalibrated_from == first
        assert [result.k for result in walk.results] == list(range(2, (first or 4) + 1))


# The strong notions.


def slow_canonical(forecast: Any, outcomes: Any, width: float, norm: int = 2) -> float:
    p, y, total = np.asarray(forecast).tolist(), list(outcomes), 0.0
    for j in range(len(p)):
        weights = []
        for i in range(len(p)):
            alpha = [value / width + 1 for value in p[i]]
            log = math.lgamma(sum(alpha)) - sum(map(math.lgamma, alpha))
            log += sum((a - 1) * math.log(value) for a, value in zip(alpha, p[j], strict=True))
            weights.append(0.0 if i == j else math.exp(log))
        for c in range(len(p[0])):
            local = sum(w * (y[i] == c) for i, w in enumerate(weights)) / sum(weights)
            total += abs(local - p[j][c]) ** norm
    return total / len(p)


@pytest.mark.parametrize("norm", [1, 2])
def test_full_rank_matches_the_kernel_formula(norm: Any) -> None:
    rng = np.random.default_rng(0)
    p, orders = rng.dirichlet(np.ones(3), size=25), rng.permuted(np.tile(np.arange(3), (25, 1)), axis=1)
    result = full_rank(PlackettLuce(np.log(p)), orders, family="top", k=1, bandwidth=0.2, norm=norm)
    assert result.value == pytest.approx(slow_canonical(p, orders[:, 0], 0.2, norm), abs=1e-10)
    assert result.value == pytest.approx(result.weights @ result.per_event)
    outcomes = [[rng.choice(3, p=row) for row in p] for _ in range(100)]
    drawn = [slow_canonical(p, one, 0.2, norm) for one in outcomes]
    assert result.null(resamples=300).mean == pytest.approx(np.mean(drawn), rel=0.05)


def printed_kernel_error(p: Any, y: Any) -> float:
    """Return the error with the kernel as the paper prints it: the density at h_i with parameters h_j + 1."""
    log_kernel = np.array([dirichlet.logpdf(np.transpose(p), row + 1) for row in p])
    np.fill_diagonal(log_kernel, -np.inf)
    weights = np.exp(log_kernel - log_kernel.max(axis=1, keepdims=True))
    local = weights @ y / weights.sum(axis=1, keepdims=True)
    return float(((local - p) ** 2).sum(axis=1).mean())


@pytest.mark.parametrize(
    ("confidence", "expected"), [(1.0, (0.738, 0.035, 0.041)), (3.0, (0.877, 0.167, 0.208))]
)
def test_the_kernel_of_the_paper_is_another_one(confidence: float, expected: tuple[float, ...]) -> None:
    """The numbers of docs/protocols.md: bandwidth by likelihood, bandwidth 1, and as the paper prints it."""
    d = synthetic_plackett_luce(800, 4, confidence=confidence, rng=np.random.default_rng(1))
    everything = all_rankings(4)
    y = (d.orders[:, None] == everything).all(axis=2)
    found = (
        full_rank(d.forecast, d.orders).value,
        full_rank(d.forecast, d.orders, bandwidth=1.0).value,
        printed_kernel_error(np.exp(d.forecast.log_prob(everything)), y),
    )
    assert found == pytest.approx(expected, abs=6e-4)


def test_strong_notions_are_classifications_of_the_marginals() -> None:
    d = data(30)
    everything = all_rankings(4)
    index = [everything.tolist().index(order) for order in d.orders.tolist()]
    first = d.forecast.top(all_events(4, 1))
    pairs = []
    for i, j in combinations(range(4), 2):
        y = [int(order.index(i) > order.index(j)) for order in d.orders.tolist()]
        pairs.append(slow_canonical(d.forecast.sub([[i, j], [j, i]]), y, 0.1))
    expected: list[tuple[dict[str, Any], float]] = [
        ({}, slow_canonical(np.exp(d.forecast.log_prob(everything)), index, 0.1)),
        ({"family": "top", "k": 1}, slow_canonical(first, d.orders[:, 0], 0.1)),
        ({"family": "sub", "k": 2}, float(np.mean(pairs))),
    ]
    for options, value in expected:
        assert full_rank(d.forecast, d.orders, bandwidth=0.1, **options).value == pytest.approx(value)


def test_certain_forecasts_give_no_nan() -> None:
    certain = ExplicitRankings([[0, 1, 2], [1, 0, 2]], [[1.0, 0.0], [0.0, 1.0]] * 2)
    assert full_rank(certain, certain.mode()).value == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(full_rank(certain, [[2, 1, 0], *certain.mode()[1:]]).value)
    d = PlackettLuce(1e4 * np.random.default_rng(0).normal(size=(20, 4)))
    assert np.isfinite(full_rank(d, d.mode()).value)


@BOTH
def test_full_rank_finds_over_and_under_confidence(generate: Any) -> None:
    for confidence, sign in ((4.0, 1), (0.25, -1)):
        d = generate(300, 4, confidence=confidence, rng=np.random.default_rng(0))
        result = full_rank(d.forecast, d.orders)
        null, interval = result.null(resamples=99), result.interval(resamples=99)
        assert null.p_value <= 0.05
        assert np.sign(null.excess) == sign
        assert interval.value == pytest.approx(null.excess)
        assert interval.low * interval.high > 0
    d = generate(300, 4, rng=np.random.default_rng(1))
    for k in (1, 4):
        result = full_rank(d.forecast, d.orders, family="top", k=k)
        assert result.null(resamples=99).p_value > 0.02
        interval = result.interval(resamples=99)
        assert interval.low <= interval.value <= interval.high


# Partial rankings.


def top_lists(orders: Any, length: int) -> PartialRankings:
    return PartialRankings(np.minimum(np.argsort(orders, axis=1), length))


@pytest.mark.parametrize("open_events", ["leave_out", "marginalise"])
def test_partial_rankings(open_events: Any) -> None:
    d = data(40)
    lists, events = top_lists(d.orders, 2), all_events(4, 2)
    result = sub_k(d.forecast, lists, 2, open_events=open_events)
    p, settled = d.forecast.sub(events), lists.outcomes(events, "sub")
    soft = conditional_probabilities(d.forecast, lists, events, "sub")  # type: ignore[arg-type]
    for number in range(len(events)):
        kept = settled[:, number] >= 0 if open_events == "leave_out" else np.ones(40, dtype=bool)
        expected = oracles.ece(p[kept, number].tolist(), soft[kept, number].tolist())
        assert result.per_event[number] == pytest.approx(expected, abs=1e-12)
    whole = sub_k(d.forecast, d.orders, 2)
    complete = sub_k(d.forecast, PartialRankings(ranks_from_orders(d.orders)), 2, open_events=open_events)
    assert complete.value == pytest.approx(whole.value, abs=1e-14)
    assert complete.null(resamples=20) == whole.null(resamples=20)
    assert complete.interval(resamples=20) == whole.interval(resamples=20)


@pytest.mark.parametrize("open_events", ["leave_out", "marginalise"])
def test_partial_rankings_pass_if_calibrated_and_fail_if_not(open_events: Any) -> None:
    for confidence, calibrated in ((1.0, True), (5.0, False)):
        d = synthetic_mallows(150, 4, confidence=confidence, rng=np.random.default_rng(3))
        result = sub_k(d.forecast, top_lists(d.orders, 2), 2, open_events=open_events)
        assert (result.null(resamples=39).p_value > 0.05) is calibrated
        assert (result.interval(resamples=39).low == 0) is calibrated


def test_undecided_events_have_no_weight() -> None:
    tied = PartialRankings.from_lists([[{0, 1}, {2, 3}]] * 30, n_items=4)
    result = sub_k(data(30).forecast, tied, 2)
    assert ((result.weights > 0) == (tied.outcomes(result.events, "sub")[0] >= 0)).all()


D = data(5)
LISTS = top_lists(D.orders, 2)
LISTED = ExplicitRankings([[0, 1, 2], [2, 1, 0]], [[0.5, 0.5]])
ONLY_FIRST = PartialRankings.from_lists([[int(order[0])] for order in D.orders], n_items=4)
TIED = PartialRankings([[0, 0, 1]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sub_k(D.forecast, D.orders, 1), "k: 1 is out of range, expected a whole number from 2 to 4"),
        (lambda: top_k(D.forecast, D.orders, 0), "k: 0 is out of range"),
        (lambda: top_k(D.forecast, D.orders[:3], 1), "orders: 3 rankings for 5 instances"),
        (lambda: top_k(D.forecast, np.ones((5, 4)), 1), "orders: row 0"),
        (lambda: top_k(D.forecast, D.orders, 1, coverage=1.5), "coverage: 1.5"),
        (lambda: top_k(D.forecast, D.orders, 1, weighting="none"), "weighting: unknown 'none'"),  # type: ignore[arg-type]
        (lambda: top_k(D.forecast, D.orders, 1, support=D.orders), "support"),
        (lambda: sub_k(D.forecast, LISTS, 2, coverage=0.5), "coverage"),
        (lambda: sub_k(D.forecast, LISTS, 2, protocol="reference"), "needs complete rankings"),
        (lambda: sub_k(D.forecast, ONLY_FIRST, 2), "none of the 12 events"),
        (lambda: sub_k(LISTED, TIED, 2, open_events="marginalise"), "ExplicitRankings"),
        (lambda: sub_k(D.forecast, D.orders, 2, protocol="reference").null(), "reference"),
        (lambda: full_rank(D.forecast, LISTS), "full_rank needs complete rankings"),  # type: ignore[arg-type]
        (lambda: full_rank(D.forecast, D.orders, k=2), "family: k = 2"),
        (lambda: full_rank(D.forecast, D.orders, bandwidth=0.0), "bandwidth: 0.0"),
        (lambda: full_rank(D.forecast.take(np.array([0])), D.orders[:1]), "needs at least 2"),
        (lambda: full_rank(Mallows([np.arange(15)] * 9, 1.0), [np.arange(15)] * 9), "k: 9 instances"),
    ],
)
def test_errors_name_the_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert message in str(caught.value)

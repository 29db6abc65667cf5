"""Null tests and intervals of the notions, and notions of partial rankings, compared with slow code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rmcalib.calibration import (
    full_rank,
    sub_k,
    top_k,
)
from rmcalib.ranking import (
    ExplicitRankings,
    Mallows,
    PairwiseProbabilities,
    PartialRankings,
    PlackettLuce,
    RankingDistribution,
    conditional_probabilities,
)
from rmcalib.ranking.events import all_events
from rmcalib.ranking.synthetic import Synthetic, synthetic_mallows, synthetic_plackett_luce
from tests import oracles


def data(n: int = 60, m: int = 4, confidence: float = 1.0, seed: int = 0) -> Synthetic:
    return synthetic_plackett_luce(n, m, confidence=confidence, rng=np.random.default_rng(seed))


def top_lists(orders: Any, length: int) -> PartialRankings:
    return PartialRankings(np.minimum(np.argsort(orders, axis=1), length))


def test_the_null_is_the_error_of_drawn_rankings() -> None:
    d = data()
    result = sub_k(d.forecast, d.orders, 3)
    drawn = [sub_k(d.forecast, o, 3).value for o in d.forecast.sample(30, np.random.default_rng(2))]
    null = result.null(resamples=30, rng=2)
    assert null.mean == pytest.approx(np.mean(drawn), abs=1e-14)
    assert null.excess == pytest.approx(result.value - np.mean(drawn), abs=1e-14)


@pytest.mark.parametrize("confidence", [0.4, 1.0, 1.3, 3.0])
def test_an_interval_excludes_zero_exactly_if_the_test_rejects(confidence: float) -> None:
    for seed in range(6):
        d = data(confidence=confidence, seed=seed)
        result = sub_k(d.forecast, d.orders, 2)
        null, interval = (ask(resamples=39, rng=seed) for ask in (result.null, result.interval))
        assert (interval.low > 0) is (null.p_value <= 0.05)  # type: ignore[union-attr]
        assert interval.low <= result.value <= interval.high  # type: ignore[union-attr]


def test_intervals_contain_the_true_error() -> None:
    covered = 0
    for seed in range(20):
        d = data(150, confidence=3.0, seed=seed)
        events = all_events(4, 2)
        forecast, truth = d.forecast.sub(events), d.truth.sub(events)
        pairs = zip(forecast.T.tolist(), truth.T.tolist(), strict=True)
        true = float(np.mean([oracles.ece(p, q) for p, q in pairs]))
        interval = sub_k(d.forecast, d.orders, 2).interval(resamples=50, rng=seed)
        covered += interval.low <= true <= interval.high
    assert covered >= 17


def test_pair_marginals_have_an_interval_but_no_null() -> None:
    d = data(200, 3)
    matrix = np.full((200, 3, 3), 0.5)
    for i, j in all_events(3, 2).tolist():
        matrix[:, i, j] = d.forecast.sub([[i, j]])[:, 0]
    result = sub_k(PairwiseProbabilities(matrix), d.orders, 2)
    interval = result.interval(resamples=50)
    assert interval.low <= result.value <= interval.high
    with pytest.raises(ValueError, match="pair marginals only; the null test needs"):
        result.null(resamples=50)


def test_the_reference_protocol_has_no_uncertainty() -> None:
    d = data()
    for result in (
        sub_k(d.forecast, d.orders, 2, protocol="reference"),
        full_rank(d.forecast, d.orders, protocol="reference"),
    ):
        with pytest.raises(ValueError, match="the reference protocol has no null test"):
            result.null()


def slow_null_mean(p: Any, widths: Any, resamples: int, rng: np.random.Generator) -> float:
    """The mean error of outcomes drawn from the forecast (n, C), by brute force."""
    errors = []
    for _ in range(resamples):
        y = [rng.choice(len(row), p=row / row.sum()) for row in p]
        errors.append(full_rank(p, y, bandwidth=float(widths[0])).value)
    return float(np.mean(errors))


def test_the_null_mean_of_full_rank_is_exact() -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), size=40), rng.integers(3, size=40)
    result = full_rank(p, y)
    kernel: Any = result.uncertainty.kernel  # type: ignore[union-attr]
    assert result.null(resamples=20).mean == pytest.approx(
        slow_null_mean(p, kernel.widths, 600, rng), rel=0.03
    )
    one = full_rank(p, y, norm=1).null(resamples=200)
    assert one.mean == pytest.approx(one.value, rel=0.5)


@pytest.mark.parametrize("generate", [synthetic_plackett_luce, synthetic_mallows])
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
    choices: list[dict[str, Any]] = [{}, {"family": "sub", "k": 2}, {"family": "top", "k": 1}]
    for options in choices:
        result = full_rank(d.forecast, d.orders, **options)
        assert result.null(resamples=99).p_value > 0.02
        interval = result.interval(resamples=99)
        assert interval.low <= interval.value <= interval.high


def test_the_interval_of_full_rank_contains_the_expected_excess() -> None:
    covered = 0
    for seed in range(20):
        d = data(100, 3, confidence=2.0, seed=seed)
        result = full_rank(d.forecast, d.orders)
        kernel: Any = result.uncertainty.kernel  # type: ignore[union-attr]
        q = np.exp(d.truth.log_prob(result.events))[None]
        true = kernel.expected_error(q) - kernel.expected_error(kernel.p)
        interval = result.interval(resamples=60, rng=seed)
        covered += interval.low <= true <= interval.high
    assert covered >= 16


@pytest.mark.parametrize("open_events", ["leave_out", "marginalise"])
def test_partial_rankings_by_hand(open_events: Any) -> None:
    d = data(40)
    lists = top_lists(d.orders, 2)
    result = sub_k(d.forecast, lists, 2, open_events=open_events)
    events = all_events(4, 2)
    p, settled = d.forecast.sub(events), lists.outcomes(events, "sub")
    soft = conditional_probabilities(d.forecast, lists, events, "sub")  # type: ignore[arg-type]
    for number in range(len(events)):
        kept = settled[:, number] >= 0 if open_events == "leave_out" else np.ones(40, dtype=bool)
        expected = oracles.ece(p[kept, number].tolist(), soft[kept, number].tolist())
        assert result.per_event[number] == pytest.approx(expected, abs=1e-12)


def test_partial_rankings_without_ties_equal_complete_rankings() -> None:
    d = data()
    complete = PartialRankings.from_orders(d.orders)
    for option in ("leave_out", "marginalise"):
        choice: Any = option
        a, b = top_k(d.forecast, d.orders, 2), top_k(d.forecast, complete, 2, open_events=choice)
        assert b.value == pytest.approx(a.value, abs=1e-14)
        assert b.null(resamples=20) == a.null(resamples=20)
        assert b.interval(resamples=20) == a.interval(resamples=20)


@pytest.mark.parametrize("open_events", ["leave_out", "marginalise"])
def test_partial_rankings_pass_if_calibrated_and_fail_if_not(open_events: Any) -> None:
    for confidence, calibrated in ((1.0, True), (5.0, False)):
        d = synthetic_mallows(150, 4, confidence=confidence, rng=np.random.default_rng(3))
        result = sub_k(d.forecast, top_lists(d.orders, 2), 2, open_events=open_events)
        assert (result.null(resamples=39).p_value > 0.05) is calibrated
        interval = result.interval(resamples=39)
        assert (interval.low == 0) is calibrated


def test_undecided_events_have_no_weight() -> None:
    d = data(30)
    only_first = PartialRankings.from_lists([[int(order[0])] for order in d.orders], n_items=4)
    with pytest.raises(ValueError, match="decide none of the 12 events"):
        sub_k(d.forecast, only_first, 2)
    tied = PartialRankings.from_lists([[{0, 1}, {2, 3}]] * 30, n_items=4)
    result = sub_k(d.forecast, tied, 2)
    settled = tied.outcomes(result.events, "sub")[0] >= 0
    assert ((result.weights > 0) == settled).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d, lists: sub_k(d, lists, 2, open_events="guess"), "open_events: unknown 'guess'"),  # type: ignore[arg-type]
        (lambda d, lists: sub_k(d, lists, 2, coverage=0.5), "coverage"),
        (lambda d, lists: full_rank(d, lists), "full_rank needs complete rankings"),
        (lambda d, lists: sub_k(d, lists, 2, protocol="reference"), "needs complete rankings"),
        (lambda d, lists: sub_k(d, lists.take(np.arange(3)), 2), "3 rankings for 5 instances"),
        (lambda d, _: sub_k(d, PartialRankings([[0, 1]] * 5), 2), "rows have 2 items, expected 4"),
    ],
)
def test_errors_name_the_bad_input(
    call: Callable[[RankingDistribution, PartialRankings], object], message: str
) -> None:
    d = data(5)
    with pytest.raises(ValueError, match=r".") as caught:
        call(d.forecast, top_lists(d.orders, 2))
    assert message in str(caught.value)


def test_explicit_rankings_cannot_marginalise() -> None:
    listed = ExplicitRankings([[0, 1, 2], [2, 1, 0]], [[0.5, 0.5]])
    tied = PartialRankings([[0, 0, 1]])
    with pytest.raises(ValueError, match=r"ExplicitRankings has no probabilities of partial rankings"):
        sub_k(listed, tied, 2, open_events="marginalise")
    assert sub_k(PlackettLuce([[0.0] * 3]), tied, 2, open_events="marginalise").n == 1
    assert sub_k(Mallows([[0, 1, 2]], 1.0), tied, 2, open_events="marginalise").n == 1

import math
from typing import Any

import numpy as np
import pytest

from rmcalib.calibration import (
    MonteCarloWarning,
    full_rank,
    rankwise,
    stagewise,
    sub_k,
    top_k,
)
from rmcalib.ranking import Mallows, PairwiseProbabilities, PlackettLuce, all_rankings
from rmcalib.ranking import _mallows as mallows_module
from rmcalib.ranking.events import all_events, most_frequent
from rmcalib.ranking.synthetic import Synthetic, synthetic_mallows, synthetic_plackett_luce
from tests import oracles


def notion_null(
    dist: Any, orders: Any, k: int, family: str, *, resamples: int = 200, rng: Any = 0, **options: Any
) -> Any:
    return (sub_k if family == "sub" else top_k)(dist, orders, k, **options).null(
        resamples=resamples, rng=rng
    )


def notion_interval(
    dist: Any, orders: Any, k: int, family: str, *, resamples: int = 200, rng: Any = 0, **options: Any
) -> Any:
    return (sub_k if family == "sub" else top_k)(dist, orders, k, **options).interval(
        resamples=resamples, rng=rng
    )


def data(n: int = 40, m: int = 4, confidence: float = 1.0, seed: int = 0) -> Synthetic:
    return synthetic_plackett_luce(n, m, confidence=confidence, rng=np.random.default_rng(seed))


@pytest.mark.parametrize("family", ["sub", "top"])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_notions_average_the_errors_of_events(family: str, k: int) -> None:
    d = data()
    notion = sub_k if family == "sub" else top_k
    result = notion(d.forecast, d.orders, k)
    densities = [oracles.plackett_luce(row) for row in d.forecast.log_utilities.tolist()]  # type: ignore[attr-defined]
    expected = []
    for event in all_events(4, k).tolist():
        p = [oracles.marginal(density, 4, event, family) for density in densities]
        y = [float(oracles.happens(tuple(order), event, family)) for order in d.orders.tolist()]
        expected.append(oracles.ece(p, y))
    assert np.allclose(result.per_event, expected, atol=1e-9)
    assert result.value == pytest.approx(np.mean(expected))
    assert result.n_events == math.perm(4, k)
    assert result.selection == "all"


def test_rankwise_is_top_m() -> None:
    d = data()
    assert rankwise(d.forecast, d.orders).value == top_k(d.forecast, d.orders, 4).value


def test_weightings_are_averages_with_their_weights() -> None:
    d = data()
    uniform = sub_k(d.forecast, d.orders, 3)
    by_frequency = sub_k(d.forecast, d.orders, 3, weighting="frequency")
    share = np.array([(oracles_happen(d, event)).mean() for event in uniform.events])
    assert by_frequency.value == pytest.approx(share @ uniform.per_event / share.sum())
    by_probability = sub_k(d.forecast, d.orders, 3, weighting="probability")
    mass = d.forecast.sub(uniform.events).mean(axis=0)
    assert by_probability.value == pytest.approx(mass @ uniform.per_event / mass.sum())


def oracles_happen(d: Synthetic, event: Any) -> Any:
    return np.array([oracles.happens(tuple(order), event.tolist(), "sub") for order in d.orders.tolist()])


def test_coverage_chooses_events_and_drops_no_instance() -> None:
    d = data(200, 5)
    result = sub_k(d.forecast, d.orders, 3, coverage=0.5)
    assert (result.events == most_frequent(d.orders, 3, "sub", 0.5)).all()
    assert result.n == 200
    everything = sub_k(d.forecast, d.orders, 3)
    where = [np.flatnonzero((everything.events == event).all(axis=1))[0] for event in result.events]
    assert np.allclose(result.per_event, everything.per_event[where])


def test_events_are_counted_in_counted_on() -> None:
    d, train = data(50, 5), data(300, 5, seed=9)
    result = top_k(d.forecast, d.orders, 2, coverage=0.8, counted_on=train.orders)
    assert (result.events == most_frequent(train.orders, 2, "top", 0.8)).all()
    assert result.selection == "covering 80% of occurrences in the training fold"


def test_above_max_events_only_frequent_ones_are_used() -> None:
    d = data(60, 6)
    result = sub_k(d.forecast, d.orders, 4, max_events=100)
    assert result.selection == "covering 95% of occurrences"
    assert result.n_events < math.perm(6, 4)


def test_given_events_are_used_as_they_are() -> None:
    d = data()
    result = sub_k(d.forecast, d.orders, 2, events=[[1, 0]])
    assert result.n_events == 1
    assert result.value == result.per_event[0]


def test_chunk_size_does_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    d = data(100, 5)
    whole = sub_k(d.forecast, d.orders, 3)
    strong = full_rank(d.forecast, d.orders, family="sub", k=3)
    monkeypatch.setattr("rmcalib._util.arrays.chunks.__defaults__", (700,))
    assert sub_k(d.forecast, d.orders, 3).value == pytest.approx(whole.value, abs=1e-14)
    assert full_rank(d.forecast, d.orders, family="sub", k=3).value == pytest.approx(strong.value, abs=1e-12)


@pytest.mark.parametrize("generate", [synthetic_plackett_luce, synthetic_mallows])
def test_null_accepts_the_truth_and_rejects_a_distorted_forecast(generate: Any) -> None:
    for confidence, calibrated in ((1.0, True), (3.0, False), (0.2, False)):
        d = generate(1500, 4, confidence=confidence, rng=np.random.default_rng(5))
        for family, k in (("sub", 2), ("sub", 3), ("top", 1)):
            null = notion_null(d.forecast, d.orders, k, family, resamples=100)
            assert (null.p_value > 0.02) is calibrated, (confidence, family, k)


CHOSEN_ON_THE_DATA: list[tuple[int, Any, dict[str, Any]]] = [
    (3, "top", {"coverage": 0.9}),
    (3, "top", {"coverage": 0.5, "weighting": "frequency"}),
    (4, "sub", {"max_events": 50}),
]


@pytest.mark.parametrize(("k", "family", "options"), CHOSEN_ON_THE_DATA)
@pytest.mark.parametrize("chunk", [None, 700])
def test_the_null_selects_events_again_in_every_draw(
    k: int, family: Any, options: dict[str, Any], chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    d = data(40, 6)
    notion = sub_k if family == "sub" else top_k
    drawn = [notion(d.forecast, orders, k, **options).value for orders in d.forecast.sample(30, _rng())]
    observed = notion(d.forecast, d.orders, k, **options).value
    if chunk is not None:
        monkeypatch.setattr("rmcalib._util.arrays.chunks.__defaults__", (chunk,))
    null = notion_null(d.forecast, d.orders, k, family, resamples=30, rng=_rng(), **options)
    assert null.value == pytest.approx(observed, abs=1e-14)
    assert null.mean == pytest.approx(np.mean(drawn), abs=1e-14)
    assert null.high == pytest.approx(np.quantile(drawn, 0.95), abs=1e-14)


def _rng() -> np.random.Generator:
    return np.random.default_rng(3)


@pytest.mark.parametrize(("k", "family", "options"), CHOSEN_ON_THE_DATA)
def test_calibrated_forecasts_pass_however_the_events_are_chosen(
    k: int, family: Any, options: dict[str, Any]
) -> None:
    rejected = excluded = 0
    for seed in range(20):
        d = data(60, 6, seed=seed)
        null = notion_null(d.forecast, d.orders, k, family, resamples=49, rng=seed, **options)
        rejected += null.p_value <= 0.05
        if seed < 4:
            interval = notion_interval(d.forecast, d.orders, k, family, resamples=49, rng=seed, **options)
            excluded += interval.low > 0
            assert interval.value == pytest.approx(null.value, abs=1e-14)
    assert rejected <= 3
    assert excluded <= 1


@pytest.mark.parametrize("options", [{"coverage": 0.8}, {"max_events": 20}])
def test_intervals_with_selected_events_detect_miscalibration(options: dict[str, Any]) -> None:
    d = data(300, 5, confidence=4.0)
    interval = notion_interval(d.forecast, d.orders, 3, "sub", resamples=50, **options)
    events = sub_k(d.forecast, d.orders, 3, **options).events
    forecast, truth = d.forecast.sub(events), d.truth.sub(events)
    true_error = np.mean(
        [oracles.ece(p.tolist(), q.tolist()) for p, q in zip(forecast.T, truth.T, strict=True)]
    )
    assert 0.05 < interval.low < true_error < interval.high
    assert notion_null(d.forecast, d.orders, 3, "sub", resamples=50, **options).p_value < 0.05


@pytest.mark.parametrize("selected", [True, False])
def test_events_not_selected_by_the_data_stay_the_same(selected: bool) -> None:
    d, train = data(50, 5), data(300, 5, seed=9)
    options: dict[str, Any] = {"coverage": 0.8, "counted_on": train.orders} if selected else {}
    events = sub_k(d.forecast, d.orders, 3, **options).events
    for measure in (notion_null, notion_interval):
        by_options = measure(d.forecast, d.orders, 3, "sub", resamples=20, **options)
        assert by_options == measure(d.forecast, d.orders, 3, "sub", resamples=20, events=events)


def test_intervals_of_notions_contain_the_value_and_zero_if_calibrated() -> None:
    d = data(300)
    interval = notion_interval(d.forecast, d.orders, 2, "sub")
    assert interval.low == 0
    assert interval.value == pytest.approx(sub_k(d.forecast, d.orders, 2).value)
    off = data(300, confidence=4.0)
    assert notion_interval(off.forecast, off.orders, 2, "sub").low > 0.05


def test_estimated_marginals_give_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    d = synthetic_mallows(30, 6, rng=np.random.default_rng(0))
    exact = sub_k(d.forecast, d.orders, 3)
    assert exact.marginal_error == 0
    monkeypatch.setattr(mallows_module, "MAX_WORK", 10.0)
    with pytest.warns(MonteCarloWarning, match="standard error up to"):
        estimated = sub_k(d.forecast, d.orders, 3)
    assert 0 < estimated.marginal_error < 0.006
    assert estimated.value == pytest.approx(exact.value, abs=0.02)


def test_stagewise_stops_at_the_first_large_error() -> None:
    good = data(2000)
    walk = stagewise(good.forecast, good.orders)
    assert [result.k for result in walk.results] == [2, 3, 4]
    assert walk.uncalibrated_from is None
    assert [test.p_value for test in walk.nulls] == [result.null().p_value for result in walk.results]
    bad = data(2000, confidence=5.0)
    stopped = stagewise(bad.forecast, bad.orders)
    assert stopped.uncalibrated_from == 2
    assert len(stopped.results) == 1


def test_stagewise_does_not_stop_calibrated_forecasts_of_few_instances() -> None:
    """With 30 instances, noise alone makes errors above 0.1."""
    stopped, large = 0, 0
    for seed in range(20):
        good = synthetic_plackett_luce(30, 4, rng=np.random.default_rng(seed))
        walk = stagewise(good.forecast, good.orders)
        stopped += walk.uncalibrated_from is not None
        large += walk.results[0].value > 0.1
    assert large >= 15
    assert stopped <= 4  # binomial(20, 0.05) is above 4 with probability 0.003


def slow_canonical(p: Any, y: Any, bandwidth: float, norm: int) -> float:
    """Return the kernel estimate, instance by instance, from its formula."""
    total = 0.0
    for j in range(len(p)):
        weights = []
        for i in range(len(p)):
            alpha = [value / bandwidth + 1 for value in p[i]]
            log_density = math.lgamma(sum(alpha)) - sum(map(math.lgamma, alpha))
            log_density += sum((a - 1) * math.log(x) for a, x in zip(alpha, p[j], strict=True))
            weights.append(0.0 if i == j else math.exp(log_density))
        for c in range(len(p[0])):
            local = sum(w * (y[i] == c) for i, w in enumerate(weights)) / sum(weights)
            total += abs(local - p[j][c]) ** norm
    return total / len(p)


@pytest.mark.parametrize("norm", [1, 2])
def test_full_rank_matches_the_kernel_formula(norm: Any) -> None:
    rng = np.random.default_rng(0)
    p, y = rng.dirichlet(np.ones(3), size=25), rng.integers(3, size=25)
    result = full_rank(p, y, bandwidth=0.2, norm=norm)
    assert result.value == pytest.approx(slow_canonical(p.tolist(), y.tolist(), 0.2, norm), abs=1e-10)
    assert result.value == pytest.approx(result.weights @ result.per_event)


def test_strong_notions_are_classifications_of_the_marginals() -> None:
    d = data(30)
    everything = all_rankings(4)
    probabilities = np.exp(d.forecast.log_prob(everything))
    index = [everything.tolist().index(order) for order in d.orders.tolist()]
    whole = full_rank(d.forecast, d.orders, bandwidth=0.1)
    assert whole.value == pytest.approx(full_rank(probabilities, index, bandwidth=0.1).value)
    first = full_rank(d.forecast, d.orders, family="top", k=1, bandwidth=0.1)
    assert first.value == pytest.approx(
        full_rank(d.forecast.top(all_events(4, 1)), d.orders[:, 0], bandwidth=0.1).value
    )
    pairs = []
    for i in range(4):
        for j in range(i + 1, 4):
            p = d.forecast.sub([[i, j], [j, i]])
            y = [int(order.index(i) > order.index(j)) for order in d.orders.tolist()]
            pairs.append(full_rank(p, y, bandwidth=0.1).value)
    assert full_rank(d.forecast, d.orders, family="sub", k=2, bandwidth=0.1).value == pytest.approx(
        np.mean(pairs)
    )


def test_certain_forecasts_give_no_nan() -> None:
    p = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    assert full_rank(p, [0, 1, 0, 1]).value == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(full_rank(p, [2, 2, 0, 1]).value)
    d = PlackettLuce(1e4 * np.random.default_rng(0).normal(size=(20, 4)))
    assert np.isfinite(full_rank(d, d.mode()).value)


def test_the_default_bandwidth_separates_good_from_bad() -> None:
    good, bad = (data(500, 3, confidence=c) for c in (1.0, 5.0))
    errors = [full_rank(d.forecast, d.orders, family="top", k=1).value for d in (good, bad)]
    assert errors[0] < 0.1 * errors[1]


def test_pairwise_forecasts_have_only_the_sub_2_notion() -> None:
    d = data(50, 3)
    matrix = np.full((50, 3, 3), 0.5)
    for i, j in all_events(3, 2):
        matrix[:, i, j] = d.forecast.sub([[i, j]])[:, 0]
    pairs: Any = PairwiseProbabilities(matrix)
    assert sub_k(pairs, d.orders, 2).value == pytest.approx(sub_k(d.forecast, d.orders, 2).value)
    calls: list[Any] = [
        lambda: sub_k(pairs, d.orders, 3),
        lambda: top_k(pairs, d.orders, 1),
        lambda: rankwise(pairs, d.orders),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="pair"):
            call()


D = data(5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sub_k(D.forecast, D.orders, 1), "k: 1 is out of range, expected a whole number from 2 to 4"),
        (lambda: sub_k(D.forecast, D.orders, 5), "k: 5 is out of range"),
        (lambda: top_k(D.forecast, D.orders, 0), "k: 0 is out of range, expected a whole number from 1 to 4"),
        (lambda: top_k(D.forecast, D.orders, 1.5), "k: 1.5 is not a whole number"),  # type: ignore[arg-type]
        (lambda: top_k(D.forecast, D.orders[:3], 1), "orders: 3 rankings for 5 instances"),
        (lambda: top_k(D.forecast, D.orders[:, :3], 1), "rows have 3 items, expected 4"),
        (lambda: top_k(D.forecast, np.ones((5, 4)), 1), "orders: row 0 is [1, 1, 1, 1]"),
        (lambda: top_k(D.forecast, D.orders, 1, coverage=1.5), "coverage: 1.5 is out of range"),
        (lambda: top_k(D.forecast, D.orders, 1, events=[[0]], coverage=0.5), "coverage: cannot be combined"),
        (lambda: top_k(D.forecast, D.orders, 1, events=[[0, 1]]), "have 2 items each, expected k = 1"),
        (lambda: top_k(D.forecast, D.orders, 1, weighting="none"), "weighting: unknown 'none'"),  # type: ignore[arg-type]
        (lambda: top_k(D.forecast, D.orders, 1, protocol="public"), "protocol: unknown 'public'"),  # type: ignore[arg-type]
        (
            lambda: top_k(D.forecast, D.orders, 1, support=D.orders),
            "support: only for protocol='reference'",
        ),
        (lambda: full_rank(D.forecast, D.orders, k=2), "family: k = 2 needs family"),
        (lambda: full_rank(D.forecast, D.orders, bandwidth=0.0), "bandwidth: 0.0 is not a positive number"),
        (lambda: full_rank(D.forecast, D.orders, norm=3), "norm: unknown 3"),  # type: ignore[arg-type]
        (lambda: full_rank([[0.5, 0.6]], [0]), "probabilities: row 0 sums to 1.1"),
        (lambda: full_rank([[0.5, 0.5]] * 2, [0, 2]), "outcomes: class 2 is out of range, expected 0 to 1"),
        (lambda: full_rank([[0.5, 0.5]], [0]), "needs at least 2"),
        (lambda: full_rank([[0.5, 0.5]] * 2, [0]), "outcomes: 1 outcomes for 2 rows"),
        (lambda: full_rank(Mallows([np.arange(15)] * 9, 1.0), [np.arange(15)] * 9), "do not fit in memory"),
    ],
)
def test_errors_name_the_bad_input(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()
    assert message in str(caught.value)

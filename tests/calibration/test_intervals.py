import numpy as np
import pytest

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import (
    BinSums,
    consistency_band,
    ece,
    ece_interval,
    ece_null,
    mean_interval,
    reliability,
    resampling_weights,
    top_1_probabilities,
)
from rmcalib.calibration._intervals import bootstrap_sums, recentred


def prompts(n: int, confidence: float, seed: int) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return top-1 forecasts of four responses per prompt; rewards are ``confidence`` times the true ones."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(scale=1.5, size=(n, 4))
    winner = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    groups = np.repeat(np.arange(n), 4)
    return (
        top_1_probabilities(confidence * rewards.reshape(-1), groups),
        np.eye(4)[winner].reshape(-1),
        groups,
    )


def test_bootstrap_of_bin_sums_equals_bootstrap_of_rows() -> None:
    """Resample the same groups as sums and as rows: the errors are the same."""
    p, y, groups = prompts(50, 2.0, 0)
    weights = resampling_weights(20, 50, np.random.default_rng(7))
    from_rows = []
    for row in weights.astype(int):
        rows = np.concatenate([np.flatnonzero(groups == g) for g in np.repeat(np.arange(50), row)])
        from_rows.append(ece(p[rows], y[rows]))
    interval = ece_interval(
        p, y, groups=groups, resamples=20, method="percentile", rng=np.random.default_rng(7)
    )
    assert interval.low == pytest.approx(np.quantile(from_rows, 0.025))
    assert interval.high == pytest.approx(np.quantile(from_rows, 0.975))
    assert interval.value == pytest.approx(ece(p, y))


def test_groups_may_come_in_any_order_and_type() -> None:
    p, y, groups = prompts(40, 1.5, 0)
    shuffle = np.random.default_rng(0).permutation(len(p))
    names = np.array([f"{g:03d}" for g in groups])
    one = ece_interval(p, y, groups=groups, resamples=50)
    other = ece_interval(p[shuffle], y[shuffle], groups=names[shuffle], resamples=50)
    assert (one.low, one.high) == pytest.approx((other.low, other.high))


def test_resampling_groups_widens_the_interval_of_repeated_rows() -> None:
    p, y, _ = prompts(60, 2.0, 0)
    many, labels = np.tile(p, 10), np.tile(np.arange(len(p)), 10)
    alone = mean_interval((many - np.tile(y, 10)) ** 2)
    together = mean_interval((many - np.tile(y, 10)) ** 2, groups=labels)
    assert together.high - together.low > 2.5 * (alone.high - alone.low)


def test_same_seed_same_numbers() -> None:
    p, y, groups = prompts(50, 1.0, 0)
    assert ece_interval(p, y, groups=groups, rng=3) == ece_interval(p, y, groups=groups, rng=3)
    assert ece_null(p, y, rng=3) == ece_null(p, y, rng=3)


def test_interval_of_a_calibrated_forecast_contains_zero_and_the_value() -> None:
    p, y, groups = prompts(400, 1.0, 1)
    interval = ece_interval(p, y, groups=groups)
    assert interval.low == 0
    assert interval.low <= interval.value <= interval.high
    off = ece_interval(*prompts(400, 3.0, 1)[:2], groups=groups)
    assert off.low > 0.05


@pytest.mark.parametrize(
    "options", [{"norm": 2}, {"discrepancy": "jeffreys"}, {"spacing": "mass"}, {"debias": True}]
)
def test_intervals_of_all_errors_contain_the_value(options: dict[str, object]) -> None:
    p, y, groups = prompts(200, 2.0, 1)
    interval = ece_interval(p, y, groups=groups, resamples=200, **options)  # type: ignore[arg-type]
    assert interval.value == pytest.approx(ece(p, y, **options))  # type: ignore[arg-type]
    assert 0 <= interval.low <= interval.value <= interval.high
    assert interval.high > interval.low


def test_coverage_and_level_of_the_test() -> None:
    """A small version of results/statistics.md: about 95% coverage, and about 5% of the tests reject."""
    covered, rejected, runs = 0, 0, 120
    for seed in range(runs):
        p, y, groups = prompts(150, 1.0, seed)
        interval = ece_interval(p, y, groups=groups, resamples=200, rng=seed)
        covered += interval.low <= 0.0 <= interval.high
        null = ece_null(p, y, groups=groups, draw="one_per_group", resamples=200, rng=seed)
        rejected += null.p_value <= 0.05
    assert covered / runs > 0.88
    assert rejected / runs < 0.12


def test_p_values_of_calibrated_forecasts_are_uniform() -> None:
    values = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        p = rng.random(200)
        values.append(ece_null(p, rng.random(200) < p, resamples=100, rng=rng).p_value)
    assert np.mean(values) == pytest.approx(0.5, abs=0.1)
    assert np.mean(np.array(values) < 0.25) == pytest.approx(0.25, abs=0.12)


def test_null_draws_one_winner_per_group() -> None:
    """With one certain prompt and one fair coin, the null error has the values of the coin's outcomes."""
    p, groups = [1.0, 0.0, 0.5, 0.5], [0, 0, 1, 1]
    null = ece_null(p, [1, 0, 1, 0], groups=groups, draw="one_per_group", resamples=50)
    assert null.value == 0
    assert null.mean == 0
    assert null.p_value == 1


def test_ece_null_agrees_with_outcomes_drawn_one_data_set_at_a_time() -> None:
    p, y, groups = prompts(150, 1.0, 3)

    def simulate(rng: np.random.Generator) -> float:
        drawn = (p.reshape(-1, 4).cumsum(axis=1) > rng.random((150, 1))).argmax(axis=1)
        return ece(p, np.eye(4)[drawn].reshape(-1))

    fast = ece_null(p, y, groups=groups, draw="one_per_group", resamples=2000)
    rng = np.random.default_rng(0)
    slow = [simulate(rng) for _ in range(400)]
    assert fast.mean == pytest.approx(np.mean(slow), rel=0.05)
    assert fast.high == pytest.approx(np.quantile(slow, 0.95), rel=0.08)


def test_bands_contain_the_bars_of_a_calibrated_forecast() -> None:
    inside = total = 0
    for seed in range(40):
        p, y, groups = prompts(200, 1.0, seed)
        band = consistency_band(p, groups=groups, draw="one_per_group", resamples=300, rng=seed)
        diagram = reliability(p, y)
        filled = diagram.count > 0
        inside += int(((band.low <= diagram.frequency) & (diagram.frequency <= band.high))[filled].sum())
        total += int(filled.sum())
    assert inside / total == pytest.approx(0.96, abs=0.03)


def test_recentring_removes_the_gap() -> None:
    sums = BinSums(np.array([10.0, 0.0]), np.array([4.0, 0.0]), np.array([7.0, 0.0]))
    assert recentred(sums, sums, 0.0).outcome.tolist() == [4.0, 0.0]
    assert recentred(sums, sums, 1.0).outcome.tolist() == [7.0, 0.0]


def test_bootstrap_of_any_function_of_sums() -> None:
    values = np.random.default_rng(0).normal(size=500)
    interval = bootstrap_sums(np.column_stack([values, np.ones(500)]), lambda s: s[:, 0] / s[:, 1])
    assert interval.high - interval.low == pytest.approx(2 * 1.96 / np.sqrt(500), rel=0.15)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ece_interval([0.5], [1], level=95), "level: 95 is out of range"),
        (lambda: ece_interval([0.5], [1], resamples=0), "resamples: 0 is out of range"),
        (
            lambda: ece_interval([0.5], [1], groups=[1, 2]),
            "groups: expected one label for each of the 1 rows",
        ),
        (lambda: ece_interval([0.5], [1], method="bca"), "method: unknown 'bca'"),  # type: ignore[arg-type]
        (lambda: ece_null([0.5], [1], draw="one_per_group"), "groups: needed"),
        (lambda: ece_null([0.5], [1], groups=[0], draw="one_per_group"), "sum to 0.5, expected 1"),
        (lambda: consistency_band([]), "probabilities: is empty"),
        (lambda: mean_interval([np.nan]), "values: nan"),
    ],
)
def test_errors_name_the_bad_input(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        call()  # type: ignore[operator]
    assert message in str(caught.value)

"""Binned and smooth errors, compared with loops and with other packages."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rmcalib._util.arrays import FloatArray
from rmcalib.calibration import ece, reliability, smooth_ece
from tests import oracles

probabilities = arrays(np.float64, st.integers(1, 60), elements=st.floats(0, 1))


def random_forecast(n: int, seed: int, confidence: float = 1.0) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=n)
    outcomes = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(np.float64)
    return 1 / (1 + np.exp(-confidence * logits)), outcomes


@given(p=probabilities, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_ece_matches_a_loop_over_bins(p: FloatArray, seed: int) -> None:
    y = (np.random.default_rng(seed).random(len(p)) < 0.5).astype(np.float64)
    assert ece(p, y) == pytest.approx(oracles.ece(p.tolist(), y.tolist()), abs=1e-12)


@given(p=probabilities, seed=st.integers(0, 1000))
@settings(deadline=None)
def test_errors_are_bounded_and_do_not_depend_on_the_order(p: FloatArray, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = (rng.random(len(p)) < p).astype(np.float64)
    shuffle = rng.permutation(len(p))
    for options in (
        {},
        {"norm": 2},
        {"norm": "max"},
        {"spacing": "mass"},
        {"spacing": "log"},
        {"debias": True},
    ):
        value = ece(p, y, **options)
        assert 0 <= value <= 1
        assert ece(p[shuffle], y[shuffle], **options) == pytest.approx(value, abs=1e-12)
    assert ece(p, y) <= ece(p, y, norm=2) + 1e-12 <= ece(p, y, norm="max") + 2e-12


@pytest.mark.parametrize("norm", [1, 2, "max"])
def test_agrees_with_torchmetrics(norm: Any) -> None:
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    p, y = random_forecast(2000, seed=10)
    # torchmetrics bins the confidence of the likelier side, and p = 1 has its own bin: stay below.
    p = np.clip(np.where(p < 0.5, 1 - p, p), 0.5, 0.999)
    name = {1: "l1", 2: "l2", "max": "max"}[norm]
    theirs = functional.binary_calibration_error(
        torch.tensor(p, dtype=torch.float64), torch.tensor(y).long(), n_bins=10, norm=name
    )
    assert ece(p, y, norm=norm) == pytest.approx(float(theirs), abs=1e-6)


RARE = [0.2] * 90 + [0.7] * 10
SKEWED = np.random.default_rng(0).random(1000) ** 3


@pytest.mark.parametrize(
    ("p", "options", "counts"),
    [
        ([1.0, 0.95], {"bins": 2}, [0, 2]),  # certain forecasts belong to the last bin
        ([tenth / 10 for tenth in range(10)], {}, [1] * 10),
        (SKEWED, {"spacing": "mass"}, [100] * 10),
        (RARE, {"spacing": "mass", "bins": 2}, [0, 100]),  # equal probabilities stay in one bin
        ([1e-11, 1e-7, 1e-4, 0.5], {"spacing": "log", "bins": 4}, [1, 1, 1, 1]),
    ],
)
def test_bins(p: Any, options: dict[str, Any], counts: list[int]) -> None:
    assert reliability(p, np.zeros(len(p)), **options).count.tolist() == counts


def test_divergences_match_their_formulas() -> None:
    p, y = [0.25, 0.25, 0.25, 0.25], [1, 1, 0, 0]
    f, c = 0.5, 0.25
    kl = f * np.log(f / c) + (1 - f) * np.log((1 - f) / (1 - c))
    assert ece(p, y, discrepancy="kl") == pytest.approx(kl)
    smoothed = 2.5 / 5
    jeffreys = (smoothed - c) * (np.log(smoothed / c) - np.log((1 - smoothed) / (1 - c)))
    assert ece(p, y, discrepancy="jeffreys") == pytest.approx(jeffreys)
    assert ece(p, y, discrepancy="jeffreys_unit") == pytest.approx(1 - np.exp(-jeffreys))
    names: list[Any] = ["kl", "jeffreys", "jeffreys_unit"]
    for discrepancy in names:
        assert np.isfinite(ece([0.0, 1.0], [1, 0], discrepancy=discrepancy))


def test_debiased_error_is_small_where_the_plain_one_is_mostly_noise() -> None:
    plain, debiased = [], []
    for seed in range(20):
        p, y = random_forecast(300, seed)
        plain.append(ece(p, y, norm=2))
        debiased.append(ece(p, y, norm=2, debias=True))
    assert np.mean(debiased) < 0.6 * np.mean(plain)
    p, y = random_forecast(20_000, 0, confidence=3.0)
    assert ece(p, y, norm=2, debias=True) == pytest.approx(ece(p, y, norm=2), rel=0.02)


@pytest.mark.parametrize("confidence", [0.3, 1.0, 3.0])
def test_smooth_error_agrees_with_relplot(confidence: float) -> None:
    relplot = pytest.importorskip("relplot")
    p, y = random_forecast(800, 0, confidence)
    # relplot searches σ on a grid of step 0.001.
    assert smooth_ece(p, y) == pytest.approx(relplot.smECE(p, y), abs=3e-3)


def test_smooth_error_is_the_fixed_point_of_its_definition() -> None:
    p, y = random_forecast(200, 1, confidence=2.0)
    sigma = smooth_ece(p, y)
    t = np.linspace(0, 1, 4001)
    density = np.zeros_like(t)
    for image in [sign * p + 2 * shift for sign in (1, -1) for shift in range(-3, 4)]:
        kernel = np.exp(-((t[:, None] - image) ** 2) / (2 * sigma**2)) / (sigma * np.sqrt(2 * np.pi))
        density += kernel @ (y - p) / len(p)
    assert np.trapezoid(np.abs(density), t) == pytest.approx(sigma, abs=1e-4)


def test_shares_are_outcomes_too() -> None:
    assert ece([0.5, 0.5], [0.25, 0.75]) == 0.0
    assert ece([0.5, 0.5], [0.25, 0.25]) == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0.5], [1, 0]), {}, "outcomes"),
        (([], []), {}, "probabilities"),
        (([1.2], [1]), {}, r"probabilities: 1\.2"),
        (([np.nan], [1]), {}, "probabilities: nan"),
        (([0.5], [2]), {}, "outcomes: 2"),
        (([0.5], ["yes"]), {}, "yes"),
        (([0.5], [1]), {"bins": 0}, "bins: 0"),
        (([0.5], [1]), {"spacing": "even"}, "spacing: unknown 'even'"),
        (([0.5], [1]), {"debias": True, "discrepancy": "kl"}, "debias"),
    ],
)
def test_errors_name_the_bad_input(arguments: Any, options: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ece(*arguments, **options)

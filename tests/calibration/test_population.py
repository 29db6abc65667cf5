"""The paper's counterexamples and implications, checked with exact population errors."""

from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from rmcalib.calibration import population_error
from rmcalib.ranking import all_rankings

ORDERS = all_rankings(3)
UNIFORM = [[F(1, 6)] * 6] * 2

# Columns: 123, 132, 213, 231, 312, 321; rows: x1, x2. (truth, forecast) of the paper's three tables.
SUB_2_NOT_FULL_RANK = (
    UNIFORM,
    [[F(2, 6), F(1, 12), F(1, 12), F(1, 12), F(1, 12), F(2, 6)]] * 2,
)
RANKWISE_NOT_SUB_2_NOR_TOP_1 = (
    [[F(1, 3), F(0), F(1, 3), F(0), F(1, 3), F(0)], [F(0), F(1, 3), F(1, 3), F(1, 3), F(0), F(0)]],
    [[F(1, 3), F(1, 6), F(1, 3), F(0), F(1, 6), F(0)], [F(0), F(1, 6), F(1, 3), F(1, 3), F(1, 6), F(0)]],
)
TOP_1_NOT_RANKWISE = (UNIFORM, [[F(2, 6), F(0), F(2, 6), F(0), F(2, 6), F(0)]] * 2)

NOTIONS: dict[str, dict[str, Any]] = {
    "full-rank": {"strong": True},
    "rankwise": {"strong": False},
    "sub-2": {"strong": True, "family": "sub", "k": 2},
    "top-1": {"strong": True, "family": "top", "k": 1},
    "top-2": {"strong": True, "family": "top", "k": 2},
    "rankwise sub-2": {"strong": False, "family": "sub", "k": 2},
    "rankwise top-1": {"strong": False, "family": "top", "k": 1},
}


def errors(joint: tuple[Any, Any], weights: Any = None) -> dict[str, Any]:
    truth, forecast = (np.array(table, dtype=object) for table in joint)
    return {
        name: population_error(ORDERS, truth, forecast, weights=weights, **n) for name, n in NOTIONS.items()
    }


@pytest.mark.parametrize(
    ("joint", "calibrated"),
    [
        (SUB_2_NOT_FULL_RANK, {"sub-2", "rankwise sub-2"}),
        (RANKWISE_NOT_SUB_2_NOR_TOP_1, {"rankwise"}),
        (TOP_1_NOT_RANKWISE, {"top-1", "rankwise top-1"}),
    ],
    ids=["sub-2 without full-rank", "rankwise without sub-2 and top-1", "top-1 without rankwise"],
)
def test_tables_of_the_paper(joint: tuple[Any, Any], calibrated: set[str]) -> None:
    claims = {
        frozenset({"sub-2", "rankwise sub-2"}): {"full-rank", "rankwise"},
        frozenset({"rankwise"}): {"full-rank", "sub-2", "top-1"},
        frozenset({"top-1", "rankwise top-1"}): {"full-rank", "rankwise"},
    }
    found = errors(joint)
    for name in calibrated:
        assert found[name] == 0
        assert isinstance(found[name], F | int)
    for name in claims[frozenset(calibrated)]:
        assert found[name] > 0


def test_violations_are_those_in_the_captions() -> None:
    """Table 2, computed from its rankings. Three of the marginals printed below it do not agree with them:
    under h(x1), P(1 before 2) is 2/3 and P(1 before 3) is 5/6, not vice versa; under h(x2), P(2 first) = 2/3.
    """
    found = errors(RANKWISE_NOT_SUB_2_NOR_TOP_1)
    # Of the three pairs only (1, 3) has an error: 1/6 for each instance, in both orders of the pair.
    assert found["sub-2"] == F(1, 3) * 2 * F(1, 6)
    # Both instances have the errors (1/6, 0, 1/6).
    assert found["top-1"] == F(1, 3)


def random_joint(rng: np.random.Generator, n: int = 5) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return truth and forecast of instances with few distinct forecasts, some of which are pooled."""

    def rows(size: int) -> list[list[F]]:
        counts = rng.multinomial(12, np.ones(6) / 6, size=size)
        return [[F(int(c), 12) for c in row] for row in counts]

    forecasts = rows(3)
    picked = [forecasts[int(i)] for i in rng.integers(3, size=n)]
    return np.array(rows(n), dtype=object), np.array(picked, dtype=object)


def calibrated_joint(rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return truth and forecast of a full-rank calibrated model: the mean truth of each group."""
    truth, _ = random_joint(rng, 6)
    groups = [[0, 1, 2], [3, 4], [5]]
    forecast = truth.copy()
    for group in groups:
        forecast[group] = truth[group].sum(axis=0) / len(group)
    return truth, forecast


@pytest.mark.parametrize("seed", range(10))
def test_full_rank_calibration_implies_every_other_notion(seed: int) -> None:
    """Theorems 4.1 and 4.2, which imply 4.3."""
    found = errors(calibrated_joint(np.random.default_rng(seed)))
    assert all(value == 0 for value in found.values())


@pytest.mark.parametrize("seed", range(10))
def test_errors_are_ordered_by_the_implications(seed: int) -> None:
    """A strong error is at least its weak one (Theorem 4.3), and the full-rank error at least the sub-k and
    top-k errors (Theorem 4.2)."""
    found = errors(random_joint(np.random.default_rng(seed)))
    assert found["rankwise"] <= found["full-rank"]
    assert found["rankwise sub-2"] <= found["sub-2"] <= found["full-rank"]
    assert found["rankwise top-1"] <= found["top-1"] <= found["full-rank"]
    # Corollary: top-(m-1) is full-rank.
    assert found["top-2"] == found["full-rank"]


def test_weights_are_the_distribution_of_instances() -> None:
    truth, forecast = [[1.0, 0.0], [0.0, 1.0]], [[0.75, 0.25], [0.75, 0.25]]
    assert population_error([[0, 1], [1, 0]], truth, forecast, strong=True, weights=[0.75, 0.25]) == 0
    assert population_error([[0, 1], [1, 0]], truth, forecast, strong=True) == pytest.approx(0.5)


def test_floats_and_fractions_agree() -> None:
    joint = random_joint(np.random.default_rng(0))
    exact = errors(joint)
    for name, notion in NOTIONS.items():
        value = population_error(ORDERS, joint[0].astype(float), joint[1].astype(float), **notion)
        assert value == pytest.approx(float(exact[name]), abs=1e-12)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"truth": [[0.5, 0.6]]}, "truth: row 0 is not a probability distribution"),
        ({"forecast": [[0.5, 0.25, 0.25]]}, "forecast: expected shape (instances, 2)"),
        ({"forecast": [[0.5, 0.5]] * 2}, "forecast: 2 instances for 1 of the truth"),
        ({"truth": [[np.nan, 0.5]]}, "truth: row 0 is not a probability distribution"),
        ({"weights": [0.5]}, "weights: expected 1 numbers"),
        ({"k": 1}, "family: k = 1 needs family"),
    ],
)
def test_errors_name_the_bad_input(change: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"truth": [[0.5, 0.5]], "forecast": [[0.5, 0.5]], "strong": True, **change}
    with pytest.raises(ValueError, match=r".") as caught:
        population_error([[0, 1], [1, 0]], **options)
    assert message in str(caught.value)

"""The paper's theorems and counterexamples, on exact population distributions of 3 and 4 items."""

import sys
from fractions import Fraction as F
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from rmcalib.ranking import all_rankings

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from paper_relations import FORECASTS, Relation, check, checked, counterexample, population_error, relations

RESULTS = Path(__file__).parents[1] / "results/relations.csv"
# Both condition on one number, since the two orders of a pair are complementary.
FAILS = ("rankwise sub-k", "sub-k", 2)
# The paper claims it for general models; for Plackett-Luce, none was found.
NOT_FOUND = ("rankwise sub-k", "sub-k", 3, "plackett_luce")


def label(relation: Relation) -> str:
    arrow = "=>" if relation.implies else "=/=>"
    return f"m={relation.m} k={relation.k} {relation.source} {arrow} {relation.target}"


@pytest.fixture(scope="module")
def verdicts() -> dict[tuple[Any, ...], bool]:
    """Return whether results/relations.csv names a counterexample, by relation and model."""
    table = pd.read_csv(RESULTS)
    keys = table[["m", "k", "from", "to", "paper", "model"]].itertuples(index=False, name=None)
    return dict(zip(keys, table["counterexample"], strict=True))


@pytest.mark.parametrize("model", FORECASTS)
@pytest.mark.parametrize("relation", [*relations(3), *relations(4)], ids=label)
def test_arrows_of_both_diagrams(
    relation: Relation, model: str, verdicts: dict[tuple[Any, ...], bool]
) -> None:
    claim = relation.source, relation.target, relation.k
    with threadpool_limits(1):
        found = check(relation, model, tries=12 if relation.m == 3 else 6)
    holds = relation.implies or claim == FAILS or (*claim, model) == NOT_FOUND
    assert found["source_error"] == pytest.approx(0, abs=1e-9)
    assert (found["error"] == 0) if holds else (found["error"] > 1e-3)
    paper = "implies" if relation.implies else "does not imply"
    key = (relation.m, relation.k, relation.source, relation.target, paper, model)
    assert verdicts[key] != holds


def test_every_exclusion_is_shown_for_four_items() -> None:
    shown = {(one.source, one.target) for one in relations(4) if not one.implies}
    assert shown == {(one.source, one.target) for one in relations(3) if not one.implies} | {
        ("top-k", "sub-k")
    }
    assert len(shown) == 15


def test_a_changed_table_of_relations_is_noticed() -> None:
    table = pd.read_csv(RESULTS)
    assert checked(table, table, RESULTS) is table
    for column, value in (("counterexample", True), ("k", 7), ("agrees", False)):
        with pytest.raises(ValueError, match="relations"):
            checked(table.assign(**{column: [value, *table[column][1:]]}), table, RESULTS)
    with pytest.raises(ValueError, match="relations"):
        checked(table[1:], table, RESULTS)
    with pytest.raises(ValueError, match="relations"):
        checked(table.assign(error=0.0), table, RESULTS)


@pytest.mark.parametrize("m", [3, 4])
def test_rankwise_sub_2_error_is_the_sub_2_error(m: int) -> None:
    rng = np.random.default_rng(m)
    for _ in range(20 if m == 3 else 5):
        pooled = FORECASTS["general"](m, rng)
        truth = rng.dirichlet(np.ones(pooled.shape[1]), size=len(pooled))
        errors = [
            population_error(all_rankings(m), truth, pooled, strong=strong, family="sub", k=2)
            for strong in (True, False)
        ]
        assert errors[0] == pytest.approx(errors[1]) != 0


def test_only_strong_notions_imply_their_smaller_k() -> None:
    forecast = FORECASTS["general"](4, np.random.default_rng(0))
    for family, k in (("sub", 3), ("top", 2)):
        for strong in (True, False):
            larger, smaller = ({"strong": strong, "family": family, "k": size} for size in (k, k - 1))
            assert (counterexample(forecast, larger, smaller) is None) == strong


ORDERS = all_rankings(3)
UNIFORM = [[F(1, 6)] * 6] * 2

# Columns: 123, 132, 213, 231, 312, 321; rows: x1, x2. (truth, forecast) of the paper's three tables.
SUB_2_NOT_FULL_RANK = (UNIFORM, [[F(2, 6), F(1, 12), F(1, 12), F(1, 12), F(1, 12), F(2, 6)]] * 2)
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


def errors(joint: tuple[Any, Any]) -> dict[str, Any]:
    truth, forecast = (np.array(table, dtype=object) for table in joint)
    return {name: population_error(ORDERS, truth, forecast, **n) for name, n in NOTIONS.items()}


@pytest.mark.parametrize(
    ("joint", "holds", "fails"),
    [
        (SUB_2_NOT_FULL_RANK, {"sub-2", "rankwise sub-2"}, {"full-rank", "rankwise"}),
        (RANKWISE_NOT_SUB_2_NOR_TOP_1, {"rankwise"}, {"full-rank", "sub-2", "top-1"}),
        (TOP_1_NOT_RANKWISE, {"top-1", "rankwise top-1"}, {"full-rank", "rankwise"}),
    ],
    ids=["sub-2 without full-rank", "rankwise without sub-2 and top-1", "top-1 without rankwise"],
)
def test_tables_of_the_paper(joint: tuple[Any, Any], holds: set[str], fails: set[str]) -> None:
    found = errors(joint)
    for name in holds:
        assert found[name] == 0
        assert isinstance(found[name], F | int)
    assert all(found[name] > 0 for name in fails)


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


@pytest.mark.parametrize("seed", range(4))
def test_full_rank_calibration_implies_every_other_notion(seed: int) -> None:
    """Theorems 4.1 and 4.2, which imply 4.3."""
    found = errors(calibrated_joint(np.random.default_rng(seed)))
    assert all(value == 0 for value in found.values())


@pytest.mark.parametrize("seed", range(4))
def test_errors_are_ordered_by_the_implications(seed: int) -> None:
    """A strong error is at least its weak one (Theorem 4.3), and the full-rank error at least the sub-k and
    top-k errors (Theorem 4.2)."""
    found = errors(random_joint(np.random.default_rng(seed)))
    assert found["rankwise"] <= found["full-rank"]
    assert found["rankwise sub-2"] <= found["sub-2"] <= found["full-rank"]
    assert found["rankwise top-1"] <= found["top-1"] <= found["full-rank"]
    # Corollary: top-(m-1) is full-rank.
    assert found["top-2"] == found["full-rank"]


def test_floats_and_fractions_agree() -> None:
    joint = random_joint(np.random.default_rng(0))
    exact = errors(joint)
    for name, notion in NOTIONS.items():
        value = population_error(ORDERS, joint[0].astype(float), joint[1].astype(float), **notion)
        assert value == pytest.approx(float(exact[name]), abs=1e-12)

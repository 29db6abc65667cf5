"""The paper's theorems about the notions, on exact population distributions of 3 and 4 items."""

import sys
from pathlib import Path

import numpy as np
import pytest

from rmcalib.calibration import population_error
from rmcalib.ranking import all_rankings

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from paper_relations import FORECASTS, Relation, check, counterexample, relations

# Both condition on one number, since the two orders of a pair are complementary.
FAILS = ("rankwise sub-k", "sub-k", 2)


def label(relation: Relation) -> str:
    arrow = "=>" if relation.implies else "=/=>"
    return f"m={relation.m} k={relation.k} {relation.source} {arrow} {relation.target}"


@pytest.mark.parametrize("relation", [*relations(3), *relations(4)], ids=label)
def test_arrows_of_both_diagrams(relation: Relation) -> None:
    small = relation.m == 3
    for model in FORECASTS if small else ("general",):
        found = check(relation, model, tries=12 if small else 2)
        holds = relation.implies or (relation.source, relation.target, relation.k) == FAILS
        assert found["source_error"] == pytest.approx(0, abs=1e-9)
        assert (found["error"] == 0) if holds else (found["error"] > 1e-3), model


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

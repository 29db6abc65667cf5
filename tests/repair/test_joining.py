"""Rewards of different things: P(all hold), how often rewards disagree, and each one's share of the spread."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

import rmcalib
from rmcalib.repair import Calibrator, all_hold, combine
from rmcalib.repair.joining import opposite_pairs, spread_shares
from rmcalib.scores import Scores

N, M = 200, 3


def labelled(seed: int, temperature: float, threshold: float, n: int = N, m: int = M) -> Scores:
    rng = np.random.default_rng(seed)
    rewards = rng.normal(scale=3, size=(n, m))
    holds = rng.random((n, m)) < expit((rewards - threshold) / temperature)
    return Scores.from_arrays(rewards, holds).labelled_as("correct")


def two() -> dict[str, Scores]:
    """The same responses, labelled for two different things."""
    return {"helpful": labelled(0, 3.0, 0.5), "safe": labelled(1, 2.0, -1.0)}


def test_all_hold_with_the_product_of_the_probabilities(tmp_path: Path) -> None:
    joined = all_hold(two())
    singles = [rmcalib.calibrate(each).calibrator for each in two().values()]
    rewards = np.stack([each.reward for each in two().values()], axis=-1)
    product = np.prod([one.p_correct(rewards[:, k]) for k, one in enumerate(singles)], axis=0)
    loaded = Calibrator.load(joined.calibrator.save(tmp_path / "all.json"))
    assert loaded == joined.calibrator
    np.testing.assert_allclose(loaded.p_correct(rewards), product, rtol=1e-12)
    np.testing.assert_allclose(loaded.logit(rewards), np.log(product / (1 - product)), rtol=1e-6)
    table = rmcalib.apply(two(), loaded).table
    np.testing.assert_allclose(table["p_correct"], product, rtol=1e-12)
    assert [row["temperature"] for row in joined.members] == [one.temperature for one in singles]
    assert sum(row["share"] for row in joined.members) == pytest.approx(1)


def test_no_reward_can_make_up_for_another() -> None:
    calibrator = all_hold(two()).calibrator
    p = calibrator.p_correct([[8.0, -6.0], [2000.0, -6.0], [8.0, -5.0]])
    assert p[1] < 1.3 * p[0] < p[2]


def test_rewards_of_other_prompts_are_joined_without_a_comparison() -> None:
    joined = all_hold({"helpful": labelled(0, 1.0, 0.0), "safe": labelled(1, 1.0, 0.0, n=60, m=4)})
    assert (joined.n, joined.disagreements) == (0, [])
    assert joined.members[0]["share"] is None
    assert joined.members[1]["n"] == 60


@pytest.mark.parametrize(
    ("safe", "named"),
    [
        (Scores.from_arrays(np.random.default_rng(0).normal(size=(N, M)), 0), "safe.*correct"),
        (
            Scores.from_arrays(np.zeros((N, M)), np.eye(M, dtype=bool)[np.arange(N) % M]).labelled_as(
                "correct"
            ),
            "safe",
        ),
    ],
    ids=["best", "says nothing"],
)
def test_what_cannot_be_joined_is_named(safe: Scores, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        all_hold({"helpful": labelled(0, 1.0, 0.0), "safe": safe})


@given(
    st.lists(st.lists(st.tuples(*[st.integers(-3, 3)] * 2), min_size=1, max_size=6), min_size=1, max_size=5)
)
def test_opposite_pairs_equal_counting(prompts: list[list[tuple[int, int]]]) -> None:
    sizes = np.array([len(prompt) for prompt in prompts])
    first, second = np.array([pair for prompt in prompts for pair in prompt], dtype=float).T
    for found, prompt in zip(opposite_pairs(first, second, sizes), prompts, strict=True):
        pairs = [(a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in combinations(prompt, 2)]
        assert found == pytest.approx(np.mean(pairs)) if pairs else np.isnan(found)


def test_shares_are_those_of_the_variance_within_prompts() -> None:
    rng = np.random.default_rng(0)
    terms, sizes = rng.normal(size=(3, 40)) * [[1.0], [4.0], [0.0]], np.full(10, 4)
    inner = terms.reshape(3, 10, 4) - terms.reshape(3, 10, 4).mean(axis=2, keepdims=True)
    total = inner.sum(axis=0)
    expected = [(one * total).sum() / (total**2).sum() for one in inner]
    assert spread_shares(terms, sizes) == pytest.approx(expected)
    moved = terms + np.repeat(rng.normal(size=(3, 10)), 4, axis=1) * 100  # prompts' own levels do not count
    assert spread_shares(moved, sizes) == pytest.approx(expected, rel=1e-6)


def test_a_panel_shows_how_often_its_judges_disagree() -> None:
    truth = np.random.default_rng(0).normal(size=(N, M))
    judges = {"a": truth, "same": 2 * truth, "opposite": -3 * truth}
    panel = combine({name: Scores.from_arrays(one, truth.argmax(axis=1)) for name, one in judges.items()})
    assert [(row["judge"], row["other"], row["disagree"]) for row in panel.disagreements] == [
        ("a", "same", 0.0),
        ("a", "opposite", 1.0),
        ("same", "opposite", 1.0),
    ]

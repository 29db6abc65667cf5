"""Plackett-Luce with different numbers of responses per prompt, against the rectangular one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib._util.arrays import group_max, group_sums
from rmcalib.ranking import PlackettLuce

rewards = st.lists(
    st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1e-300, -1e-300]), min_size=1, max_size=5),
    min_size=1,
    max_size=6,
)


def ragged(rows: list[list[float]]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate(rows), np.concatenate([[0], np.cumsum([len(row) for row in rows])])


@given(rewards, st.floats(1e-300, 1e300))
def test_any_finite_reward_gives_a_distribution(rows: list[list[float]], temperature: float) -> None:
    flat, offsets = ragged(rows)
    model = PlackettLuce.ragged(flat, offsets).at_temperature(temperature)
    log_p = model.log_top_1()
    assert not np.isnan(log_p).any()
    np.testing.assert_allclose(np.add.reduceat(np.exp(log_p), offsets[:-1]), 1.0, rtol=1e-12)
    assert not np.isnan(
        model.pair_log_odds(np.arange(len(flat)), np.repeat(offsets[:-1], np.diff(offsets)))
    ).any()


def test_agrees_with_the_rectangular_one() -> None:
    rng = np.random.default_rng(1)
    rows = [rng.normal(size=size).tolist() for size in (2, 5, 1, 3)]
    flat, offsets = ragged(rows)
    t = np.array([0.5, 1.0, 2.0, 3.0])
    model = PlackettLuce.ragged(flat, offsets).at_temperature(t)
    for prompt, row in enumerate(rows):
        alone = PlackettLuce([row]).at_temperature(t[prompt])
        here = slice(offsets[prompt], offsets[prompt + 1])
        np.testing.assert_allclose(
            np.exp(model.log_top_1()[here]), alone.top(np.arange(len(row))[:, None])[0]
        )
        if len(row) > 1:
            odds = model.pair_log_odds([offsets[prompt]], [offsets[prompt] + 1])
            np.testing.assert_allclose(1 / (1 + np.exp(-odds)), alone.sub([[0, 1]])[0])
    again = PlackettLuce.ragged(flat, offsets).at_temperature(2.0).at_temperature(t / 2.0)
    np.testing.assert_allclose(again.log_top_1(), model.log_top_1())


@pytest.mark.parametrize("offsets", [[0], [0, 2], [1, 3], [0, 0, 3], [0, 2, 1, 3]])
def test_bad_input(offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offsets"):
        PlackettLuce.ragged([1.0, 2.0, 3.0], offsets)
    with pytest.raises(ValueError, match="temperature"):
        PlackettLuce.ragged([1.0, 2.0], [0, 2]).at_temperature([1.0, 2.0, 3.0])


@given(
    st.lists(
        st.lists(st.floats(-1e6, 1e6) | st.just(-np.inf), min_size=1, max_size=10), min_size=1, max_size=6
    ),
    st.none() | st.integers(1, 10),
)
def test_sums_and_maxima_of_groups(groups: list[list[float]], size: int | None) -> None:
    if size is not None:  # of all groups
        groups = [(group * size)[:size] for group in groups]
    flat, offsets = ragged(groups)
    sizes = np.diff(offsets)
    np.testing.assert_allclose(
        group_sums(flat, sizes), [sum(group) for group in groups], rtol=1e-12, atol=1e-8
    )
    np.testing.assert_array_equal(group_max(flat, sizes), [max(group) for group in groups])

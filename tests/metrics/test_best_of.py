"""`best_of_n`: its table against brute force over subsets, what it leaves out, and a second judge."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib import Scores, best_of_n


def sampled(
    n: int, m: int, *, signal: float = 1.0, trick: float = 0.0, seed: int = 0, p: float = 0.4
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards and labels (n, m) of samples; tricks are wrong and have large rewards."""
    rng = np.random.default_rng(seed)
    label = rng.random((n, m)) < rng.beta(5 * p, 5 * (1 - p), size=(n, 1))
    reward = signal * label + rng.normal(size=(n, m))
    tricked = rng.random((n, m)) < trick
    return reward + 4 * tricked, label & ~tricked


def test_the_table_is_brute_force_over_all_subsets() -> None:
    reward, label = sampled(7, 5)
    reward = reward.round()  # with ties
    found = best_of_n(Scores.from_arrays(reward, label))
    assert found.table["n"].tolist() == [1, 2, 3, 4, 5]
    for row in found.rows:
        right, says, passed = [], [], []
        for r, y in zip(reward, label, strict=True):
            for subset in map(list, combinations(range(5), row["n"])):
                best = [i for i in subset if r[i] == r[subset].max()]
                right.append(y[best].mean())
                says.append((1 / (1 + np.exp(-r[best]))).mean())
                passed.append(y[subset].any())
        assert row["right"] == pytest.approx(np.mean(right), abs=1e-12)
        assert row["says"] == pytest.approx(np.mean(says), abs=1e-12)
        assert row["pass_at_n"] == pytest.approx(np.mean(passed), abs=1e-12)
        assert row["low"] <= row["right"] <= row["high"]


def test_a_reward_that_is_fooled_by_a_trick() -> None:
    found = best_of_n(Scores.from_arrays(*sampled(400, 32, trick=0.04)))
    assert found.over_optimised_from in (8, 16, 32)
    assert 2 <= found.useful_up_to < found.over_optimised_from
    assert found.enough_at is not None
    assert found.enough_at <= found.useful_up_to
    clean = best_of_n(Scores.from_arrays(*sampled(400, 32)))
    assert (clean.over_optimised_from, clean.useful_up_to) == (None, 32)
    assert "over-optimised from None" in repr(clean)


def test_enough_follows_from_the_gains() -> None:
    scores = Scores.from_arrays(*sampled(3000, 16, signal=4.0, p=0.8))
    found = best_of_n(scores)
    later: dict[int, list[bool]] = {row["fewer"]: [] for row in found.gains}
    for row in found.gains:
        later[row["fewer"]].append(row["high"] <= 0.01)
    assert found.enough_at == min(k for k, small in later.items() if all(small))
    assert found.enough_at == 8  # between 4 and 8 samples, the gain may be 0.014
    # If a sample costs as much as a third of a right answer, one is enough.
    assert best_of_n(scores, cost=0.34).enough_at == 1
    assert best_of_n(scores, cost=0.0).enough_at in (None, 8)


def test_one_best_response_of_each_prompt() -> None:
    rng = np.random.default_rng(3)
    reward = rng.normal(size=(100, 4))
    found = best_of_n(Scores.from_arrays(reward, rng.integers(4, size=100)))
    assert found.labels == "best"
    assert found.row(1)["right"] == pytest.approx(0.25)
    assert found.table["pass_at_n"].tolist() == pytest.approx([0.25, 0.5, 0.75, 1.0])
    p = np.exp(reward) / np.exp(reward).sum(axis=1, keepdims=True)
    assert found.row(4)["says"] == pytest.approx(p.max(axis=1).mean())


def test_says_needs_a_scale_that_states_probabilities() -> None:
    reward, label = sampled(60, 4)
    scores = Scores.from_arrays(reward, label, scale="utility")
    found = best_of_n(scores)
    assert found.table["says"].isna().all()
    assert found.no_says == scores.refusal()
    calibrator = rmcalib.Calibrator(2.0, 1.9, 2.1, threshold=0.5)
    calibrated = best_of_n(calibrator.apply(scores))
    assert calibrated.no_says == ""
    assert calibrated.row(1)["says"] == pytest.approx((1 / (1 + np.exp(-(reward - 0.5) / 2))).mean())
    assert calibrated.table["right"].tolist() == pytest.approx(found.table["right"].tolist())


def ragged(sizes: list[int], *, unlabelled: int = 0) -> Scores:
    rng = np.random.default_rng(1)
    item = np.repeat(np.arange(len(sizes)), sizes)
    label = (rng.random(len(item)) < 0.5).astype(float)
    label[:unlabelled] = np.nan
    columns = {
        "item_id": item.astype(str),
        "response": np.concatenate([np.arange(m) for m in sizes]),
        "reward": rng.normal(size=len(item)),
        "label": label,
    }
    return Scores.from_columns(columns)


def test_prompts_with_fewer_samples_are_left_out_and_counted() -> None:
    scores = ragged([8] * 30 + [5] * 3 + [12] * 7)
    found = best_of_n(scores)
    assert (found.rows[-1]["n"], found.n_prompts, len(found.notes)) == (8, 37, 1)
    assert "3 prompts" in found.notes[0]
    every = best_of_n(scores, up_to=5)
    assert (every.rows[-1]["n"], every.n_prompts, every.notes) == (5, 40, [])
    assert best_of_n(scores, up_to=12).n_prompts == 7
    # A prompt with a sample whose label is unknown would be a selection.
    found = best_of_n(ragged([8] * 30, unlabelled=1))
    assert (found.n_prompts, len(found.notes)) == (29, 1)


def test_clusters_count_once() -> None:
    reward, label = sampled(80, 8)
    alone = best_of_n(Scores.from_arrays(reward, label))
    five = [np.repeat(one, 5, axis=0) for one in (reward, label)]
    together = best_of_n(Scores.from_arrays(*five, cluster=np.repeat(np.arange(80), 5).astype(str)))
    assert (together.n_prompts, together.n_clusters) == (400, 80)
    for one, other in zip(alone.gains, together.gains, strict=True):
        assert other["gain"] == pytest.approx(one["gain"])
        assert other["high"] - other["low"] == pytest.approx(one["high"] - one["low"], rel=0.1)


def test_too_few_clusters_have_no_intervals_and_no_verdict() -> None:
    reward, label = sampled(60, 4, signal=5.0)
    cluster = ["one"] * 55 + [str(i) for i in range(5)]
    found = best_of_n(Scores.from_arrays(reward, label, cluster=cluster), Scores.from_arrays(-reward, label))
    assert (found.useful_up_to, found.enough_at, found.over_optimised_from) == (1, None, None)
    assert found.table[["low", "high", "difference_low", "difference_high"]].isna().all(axis=None)
    assert len(found.notes) == 1
    assert "svg" in found._repr_html_()


def test_prompts_that_were_drawn_with_unequal_probabilities_are_weighted() -> None:
    """Easy prompts are drawn three times as often: the weighted curve is that of all prompts."""
    reward, label = sampled(400, 4)
    easy = label.mean(axis=1) > 0.4
    rows = np.flatnonzero(np.random.default_rng(0).random(400) < np.where(easy, 0.9, 0.3))
    drawn = Scores.from_arrays(reward[rows], label[rows])
    inclusion = np.repeat(np.where(easy, 0.9, 0.3)[rows], 4)
    weighted = replace(drawn, extra={**drawn.extra, "inclusion": inclusion})
    found, plain, every = (best_of_n(one) for one in (weighted, drawn, Scores.from_arrays(reward, label)))
    w = 1 / inclusion[::4]
    assert found.row(1)["right"] == pytest.approx((w * label[rows].mean(axis=1)).sum() / w.sum())
    assert found.row(4)["pass_at_n"] == pytest.approx((w * label[rows].any(axis=1)).sum() / w.sum())
    for n in (1, 4):
        truth = every.row(n)["right"]
        assert found.row(n)["low"] < truth < found.row(n)["high"]
        assert abs(found.row(n)["right"] - truth) < abs(plain.row(n)["right"] - truth)


def test_a_second_judge_is_compared_on_the_same_samples() -> None:
    reward, label = sampled(300, 8, signal=0.5)
    noise = np.random.default_rng(5).normal(size=reward.shape)
    good, bad = Scores.from_arrays(reward + 2 * label, label), Scores.from_arrays(reward + 2 * noise, label)
    found = best_of_n(bad, good)
    last = found.rows[-1]
    assert last["second_right"] == pytest.approx(best_of_n(good).rows[-1]["right"])
    assert last["difference"] == pytest.approx(last["second_right"] - last["right"])
    assert last["difference_low"] > 0
    first = found.rows[0]  # one sample is no choice
    assert (first["difference"], first["difference_low"], first["difference_high"]) == pytest.approx(
        (0, 0, 0)
    )
    same = best_of_n(bad, bad)
    assert all(row["difference_low"] <= 0 <= row["difference_high"] for row in same.rows)


@pytest.mark.parametrize(
    ("options", "name"),
    [({"up_to": 5}, "up_to"), ({"up_to": 0}, "up_to"), ({"cost": -1}, "cost"), ({"level": 1.0}, "level")],
)
def test_bad_values_are_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        best_of_n(Scores.from_arrays(*sampled(10, 4)), **options)


def test_without_labels_there_is_nothing_to_say() -> None:
    with pytest.raises(ValueError, match="label"):
        best_of_n(Scores.from_arrays(np.ones((5, 4)), np.full((5, 4), np.nan)))


def test_the_page_and_the_figure() -> None:
    reward, label = sampled(60, 40)
    found = best_of_n(Scores.from_arrays(reward, label), Scores.from_arrays(-reward, label))
    assert found.plot().axes[0].get_xlabel()
    assert "svg" in found._repr_html_()
    assert rmcalib.best_of_n(Scores.from_arrays(reward[:, :1], label[:, :1])).useful_up_to == 1

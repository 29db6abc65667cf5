"""Differences, winners, leaderboards, groups: what may be said and what not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rmcalib.leaderboards import leaderboard
from rmcalib.leaderboards.measure import rank_sets
from rmcalib.leaderboards.transfer import transfer
from rmcalib.metrics import Settings, compare, prompts_needed
from rmcalib.metrics.audit import audit, holm, pooled
from rmcalib.metrics.comparison import smallest_gap
from rmcalib.metrics.measures import gap as gap_of
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores
from tests.metrics.worlds import calibrated_scores

SCALE_FREE = (
    "accuracy",
    "usable_information",
    "ece_at_temperature",
    "nll_at_temperature",
    "rewardbench_score",
)


def test_the_same_model_on_another_scale_differs_only_where_scale_matters() -> None:
    one = calibrated_scores(150, seed=2)
    found = compare(one, one.at_temperature(0.5), resamples=50)
    for name in SCALE_FREE:
        row = found.row(name)
        assert row is not None
        assert (row["difference"], row["p_value"], row["better"]) == (0.0, 1.0, ""), name
    nll = found.row("nll")
    assert nll is not None
    assert nll["better"] == "a"


def models_with_gaps(gap_a: float, gap_b: float, n: int, seed: int) -> tuple[Scores, Scores]:
    """Pairs whose first choice is right 70% of the time, with confidences 0.7 + gap."""
    rng = np.random.default_rng(seed)
    right = rng.random(n) < 0.7
    pair = []
    for gap in (gap_a, gap_b):
        confidence = np.clip(0.7 + gap + rng.normal(0, 0.03, n), 0.51, 0.99)
        margin = np.log(confidence / (1 - confidence))
        pair.append(Scores.from_arrays(np.column_stack([margin, np.zeros(n)]), (~right).astype(int)))
    return pair[0], pair[1]


def test_gaps_of_opposite_sign_have_no_winner() -> None:
    winners = 0
    for seed in range(20):
        found = compare(*models_with_gaps(-0.06, 0.06, 300, seed), metrics=["overconfidence"]).row(
            "overconfidence"
        )
        assert found is not None
        winners += found["better"] != ""
    assert winners <= 4
    wide = compare(*models_with_gaps(0.0, 0.2, 600, 1), metrics=["overconfidence"]).row("overconfidence")
    assert wide is not None
    assert wide["better"] == "a"


def test_the_difference_of_lost_information_where_few_prompts_dominate() -> None:
    """5% of the prompts are surely wrong, and the second forecast is surer about all."""
    rng, found = np.random.default_rng(0), []
    for _ in range(30):
        rewards = rng.normal(size=(100, 4))
        rewards[:, 0] += 5
        correct = np.where(rng.random(100) < 0.05, 1, 0)
        one = Scores.from_arrays(rewards, correct)
        row = compare(one, one.at_temperature(1 / 1.5), metrics=["lost_information"]).row("lost_information")
        assert row is not None
        found.append((row["difference"], row["low"]))
    difference, low = np.array(found).T
    assert np.mean(low > difference.mean()) <= 0.1


def test_improper_numbers_have_no_better_side() -> None:
    found = compare(calibrated_scores(80), calibrated_scores(80, confidence=4.0), resamples=20).table
    improper = found[found["metric"].isin(["mean_confidence", "reference_top_1", "margin_mean"])]
    assert len(improper)
    assert (improper["better"] == "").all()
    assert found["p_value"].dropna().between(0, 1).all()


def test_only_common_prompts_with_the_same_responses_are_compared() -> None:
    one = calibrated_scores(40)
    half = one.take(np.arange(40) < 25)
    row = compare(one, half, resamples=20).row("accuracy")
    assert row is not None
    assert row["n"] == 25
    with pytest.raises(ValueError, match="no prompt in common"):
        compare(one, Scores.from_arrays([[1.0, 0.0]], item_id=["other"]))
    renamed = Scores.from_columns({**one.columns(), "category": np.repeat("all", len(one))})
    assert set(compare(one, renamed, resamples=20).table["category"]) == {"overall", *one.category}


def test_copies_of_a_prompt_add_nothing_to_a_difference() -> None:
    one, copies = calibrated_scores(150, seed=4), 6
    rewards = one.reward.reshape(150, -1)
    other = rewards + np.random.default_rng(5).normal(size=rewards.shape)
    cluster = np.repeat(np.arange(150).astype(str), copies)

    def width(n: int, **more: Any) -> float:
        both = (Scores.from_arrays(np.repeat(each, n, axis=0), **more) for each in (rewards, 3 * other))
        row = compare(*both, metrics=["confidence_ece"], resamples=100).row("confidence_ece")
        assert row is not None
        return float(row["high"] - row["low"])

    assert width(copies, cluster=cluster) > 0.8 * width(1)


def test_noise_never_leads_a_leaderboard() -> None:
    rng = np.random.default_rng(0)
    good = calibrated_scores(200, seed=1)
    noise = {name: array.copy() for name, array in good.columns().items()}
    noise["reward"] = rng.normal(size=len(good)) * 1e-3
    reversed_ = {**noise, "reward": -good.reward}
    board = leaderboard(
        {
            "noise": Scores.from_columns(noise),
            "reversed": Scores.from_columns(reversed_),
            "good": good,
            "too sure": good.at_temperature(0.4),
        },
        resamples=50,
    )
    assert [row["model"] for row in board.models][:2] == ["good", "too sure"]
    guess = dict(zip(board.table["model"], board.table["better_than_guess"], strict=True))
    assert guess == {"good": True, "too sure": True, "noise": False, "reversed": False}
    assert {"rank", "accuracy", "kept_information", "rank_low", "rank_high"} <= {*board.table.columns}


def test_unnamed_and_equal_scores_are_fine() -> None:
    one = Scores.from_arrays([[1.0, 0.0], [0.2, 0.4], [0.3, 0.1]] * 10)
    board = leaderboard([one, one], resamples=20)
    assert len(board.table) == 2
    assert board.table["rank"].tolist() == [1, 1]


def test_models_may_have_the_same_prompts_in_another_order() -> None:
    one = calibrated_scores(80)
    turned = {name: array.reshape(80, 4)[::-1].ravel() for name, array in one.columns().items()}
    board = leaderboard({"a": one, "b": Scores.from_columns(turned)}, resamples=50)
    assert not board.notes
    assert [(row["rank_low"], row["rank_high"]) for row in board.models] == [(1, 2), (1, 2)]


def test_rank_sets_count_clusters_and_need_the_same_labels() -> None:
    rng = np.random.default_rng(0)
    one = rng.normal(size=(30, 4))
    other, correct = (
        2.3 * one + 0.3 * rng.normal(size=one.shape),
        (one + rng.gumbel(size=one.shape)).argmax(1),
    )

    def sets(copies: int, cluster: bool, labels: int | None = None) -> set[tuple[Any, Any]]:
        names = [str(i) for i in np.repeat(np.arange(30), copies)] if cluster else None
        right = np.repeat(np.eye(4)[correct], copies, axis=0)
        fewer = right.copy()
        fewer[labels:] = np.nan
        pair = [
            Scores.from_arrays(np.repeat(rewards, copies, axis=0), own, cluster=names)
            for rewards, own in ((one, right), (other, fewer if labels else right))
        ]
        found = leaderboard(pair, resamples=200).models
        return {(row["rank_low"], row["rank_high"]) for row in found}

    assert sets(20, cluster=False) == {(1, 1), (2, 2)}
    assert sets(20, cluster=True) == sets(1, cluster=False) == {(1, 2)}
    assert sets(1, cluster=False, labels=25) == {(None, None)}


def test_rank_sets_hold_the_true_rank() -> None:
    rng, held = np.random.default_rng(0), 0
    for seed in range(40):
        each = rng.normal(size=(4, 200)) + np.array([0.0, 0.1, 0.1, 1.0])[:, None]
        measured = [(row.mean(), (row - row.mean()) / 200) for row in each]
        sets = rank_sets(measured, Settings(resamples=200, seed=seed))
        held += all(low <= rank <= high for rank, (low, high) in zip((4, 2, 2, 1), sets, strict=True))
        assert sets[3] == (1, 1)
    assert held >= 36


def test_groups_are_pooled_and_flags_corrected() -> None:
    rng, flagged, close = np.random.default_rng(1), 0, 0
    for seed in range(15):
        scores = calibrated_scores(400, seed=100 + seed)
        names = rng.permutation(np.repeat([f"group {i:02}" for i in range(20)], 20))
        rows = audit(
            whole_part(scores), ["kind"], {"kind": dict(zip(map(str, range(400)), names, strict=True))}
        )
        assert len(rows) == 20
        flagged += any(row["flagged"] for row in rows)
        close += any(0.05 < row["p_adjusted"] < 0.2 for row in rows)
        assert all(row["flagged"] == (row["p_adjusted"] <= 0.05) for row in rows)
        spread = np.std([row["gap"] for row in rows])
        assert np.std([row["pooled"] for row in rows]) < 0.7 * spread
    assert flagged <= 4
    assert close
    sizes = {"few": 9, "enough": 10, "others": 381}
    small = dict(zip(map(str, range(400)), np.repeat([*sizes], [*sizes.values()]), strict=True))
    rows = audit(whole_part(scores), ["kind"], {"kind": small})
    assert {row["group"]: row["low"] is None for row in rows} == {name: n < 10 for name, n in sizes.items()}
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    far = pooled([0.5, -0.5, 0.5, -0.5], [1e-6] * 4)
    assert far == pytest.approx([0.5, -0.5, 0.5, -0.5], abs=1e-3)


def test_planned_prompts_show_the_gap() -> None:
    n = prompts_needed(0.1, spread=0.45)
    rng = np.random.default_rng(0)
    shown = [abs(x.mean()) > 1.96 * x.std() / np.sqrt(n) for x in rng.normal(0.1, 0.45, size=(300, n))]
    assert 0.7 < np.mean(shown) < 0.9
    with pytest.raises(ValueError, match="gap"):
        prompts_needed(0.0)


@pytest.mark.parametrize(("n_clusters", "copies"), [(300, 1), (20, 15)])
def test_the_smallest_gap_is_shown_as_often_as_promised(n_clusters: int, copies: int) -> None:
    rng, parts = np.random.default_rng(0), []
    for _ in range(150):
        rewards = np.repeat(rng.normal(scale=1.5, size=(n_clusters, 4)), copies, axis=0)
        noise = np.repeat(rng.gumbel(size=(n_clusters, 4)), copies, axis=0)
        names = np.repeat(np.arange(n_clusters), copies).astype(str).tolist()
        parts.append(whole_part(Scores.from_arrays(rewards, (rewards + noise).argmax(axis=1), cluster=names)))
    planned = np.median([smallest_gap(part) or np.nan for part in parts])
    limits = [gap_of(part, Settings(), "first_choice").interval() for part in parts]
    shown = [
        sign * (one.low if sign > 0 else one.high) + planned > 0 for one in limits if one for sign in (1, -1)
    ]
    assert np.mean(shown) == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize(
    ("sizes", "known"),
    [([300], False), ([12] + [1] * 288, False), ([60] * 5, True), ([2] + [1] * 298, True), ([1] * 300, True)],
)
def test_what_a_few_large_clusters_could_show_is_unknown(sizes: list[int], known: bool) -> None:
    rng, cluster = np.random.default_rng(0), np.repeat(np.arange(len(sizes)), sizes)
    rewards = rng.normal(scale=1.5, size=(len(sizes), 4))[cluster]
    scores = Scores.from_arrays(rewards, (rewards + rng.gumbel(size=(300, 4))).argmax(axis=1))
    scores = Scores.from_columns({**scores.columns(), "cluster": np.repeat(cluster.astype(str), 4)})
    assert (smallest_gap(whole_part(scores)) is not None) == known


def test_a_temperature_is_tried_on_other_benchmarks() -> None:
    found = transfer({"a": calibrated_scores(100, confidence=3.0), "b": calibrated_scores(100, seed=1)})
    assert found.equality is not None
    assert found.equality.p_value < 0.05
    lost = {(row["fitted_on"], row["used_on"]): row["lost_information"] for row in found.effects}
    assert lost["a", "a"] < lost["none", "a"]


def test_one_discordant_pair_names_nobody() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(scale=2.0, size=(600, 2))
    correct = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    other = rewards.copy()
    other[0] = rewards[0, ::-1]
    found = compare(*(Scores.from_arrays(one, correct) for one in (rewards, other)), resamples=20)
    for name in ("accuracy", "pairwise_accuracy", "pairwise_overconfidence", "nll", "brier"):
        row = found.row(name)
        assert row is not None
        assert row["better"] == ""
        assert row["low"] < 0 < row["high"]


def test_noise_on_saturated_pairs_names_nobody() -> None:
    named = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        rewards = 20 * rng.normal(size=(200, 2))
        wrong = rng.random(200) < 0.03
        correct = np.where(wrong, rewards.argmin(axis=1), rewards.argmax(axis=1))
        both = [
            Scores.from_arrays(rewards + 1e-3 * rng.normal(size=rewards.shape), correct) for _ in range(2)
        ]
        found = compare(*both, metrics=["nll", "brier", "pairwise_accuracy"], resamples=20)
        named += any(row["better"] for row in found.rows)
    assert named <= 3


def test_wrong_choices_that_were_not_seen_are_those_of_unsure_prompts() -> None:
    """The Brier scores of sure and wrong choices differ little, those of unsure ones by more."""
    rng, missed = np.random.default_rng(0), 0
    true = 0.0016
    for _ in range(80):
        utilities = rng.normal(size=(100, 4))
        utilities[:, 0] += 5.5
        correct = (utilities + rng.gumbel(size=(100, 4))).argmax(axis=1)
        a, b = (scale * (utilities + 0.1 * rng.normal(size=(100, 4))) for scale in (1.0, 1.5))
        row = compare(Scores.from_arrays(a, correct), Scores.from_arrays(b, correct), metrics=["brier"]).rows[
            0
        ]
        missed += not row["low"] <= true <= row["high"]
    assert missed <= 4  # 12% are 10


def test_an_error_in_one_bin_is_not_better() -> None:
    sharp = calibrated_scores(300, confidence=2.0)
    flat = sharp.at_temperature(1000.0)
    for name in ("ece", "confidence_ece"):
        row = compare(sharp, flat, metrics=[name], resamples=50).row(name)
        assert row is not None
        assert row["better"] == ""
    better = compare(sharp, sharp.at_temperature(2.0), metrics=["ece"], resamples=50).row("ece")
    assert better is not None
    assert better["better"] == "b"


@pytest.mark.parametrize(("spread", "better"), [(0.9, "b"), (1.5, "")])
def test_an_error_is_not_better_where_most_probabilities_are_in_one_bin(spread: float, better: str) -> None:
    rng = np.random.default_rng(0)
    rewards = spread * rng.normal(size=(600, 10))
    right = Scores.from_arrays(rewards, (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1))
    sharp = right.at_temperature(0.4)
    fullest = np.histogram(whole_part(sharp).top_1.p, 10, (0, 1))[0].max() / 6000
    assert (fullest > 0.8) == (better == "")
    assert fullest < 0.95
    row = compare(sharp, right, metrics=["ece"], resamples=50).row("ece")
    assert row is not None
    assert row["better"] == better


def test_rank_sets_of_equal_models_with_few_prompts() -> None:
    wrong = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        each = rng.standard_normal((20, 15))
        measured = [(row.mean(), (row - row.mean()) / 15) for row in each]
        sets = rank_sets(measured, Settings(resamples=200, seed=seed))
        wrong += any((low, high) != (1, 20) for low, high in sets)
    assert wrong <= 12


def test_models_that_agree_on_every_pair_may_differ_on_another() -> None:
    rng = np.random.default_rng(0)
    margin, correct = rng.exponential(size=100) + 0.1, rng.integers(2, size=100)
    one, other = (np.column_stack([m, np.zeros(100)]) for m in (margin, margin * rng.uniform(0.5, 2, 100)))
    found = compare(Scores.from_arrays(one, correct), Scores.from_arrays(other, correct), resamples=20)
    for name in ("accuracy", "pairwise_accuracy"):
        row = found.row(name)
        assert row is not None
        assert row["difference"] == 0
        assert row["low"] < 0 < row["high"]

"""The paired comparison: against plain loops over resamples, against evaluations, and its bad input."""

from __future__ import annotations

import numpy as np
import pytest

from rmcalib.calibration import skew_interval
from rmcalib.metrics import Settings, catalogue, compare_scores, forecast, metric_rows
from rmcalib.scores import Scores
from tests.report.boards import synthetic

COLUMNS = ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated")


def test_values_equal_those_of_an_evaluation_for_every_metric() -> None:
    a, b = synthetic(1, ties=True), synthetic(2, skill=2.0, ties=True)
    rows = compare_scores(a, b, settings=Settings(resamples=30))
    found = {(row["category"], row["metric"]): row for row in rows}
    for scores, side in ((a, "a"), (b, "b")):
        for row in metric_rows(scores, model="m", benchmark="x", settings=Settings(resamples=30)):
            key = row["category"], row["metric"]
            if key in found:
                assert found[key][side] == pytest.approx(row["value"]), key
                assert found[key]["n"] == row["n"], key
            else:
                compared = catalogue()[row["metric"]].compared
                here = {"everywhere": True, "overall": row["category"] == "overall", "nowhere": False}
                assert row["value"] is None or not here[compared], key
    assert all(row["difference"] == pytest.approx(row["b"] - row["a"], rel=1e-8) for row in rows)
    assert all(row["low"] <= row["high"] for row in rows)


def test_the_interval_is_that_of_explicit_paired_resamples() -> None:
    a, b = synthetic(1, n=40), synthetic(2, n=40, scale=2.0)
    (row,) = [
        row
        for row in compare_scores(a, b, settings=Settings(resamples=200, seed=4))
        if (row["category"], row["metric"]) == ("overall", "margin_median")
    ]
    drawn = np.random.default_rng(4).integers(40, size=(200, 40))
    differences = []
    for index in drawn:
        rows = (index[:, None] * 4 + np.arange(4)).reshape(-1)
        rewards = (scores.reward[rows].reshape(-1, 4) for scores in (a, b))
        # The lower of the two middle values, because 40 is even.
        values = [np.sort(one[:, 0] - one[:, 1:].max(axis=1))[19] for one in rewards]
        differences.append(values[1] - values[0])
    low, high = np.quantile(differences, [0.025, 0.975])
    assert row["low"] == pytest.approx(low)
    assert row["high"] == pytest.approx(high)


def test_the_interval_of_a_mean_is_that_of_the_differences_of_each_prompt() -> None:
    a, b = synthetic(1, n=40), synthetic(2, n=40, scale=2.0)
    losses = [-forecast(scores).log_probability.reshape(-1, 4)[:, 0] for scores in (a, b)]
    (row, *_) = compare_scores(a, b, metrics=["nll"])
    assert (row["low"], row["high"]) == pytest.approx(skew_interval(losses[1] - losses[0]))
    assert row["difference"] == pytest.approx(np.mean(losses[1] - losses[0]))


def test_the_more_confident_of_two_calibrated_models_is_not_called_worse() -> None:
    # Noise adds much more to the error of a forecast that fills all bins than to that of a nearly flat one.
    errors = ("ece", "equal_mass_ece", "smooth_ece", "pairwise_ece", "ece_at_temperature")
    found: dict[str, list[bool]] = {name: [] for name in errors}
    for seed in range(10):
        rng = np.random.default_rng(seed)
        rewards = rng.normal(size=(250, 4))
        best = (np.exp(rewards) / np.exp(rewards).sum(axis=1, keepdims=True)).cumsum(axis=1)
        correct = (best > rng.random((250, 1))).argmax(axis=1)
        order = np.argsort(np.arange(4) != correct[:, None], axis=1, kind="stable")
        bold = {
            "item_id": np.repeat([str(i) for i in range(250)], 4),
            "category": ["x"] * 1000,
            "response": np.tile(range(4), 250),
            "is_correct": np.tile([True, False, False, False], 250),
            "reward": np.take_along_axis(rewards, order, axis=1).ravel(),
        }
        flat = {**bold, "reward": 1e-4 * rng.normal(size=1000)}
        rows = compare_scores(
            Scores.from_columns(flat), Scores.from_columns(bold), settings=Settings(resamples=200)
        )
        for row in rows:
            if row["category"] == "overall" and row["metric"] in errors:
                assert row["low"] <= row["difference"] <= row["high"]
                assert (row["p_value"] < 0.05) == (not row["low"] <= 0 <= row["high"])
                found[row["metric"]].append(row["low"] <= 0 <= row["high"])
    assert {name for name, held in found.items() if sum(held) < 8} == set()


def test_swapping_the_models_changes_the_sign_only() -> None:
    a, b = synthetic(1, n=80), synthetic(2, n=80, scale=2.0)
    rows, turned = (compare_scores(*pair, settings=Settings(resamples=60)) for pair in ((a, b), (b, a)))
    for row, other in zip(rows, turned, strict=True):
        assert (row["low"], row["high"]) == pytest.approx((-other["high"], -other["low"]), abs=1e-12), row
        assert row["p_value"] == pytest.approx(other["p_value"], abs=2e-3), row


def test_a_model_does_not_differ_from_itself() -> None:
    scores = synthetic(3)
    for row in compare_scores(scores, scores, settings=Settings(resamples=30)):
        assert (row["difference"], row["low"], row["high"], row["p_value"]) == (0, 0, 0, 1)


def test_twice_the_rewards_change_nothing_that_does_not_depend_on_scale() -> None:
    for factor in (2.0, 3.7):
        rows = compare_scores(synthetic(3), synthetic(3, scale=factor), settings=Settings(resamples=50))
        found = {row["metric"]: row for row in rows if row["category"] == "overall"}
        without_scale = [
            name
            for name in found
            if name.endswith(("_at_temperature", "accuracy")) or name.startswith(("usable", "reward"))
        ]
        assert len(without_scale) >= 7
        for name in without_scale:
            row = found[name]
            assert (row["difference"], row["low"], row["high"], row["p_value"]) == (0, 0, 0, 1), name
            assert row["better"] == "", name


def _pairs_at(gaps: tuple[float, ...], seed: int, n: int) -> list[Scores]:
    """Two models that make the same choices in pairs, and whose true gaps are given."""
    rng = np.random.default_rng(seed)
    right = rng.uniform(0.65, 0.85, n)
    is_first = rng.random(n) < right
    says = [right + gap for gap in gaps]
    return [
        Scores.from_arrays(np.column_stack([np.log(p / (1 - p)), np.zeros(n)]), np.where(is_first, 0, 1))
        for p in says
    ]


def test_of_two_gaps_the_smaller_one_is_better_whatever_their_signs() -> None:
    def winners(*gaps: float, runs: int, n: int) -> list[str]:
        every = [compare_scores(*_pairs_at(gaps, i, n), metrics=["overconfidence"]) for i in range(runs)]
        return [rows[0]["better"] for rows in every]

    assert winners(-0.06, 0.06, runs=60, n=300).count("") >= 53  # at 5%, fewer have a chance of 1%
    assert winners(-0.02, 0.1, runs=10, n=2000).count("a") >= 9
    assert winners(-0.1, 0.02, runs=10, n=2000).count("b") >= 9


def test_numbers_that_are_no_proper_scores_have_no_better_side() -> None:
    a, b = synthetic(1, n=300), synthetic(1, n=300, scale=6.0)
    rows = [row for row in compare_scores(a, b, settings=Settings(resamples=50)) if row["low"] is not None]
    found = {row["metric"]: row for row in rows if row["category"] == "overall"}
    for name in ("reference_top_1", "mean_confidence", "pairwise_confidence", "temperature"):
        assert not found[name]["low"] <= 0 <= found[name]["high"], name
        assert found[name]["better"] == "", name
    assert found["nll"]["better"] == "a"


def test_another_temperature_changes_calibration_but_not_accuracy() -> None:
    a, b = synthetic(3, n=300), synthetic(3, n=300, scale=12.0)
    found = {
        row["metric"]: row
        for row in compare_scores(a, b, settings=Settings(resamples=100))
        if row["category"] == "overall"
    }
    assert found["accuracy"]["difference"] == 0
    assert found["ece"]["low"] > 0
    assert found["overconfidence"]["p_value"] < 0.05
    assert found["temperature"]["b"] == pytest.approx(12 * found["temperature"]["a"])
    assert found["ece_at_temperature"]["difference"] == pytest.approx(0, abs=1e-6)


def test_a_model_without_utilities_has_no_calibration() -> None:
    a, b = synthetic(1, n=60, ties=True), synthetic(2, n=60, ties=True)
    settings = Settings(resamples=20)
    usual = compare_scores(a, b, settings=settings)
    assert {row["note"] for row in usual} == {""}
    found = compare_scores(a, b, no_calibration=(None, "no utilities"), settings=settings)
    assert [(row["category"], row["metric"], row["n"]) for row in found] == [
        (row["category"], row["metric"], row["n"]) for row in usual
    ]
    needs_none = {
        "accuracy",
        "correct_first",
        "rewardbench_score",
        "margin_mean",
        "margin_median",
        "pairwise_accuracy",
        "reward_length_correlation",
    }
    for row, before in zip(found, usual, strict=True):
        if row["metric"] in needs_none:
            assert row == before
        else:
            assert row["a"] == before["a"]
            assert {row[name] for name in ("b", "difference", "low", "high", "p_value")} == {None}
            assert row["better"] == ""
            assert row["note"] == "B: no utilities"
    rows = metric_rows(b, model="m", benchmark="b", no_calibration="no utilities", settings=settings)
    empty = {row["metric"] for row in rows if row["note"] == "no utilities"}
    assert {row["metric"] for row in found if row["note"]} <= empty


def test_only_common_prompts_count_in_any_order() -> None:
    a, b = synthetic(1, n=60), synthetic(2, n=60)
    order = np.random.default_rng(0).permutation(60)[:45]
    rows = (order[:, None] * 4 + np.arange(4)).reshape(-1)
    fewer = Scores.from_columns({name: getattr(b, name)[rows] for name in COLUMNS})
    one = compare_scores(a, fewer, settings=Settings(resamples=30))
    kept = np.sort(rows)
    both = [Scores.from_columns({name: getattr(s, name)[kept] for name in COLUMNS}) for s in (a, b)]
    assert one == compare_scores(*both, settings=Settings(resamples=30))
    assert one[0]["n"] == 45


def test_other_prompts_or_responses_are_refused() -> None:
    scores = synthetic(1, n=4)
    columns = {name: getattr(scores, name) for name in COLUMNS}
    other = Scores.from_columns({**columns, "item_id": [f"x{name}" for name in scores.item_id]})
    with pytest.raises(ValueError, match="no prompt in common"):
        compare_scores(scores, other)
    turned = Scores.from_columns({**columns, "is_correct": np.tile([False, True, False, False], 4)})
    with pytest.raises(ValueError, match="differ in the responses to a prompt: were they scored on the same"):
        compare_scores(scores, turned)

"""Calibrators: fitted or refused, applied to other scores and checked on them, saved and loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import rmcalib
from rmcalib._util.files import json_hash
from rmcalib.calibration import mean_interval
from rmcalib.metrics.views import whole_part
from rmcalib.repair import Calibrator, RefusedError, calibrate
from rmcalib.repair.calibrator import fit_pointwise, labelled_part
from rmcalib.scores import Scores, load_scores


def drawn(n: int, *, scale: float, seed: int = 0, m: int = 4, categories: int = 1) -> Scores:
    """Return scores whose rewards are `scale` times the log-utilities that the truth was drawn from."""
    rng = np.random.default_rng(seed)
    utilities = rng.normal(scale=1.5, size=(n, m))
    correct = (utilities + rng.gumbel(size=(n, m))).argmax(axis=1)
    names = [f"c{i % categories}" for i in range(n)]
    return Scores.from_arrays(scale * utilities, correct, names)


def test_the_temperature_minimises_the_log_loss() -> None:
    scores = drawn(300, scale=3.0)
    rewards, right = scores.reward.reshape(300, 4), scores.is_correct.reshape(300, 4)

    def loss(log_t: float) -> float:
        logits = rewards / np.exp(log_t)
        return float(np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[right]))

    slow = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}).x)
    found = calibrate(scores).calibrator
    assert found.temperature == pytest.approx(slow, rel=1e-5)
    assert found.low < 3.0 < found.high


def test_accuracy_stays_and_the_gap_closes_on_other_prompts() -> None:
    scores, others = drawn(500, scale=4.0), drawn(800, scale=4.0, seed=1)
    calibrated = calibrate(scores).calibrator.apply(others)
    before, after = (whole_part(of).first_choice for of in (others, calibrated))
    np.testing.assert_array_equal(before.y, after.y)
    assert mean_interval(before.p - before.y).low > 0
    gap = mean_interval(after.p - after.y)
    assert gap.low <= 0 <= gap.high
    assert calibrated.manifest["calibrator"]["fitted_on"]["n"] == 500


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (drawn(2500, scale=1.0, seed=3), "on scale"),
        (drawn(25, scale=1.0, seed=3), "not shown to be off"),
        (drawn(300, scale=-1.0), "uninformative"),
        (Scores.from_arrays(np.tile([[3.0, 0.0]], (50, 1))), "perfect"),
        (drawn(10, scale=3.0), "few"),
    ],
    ids=str,
)
def test_a_refusal_gives_the_reason(scores: Scores, reason: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        calibrate(scores)
    assert refusal.value.reason == reason


def test_categories_that_disagree_are_reported() -> None:
    one, other = drawn(300, scale=1.0), drawn(300, scale=6.0, seed=1)
    names = ["mild"] * 300 + ["bold"] * 300
    rewards = np.concatenate([one.reward, other.reward]).reshape(600, 4)
    correct = np.concatenate([s.is_correct.reshape(300, 4).argmax(axis=1) for s in (one, other)])
    result = calibrate(Scores.from_arrays(rewards, correct, names))
    temperatures = {row["category"]: row["temperature"] for row in result.categories}
    assert temperatures["mild"] < 2 < temperatures["bold"]
    assert result.p_equal is not None
    assert result.p_equal <= 0.001
    same = calibrate(drawn(600, scale=3.0, categories=3))
    assert same.p_equal is not None
    assert same.p_equal > 0.01


def test_the_prompts_it_was_fitted_on_do_not_show_that_a_calibrator_holds(tmp_path: Path) -> None:
    scores = drawn(400, scale=3.0)
    calibrate(scores).calibrator.save(tmp_path / "c.json")
    scores.to_parquet(tmp_path / "s.parquet")
    calibrator = Calibrator.load(tmp_path / "c.json")
    assert calibrator.check(Scores.from_parquet(tmp_path / "s.parquet")).holds is None
    assert calibrator.check(drawn(400, scale=3.0, seed=7)).holds is True


def test_prompts_of_the_fit_are_known_again_and_left_out_of_the_check() -> None:
    scores = drawn(400, scale=3.0)
    half, others = scores.part("1/2"), scores.part("2/2")
    calibrator = calibrate(half).calibrator
    mixed = calibrator.check(scores)
    assert (mixed.used, mixed.n) == (half.n_items, others.n_items)
    assert mixed.temperature == pytest.approx(calibrator.check(others).temperature)
    assert mixed.holds is True
    assert calibrator.check(others).used == 0
    reordered = scores.take(np.arange(400) < 200).to_pandas()[::-1]  # of prompts and responses
    assert calibrate(scores).calibrator.check(load_scores(reordered)).holds is None
    ids = scores.item_id[scores.offsets[:-1]]
    few_others = scores.take(np.isin(ids, half.item_id) | (np.arange(400) < 10))
    check = calibrator.check(few_others)
    assert check.holds is None
    assert 0 < few_others.n_items - check.used < 20
    same_ids = replace(scores, reward=scores.reward + 0.01)
    assert calibrator.check(same_ids).used == 0


def test_a_large_fit_keeps_a_sample_of_its_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = drawn(2000, scale=3.0)
    for module in ("calibrator", "calibration"):
        monkeypatch.setattr(f"rmcalib.repair.{module}.MOST_MARKS", 300)
    calibrator = calibrate(scores.take(np.arange(2000) < 1200)).calibrator
    assert len(calibrator.prompts) == 12 * 300
    check = calibrator.check(scores)
    assert check.used == pytest.approx(1200, abs=150)
    assert 100 < check.n < 300  # the others in the sample
    assert check.holds
    assert calibrator.check(scores.take(np.arange(2000) >= 1200)).used == 0
    assert calibrator.check(scores.take(np.arange(2000) < 1000)).holds is None


def test_a_calibrator_is_checked_on_other_scores() -> None:
    fitted = calibrate(drawn(400, scale=3.0)).calibrator
    assert fitted.check(drawn(400, scale=3.0, seed=7)).holds
    moved = fitted.check(drawn(400, scale=9.0, seed=7))
    assert not moved.holds
    few = calibrate(drawn(60, scale=3.0)).calibrator  # its own uncertainty is taken into account
    exact = replace(few, low=few.temperature * 0.999, high=few.temperature * 1.001)
    others = drawn(3000, scale=few.temperature * 1.12, seed=9)
    assert few.check(others).holds
    assert not exact.check(others).holds
    always_right = Scores.from_arrays(np.tile([[3.0, 0.0]], (50, 1)))
    assert not few.check(always_right).holds  # its best temperature is 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("temperature", value) for value in (-1.0, 1e-320, np.inf)),
        *(("low", None), ("reference", 5), ("fitted_on", []), ("fitted_on", {"n": [1]}), ("model", 7)),
        ("threshold", np.nan),
        ("inputs", [{"name": "a", "weight": 1e308, "low": None, "high": None, "smallest": 0, "largest": 1}]),
    ],
)
def test_files_of_other_programs_are_checked_by_type(tmp_path: Path, name: str, value: Any) -> None:
    path = Calibrator(2.0, 1.8, 2.3).save(tmp_path / "c.json")
    content = {**json.loads(path.read_text()), name: value}
    del content["sha256"]
    path.write_text(json.dumps({**content, "sha256": json_hash(content)}))
    with pytest.raises(ValueError, match=rf"c\.json: {name}") as caught:
        Calibrator.load(path)
    assert len(str(caught.value)) < 100 + len(str(path))


def test_files_round_trip_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    fitted = rmcalib.calibrate(drawn(100, scale=3.0)).calibrator
    path = fitted.save(tmp_path / "c.json")
    assert Calibrator.load(path) == fitted
    content = path.read_text()
    changed = json.dumps({**json.loads(content), "temperature": 1.0})
    for text in ("{", "{}", "[]", content[:-20], changed):
        broken = tmp_path / "broken.json"
        broken.write_text(text)
        with pytest.raises(ValueError, match="broken") as caught:
            Calibrator.load(broken)
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="absent"):
        Calibrator.load(tmp_path / "absent.json")


def test_clusters_widen_the_intervals() -> None:
    one = drawn(120, scale=3.0)
    rewards = np.tile(one.reward.reshape(120, 4), (5, 1))
    correct = np.tile(one.is_correct.reshape(120, 4).argmax(axis=1), 5)
    together = calibrate(Scores.from_arrays(rewards, correct, cluster=[str(i % 120) for i in range(600)]))
    apart, alone = calibrate(Scores.from_arrays(rewards, correct)), calibrate(one)

    def width(found: Any) -> float:
        return float(np.log(found.calibrator.high / found.calibrator.low))

    assert (together.n, together.n_clusters) == (600, 120)
    assert width(together) == pytest.approx(width(alone), rel=0.15)
    assert width(apart) < 0.6 * width(together)


def sampled(n: int, *, temperature: float, threshold: float, seed: int = 0) -> Scores:
    """Return samples of a policy: P(correct) = σ((r − b)/T)."""
    rng = np.random.default_rng(seed)
    x = rng.normal(-0.5, 1.5, size=(n, 4)) + rng.normal(size=(n, 1))
    correct = rng.random((n, 4)) < 1 / (1 + np.exp(-x))
    return Scores.from_arrays(x * temperature + threshold, correct)


def test_responses_that_are_labelled_one_by_one_get_a_threshold(tmp_path: Path) -> None:
    scores = sampled(500, temperature=3.0, threshold=7.0)
    found = calibrate(scores)
    calibrator = Calibrator.load(found.calibrator.save(tmp_path / "c.json"))
    assert found.view == "pointwise"
    assert calibrator.low < 3.0 < calibrator.high
    assert calibrator.threshold_low is not None
    assert calibrator.threshold_high is not None
    assert calibrator.threshold_low < 7.0 < calibrator.threshold_high
    after = {row["metric"]: row for row in found.rows if row["stage"] == "after"}
    assert after["pointwise_gap"]["low"] < 0 < after["pointwise_gap"]["high"]
    assert found.gain[1] > 0
    assert calibrator.check(scores).holds is None
    assert calibrator.check(sampled(400, temperature=3.0, threshold=7.0, seed=1)).holds
    assert not calibrator.check(sampled(400, temperature=3.0, threshold=9.0, seed=1)).holds
    moved = calibrator.apply(sampled(2000, temperature=3.0, threshold=7.0, seed=2))
    p = 1 / (1 + np.exp(-moved.reward))
    assert p.mean() == pytest.approx(moved.is_correct.mean(), abs=0.03)


def test_intervals_of_a_pointwise_calibrator_hold_the_truth() -> None:
    inside = []
    for seed in range(100):
        found = fit_pointwise(
            labelled_part(sampled(80, temperature=2.0, threshold=1.0, seed=seed), "labelled")
        )
        assert found.threshold_low is not None
        assert found.threshold_high is not None
        inside.append([found.low < 2.0 < found.high, found.threshold_low < 1.0 < found.threshold_high])
    assert (np.mean(inside, axis=0) >= 0.95 - 2 * (0.95 * 0.05 / 100) ** 0.5).all()


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (sampled(2000, temperature=1.0, threshold=0.0), "on scale"),
        (sampled(10, temperature=3.0, threshold=0.0), "few"),
        (sampled(200, temperature=-1.0, threshold=0.0), "uninformative"),
    ],
    ids=str,
)
def test_refusals_of_single_responses(scores: Scores, reason: str) -> None:
    with pytest.raises(RefusedError) as refusal:
        calibrate(scores)
    assert refusal.value.reason == reason


@pytest.mark.parametrize(("shift", "holds"), [(0.0, True), (1.0, False)])
def test_a_calibrator_holds_only_if_its_threshold_does(shift: float, holds: bool) -> None:
    def samples(b: float, seed: int) -> Scores:
        rng = np.random.default_rng(seed)
        rewards = 2 * rng.normal(size=(300, 4))
        correct = rng.random((300, 4)) < 1 / (1 + np.exp(-(rewards - b) / 2))
        return Scores.from_arrays(rewards, correct.astype(float)).labelled_as("correct")

    found = calibrate(samples(0.5, seed=1)).calibrator
    check = found.check(samples(0.5 + shift, seed=2))
    assert check.temperature == pytest.approx(found.temperature, rel=0.25)
    assert check.holds == holds


@pytest.mark.parametrize("view", ["top_1", "pointwise"])
def test_a_calibrated_model_gets_a_temperature_as_rarely_as_the_level_says(view: Any) -> None:
    given, off = 0, 0
    for seed in range(50):
        rng = np.random.default_rng(seed)
        rewards = 1.5 * rng.normal(size=(100, 4))
        best = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
        correct = (
            best if view == "top_1" else (rng.random((100, 4)) < 1 / (1 + np.exp(-rewards))).astype(float)
        )
        for scale in (1.0, 2.0):
            try:
                calibrate(Scores.from_arrays(scale * rewards, correct), view=view)
            except RefusedError:
                continue
            given, off = (given + 1, off) if scale == 1 else (given, off + 1)
    assert given <= 7
    assert off >= 47


@pytest.mark.parametrize(("seed", "bias", "temperature"), [(1, 0.1, 1.0), (52, 0.1, 1.0), (56, 0.0, 1.3)])
def test_of_two_parameters_each_has_half_of_the_level(seed: int, bias: float, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    rewards = 1.5 * rng.normal(size=(100, 4))
    correct = rng.random(rewards.shape) < 1 / (1 + np.exp(bias - rewards / temperature))
    scores = Scores.from_arrays(rewards, correct.astype(float)).labelled_as("correct")

    def is_off(level: float) -> bool:
        fit = fit_pointwise(whole_part(scores), level)
        assert fit.threshold_low is not None
        assert fit.threshold_high is not None
        return not (fit.low <= 1 <= fit.high and fit.threshold_low <= 0 <= fit.threshold_high)

    assert [is_off(level) for level in (0.95, 0.975)] == [True, False]
    with pytest.raises(RefusedError) as refused:
        calibrate(scores, view="pointwise")
    assert refused.value.reason == "not shown to be off"
    shifted = replace(scores, reward=scores.reward + 1)  # the scale is right, but the threshold is not
    assert calibrate(shifted, view="pointwise").calibrator.threshold == pytest.approx(1, abs=0.5)


def test_too_few_clusters_have_no_temperature() -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(200, 4))
    correct = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    names = ["same"] * 100 + [str(i) for i in range(100)]
    with pytest.raises(RefusedError, match="clusters") as refused:
        calibrate(Scores.from_arrays(5 * rewards, correct, cluster=names))
    assert refused.value.reason == "few"

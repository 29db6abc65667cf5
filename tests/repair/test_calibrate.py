"""Calibrators: fitted or refused, applied to other scores and checked on them, saved and loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import rmcalib
from rmcalib.metrics import metric_rows
from rmcalib.repair import Calibrator, RefusedError, calibrate
from rmcalib.scores import Scores


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
    before, after = (
        {
            row["metric"]: row
            for row in metric_rows(of, model="", benchmark="", metrics=("accuracy", "overconfidence"))
        }
        for of in (others, calibrated)
    )
    assert before["accuracy"]["value"] == after["accuracy"]["value"]
    assert before["overconfidence"]["low"] > 0
    assert after["overconfidence"]["low"] <= 0 <= after["overconfidence"]["high"]
    assert calibrated.manifest["calibrator"]["fitted_on"]["n"] == 500


def test_held_out_rows_use_temperatures_of_the_other_folds() -> None:
    result = calibrate(drawn(200, scale=3.0))
    after = next(row for row in result.rows if (row["stage"], row["metric"]) == ("after", "nll"))
    before = next(row for row in result.rows if (row["stage"], row["metric"]) == ("before", "nll"))
    assert result.gain[0] == pytest.approx(before["value"] - after["value"])
    assert result.gain[1] > 0


@pytest.mark.parametrize(
    ("scores", "reason"),
    [
        (drawn(300, scale=1.0, seed=3), "on the right scale already"),
        (Scores.from_arrays(np.random.default_rng(5).normal(size=(300, 4)), 0), "uniform guess"),
        (Scores.from_arrays(np.tile([[3.0, 0.0]], (50, 1))), "every first choice is correct"),
        (drawn(10, scale=3.0), "needs at least 20"),
    ],
    ids=["on scale", "uninformative", "always right", "few"],
)
def test_a_refusal_gives_the_reason(scores: Scores, reason: str) -> None:
    with pytest.raises(RefusedError, match=reason):
        calibrate(scores)


def test_categories_that_disagree_are_reported() -> None:
    one, other = drawn(300, scale=1.0), drawn(300, scale=6.0, seed=1)
    names = ["mild"] * 300 + ["bold"] * 300
    rewards = np.concatenate([one.reward, other.reward]).reshape(600, 4)
    correct = np.concatenate([s.is_correct.reshape(300, 4).argmax(axis=1) for s in (one, other)])
    result = calibrate(Scores.from_arrays(rewards, correct, names))
    temperatures = {row["category"]: row["temperature"] for row in result.categories}
    assert temperatures["mild"] < 2 < temperatures["bold"]
    assert result.p_equal is not None
    assert result.p_equal < 1e-6
    assert any("different temperatures" in warning for warning in result.warnings)
    same = calibrate(drawn(600, scale=3.0, categories=3))
    assert same.p_equal is not None
    assert same.p_equal > 0.01


def test_a_calibrator_is_checked_on_other_scores() -> None:
    fitted = calibrate(drawn(400, scale=3.0)).calibrator
    assert fitted.check(drawn(400, scale=3.0, seed=7)).holds
    moved = fitted.check(drawn(400, scale=9.0, seed=7))
    assert not moved.holds
    assert "does not hold here" in moved.sentence
    few = calibrate(drawn(60, scale=3.0)).calibrator  # its own uncertainty is taken into account
    exact = replace(few, low=few.temperature * 0.999, high=few.temperature * 1.001)
    others = drawn(3000, scale=few.temperature * 1.12, seed=9)
    assert few.check(others).holds
    assert not exact.check(others).holds
    always_right = Scores.from_arrays(np.tile([[3.0, 0.0]], (50, 1)))
    assert not few.check(always_right).holds  # its best temperature is 0


def test_files_round_trip_and_broken_ones_are_reported(tmp_path: Path) -> None:
    fitted = rmcalib.calibrate(drawn(100, scale=3.0)).calibrator
    path = fitted.save(tmp_path / "c.json")
    assert Calibrator.load(path) == fitted
    for content, reason in (
        ("{", "not JSON"),
        ("{}", "not a calibrator"),
        (
            json.dumps({**json.loads(path.read_text()), "temperature": -1}),
            "temperature is -1",
        ),
        (json.dumps({**json.loads(path.read_text()), "low": "x"}), "low is .x."),
    ):
        broken = tmp_path / "broken.json"
        broken.write_text(content)
        with pytest.raises(ValueError, match=reason) as caught:
            Calibrator.load(broken)
        assert str(broken) in str(caught.value)

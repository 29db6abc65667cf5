"""Panels: the fit against brute force, held-out prompts, redundant judges, and bad input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

import rmcalib
from rmcalib.repair import Calibrator, combine
from rmcalib.repair.calibrator import Input
from rmcalib.repair.panel_fits import BestResponses, fit_panel
from rmcalib.repair.panels import METHODS
from rmcalib.scores import Scores

N, M = 240, 4


def judges(noise: tuple[float, ...], *, seed: int = 0, n: int = N) -> tuple[list[np.ndarray], np.ndarray]:
    """Return rewards (n, M) of judges that see the truth with some noise, and the correct responses (n,)."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(size=(n, M))
    return [truth + spread * rng.normal(size=(n, M)) for spread in noise], truth.argmax(axis=1)


def as_scores(rewards: list[np.ndarray], correct: np.ndarray) -> dict[str, Scores]:
    return {f"judge {i}": Scores.from_arrays(one, correct) for i, one in enumerate(rewards)}


def slow_losses(logits: np.ndarray, correct: np.ndarray) -> np.ndarray:
    return np.array([-log_softmax(row)[i] for row, i in zip(logits, correct, strict=True)])


def flat(rewards: list[np.ndarray], correct: np.ndarray) -> BestResponses:
    labels = (np.arange(M) == correct[:, None]).astype(float)
    return BestResponses(
        np.stack([each.ravel() for each in rewards]), labels.ravel(), np.full(len(correct), M)
    )


def test_weights_are_the_best_of_a_grid() -> None:
    rewards, correct = judges((1.0, 2.0))
    data = flat(rewards, correct)
    *weights, _ = data.fit_weights(data.rewards, np.ones(2, dtype=bool))
    reshaped = data.rewards.reshape(2, N, M)

    def loss(w: np.ndarray) -> float:
        return float(slow_losses(np.tensordot(w, reshaped, 1), correct).mean())

    best = min(loss(np.array([a, b])) for a in np.linspace(0, 2, 9) for b in np.linspace(0, 2, 9))
    assert loss(np.array(weights)) <= best + 1e-9
    for step in ([1e-3, 0], [-1e-3, 0], [0, 1e-3], [0, -1e-3]):
        assert loss(np.array(weights)) <= loss(weights + np.array(step)) + 1e-12


def test_an_uninformative_judge_gets_no_weight() -> None:
    rewards, correct = judges((1.0, 1.0))
    against = -rewards[1]  # the more it likes a response, the less likely it is correct
    fit = fit_panel(flat([rewards[0], against], correct))
    assert fit.slope[1] == 0
    assert fit.panels["weights"][1] == 0
    assert fit.panels["best member"].tolist() == [1, 0, 0]
    panel = combine(as_scores([rewards[0], against], correct))
    assert panel.members[1]["temperature"] is None
    assert panel.members[1]["redundant"]


def test_reported_losses_equal_those_of_the_scores() -> None:
    rewards, correct = judges((1.0, 1.5, 2.0))
    panel = combine(as_scores(rewards, correct))
    guess, best = panel.panels[:2]
    assert guess["log_loss"] == pytest.approx(np.log(M))
    for row, method in zip(panel.panels[2:], METHODS, strict=True):
        assert row["information"] == pytest.approx(np.log(M) - row["log_loss"])
        logits = panel.scores(method).reward.reshape(N, M)
        own = slow_losses(logits, correct)
        assert row["log_loss"] == pytest.approx(own.mean())
        assert row["accuracy"] == np.mean(logits.argmax(axis=1) == correct)
        assert row["gain"] == pytest.approx(best["log_loss"] - own.mean())
        assert row["gain_low"] < row["gain"] < row["gain_high"]
        assert np.exp(logits).sum(axis=1) == pytest.approx(np.ones(N))  # log-probabilities


def test_each_prompt_is_measured_with_parameters_fitted_on_others() -> None:
    """If the correct response of one prompt changes, its own forecast must stay the same."""
    rewards, correct = judges((1.0, 1.5), n=60)
    other = correct.copy()
    other[7] = (correct[7] + 1) % M
    before, after = (combine(as_scores(rewards, truth)) for truth in (correct, other))
    for method in METHODS:
        a, b = (panel.scores(method).reward.reshape(60, M) for panel in (before, after))
        np.testing.assert_array_equal(a[7], b[7])
        assert not np.array_equal(a, b)


def test_a_panel_of_useless_judges_does_not_gain() -> None:
    """It is closer to a uniform guess than its best member, which is no gain."""
    rng = np.random.default_rng(2)
    gained, lower = 0, 0
    for _ in range(12):
        rewards = [rng.normal(size=(120, M)) for _ in range(6)]
        panel = combine(as_scores(rewards, rng.integers(0, M, size=120)))
        gained += any(row["gains"] for row in panel.panels)
        lower += any((row["gain_low"] or 0) > 0 for row in panel.panels)
    assert lower >= 2  # the best member alone is too easy to beat
    assert gained <= 1


def test_the_scale_of_a_judge_does_not_matter() -> None:
    rewards, correct = judges((1.0, 1.5))
    shifted = [rewards[0] * 40 + np.arange(N)[:, None], rewards[1] / 90]
    a, b = (combine(as_scores(every, correct)) for every in (rewards, shifted))
    for one, other in zip(a.panels, b.panels, strict=True):
        assert one["log_loss"] == pytest.approx(other["log_loss"], abs=1e-5)
    assert b.members[0]["temperature"] == pytest.approx(40 * a.members[0]["temperature"], rel=1e-6)


def test_copies_are_redundant_and_independent_judges_are_not() -> None:
    rewards, correct = judges((1.0, 1.0), n=400)
    panel = combine(as_scores([rewards[0], rewards[0], rewards[1]], correct))
    assert [row["redundant"] for row in panel.members] == [True, True, False]
    noise = np.random.default_rng(5).normal(size=rewards[0].shape)
    close = combine(as_scores([rewards[0], rewards[0] + 1e-6 * noise, rewards[1]], correct))
    assert [row["redundant"] for row in close.members] == [True, True, False]
    # Without the second judge, each prompt loses 0.006 nats, and at least 0.0005.
    least = combine(as_scores(*judges((0.3, 1.8), n=2000))).members[1]
    assert 1e-4 < least["low"] < 1e-3
    assert not least["redundant"]
    assert panel.panels[3]["gains"]
    assert sum(panel.best.values()) == panel.n == 400


def test_prompts_with_several_correct_responses_are_scored_too() -> None:
    rewards, correct = judges((1.0, 1.5), n=80)
    truth = np.arange(M) == correct[:, None]
    truth[:5] = [True, True, False, False]
    scores = {f"j{i}": Scores.from_arrays(one, truth) for i, one in enumerate(rewards)}
    panel = combine(scores)
    assert panel.n == 75
    assert panel.scores().n_items == 80


def test_only_common_prompts_are_used() -> None:
    rewards, correct = judges((1.0, 1.5), n=100)
    names = [f"p{i}" for i in range(100)]
    a = Scores.from_arrays(rewards[0], correct, item_id=names)
    b = Scores.from_arrays(rewards[1][::-1][:80], correct[::-1][:80], item_id=names[::-1][:80])
    panel = rmcalib.combine([a, b], names=["a", "b"])
    assert panel.n == 80
    assert set(panel.scores().item_id.tolist()) == set(names[20:])


def test_the_manifest_names_the_members() -> None:
    rewards, correct = judges((1.0, 1.5), n=60)
    manifest = {"model": "org/a", "benchmark": "mine", "hash": "1"}
    a = Scores.from_arrays(rewards[0], correct, manifest=manifest)
    b = Scores.from_arrays(rewards[1], correct, manifest=manifest | {"model": "org/b"})
    made = combine([a, b]).scores("weights").manifest
    assert made["model"] == "panel of 2 judges (weights)"
    assert made["benchmark"] == "mine"
    assert [member["model"] for member in made["panel"]["members"]] == ["org/a", "org/b"]
    assert "hash" not in made


def test_bad_input() -> None:
    rewards, correct = judges((1.0, 1.5), n=60)
    scores = list(as_scores(rewards, correct).values())
    with pytest.raises(ValueError, match="expected at least 2"):
        combine(scores[:1])
    assert [row["judge"] for row in combine(scores, names=["a", "a"]).members] == ["a", "a (2)"]
    with pytest.raises(ValueError, match="a panel needs 50"):
        combine([one.take(np.arange(60) < 30) for one in scores])
    other = Scores.from_arrays(rewards[1], (correct + 1) % M)
    with pytest.raises(ValueError, match="--method all"):
        combine([scores[0], other])
    apart = Scores.from_arrays(rewards[1], correct, item_id=[f"x{i}" for i in range(60)])
    with pytest.raises(ValueError, match="the 3 judges have no prompt in common"):
        combine([*scores, apart])
    with pytest.raises(ValueError, match="method: unknown 'median'"):
        combine(scores).scores("median")  # type: ignore[arg-type]


def samples(
    n: int, *, seed: int = 0, slopes: tuple[float, ...] = (1.0, 0.5), unlabelled: int = 0
) -> list[Scores]:
    """Return the rewards of judges for samples of a policy: the log-odds of correct are a weighted sum of them."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(len(slopes), n, M)) + rng.normal(scale=0.5, size=(len(slopes), n, 1))
    odds = np.tensordot(slopes, rewards, 1) - 0.7
    label = (rng.random((n, M)) < expit(odds)).astype(float)
    label.ravel()[: unlabelled * M : 2] = np.nan
    return [Scores.from_arrays(own, label, labels_are="correct") for own in rewards]


def test_weights_of_single_responses_are_a_logistic_regression() -> None:
    given = samples(300, unlabelled=40)
    panel = combine(given, names=["a", "b"])
    known = ~np.isnan(given[0].label)
    x, y = np.stack([one.reward[known] for one in given]), given[0].label[known]
    least, most = 1 / ((1 - y).sum() + 2), (y.sum() + 1) / (y.sum() + 2)  # Platt's targets
    t = least + (most - least) * y

    def loss(w: np.ndarray) -> float:
        odds = w[:2] @ x + w[2]
        return float((np.logaddexp(0, odds) - t * odds).mean())

    best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    assert [one.weight for one in panel.inputs["weights"]] == pytest.approx(best[:2], rel=1e-4)
    calibrator = panel.calibrator
    raw = np.stack([one.reward for one in given], axis=-1)
    odds = np.log(calibrator.p_correct(raw)) - np.log(1 - calibrator.p_correct(raw))
    np.testing.assert_allclose(odds, raw @ best[:2] + best[2], atol=2e-3)
    assert (panel.scores().labels, panel.scores().scale.kind) == ("correct", "log_odds")
    held_out = rmcalib.evaluate(panel.scores(), metrics=["pointwise_log_loss"])
    assert held_out.value("pointwise_log_loss") == pytest.approx(panel.panels[-1]["log_loss"])
    assert panel.panels[0]["panel"] == "base rate"
    assert panel.panels[-1]["gains"]
    assert not any(row["redundant"] for row in panel.members)


def test_intervals_of_weights_hold_the_truth() -> None:
    def holds(inputs: Sequence[Input]) -> list[bool]:
        limits = [(one.low, one.high) for one in inputs if one.low is not None and one.high is not None]
        return [low < slope < high for (low, high), slope in zip(limits, (1.0, 0.5), strict=True)]

    inside = []
    for seed in range(40):
        found = combine(samples(80, seed=seed, slopes=(1.0, 0.5))).inputs["weights"]
        inside.append(holds(found))
    assert (np.mean(inside, axis=0) >= 0.95 - 2 * (0.95 * 0.05 / 40) ** 0.5).all()
    best = []
    for seed in range(40):  # the log-utilities are a weighted sum of the rewards
        rng = np.random.default_rng(seed)
        rewards = rng.normal(size=(2, 100, M))
        odds = np.tensordot((1.0, 0.5), rewards, 1)
        correct = (odds + rng.gumbel(size=odds.shape)).argmax(axis=1)
        found = combine([Scores.from_arrays(own, correct) for own in rewards]).inputs["weights"]
        best.append(holds(found))
    assert (np.mean(best, axis=0) >= 0.95 - 2 * (0.95 * 0.05 / 40) ** 0.5).all()


def test_a_judge_that_knows_nothing_of_single_responses_is_redundant() -> None:
    given = samples(200, slopes=(1.5, 0.0, 1.0))
    against = replace(given[0], reward=-given[0].reward)
    panel = combine([*given, against], names=["a", "noise", "b", "against"])
    rows = {row["judge"]: row for row in panel.members}
    assert rows["against"]["weight"] == 0
    assert rows["against"]["temperature"] is None
    assert [rows[name]["redundant"] for name in ("a", "noise", "b", "against")] == [False, True, False, True]


@pytest.mark.parametrize("kind", ["best", "correct"])
def test_the_calibrator_of_a_panel_takes_all_rewards(tmp_path: Path, kind: str) -> None:
    if kind == "best":
        rewards, correct = judges((1.0, 1.5), n=300)
        given = [Scores.from_arrays(one, correct) for one in rewards]
    else:
        given = samples(300)
    panel = combine(given, names=["a", "b"])
    path = panel.calibrator.save(tmp_path / "panel.json")
    calibrator = Calibrator.load(path)
    assert calibrator == panel.calibrator
    assert calibrator.view == given[0].view
    assert calibrator.low <= 1 <= calibrator.high
    found = rmcalib.apply(given, path).table
    raw = np.stack([one.reward for one in given], axis=-1)
    np.testing.assert_allclose(found["probability"], calibrator.p_best(raw, given[0].item_id))
    weighted = raw @ [one.weight for one in calibrator.inputs] / calibrator.temperature
    expected = np.exp(log_softmax(weighted.reshape(-1, M), axis=1)).ravel()
    np.testing.assert_allclose(found["probability"], expected)
    by_name = rmcalib.apply({"b": given[1], "a": given[0]}, path).table
    np.testing.assert_array_equal(by_name["probability"], found["probability"])
    assert calibrator.check(given).holds is None
    assert calibrator.outside(raw).sum() == 0
    assert calibrator.outside([[raw[:, 0].max() + 1, raw[0, 1]]]).tolist() == [True]
    for wrong in (given[0], given[:1], [*given, given[0]], {"a": given[0]}):
        with pytest.raises(ValueError, match=r"judge|panel"):
            rmcalib.apply(wrong, calibrator)
    for use in (rmcalib.evaluate, rmcalib.decide):  # its scale is not that of one judge's rewards
        with pytest.raises(ValueError, match="several judges"):
            use(given[0], calibrator=calibrator)
    with pytest.raises(ValueError, match="several judges"):
        rmcalib.Watcher(calibrator)
    with pytest.raises(ValueError, match="a, b"):
        rmcalib.Reward(max, calibrator=path)


def test_labels_must_mean_the_same() -> None:
    one, other = samples(100)
    with pytest.raises(ValueError, match="labels"):
        combine([one, other.labelled_as("best")])

"""Watching a run: alarms that hold, steps with intervals, references, and runs without labels."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import rmcalib
from rmcalib.integrations import Watcher
from rmcalib.integrations.alarms.agreement import agreement
from rmcalib.integrations.alarms.gap import gap_sums
from rmcalib.integrations.alarms.order import pair_sums
from rmcalib.repair import Calibrator, calibrate
from rmcalib.scores.rollouts import FORMS, forms_of
from tests.repair.test_calibrate import sampled


def samples(rng: np.random.Generator, n: int, gap: float = 0.0, m: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Return log-odds and labels of n prompts with m samples; a gap makes fewer of them correct than stated."""
    x = rng.normal(size=(n, 1)) + rng.normal(size=(n, m))
    y = (rng.random((n, m)) < expit(x)) & (rng.random((n, m)) >= gap / 0.5)
    return x.ravel(), y.ravel().astype(float)


def followed(gap: float, *, steps: int = 20, n: int = 40, seed: int = 0, **settings: Any) -> Watcher:
    rng, watcher = np.random.default_rng(seed), Watcher(**settings)
    for step in range(steps):
        reward, label = samples(rng, n, gap)
        watcher.add(step, np.repeat(np.arange(n) + n * step, 4), reward, label)
    return watcher


def test_no_alarm_for_a_calibrated_run_and_an_alarm_for_a_gap() -> None:
    assert sum(followed(0.0, seed=seed, steps=6).result().alarm is not None for seed in range(4)) == 0
    found = followed(0.2, steps=8).result()
    assert found.alarm is not None
    assert (found.alarm["what"], found.alarm["step"] <= 5) == ("gap", True)
    assert found.alarm["value"] > found.alarm["limit"] > 0.03
    assert [row["alarm"] for row in found.steps][-1]


def test_three_looks_at_the_same_prompts_with_a_gap_of_20_points_alarm() -> None:
    rng, watcher = np.random.default_rng(0), Watcher()
    reward, label = samples(rng, 200, 0.2)
    for step in range(3):
        watcher.add(step, np.repeat(np.arange(200), 4), reward, label)
    assert watcher.result().alarm is not None


def test_looking_again_at_the_same_samples_adds_no_evidence() -> None:
    """A gap that 60 prompts do not show is not shown by many copies of them."""
    rng, watcher = np.random.default_rng(3), Watcher()
    reward, label = samples(rng, 60, 0.05)
    for step in range(30):
        watcher.add(step, np.repeat(np.arange(60), 4), reward, label)
    assert watcher.result().alarm is None


def test_an_order_that_becomes_a_coin_toss_alarms() -> None:
    rng, watcher = np.random.default_rng(1), Watcher()
    for step in range(12):
        reward, label = samples(rng, 60)
        mixed = rng.permuted(reward.reshape(-1, 4), axis=1).ravel() if step >= 4 else reward
        watcher.add(step, np.repeat(np.arange(60) + 60 * step, 4), mixed, label)
    found = watcher.result()
    assert found.alarm is not None
    assert found.alarm["what"] == "order"
    assert found.alarm["step"] >= 4
    assert found.steps[0]["auroc"] > 0.6
    assert found.steps[-1]["auroc_low"] < 0.5 < found.steps[-1]["auroc_high"]


def test_rows_equal_direct_computations() -> None:
    rng = np.random.default_rng(2)
    reward, label = samples(rng, 50, 0.1)
    length = rng.integers(1, 100, size=200)
    prompt = np.repeat([f"p{i}" for i in range(50)], 4)
    mix = rng.permutation(200)
    row = Watcher().add(7, prompt[mix], reward[mix], label[mix], length[mix])
    assert (row["step"], row["n_samples"], row["n_prompts"]) == (7, 200, 50)
    assert row["gap"] == pytest.approx(np.mean(expit(reward) - label))
    assert row["gap_low"] < row["gap"] < row["gap_high"]
    assert row["right"] == pytest.approx(label.mean())
    wins = [
        np.mean([np.heaviside(a - b, 0.5) for a in r[y == 1] for b in r[y == 0]])
        for r, y in zip(reward.reshape(50, 4), label.reshape(50, 4), strict=True)
        if 0 < y.sum() < 4
    ]
    assert row["auroc"] == pytest.approx(np.mean(wins))
    assert -1 <= row["length_correlation"] <= 1
    assert row["mean_reward"] == pytest.approx(reward.mean())


def test_sums_of_pairs_equal_a_slow_loop() -> None:
    rng = np.random.default_rng(4)
    prompt, x = rng.integers(0, 9, size=60), rng.integers(-2, 3, size=60).astype(float)
    y = rng.integers(0, 2, size=60).astype(float)
    weight = (1.0 + prompt).astype(float)
    found = pair_sums(prompt, x, y, weight)
    # Prompts that were drawn less often count more.
    assert found.values[:, 1] == pytest.approx(1.0 + found.prompt)
    for number, value in zip(found.prompt, found.values[:, 0] / found.values[:, 1], strict=True):
        own = [
            expit(abs(x[i] - x[j])) - np.heaviside(x[i] - x[j], 0.5)
            for i in np.flatnonzero((prompt == number) & (y == 1))
            for j in np.flatnonzero((prompt == number) & (y == 0))
        ]
        assert value == pytest.approx(np.mean(own))
    sums = gap_sums(prompt, x, y)
    assert sums.values[:, 0].sum() == pytest.approx((expit(x) - y).sum())


def test_rewards_of_any_scale_need_a_reference(tmp_path: Path) -> None:
    """Rewards 5 r + 20 state nothing: as log-odds they are far off, with a reference they are calibrated."""
    file = calibrate(sampled(300, temperature=5.0, threshold=20.0)).calibrator.save(tmp_path / "c.json")
    rng = np.random.default_rng(0)
    watchers = {
        "stated": Watcher(),
        "said": Watcher(scale="log_odds"),
        "start": Watcher("start", start=100),
        "calibrator": Watcher(file),
    }
    for step in range(12):
        reward, label = samples(rng, 40)
        for one in watchers.values():
            one.add(step, np.repeat(np.arange(40) + 40 * step, 4), 5 * reward + 20, label)
    found = {name: one.result() for name, one in watchers.items()}
    assert found["stated"].alarm is None  # the first labels show that they are no log-odds
    assert found["stated"].reference["kind"] == "start"
    assert found["said"].alarm is not None
    assert found["start"].alarm is None
    assert found["calibrator"].alarm is None
    assert found["start"].reference["kind"] == "start"
    known = np.isfinite(found["start"].table["gap"]).tolist()
    assert known == [False] * 3 + [True] * 9  # the steps of the fit say nothing about it
    assert found["start"].reference["temperature"] == pytest.approx(5, rel=0.3)
    assert abs(found["start"].steps[-1]["gap"]) < 0.15 < found["said"].steps[-1]["gap"]
    waiting = Watcher("start", start=100)
    waiting.add(0, np.repeat(np.arange(40), 4), reward, label)
    assert waiting.result().waiting == 60


def test_few_labels_of_rewards_that_nobody_names_raise_no_alarm_yet() -> None:
    """Before labels show the scale, an error may be one of the scale: it is an alarm only if the scale is given."""
    rng = np.random.default_rng(0)
    watchers = {"said": Watcher(scale="log_odds"), "assumed": Watcher()}
    for step in range(30):
        x, label = samples(rng, 5, 0.2, m=1)
        rows = {
            name: watcher.add(step, np.arange(5) + 5 * step, x + 1, label)
            for name, watcher in watchers.items()
        }
        if step == 10:
            assert rows["said"]["alarm"]
            assert not rows["assumed"]["alarm"]
            held = watchers["assumed"].result()
            assert held.alarm is None
            assert held.waiting > 0
    assert watchers["assumed"].result().alarm is not None
    assert rows["assumed"]["alarm"]


def test_without_labels_it_says_what_it_cannot_see() -> None:
    rng, watcher = np.random.default_rng(0), Watcher()
    for step in range(3):
        watcher.add(step, np.repeat(np.arange(30), 4), rng.normal(step, 1, size=120).round(1))
    found = watcher.result()
    assert found.misses == ("length_correlation", "right", "gap", "auroc")
    assert found.alarm is None
    assert found.steps[2]["drift"] == pytest.approx(2, abs=0.5)
    assert found.steps[0]["ties"] > 0
    json.dumps(found.content(), allow_nan=False)


def test_tensors_and_chats() -> None:
    torch = pytest.importorskip("torch")
    chats = [[{"role": "user", "content": f"{i // 4}?"}] for i in range(120)]
    reward, label = samples(np.random.default_rng(0), 30)
    row = Watcher().add(0, chats, torch.tensor(reward, requires_grad=True), torch.tensor(label) > 0)
    assert row["n_prompts"] == 30
    assert row["gap"] == pytest.approx(np.mean(expit(reward) - label), abs=1e-6)


@pytest.mark.parametrize(
    ("reward", "label", "named"),
    [
        ([1.0, float("nan")], [1, 0], "reward"),
        ([1.0], [1, 0], "prompt"),
        ([1.0, 2.0], [1], "label"),
        ([], [], "p"),
    ],
)
def test_bad_samples_are_named(reward: list[float], label: list[int], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        Watcher().add(3, ["a", "b"] if reward else [], reward, label)
    with pytest.raises(ValueError, match="threshold"):
        Watcher(Calibrator(2.0, 1.8, 2.3))  # it is for one of m


def write(folder: Path, step: int, n: int, gap: float, rng: np.random.Generator) -> None:
    reward, label = samples(rng, n, gap)
    rows = [
        {"input": f"{step}-{i // 4}", "output": "a" * (1 + i % 7), "score": r, "acc": y, "step": step}
        for i, (r, y) in enumerate(zip(reward.tolist(), label.tolist(), strict=True))
    ]
    temporary = folder / "new"
    temporary.write_text("".join(json.dumps(row) + "\n" for row in rows))
    temporary.rename(folder / f"{step}.jsonl")


def test_a_folder_is_watched(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for step in range(1, 7):
        write(tmp_path, step, 60, 0.0 if step < 4 else 0.3, rng)
    found = rmcalib.watch(tmp_path)
    assert found.table["step"].tolist() == [1, 2, 3, 4, 5, 6]
    assert found.alarm is not None
    assert found.alarm["step"] >= 4
    assert found.content()["steps"][0]["gap"] == pytest.approx(0, abs=0.15)
    rows = [json.loads(line) for file in sorted(tmp_path.iterdir()) for line in file.read_text().splitlines()]
    table = rmcalib.watch(pd.DataFrame(rows), columns="prompt=input,reward=score,label=acc,step=step")
    assert table.table["gap"].tolist() == pytest.approx(found.table["gap"].tolist())


def test_a_benchmark_is_the_reference(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for step in range(1, 5):
        write(tmp_path, step, 60, 0.0, rng)
    bench = sampled(300, temperature=1.0, threshold=0.0)
    found = rmcalib.watch(tmp_path, benchmark=bench)
    assert found.reference["kind"] == "benchmark"
    assert found.reference["n"] == 300
    assert found.alarm is None


def test_following_ends_with_the_alarm(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    seen: list[int] = []

    def train() -> None:
        for step in range(1, 9):
            write(tmp_path, step, 60, 0.4, rng)

    trainer = threading.Timer(0.05, train)
    trainer.start()
    found = rmcalib.watch(
        tmp_path,
        scale="log_odds",
        follow=True,
        every=0.02,
        on_look=lambda now: seen.append(len(now.steps)),
    )
    trainer.join()
    assert found.alarm is not None
    assert seen == sorted(seen)


def test_nothing_to_watch(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=str(tmp_path)):
        rmcalib.watch(tmp_path)
    (tmp_path / "1.jsonl").write_text('{"input": "p", "a": 1.5, "b": 2.5}\n')
    with pytest.raises(ValueError, match="has a, b"):
        rmcalib.watch(tmp_path)
    assert rmcalib.watch(tmp_path, columns="reward=b").steps[0]["mean_reward"] == 2.5


def test_pairs_of_llama_factory_and_files_of_any_loop(tmp_path: Path) -> None:
    text = '{"chosen": 3.81, "rejected": -1.02}\n{"chosen": 0.5, "rejected": 0.75}'
    (tmp_path / "generated_predictions.jsonl").write_text(text)  # the last line has no newline
    (row,) = rmcalib.watch(tmp_path).steps
    assert (row["n_prompts"], row["auroc"]) == (2, 0.5)
    assert np.isnan(row["right"])  # the labels name the better of two
    rows = [
        {"step": s, "prompt": f"p{i}", "reward": 1.0 * i, "label": i % 2} for s in (1, 2) for i in range(4)
    ]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    found = rmcalib.watch(tmp_path / "mine.jsonl")
    assert found.table["step"].tolist() == [1, 2]


def test_a_step_that_grows_between_two_looks_is_read_again(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    write(tmp_path, 1, 30, 0.0, rng)
    whole = (tmp_path / "1.jsonl").read_text()
    (tmp_path / "1.jsonl").write_text(whole[: len(whole) // 2])  # a line is cut
    counts: list[int] = []

    def look(now: Any) -> None:
        assert len(now.steps) == 1
        counts.append(now.steps[0]["n_samples"])
        (tmp_path / "1.jsonl").write_text(whole)
        if len(counts) > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rmcalib.watch(tmp_path, follow=True, every=0.02, on_look=look)
    assert counts[0] < counts[1] == 120


def test_rewards_that_are_probabilities_are_stated_as_they_are() -> None:
    rng = np.random.default_rng(0)
    watcher, asked = Watcher(margin=0.2), Watcher(scale="probability", margin=0.2)
    for step in range(6):
        x, label = samples(rng, 60)
        for one in (watcher, asked):
            row = one.add(step, np.repeat(np.arange(60) + 60 * step, 4), expit(x), label)
        assert row["gap"] == pytest.approx(np.mean(expit(x) - label), abs=1e-6)
    for one in (watcher, asked):
        assert one.result().alarm is None
        assert one.result().reference["scale"] == "probability"
    with pytest.raises(ValueError, match=r"1\.5"):
        asked.add(9, ["a"], [1.5])
    assert 9 not in asked.rows
    # A later step shows that they are no probabilities: everything is read again.
    watcher.add(7, ["a", "b"], [4.0, -2.0], [1, 0])
    found = watcher.result()
    assert found.reference["scale"] == "log_odds"
    assert found.steps[0]["gap"] == pytest.approx(found.steps[0]["says"] - found.steps[0]["right"])
    assert found.steps[0]["says"] > 0.5


@pytest.mark.parametrize("scale", ["utility", "rating", "none", "logit"])
def test_rewards_that_state_nothing_are_not_alarmed(scale: str) -> None:
    rng, watcher = np.random.default_rng(0), Watcher(scale=scale)
    for step in range(6):
        x, label = samples(rng, 60, 0.4)
        watcher.add(
            step, np.repeat(np.arange(60) + 60 * step, 4), expit(x) if scale == "logit" else x + 9, label
        )
    found = watcher.result()
    assert found.alarm is None
    assert found.reference["kind"] == "none"
    assert np.isnan(found.table["gap"]).all()
    assert np.isfinite(found.table["auroc"]).all()


def test_zeros_and_ones_state_no_probability() -> None:
    rng, watcher = np.random.default_rng(0), Watcher()
    for step in range(4):
        watcher.add(
            step, np.repeat(np.arange(30) + 30 * step, 4), rng.integers(0, 2, 120), rng.integers(0, 2, 120)
        )
    assert watcher.result().reference["kind"] == "none"
    assert watcher.result().alarm is None


def test_the_alarm_is_one_sided_unless_asked() -> None:
    alarms = {}
    for both in (False, True):
        rng, watcher = np.random.default_rng(0), Watcher(both_sides=both)
        for step in range(8):
            x, label = samples(rng, 60)
            watcher.add(
                step, np.repeat(np.arange(60) + 60 * step, 4), x - 2, label
            )  # says less than is right
        alarms[both] = watcher.result().alarm
    assert alarms[False] is None
    below = alarms[True]
    assert below is not None
    assert (below["what"], below["direction"]) == ("gap", "below")


def test_labels_of_the_best_sample_test_the_order_of_a_bradley_terry_model() -> None:
    rng, watcher = np.random.default_rng(0), Watcher(scale="utility", labels_are="best")
    for step in range(8):
        reward = 9 + 3 * rng.normal(size=(60, 2))  # differences say much, and mean nothing
        label = np.eye(2)[rng.integers(0, 2, 60)]
        watcher.add(step, np.repeat(np.arange(60) + 60 * step, 2), reward.ravel(), label.ravel())
    found = watcher.result()
    assert found.alarm is not None
    assert found.alarm["what"] == "order"
    assert np.isnan(found.table["gap"]).all()


def test_few_labels_are_looked_at_together() -> None:
    """2% labels, and a gap that grows to 35 points within 120 steps."""
    rng, watcher = np.random.default_rng(0), Watcher()
    for step in range(120):
        x, label = samples(rng, 32, 0.35 * step / 120, m=8)
        known = rng.random(256) < 0.02
        watcher.add(step, np.repeat(np.arange(32) + 32 * step, 8), x, np.where(known, label, np.nan))
    found = watcher.result()
    assert found.alarm is not None
    assert found.alarm["direction"] == "above"
    assert found.labels["samples"] < 700
    assert found.alarm["reason"]


def test_samples_that_were_likelier_to_be_labelled_count_less() -> None:
    """Correct samples are labelled three times as often, by a rule that is known."""
    rng, watcher = np.random.default_rng(0), Watcher()
    for step in range(10):
        x, label = samples(rng, 100)
        inclusion = np.where(label == 1, 0.9, 0.3)
        label = np.where(rng.random(400) < inclusion, label, np.nan)
        prompt = np.repeat(np.arange(100) + 100 * step, 4)
        row = watcher.add(step, prompt, x, label, weight=1 / inclusion)
        weights = (1 / inclusion)[~np.isnan(label)]
        assert row["right"] == pytest.approx(np.average(label[~np.isnan(label)], weights=weights))
        assert abs(row["gap"]) < 0.15
    assert watcher.result().alarm is None


def test_alarms_come_again_after_they_were_over() -> None:
    rng, watcher = np.random.default_rng(0), Watcher(window=4, scale="log_odds")
    for step in range(60):
        x, label = samples(rng, 80, 0.35 if step < 6 or step >= 50 else 0.0)
        watcher.add(step, np.repeat(np.arange(80) + 80 * step, 4), x, label)
    steps = [alarm["step"] for alarm in watcher.result().alarms if alarm["what"] == "gap"]
    assert len(steps) >= 2
    assert steps[0] < 6
    assert steps[-1] >= 50


FORMED = {
    "markdown": ["# Title\nx", "- a\n- b", "1. a", "**bold**", "| a | b |"],
    "code": ["```python\n1\n```"],
    "answer": ["so \\boxed{4}", "<answer>4</answer>", "#### 4"],
}


def test_what_samples_contain_is_counted() -> None:
    plain = ["a - b * c", "3.5 # no", "2 * 3 * 4", "a | b", "boxed"]
    found = forms_of([*plain, *(text for texts in FORMED.values() for text in texts)])
    expected = [()] * len(plain) + [(name,) for name, texts in FORMED.items() for _ in texts]
    assert [tuple(name for name, has in zip(FORMS, row, strict=True) if has) for row in found] == expected
    row = Watcher().add(0, ["p"] * 4, np.arange(4), text=["x", "x", "```", "# A"])
    assert [row[name] for name in ("repeated", "markdown", "code", "answer")] == [0.25, 0.25, 0.25, 0.0]


def test_changes_without_labels_are_no_errors() -> None:
    rng, watcher = np.random.default_rng(0), Watcher(window=3)
    for step in range(20):
        prompt, late = np.repeat(np.arange(30) + 30 * step, 4), step > 8
        length = rng.integers(90, 110, 120) * (0.3 if late else 1)  # shorter is a change, too
        text = [f"{i % 4} ```" if not late else "0" for i in range(120)]
        reward = rng.normal(size=120)
        second = np.where(rng.random(120) < 0.7, rng.normal(size=120) + (0 if late else 3 * reward), np.nan)
        watcher.add(step, prompt, reward, length=length, text=text, second=second)
    found = watcher.result()
    assert found.alarm is None
    changed = {change["what"]: change["direction"] for change in found.changes}
    assert changed == {"length": "below", "repeated": "above", "code": "below", "agreement": "below"}
    assert all(change["step"] > 8 for change in found.changes)
    json.dumps(found.content(), allow_nan=False)


def test_agreement_equals_a_slow_loop() -> None:
    rng = np.random.default_rng(1)
    prompt, reward = rng.integers(0, 7, 60), rng.integers(0, 4, 60).astype(float)
    second = np.where(rng.random(60) < 0.6, rng.integers(0, 4, 60), np.nan)
    expected = {}
    for number in range(7):
        rows = np.flatnonzero((prompt == number) & ~np.isnan(second))
        pairs = [(i, j) for i in rows for j in rows if second[i] > second[j]]
        if pairs:
            expected[number] = np.mean([np.heaviside(reward[i] - reward[j], 0.5) for i, j in pairs])
    found = agreement(prompt, reward, second)
    assert dict(zip(found.prompt.tolist(), found.value.tolist(), strict=True)) == pytest.approx(expected)
    row = Watcher().add(0, prompt, reward, second=second)
    assert row["agreement"] == pytest.approx(np.mean([*expected.values()]))
    assert row["agreement_low"] < row["agreement"] < row["agreement_high"]


def test_a_second_judge_is_a_column(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"input": f"p{i // 4}", "output": f"{i}", "score": x, "rm2": None if i % 3 else x + 1, "step": 1}
        for i, x in enumerate(rng.normal(size=80).tolist())
    ]
    (tmp_path / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (row,) = rmcalib.watch(tmp_path, columns="reward=score,second=rm2").steps
    assert row["agreement"] == 1
    table = pd.DataFrame([{**row, "prompt": row["input"]} for row in rows]).drop(columns=["input", "output"])
    assert rmcalib.watch(table, columns="reward=score,second=rm2").steps[0]["agreement"] == 1
    for source in (tmp_path, table):
        with pytest.raises(ValueError, match="'rm3'"):
            rmcalib.watch(source, columns="reward=score,second=rm3")


def test_a_second_judge_is_a_file(tmp_path: Path) -> None:
    rng, run, file = np.random.default_rng(0), tmp_path / "run", tmp_path / "second.csv"
    run.mkdir()
    samples = [(f"p{i // 4}", f"answer {i}", x) for i, x in enumerate(rng.normal(size=80).tolist())]
    rows = [{"input": p, "output": o, "score": x, "acc": int(x > 0), "step": 1} for p, o, x in samples]
    (run / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    second = [x if i < 40 else -x for i, (_, _, x) in enumerate(samples)]

    def save(header: str, cells: list[str]) -> None:
        lines = [f"{p},{o},{cell}\n" for (p, o, _), cell in zip(samples, cells, strict=True)]
        file.write_text(f"prompt,response,{header}\n" + "".join(lines))

    save("second", ["" if i % 3 == 0 else str(x) for i, x in enumerate(second)])
    (row,) = rmcalib.watch(run, labels=file).steps
    assert row["agreement"] == pytest.approx(0.5)
    assert row["n_labels"] == 80  # those of the rollouts
    table = tmp_path / "table.jsonl"
    table.write_text(
        "".join(
            json.dumps({"prompt": p, "response_text": o, "reward": x, "step": 1}) + "\n"
            for p, o, x in samples
        )
    )
    save("label,second", [f"{'' if i % 2 else int(x > 1)},{x}" for i, x in enumerate(second)])
    for source in (run, table):
        (row,) = rmcalib.watch(source, labels=file).steps
        assert (row["n_labels"], row["agreement"]) == (40, pytest.approx(0.5))
    save("second", [*map(str, second[:-1]), "many"])
    with pytest.raises(ValueError, match=r"second\.csv.*many"):
        rmcalib.watch(run, labels=file)


def test_a_reference_of_the_start_takes_the_prompts_that_its_margin_needs() -> None:
    rng = np.random.default_rng(0)
    found = {}
    for margin in (0.03, 0.2):
        watcher = Watcher("start", margin=margin)
        for step in range(30):
            x, label = samples(rng, 60)
            watcher.add(step, np.repeat(np.arange(60) + 60 * step, 4), 3 * x + 5, label)
        found[margin] = watcher.result()
    assert found[0.2].reference["n"] < 300 < found[0.03].reference["n"]
    for margin, one in found.items():
        assert margin < one.reference["margin"] <= 2.2 * margin
        assert one.alarm is None

"""A real GRPO run of TRL with a tiny model is watched from the files that it writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.scores.rollouts import Look
from tests.grpo import grpo_trainer

pytest.importorskip("trl", reason="TRL is not installed (extra `trl`)")
pytestmark = pytest.mark.filterwarnings("ignore")
STEPS, PROMPTS, SAMPLES = 3, 4, 4


def reward_model(completions: list[str], **_: Any) -> list[float]:
    """Log-odds that favour long completions."""
    return [0.1 * len(text) - 1 for text in completions]


def exact_match(completions: list[str], **_: Any) -> list[float]:
    """Whether the completion has an even number of characters, which the other reward does not know."""
    return [float(len(text) % 2 == 0) for text in completions]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    from rmcalib.integrations.trl import WatchCallback

    folder = tmp_path_factory.mktemp("grpo")
    prompts = [{"prompt": f"What is {i} + 1?"} for i in range(6)]
    rewards = [reward_model, exact_match]
    trainer = grpo_trainer(
        folder, rewards, prompts, PROMPTS, SAMPLES, max_steps=STEPS, max_completion_length=6
    )
    watching = WatchCallback(trainer, "reward=reward_model,label=exact_match")
    trainer.add_callback(watching)
    trainer.train()
    return folder, watching


def test_the_callback_sees_the_same_and_logs_it(run: tuple[Path, Any]) -> None:
    folder, watching = run
    found, direct = watching.watcher.result(), rmcalib.watch(folder)
    assert found.table.equals(direct.table)
    logged = [row for row in watching.trainer.state.log_history if "watch/gap" in row]
    assert [row["watch/gap"] for row in logged] == [row["gap"] for row in direct.steps]


def test_a_grpo_run_is_watched_from_its_own_files(run: tuple[Path, Any]) -> None:
    folder, _ = run
    found = rmcalib.watch(folder)  # the exact check is the truth, by its name
    assert found.table["n_samples"].tolist() == [PROMPTS * SAMPLES] * STEPS
    row = found.steps[0]
    assert np.isfinite([row["gap"], row["right"], row["mean_reward"]]).all()
    scores = rmcalib.watch(folder, columns="reward=exact_match")
    assert [one["mean_reward"] for one in scores.steps] == pytest.approx(
        [one["right"] for one in found.steps]
    )


def test_the_callback_refuses_what_cannot_work(run: tuple[Path, Any]) -> None:
    from rmcalib.integrations.trl import WatchCallback

    trainer = run[1].trainer
    with pytest.raises(ValueError, match="stop"):
        WatchCallback(trainer, "reward=reward_model,label=exact_match", stop=True)
    with pytest.raises(ValueError, match="'reward_modle'"):
        WatchCallback(trainer, "reward=reward_modle,label=exact_match")
    WatchCallback(trainer, "reward=reward_model,label=exact_match", stop=True, scale="log_odds")


def test_files_of_an_earlier_run_are_left_out_until_they_are_written_again(run: tuple[Path, Any]) -> None:
    from rmcalib.integrations.trl import WatchCallback

    folder, watching = run
    again = WatchCallback(watching.trainer, "reward=reward_model,label=exact_match")
    again._look()
    assert again.watcher.result().steps == []
    first = min((folder / "completions").iterdir())
    first.write_bytes(first.read_bytes())
    again._look()
    assert [row["step"] for row in again.watcher.result().steps] == [
        watching.watcher.result().steps[0]["step"]
    ]


def test_an_error_after_a_change_is_logged(
    run: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from rmcalib.integrations.trl import WatchCallback

    watching = WatchCallback(run[1].trainer, "reward=reward_model,label=exact_match")
    change = {"step": 1.0, "what": "length", "look": 1, "reason": "longer"}
    error = {"step": 2.0, "what": "gap", "look": 1, "reason": "too much"}
    now = replace(watching.watcher.result(), changes=[change])
    monkeypatch.setattr(watching._reader, "look", lambda **_: Look({}, [], []))
    for state in (now, now, replace(now, alarms=[error]), replace(now, alarms=[error])):
        monkeypatch.setattr(watching.watcher, "result", lambda state=state: state)
        watching._look()
    messages = [record.getMessage() for record in caplog.records if record.name == "rmcalib"]
    assert [("longer" in text, "too much" in text) for text in messages] == [(True, False), (False, True)]

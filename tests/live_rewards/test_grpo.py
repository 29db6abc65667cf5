"""A real GRPO run of TRL with a tiny policy takes its rewards from `Reward`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmcalib import Calibrator, Reward
from tests.grpo import grpo_trainer

pytest.importorskip("trl", reason="TRL is not installed (extra `trl`)")
pytestmark = pytest.mark.filterwarnings("ignore")
STEPS, PROMPTS, SAMPLES = 2, 2, 4


def test_a_grpo_run_trains_on_calibrated_rewards(tmp_path: Path) -> None:
    import pandas

    calibrator = Calibrator(1.5, 1.2, 1.8, threshold=-1.0, reference=(-2.0, -1.0, 1.0))
    reward = Reward("demo", calibrator=calibrator, log=tmp_path / "log", device="cpu")
    rows = [{"prompt": [{"role": "user", "content": f"What is {i} + 1?"}], "answer": i + 1} for i in range(4)]
    trainer = grpo_trainer(
        tmp_path / "run",
        [reward.trl(name="helpful", label="answer")],
        rows,
        PROMPTS,
        SAMPLES,
        max_steps=STEPS,
        max_completion_length=6,
    )
    trainer.train()
    reward.close()
    tables = [pandas.read_parquet(path) for path in sorted((tmp_path / "run/completions").glob("*.parquet"))]
    given = pandas.concat(tables)
    (file,) = (tmp_path / "log").glob("rewards-*.jsonl")
    logged = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(given) == len(logged) == STEPS * PROMPTS * SAMPLES
    assert given["helpful"].tolist() == pytest.approx([row["reward"] for row in logged], abs=1e-6)
    assert given["helpful_probability"].tolist() == pytest.approx([row["probability"] for row in logged])
    assert {row["step"] for row in logged} == {*range(STEPS)}
    assert all(1 <= row["label"] <= 4 for row in logged)
    # The same judge, asked directly, says the same.
    direct = Reward("demo", output="raw", device="cpu")
    raw = direct([row["prompt"] for row in logged], [row["response"] for row in logged])
    assert raw == pytest.approx([row["raw"] for row in logged], abs=1e-4)
    history = [row for row in trainer.state.log_history if "rewards/helpful/mean" in row]
    assert len(history) == STEPS
    assert all(any(name.endswith("helpful/outside") for name in row) for row in history)

"""The real TRL trains a tiny model: which metrics are logged, and what the run folders contain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.integrations.training import metric_values, preference_metrics
from rmcalib.metrics.catalogue import TRAINING_METRICS
from rmcalib.scores import Scores
from tests.hub import tiny

pytest.importorskip("trl", reason="TRL is not installed (extra `trl`)")
# TRL's own default; transformers 5.23 has another name for it.
pytestmark = pytest.mark.filterwarnings("ignore:`gradient_checkpointing` is deprecated:FutureWarning")

PAIRS = 21  # the last batch of four is not full
STEPS = (0, 2, 4)


def preference_rows(n: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(0)
    rows = []
    for i in range(n):
        a, b = rng.integers(0, 50, size=2).tolist()
        messages = [f"It is {a + b}.", f"Perhaps {a - b}, perhaps not."]
        chosen, rejected = ([{"role": "assistant", "content": text}] for text in messages)
        rows.append(
            {
                "prompt": [{"role": "user", "content": f"What is {a} + {b}? ({i})"}],
                "chosen": chosen,
                "rejected": rejected,
            }
        )
    return rows


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Train a tiny model for four steps, evaluating it before them and after every second one."""
    from datasets import Dataset
    from trl import RewardConfig, RewardTrainer

    from rmcalib.integrations.trl import BenchmarkCallback, reward_metrics

    folder = tmp_path_factory.mktemp("trl")
    data = Dataset.from_list(preference_rows(PAIRS))
    args = RewardConfig(
        output_dir=str(folder / "tiny-reward"),
        max_steps=STEPS[-1],
        per_device_train_batch_size=4,
        per_device_eval_batch_size=4,
        eval_strategy="steps",
        eval_steps=2,
        eval_on_start=True,
        save_strategy="no",
        learning_rate=1e-3,
        bf16=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        logging_steps=1,
        gradient_checkpointing=False,
        metric_for_best_model="demo/kept_information",
        greater_is_better=True,
    )
    trainer = RewardTrainer(
        tiny.tiny_classifier(),
        args=args,
        train_dataset=data,
        eval_dataset=data,
        processing_class=tiny.tiny_tokenizer(),
        **reward_metrics(),
    )
    bench = rmcalib.load_benchmark("demo", limit=40)
    trainer.add_callback(BenchmarkCallback(trainer, bench, output=folder / "runs"))
    trainer.evaluate()  # before training: scored again by eval_on_start
    trainer.train()
    trainer.save_model(str(folder / "saved"))
    trainer.processing_class.save_pretrained(folder / "saved")
    logged: dict[int, dict[str, float]] = {}
    for row in trainer.state.log_history:
        logged.setdefault(row["step"], {}).update(row)
    return {"trainer": trainer, "folder": folder, "bench": bench, "logged": logged}


def test_every_evaluation_logs_calibration(training: dict[str, Any]) -> None:
    for step in STEPS:
        row = training["logged"][step]
        for group in ("calibration", "demo"):
            found = {name for name in TRAINING_METRICS if f"eval_{group}/{name}" in row}
            assert set(TRAINING_METRICS) - found <= {"temperature"}  # there is none if no temperature helps
            prefix = f"eval_{group}/"
            gap = row[f"{prefix}mean_confidence"] - row[f"{prefix}accuracy"]
            assert row[f"{prefix}overconfidence"] == pytest.approx(gap)


def test_the_metrics_cover_all_pairs(training: dict[str, Any]) -> None:
    """TRL passes all rewards of a batch, chosen ones first; the last batch is smaller than the others."""
    trainer = training["trainer"]
    rewards = []
    for row in preference_rows(PAIRS):
        texts = [
            trainer.processing_class.apply_chat_template(row["prompt"] + row[name], tokenize=False)
            for name in ("chosen", "rejected")
        ]
        rewards.append([_reward(trainer, text) for text in texts])
    direct = preference_metrics(*np.array(rewards).T)
    row = training["logged"][STEPS[-1]]
    for name, value in direct.items():
        if not np.isnan(value) and name not in ("ece", "ece_null_mean", "ece_p_value"):  # bins: rounding
            assert row[f"eval_calibration/{name}"] == pytest.approx(value, abs=1e-4), name


def _reward(trainer: Any, text: str) -> float:
    import torch

    ids = trainer.processing_class(text, return_tensors="pt", add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        return float(trainer.model(input_ids=ids).logits[0, 0])


def test_a_metric_of_the_benchmark_chooses_the_best_step(training: dict[str, Any]) -> None:
    kept = {step: training["logged"][step]["eval_demo/kept_information"] for step in STEPS}
    assert training["trainer"].state.best_metric == max(kept.values())


def test_runs_are_kept_for_every_step(training: dict[str, Any]) -> None:
    runs = training["folder"] / "runs"
    assert sorted(path.name for path in runs.iterdir()) == [f"step-{step}" for step in STEPS]
    for step in STEPS:
        (file,) = (runs / f"step-{step}").rglob("run.json")
        manifest = json.loads(file.read_text())
        assert (manifest["status"], manifest["step"], manifest["model"]) == ("finished", step, "tiny-reward")
        scores = Scores.from_parquet(file.parent / "scores.parquet")
        logged = training["logged"][step]
        for name, value in metric_values(scores).items():
            if not np.isnan(value):
                assert logged[f"eval_demo/{name}"] == pytest.approx(value)


def test_the_model_in_training_scores_like_its_saved_checkpoint(training: dict[str, Any]) -> None:
    folder = training["folder"]
    live = Scores.from_parquet(next((folder / "runs" / f"step-{STEPS[-1]}").rglob("scores.parquet")))
    saved = rmcalib.score(str(folder / "saved"), training["bench"], device="cpu", dtype="float32")
    np.testing.assert_allclose(live.reward, saved.reward, atol=1e-4)
    assert live.n_tokens.tolist() == saved.n_tokens.tolist()

"""The built-in board of real reward models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import rmcalib
from rmcalib.metrics import metric_rows

ROOT = Path(rmcalib.__file__).parent


def test_the_board_has_nine_models_with_source_and_licence() -> None:
    board = rmcalib.load_board()
    assert len(board) == 9
    for model, scores in board.items():
        assert (scores.n_items, len(scores)) == (483, 4830)
        assert scores.is_correct.reshape(-1, 10)[:, 0].all()
        assert scores.is_correct.sum() == 483
        assert scores.manifest["model"] == model
        assert scores.manifest["licence"].startswith("MIT License, Copyright (c) 2024 Sunghwan Kim")
        assert len(scores.manifest["source_revision"]) == 40
    assert len({scores.reward.tobytes() for scores in board.values()}) == 9


def test_the_files_are_small_and_carry_their_licence() -> None:
    assert (ROOT / "demo/rewardmath.npz").stat().st_size < 200_000
    assert "Copyright (c) 2024 Sunghwan Kim" in (ROOT / "demo/rewardmath.LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("model", "says", "right"),
    [
        ("Skywork/Skywork-Reward-Llama-3.1-8B", 0.900, 0.222),
        ("internlm/internlm2-7b-reward", 0.416, 0.373),
        ("openbmb/Eurus-RM-7b", 0.993, 0.170),
    ],
)
def test_the_numbers_agree_with_a_direct_computation(model: str, says: float, right: float) -> None:
    scores = rmcalib.load_scores(f"real/{model}")
    rewards = scores.reward.reshape(-1, 10)
    direct = np.exp(rewards - rewards.max(axis=1, keepdims=True))
    confidence = (direct / direct.sum(axis=1, keepdims=True)).max(axis=1).mean()
    assert confidence == pytest.approx(says, abs=5e-4)
    rows = metric_rows(scores, model=model, benchmark="b", metrics=["mean_confidence", "accuracy"])
    overall = {row["metric"]: row["value"] for row in rows if row["category"] == "overall"}
    assert overall["mean_confidence"] == pytest.approx(confidence)
    assert overall["accuracy"] == pytest.approx(right, abs=5e-4)


def test_unknown_names_are_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="surreal: no such board \\(have: real\\)"):
        rmcalib.load_board("surreal")
    with pytest.raises(ValueError, match="real/nobody: no such scores are built in"):
        rmcalib.load_scores("real/nobody")


def test_an_existing_file_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = rmcalib.Scores.from_arrays([[1.0, 0.0]])
    Path("real").mkdir()
    own.to_parquet("real/own.parquet")
    assert rmcalib.load_scores("real/own.parquet").n_items == 1

"""``rmcalib calibrate`` and ``eval --calibrator``."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Invoke
from tests.repair.test_calibrate import drawn


def test_from_scores_to_a_calibrated_report(tmp_path: Path, invoke: Invoke) -> None:
    drawn(200, scale=4.0).to_parquet(tmp_path / "scores.parquet")
    out = invoke("calibrate", "scores.parquet", "--to", "c.json")
    assert (out.code, out.err) == (0, "")
    assert "after, on held-out prompts" in out.out
    seen = invoke(
        "eval", "--scores", "scores.parquet", "--model", "rm", "--calibrator", "c.json", "--resamples", "20"
    )
    assert seen.code == 0
    assert "holds here" in seen.err
    (page,) = (tmp_path / "runs").rglob("calibrated/report.html")
    assert page.is_file()


def test_the_command_refuses_with_one_line_and_writes_nothing(tmp_path: Path, invoke: Invoke) -> None:
    drawn(300, scale=1.0, seed=3).to_parquet(tmp_path / "scores.parquet")
    out = invoke("calibrate", "scores.parquet", "--to", "c.json")
    assert out.code == 2
    assert "on the right scale already" in out.err
    assert not (tmp_path / "c.json").exists()
    clash = invoke("calibrate", "scores.parquet", "--model", "rm")
    assert clash.code == 2
    assert "--model" in clash.err

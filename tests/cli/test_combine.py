"""``rmcalib combine``: from files to a panel that ``eval`` reads, and bad input."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import Invoke
from tests.repair.test_combine import as_scores, judges


def write(folder: Path) -> list[str]:
    rewards, correct = judges((1.0, 1.2), n=120)
    files = []
    for name, scores in as_scores(rewards, correct).items():
        files.append(f"{name.replace(' ', '-')}.parquet")
        scores.to_parquet(folder / files[-1])
    return files


def test_from_files_to_a_report_of_the_panel(tmp_path: Path, invoke: Invoke) -> None:
    files = write(tmp_path)
    done = invoke("combine", *files, "--output", "panel.parquet")
    assert (done.code, done.err) == (0, "")
    assert "best member" in done.out
    assert "judge-1" in done.out
    report = invoke("eval", "--scores", "panel.parquet", "--resamples", "20", "--json")
    assert report.code == 0
    found = json.loads(invoke("combine", *files, "--json", "--method", "mean", "-o", "mean.parquet").out)
    assert found["n"] == 120
    assert [row["judge"] for row in found["members"]] == ["judge-0", "judge-1"]
    assert Scores.from_parquet(tmp_path / "mean.parquet").manifest["panel"]["method"] == "mean"


def test_long_names_of_one_organisation_can_be_told_apart(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    files = write(tmp_path)
    for i, file in enumerate(files):
        scores = Scores.from_parquet(tmp_path / file)
        named = {**scores.manifest, "model": f"a-long-organisation/{i}-a-long-name"}
        replace(scores, manifest=named).to_parquet(tmp_path / file)
    done = invoke("combine", *files)
    assert done.code == 0, done.err
    assert [line[0] for line in done.out.splitlines() if re.match(r"\d-a-long", line)] == ["0", "1"]


def test_bad_input_is_one_line_and_writes_nothing(tmp_path: Path, invoke: Invoke) -> None:
    files = write(tmp_path)
    for args, message in (
        ((files[0],), "expected at least 2"),
        ((*files, "--method", "median"), "--method: unknown 'median'"),
        ((*files, "--output", "panel.csv"), "ends in .parquet"),
        ((files[0], "missing.parquet"), "missing.parquet"),
    ):
        done = invoke("combine", *args)
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert done.err.count("\n") == 1
    assert not (tmp_path / "panel.parquet").exists()

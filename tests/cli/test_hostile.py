"""What a careless or hostile user types: one line, exit code 2, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.metrics.worlds import calibrated_scores

SCORES = ("--scores", "s.parquet", "--resamples", "20")
CASES: list[tuple[tuple[str, ...], str]] = [
    (("eval", *SCORES, "--fail-if", "ece>inf"), "expected something like 'ece>0.1'"),
    (("eval", *SCORES, "--fail-if", "ece>1e400"), "expected something like 'ece>0.1'"),
    (("eval", *SCORES, "--output", ""), "--output: an empty name; '.' is the current folder"),
    (("eval", *SCORES, "--export-rewardbench", "folder.parquet"), "'folder.parquet' is a directory"),
    (("eval", "--scores", "s.parquet", "--resamples", "100000000000"), "--resamples"),
    (("eval", "--scores", "folder.parquet"), "folder.parquet: Is a directory"),
    (("eval", "--scores", ""), "'': unknown file type; a file of scores ends in"),
    (
        ("score", "--model", ""),
        "'' is neither a file or folder here",
    ),  # shown before a benchmark is fetched
    (("score", "--model", "ünï/🙂"), "'ünï/🙂' is neither a file or folder here"),
    (("score", "--limit", "3", "--export-rewardbench", "folder.parquet"), "is a directory"),
    (("compare", "s.parquet", "s.parquet", "--output", "folder.parquet"), "Is a directory"),
    (("report", "runs", "--output", " "), "--output: an empty name"),
    (("batch", "--max-params", "0"), "--max-params: '0' is not a size"),
    (("batch", "--engine", "ray", "--gpu-memory", "0GB"), "--gpu-memory: '0GB' is not a size"),
    (("batch", "--models", "none.yaml"), "none.yaml: contains no models"),
    (("batch", "--dry-run", "--benchmark", "gone.jsonl"), "gone.jsonl: No such file"),
    (("batch", "--no-metrics", "--resamples", "50"), "--resamples: no effect with --no-metrics"),
    (("synthetic", "--output", ""), "an empty name; '.' is the current folder"),
    (("synthetic", "--instances", "1000000000000"), "--instances"),
    (("synthetic", "--confidence", "1e308"), "--confidence"),
    (("synthetic", "--instances", "50", "--resamples", "20", "-o", "s.parquet"), "is a file, not a folder"),
    (("synthetic", "--config", "folder.parquet"), "cannot read folder.parquet: Is a directory"),
    (("prolr", "--dataset", ""), "--dataset: names nothing"),
    (("prolr", "--learner", " , "), "--learner: names nothing"),
    (("prolr", "--notion", ","), "--notion: names nothing"),
    (("prolr", "--k", ""), "--k: names nothing"),
    (("prolr", "--k", "1000"), "k: 1000 is more than the 3 labels"),
    (("prolr", "--labels", "X"), "--labels: no effect with"),
    (("prolr", "--data", "mine.csv", "--dataset", "iris"), "--dataset: no effect with --data"),
    (("prolr", "--output", ""), "an empty name; '.' is the current folder"),
]


@pytest.mark.parametrize(("arguments", "shown"), CASES, ids=lambda value: " ".join(value)[:40])
def test_one_line_code_2_and_nothing_written(
    arguments: tuple[str, ...], shown: str, invoke: Invoke, tmp_path: Path
) -> None:
    calibrated_scores(25).to_parquet(tmp_path / "s.parquet")
    (tmp_path / "folder.parquet").mkdir()
    (tmp_path / "none.yaml").write_text("models: []\n")
    before = set(tmp_path.rglob("*"))
    ended = invoke(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert ended.err.startswith("rmcalib: error: ")
    assert shown in ended.err
    assert set(tmp_path.rglob("*")) == before


def test_without_arguments_there_is_the_help_and_no_error(invoke: Invoke) -> None:
    ended = invoke()
    assert (ended.code, ended.err) == (2, "")
    assert "Usage" in ended.out


def test_a_configuration_names_options_as_the_command_line_does(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("json: true\ninstances: 50\nresamples: 20\noutput: here\n")
    ended = invoke("synthetic", "--config", "c.yaml")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out)["n"] == 50
    assert (tmp_path / "here" / "report.html").is_file()
    for name in ("config", "json_", "help"):
        (tmp_path / "c.yaml").write_text(f"{name}: true\n")
        ended = invoke("synthetic", "--config", "c.yaml")
        assert ended.code == 2
        assert "unknown option" in ended.err
        assert "json, model" in ended.err


def test_arguments_may_be_in_a_configuration(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("runs: [nowhere]\n")
    assert "nowhere: no such folder" in invoke("report", "--config", "c.yaml").err

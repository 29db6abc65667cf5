"""``rmcalib benchmarks`` and ``--format``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmcalib.benchmarks import benchmarks
from rmcalib.scores import Scores
from tests.benchmarks.shapes import SHAPES, write
from tests.cli.conftest import Invoke


def test_all_are_listed(invoke: Invoke) -> None:
    shown = invoke("benchmarks")
    assert shown.code == 0
    assert all(name in shown.out for name in benchmarks())
    assert "1,865" in shown.out
    assert "ODC-By" in shown.out
    listed = json.loads(invoke("benchmarks", "--json").out)
    assert [entry["name"] for entry in listed] == [*benchmarks()]
    ppe = next(entry for entry in listed if entry["name"] == "ppe-correctness")
    assert len(ppe["hub"]) == 5
    assert (ppe["labels"], ppe["prompts"]) == ("several", 2560)


def test_one_is_shown_in_full(invoke: Invoke) -> None:
    shown = invoke("benchmarks", "judgebench", "rmb")
    assert "ScalerLab/JudgeBench" in shown.out
    assert "Hub: no: give a file with --format" in shown.out
    wrong = invoke("benchmarks", "nothing")
    assert wrong.code == 2
    assert "unknown 'nothing'" in wrong.err


@pytest.mark.parametrize("name", ["trl", "judgebench", "rewardmath"])
def test_a_file_is_scored_in_its_own_format(name: str, invoke: Invoke, tmp_path: Path) -> None:
    path = write(tmp_path / "theirs.jsonl", SHAPES[name])
    done = invoke("score", "--model", "demo", "--benchmark", path, "--format", name, "-o", tmp_path / "runs")
    assert done.code == 0, done.err
    (file,) = (tmp_path / "runs").glob("*/theirs/scores.parquet")
    scores = Scores.from_parquet(file)
    assert scores.manifest["benchmark_format"] == name
    if name == "trl":
        assert "1 left out: both responses are the same" in done.err


def test_votes_reach_the_scores(invoke: Invoke, tmp_path: Path) -> None:
    path = write(tmp_path / "votes.jsonl", SHAPES["helpsteer3"])
    done = invoke(
        "score", "--model", "demo", "--benchmark", path, "--format", "helpsteer3", "-o", tmp_path / "runs"
    )
    assert done.code == 0, done.err
    (file,) = (tmp_path / "runs").glob("*/votes/scores.parquet")
    scores = Scores.from_parquet(file)
    assert scores.votes is not None
    assert scores.votes.tolist() == [2, 1, 2, 0]
    assert scores.n_votes.tolist() == [3, 3]
    again = invoke(
        "score", "--model", "demo", "--benchmark", path, "--format", "helpsteer3", "-o", tmp_path / "runs"
    )
    assert "all responses were scored before" in again.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "trl"], "--format: give the file with --benchmark"),
        (["--benchmark", "x.jsonl", "--format", "tlr"], "format: unknown 'tlr' (did you mean trl?"),
        (["--benchmark", "http://x.org/b.jsonl"], "http://x.org/b.jsonl: a URL; download the file"),
        (["--benchmark", "rewardmath"], "rewardmath: not on the Hub; download it"),
    ],
)
def test_bad_formats(options: list[str], message: str, invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("score", "--model", "demo", *options, "-o", tmp_path / "runs")
    assert done.code == 2
    assert message in done.err
    assert not (tmp_path / "runs").exists()

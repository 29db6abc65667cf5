"""``rmcalib compare`` as a user runs it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import Invoke
from tests.cli.test_report import rmcalib
from tests.report.boards import synthetic, write_run, write_runs


def test_two_runs_are_compared(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 2)
    names = [f"runs/org__model-{i}" for i in range(2)]
    result = rmcalib("compare", *names, "--resamples", "50", "--output", "d.csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "A: org/model-0" in result.stdout
    assert "ece_at_temperature" in result.stdout
    assert "Math" not in result.stdout
    with (tmp_path / "d.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert {row["category"] for row in rows} == {"overall", "Factuality", "Math", "Focus"}
    result = rmcalib("compare", *names, "--resamples", "50", "--json", cwd=tmp_path)
    content = json.loads(result.stdout)
    assert content["b"] == "org/model-1"
    assert [row["metric"] for row in content["differences"]] == [row["metric"] for row in rows]


def test_models_on_another_scale_are_reported(tmp_path: Path, invoke: Invoke) -> None:
    from rmcalib.judges import registry

    off = next(r for r in registry().values() if r.bradley_terry == "no" and "quantile" not in r.loss.lower())
    own = {"about_model": {"bradley_terry": "no", "loss": "my \x1bloss"}}
    write_run(tmp_path / "a", off.model, synthetic(1, n=30))
    write_run(tmp_path / "b", "org/mine", synthetic(2, n=30), **own)
    write_run(tmp_path / "c", "org/plain", synthetic(3, n=30))
    options = ("--resamples", "20", "--quiet")
    result = invoke("compare", "a", "b", *options[:2])
    assert result.code == 0, result.err
    assert f"warning: {off.model}: not trained on a Bradley-Terry scale ({off.loss})" in result.err
    assert "warning: org/mine: not trained on a Bradley-Terry scale (my �loss)" in result.err
    assert invoke("compare", "a", "b", *options).err == ""
    (tmp_path / "mine.yaml").write_text("- {model: org/plain, bradley_terry: modified, loss: margin}\n")
    result = invoke("compare", "c", "c", *options[:2], "--recipes", "mine.yaml")
    assert result.err.count("org/plain: trained with a modified Bradley-Terry loss (margin)") == 1


def test_models_without_utilities_have_no_calibration(tmp_path: Path) -> None:
    name = "nicolinho/QRM-Llama3.1-8B-v2"
    write_run(tmp_path / "a", name, synthetic(1, n=30))
    write_run(tmp_path / "b", "org/plain", synthetic(2, n=30))
    options = ("a", "b", "--resamples", "20", "--output", "d.csv")
    result = rmcalib("compare", *options, "--json", cwd=tmp_path)
    assert f"warning: {name}: calibration is not compared: its outputs are not Plackett-Luce" in result.stderr
    rows = {
        row["metric"]: row for row in json.loads(result.stdout)["differences"] if row["category"] == "Math"
    }
    assert (rows["ece"]["a"], rows["ece"]["difference"]) == (None, None)
    assert rows["ece"]["b"] > 0
    assert rows["ece"]["note"].startswith("A: its outputs are not Plackett-Luce utilities (quantile")
    assert rows["accuracy"]["difference"] is not None
    with (tmp_path / "d.csv").open(encoding="utf-8") as lines:
        written = next(row for row in csv.DictReader(lines) if row["metric"] == "ece")
    assert (written["a"], written["note"]) == ("", rows["ece"]["note"])
    shown = rmcalib("compare", *options, cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "No calibration of A: its outputs are not Plackett-Luce utilities" in shown.stdout


def test_files_can_be_compared_and_odd_prompts_are_reported(tmp_path: Path) -> None:
    synthetic(1, n=30).to_jsonl(tmp_path / "a.jsonl")
    synthetic(2, n=25).to_parquet(tmp_path / "b.parquet")
    result = rmcalib(
        "compare", "a.jsonl", "b.parquet", "--resamples", "30", "--category", "Math", cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert "compared on 25 prompts; 5 are in only one of the two" in result.stderr
    assert "Math" in result.stdout


def test_conditions_on_the_size_of_a_gap_compare_sizes(tmp_path: Path, invoke: Invoke) -> None:
    n = 400
    for name, reward in (("timid", 0.4), ("bold", 1.7)):  # says 60% and 85%; both are right 72.5%
        rewards = [[reward, 0.0]] * n
        correct = [0 if i < 0.725 * n else 1 for i in range(n)]
        Scores.from_arrays(rewards, correct).to_parquet(tmp_path / f"{name}.parquet")
    base = ("compare", "timid.parquet", "bold.parquet", "--quiet", "--resamples", "20", "--fail-if")
    assert invoke(*base, "overconfidence.low>0.1").code == 1
    assert invoke(*base, "abs(overconfidence).low>0").code == 0
    assert invoke(*base, "abs(overconfidence).high<0").code == 0
    assert invoke(*base, "abs(overconfidence)>0.05").code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs", "runs/org__model-0"], "runs: 2 runs in it; name one of them"),
        (["twice/org__rm", "runs/org__model-0"], "twice/org__rm: 2 runs in it; name one of them"),
        (["runs/org__model-0", "nowhere"], "nowhere: no such folder"),
        (["runs/org__model-0", "runs/org__model-1", "--category", "Maths"], "unknown 'Maths' (have: overall"),
        (["runs/org__model-0", "other.jsonl"], "no prompt in common"),
    ],
)
def test_bad_usage_is_one_clear_line(
    arguments: list[str], message: str, tmp_path: Path, invoke: Invoke
) -> None:
    write_runs(tmp_path / "runs", 2, n=9)
    for number, benchmark in enumerate(("org/bench", "another")):
        write_run(tmp_path / "twice", "org/rm", synthetic(number, n=9), benchmark=benchmark)
    row = {"item_id": "z", "category": "c", "response": 0, "is_correct": True, "reward": 1.0}
    lines = [row, {**row, "response": 1, "is_correct": False}]
    (tmp_path / "other.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = invoke("compare", *arguments, "--resamples", "20")
    assert result.code == 2
    assert message in result.err
    assert len(result.err.strip().splitlines()) == 1

"""Files of other kinds of scores on the command line: steps, ratings, verdicts, distributions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke
from tests.scores.rewardmath import SCORES, write_own, write_tidy

FEW = ("--resamples", "20")


def test_one_report_of_all_kinds(tmp_path: Path, invoke: Invoke) -> None:
    write_tidy(tmp_path)
    said = invoke("report", "scores.parquet", "pairwise.parquet", *FEW, "--json")
    assert said.code == 0, said.err
    content = json.loads(said.out)
    rows = {row["model"]: row for row in content["models"]}
    assert set(rows) == {"classifier", "rating", "prm", "pairwise (pairs)"}
    assert content["metric"] == "pairwise_overconfidence"
    assert all(row["rank"] is not None for row in rows.values())
    assert rows["pairwise (pairs)"]["pairwise_accuracy"] == pytest.approx(2.5 / 4)
    assert rows["pairwise (pairs)"]["mean_confidence"] is None
    assert any("verdicts name neither response" in note for note in content["notes"])
    page = (tmp_path / "report" / "report.html").read_text()
    assert "All numbers are about pairs of a correct and a wrong response." in page
    assert (tmp_path / "report" / "summary.md").read_text().count("pairs") > 1


def test_eval_takes_all_models_of_a_file_or_one(tmp_path: Path, invoke: Invoke) -> None:
    write_tidy(tmp_path)
    said = invoke("eval", "--scores", "scores.parquet", *FEW, "--json")
    assert said.code == 0, said.err
    assert [one["model"] for one in json.loads(said.out)["evaluations"]] == list(SCORES)
    one = invoke("eval", "--scores", "scores.parquet", "--model", "prm", "--output", "o", *FEW, "--json")
    assert one.code == 0, one.err
    (result,) = json.loads(one.out)["evaluations"]
    assert result["manifest"]["steps"] == "product"
    wrong = invoke("eval", "--scores", "scores.parquet", "--model", "pmr")
    assert wrong.code == 2
    assert "no scores of 'pmr' (did you mean 'prm'?)" in wrong.err


def test_a_run_of_verdicts_is_kept_and_reported(tmp_path: Path, invoke: Invoke) -> None:
    write_own(tmp_path)
    said = invoke("eval", "--scores", "pairwise.json", "--model", "org/judge", *FEW, "--json")
    assert said.code == 0, said.err
    (result,) = json.loads(said.out)["evaluations"]
    assert "only pairs are measured" in " ".join(result["notes"])
    assert result["summary"].startswith("In pairs of a correct and a wrong response it says")
    assert invoke("eval", "--scores", "classifier.json", "--model", "org/rm", *FEW, "--quiet").code == 0
    listed = json.loads(invoke("report", "runs", *FEW, "--json").out)
    assert {row["model"] for row in listed["models"]} == {"org/judge", "org/rm"}
    assert listed["metric"] == "pairwise_overconfidence"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("eval", "--steps", "min"), "--steps: needs a file of scores (--scores FILE)"),
        (("eval", "--missing", "drop"), "--missing: needs a file of scores"),
        (("eval", "--scores", "prm.json", "--steps", "sum"), "--steps: unknown 'sum' (have: product, min,"),
        (("report", "prm.json", "--missing", "guess"), "--missing: unknown 'guess' (have: refuse,"),
        (("report", "nothing.json"), "nothing.json: no such folder or file"),
    ],
)
def test_bad_options_are_named(
    tmp_path: Path, invoke: Invoke, options: tuple[str, ...], message: str
) -> None:
    write_own(tmp_path)
    said = invoke(*options)
    assert said.code == 2
    assert message in said.err

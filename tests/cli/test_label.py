"""Draw, label and know on the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Invoke

TEXT = "The answer {} in words."


def write_scores(path: Path, n: int = 300, text: str = TEXT) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    rng = np.random.default_rng(0)
    utilities = rng.normal(size=(n, 3))
    best = (utilities + rng.gumbel(size=(n, 3))).argmax(axis=1)
    rows = [
        {
            "prompt_id": i,
            "prompt": f"Question {i}?",
            "response": text.format(j),
            "score": 3 * utilities[i, j],
        }
        for i in range(n)
        for j in range(3)
    ]
    pd.DataFrame(rows).to_csv(path, index=False)
    return best


@pytest.mark.parametrize("text", [TEXT, "The answer {}"])  # a long text, and one that is as short as an id
def test_from_scores_without_labels_to_the_gap(text: str, tmp_path: Path, invoke: Invoke) -> None:
    best = write_scores(tmp_path / "mine.csv", text=text)
    source, folder = str(tmp_path / "mine.csv"), tmp_path / "labels"
    done = invoke("eval", "--scores", source, "-o", str(tmp_path / "runs"))
    assert done.code == 2
    assert f"rmcalib label {source}" in done.err
    assert "response_id" not in done.err  # no column of the file
    done = invoke("label", source, "--n", "80", "--output", str(folder), "--json")
    assert done.code == 0, done.err
    assert (json.loads(done.out)["n"], json.loads(done.out)["of"]) == (80, 300)
    assert "<html" in (folder / "label.html").read_text(encoding="utf-8")
    sheet = pd.read_csv(folder / "sheet.csv")
    assert sheet["label"].isna().all()
    assert sheet["response_text"].str.startswith("The answer").all()
    sheet["label"] = (best[sheet["prompt"]] == sheet["response"]).astype(int)
    sheet.to_csv(tmp_path / "filled.csv", index=False)
    labels = ("--labels", str(tmp_path / "filled.csv"))
    done = invoke(
        "eval", "--scores", source, *labels, "-o", str(tmp_path / "runs"), "--resamples", "20", "--json"
    )
    assert done.code == 0, done.err
    content = json.loads(next((tmp_path / "runs").rglob("metrics.json")).read_text(encoding="utf-8"))
    assert (content["facts"]["sample"]["n"], content["facts"]["sample"]["of"]) == (80, 300)
    assert content["facts"]["sample"]["drawn"] == "at random"
    page = next((tmp_path / "runs").rglob("report.html")).read_text(encoding="utf-8")
    run = next((tmp_path / "runs").rglob("scores.parquet")).parent
    assert f"rmcalib label {source} {' '.join(labels)} --more" in re.sub("<[^>]*>", "", page)
    further = ("--more", "--n", "20", "--output", str(tmp_path / "next"))
    assert invoke("label", str(run), *further).code == 0  # the labels are in the run
    again = pd.read_csv(tmp_path / "next" / "sheet.csv")
    assert again["label"].notna().sum() == 240
    assert again["response_text"].str.startswith("The answer").all()
    commands = (
        ("calibrate", source),
        ("decide", source),
        ("compare", source, source),
        ("report", source),
        ("best-of-n", source),
    )
    for command in commands:
        place = ("--output", str(tmp_path / "out")) if command[0] != "decide" else ()
        done = invoke(*command, *labels, *place, "--json")
        assert done.code == 0, done.err
    more = invoke("label", source, *labels, "--more", "--n", "20", "--output", str(tmp_path / "more"))
    assert more.code == 0, more.err
    again = pd.read_csv(tmp_path / "more" / "sheet.csv")
    assert (again["prompt"].nunique(), again["label"].notna().sum()) == (100, 240)
    # A sheet that somebody filled in is not replaced, unless the new one has its labels.
    draw = ("label", source, "--n", "20", "--output", str(tmp_path / "more"))
    refused = invoke(*draw)
    assert (refused.code, str(tmp_path / "more" / "sheet.csv") in refused.err) == (2, True)
    assert pd.read_csv(tmp_path / "more" / "sheet.csv").equals(again)
    kept = invoke(*draw, *labels, "--more")
    assert kept.code == 0, kept.err


def test_bad_labels_are_one_line(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "mine.csv", 40)
    source = str(tmp_path / "mine.csv")
    (tmp_path / "wrong.csv").write_text("prompt,response,label\nnobody,0,1\n", encoding="utf-8")
    for arguments, name in (
        (("eval", "--scores", source, "--labels", str(tmp_path / "wrong.csv")), "nobody"),
        (("eval", "--scores", source, "--labels", str(tmp_path / "none.csv")), "none.csv"),
        (("label", source, "--more", "--output", str(tmp_path / "x")), "more"),
        (("label", source, "--by", "colour", "--output", str(tmp_path / "x")), "colour"),
        (("label", source, "--n", "0", "--output", str(tmp_path / "x")), "--n"),
    ):
        done = invoke(*arguments)
        assert done.code == 2, arguments
        assert name in done.err
        assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()


def test_the_next_commands_have_what_the_draw_had(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "mine.csv", 40)
    source, place = str(tmp_path / "mine.csv"), ("--output", str(tmp_path / "labels"))
    done = invoke("label", source, "--n", "9", "--second", source, "--ask", "chosen", *place)
    assert done.code == 0, done.err
    commands = [line for line in done.out.splitlines() if line.endswith("labels.jsonl")]
    assert [("--second" in line, "best-of-n" in line) for line in commands] == [(True, False), (False, True)]
    assert len(done.out.splitlines()[0]) <= 80
    run = tmp_path / "run"
    run.mkdir()
    rows = [
        {"input": f"{i}?", "output": f"It is {j}.", "score": j, "step": 1} for i in range(5) for j in range(2)
    ]
    (run / "1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    done = invoke("label", str(run), "--ask", "correct", *place)
    assert done.code == 0, done.err
    assert "rmcalib watch" in done.out
    done = invoke("best-of-n", source, *place)
    assert done.code == 2
    assert "rmcalib label" in done.err

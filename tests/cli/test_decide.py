"""``rmcalib decide``, and the section of the report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from rmcalib.repair import Calibrator
from rmcalib.report import evaluate
from tests.cli.conftest import Invoke
from tests.repair.test_calibrate import drawn


def test_from_scores_to_a_threshold(tmp_path: Path, invoke: Invoke) -> None:
    drawn(800, scale=3.0).to_parquet(tmp_path / "s.parquet")
    out = invoke("decide", "s.parquet", "--wrong-at-most", "0.3")
    assert (out.code, out.err) == (0, "")
    assert "the surest choices" in out.out
    assert "best of k" in out.out
    assert max(map(len, out.out.splitlines())) <= 80
    found = json.loads(invoke("decide", "s.parquet", "--wrong-at-most", "0.3", "--json").out)
    assert found["choice"]["high"] <= 0.3
    assert found["choice"]["threshold"] > 0.8
    Calibrator(3.0, 2.8, 3.2).save(tmp_path / "c.json")
    again = invoke("decide", "s.parquet", "--wrong-at-most", "0.3", "--calibrator", "c.json", "--json")
    assert "the best one is" in again.err
    mended = json.loads(again.out)
    assert mended["choice"]["threshold"] < found["choice"]["threshold"]
    assert abs(mended["regret"]["value"]) < found["regret"]["value"]


def test_bad_input_is_one_line(tmp_path: Path, invoke: Invoke) -> None:
    scores = drawn(30, scale=1.0)
    replace(scores, manifest={"scale": "probabilities"}).to_parquet(tmp_path / "s.parquet")
    for args, reason in (
        (("s.parquet",), "there are no probabilities to act on"),
        (("s.parquet", "--wrong-at-most", "1"), "--wrong-at-most: 1 is not between 0 and 1"),
        (("s.parquet", "--ask-cost", "-1"), "--ask-cost: -1 is not between 0 and 1"),
        (("nowhere.parquet",), "nowhere.parquet"),
    ):
        out = invoke("decide", *args)
        assert (out.code, reason in out.err, out.err.count("\n")) == (2, True, 1), out.err


def test_the_report_has_a_section_on_decisions(tmp_path: Path) -> None:
    report = evaluate(drawn(300, scale=3.0), model="m", resamples=20)
    page = report.to_html(tmp_path / "r.html").read_text(encoding="utf-8")
    assert "What this means if you act on it" in page
    assert report.decisions is not None
    assert report.decisions.sentences[0] in page.replace("&#39;", "'")
    assert json.loads(report.to_json(tmp_path / "r.json").read_text())["decisions"]["n"] == 300
    some = evaluate(drawn(300, scale=3.0), model="m", resamples=20, metrics=["accuracy"])
    assert some.decisions is None
    assert "What this means" not in some.to_html(tmp_path / "s.html").read_text(encoding="utf-8")

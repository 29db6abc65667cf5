"""``rmcalib calibrate`` and ``eval --calibrator``."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib.repair import Calibrator
from rmcalib.scores import Scores
from tests.cli.conftest import Invoke
from tests.repair.test_calibrate import drawn


def test_from_scores_to_a_calibrated_report(tmp_path: Path, invoke: Invoke) -> None:
    drawn(200, scale=4.0).to_parquet(tmp_path / "scores.parquet")
    out = invoke("calibrate", "scores.parquet", "--to", "c.json")
    assert (out.code, out.err) == (0, "")
    assert "after, on held-out prompts" in out.out
    assert re.search(r"^right +\d+% \[\d+%, \d+%\]", out.out, re.MULTILINE)
    assert re.search(r"^gap +\+\d+ points \[\+\d+, \+\d+\]", out.out, re.MULTILINE)
    seen = invoke(
        "eval", "--scores", "scores.parquet", "--model", "rm", "--calibrator", "c.json", "--resamples", "20"
    )
    assert seen.code == 0
    (page,) = (tmp_path / "runs").rglob("calibrated/report.html")
    assert page.is_file()


def test_the_command_refuses_with_one_line_and_writes_nothing(tmp_path: Path, invoke: Invoke) -> None:
    drawn(300, scale=1.0, seed=3).to_parquet(tmp_path / "scores.parquet")
    out = invoke("calibrate", "scores.parquet", "--to", "c.json")
    assert out.code == 2
    assert len(out.err.strip().splitlines()) == 1
    assert not (tmp_path / "c.json").exists()
    clash = invoke("calibrate", "scores.parquet", "--model", "rm")
    assert clash.code == 2
    assert "--model" in clash.err


def test_the_demo_is_repaired_by_three_commands(invoke: Invoke) -> None:
    def headline(*args: str) -> tuple[dict[str, Any], Scores]:
        out = invoke("eval", *args, "--part", "2/2", "--resamples", "50", "--json")
        assert out.code == 0, out.err
        (done,) = json.loads(out.out)["evaluations"]
        rows = {row["metric"]: row for row in done["metrics"] if row["category"] == "overall"}
        return rows, Scores.from_parquet(Path(done["folder"]) / "scores.parquet")

    before, raw = headline()
    out = invoke("calibrate", "--part", "1/2", "--checkpoint", "demo-calibrated", "--json")
    assert out.code == 0, out.err
    made = json.loads(out.out)
    assert made["checkpoint"]["difference"] < 1e-5
    after, scaled = headline("--model", "demo-calibrated", "--benchmark", "demo")
    temperature = made["calibrator"]["temperature"]
    np.testing.assert_allclose(scaled.reward, raw.reward / temperature, rtol=1e-5, atol=1e-5)
    assert before["overconfidence"]["high"] < 0
    assert after["overconfidence"]["low"] <= 0 <= after["overconfidence"]["high"]
    assert after["accuracy"] == {**before["accuracy"], "model": after["accuracy"]["model"]}
    picks = [
        [one.argmax() for one in np.split(scores.reward, scores.offsets[1:-1])] for scores in (raw, scaled)
    ]
    assert picks[0] == picks[1]


def test_checkpoints_of_scores_and_what_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    drawn(200, scale=4.0).to_parquet(tmp_path / "scores.parquet")
    made = invoke("calibrate", "scores.parquet", "--model", "demo", "--device", "cpu", "--checkpoint", "new")
    assert (made.code, made.err) == (0, "")
    assert "Use it: rmcalib eval --model new" in made.out
    (tmp_path / "full").mkdir()
    (tmp_path / "full/x").touch()
    for args, reason in (
        (("--checkpoint", "full"), "--checkpoint full: is not empty"),
        (("--to", "full"), "'--to': 'full' is a directory; name a file"),
        (("--to", ""), "'--to': an empty name; name a file"),
        (("--push-to-hub", "me/rm"), "--push-to-hub: give a folder"),
        (("--checkpoint", "d", "--endpoint", "http://127.0.0.1:9"), "a served model"),
        (("--checkpoint", "d", "--reference", "demo"), "a policy's rewards"),
        (("--checkpoint", "d", "--judge", "letter"), "rewards of --judge"),
    ):
        out = invoke("calibrate", *args)
        assert (out.code, reason in out.err) == (2, True), out.err
    nameless = invoke("calibrate", "scores.parquet", "--checkpoint", "d")
    assert (nameless.code, "do not name the model" in nameless.err) == (2, True)
    assert not (tmp_path / "d").exists()


def test_calibrators_are_applied_to_the_scores_of_their_model(tmp_path: Path, invoke: Invoke) -> None:
    for name, scale in (("a", 4.0), ("b", 1.0)):
        scores = drawn(200, scale=scale)
        replace(scores, manifest={"model": name, "benchmark": "x"}).to_parquet(tmp_path / f"{name}.parquet")
    assert invoke("calibrate", "a.parquet", "--to", "c.json").code == 0
    quick = ("--resamples", "20", "--json")
    raw = json.loads(invoke("compare", "a.parquet", "b.parquet", *quick).out)["differences"]
    out = invoke("compare", "a.parquet", "b.parquet", "--calibrator", "c.json", *quick)
    assert "a: The temperature" in out.err
    assert "b: The temperature" not in out.err
    rows = json.loads(out.out)["differences"]
    before, after = (
        {row["metric"]: row for row in one if row["category"] == "overall"} for one in (raw, rows)
    )
    assert abs(after["overconfidence"]["a"]) < 0.02 < before["overconfidence"]["a"]
    assert after["overconfidence"]["b"] == before["overconfidence"]["b"]
    other = invoke("compare", "b.parquet", "b.parquet", "--calibrator", "c.json")
    assert (other.code, "was fitted for a, and these are scores of b" in other.err) == (2, True)


def test_scores_are_kept_beside_calibrated_ones(tmp_path: Path, invoke: Invoke) -> None:
    Calibrator(2.0, 1.9, 2.1, model="demo", fitted_on={"benchmark": "mine", "n": 500}).save(
        tmp_path / "c.json"
    )
    for _ in range(2):  # the second time from what is there
        out = invoke("score", "--limit", "40", "--calibrator", "c.json", "--json")
        assert out.code == 0, out.err
        assert "was fitted on mine (500 prompts) and does not hold here" in out.err
    (entry,) = json.loads(out.out)["scored"]
    raw, kept = (
        Scores.from_parquet(tmp_path / "runs/demo/demo" / end / "scores.parquet")
        for end in ("", "calibrated")
    )
    assert Path(entry["scores"]).resolve() == tmp_path / "runs/demo/demo/calibrated/scores.parquet"
    np.testing.assert_allclose(kept.reward, raw.reward / 2)
    assert kept.manifest["model"] == "demo (calibrated)"


def test_an_earlier_calibrator_is_replaced_and_other_files_are_not(tmp_path: Path, invoke: Invoke) -> None:
    drawn(200, scale=4.0).to_parquet(tmp_path / "scores.parquet")
    for expected in ("", "rmcalib: replaced c.json, an earlier calibrator\n"):
        out = invoke("calibrate", "scores.parquet", "--to", "c.json")
        assert (out.code, out.err) == (0, expected)
    assert invoke("calibrate", "scores.parquet", "--to", "c.json", "--quiet").err == ""
    (tmp_path / "config.json").write_text('{"mine": true}')
    refused = invoke("calibrate", "scores.parquet", "--to", "config.json")
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "--to config.json: exists and is not a calibrator" in refused.err
    assert (tmp_path / "config.json").read_text() == '{"mine": true}'

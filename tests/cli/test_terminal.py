"""What reaches the terminal: no control characters, no cut numbers, the real names."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rmcalib._util.terminal import clean, clean_line
from rmcalib.scores import Scores
from tests.cli.conftest import Invoke
from tests.metrics.worlds import calibrated_scores

COLUMNS = ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated")

ESCAPES = "a\x1b]0;owned\x07b\x9b31mc\u202egnp.exe"
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def write_scores(path: Path, category: str, model: str | None = None) -> None:
    scores = calibrated_scores(40)
    columns = {name: getattr(scores, name) for name in COLUMNS}
    columns["category"] = [category if name == "Math" else name for name in scores.category.tolist()]
    Scores.from_columns(columns, {"model": model} if model else None).to_parquet(path)


def test_escapes_in_names_never_reach_the_terminal(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "s.parquet", ESCAPES)
    reported = invoke("eval", "--scores", "s.parquet", "--model", f"org/{ESCAPES}", "--resamples", "20")
    assert reported.code == 0, reported.err
    report = invoke("report", "runs", "--resamples", "20")
    assert report.code == 0, report.err
    compared = invoke("compare", "s.parquet", "s.parquet", "--category", "all", "--resamples", "20")
    assert compared.code == 0, compared.err
    bad = invoke("eval", "--scores", f"{ESCAPES}.parquet")
    unknown = invoke("compare", "s.parquet", "s.parquet", "--category", f"no {ESCAPES}", "--resamples", "20")
    assert (bad.code, unknown.code) == (2, 2)
    for outcome in (reported, report, compared, bad, unknown):
        assert not UNSAFE.search(outcome.out + outcome.err)
        assert "�" in outcome.out + outcome.err
    pages = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("report.html")]
    assert len(pages) == 2
    assert not any(UNSAFE.search(page) for page in pages)


def test_reports_show_real_names_and_folders_are_distinct(tmp_path: Path, invoke: Invoke) -> None:
    write_scores(tmp_path / "s.parquet", "Math")
    names = ["lab/naïve rm", "lab/nave rm", "org/😀", "org/😁"]
    for name in names:
        reported = invoke("eval", "--scores", "s.parquet", "--model", name, "--resamples", "20", "--quiet")
        assert reported.code == 0, reported.err
    assert len(list((tmp_path / "runs").iterdir())) == len(names)
    listed = json.loads(invoke("report", "runs", "--resamples", "20", "--json").out)
    assert sorted(row["model"] for row in listed["models"]) == sorted(names)
    assert listed["benchmark"] == "unnamed-benchmark"


def test_the_summary_leads_with_says_and_right_and_cuts_no_number(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "organisation/" + "a-very-long-name-" * 4
    write_scores(tmp_path / "s.parquet", "Math", name)
    monkeypatch.setenv("COLUMNS", "50")
    reported = invoke("eval", "--scores", "s.parquet", "--resamples", "20")
    lines = [line for line in reported.out.splitlines() if line.strip()]
    first = next(i for i, line in enumerate(lines) if line.startswith("says:"))
    assert [line.split(":")[0] for line in lines[first : first + 3]] == ["says", "right", "gap"]
    assert re.search(r"It says \d+% and is right \d+% of the time: ", " ".join(reported.out.split()))
    rows = [line for line in lines if re.match(r"(Math|Focus) +\d", line)]
    assert len(rows) == 2
    # Gap with its interval, lost information, and the ECE with that of a calibrated model.
    whole = re.compile(r"\[[+-]?[\d.]+, [+-]?[\d.]+\] +[\d<.]+ +[\d<.]+ \([\d<.]+\)$")
    assert all(whole.search(line.rstrip()) for line in rows)


def test_help_lists_what_to_score_first(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    reported = invoke("eval", "--help").out
    panels = re.findall(r"^╭─ (.*?) ─", reported, re.MULTILINE)
    assert panels[:2] == ["What to score", "How to score"]
    assert panels[-2:] == ["What to report", "Other options"]
    assert "Options" not in panels
    assert reported.index("--scores") < reported.index("How to score")
    assert reported.index("Other options") < reported.index("--help ")


def test_cleaning_keeps_letters_lines_and_emoji() -> None:
    text = "naïve שלום 👩\u200d🔬\n\ttab"
    assert clean(text) == text
    assert clean_line(" a\r\n b\x00") == "a b�"

"""Input that is easy to get wrong: refused by name, before anything is computed or overwritten."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import Invoke, folder_of
from tests.hub import tiny
from tests.metrics.worlds import calibrated_scores

QUICK = ("--resamples", "20", "--quiet")
TABLE = "a,b,L1,L2\n" + "".join(f"{i % 7},{i % 5},{1 + i % 2},{2 - i % 2}\n" for i in range(20))


def write_files(folder: Path) -> None:
    calibrated_scores(60).to_parquet(folder / "s.parquet")
    calibrated_scores(60).at_temperature(2.0).to_parquet(folder / "o.parquet")
    (folder / "mine.csv").write_text(TABLE)
    (folder / "good.jsonl").write_text("".join(json.dumps(row) + "\n" for row in tiny.benchmark_rows(4)))


READ = "this command reads that file; name another one"
OVERWRITING: list[tuple[str, ...]] = [
    ("eval", "--scores", "s.parquet", *QUICK, "--markdown", "s.parquet"),
    ("eval", "--scores", "s.parquet", *QUICK, "--export-rewardbench", "./s.parquet"),
    ("compare", "s.parquet", "o.parquet", *QUICK, "--output", "o.parquet"),
    ("compare", "s.parquet", "o.parquet", *QUICK, "--markdown", "link.parquet"),
    ("calibrate", "s.parquet", "--to", "s.parquet"),
    ("combine", "s.parquet", "o.parquet", "--to", "s.parquet"),
]


@pytest.mark.parametrize("arguments", OVERWRITING, ids=lambda found: f"{found[0]} {found[-2]}")
def test_a_file_that_is_read_is_never_overwritten(
    arguments: tuple[str, ...], invoke: Invoke, tmp_path: Path
) -> None:
    write_files(tmp_path)
    (tmp_path / "link.parquet").symlink_to("s.parquet")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    ended = invoke(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ("give another file" if "--to" in arguments else READ) in ended.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_files_of_a_run_are_not_overwritten(invoke: Invoke, tmp_path: Path) -> None:
    write_files(tmp_path)
    assert invoke("eval", "--scores", "s.parquet", *QUICK).code == 0
    run = folder_of(tmp_path / "runs")
    ended = invoke("combine", run, "o.parquet", "--to", run / "scores.parquet")
    assert (ended.code, "exists and is not the scores of a panel" in ended.err) == (2, True)
    page = (run / "report.html").read_bytes()
    ended = invoke("report", "runs", *QUICK, "--output", run)
    assert (ended.code, "the folder of a run" in ended.err) == (2, True)
    assert (run / "report.html").read_bytes() == page


URLS: list[tuple[tuple[str, ...], str]] = [
    (("prolr", "--data", "http://x/y.csv"), "http://x/y.csv: a URL; download the file and give its path"),
    (("report", "--table", "http://x/y.csv"), "http://x/y.csv: a URL; download the file"),
    (("batch", "--models", "http://x/y.yaml"), "http://x/y.yaml: a URL; download the file"),
    (("models", "--recipes", "http://x/y.yaml"), "http://x/y.yaml: a URL; download the file"),
    (("decide", "s.parquet", "--calibrator", "s3://x/y.json"), "s3://x/y.json: a URL; download the file"),
    (
        ("calibrate", "s.parquet", "--to", "s3://x/y.json"),
        "s3://x/y.json: a URL; give a file of this machine",
    ),
    (("eval", "--scores", "s.parquet", "--markdown", "http://x/y.md"), "http://x/y.md: a URL; give a file"),
    (("score", "--export-rewardbench", "http://x/y.json"), "http://x/y.json: a URL; give a file"),
    (("synthetic", "--output", "http://x/y"), "http://x/y: a URL; give a folder of this machine"),
]
NAMES: list[tuple[tuple[str, ...], str]] = [
    (("eval", "--scores", "s.parquet", "--model", ""), "--model: an empty name"),
    (("card", "s.parquet", "--model", " "), "--model: an empty name"),
    (("decide", ""), "an empty name; '.' is the current folder"),
    (("report", ""), "an empty name; '.' is the current folder"),
    (("report", "s.parquet", "--benchmark", ""), "--benchmark: an empty name (have: made-up)"),
    (("compare", "s.parquet", ""), "an empty name; '.' is the current folder"),
    (("compare", "s.parquet", "o.parquet", *QUICK, "-o", "."), ".: a folder; name a file"),
    (("eval", "--scores", "s.parquet", "--markdown", ""), "an empty name; name a file"),
    (("decide", "s.parquet", "--calibrator", ""), "an empty name; name a file"),
    (("decide", "s.parquet", "--calibrator", "."), ".: Is a directory"),
    (("decide", "s.parquet", "--calibrator", "gone.json"), "gone.json: No such file or directory"),
    (("combine", "s.parquet"), "got the scores of 1 judge, expected at least 2"),
    (("combine", "s.parquet", "s.parquet"), "s.parquet: given 2 times; give each judge once"),
    (("decide", "s.parquet", "--seed", "x"), "'x'"),
    (("eval", "--scores", "s.parquet", "--ties", "none"), "'none' is not one of 'split', 'drop'"),
    (("eval", "--scores", "s.parquet", "--fail-if", "ECE>1"), "unknown metric 'ECE' (did you mean 'ece'?)"),
    (("doctor", "--device", "cpu"), "--device: no effect with a check of this machine"),
    (("prolr", "--data", "mine.csv", "--labels", ""), "--labels: names nothing"),
    (("prolr", "--data", "mine.csv", "--labels", "L1,L1"), "the label column 'L1' is named twice"),
    (
        ("score", "-b", "good.jsonl", "--part", "1/1000"),
        "'1/1000' is not a part K/N (K from 1 to N, N up to 999)",
    ),
    (("score", "-b", "good.jsonl", "--format", "rm-bench"), "line 1: chosen is"),
]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [*URLS, *NAMES],
    ids=lambda found: found if isinstance(found, str) else " ".join(found),
)
def test_one_line_that_shows_what_was_given(
    arguments: tuple[str, ...], shown: str, invoke: Invoke, tmp_path: Path
) -> None:
    write_files(tmp_path)
    before = set(tmp_path.rglob("*"))
    ended = invoke(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1), ended
    assert shown in ended.err
    assert "Value error" not in ended.err
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (TABLE.replace("a,b", "a,a"), "line 1: 2 columns are called 'a'"),
        (TABLE.replace("1,1,", "1\0,1,", 1), "line 3: a NUL character"),
        (TABLE.replace("a,b", "a,"), "column 2 has no name; name it or leave it out"),
        (TABLE.replace("1,1,", "1e308,1,", 1), "column 'a' is 1e+308 in line 3, which is too large"),
        (TABLE.encode("utf-16"), "not UTF-8 text (it looks like UTF-16): save it as UTF-8"),
    ],
)
def test_odd_csv_files_are_refused(text: str | bytes, shown: str, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    ended = invoke("prolr", "--data", "mine.csv")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("rmcalib: error: mine.csv")
    assert shown in ended.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("resamples: 20\nresamples: 30\n", "c.yaml, line 2: the key 'resamples' appears twice"),
        ("quiet: maybe\n", "c.yaml: quiet: 'maybe' is neither true nor false"),
        ("output: [a]\n", "c.yaml: output: expected one number or text, got list"),
        ("seed: true\n", "c.yaml: seed: takes a value, not true or false"),
        ("curve: no\n", "c.yaml: curve: takes a value, not true or false (put a text into quotes)"),
        ("resamples: {a: 1}\n", "c.yaml: resamples: expected one number or text, got dict"),
        ("resamples: many\n", "'many'"),
    ],
)
def test_odd_configurations_are_refused(text: str, shown: str, invoke: Invoke, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    ended = invoke("eval", "--scores", "s.parquet", "--config", "c.yaml")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert shown in ended.err


def test_a_configuration_may_name_one_of_several_arguments(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("runs: nowhere\n")
    assert "nowhere: no such folder" in invoke("report", "--config", "c.yaml").err


def test_the_metadata_of_a_parquet_file_is_checked(invoke: Invoke, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    write_files(tmp_path)
    table = pq.read_table(tmp_path / "s.parquet")
    for stored in (b"oops", b"3", b"[]", b"\xff\xfe"):
        odd = table.replace_schema_metadata({b"rmcalib.manifest": stored})
        pq.write_table(odd, tmp_path / "odd.parquet")
        ended = invoke("decide", "odd.parquet")
        assert ended.code == 2
        assert "odd.parquet: its metadata 'rmcalib.manifest' is not a JSON object" in ended.err


def test_two_models_never_share_a_folder_of_scores(invoke: Invoke, tmp_path: Path) -> None:
    write_files(tmp_path)
    scores = ("eval", "--scores", "s.parquet", *QUICK)
    assert invoke(*scores, "--model", "a/b").code == 0
    ended = invoke(*scores, "--model", "a__b")
    assert ended.code == 2
    assert "holds the scores of 'a/b', and 'a__b' has the same folder" in ended.err
    assert json.loads((folder_of(tmp_path / "runs") / "run.json").read_text())["model"] == "a/b"
    assert invoke(*scores, "--model", "a__b", "--fresh").code == 0


def test_a_model_may_be_called_like_a_file_of_a_run(invoke: Invoke, tmp_path: Path) -> None:
    write_files(tmp_path)
    for name in ("run.json", "scores.parquet"):
        assert invoke("eval", "--scores", "s.parquet", *QUICK, "--model", name).code == 0
    listed = json.loads(invoke("report", "runs", "--resamples", "20", "--json").out)
    assert sorted(row["model"] for row in listed["models"]) == ["run.json", "scores.parquet"]


def test_a_category_with_a_bracket_can_be_named_in_a_condition(invoke: Invoke, tmp_path: Path) -> None:
    scores = calibrated_scores(40)
    columns: dict[str, Any] = {**scores.columns(), "category": ["a]b"] * len(scores)}
    Scores.from_columns(columns).to_parquet(tmp_path / "s.parquet")
    ended = invoke("eval", "--scores", "s.parquet", *QUICK, "--fail-if", "ece[a]b]>=0")
    assert ended.code == 1, ended.err


def test_a_calibrator_is_read_strictly(invoke: Invoke, tmp_path: Path) -> None:
    calibrated_scores(200).at_temperature(1 / 3).to_parquet(tmp_path / "hot.parquet")
    assert invoke("calibrate", "hot.parquet", "--to", "c.json", "--quiet").code == 0
    text = (tmp_path / "c.json").read_text()
    for content, shown in (
        (
            text.replace("{", '{"temperature": 9, ', 1).encode(),
            "c.json: the key 'temperature' appears twice",
        ),
        (text.encode("utf-16"), "c.json: not UTF-8 text (it looks like UTF-16)"),
    ):
        (tmp_path / "c.json").write_bytes(content)
        ended = invoke("decide", "hot.parquet", "--calibrator", "c.json")
        assert (ended.code, shown in ended.err) == (2, True), ended


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"votes": ...}, "line 2: nothing for votes, which other rows have"),
        ({"ties": ...}, "line 2: nothing for ties, which other rows have"),
        ({"votes": 2**62}, "is not a number of votes (0 to 1,000,000,000,000)"),
        ({"n_tokens": -5}, "n_tokens is -5, which is not a number of tokens"),
        ({"response": 2}, "item 'p0', response 2: expected response 1 next"),
        ({"item_id": ""}, "give a number, or a text that is not empty and has no NUL or lone surrogate"),
    ],
)
def test_odd_scores_are_refused(change: dict[str, Any], shown: str, invoke: Invoke, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"item_id": f"p{i}", "category": "x", "response": r, "is_correct": r == 0, "reward": float(i + r)}
        | {"n_tokens": 5, "votes": 2 - r, "ties": 1}
        for i in range(3)
        for r in range(2)
    ]
    rows[1] = {key: value for key, value in {**rows[1], **change}.items() if value is not ...}
    (tmp_path / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ended = invoke("eval", "--scores", "v.jsonl")
    assert (ended.code, ended.out) == (2, "")
    assert shown in ended.err


@pytest.mark.parametrize(
    ("entry", "shown"),
    [
        ("model: me/rm\n  parameters: .inf", "parameters: inf is not a number of billions"),
        ("model: me/rm\n  parameters: -3", "parameters: -3 is not a number of billions"),
        ("model: me/rm\n  max_length: .inf", "max_length must be int, not inf"),
        ("model: ' '", "an entry needs `model: org/name`"),
        ("model: me/rm\n  model: me/x", "r.yaml, line 3: the key 'model' appears twice"),
    ],
)
def test_odd_recipes_are_refused(entry: str, shown: str, invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(f"models:\n- {entry}\n")
    ended = invoke("models", "--recipes", "r.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert shown in ended.err

"""Scores and their files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib._util.files import write_file
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._columns import COLUMNS
from tests.runs.small_runs import row, same

GOOD = [row("b", 0, True, 1.5), row("b", 1, False, -2.0), row("a", 0, True, 0.25), row("a", 1, False, 7.0)]


def test_prompts_keep_their_order_and_responses_are_sorted() -> None:
    scores = Scores.from_rows([GOOD[1], GOOD[3], GOOD[0], GOOD[2]])
    assert scores.item_id.tolist() == ["b", "b", "a", "a"]
    assert scores.reward.tolist() == [1.5, -2.0, 0.25, 7.0]
    assert scores.offsets.tolist() == [0, 2, 4]
    assert scores.n_tokens.tolist() == [-1] * 4  # unknown


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([row("a", 0, True), row("a", 1, True)], "item 'a': no wrong response"),
        ([row("a", 0, False), row("a", 1, False)], "item 'a': no correct response"),
        ([row("a", 0, True), row("a", 0, False)], r"item 'a', response 0 appears twice"),
        ([row("a", 0, True), row("a", 2, False)], r"item 'a', response 2: expected response 1 next"),
        ([row("a", 0, True, float("nan")), row("a", 1, False)], r"item 'a', response 0\): reward is nan"),
        ([row("a", 0, True), row("a", 1, False, float("inf"))], r"response 1\): reward is inf"),
        ([row("a", 0, True), row("a", 1, False, category="Focus")], "its category differs"),
        ([row("a", 0, True), row("a", 1, False, reward="x")], "reward is 'x', not a finite number"),
        ([{"item_id": "a"}], "row 0: no value for category, response, is_correct, reward"),
        ([], "contains no scores"),
    ],
)
def test_inconsistent_scores_are_refused(rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scores.from_rows(rows)


@st.composite
def many_scores(draw: st.DrawFn) -> Scores:
    rows = []
    finite = st.floats(-1e100, 1e100)
    letters = st.characters(exclude_characters="\0", codec="utf-8")
    names = draw(st.lists(st.text(letters).filter(str.strip), max_size=5))
    for name in dict.fromkeys(["first", *names]):
        n, wrong = draw(st.integers(2, 6)), draw(st.integers(1, 5))
        n_correct = max(1, n - wrong)
        for i in range(n):
            more = {"n_tokens": draw(st.integers(0, 9999)), "truncated": draw(st.booleans())}
            rows.append(row(name, i, i < n_correct, draw(finite), **more))
    return Scores.from_rows(rows, {"model": "org/rm", "note": "é"})


@given(scores=many_scores())
@settings(max_examples=25, deadline=None)
def test_every_format_round_trips(scores: Scores, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("formats")
    scores.to_parquet(folder / "s.parquet")
    scores.to_jsonl(folder / "s.jsonl")
    scores.to_rewardbench_json(folder / "s.json")
    parquet = load_scores(folder / "s.parquet")
    assert same(parquet, scores)
    assert parquet.manifest.items() >= scores.manifest.items()
    assert same(load_scores(folder / "s.jsonl"), scores)
    theirs = load_scores(folder / "s.json")
    assert same(theirs, scores, COLUMNS[:5])  # RewardBench's files have no tokens
    assert theirs.manifest["model"] == "org/rm"


@pytest.mark.parametrize("scores", [[[1.0, 2.0, 3.0]], [[[1.0], [2.0], [3.0]]], [[1, [2.0], 3.0]]])
def test_rewardbench_scores_flat_and_nested(scores: Any, tmp_path: Path) -> None:
    path = tmp_path / "rm.json"
    path.write_text(
        json.dumps({"id": ["7"], "subset": ["Ties"], "scores": scores, "num_correct": [2], "text": [[]]})
    )
    loaded = load_scores(path)
    assert loaded.reward.tolist() == [1.0, 2.0, 3.0]
    assert loaded.is_correct.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", "{", r"x\.json: not JSON"),
        ("x.json", "[1]", "not RewardBench scores"),
        ("x.json", '{"id": ["1"], "subset": [], "scores": [[1]], "num_correct": [1]}', "lists of one length"),
        ("x.json", '{"id": [1], "subset": ["M"], "scores": [null], "num_correct": [1]}', "generative judge"),
        (
            "x.json",
            '{"id": [1], "subset": ["M"], "scores": [[1, null]], "num_correct": [1]}',
            "score 1 is null",
        ),
        (
            "x.json",
            '{"id": [1], "subset": ["M"], "scores": [[1, [2, 3]]], "num_correct": [1]}',
            "not a number",
        ),
        ("x.json", '{"id": [1], "subset": ["M"], "scores": [[1, NaN]], "num_correct": [1]}', "reward is nan"),
        *(
            (
                "x.json",
                f'{{"id": [1], "subset": ["M"], "scores": [[1, 2]], "num_correct": [{value}]}}',
                rf"x\.json, id 1: num_correct is {value}, not a positive whole number",
            )
            for value in ("null", '"one"', "true", "0", "1.5")
        ),
        ("x.jsonl", '{"item_id": "a"}\n', r"x\.jsonl, line 1: no value for category, response"),
        ("x.jsonl", "\n\n{oops}\n", r"x\.jsonl, line 3: not JSON"),
        ("x.jsonl", "\n", "contains no scores"),
        ("x.parquet", "PAR1", r"x\.parquet"),
        ("x.csv", "", r"a file of scores ends in \.parquet, \.jsonl, \.json"),
        ("gone/x.json", None, "No such file"),
        ("gone/x.parquet", None, r"x\.parquet"),
    ],
)
def test_bad_files_are_refused(name: str, content: str | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load_scores(tmp_path / name)


def test_a_failed_write_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    path.write_text("old")

    def write(file: Any) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match=r"scores\.parquet: cannot be written: No space left on device"):
        write_file(path, write)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["scores.parquet"]

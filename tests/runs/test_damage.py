"""Damaged files are errors that say so: one changed bit is found, or changes nothing that is read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from rmcalib.repair import Calibrator
from rmcalib.runs import RunError, read_run, score
from rmcalib.runs._folder import finished_scores
from rmcalib.runs._run import Run
from rmcalib.scores import Scores, load_scores
from tests.runs.small_runs import BENCH, INPUTS, same, scored


def longest(prompt: object, responses: list[str]) -> list[float]:
    return [len(text) + len(str(prompt)) / 8 for text in responses]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    score(longest, BENCH, output=tmp_path)
    (found,) = (path.parent for path in tmp_path.glob("*/*/run.json"))
    return found


def flipped(content: bytes, step: int) -> list[bytes]:
    """Return copies of a file in which one bit is changed, at every `step`-th byte."""
    rng = np.random.default_rng(0)
    bits = [(at, 1 << int(rng.integers(8))) for at in range(0, len(content), step)]
    return [content[:at] + bytes([content[at] ^ bit]) + content[at + 1 :] for at, bit in bits]


def outcome(read: Callable[[], Scores | None]) -> Scores | str | None:
    """Return what a call returns, or the message of its error."""
    try:
        return read()
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(("name", "step"), [("scores.parquet", 17), ("run.json", 7)])
def test_a_changed_bit_in_a_run_is_found_or_harmless(name: str, step: int, folder: Path) -> None:
    whole = read_run(folder)
    assert whole is not None
    asked, parquet = whole.manifest["asked"], (folder / "scores.parquet").read_bytes()
    found = 0
    for copy in flipped((folder / name).read_bytes(), step):
        (folder / name).write_bytes(copy)
        result = outcome(lambda: finished_scores(folder, asked))
        if result is None:  # the manifest does not answer the request any more, so the run is opened
            result = outcome(lambda: score(longest, BENCH, output=folder.parents[1]))
        if isinstance(result, str):
            assert "damaged" in result or "another run" in result
            found += 1
            continue
        assert result is not None
        assert same(result, whole)
        assert result.manifest["hash"] == whole.manifest["hash"]
        (folder / "scores.parquet").write_bytes(parquet)
    assert found > 0


def test_a_changed_bit_in_a_file_alone_is_found_or_harmless(folder: Path, tmp_path: Path) -> None:
    whole = load_scores(folder / "scores.parquet")
    file = tmp_path / "alone.parquet"
    for copy in flipped((folder / "scores.parquet").read_bytes(), 11):
        file.write_bytes(copy)
        result = outcome(lambda: load_scores(file))
        if isinstance(result, str):
            assert "damaged" in result
            continue
        assert result is not None
        assert same(result, whole)
        # Without its metadata, it is as from elsewhere: only its name and what its labels mean are known.
        assert result.manifest == whole.manifest or {*result.manifest} <= {"model", "labels"}


def test_a_changed_bit_in_a_journal_is_found_or_harmless(tmp_path: Path) -> None:
    with Run(tmp_path, BENCH, INPUTS) as run:
        run.add(scored(*range(10)))
    journal = tmp_path / "scored-0.jsonl"
    for copy in flipped(journal.read_bytes(), 11):
        journal.write_bytes(copy)
        try:
            with Run(tmp_path, BENCH, INPUTS) as run:
                # At most the last chunk is lost, which looks half-written without its end.
                assert len(run.remaining) in (0, 10)
                assert not run.remaining or not copy.endswith(b"\n")
        except RunError as error:
            assert "damaged" in str(error)  # noqa: PT017


def test_damage_is_not_scored_again_unless_asked(folder: Path) -> None:
    file = folder / "scores.parquet"
    whole = Scores.from_parquet(file)
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(RunError, match="damaged"):
        score(longest, BENCH, output=folder.parents[1])
    assert same(score(longest, BENCH, output=folder.parents[1], fresh=True), whole)


def test_a_changed_bit_in_a_calibrator_is_found_or_harmless(tmp_path: Path) -> None:
    whole = Calibrator(2.0, 1.8, 2.3, model="org/rm", fitted_on={"benchmark": "mine", "n": 500})
    file = whole.save(tmp_path / "calibrator.json")
    for copy in flipped(file.read_bytes(), 1):
        file.write_bytes(copy)
        with contextlib.suppress(ValueError):
            assert Calibrator.load(file) == whole
    whole.save(file)
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"temperature": 3.0}))
    with pytest.raises(ValueError, match="damaged"):
        Calibrator.load(file)

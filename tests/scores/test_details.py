"""Details of a judge's answer besides its rewards, in memory and in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rmcalib.scores import Scores, load_scores

ROWS = [
    {"item_id": name, "category": "x", "response": i, "is_correct": i == 0, "reward": 1.0 - i, **more}
    for name, more in (("a", {"judge_votes": 3}), ("b", {"judge_p_yes": 0.25, "judge_votes": None}))
    for i in range(2)
]


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_details_are_kept_in_files(suffix: str, tmp_path: Path) -> None:
    scores = Scores.from_rows(ROWS, source="test")
    path = tmp_path / f"scores{suffix}"
    scores.to_parquet(path) if suffix == ".parquet" else scores.to_jsonl(path)
    assert "NaN" not in path.read_bytes().decode("latin-1") or suffix == ".parquet"
    for each in (scores, load_scores(path)):
        np.testing.assert_array_equal(each.details["votes"], [3, 3, np.nan, np.nan])
        np.testing.assert_array_equal(each.details["p_yes"], [np.nan, np.nan, 0.25, 0.25])


def test_details_follow_their_rows() -> None:
    scores = Scores.from_rows(reversed(ROWS), source="test")
    assert scores.item_id.tolist() == ["b", "b", "a", "a"]
    assert scores.take([False, True]).details["votes"].tolist() == [3, 3]
    assert scores.at_temperature(2).details["votes"].tolist()[2:] == [3, 3]
    assert "judge_votes" in scores.to_pandas().columns


def test_details_must_be_numbers() -> None:
    bad = [{**ROWS[0], "judge_votes": "many"}, ROWS[1]]
    with pytest.raises(ValueError, match=r"test, row 0 .*: judge_votes is 'many', not a finite number"):
        Scores.from_rows(bad, source="test")

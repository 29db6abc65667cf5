"""Tables of users: official scores with categories of their own benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmcalib.report import read_official


def test_official_scores_may_be_of_any_category(tmp_path: Path) -> None:
    table = tmp_path / "official.csv"
    table.write_text("model,family,score,Own Topic\norg/model-1,llama,50,40\norg/model-2,qwen,60.5,\n")
    official = read_official(table)
    assert official.figures == {
        "org/model-1": {"overall": 0.5, "Own Topic": 0.4},
        "org/model-2": {"overall": 0.605},
    }
    assert official.figure("org/model-1", "own topic") == 0.4
    assert official.figure("org/model-2", "Own Topic") is None


@pytest.mark.parametrize(
    ("row", "said"),
    [("c,d,50,1", "4 cells, but the header has 3"), ("c,d,much", "score is 'much', not a number")],
)
def test_messages_name_the_line_of_the_file(row: str, said: str, tmp_path: Path) -> None:
    table = tmp_path / "official.csv"
    table.write_text(f'model,note,score\na,"two\nlines",50\n\n,,\n{row}\n')
    with pytest.raises(ValueError) as caught:
        read_official(table)
    assert str(caught.value) == f"{table}, line 6: {said}"

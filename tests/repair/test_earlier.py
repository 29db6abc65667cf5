"""Which files `calibrate` and `combine` may replace."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmcalib.repair import Calibrator, combine
from rmcalib.repair.calibrator import replaces_calibrator
from rmcalib.repair.panels import replaces_panel
from rmcalib.runs._run import keep_scores
from rmcalib.scores import Scores
from tests.repair.test_combine import as_scores, judges


def panel_scores() -> Scores:
    return combine(as_scores(*judges((1.0, 1.2), n=60))).scores()


def test_only_an_earlier_calibrator_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    assert not replaces_calibrator(file)
    Calibrator(2.0, 1.8, 2.3).save(file)
    assert replaces_calibrator(file)
    for content in (b'{"temperature": 2.0}', b"notes", b"", b"\xff"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"c\.json: exists and is not a calibrator; give another file"):
            replaces_calibrator(file)
        assert file.read_bytes() == content
    with pytest.raises(ValueError, match="is a folder; name a file"):
        replaces_calibrator(tmp_path)


def test_only_the_scores_of_an_earlier_panel_are_replaced(tmp_path: Path) -> None:
    file = tmp_path / "panel.parquet"
    assert not replaces_panel(file)
    panel_scores().to_parquet(file)
    assert replaces_panel(file)
    with pytest.raises(ValueError, match="is one of the runs to combine"):
        replaces_panel(file, [tmp_path / "other.parquet", f"{tmp_path}/./panel.parquet"])
    Scores.from_arrays([[1.0, 0.0]]).to_parquet(file)
    with pytest.raises(ValueError, match="exists and is not the scores of a panel"):
        replaces_panel(file)
    file.write_text("no Parquet")
    with pytest.raises(ValueError, match="exists and is not the scores of a panel"):
        replaces_panel(file)


def test_a_run_folder_of_a_panel_is_not_replaced(tmp_path: Path) -> None:
    keep_scores(tmp_path, panel_scores())
    with pytest.raises(ValueError, match="exists and is not the scores of a panel"):
        replaces_panel(tmp_path / "scores.parquet")

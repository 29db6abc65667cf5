"""The JSON schema of ``metrics.json`` is that of the files that are written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from rmcalib.report import evaluate
from tests.report.boards import synthetic

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from write_metrics_schema import metrics_file

SCHEMA = Path(__file__).parents[2] / "docs" / "metrics.schema.json"


def test_the_schema_is_up_to_date() -> None:
    stored = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert {
        name: value for name, value in stored.items() if name != "$schema"
    } == metrics_file().json_schema()


def test_a_written_file_follows_it(tmp_path: Path) -> None:
    text = (
        evaluate(synthetic(n=60), resamples=20).to_json(tmp_path / "metrics.json").read_text(encoding="utf-8")
    )
    checked = metrics_file().validate_json(text)
    assert checked["metrics"] == json.loads(text)["metrics"]
    content = json.loads(text) | {"unknown": 1}
    with pytest.raises(ValueError, match="unknown"):
        metrics_file().validate_python(content)

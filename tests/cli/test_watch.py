"""`rmcalib watch` on the files of verl: the commands of the documentation, and a column that is missing."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Invoke

FOLDERS = Path(__file__).parents[1] / "scores" / "frameworks"


def test_labels_of_verl_come_from_a_column_or_a_function(invoke: Invoke, tmp_path: Path) -> None:
    for folder in ("verl-legacy", "verl-validation"):
        done = invoke("watch", FOLDERS / folder, "--columns", "reward=score,label=acc", "--json")
        assert json.loads(done.out)["steps"][0]["right"] == 0.5
    (tmp_path / "check.py").write_text("def correct(row):\n    return row['gts'] in row['output']\n")
    done = invoke("watch", FOLDERS / "verl-v1", "--label-from", "check.py:correct", "--json")
    assert json.loads(done.out)["steps"][0]["n_labels"] == 6
    wrong = invoke("watch", FOLDERS / "verl-v1", "--columns", "reward=score,label=acc")
    assert wrong.code == 2
    assert all(name in wrong.err for name in ("'acc'", "label"))

"""The notebooks of examples/ run from top to bottom, offline, and find what they say."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[1] / "examples"


def last_values(name: str, folder: Path) -> list[Any]:
    """Run a notebook in a folder, and return the values of its cells that are Python literals."""
    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            try:
                found.append(ast.literal_eval(output["data"]["text/plain"]))
            except (KeyError, SyntaxError, ValueError):
                continue
    return found


def test_a_temperature_closes_the_gap_of_a_table(tmp_path: Path) -> None:
    (gaps,) = last_values("evaluate_and_repair.ipynb", tmp_path)
    assert gaps["before"] > 0.6
    assert abs(gaps["after"]) < 0.05


def test_the_most_accurate_model_is_not_accepted_blindly(tmp_path: Path) -> None:
    ((threshold, limit),) = last_values("choose_for_best_of_n.ipynb", tmp_path)
    assert threshold is None  # more than 30% of its surest choices may be wrong
    assert limit > 0.3


def test_the_alarm_of_a_folder_is_that_of_a_loop(tmp_path: Path) -> None:
    alarm, stopped = last_values("watch_training.ipynb", tmp_path)
    assert stopped == alarm["step"] < 30


def test_notebooks_are_committed_without_outputs() -> None:
    for path in EXAMPLES.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        assert not any(cell.get("outputs") for cell in notebook.cells), path.name

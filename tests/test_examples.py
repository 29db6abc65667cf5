"""The notebooks of examples/ run from top to bottom, offline, and find what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def cells(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


def names_of(name: str) -> dict[str, Any]:
    """Run the cells of a notebook, and return what they define."""
    names: dict[str, Any] = {}
    for cell in cells(EXAMPLES / name):
        exec("".join(cell["source"]), names)
    return names


def test_a_temperature_closes_the_gap_of_a_table() -> None:
    names = names_of("evaluate_and_repair.ipynb")
    assert names["gaps"]["before"] > 0.6
    assert abs(names["gaps"]["after"]) < 0.05
    assert "<" in names["report"]._repr_html_()


def test_the_most_accurate_model_is_not_accepted_blindly() -> None:
    names = names_of("choose_for_best_of_n.ipynb")
    choice = names["decisions"].choice
    assert choice.threshold is None  # more than 30% of its surest choices may be wrong
    assert choice.high > 0.3
    best = names["choice"].table
    assert best["right"].is_monotonic_increasing
    assert best["pass_at_n"].iloc[-1] == 1
    assert names["sampled"].useful_up_to < names["sampled"].over_optimised_from


def test_the_alarm_of_a_folder_is_that_of_a_loop() -> None:
    names = names_of("watch_training.ipynb")
    assert names["stopped"] == names["found"].alarm["step"] < 30


def test_a_hundred_labels_hold_the_gap() -> None:
    names = names_of("label_an_hour.ipynb")
    assert names["row"]["low"] <= names["everything"].value("overconfidence") <= names["row"]["high"]
    assert names["report"].facts["sample"]["drawn"] == "at random"
    assert names["biased"].facts["sample"]["unlike"]


def test_notebooks_are_committed_without_outputs() -> None:
    for path in EXAMPLES.glob("*.ipynb"):
        assert not any(cell["outputs"] for cell in cells(path)), path.name

"""Registered judges on the command line: scored, resumed, reported and compared as models are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, folder_of

CODE = """
from rmcalib.judges import ScoredItem

class Lengths:
    name, scale = "lab/lengths", "ratings"
    def __init__(self, revision="1"):
        self.revision = revision
    def identity(self):
        return {"revision": self.revision}
    def score(self, items):
        for item in items:
            yield [ScoredItem(item.id, tuple(float(len(text)) for text in item.responses))]

def certain(**options):
    return lambda prompt, responses: [1.0, 0.0, *[0.0 for _ in responses[2:]]]
"""


@pytest.fixture
def plugin(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path_factory.mktemp("site")
    (site / "rmcalib_lab.py").write_text(CODE)
    info = site / "rmcalib_lab-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rmcalib-lab\nVersion: 1.0\n")
    points = "[rmcalib.judges]\nlab/lengths = rmcalib_lab:Lengths\ncertain = rmcalib_lab:certain\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("plugin")
def test_a_registered_judge_is_evaluated_and_found_again(tmp_path: Path, invoke: Invoke) -> None:
    base = ("eval", "--model", "lab/lengths", "--benchmark", "demo", "--limit", "30", "--resamples", "20")
    done = invoke(*base, "--json")
    assert done.code == 0, done.err
    (evaluation,) = json.loads(done.out)["evaluations"]
    assert evaluation["model"] == "lab/lengths"
    assert "Its rewards are ratings: a softmax of them means little." in evaluation["notes"]
    folder = folder_of(tmp_path / "runs")
    assert folder.parent.name == "lab__lengths"
    assert json.loads((folder / "run.json").read_text())["scale"] == "ratings"
    assert "all responses were scored before" in invoke(*base).err
    other = invoke(*base, "--revision", "2")
    assert other.code == 2
    assert "holds another run (revision: 1 there, 2 now)" in other.err
    wrong = invoke(*base, "--dtype", "float32")
    assert wrong.code == 2
    assert "entry point 'lab/lengths'" in wrong.err
    assert "dtype" in wrong.err


@pytest.mark.usefixtures("plugin")
def test_judges_of_several_kinds_are_scored_and_compared(tmp_path: Path, invoke: Invoke) -> None:
    names = ("--model", "lab/lengths", "--model", "certain", "--model", "demo")
    done = invoke("score", *names, "--benchmark", "demo", "--limit", "30")
    assert done.code == 0, done.err
    assert len(done.out.splitlines()) == 3
    compared = invoke("compare", "runs/lab__lengths/demo", "runs/certain/demo", "--resamples", "20")
    assert compared.code == 0, compared.err
    assert "warning: lab/lengths: its rewards are ratings" in compared.err
    assert invoke("report", "runs", "--output", tmp_path / "page", "--resamples", "20").code == 0

"""The Python examples of the documentation, as a reader would run them: all of a file in one session."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

import rmcalib

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "name", ["README.md", "docs/guide.md", "docs/metrics.md", "docs/judges.md", "docs/prolr.md"]
)
def test_the_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fewer = functools.partial(rmcalib.load_benchmark, limit=40)  # of the demo's prompts: the same, sooner
    monkeypatch.setattr(rmcalib, "load_benchmark", fewer)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    session: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), session)
    if name == "README.md":
        assert (tmp_path / "report.html").stat().st_size > 10_000

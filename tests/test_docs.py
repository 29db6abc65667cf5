"""The Python examples of the documentation run; those of a page run in one session."""

from __future__ import annotations

import functools
import importlib
import re
from pathlib import Path
from typing import get_args

import pytest

import rmcalib
from rmcalib.integrations.alarms import CHANGES
from rmcalib.judges.apis import APIS
from rmcalib.metrics.views import ViewName

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        *(
            f"docs/{page}.md"
            for page in ("guide", "judges", "label", "metrics", "prolr", "repair", "report", "serve", "votes")
        ),
    ],
)
def test_the_examples_of_a_page_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fewer = functools.partial(rmcalib.load_benchmark, limit=40)  # fewer prompts of the demo, to save time
    monkeypatch.setattr(rmcalib, "load_benchmark", fewer)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    session: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), session)
    if name == "README.md":
        assert (tmp_path / "report.html").stat().st_size > 10_000


def test_the_walk_through_the_code_names_files_and_functions_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^(\d+)\. `(rmcalib/\S+)`:(.*?)(?=^\d+\. |\n\n)", text, re.M | re.S)
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1))
    assert len(steps) <= 18
    for _, file, what in steps:
        source = (ROOT / file).read_text(encoding="utf-8")
        named = re.match(r"\s*`([\w.]+)`", what)
        assert named or file.endswith(".html"), file
        if named:
            assert re.search(rf"(?:def|class) {named[1].rpartition('.')[2]}\b", source), (file, named[1])


@pytest.mark.parametrize("page", sorted((ROOT / "docs/api").glob("*.md")), ids=lambda page: page.stem)
def test_the_reference_names_packages_that_exist(page: Path) -> None:
    shown = re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.M)
    assert shown
    for name in shown:
        importlib.import_module(name)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("docs/benchmarks.md", [path.stem for path in (ROOT / "rmcalib/benchmarks/library").glob("*.yaml")]),
        ("docs/judges.md", [api.title for api in APIS if api.paths]),
        ("docs/serve.md", [path for api in APIS for path in api.served_at]),
        ("docs/training.md", [f"`{change.column}`" for change in CHANGES]),
        ("docs/metrics.md", [f"`{view}`" for view in get_args(ViewName)]),
    ],
)
def test_what_can_be_added_is_documented(page: str, names: list[str]) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert names
    assert [name for name in names if name not in text] == []

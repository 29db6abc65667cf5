"""The structure of the package: light imports, dependencies that point one way, names that users may call."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import rmcalib

HEAVY = (
    "torch",
    "transformers",
    "datasets",
    "pandas",
    "scipy.stats",
    "sklearn",
    "matplotlib",
    "seaborn",
    "ray",
)
PACKAGE = Path(rmcalib.__file__).parent
# What each package may import, besides `_util` and itself. Everything points one way.
MAY_IMPORT: dict[str, set[str]] = {
    "_util": set(),
    "demo": set(),
    "ranking": set(),
    "calibration": {"ranking"},
    "benchmarks": set(),
    "scores": {"ranking", "benchmarks"},
    "judges": {"benchmarks", "scores"},
    "runs": {"benchmarks", "scores", "judges"},
    "metrics": {"ranking", "calibration", "benchmarks", "scores"},
    "tabular": {"ranking", "calibration"},
    "repair": {"calibration", "benchmarks", "scores", "judges", "runs", "metrics"},
    "report": {"calibration", "benchmarks", "scores", "metrics", "repair"},
    "leaderboards": {"calibration", "benchmarks", "scores", "metrics", "report"},
    "integrations": {"calibration", "benchmarks", "scores", "judges", "runs", "metrics", "repair", "report"},
}
MAY_IMPORT["live"] = {"benchmarks", "scores", "judges", "runs", "metrics", "repair"}
MAY_IMPORT["cli"] = {*MAY_IMPORT}
# Results show themselves: these import the renderer when a page is asked for.
SHOWS_ITSELF = {"document", "to_html", "_repr_html_", "__repr__", "plot"}


def loaded_modules(code: str) -> list[str]:
    program = f"{code}\nimport sys\nprint([m for m in {HEAVY!r} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded: list[str] = ast.literal_eval(result.stdout.splitlines()[-1])
    return loaded


@pytest.mark.parametrize(
    "code",
    [
        "import rmcalib",
        "import rmcalib.ranking, rmcalib.calibration",
        "import sys\nfrom rmcalib.cli import main\nsys.argv = ['rmcalib', '--help']\n"
        "try:\n    main()\nexcept SystemExit as done:\n    assert not done.code",
    ],
    ids=["import", "core", "--help"],
)
def test_heavy_libraries_stay_out(code: str) -> None:
    assert loaded_modules(code) == []


def imported_packages(path: Path) -> set[str]:
    """Return the packages of rmcalib that a file imports, except where a result shows itself."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name in SHOWS_ITSELF
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= {parts[1] for name in names if (parts := name.split("."))[0] == "rmcalib" and len(parts) > 1}
    return found


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_dependencies_point_one_way(package: str) -> None:
    allowed = {package, "_util"} | MAY_IMPORT[package]
    wrong = {
        str(path.relative_to(PACKAGE)): sorted(others)
        for path in (PACKAGE / package).rglob("*.py")
        if (others := imported_packages(path) - allowed)
    }
    assert wrong == {}


def test_every_package_is_on_the_plan() -> None:
    assert {path.parent.name for path in PACKAGE.glob("*/__init__.py")} == set(MAY_IMPORT)


def test_the_core_needs_numpy_and_scipy_only() -> None:
    outside = set()
    for name in ("ranking", "calibration"):
        for path in (PACKAGE / name).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module:
                    outside.add(node.module.split(".")[0])
                elif isinstance(node, ast.Import):
                    outside |= {alias.name.split(".")[0] for alias in node.names}
    assert outside - set(sys.stdlib_module_names) == {"numpy", "scipy", "rmcalib"}


def test_what_users_call_says_what_it_does() -> None:
    for name in rmcalib.__all__:
        one = getattr(rmcalib, name)
        if not inspect.isfunction(one):
            continue
        text = inspect.getdoc(one) or ""
        assert "Parameters\n----------" in text, name
        assert ">>>" in text or "::" in text, name


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_public_names_exist(package: str) -> None:
    module = importlib.import_module(f"rmcalib.{package}")
    assert [name for name in getattr(module, "__all__", ()) if not hasattr(module, name)] == []

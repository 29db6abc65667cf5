"""The structure of the package: light imports, one-way dependencies, public interfaces."""

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    "metrics": {"calibration", "benchmarks", "scores", "judges"},
    "tabular": {"ranking", "calibration", "runs"},
    "repair": {"calibration", "benchmarks", "scores", "judges", "runs", "metrics"},
    "report": {"ranking", "calibration", "benchmarks", "scores", "judges", "runs", "metrics", "repair"},
    "publish": {"metrics", "report"},
    "integrations": {"calibration", "benchmarks", "scores", "judges", "runs", "metrics", "repair"},
    "cli": {
        *("ranking", "calibration", "benchmarks", "scores", "judges"),
        *("runs", "metrics", "tabular", "report", "repair", "publish", "integrations"),
    },
}
MOST_MODULES = 15
# Modules that are public by themselves.
PUBLIC_MODULES = {
    "rmcalib.integrations.trl",
    "rmcalib.metrics.verdicts",
    "rmcalib.ranking.events",
    "rmcalib.ranking.synthetic",
    "rmcalib.scores.rollouts",
}


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


def imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield (module, names) for every import of rmcalib in a file; names are empty for ``import x.y``."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names if alias.name.split(".")[0] == "rmcalib")
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "rmcalib":
            yield node.module, [alias.name for alias in node.names]


def product_imports() -> Iterator[tuple[Path, str, str, list[str]]]:
    """Yield (file, the package it is in, the module it imports, names) for everything inside a package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE)
        if len(where.parts) > 1:
            yield from ((where, where.parts[0], module, names) for module, names in imports(path))


def test_every_package_is_on_the_plan() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages == set(MAY_IMPORT)


def test_dependencies_point_one_way() -> None:
    wrong = [
        f"{where} imports {module}"
        for where, package, module, _ in product_imports()
        if len(module.split(".")) > 1 and module.split(".")[1] not in {package, "_util"} | MAY_IMPORT[package]
    ]
    assert wrong == []


def test_modules_inside_a_package_are_private() -> None:
    inside = {"_util", "cli", "demo"}  # their modules are public inside rmcalib: helpers, commands, data
    named = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.glob("*/*.py")
        if path.parent.name not in inside
        and not path.name.startswith("_")
        and f"rmcalib.{path.parent.name}.{path.stem}" not in PUBLIC_MODULES
    ]
    assert named == []


def test_packages_stay_small() -> None:
    crowded = {}
    for folder in {path.parent for path in PACKAGE.rglob("*.py")}:
        modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
        if len(modules) > MOST_MODULES:
            crowded[str(folder.relative_to(PACKAGE))] = len(modules)
    assert crowded == {}


# What users read in the reference. `_util` is for rmcalib alone.
DOCUMENTED = sorted(
    {"rmcalib", *PUBLIC_MODULES} | {f"rmcalib.{name}" for name in MAY_IMPORT} - {"rmcalib._util"}
)


def public_objects(module: str) -> dict[str, Any]:
    """Return what a module exports."""
    loaded = importlib.import_module(module)
    return {name: getattr(loaded, name) for name in getattr(loaded, "__all__", ())}


def missing_sections(function: Callable[..., Any]) -> list[str]:
    """Return what the docstring of a public function lacks."""
    text, signature = inspect.getdoc(function) or "", inspect.signature(function)

    def has(section: str) -> bool:
        return re.search(rf"^{section}\n-{{{len(section)}}}$", text, re.MULTILINE) is not None

    needed = {
        "a sentence": not text.strip(),
        "Parameters": bool(signature.parameters) and not has("Parameters"),
        "Returns": signature.return_annotation not in (None, "None")
        and not (has("Returns") or has("Yields")),
        "an example": not re.search(r"^ *>>> |::\n\n +\S", text, re.MULTILINE),
    }
    return [what for what, lacks in needed.items() if lacks]


# What other packages share with `runs` needs one line; what users call is also in `rmcalib`.
@pytest.mark.parametrize("module", sorted({*DOCUMENTED} - {"rmcalib.runs"}))
def test_public_functions_say_what_they_take_and_return_with_an_example(module: str) -> None:
    lacking = [
        f"{name}: {', '.join(found)}"
        for name, one in public_objects(module).items()
        if inspect.isfunction(one) and (found := missing_sections(one))
    ]
    assert not lacking, "\n".join(lacking)


@pytest.mark.parametrize("module", DOCUMENTED)
def test_public_classes_say_what_they_are(module: str) -> None:
    classes = {name: one for name, one in public_objects(module).items() if inspect.isclass(one)}
    # A dataclass without a docstring gets its signature.
    texts = {name: (one.__doc__ or "").strip() for name, one in classes.items()}
    silent = [name for name, text in texts.items() if not text or text.startswith(f"{name}(")]
    assert silent == []


def test_the_check_of_docstrings_sees_what_is_missing() -> None:
    def nothing(a: int) -> int:
        return a

    def everything(a: int) -> int:
        """Return it.

        Parameters
        ----------
        a : a number

        Returns
        -------
        int

        Examples
        --------
        >>> everything(1)
        1
        """
        return a

    assert missing_sections(nothing) == ["a sentence", "Parameters", "Returns", "an example"]
    assert missing_sections(everything) == []

"""What every user meets first: importing the package and asking for help, both instant."""

import ast
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
# Who may import whom: a room sees only the rooms listed after it.
LAYERS = ["cli", "report", "tabular", "rewards", "calibration", "ranking", "remote"]


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


def test_dependencies_point_one_way() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0]
        if room not in LAYERS:
            continue
        above = set(LAYERS[: LAYERS.index(room)])
        if room == "rewards":
            above.add("tabular")  # siblings: neither knows the other
        if room == "tabular":
            above.add("rewards")
        if room in ("calibration", "ranking"):
            above.add("remote")  # the core knows arrays only
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module]
            wrong += [
                (str(path), name)
                for name in names
                if name.split(".")[0] == "rmcalib" and name.split(".")[1:2] and name.split(".")[1] in above
            ]
    assert wrong == []

"""The lowest versions that `make test-lowest` installs are the lower bounds of pyproject.toml."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
EXTRAS = (
    "models",
    "tabular",
    "excel",
    "peft",
    "ray",
    "serve",
    "dev",
)  # without `docs` and `trl`: they are not installed there
NOT_HERE = re.compile(r"torch|mypy|ruff|types-.*|.*-stubs")  # the Makefile chooses these


def lower_bounds() -> dict[str, Version]:
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project, built_by = content["project"], content["build-system"]["requires"]
    extras = [one for extra in EXTRAS for one in project["optional-dependencies"][extra]]
    lines = [*built_by, *project["dependencies"], *extras]
    assert set(built_by) <= set(extras)  # the tests build a wheel
    wanted = [one for one in map(Requirement, lines) if one.name != "rmcalib"]
    bounds = {}
    for one in wanted:
        (bound,) = one.specifier
        assert bound.operator == ">=", one
        bounds[one.name] = Version(bound.version)
    return bounds


def lowest_versions() -> dict[str, Version]:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {name: Version(version) for name, version in pins}


def test_the_lowest_versions_are_the_lower_bounds() -> None:
    bounds = {name: version for name, version in lower_bounds().items() if not NOT_HERE.fullmatch(name)}
    assert lowest_versions() == bounds

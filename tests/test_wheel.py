"""The wheel contains everything that the demo needs, without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DATA = (
    *(".yaml", ".html", ".css", ".js", ".json", ".jsonl", ".safetensors", ".typed", ".csv", ".jinja"),
    *(".LICENSE", ".parquet"),
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel like `pip install`, with the installed build backend."""
    folder = tmp_path_factory.mktemp("wheel")
    code = f"from hatchling.build import build_wheel; build_wheel({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_contains_the_package_with_its_data_and_nothing_else(wheel: Path) -> None:
    inside = set(zipfile.ZipFile(wheel).namelist())
    data = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "rmcalib").rglob("*")
        if path.suffix in DATA or path.name == "py.typed"
    }
    assert {
        "rmcalib/py.typed",
        "rmcalib/demo/benchmark.jsonl",
        "rmcalib/demo/model/model.safetensors",
    } <= data
    assert any(name.endswith(".yaml") for name in data)
    assert data <= inside
    assert {name.split("/")[0].split("-")[0] for name in inside} == {"rmcalib"}


def test_the_demo_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").glob("python*")) / "site-packages"
    zipfile.ZipFile(wheel).extractall(packages)  # this installs a wheel of pure Python
    others = [entry for entry in sys.path if entry.endswith("site-packages")]
    # As plain folders, so that editable installations are not included.
    packages.joinpath("others.pth").write_text("\n".join(others) + "\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "HF_"))}
    env = {**kept, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    code = "import sys, rmcalib.__main__ as rm; print(rm.__file__, file=sys.stderr); rm.main()"
    done = subprocess.run(
        [python, "-c", code, "eval", "--limit", "12", "--resamples", "20"],
        cwd=tmp_path,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [str(packages / "rmcalib" / "__main__.py")]
    assert "report.html" in done.stdout
    assert (tmp_path / "runs" / "demo" / "demo" / "report.html").is_file()

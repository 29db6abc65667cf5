"""The command as a user runs it: a subprocess, its output, its files, its errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke

FAST = ["--instances", "120", "--resamples", "20"]


def rmcalib(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rmcalib", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_report_from_the_command_line(tmp_path: Path) -> None:
    result = rmcalib("synthetic", *FAST, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Not calibrated" in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    out = tmp_path / "runs" / "synthetic" / "plackett-luce"
    assert sorted(path.name for path in out.iterdir()) == [
        "metrics.csv",
        "metrics.json",
        "reliability.csv",
        "reliability.png",
        "report.html",
        "run.json",
    ]
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "http://" not in page
    assert "https://" not in page


def test_json_is_alone_on_standard_output_and_repeats(tmp_path: Path) -> None:
    arguments = ["synthetic", *FAST, "--json", "--seed", "5", "--confidence", "1"]
    first, second = (rmcalib(*arguments, "-o", name, cwd=tmp_path) for name in "ab")
    one, two = json.loads(first.stdout), json.loads(second.stdout)
    assert one.pop("page") != two.pop("page")
    assert one == two
    assert {row["notion"] for row in one["metrics"]} == {"sub-2", "sub-3", "top-1", "top-2"}
    for name in ("metrics.csv", "report.html", "reliability.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("model", ["mallows", "mixture"])
def test_all_models_work(model: str, tmp_path: Path) -> None:
    result = rmcalib("synthetic", *FAST, "--model", model, "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""


def test_two_items_have_two_notions(tmp_path: Path) -> None:
    result = rmcalib("synthetic", *FAST, "--items", "2", "--json", cwd=tmp_path)
    assert [row["notion"] for row in json.loads(result.stdout)["metrics"]] == ["sub-2", "top-1", "top-2"]


def test_config_file_gives_defaults_and_the_command_line_wins(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("instances: 60\nresamples: 20\nseed: 3\n")
    result = rmcalib("synthetic", "--config", "c.yaml", "--json", cwd=tmp_path)
    assert json.loads(result.stdout)["n"] == 60
    result = rmcalib("synthetic", "--config", "c.yaml", "--json", "-n", "70", "--fresh", cwd=tmp_path)
    assert json.loads(result.stdout)["n"] == 70


def test_results_of_other_settings_are_replaced_with_fresh_only(tmp_path: Path) -> None:
    base = ("synthetic", *FAST, "--quiet", "-o", "here")
    page = tmp_path / "here" / "report.html"
    assert rmcalib(*base, cwd=tmp_path).returncode == 0
    first = page.read_bytes()
    assert rmcalib(*base, cwd=tmp_path).returncode == 0  # the same again
    refused = rmcalib(*base, "--seed", "1", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr == (
        "rmcalib: error: here: holds results of another run (seed was 0, now 1); "
        "choose another --output or add --fresh to start over\n"
    )
    assert page.read_bytes() == first
    assert rmcalib(*base, "--seed", "1", "--fresh", cwd=tmp_path).returncode == 0
    assert page.read_bytes() != first


@pytest.mark.parametrize("manifest", [None, '{"hash": "abc"}', "[1]", "no json"])
def test_the_folder_of_another_command_is_left_alone(manifest: str | None, tmp_path: Path) -> None:
    there = tmp_path / "report.html"
    there.write_text("a page")
    if manifest is not None:
        (tmp_path / "run.json").write_text(manifest)
    refused = rmcalib("synthetic", *FAST, "-o", ".", cwd=tmp_path)
    assert refused.returncode == 2
    assert "holds results of another run;" in refused.stderr
    assert there.read_text() == "a page"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["synthetic", "--model", "bradley"], "bradley"),
        (["synthetic", "--instances", "3"], "--instances"),
        (["synthetic", "--items", "1"], "--items"),
        (["synthetic", "--confidence", "-1"], "--confidence"),
        (["synthetic", "--seed", "x"], "--seed"),
        (["synthetic", "--config", "missing.yaml"], "missing.yaml"),
        (["synthetic", "--config", "bad.yaml"], "unknown option 'instnces'"),
        (["synthetic", *FAST, "-o", "file/inside"], "file"),
        (["synthetc"], "synthetc"),
    ],
)
def test_bad_usage_is_one_clear_message_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "bad.yaml").write_text("instnces: 10\n")
    (tmp_path / "file").write_text("in the way")
    result = invoke(*arguments)
    assert result.code == 2
    assert message in " ".join(result.err.replace("│", " ").split())
    assert "Traceback" not in result.err
    assert not (tmp_path / "runs").exists()


def test_version(tmp_path: Path) -> None:
    assert rmcalib("--version", cwd=tmp_path).stdout.startswith("rmcalib 0.")

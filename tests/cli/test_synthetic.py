"""The command as a user runs it: its output, its files, its errors."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Invoke, visible
from tests.processes import run_python

FAST = ["--instances", "120", "--resamples", "20"]


def test_report_from_the_command_line(tmp_path: Path) -> None:
    result = run_python(["-m", "rmcalib", "synthetic", *FAST], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Not calibrated" in result.stdout
    assert max(map(len, result.stdout.splitlines()[:-1])) <= 80
    out = tmp_path / "runs" / "synthetic" / "plackett-luce"
    assert visible(out) == [
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


def test_json_is_alone_on_standard_output_and_repeats(tmp_path: Path, invoke: Invoke) -> None:
    arguments = ["synthetic", *FAST, "--json", "--seed", "5", "--confidence", "1"]
    first, second = (invoke(*arguments, "-o", name) for name in "ab")
    one, two = json.loads(first.out), json.loads(second.out)
    assert one.pop("page") != two.pop("page")
    assert one == two
    assert {row["notion"] for row in one["metrics"]} == {"sub-2", "sub-3", "top-1", "top-2"}
    for name in ("metrics.csv", "report.html", "reliability.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize("model", ["mallows", "mixture"])
def test_all_models_work(model: str, invoke: Invoke) -> None:
    result = invoke("synthetic", *FAST, "--model", model, "--quiet")
    assert result.code == 0, result.err
    assert result.out == ""


def test_two_items_have_two_notions(invoke: Invoke) -> None:
    result = invoke("synthetic", *FAST, "--items", "2", "--json")
    assert [row["notion"] for row in json.loads(result.out)["metrics"]] == ["sub-2", "top-1", "top-2"]


def test_config_file_gives_defaults_and_the_command_line_wins(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "c.yaml").write_text("instances: 60\nresamples: 20\nseed: 3\n")
    result = invoke("synthetic", "--config", "c.yaml", "--json")
    assert json.loads(result.out)["n"] == 60
    result = invoke("synthetic", "--config", "c.yaml", "--json", "-n", "70", "--fresh")
    assert json.loads(result.out)["n"] == 70


def test_results_of_other_settings_are_replaced_with_fresh_only(tmp_path: Path, invoke: Invoke) -> None:
    base = ("synthetic", *FAST, "--quiet", "-o", "here")
    page = tmp_path / "here" / "report.html"
    assert invoke(*base).code == 0
    first = page.read_bytes()
    assert invoke(*base).code == 0  # the same again
    refused = invoke(*base, "--seed", "1")
    assert refused.code == 2
    assert refused.err == (
        "rmcalib: error: here holds another run (seed: 0 there, 1 now): "
        "choose another --output, or --fresh to replace it\n"
    )
    assert page.read_bytes() == first
    assert invoke(*base, "--seed", "1", "--fresh").code == 0
    assert page.read_bytes() != first


@pytest.mark.parametrize("manifest", [None, '{"hash": "abc"}', "[1]", "no json"])
def test_the_folder_of_another_command_is_left_alone(
    manifest: str | None, tmp_path: Path, invoke: Invoke
) -> None:
    there = tmp_path / "report.html"
    there.write_text("a page")
    if manifest is not None:
        (tmp_path / "run.json").write_text(manifest)
    refused = invoke("synthetic", *FAST, "-o", ".")
    assert refused.code == 2
    assert "holds another run (" in refused.err
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


def test_version(invoke: Invoke) -> None:
    assert invoke("--version").out.startswith("rmcalib 0.")

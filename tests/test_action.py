"""The GitHub Action: its shell steps run here, with local files instead of GitHub's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.report.boards import synthetic

ROOT = Path(__file__).parents[1]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INPUT = re.compile(r"\$\{\{ inputs\.([\w-]+) \}\}")

# Replaces rmcalib: records its arguments, and writes a comment if a file for it is given.
RECORDER = """#!{python}
import json, pathlib, sys
pathlib.Path("arguments.json").write_text(json.dumps(sys.argv[1:]))
for argument in sys.argv:
    if argument.startswith("--markdown=") and "--no-comment" not in sys.argv:
        pathlib.Path(argument.partition("=")[2]).write_text("# the comment\\n")
sys.exit(1 if "--fail" in sys.argv else 0)
"""
REAL = "#!{python}\nfrom rmcalib.cli import main\nmain()\n"


def step(name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in ACTION["runs"]["steps"] if one["name"] == name)
    return found


def run_action(folder: Path, program: str = RECORDER, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the main step like GitHub: inputs become variables, and the summary is written to a file."""
    (folder / "bin").mkdir(exist_ok=True)
    shim = folder / "bin" / "rmcalib"
    shim.write_text(program.format(python=sys.executable))
    shim.chmod(0o755)
    values = {name: str(about["default"]) for name, about in ACTION["inputs"].items()}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    main = step("Run rmcalib")
    variables = {name: INPUT.sub(lambda m: values[m[1]], text) for name, text in main["env"].items()}
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", main["run"]],  # as GitHub starts it
        cwd=folder,
        env={
            **os.environ,
            **variables,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "GITHUB_OUTPUT": str(folder / "output.txt"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def arguments(folder: Path) -> list[str]:
    found: list[str] = json.loads((folder / "arguments.json").read_text())
    return found


def test_scripts_contain_no_expressions() -> None:
    """GitHub inserts the value of an expression into the script without quoting."""
    for one in ACTION["runs"]["steps"]:
        assert "${{" not in one["run"]
        assert one["shell"] == "bash"


def test_modules_of_the_checkout_do_not_run(tmp_path: Path) -> None:
    """A pull request can add a pip.py. The installation here stops at the missing constraints file."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    for module in ("pip", "site", "sitecustomize", "encodings"):
        (tmp_path / f"{module}.py").write_text("open('hacked', 'w')\n")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step("Install rmcalib")["run"]],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "ACTION_PATH": "nowhere"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    assert "nowhere/constraints.txt" in done.stderr  # the real pip ran
    assert not (tmp_path / "hacked").exists()


def test_the_documented_workflow_is_safe() -> None:
    """Actions by commit; no expression in a script; what reads the pull request may not write."""
    text = (ROOT / "docs" / "publish.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(text.partition("```yaml\n")[2].partition("```")[0])
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        uses = [one["uses"] for one in job["steps"] if "uses" in one]
        assert all(re.search(r"@([0-9a-f]{40}|COMMIT)$", name) for name in uses)
        assert not any("${{" in one.get("run", "") for one in job["steps"])
        reads = any(name.startswith("actions/checkout@") for name in uses)
        assert not (reads and "write" in job["permissions"].values())


def test_every_input_is_described_and_used() -> None:
    used = set(INPUT.findall((ROOT / "action.yml").read_text(encoding="utf-8"))) | {"install"}
    assert used == set(ACTION["inputs"])
    assert all(about["description"] for about in ACTION["inputs"].values())


def test_eval_gets_its_arguments(tmp_path: Path) -> None:
    done = run_action(
        tmp_path,
        model="org/rm",
        benchmark="mine.jsonl",
        fail_if="ece>0.1\n\nabs(overconfidence).low>0.05\n",
        args="--limit=20\n--resamples=50",
    )
    assert done.returncode == 0, done.stderr
    assert arguments(tmp_path) == [
        "eval",
        "--markdown=rmcalib-comment.md",
        "--fail-if=ece>0.1",
        "--fail-if=abs(overconfidence).low>0.05",
        "--limit=20",
        "--resamples=50",
        "--output=runs",
        "--model=org/rm",
        "--benchmark=mine.jsonl",
    ]
    assert (tmp_path / "summary.md").read_text() == "# the comment\n"
    assert (tmp_path / "output.txt").read_text() == "comment-file=rmcalib-comment.md\nexit-code=0\n"


@pytest.mark.parametrize(
    "evil", ["$(touch hacked)", "`touch hacked`", '"; touch hacked; "', "x' ; touch hacked #"]
)
def test_inputs_are_never_executed(tmp_path: Path, evil: str) -> None:
    every = dict.fromkeys(("model", "scores", "benchmark", "fail_if", "args", "output"), evil)
    assert run_action(tmp_path, **every).returncode == 0
    assert not (tmp_path / "hacked").exists()
    assert f"--model={evil}" in arguments(tmp_path)
    assert run_action(tmp_path, command="compare", a=evil, b="--help").returncode == 0
    assert arguments(tmp_path)[-3:] == ["--", evil, "--help"]
    assert run_action(tmp_path, command=evil).returncode == 2
    assert not (tmp_path / "hacked").exists()


def test_a_name_of_several_lines_sets_no_other_output(tmp_path: Path) -> None:
    run_action(tmp_path, comment_file="a\nexit-code=0", args="--fail")
    lines = (tmp_path / "output.txt").read_text().splitlines()
    assert lines == ["comment-file=aexit-code=0", "exit-code=1"]


def test_a_failure_without_a_result_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rmcalib-comment.md").write_text("of an earlier run")
    done = run_action(tmp_path, args="--fail\n--no-comment")
    assert done.returncode == 1
    text = (tmp_path / "rmcalib-comment.md").read_text()
    assert "ended with code 1 and no result" in text
    assert (tmp_path / "summary.md").read_text() == text


def test_a_real_evaluation_that_fails(tmp_path: Path) -> None:
    synthetic(0, n=60, skill=0.5, scale=5.0).to_parquet(tmp_path / "scores.parquet")
    done = run_action(
        tmp_path,
        REAL,
        scores="scores.parquet",
        model="org/rm",
        fail_if="overconfidence.low>0.05",
        args="--resamples=20",
    )
    assert done.returncode == 1, done.stderr
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- rmcalib -->\n**Failed:** org/rm: overconfidence.low\\>0.05 holds")
    assert "### Calibration of org/rm" in text
    assert "| overall |" in text


def test_a_real_comparison(tmp_path: Path) -> None:
    for name, scale in (("a", 1.0), ("b", 6.0)):
        synthetic(0, n=60, scale=scale).to_parquet(tmp_path / f"{name}.parquet")
    inputs = {"command": "compare", "a": "a.parquet", "b": "b.parquet", "args": "--resamples=20"}
    done = run_action(tmp_path, REAL, **inputs, fail_if="lost_information.low>0.01")
    assert done.returncode == 1, done.stderr
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "**Failed:** lost_information.low\\>0.01 holds" in text
    assert "| lost information |" in text


def test_watch_and_doctor_get_their_arguments(tmp_path: Path) -> None:
    done = run_action(
        tmp_path, command="watch", rollouts="-dir", fail_if="gap>0.1", args="--columns=label=acc"
    )
    assert done.returncode == 0, done.stderr
    expected = [
        "watch",
        "--markdown=rmcalib-comment.md",
        "--fail-if=gap>0.1",
        "--columns=label=acc",
        "--output=runs",
    ]
    assert arguments(tmp_path) == [*expected, "--", "-dir"]
    done = run_action(
        tmp_path, command="doctor", model="org/rm", endpoint="http://127.0.0.1:1", args="--fail"
    )
    assert done.returncode == 1
    assert arguments(tmp_path) == ["doctor", "--fail", "--model=org/rm", "--endpoint=http://127.0.0.1:1"]
    assert (tmp_path / "rmcalib-comment.md").read_text().startswith("<!-- rmcalib -->")


def test_a_real_watch_that_fails(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    rows = [
        {"input": f"{i // 2}", "output": "", "score": 2.0, "acc": int(i % 3 == 0), "step": 7}
        for i in range(200)
    ]
    (tmp_path / "run" / "7.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    inputs = {"command": "watch", "rollouts": "run", "args": "--columns=reward=score,label=acc"}
    unknown = run_action(tmp_path, REAL, **inputs, fail_if="gap.low>0.2")
    assert unknown.returncode == 2  # whether these rewards are log-odds is unknown, so there is no gap
    inputs["args"] += "\n--scale=log_odds"
    done = run_action(tmp_path, REAL, **inputs, fail_if="gap.low>0.2")
    assert done.returncode == 1, done.stderr
    text = (tmp_path / "summary.md").read_text(encoding="utf-8")
    assert "**Failed:** step 7: gap.low\\>0.2 holds" in text
    assert (tmp_path / "runs" / "report.html").is_file()


def test_a_real_doctor_without_a_server(tmp_path: Path) -> None:
    done = run_action(tmp_path, REAL, command="doctor", model="demo", endpoint="http://127.0.0.1:1")
    assert done.returncode == 2
    text = (tmp_path / "rmcalib-comment.md").read_text(encoding="utf-8")
    assert "ended with code 2 and no result" in text
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == text

"""`rmcalib` as two gloo processes of torchrun and of accelerate: one job, one voice, one result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import Invoke, Outcome, environment, write_scores
from tests.hooks import PATIENCE, at_start
from tests.runs.small_runs import install, same

# How accelerate starts several processes; without GPUs they find that they have CPUs.
_ACCELERATE = ("accelerate.commands.launch", "--num_processes=2", "--num_machines=1", "--multi_gpu")
LAUNCHERS = {
    "torchrun": ("torch.distributed.run", "--standalone", "--nproc-per-node=2"),
    "accelerate": (*_ACCELERATE, "--mixed_precision=no", "--dynamo_backend=no", "--main_process_port=0"),
}


# Launchers look many times a second whether a process has ended, and end the others then.
SLOW_TO_SPEAK = """
import os
if os.environ.get("RANK") == "0":
    import time
    import rmcalib.cli
    def marked(error, *, one_line=rmcalib.cli._one_line):
        time.sleep(1)
        return one_line(error)
    rmcalib.cli._one_line = marked
"""


def launch(launcher: str, cwd: Path, env: dict[str, str], *args: object) -> Outcome:
    command = [sys.executable, "-m", *LAUNCHERS[launcher], "-m", "rmcalib", *map(str, args)]
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An environment with a judge `slow`, which needs no model."""
    install(tmp_path / "site", "slow")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = environment(HF_HUB_OFFLINE="1", ACCELERATE_LOG_LEVEL="error")
    found["PYTHONPATH"] += f"{os.pathsep}{tmp_path / 'site'}"
    return found


def scores_in(output: Path) -> Scores:
    (file,) = output.glob("*/*/scores.parquet")
    return Scores.from_parquet(file)


def ours(outcome: Outcome) -> list[str]:
    """What rmcalib said on standard error; the launchers have a lot to say there themselves."""
    return [line for line in outcome.err.splitlines() if line.startswith("rmcalib:")]


def test_two_processes_share_the_work_and_speak_with_one_voice(
    bench_file: Path, tmp_path: Path, env: dict[str, str], invoke: Invoke
) -> None:
    base = ("eval", "--model", "slow", "--benchmark", bench_file, "--resamples", 20, "--output")
    done = launch("accelerate", tmp_path, env, *base, "two")
    assert done.code == 0, done.err
    assert ours(done) == []
    assert done.out.count("report.html") == 1
    one = invoke(*base, "one", "--quiet")
    assert one.code == 0, one.err
    together, alone = scores_in(tmp_path / "two"), scores_in(tmp_path / "one")
    assert same(together, alone)
    assert (together.manifest["processes"], together.manifest["work"]) == (2, {"prompts": 42, "processes": 2})
    assert alone.manifest["work"] == {"prompts": 42, "processes": 1}
    assert together.manifest["hash"] == alone.manifest["hash"]


def test_one_that_fails_ends_both_with_one_line(
    bench_file: Path, tmp_path: Path, env: dict[str, str]
) -> None:
    # The prompt at which it fails is the second process's.
    options = ("--model", "slow", "--benchmark", bench_file, "-J", "fault=too bad")
    done = launch("torchrun", tmp_path, at_start(env, SLOW_TO_SPEAK), "eval", *options)
    assert done.code == 1
    (line,) = ours(done)
    assert "too bad" in line
    assert not list(tmp_path.glob("runs/*/*/scores.parquet"))


def test_a_rank_without_a_launcher_does_not_silence_a_run(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    write_scores(tmp_path / "s.csv")
    done = invoke("eval", "--scores", "s.csv", "--resamples", 20, "--fail-if", "overconfidence>0")
    assert done.code == 1
    assert done.out

"""`rmcalib` as two gloo processes of torchrun and of accelerate: one job, one voice, one result."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import Invoke, Outcome, environment, write_rows
from tests.hooks import PATIENCE, at_start, held, wait_for
from tests.hub import tiny
from tests.metrics.worlds import calibrated_scores

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
        time.sleep(2)
        return one_line(error)
    rmcalib.cli._one_line = marked
"""


def launch(
    launcher: str, cwd: Path, *args: object, env: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    return start(cwd, *LAUNCHERS[launcher], "-m", "rmcalib", *args, env=env)


def start(cwd: Path, *module: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, module)],
        cwd=cwd,
        env=env or offline(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def offline() -> dict[str, str]:
    return environment(HF_HUB_OFFLINE="1", ACCELERATE_LOG_LEVEL="error")


def ended(process: subprocess.Popen[str]) -> Outcome:
    out, err = process.communicate(timeout=PATIENCE)
    return Outcome(process.returncode, out, err)


def scores_in(output: Path) -> Scores:
    (file,) = output.glob("*/*/scores.parquet")
    return Scores.from_parquet(file)


def ours(outcome: Outcome) -> list[str]:
    """What rmcalib said on standard error; the launchers have a lot to say there themselves."""
    return [line for line in outcome.err.splitlines() if line.startswith("rmcalib:")]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_two_processes_share_the_work_and_speak_with_one_voice(
    launcher: str, tiny_model: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    base = ("--model", tiny_model, "--benchmark", bench_file, "--limit", 12, "--output")
    verb = {"torchrun": ("eval", "--resamples", 20), "accelerate": ("score",)}[launcher]
    done = ended(launch(launcher, tmp_path, *verb, *base, "two"))
    assert done.code == 0, done.err
    assert ours(done) == []
    assert done.out.count("Report: " if launcher == "torchrun" else "responses of 12 prompts") == 1
    one = invoke("score", *base, "one")
    assert one.code == 0, one.err
    together, alone = scores_in(tmp_path / "two"), scores_in(tmp_path / "one")
    assert together.item_id.tolist() == alone.item_id.tolist()
    np.testing.assert_allclose(together.reward, alone.reward, atol=1e-4)
    assert together.manifest["processes"] == 2
    assert together.manifest["hash"] == alone.manifest["hash"]


def test_one_that_fails_ends_both_with_one_line(tmp_path: Path) -> None:
    import torch

    model = tiny.tiny_classifier()
    token = tiny.tiny_tokenizer().encode("~")[0]
    with torch.no_grad():
        model.model.embed_tokens.weight[token] = float("nan")
    tiny.save_model(tmp_path / "model", model)
    rows = tiny.benchmark_rows(8)
    rows[3]["rejected"] = ["~"]  # the second process's
    bench = write_rows(tmp_path / "bench.jsonl", rows)
    base = ("score", "--model", tmp_path / "model", "--benchmark", bench)
    env = at_start(offline(), SLOW_TO_SPEAK)
    done = ended(launch("torchrun", tmp_path, *base, env=env))
    assert done.code == 1
    (line,) = ours(done)
    assert line.startswith("rmcalib: error: item '3', response 1: the model's reward is nan")
    assert not list(tmp_path.glob("runs/*/*/scores.parquet"))
    missing = ended(
        launch("torchrun", tmp_path, "score", "--model", "org/none", "--benchmark", bench, env=env)
    )
    (line,) = ours(missing)
    assert line.startswith("rmcalib: error: org/none: not in the local cache")
    mistyped = ended(launch("torchrun", tmp_path, "score", "--modle", "org/none", env=env))
    (line,) = ours(mistyped)  # of processes that have not met yet
    assert re.match(r"rmcalib: error: No such option:? '?--modle\b", line)  # click 8.5 writes it in quotes


def test_a_killed_process_ends_the_job_which_can_be_taken_up(
    tiny_model: Path, tmp_path: Path, invoke: Invoke
) -> None:
    bench = write_rows(tmp_path / "long.jsonl", tiny.benchmark_rows(160))
    base = ("score", "--model", tiny_model, "--benchmark", bench)
    process = launch("torchrun", tmp_path, *base, env=held(offline(), "run.files.rank == 1"))
    wait_for(lambda: list(tmp_path.glob("runs/*/*/scored-1.jsonl")), lambda: process.poll() is None)
    (second,) = [
        child for child in psutil.Process(process.pid).children() if child.environ().get("RANK") == "1"
    ]
    second.kill()
    killed = ended(process)
    assert killed.code == 1
    assert "Traceback" not in "".join(ours(killed))
    assert not list(tmp_path.glob("runs/*/*/scores.parquet"))
    resumed = ended(launch("torchrun", tmp_path, *base))
    assert resumed.code == 0, resumed.err
    assert len(ours(resumed)) == 1  # how much was scored before
    assert invoke(*base, "--output", "whole").code == 0
    together, alone = scores_in(tmp_path / "runs"), scores_in(tmp_path / "whole")
    assert together.item_id.tolist() == alone.item_id.tolist()
    np.testing.assert_array_equal(together.reward, alone.reward)


SCRIPT = """
import sys
import torch.distributed
import rmcalib
model, bench = sys.argv[1:]
bench = rmcalib.load_benchmark(bench, limit=6)
first = rmcalib.score(model, bench, output="first")
torch.distributed.init_process_group("gloo")
second = rmcalib.score(model, bench, output="second")
torch.distributed.barrier()
torch.distributed.destroy_process_group()
third = rmcalib.score(model, bench, output="third")
assert first.reward.tolist() == second.reward.tolist() == third.reward.tolist()
try:
    rmcalib.score(model, bench)
except ValueError as error:
    sys.stdout.write(f"{error}\\n")
"""


def test_a_script_with_its_own_process_group_can_score(
    tiny_model: Path, bench_file: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = ended(start(tmp_path, *LAUNCHERS["torchrun"], script, tiny_model, bench_file))
    assert done.code == 0, done.err
    assert done.out.count("output: several processes need a folder that all of them can reach") == 2
    assert scores_in(tmp_path / "second").manifest["processes"] == 2


def test_accelerate_with_one_process_on_cpus_is_pointed_out(
    tiny_model: Path, bench_file: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")  # what accelerate sets, and no rank
    monkeypatch.setenv("MASTER_PORT", "29500")
    alone = invoke("score", "--model", tiny_model, "--benchmark", bench_file, "--limit", "2")
    assert alone.code == 0
    (line,) = ours(alone)
    assert "accelerate has started a single process" in line


@pytest.mark.parametrize(
    "left",
    [
        {"RANK": "1"},
        {"RANK": "1", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
        {"RANK": "1", "WORLD_SIZE": "2"},
        {"RANK": "x", "WORLD_SIZE": "abc", "LOCAL_RANK": "abc"},
    ],
)
def test_variables_without_a_launcher_do_not_silence_a_command(
    left: dict[str, str], tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in left.items():
        monkeypatch.setenv(name, value)
    calibrated_scores(30).to_parquet(tmp_path / "s.parquet")
    asked = ("eval", "--scores", "s.parquet", "--resamples", "20")
    assert invoke(*asked, "--fail-if", "ece > 0").code == 1
    assert list(tmp_path.glob("runs/*/*/metrics.json"))

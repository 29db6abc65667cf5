"""`rmcalib` as two gloo processes of torchrun and of accelerate: one job, one voice, one result."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rmcalib.scores import Scores
from tests.cli.conftest import Invoke, Outcome, environment, write_rows, write_scores
from tests.hooks import PATIENCE, at_start
from tests.hub import tiny

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


def test_two_processes_share_the_work_and_speak_with_one_voice(
    plain: Path, bench_file: Path, tmp_path: Path, invoke: Invoke
) -> None:
    what = ("--model", plain, "--benchmark", bench_file, "--limit", 12, "--resamples", 20)
    base = ("eval", *what, "--output")
    done = ended(launch("accelerate", tmp_path, *base, "two"))
    assert done.code == 0, done.err
    assert ours(done) == []
    assert done.out.count("report.html") == 1
    one = invoke(*base, "one", "--quiet")
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
    base = ("eval", "--model", tmp_path / "model", "--benchmark", bench)
    env = at_start(offline(), SLOW_TO_SPEAK)
    done = ended(launch("torchrun", tmp_path, *base, env=env))
    assert done.code == 1
    (line,) = ours(done)
    assert "prompt '3'" in line
    assert not list(tmp_path.glob("runs/*/*/scores.parquet"))


def test_a_rank_without_a_launcher_does_not_silence_a_run(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    write_scores(tmp_path / "s.csv")
    done = invoke("eval", "--scores", "s.csv", "--resamples", 20, "--fail-if", "overconfidence>0")
    assert done.code == 1
    assert done.out

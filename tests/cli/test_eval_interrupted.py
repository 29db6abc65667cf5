"""Runs that are killed, or find a full disk."""

from __future__ import annotations

import functools
import json
import signal
from pathlib import Path

import numpy as np

from rmcalib.scores import Scores
from tests.cli.conftest import FILES, Invoke, environment, write_rows, write_scores
from tests.hooks import at_start, held, wait_for
from tests.hub import tiny
from tests.processes import run_python, start_python


def _has(output: Path, n: int) -> bool:
    """Whether the journal of a run has `n` prompts."""
    return n == sum(file.read_bytes().count(b'"rewards"') for file in output.glob("*/*/scored-*.jsonl"))


def test_a_killed_run_goes_on_and_ends_with_the_same_scores(
    plain: Path, tmp_path: Path, invoke: Invoke
) -> None:
    bench = write_rows(tmp_path / "long.jsonl", tiny.benchmark_rows(40))
    base = ("eval", "--model", plain, "--benchmark", bench, "-J", "token_budget=200", "--resamples", 20)
    whole = invoke(*base, "--output", tmp_path / "whole")
    assert (whole.code, whole.err) == (0, "")
    whole_scores = Scores.from_parquet(next((tmp_path / "whole").glob("*/*/scores.parquet")))
    env = held(environment(HF_HUB_OFFLINE="1"), "parts == 1")
    process = start_python(("-m", "rmcalib", *base, "--output", tmp_path / "killed"), cwd=tmp_path, env=env)
    wait_for(functools.partial(_has, tmp_path / "killed", 32), process.is_alive)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert not list((tmp_path / "killed").glob("*/*/scores.parquet"))
    (line,) = next((tmp_path / "killed").glob("*/*/scored-0.jsonl")).read_text().splitlines()
    before = sum(len(item["rewards"]) for item in json.loads(line)["items"])
    resumed = invoke(*base, "--output", tmp_path / "killed")
    assert resumed.code == 0, resumed.err
    assert f"{before:,} of {len(whole_scores.reward):,}" in resumed.err
    second = Scores.from_parquet(next((tmp_path / "killed").glob("*/*/scores.parquet")))
    for column in ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated"):
        np.testing.assert_array_equal(getattr(whole_scores, column), getattr(second, column))


SMALL_FILES_ONLY = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
"""


def test_a_full_disk_is_one_line_and_leaves_no_halves(tmp_path: Path) -> None:
    write_scores(tmp_path / "mine.csv")
    env = at_start(environment(HF_HUB_OFFLINE="1"), SMALL_FILES_ONLY)
    words = ("-m", "rmcalib", "eval", "--scores", "mine.csv", "--resamples", 20)
    done = run_python(words, cwd=tmp_path, env=env)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr
    left = [path for path in (tmp_path / "runs").rglob("*") if path.is_file()]
    assert not [path for path in left if path.name.endswith(".tmp") or path.name in FILES[:4]]

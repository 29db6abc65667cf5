"""How long the leaderboard report takes, how large its page is, and how much memory it needs.

Writes synthetic scores of 300 models on 1,763 prompts of four responses (RewardBench 2's categories without
Ties), runs ``rmcalib report`` on them in a separate process, and prints CPU time, peak memory and the size
of the page next to their limits. The baseline is a full evaluation of each model, measured on one of them.

    python scripts/bench_report.py [--models 300] [--resamples 1000] [--keep DIR]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rmcalib.metrics import Settings
from rmcalib.metrics.catalogue import chosen_metrics
from rmcalib.metrics.table import metric_rows
from rmcalib.metrics.views import whole_part
from rmcalib.runs import run_folder
from rmcalib.runs._folder import keep_scores
from rmcalib.scores import Scores

CATEGORIES = {"Factuality": 475, "Precise IF": 160, "Math": 183, "Safety": 450, "Focus": 495}
BENCHMARK = "synthetic/rewardbench-like"
SECONDS, MEGABYTES, GIGABYTES = 90.0, 10.0, 1.0


def synthetic_scores(number: int, n_models: int) -> Scores:
    """Scores of one made-up model: later ones are more skilled, and each has a temperature of its own."""
    rng = np.random.default_rng(number)
    category = np.repeat(list(CATEGORIES), list(CATEGORIES.values()))
    n = len(category)
    skill = 0.5 + 2.0 * number / max(n_models - 1, 1)
    advantage = np.maximum(skill + np.random.default_rng(10**6).normal(size=n), 0.0)
    rewards = rng.normal(size=(n, 4))
    rewards[:, 0] += advantage
    columns = {
        "item_id": np.repeat([f"{name}-{i}" for i, name in enumerate(category)], 4),
        "category": np.repeat(category, 4),
        "response": np.tile(np.arange(4), n),
        "is_correct": np.tile([True, False, False, False], n),
        "reward": (rewards * np.exp(rng.normal(scale=0.6))).reshape(-1),
    }
    return Scores.from_columns(
        columns, {"model": f"org-{number % 9}/reward-{number}", "benchmark": BENCHMARK}
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=int, default=300)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="keep runs and report in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        home = options.keep or Path(temporary)
        for number in range(options.models):
            scores = synthetic_scores(number, options.models)
            keep_scores(run_folder(home / "runs", scores.manifest["model"], BENCHMARK), scores, fresh=True)
        start = time.process_time()
        settings = Settings(resamples=options.resamples)
        metric_rows(whole_part(scores), chosen_metrics(), settings)
        evaluation = time.process_time() - start
        command = [
            sys.executable,
            "-m",
            "rmcalib",
            "report",
            str(home / "runs"),
            "--output",
            str(home / "report"),
            "--resamples",
            str(options.resamples),
        ]
        start = time.perf_counter()
        with subprocess.Popen([*command, "--quiet"]) as process:
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        wall = time.perf_counter() - start
        if process.returncode:
            sys.exit("the report failed")
        cpu = used.ru_utime + used.ru_stime
        size = (home / "report" / "report.html").stat().st_size / 1e6
        memory = used.ru_maxrss / 1024**2
    print(f"{options.models} models, {sum(CATEGORIES.values()):,} prompts of 4 responses")
    print(f"CPU time  {cpu:6.1f} s   (limit {SECONDS:.0f} s; {wall:.1f} s on the clock)")
    print(f"memory    {memory:6.2f} GB  (limit {GIGABYTES:.0f} GB)")
    print(f"page      {size:6.2f} MB  (limit {MEGABYTES:.0f} MB)")
    each = cpu / options.models
    ratio = evaluation / each
    print(f"a model   {each:6.2f} s   (full evaluation, the baseline: {evaluation:.2f} s, {ratio:.1f}x)")
    if cpu > SECONDS or memory > GIGABYTES or size > MEGABYTES:
        sys.exit("over a limit")


if __name__ == "__main__":
    main()

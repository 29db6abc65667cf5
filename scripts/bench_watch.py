"""How much CPU `watch` takes: a backlog at once and followed, and each further step of a run that is followed.

    python scripts/bench_watch.py [--files 3000] [--samples 64] [--steps 20] [--every 1]

Writes files of verl (prompts of 4 samples, all labelled). The baseline is reading the files alone: their JSON, line by
line. Further steps are followed by the command line in a process of its own, with the page; one comes every second.
CPU times, so that a busy machine matters little.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.special import expit

import rmcalib

RATIO, SECONDS = 1.25, 0.05  # of following a backlog to reading it at once; of a further step


def write_step(folder: Path, step: int, n: int) -> None:
    """Write the samples of a step, at once."""
    rng = np.random.default_rng(step)
    reward = rng.normal(size=n)
    rows = [
        {
            "input": f"Question {step}-{i // 4}",
            "output": "word " * int(rng.integers(5, 60)),
            "gts": None,
            "score": x,
            "step": step,
            "acc": int(rng.random() < expit(x)),
        }
        for i, x in enumerate(reward.tolist())
    ]
    new = folder / f"{step}.new"
    new.write_text("".join(json.dumps(row) + "\n" for row in rows))
    new.rename(folder / f"{step}.jsonl")


def cpu_of(process: int) -> float:
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def further_steps(folder: Path, given: argparse.Namespace) -> float:
    """Follow the backlog by the command line; return the CPU seconds of each further step."""
    command = [sys.executable, "-c", "from rmcalib.cli import main; main()", "watch", str(folder), "--follow"]
    command += ["--every", str(given.every), "--margin", "0.9", "--output", str(folder / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:  # the backlog is done
            if f"step {given.files}:" in line:
                break
        time.sleep(3 * given.every)
        before = cpu_of(process.pid)
        for step in range(given.files + 1, given.files + given.steps + 1):
            write_step(folder, step, given.samples)
            time.sleep(given.every)
        for line in process.stdout:
            if f"step {given.files + given.steps}:" in line:
                break
        used = cpu_of(process.pid) - before
        process.kill()
    return used / given.steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=3000)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two steps")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for step in range(1, given.files + 1):
            write_step(folder, step, given.samples)
        began = time.process_time()
        for path in folder.iterdir():
            for line in path.read_text().splitlines():
                json.loads(line)
        alone = time.process_time() - began
        print(f"{given.files} files of {given.samples} samples: reading them alone {alone:.2f} s of CPU")
        used = {}
        for follow in (False, True):
            began = time.process_time()
            rmcalib.watch(folder, follow=follow, on_look=lambda _: True)
            used[follow] = time.process_time() - began
        once, followed = used[False], used[True]
        print(f"watch at once: {once:.2f} s, {once / alone:.1f} times reading alone")
        print(f"watch --follow: {followed:.2f} s, ratio {followed / once:.2f} to at once (at most {RATIO})")
        each = further_steps(folder, given)
        print(f"a further step with its page: {each:.3f} s of CPU (at most {SECONDS})")


if __name__ == "__main__":
    main()

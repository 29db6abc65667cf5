"""How long `rmcalib eval --scores` takes, how much memory it needs, and how both grow with the number of prompts.

Writes synthetic scores of 500, 10,000, 100,000 and 1,000,000 prompts with four responses, runs ``rmcalib eval
--scores`` on them in separate processes, page included, and prints CPU time and peak memory next to their aims. The
baseline of each is a process that only reads the file. From 100,000 prompts on, time and memory must grow no faster
than the data.

    python scripts/bench_evaluation.py [--prompts 1000000] [--resamples 1000] [--keep DIR]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

from rmcalib.scores import Scores

AIMS = {500: 2.0, 10_000: 3.0, 100_000: 8.0, 1_000_000: 60.0}  # CPU seconds by prompts
GIGABYTES = 3.0
LINEAR_FROM = 100_000  # prompts; fewer take the time of starting and of drawing figures
CATEGORIES = np.array(["Factuality", "Math", "Safety", "Focus"])
READ = "import sys, rmcalib; rmcalib.load_scores(sys.argv[1])"


def synthetic_scores(n: int) -> Scores:
    """Scores of a made-up model on n prompts with four responses, the first of which is correct."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(n, 4))
    rewards[:, 0] += 1.2
    columns = {
        "item_id": np.repeat([f"prompt-{i}" for i in range(n)], 4),
        "category": np.repeat(CATEGORIES[np.arange(n) % len(CATEGORIES)], 4),
        "response": np.tile(np.arange(4), n),
        "is_correct": np.tile([True, False, False, False], n),
        "reward": 1.7 * rewards.reshape(-1),
    }
    return Scores.from_columns(columns, {"model": "org/made-up", "benchmark": "synthetic/large"})


def used_by(arguments: list[str]) -> tuple[float, float]:
    """Run Python with these arguments; return CPU seconds and peak memory in GB."""
    # In a process between: the peak memory of children is that of the largest one so far.
    command = [sys.executable, *arguments]
    code = f"import resource, subprocess; subprocess.run({command!r}, check=True, stdout=subprocess.DEVNULL); u = "
    code += (
        "resource.getrusage(resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024**2)"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
    )
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def measure(n: int, resamples: int, home: Path) -> tuple[float, float]:
    """Evaluate n prompts and print what it took; return CPU seconds and peak memory in GB."""
    folder = home / f"prompts-{n}"
    folder.mkdir(parents=True, exist_ok=True)
    scores = folder / "scores.parquet"
    synthetic_scores(n).to_parquet(scores)
    options = ["--output", str(folder / "runs"), "--resamples", str(resamples), "--quiet", "--fresh"]
    read = used_by(["-c", READ, str(scores)])[0]
    seconds, memory = used_by(["-m", "rmcalib", "eval", "--scores", str(scores), *options])
    aim = f"{AIMS[n]:.0f} s" if n in AIMS else ""
    print(f"{n:>10,}{seconds:>10.1f}{aim:>8}{read:>16.1f}{seconds / read:>8.1f}x{memory:>12.2f}", flush=True)
    return seconds, memory


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--prompts", type=int, default=max(AIMS), help="the largest number of prompts")
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="keep scores and runs in this folder")
    options = parser.parse_args()
    sizes = sorted({*(n for n in AIMS if n < options.prompts), options.prompts})
    print(f"{'prompts':>10}{'CPU s':>10}{'aim':>8}{'reading alone':>16}{'ratio':>9}{'memory, GB':>12}")
    with tempfile.TemporaryDirectory() as temporary:
        found = {n: measure(n, options.resamples, options.keep or Path(temporary)) for n in sizes}
    starts = {"import rmcalib": ["-c", "import rmcalib"], "rmcalib --help": ["-m", "rmcalib", "--help"]}
    python = used_by(["-c", ""])[0]
    for name, arguments in starts.items():
        print(f"{name}: {used_by(arguments)[0]:.2f} s of CPU (Python alone: {python:.2f} s)")
    large = [n for n in sizes if n >= LINEAR_FROM]
    pairs = pairwise(large)
    if any(found[b][0] > 1.2 * b / a * found[a][0] for a, b in pairs) or found[sizes[-1]][1] > GIGABYTES:
        sys.exit("over a limit")


if __name__ == "__main__":
    main()

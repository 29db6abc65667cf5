"""How long `rmcalib eval --scores` takes for a large benchmark, and how much memory it needs.

Writes synthetic scores of 1,000,000 prompts with four responses, runs ``rmcalib eval --scores`` on them in a
separate process, and prints CPU time and peak memory next to its limit. The baseline is a fifth of the
prompts, measured the same way: a ratio of 5 or less means that neither grows faster than the data.

    python scripts/bench_evaluation.py [--prompts 1000000] [--resamples 1000] [--keep DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rmcalib.scores import Scores

LARGER = 5  # how many times larger than the baseline
GIGABYTES = 3.0
CATEGORIES = np.array(["Factuality", "Math", "Safety", "Focus"])


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


def measure(n: int, resamples: int, home: Path) -> tuple[float, float]:
    """Evaluate n prompts; return CPU seconds and peak memory in GB."""
    folder = home / f"prompts-{n}"
    folder.mkdir(parents=True, exist_ok=True)
    scores = folder / "scores.parquet"
    synthetic_scores(n).to_parquet(scores)
    options = ["--output", str(folder / "runs"), "--resamples", str(resamples), "--quiet", "--fresh"]
    # In a process between: the peak memory of children is that of the largest one so far.
    command = [sys.executable, "-m", "rmcalib", "eval", "--scores", str(scores), *options]
    code = f"import resource, subprocess; subprocess.run({command!r}, check=True); u = resource."
    code += "getrusage(resource.RUSAGE_CHILDREN); print(u.ru_utime + u.ru_stime, u.ru_maxrss / 1024**2)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--prompts", type=int, default=1_000_000)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--keep", type=Path, help="keep scores and runs in this folder")
    options = parser.parse_args()
    few = options.prompts // LARGER
    with tempfile.TemporaryDirectory() as temporary:
        home = options.keep or Path(temporary)
        base, base_memory = measure(few, options.resamples, home)
        seconds, memory = measure(options.prompts, options.resamples, home)
    print(f"{options.prompts:,} prompts of 4 responses; baseline: {few:,} prompts")
    print(f"CPU time  {seconds:7.1f} s   (baseline {base:.1f} s, {seconds / base:.1f}x)")
    print(
        f"memory    {memory:7.2f} GB  (limit {GIGABYTES:.0f} GB; "
        f"baseline {base_memory:.2f} GB, {memory / base_memory:.1f}x)"
    )
    if memory > GIGABYTES or seconds > 1.2 * LARGER * base:
        sys.exit("over a limit")


if __name__ == "__main__":
    main()

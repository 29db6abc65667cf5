"""Add the public scores of real reward models on RewardMATH to the package.

The scores are in the folder results/RewardMATH of github.com/kimsh0507/RewardMATH_official (MIT License), one
JSON file per judge; the first of the ten solutions of each problem is the correct one. Give the files of the
reward models, or one Parquet table of all judges with columns model, kind, problem, response and score.

    python scripts/embed_board.py FILE...     # writes rmcalib/demo/rewardmath.npz
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np

from rmcalib._util.files import write_bytes
from rmcalib.scores import load_all_scores

OUTPUT = Path(__file__).parents[1] / "rmcalib/demo/rewardmath.npz"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("file", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    found = {name: one for file in options.file for name, one in load_all_scores(file).items()}
    # Ratings, step scores and verdicts say what they are.
    rewards = {
        name: one.reward.reshape(one.n_items, -1)
        for name, one in found.items()
        if "score_kind" not in one.manifest
    }
    names = sorted(rewards)
    buffer = io.BytesIO()
    arrays = {"models": np.array(names), "rewards": np.stack([rewards[name] for name in names])}
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(options.output, buffer.getvalue())
    print(f"{options.output}: {len(names)} models, {len(buffer.getvalue()):,} bytes")


if __name__ == "__main__":
    main()

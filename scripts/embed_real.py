"""Make the files of real models, judges and votes in rmcalib/demo from their sources.

    python scripts/embed_real.py [--rewardmath FILE...] [--rewardbench2 FOLDER] [--pandalm FOLDER] [--output DIR]

RewardMATH: the JSON files of the reward models, or one Parquet table of all judges with columns model, kind,
problem, response and score. RewardBench 2: a folder with `real_scores.parquet` (model, id, subset,
num_correct, response, reward) and `real_letters.parquet` (judge, correct_at, id, subset, letter). PandaLM: a
folder with `votes.parquet`. rmcalib/demo/README.md says where they come from.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import pandas as pd

from rmcalib._util.files import write_bytes
from rmcalib.scores import load_all_scores

DEMO = Path(__file__).parents[1] / "rmcalib" / "demo"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rewardmath", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--rewardbench2", type=Path, metavar="FOLDER")
    parser.add_argument("--pandalm", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=DEMO)
    options = parser.parse_args()
    if options.rewardmath:
        write(options.output / "rewardmath.npz", rewardmath(options.rewardmath))
    if options.rewardbench2:
        scores = pd.read_parquet(options.rewardbench2 / "real_scores.parquet")
        write(options.output / "rewardbench2.parquet", as_parquet(rewardbench2(scores)))
        letters = pd.read_parquet(options.rewardbench2 / "real_letters.parquet")
        texts = dict.fromkeys(("judge", "correct_at", "subset", "letter"), "category")
        kept = letters[["judge", "correct_at", "subset", "id", "letter"]].astype(texts)
        write(options.output / "letters.parquet", as_parquet(kept))
    if options.pandalm:
        votes = pd.read_parquet(options.pandalm / "votes.parquet")
        write(options.output / "pandalm.parquet", as_parquet(votes))


def rewardmath(files: list[Path]) -> bytes:
    """Return the rewards of all reward models (models, problems, solutions) as a NumPy archive."""
    found = {name: one for file in files for name, one in load_all_scores(file).items()}
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
    return buffer.getvalue()


def rewardbench2(scores: pd.DataFrame) -> pd.DataFrame:
    """Return one row per response, and one column of rewards per model."""
    keys = ["subset", "id", "num_correct", "response"]
    wide = scores.pivot_table(index=keys, columns="model", values="reward", sort=False).reset_index()
    wide.columns.name = None
    models = [name for name in wide.columns if name not in keys]
    if not (wide[models].astype("float32").astype("float64") == wide[models]).all(axis=None):
        raise SystemExit("the rewards do not fit into float32")
    types = {"num_correct": "int8", "response": "int8", "subset": "category"}
    return wide.astype(types | dict.fromkeys(models, "float32"))


def as_parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def write(path: Path, content: bytes) -> None:
    write_bytes(path, content)
    print(f"{path}: {len(content):,} bytes")


if __name__ == "__main__":
    main()

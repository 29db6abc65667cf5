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
from rmcalib.benchmarks._entries import known_entry
from rmcalib.benchmarks._items import distinct_ids
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
        write(options.output / "rewardmath.parquet", as_parquet(rewardmath(options.rewardmath)))
    if options.rewardbench2:
        scores = pd.read_parquet(options.rewardbench2 / "real_scores.parquet")
        write(options.output / "reward-bench-2.parquet", as_parquet(rewardbench2(scores)))
        letters = pd.read_parquet(options.rewardbench2 / "real_letters.parquet")
        texts = dict.fromkeys(("judge", "correct_at", "subset", "letter"), "category")
        kept = letters[["judge", "correct_at", "subset", "id", "letter"]].astype(texts)
        write(options.output / "letters.parquet", as_parquet(kept))
    if options.pandalm:
        votes = pd.read_parquet(options.pandalm / "votes.parquet")
        write(options.output / "pandalm.parquet", as_parquet(pandalm(votes)))


def rewardmath(files: list[Path]) -> pd.DataFrame:
    """Return one row per solution, and one column of rewards per model."""
    found = {name: one for file in files for name, one in load_all_scores(file).items()}
    # Ratings, step scores and verdicts say what they are.
    rewards = {name: one for name, one in sorted(found.items()) if "score_kind" not in one.manifest}
    first = next(iter(rewards.values()))
    shared = {"item_id": first.item_id, "category": first.category, "response": first.response}
    table = pd.DataFrame(
        {**shared, "label": first.label} | {name: one.reward for name, one in rewards.items()}
    )
    return table.astype({"response": "int8", "label": "int8", "category": "category"})


def rewardbench2(scores: pd.DataFrame) -> pd.DataFrame:
    """Return one row per response, and one column of rewards per model."""
    keys = ["subset", "id", "num_correct", "response"]
    wide = scores.pivot_table(index=keys, columns="model", values="reward", sort=False).reset_index()
    wide.columns.name = None
    models = [name for name in wide.columns if name not in keys]
    if not (wide[models].astype("float32").astype("float64") == wide[models]).all(axis=None):
        raise SystemExit("the rewards do not fit into float32")
    keep = known_entry("reward-bench-2").no_single_answer
    ids, subset = wide["id"].astype(str).tolist(), wide["subset"].astype(str).tolist()
    wide.insert(0, "item_id", distinct_ids(ids, subset, keep=keep))
    wide.insert(3, "label", (wide["response"] < wide["num_correct"]).astype("int8"))
    wide = wide.drop(columns=["id", "num_correct"]).rename(columns={"subset": "category"})
    return wide.astype({"response": "int8", "category": "category"} | dict.fromkeys(models, "float32"))


def pandalm(votes: pd.DataFrame) -> pd.DataFrame:
    """Return two rows per pair: people's votes, and P(this response is better) by each judge's verdict.

    People and judges say 1 or 2 for a response and 0 for a tie; other verdicts could not be read.
    """
    people = votes[["annotator1", "annotator2", "annotator3"]].to_numpy()
    both = np.stack([(people == i).sum(axis=1) for i in (1, 2)], axis=1)
    columns = {
        "item_id": np.repeat(votes["id"].astype(str).to_numpy(), 2),
        "category": np.repeat(votes["application"].to_numpy(), 2),
        "response": np.tile([0, 1], len(votes)),
        "label": (both > both[:, ::-1]).astype("int8").ravel(),
        "votes": both.ravel(),
        "ties": np.repeat((people == 0).sum(axis=1), 2),
        "characters": votes[["characters_1", "characters_2"]].to_numpy().ravel(),
    }
    for name, model in (("gpt_35_turbo", "gpt-3.5-turbo"), ("pandalm_7b", "WeOpenML/PandaLM-7B-v1")):
        first = votes[name].astype(str).map({"1": 1.0, "2": 0.0}).fillna(0.5).to_numpy()
        columns[model] = np.stack([first, 1 - first], axis=1).ravel()
    return pd.DataFrame(columns).astype({"category": "category"})


def as_parquet(table: pd.DataFrame) -> bytes:
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False, compression="zstd")
    return buffer.getvalue()


def write(path: Path, content: bytes) -> None:
    write_bytes(path, content)
    print(f"{path}: {len(content):,} bytes")


if __name__ == "__main__":
    main()

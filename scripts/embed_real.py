"""Make the embedded Parquet files of real models, judges and votes from their sources.

Usage: `python scripts/embed_real.py REWARDBENCH2_FOLDER PANDALM_FOLDER`. The first has `real_scores.parquet`
(model, id, subset, num_correct, response, reward) and `real_letters.parquet` (judge, correct_at, id, subset,
letter), the second `votes.parquet`; see rmcalib/demo/README.md for where they come from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

DEMO = Path(__file__).parents[1] / "rmcalib" / "demo"


def main() -> None:
    """Write rewardbench2.parquet, letters.parquet and pandalm.parquet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rewardbench2", type=Path)
    parser.add_argument("pandalm", type=Path)
    folders = parser.parse_args()
    scores = pd.read_parquet(folders.rewardbench2 / "real_scores.parquet")
    keys = ["subset", "id", "num_correct", "response"]
    wide = scores.pivot_table(index=keys, columns="model", values="reward", sort=False).reset_index()
    models = [name for name in wide.columns if name not in keys]
    if not (wide[models].astype("float32").astype("float64") == wide[models]).all(axis=None):
        raise SystemExit("the rewards do not fit into float32")
    types = {"num_correct": "int8", "response": "int8", "subset": "category"}
    _write(wide.astype(types | dict.fromkeys(models, "float32")), "rewardbench2")
    letters = pd.read_parquet(folders.rewardbench2 / "real_letters.parquet")
    kept = letters[["judge", "correct_at", "subset", "id", "letter"]]
    _write(kept.astype(dict.fromkeys(("judge", "correct_at", "subset", "letter"), "category")), "letters")
    _write(pd.read_parquet(folders.pandalm / "votes.parquet"), "pandalm")


def _write(table: pd.DataFrame, name: str) -> None:
    table.columns.name = None
    table.to_parquet(DEMO / f"{name}.parquet", index=False, compression="zstd")


if __name__ == "__main__":
    main()

"""Read the public scores of RewardMATH, and embed those of the reward models in the package.

The scores are in the folder results/RewardMATH of github.com/kimsh0507/RewardMATH_official (MIT License): one
JSON file per judge, a list of problems with `score`: ten numbers, or ten lists with a number per step. The
first of the ten solutions is the correct one. A folder may also hold the same numbers as one file
`scores.parquet` with columns model, kind, problem, response and score (a list).

    python scripts/rewardmath_files.py DIR     # writes rmcalib/demo/rewardmath.npz
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib._util.files import write_bytes

OUTPUT = Path(__file__).parents[1] / "rmcalib/demo/rewardmath.npz"
PROBLEMS, RESPONSES = 483, 10


@dataclass(frozen=True)
class JudgeScores:
    """The scores of one judge: one list of numbers per response, problem after problem.

    `kind` is "classifier" or "rating" (one number each), or "prm" (a number per step).
    """

    model: str
    kind: str
    steps: list[list[float]]

    def array(self) -> FloatArray:
        """Return the scores of a judge with one number per response: (problems, 10)."""
        return np.array([values[0] for values in self.steps]).reshape(-1, RESPONSES)


def read_judges(folder: Path) -> list[JudgeScores]:
    """Read all judges of a folder."""
    table = folder / "scores.parquet"
    if table.is_file():
        return _from_parquet(table)
    files = sorted(folder.glob("*.json"))
    judges = [judge for path in files if (judge := _from_json(path)) is not None]
    if not judges:
        raise SystemExit(f"{folder}: no scores in it (*.json of results/RewardMATH, or scores.parquet)")
    return judges


def _from_parquet(path: Path) -> list[JudgeScores]:
    import pandas as pd

    rows = pd.read_parquet(path).sort_values(["problem", "response"], kind="stable")
    return [
        JudgeScores(str(model), str(kind), [[float(value) for value in values] for values in own.score])
        for (kind, model), own in rows.groupby(["kind", "model"], sort=True)
    ]


def _from_json(path: Path) -> JudgeScores | None:
    """Read one file; None if it holds verdicts about pairs instead of scores."""
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))[:PROBLEMS]
    if not rows or not isinstance(rows[0].get("score"), list) or len(rows[0]["score"]) != RESPONSES:
        return None
    scores = [value for row in rows for value in row["score"]]
    if isinstance(scores[0], list):
        return JudgeScores(path.stem, "prm", [[float(step) for step in value] for value in scores])
    numbers = [float("nan") if value is None else float(value) for value in scores]
    kind = "rating" if all(number != number or number == int(number) for number in numbers) else "classifier"
    return JudgeScores(path.stem, kind, [[number] for number in numbers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with the public score files")
    judges = [judge for judge in read_judges(parser.parse_args().folder) if judge.kind == "classifier"]
    rewards = np.stack([judge.array() for judge in judges])
    if rewards.shape[1:] != (PROBLEMS, RESPONSES):
        raise SystemExit(f"expected {PROBLEMS} problems with {RESPONSES} solutions, got {rewards.shape[1:]}")
    write_bytes(OUTPUT, _compressed(models=np.array([judge.model for judge in judges]), rewards=rewards))
    print(f"{OUTPUT}: {len(judges)} models, {OUTPUT.stat().st_size:,} bytes")


def _compressed(**arrays: Any) -> bytes:
    import io

    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


if __name__ == "__main__":
    main()

"""What a user can read off, computed through public functions. `python -m tests.golden.frozen` freezes it.

The frozen values guard changes of the engine. Values must agree to rounding. Limits and p-values that are
simulated depend on the random stream, so they may differ by the noise of the simulation.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

import rmcalib
from rmcalib.calibration import full_rank, rankwise, sub_k, top_k
from rmcalib.ranking import ExplicitRankings
from rmcalib.tabular import Plan, run_prolr
from tests import golden

FILE = golden.FOLDER / "frozen.json.gz"
REWARDBENCH2 = (
    "Skywork/Skywork-Reward-V2-Llama-3.1-8B",
    "Skywork/Skywork-Reward-V2-Qwen3-8B",
    "LxzGordon/URM-LLaMa-3.1-8B",
)
Rows = list[dict[str, Any]]


def real_rewardbench2() -> dict[str, rmcalib.Scores]:
    """Return the scores of three public reward models on RewardBench 2."""
    table = pd.read_parquet(golden.FOLDER / "rewardbench2.parquet")
    found = {}
    for model, rows in table.groupby("model", sort=True):
        columns = {
            "item_id": (rows["subset"] + "/" + rows["id"].astype(str)).to_list(),
            "category": rows["subset"].to_list(),
            "response": rows["response"].to_list(),
            "is_correct": rows["is_correct"].to_list(),
            "reward": rows["reward"].to_list(),
        }
        about = {"model": model, "benchmark": "reward-bench-2"}
        found[str(model)] = rmcalib.Scores.from_columns(columns, about)
    return found


def demo_scores() -> rmcalib.Scores:
    """Return the scores of the built-in model on the built-in benchmark."""
    return rmcalib.load_scores(golden.FOLDER / "demo_scores.parquet")


def _rows(table: pd.DataFrame) -> Rows:
    rows: Rows = json.loads(table.to_json(orient="records", double_precision=15))
    return rows


def _evaluated(scores: rmcalib.Scores) -> Rows:
    return _rows(rmcalib.evaluate(scores).table[["category", "metric", "value", "low", "high", "n"]])


def _evaluate_board(name: str) -> Rows:
    return _evaluated(rmcalib.load_board()[name])


def _evaluate_rewardbench2(name: str) -> Rows:
    return _evaluated(real_rewardbench2()[name])


def _notions() -> Rows:
    rows: Rows = []
    for name in ("iris", "authorship"):
        data = golden.predictions(name)
        orders = np.argsort(data["y_true_ranks"], axis=1)
        for model in sorted(key for key in data if key.startswith("probs_")):
            dist = ExplicitRankings(data["orders"] - 1, data[model])
            m = orders.shape[1]
            values = {f"sub {k}": sub_k(dist, orders, k).value for k in range(2, m + 1)}
            values |= {f"top {k}": top_k(dist, orders, k).value for k in range(1, m)}
            values |= {"rankwise": rankwise(dist, orders).value, "full": full_rank(dist, orders).value}
            rows += [{"data": name, "model": model, "notion": what, "value": v} for what, v in values.items()]
            null = sub_k(dist, orders, 2).null(resamples=200, rng=0)
            limits = sub_k(dist, orders, 2).interval(resamples=200, rng=0)
            rows.append(
                {
                    "data": name,
                    "model": model,
                    "notion": "sub null",
                    "k": 2,
                    "value": limits.value,
                    "p_value": null.p_value,
                    "low": limits.low,
                    "high": limits.high,
                }
            )
    return rows


def _calibrated(scores: rmcalib.Scores) -> Rows:
    found = rmcalib.calibrate(scores).calibrator
    return [{"temperature": found.temperature, "low": found.low, "high": found.high}]


SOURCES: dict[str, Callable[[], Rows]] = {
    "evaluate demo": lambda: _evaluated(demo_scores()),
    **{f"evaluate {name}": partial(_evaluate_board, name) for name in rmcalib.load_board()},
    **{f"evaluate {name}": partial(_evaluate_rewardbench2, name) for name in REWARDBENCH2},
    "leaderboard rewardmath": lambda: _rows(rmcalib.leaderboard(rmcalib.load_board()).table),
    "leaderboard rewardbench2": lambda: _rows(rmcalib.leaderboard(real_rewardbench2()).table),
    "compare internlm": lambda: _rows(
        rmcalib.compare(
            rmcalib.load_board()["internlm/internlm2-7b-reward"],
            rmcalib.load_board()["internlm/internlm2-20b-reward"],
        ).table
    ),
    "calibrate demo": lambda: _calibrated(demo_scores()),
    "calibrate internlm": lambda: _calibrated(rmcalib.load_board()["internlm/internlm2-7b-reward"]),
    "notions": _notions,
    "prolr iris": lambda: _rows(run_prolr("iris", Plan(folds=2)).table),
}


def frozen() -> dict[str, Rows]:
    """Return the frozen rows by source."""
    rows: dict[str, Rows] = json.loads(gzip.decompress(FILE.read_bytes()))
    return rows


def differences(name: str, now: Rows) -> list[str]:
    """Return what differs from the frozen rows of a source: one line per row and field."""
    before = {_key(row): row for row in frozen()[name]}
    after = {_key(row): row for row in now}
    lines = [f"{name}: {key}: gone" for key in before if key not in after]
    lines += [f"{name}: {key}: new" for key in after if key not in before]
    for key in before.keys() & after.keys():
        for field, old in before[key].items():
            new = after[key].get(field)
            if isinstance(old, float | int) and not _agree(old, new, simulated=_simulated(key, field)):
                lines.append(f"{name}: {key}: {field}: {old!r} -> {new!r}")
    return sorted(lines)


_KEYS = ("data", "dataset", "model", "learner", "fold", "family", "notion", "k", "protocol", "discrepancy",
         "truth", "category", "metric")  # fmt: skip


def _key(row: dict[str, Any]) -> str:
    return " ".join(str(row[name]) for name in _KEYS if row.get(name) is not None)


def _simulated(key: str, field: str) -> bool:
    """Whether a number comes from random draws: limits and nulls of binned errors, and notions."""
    drawn = any(field.endswith(part) for part in ("low", "high", "p_value", "null_mean")) or "null" in key
    return drawn and any(
        part in f"{key} {field}" for part in ("ece", "sub", "top", "rankwise", "correlation")
    )


def _agree(old: float, new: Any, *, simulated: bool) -> bool:
    if not isinstance(new, float | int):
        return False
    # Processors differ in the last bits of what a library fits: up to 2e-7 of an experiment's result.
    return bool(np.isclose(old, new, rtol=0.15, atol=0.02) if simulated else np.isclose(old, new, rtol=1e-6))


if __name__ == "__main__":
    content = {name: make() for name, make in SOURCES.items()}
    if "--diff" in sys.argv:
        print("\n".join(line for name, rows in content.items() for line in differences(name, rows)))
    else:
        FILE.write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))

"""Small files in RewardMATH's two layouts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROBLEMS = ["1 + 1?", "2 + 2?"]
AUTHORS = ["human_to_GPT-4", "org/a", "org/b"]
SCORES: dict[str, list[list[Any]]] = {
    "classifier": [[1.5, -2.25, 0.5], [0.25, 3.5, -1.0]],
    "rating": [[9, 4, 4], [7, 8, 1]],
    "prm": [[[0.9, 0.8], [0.9, 0.1, 0.2], [0.5]], [[0.7, 0.6], [0.2], [0.3, 0.4]]],
}
PAIRWISE: list[dict[str, Any]] = [
    {
        "problem": PROBLEMS[0],
        "solution_reference": AUTHORS[1:],
        "score": ["A", "A"],
        "chosen_position": ["A", "B"],
    },
    {
        "problem": PROBLEMS[1],
        "solution_reference": AUTHORS[1:],
        "score": [None, "B"],
        "chosen_position": ["A", "B"],
    },
]


def write_own(folder: Path) -> None:
    """Write one JSON file per model, as the authors publish them."""
    for name, scores in SCORES.items():
        content = [
            {"problem": problem, "solution_reference": AUTHORS, "score": own}
            for problem, own in zip(PROBLEMS, scores, strict=True)
        ]
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "pairwise.json").write_text(json.dumps(PAIRWISE))


def write_tidy(
    folder: Path, scores: dict[str, list[list[Any]]] | None = None, numbers: Sequence[int] = (0, 1, 2)
) -> None:
    """Write `scores.parquet` and `pairwise.parquet`, each with all models."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [
        {"model": model, "problem": i, "response": numbers[j], "score": _listed(value)}
        for model, problems in (scores or SCORES).items()
        for i, own in enumerate(problems)
        for j, value in enumerate(own)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "scores.parquet")
    verdicts = [
        {"model": "pairwise", "problem": i, "rejected": j + 1, "verdict": verdict, "chosen_position": place}
        for i, own in enumerate(PAIRWISE)
        for j, (verdict, place) in enumerate(zip(own["score"], own["chosen_position"], strict=True))
    ]
    pq.write_table(pa.Table.from_pylist(verdicts), folder / "pairwise.parquet")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [None if value is None else float(value)]

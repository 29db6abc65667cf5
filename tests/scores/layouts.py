"""The same scores in every layout that `load_scores` opens: functions from records of prompts to a source.

A record has an id, rewards, and one label per response. Exactly one response of each prompt is the best.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

Record = tuple[str, list[float], list[int]]
Source = tuple[Any, str | None]
"""What is given to `load_scores`: the source, and columns."""


RECORDS: list[Record] = [
    ("p7", [1.5, -0.5], [0, 1]),
    ("p9", [0.25, 3.0, -2.25], [0, 0, 1]),
    ("p8", [0.5, 0.75], [1, 0]),
]


def rows(records: Iterable[Record]) -> list[dict[str, Any]]:
    """One row per response."""
    return [
        {"prompt_id": name, "response_id": number, "score": reward, "is_best": bool(label)}
        for name, rewards, labels in records
        for number, (reward, label) in enumerate(zip(rewards, labels, strict=True))
    ]


def lists(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [{"prompt_id": name, "scores": rewards, "is_best": labels} for name, rewards, labels in records]


def written(name: str) -> Callable[[list[Record], Path], Source]:
    def write(records: list[Record], folder: Path) -> Source:
        path, table = folder / name, pd.DataFrame(rows(records))
        match path.suffix:
            case ".csv" | ".tsv":
                table.to_csv(path, index=False, sep="," if path.suffix == ".csv" else "\t")
            case ".parquet":
                table.to_parquet(path)
            case ".xlsx":
                table.to_excel(path, index=False)
            case ".jsonl":
                path.write_text("".join(json.dumps(row) + "\n" for row in rows(records)))
            case ".json":
                path.write_text(json.dumps(rows(records)))
        return path, None

    return write


def nested(records: list[Record], _: Path) -> Source:
    return [
        {
            "prompt_id": name,
            "candidates": [
                {"score": reward, "is_best": label} for reward, label in zip(rewards, labels, strict=True)
            ],
        }
        for name, rewards, labels in records
    ], None


def nested_file(records: list[Record], folder: Path) -> Source:
    content, _ = nested(records, folder)
    (folder / "nested.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder / "nested.jsonl", None


def ragged(records: list[Record], _: Path) -> Source:
    return lists(records), None


def ragged_with_the_best_one(records: list[Record], _: Path) -> Source:
    return [
        {"prompt_id": name, "scores": rewards, "best": labels.index(1)} for name, rewards, labels in records
    ], None


def ragged_with_ids(records: list[Record], _: Path) -> Source:
    return [
        {
            "prompt_id": name,
            "scores": rewards,
            "response_id": [f"r{number}" for number in range(len(rewards))],
            "winner": f"r{labels.index(1)}",
        }
        for name, rewards, labels in records
    ], None


def arrow(records: list[Record], _: Path) -> Source:
    return pa.Table.from_pylist(lists(records)), None


def data_set(records: list[Record], _: Path) -> Source:
    import datasets

    return datasets.Dataset.from_list(lists(records)), None


def some_rows_of_a_data_set(records: list[Record], _: Path) -> Source:
    import datasets

    both = datasets.Dataset.from_list([*reversed(lists(records)), *lists(records)])
    return both.select(range(len(records), 2 * len(records))), None


def saved(records: list[Record], folder: Path) -> Source:
    import datasets

    datasets.Dataset.from_list(lists(records)).save_to_disk(folder / "saved", num_shards=1)
    return folder / "saved", None


def saved_with_one_split(records: list[Record], folder: Path) -> Source:
    import datasets

    data = datasets.Dataset.from_list(rows(records))
    datasets.DatasetDict({"test": data}).save_to_disk(folder / "saved")
    return str(folder / "saved"), None


def named_index(records: list[Record], _: Path) -> Source:
    return pd.DataFrame(rows(records)).set_index("prompt_id"), None


def index_of_two_levels(records: list[Record], _: Path) -> Source:
    return pd.DataFrame(rows(records)).set_index(["prompt_id", "response_id"]), None


class Streamed:
    """A frame of another library, such as polars: it has columns, and gives itself as Arrow."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.columns = table.column_names

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        return self.table.__arrow_c_stream__(schema)


def streamed(records: list[Record], _: Path) -> Source:
    return Streamed(pa.Table.from_pylist(rows(records))), None


def chosen_and_rejected(records: list[Record], _: Path) -> Source:
    """The best response comes first: the order of responses is another one."""
    return [
        {
            "prompt_id": name,
            "chosen": rewards[labels.index(1)],
            "rejected": [reward for reward, label in zip(rewards, labels, strict=True) if not label],
        }
        for name, rewards, labels in records
    ], None


def lower_is_better(records: list[Record], _: Path) -> Source:
    content = [
        {"prompt_id": name, "candidates": [{"loss": -r, "is_best": y} for r, y in zip(rewards, labels, strict=True)]}
        for name, rewards, labels in records
    ]  # fmt: skip
    return content, "reward=-loss"


def server_log(records: list[Record], folder: Path) -> Source:
    content = [
        {"time": 1.5, "prompt": name, "response": "4", "reward": 0.5, "raw": reward, "probability": 0.5, "label": label}
        for name, rewards, labels in records
        for reward, label in zip(rewards, labels, strict=True)
    ]  # fmt: skip
    (folder / "rewards-00001.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder / "rewards-00001.jsonl", None


LAYOUTS: dict[str, Callable[[list[Record], Path], Source]] = {
    **{f"long.{ending}": written(f"long.{ending}") for ending in ("csv", "tsv", "parquet", "jsonl", "json", "xlsx")},
    **{
        layout.__name__: layout
        for layout in (
            *(nested, nested_file, ragged, ragged_with_the_best_one, ragged_with_ids, arrow, data_set),
            *(some_rows_of_a_data_set, saved, saved_with_one_split, named_index, index_of_two_levels, streamed),
            *(chosen_and_rejected, lower_is_better, server_log),
        )
    },
}  # fmt: skip

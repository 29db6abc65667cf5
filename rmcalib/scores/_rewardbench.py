"""RewardBench's `eval-set-scores` format: one list per column, one list of scores per prompt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import IntArray
from rmcalib.benchmarks import known_entry
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._columns import NEEDED

__all__ = ["content", "read_columns"]

_LISTS = ("id", "subset", "scores", "num_correct")
_ABOUT = {"model": "unknown", "model_type": "Seq. Classifier", "chat_template": "tokenizer"}
BENCHMARK = "reward-bench-2"


def read_columns(content: Any, source: str) -> tuple[dict[str, list[Any]], list[str], dict[str, Any]]:
    """Return the columns of scores, the place of each row, and the manifest."""
    if not isinstance(content, Mapping) or any(name not in content for name in _LISTS):
        hint = "; rows of scores belong in a .jsonl file" if isinstance(content, list) else ""
        raise ValueError(f"{source}: not RewardBench scores (an object with {', '.join(_LISTS)}){hint}")
    lists = [content[name] for name in _LISTS]
    if not all(isinstance(values, list) for values in lists) or len({len(values) for values in lists}) != 1:
        raise ValueError(f"{source}: {', '.join(_LISTS)} must be lists of one length")
    for name in ("id", "subset"):
        for i, value in enumerate(content[name]):
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
                raise ValueError(f"{source}, {name} {i}: {json.dumps(value)} is not a text")
    columns: dict[str, list[Any]] = {name: [] for name in NEEDED}
    places: list[str] = []
    categories = [str(subset) for subset in content["subset"]]
    keep = known_entry(BENCHMARK).no_single_answer
    names = distinct_ids([str(identifier) for identifier in content["id"]], categories, keep=keep)
    for i_item, (identifier, _, scores, n_correct) in enumerate(zip(*lists, strict=True)):
        where = f"{source}, id {identifier!r}"
        if not isinstance(scores, list):
            raise ValueError(f"{where}: no scores (a generative judge gives none)")
        if isinstance(n_correct, bool) or not isinstance(n_correct, int) or n_correct < 1:
            raise ValueError(f"{where}: num_correct is {json.dumps(n_correct)}, not a positive whole number")
        for i, score in enumerate(scores):
            while isinstance(score, list) and len(score) == 1:
                score = score[0]
            if isinstance(score, bool) or not isinstance(score, (int, float)):
                raise ValueError(f"{where}: score {i} is {json.dumps(score)}, not a number")
            row = (names[i_item], categories[i_item], i, i < n_correct, score)
            for name, value in zip(NEEDED, row, strict=True):
                columns[name].append(value)
            places.append(f"entry {i_item}")
    about = {"source": source, "benchmark_format": BENCHMARK}
    return columns, places, about | {key: content[key] for key in _ABOUT if key in content}


def content(
    columns: Mapping[str, npt.NDArray[Any]], offsets: IntArray, manifest: Mapping[str, Any]
) -> dict[str, Any]:
    """Return scores in RewardBench's format, correct responses first."""
    result: dict[str, Any] = {name: [] for name in (*_LISTS, "results")}
    for start, end in pairwise(offsets.tolist()):
        correct = columns["is_correct"][start:end]
        rewards = columns["reward"][start + np.argsort(~correct, kind="stable")].tolist()
        best = max(rewards)
        result["id"].append(str(columns["item_id"][start]))
        result["subset"].append(str(columns["category"][start]))
        result["scores"].append(rewards)
        result["num_correct"].append(int(correct.sum()))
        result["results"].append(1.0 / rewards.count(best) if rewards[0] == best else 0.0)
    return result | {key: manifest.get(key, value) for key, value in _ABOUT.items()}

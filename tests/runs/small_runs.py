"""Benchmarks of ten and of a hundred prompts, the inputs of a run, and judges that need no model."""

from __future__ import annotations

import os
import signal
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import ScoredItem
from rmcalib.judges._scoring import CHUNK
from rmcalib.scores import Scores

COLUMNS = ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated")


def row(item: str, response: int, correct: bool, reward: Any = 0.0, **more: Any) -> dict[str, Any]:
    values = {
        "item_id": item,
        "category": "Math",
        "response": response,
        "is_correct": correct,
        "reward": reward,
    }
    return values | more


def same(one: Scores, other: Scores, columns: tuple[str, ...] = COLUMNS) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in columns)


def items(n: int) -> tuple[Item, ...]:
    return tuple(Item(str(i), "Math" if i % 2 else "Focus", "?", ("yes", f"no {i}", ""), 1) for i in range(n))


BENCH, LONG = Benchmark("bench", "abc", items(10)), Benchmark("bench", "abc", items(100))
INPUTS = {"model": "org/rm", "model_revision": "1" * 40, "recipe": {"template": None, "sign": 1.0}}


def scored(*numbers: int) -> list[ScoredItem]:
    return [
        ScoredItem(str(i), (i + 0.5, i - 0.25, -float(i)), (5, 6, 7), (False, False, True)) for i in numbers
    ]


@dataclass
class Plugin:
    """A judge of an installed package: slow, or with a fault at a prompt, which is in the second chunk of `LONG`."""

    called: str = "slow"
    delay: float = 0.0
    fault: str = ""
    at: str = "32"
    scale: str = "reward"
    n_scored: int = 0

    @property
    def name(self) -> str:
        return self.called

    def identity(self) -> dict[str, Any]:
        return {"version": 1}

    def about(self) -> dict[str, Any]:
        return {"pid": os.getpid()}

    def work(self) -> dict[str, int]:
        return {"prompts": self.n_scored, "processes": int(self.n_scored > 0)}

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        for start in range(0, len(items), CHUNK):
            chunk = items[start : start + CHUNK]
            time.sleep(self.delay)
            if self.fault and any(item.id == self.at for item in chunk):
                if self.fault == "kill":
                    os.kill(os.getpid(), signal.SIGKILL)
                raise ValueError(self.fault)
            self.n_scored += len(chunk)
            yield [
                ScoredItem(
                    item.id, tuple(zlib.crc32(f"{item.id} {text}".encode()) / 7 for text in item.responses)
                )
                for item in chunk
            ]


def install(folder: Path, *names: str) -> None:
    """Write the metadata of a package with judges of these names, for a `folder` on the path of Python."""
    info = folder / "plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    lines = (f"{name} = tests.runs.small_runs:Plugin\n" for name in names)
    (info / "entry_points.txt").write_text("".join(("[rmcalib.judges]\n", *lines)))


def listed(name: str = "slow", **options: Any) -> dict[str, Any]:
    """Return the entry of such a judge in the list of a batch."""
    return {"model": name, "called": name, **options}

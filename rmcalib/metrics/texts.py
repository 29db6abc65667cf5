"""Scores and the texts of their benchmark: lengths of responses, and whether the two belong together."""

from __future__ import annotations

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import Benchmark
from rmcalib.scores import Scores


def response_lengths(scores: Scores, benchmark: Benchmark | None) -> FloatArray | None:
    """Return the number of characters of each scored response."""
    if benchmark is None:
        return None
    texts = {item.id: [float(len(response)) for response in item.responses] for item in benchmark.items}
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    lengths: list[float] = []
    for name, size in zip(scores.item_id[starts].tolist(), sizes.tolist(), strict=True):
        found = texts.get(name)
        if found is None or len(found) != size:
            return None
        lengths += found
    return np.array(lengths)


def disagreements(scores: Scores, benchmark: Benchmark) -> list[str]:
    """Return how scores differ from their benchmark, in sentences."""
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets).tolist()
    names, categories = scores.item_id[starts].tolist(), scores.category[starts].tolist()
    items = {item.id: item for item in benchmark.items}
    there = [
        (items[name], size, category)
        for name, size, category in zip(names, sizes, categories, strict=True)
        if name in items
    ]
    strange, missing = len(names) - len(there), len(items) - len(there)
    other_sizes = sum(len(item.responses) != size for item, size, _ in there)
    other_categories = sum(item.category != category for item, _, category in there)
    has = {n: "has" if n == 1 else "have" for n in (missing, other_sizes, other_categories)}
    differences = {
        f"of the {len(names)} scored prompts {'is' if strange == 1 else 'are'} not in": strange,
        f"of the {len(there)} others {has[other_sizes]} another number of responses in": other_sizes,
        f"of the {len(there)} others {has[other_categories]} another category in": other_categories,
    }
    notes = [f"{n} {text} {benchmark.name}." for text, n in differences.items() if n]
    if missing:
        notes.append(f"{missing} of the {len(items)} prompts of {benchmark.name} {has[missing]} no scores.")
    return notes

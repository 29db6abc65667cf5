"""Simulate the forward passes of a benchmark: padding, and arithmetic done over arithmetic needed.

    python scripts/bench_packing.py [--prompts 1865] [--budget 32768] [--json]

Nothing is computed: prompts and responses of drawn lengths, as many and as long as those of RewardBench 2,
are packed by the code that packs them for a GPU. For models of four sizes it prints, for FlexAttention, for
dense masks and for plain batches:

- padding: the fraction of the computed tokens that only fill up rows;
- done/needed: the arithmetic of all passes over that of every different token once, with attention over what
  a token sees. Products with weights and attention are counted, and the last layer in full.

The baseline, `before`, packs chunks of 32 prompts greedily and uses masks. The last column is the ratio of
its arithmetic to that of each way: above 1, the way needs less.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib.judges._inference.flex import BLOCK, visible_blocks
from rmcalib.judges._inference.packing import (
    Row,
    Text,
    pack,
    plain_batches,
    rounded_up,
    row_length,
    shared_batches,
)
from rmcalib.judges._inference.templates import Encoded

PASS_COST = 1_024
WINDOW = 128
LIMIT = 4_096


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that decide about its arithmetic."""

    layers: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int
    window: int | None = None  # every second layer has it

    @property
    def weights(self) -> int:
        """Weights of one layer."""
        attention = 2 * self.hidden * self.head * (self.heads + self.key_heads)
        return attention + 3 * self.hidden * self.inner

    @property
    def kappa(self) -> float:
        """The row length at which attention with a dense mask costs as much as the products with weights."""
        return self.weights / (2 * self.heads * self.head)


SHAPES = {
    "0.6B": Shape(28, 1024, 3072, 16, 8, 128),
    "8B": Shape(32, 4096, 14336, 32, 8, 128),
    "27B": Shape(46, 4608, 36864, 32, 16, 128, window=4096),
    "70B": Shape(80, 8192, 28672, 64, 8, 128),
}


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--prompts", type=int, default=1_865)
    parser.add_argument("--budget", type=int, default=32_768)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    prompts = draw(args.prompts, args.seed)
    figures = {name: simulate(shape, prompts, args.budget) for name, shape in SHAPES.items()}
    if args.json:
        print(json.dumps(figures))
        return
    tokens = sum(len(text) for group in prompts for text in group)
    print(f"{len(prompts):,} prompts, {tokens:,} tokens, {different(prompts):,} of them different\n")
    print(
        f"{'model':<7}{'way':<8}{'passes':>8}{'padding':>9}{'done/needed':>13}{'attention':>11}{'before/way':>12}"
    )
    for name, ways in figures.items():
        for way, row in ways.items():
            print(
                f"{name:<7}{way:<8}{row['passes']:>8}{row['padding']:>9.1%}{row['done']:>13.2f}"
                f"{row['attention']:>11.2f}{ways['before']['done'] / row['done']:>11.2f}x"
            )


def draw(n_prompts: int, seed: int) -> list[list[Text]]:
    """Draw prompts with four responses; log-normal lengths (see `bench_scoring.py`)."""
    rng = np.random.default_rng(seed)
    prompts: list[list[Text]] = []
    for number in range(n_prompts):
        shared = 35 + int(min(rng.lognormal(np.log(45), 1.5), 2_000))
        usual = rng.normal(np.log(280), 0.7)
        own = np.minimum(rng.lognormal(usual, 0.5, size=4), 2_000).astype(int) + 1
        group = []
        for index, length in enumerate(own):
            ids = (1,) * (shared + int(length))
            group.append(Text(4 * number + index, number, Encoded(ids, shared, False, False), len(ids) - 1))
        prompts.append(group)
    return prompts


def different(prompts: list[list[Text]]) -> int:
    return sum(
        group[0].encoded.prefix_len + sum(len(text) - text.encoded.prefix_len for text in group)
        for group in prompts
    )


def simulate(shape: Shape, prompts: list[list[Text]], budget: int) -> dict[str, dict[str, Any]]:
    """Return padding and arithmetic for every way of making batches."""
    needed_pairs = {window: sum(pairs_seen(group, window) for group in prompts) for window in windows(shape)}
    n_different = different(prompts)
    attention = 4 * shape.heads * shape.head
    needed_attention = attention * np.mean(list(needed_pairs.values()))
    needed = 2 * shape.weights * n_different + needed_attention
    plans = {way: list(passes(way, shape, prompts, budget)) for way in ("flex", "mask", "plain", "before")}
    figures = {}
    for way, batches in plans.items():
        tokens = sum(batch["tokens"] for batch in batches)
        used = sum(batch["used"] for batch in batches)
        done_attention = attention * sum(batch["pairs"] for batch in batches)
        figures[way] = {
            "passes": len(batches),
            "padding": 1 - used / tokens,
            "done": float((2 * shape.weights * tokens + done_attention) / needed),
            "attention": float(done_attention / needed_attention),
        }
    return figures


def windows(shape: Shape) -> list[int | None]:
    return [None] if shape.window is None else [None, shape.window]


def passes(way: str, shape: Shape, prompts: list[list[Text]], budget: int) -> Any:
    """Yield for every pass its tokens, those that are not padding, and its pairs of queries and keys."""
    size = 32 if way == "before" else WINDOW
    for start in range(0, len(prompts), size):
        texts = [text for group in prompts[start : start + size] for text in group]
        if way == "plain":
            for batch in plain_batches(texts, budget=budget, pass_cost=PASS_COST):
                longest = len(batch[0])
                yield {
                    "tokens": len(batch) * longest,
                    "used": sum(map(len, batch)),
                    "pairs": len(batch) * longest**2,
                }
        elif way == "flex":
            bucket = rounded_up(budget // 8, BLOCK)
            for rows in shared_batches(texts, budget=budget, kappa=math.inf, usual=budget):
                tokens = rounded_up(row_length(rows[0]), bucket)
                pairs = np.mean([block_pairs(rows, bucket, window) for window in windows(shape)])
                yield {"tokens": tokens, "used": row_length(rows[0]), "pairs": pairs}
        else:
            batches = shared_batches(
                texts, budget=budget, kappa=shape.kappa, pass_cost=PASS_COST, longest_row=2 * LIMIT
            )
            if way == "before":
                batches = greedy([row for rows in batches for row in rows], budget)
            for rows in batches:
                longest = max(map(row_length, rows))
                used = sum(map(row_length, rows))
                yield {"tokens": len(rows) * longest, "used": used, "pairs": len(rows) * longest**2}


def greedy(rows: list[Row], budget: int) -> list[list[Row]]:
    """Fill batches with rows from long to short."""
    batches: list[list[Row]] = []
    for row in sorted(rows, key=row_length, reverse=True):
        if batches and (len(batches[-1]) + 1) * row_length(batches[-1][0]) <= budget:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches


def block_pairs(rows: list[Row], bucket: int, window: int | None) -> int:
    some, _ = visible_blocks(pack(rows, multiple=bucket), window)
    return int(some.sum()) * BLOCK**2


def pairs_seen(group: list[Text], window: int | None) -> float:
    """Count the pairs of tokens that see each other, those of the prompt once."""

    def within(length: int) -> float:
        if window is None or length <= window:
            return length * (length + 1) / 2
        return window * (window + 1) / 2 + (length - window) * window

    shared = within(group[0].encoded.prefix_len)
    return shared + sum(within(len(text)) - shared for text in group)


if __name__ == "__main__":
    main()

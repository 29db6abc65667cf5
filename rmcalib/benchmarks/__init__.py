"""Benchmarks: prompts with responses and which are correct, from the Hub, from files, or built in."""

from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource, OfficialScore, ScoredItems
from rmcalib.benchmarks._items import Benchmark, Item, distinct_ids
from rmcalib.benchmarks._load import load_benchmark
from rmcalib.benchmarks._official import official_score, scored_items
from rmcalib.benchmarks._registry import benchmarks, entry_for, known_entry
from rmcalib.benchmarks._rows import Row, each
from rmcalib.benchmarks._winning import shared_first_place
from rmcalib.benchmarks.readers.reward_bench import ties_scores, ties_sums

__all__ = [
    "Benchmark",
    "BenchmarkEntry",
    "HubSource",
    "Item",
    "OfficialScore",
    "Row",
    "ScoredItems",
    "benchmarks",
    "distinct_ids",
    "each",
    "entry_for",
    "known_entry",
    "load_benchmark",
    "official_score",
    "scored_items",
    "shared_first_place",
    "ties_scores",
    "ties_sums",
]

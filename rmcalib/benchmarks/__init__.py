"""What is asked and what is true: prompts with their responses, from the Hub, a file or the demo."""

from rmcalib.benchmarks._benchmark import SHORT_NAMES, Benchmark, Item, distinct_ids, load_benchmark

__all__ = [
    "SHORT_NAMES",
    "Benchmark",
    "Item",
    "distinct_ids",
    "load_benchmark",
]

"""Benchmarks: prompts with responses and which are correct, from the Hub, from files, or built in."""

from rmcalib.benchmarks._entries import BenchmarkEntry, benchmarks
from rmcalib.benchmarks._items import Benchmark, Item
from rmcalib.benchmarks._load import load_benchmark
from rmcalib.benchmarks._official import official_score

__all__ = ["Benchmark", "BenchmarkEntry", "Item", "benchmarks", "load_benchmark", "official_score"]

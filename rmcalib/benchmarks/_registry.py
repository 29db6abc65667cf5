"""The registry of benchmarks: built-in ones, and those of installed packages."""

from __future__ import annotations

import difflib
import functools
import sys
from importlib import import_module
from importlib.metadata import entry_points

from rmcalib.benchmarks._entry import BenchmarkEntry
from rmcalib.benchmarks._items import Benchmark

__all__ = ["ENTRY_POINTS", "benchmarks", "entry_for", "known_entry"]

ENTRY_POINTS = "rmcalib.benchmarks"
"""The entry point group in which packages name a `BenchmarkEntry`, or a list of them."""

_MODULES = (
    "reward_bench",
    "rm_bench",
    "rmb",
    "judgebench",
    "rewardmath",
    "ppe",
    "helpsteer3",
    "multipref",
    "mt_bench",
    "arena",
    "ultrafeedback",
    "trl",
    "own",
)


def benchmarks() -> dict[str, BenchmarkEntry]:
    """Return all entries of the registry, built-in ones first.

    A package adds entries with an entry point in the group `rmcalib.benchmarks` that names a
    `BenchmarkEntry` or a list of them. It cannot replace a built-in entry.

    Returns
    -------
    dict of str to BenchmarkEntry
        The entries by name.

    Examples
    --------
    >>> benchmarks()["reward-bench-2"].prompts
    1865
    """
    return dict(_built_in()) | _installed(tuple(sys.path))


def entry_for(benchmark: str | Benchmark) -> BenchmarkEntry | None:
    """Return the entry of a benchmark.

    Parameters
    ----------
    benchmark : str | Benchmark
        A name, an alias, a Hub id, or a loaded benchmark.

    Returns
    -------
    BenchmarkEntry or None
        None if the benchmark is unknown.

    Examples
    --------
    >>> entry_for("allenai/reward-bench-2").name, entry_for("nobody/knows-it")
    ('reward-bench-2', None)
    """
    name = benchmark.format if isinstance(benchmark, Benchmark) else benchmark
    if name in _built_in():
        return _built_in()[name]
    found = benchmarks()
    if name in found:
        return found[name]
    for entry in found.values():
        if name in entry.aliases or name in [source.id for source in entry.hub]:
            return entry
    return None


def known_entry(name: str) -> BenchmarkEntry:
    """Return the entry of a benchmark, or raise a `ValueError` that suggests a similar name.

    Parameters
    ----------
    name : str
        A name, an alias or a Hub id.

    Returns
    -------
    BenchmarkEntry

    Examples
    --------
    >>> known_entry("reward-bench-3")
    Traceback (most recent call last):
    ValueError: format: unknown 'reward-bench-3' (did you mean reward-bench-2? `rmcalib benchmarks` lists all)
    """
    entry = entry_for(name)
    if entry is None:
        near = difflib.get_close_matches(name, benchmarks(), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ValueError(f"format: unknown {name!r} ({hint}`rmcalib benchmarks` lists all)")
    return entry


@functools.cache
def _built_in() -> dict[str, BenchmarkEntry]:
    modules = [import_module(f"rmcalib.benchmarks.readers.{name}") for name in _MODULES]
    return {entry.name: entry for module in modules for entry in module.ENTRIES}


@functools.lru_cache(maxsize=4)
def _installed(_: tuple[str, ...]) -> dict[str, BenchmarkEntry]:
    """Return the entries of installed packages. Cached: a search reads the metadata of every package."""
    found: dict[str, BenchmarkEntry] = {}
    for point in entry_points(group=ENTRY_POINTS):
        try:
            loaded = point.load()
        except Exception as error:  # importing another package can raise anything
            raise ValueError(f"entry point {ENTRY_POINTS}: {point.name} ({point.value}): {error}") from error
        for entry in loaded if isinstance(loaded, (list, tuple)) else [loaded]:
            if not isinstance(entry, BenchmarkEntry):
                raise ValueError(
                    f"entry point {ENTRY_POINTS}: {point.name} ({point.value}) is not a BenchmarkEntry"
                )
            if entry.name in _built_in() or entry.name in found:
                raise ValueError(
                    f"entry point {ENTRY_POINTS}: {point.name} adds {entry.name!r}, which already exists"
                )
            found[entry.name] = entry
    return found

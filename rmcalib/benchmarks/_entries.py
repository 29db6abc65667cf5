"""What is known about each benchmark: one YAML file per benchmark in `library`, and plug-ins."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar, Literal

from rmcalib._util.storage import read_input
from rmcalib._util.texts import brief, did_you_mean, parse_yaml, typed
from rmcalib.benchmarks._items import Benchmark

LIBRARY = Path(__file__).with_name("library")
ENTRY_POINTS = "rmcalib.benchmarks"
"""The entry point group in which packages name a `BenchmarkEntry`, the `Path` of a YAML file, or a list."""


@dataclass(frozen=True)
class HubSource:
    """A data set on the Hub, and the category of all its rows, if a benchmark has several data sets."""

    id: str
    split: str = "test"
    config: str | None = None
    category: str | None = None


@dataclass(frozen=True)
class BenchmarkEntry:
    """A benchmark that rmcalib can read. The fields are the keys of its YAML file.

    Parameters
    ----------
    name, title : str
        The name for `--benchmark` and `--format`, and the full name.
    labels : {"one", "pairs", "correct", "votes", "several"}
        What labels mean: exactly one response of a prompt is the right one, or the better one of a pair; each
        is correct or not, on its own; or people voted. With "several", the labels decide: they name the best
        response if nine of ten prompts have exactly one.
    reader : str or callable
        How a row is read. `"answers"` is for rows with correct and wrong responses, `"choices"` for rows with
        two responses and a choice, `"conversations"` for two chats and a choice; the others belong to one
        benchmark. A function takes a row (a dict) and returns an `Item`, or a str with the reason why the row
        is left out.
    columns : mapping
        For fields of the reader whose column has another name: its name, or a list; the first that
        has a value counts. The field `category` is read from the column `subset` otherwise.
    choices : mapping of str to {"first", "second", "neither"}
        The meaning of each value of `choice`, for readers of a choice.
    category : str or None
        Category of rows without one; None if every row has one, or if they are called `all`.
    cluster : str or None
        The column that says which prompts belong together, such as the id of a question behind many pairs.
    keep : list of str or None
        Other columns that results can be grouped by; None for all that hold texts, numbers or truth values.
    drop : list of str
        Columns that are not kept.
    licence, homepage : str
        Licence of the data, as its authors state it, and where it is described.
    prompts : int or None
        Number of prompts; None if it varies.
    responses : str
        Number of responses per prompt, such as `"2"` or `"3 to 7"`.
    hub : list of HubSource
        Its data sets on the Hub (`id`, `split`, `config`, `category`); empty if it is read from files only.
    categories : list of str
        Its categories in its authors' order, or what they begin with; empty if any name is allowed.
    no_single_answer : set of str
        Categories whose prompts have no single correct answer. Metrics of the first choice leave them out.
    official : str or None
        The score that its authors report, such as `"accuracy"`; None if they define none.
    official_about : str
        What the official score is, in one line.
    sections : mapping
        Weights of categories by section, for the official score `"sections"`.
    folder : str or None
        Name of the subfolder that contains its files, if the files of other benchmarks are beside it.

    Examples
    --------
    >>> from rmcalib.benchmarks import Item
    >>> def read(row):
    ...     return Item(str(row["key"]), "quiz", row["question"], (row["right"], row["wrong"]), 1)
    >>> BenchmarkEntry("quiz", "A quiz", "pairs", read).hub_id is None
    True
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    name: str
    title: str
    labels: Literal["one", "pairs", "correct", "votes", "several"]
    reader: str | Callable[[Mapping[str, Any]], Any]
    columns: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    choices: Mapping[str, Literal["first", "second", "neither"]] = field(default_factory=dict)
    category: str | None = None
    cluster: str | None = None
    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    licence: str = "none stated"
    homepage: str = ""
    prompts: int | None = None
    responses: str = "any"
    hub: tuple[HubSource, ...] = ()
    categories: tuple[str, ...] = ()
    no_single_answer: frozenset[str] = frozenset()
    official: str | None = None
    official_about: str = ""
    sections: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    folder: str | None = None

    @property
    def hub_id(self) -> str | None:
        """The Hub id if the benchmark is a single data set, else None."""
        return self.hub[0].id if len(self.hub) == 1 else None


def benchmarks() -> dict[str, BenchmarkEntry]:
    """Return all benchmarks that can be read, built-in ones first.

    A package adds some with an entry point in the group `rmcalib.benchmarks` that names a `BenchmarkEntry`,
    the `Path` of a YAML file like ours, or a list of them. It cannot replace a built-in one.

    Returns
    -------
    dict of str to BenchmarkEntry
        The entries by name.

    Examples
    --------
    >>> benchmarks()["reward-bench-2"].prompts
    1865
    """
    return _built_in() | _installed(tuple(sys.path))


def known_entry(name: str) -> BenchmarkEntry:
    """Return the entry of a benchmark: by name or Hub id, or from your own YAML file.

    Parameters
    ----------
    name : str
        A name, a Hub id, or the path of a file that ends in `.yaml`.

    Returns
    -------
    BenchmarkEntry

    Examples
    --------
    >>> known_entry("reward-bench-3")
    Traceback (most recent call last):
    ValueError: format: unknown 'reward-bench-3' (did you mean 'reward-bench-2' or 'reward-bench-1'?)
    """
    if name.endswith((".yaml", ".yml")):
        return read_entry(Path(name))
    entry = entry_for(name)
    if entry is None:
        hint = did_you_mean(name, benchmarks(), "`rmcalib list benchmarks` lists all")
        raise ValueError(f"format: unknown {brief(name)} ({hint})")
    return entry


def entry_for(benchmark: str | Benchmark) -> BenchmarkEntry | None:
    """Return the entry of a loaded benchmark, a name or a Hub id; None if it is unknown.

    >>> entry_for("allenai/reward-bench-2").name, entry_for("nobody/knows-it")
    ('reward-bench-2', None)
    """
    if isinstance(benchmark, Benchmark):
        return benchmark.entry or entry_for(benchmark.format)
    name = benchmark
    if name in _built_in():  # even if a plug-in cannot be loaded
        return _built_in()[name]
    every = benchmarks()
    of_hub = (entry for entry in every.values() if any(source.id == name for source in entry.hub))
    return every.get(name) or next(of_hub, None)


def read_entry(path: Path) -> BenchmarkEntry:
    """Read the YAML file of a benchmark. All mistakes are named at once."""
    from rmcalib.benchmarks._formats import READERS
    from rmcalib.benchmarks._official import OFFICIAL

    entry = typed(BenchmarkEntry, parse_yaml(read_input(path), str(path)), str(path))
    if isinstance(entry.reader, str) and entry.reader not in READERS:
        raise ValueError(f"{path}: reader: unknown {brief(entry.reader)} (have: {', '.join(READERS)})")
    if entry.official is not None and entry.official not in OFFICIAL:
        raise ValueError(f"{path}: official: unknown {brief(entry.official)} (have: {', '.join(OFFICIAL)})")
    return entry


@functools.cache
def _built_in() -> dict[str, BenchmarkEntry]:
    entries = [read_entry(path) for path in sorted(LIBRARY.glob("*.yaml"))]
    return {entry.name: entry for entry in entries}


@functools.lru_cache(maxsize=4)
def _installed(_: tuple[str, ...]) -> dict[str, BenchmarkEntry]:
    """Return the entries of installed packages. Cached: a search reads the metadata of every package."""
    entries: dict[str, BenchmarkEntry] = {}
    for point in entry_points(group=ENTRY_POINTS):
        where = f"entry point {ENTRY_POINTS}: {point.name} ({point.value})"
        try:
            loaded = point.load()
        except Exception as error:  # importing another package can raise anything
            raise ValueError(f"{where}: {error}") from error
        for given in loaded if isinstance(loaded, (list, tuple)) else [loaded]:
            entry = read_entry(given) if isinstance(given, Path) else given
            if not isinstance(entry, BenchmarkEntry):
                raise ValueError(f"{where} is neither a BenchmarkEntry nor the Path of a YAML file")
            if entry.name in _built_in() or entry.name in entries:
                raise ValueError(f"{where} adds {entry.name!r}, which already exists")
            entries[entry.name] = entry
    return entries

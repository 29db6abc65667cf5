"""Entries of the registry: where a benchmark is, how it is read, and how its authors score it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.benchmarks._rows import Reader

__all__ = ["BenchmarkEntry", "HubSource", "OfficialScore", "ScoredItems"]

Labels = Literal["one", "several", "pairs", "votes"]


@dataclass(frozen=True)
class HubSource:
    """A data set on the Hugging Face Hub.

    Parameters
    ----------
    id : str
        Hub id of the data set, such as `"allenai/reward-bench-2"`.
    split : str
        Which split to read.
    config : str or None
        Name of the configuration, if the data set has several.
    category : str or None
        Category of all rows (added as the column `subset`), if a benchmark consists of several data sets.

    Examples
    --------
    >>> HubSource("nvidia/HelpSteer3", "validation", "preference").split
    'validation'
    """

    id: str
    split: str = "test"
    config: str | None = None
    category: str | None = None


@dataclass(frozen=True)
class ScoredItems:
    """Rewards of n prompts with N responses in total, as flat arrays.

    This is the argument of the function `official` of a `BenchmarkEntry`; `scored_items` makes it.

    Parameters
    ----------
    ids, category : str (n,)
        Id and category of each prompt.
    offsets : int (n + 1,)
        Index of the first response of each prompt, and N at the end.
    reward : float (N,)
        Reward of each response.
    is_correct : bool (N,)
        Which responses are correct.
    votes : int (N,) or None
        How many people preferred each response.
    columns : tuple of n mappings
        Other columns of each prompt; empty if the benchmark itself is not available.

    Examples
    --------
    >>> items = ScoredItems(
    ...     ids=np.array(["a", "b"]),
    ...     category=np.array(["Math", "Math"]),
    ...     offsets=np.array([0, 2, 5]),
    ...     reward=np.array([1.0, 0.0, 2.0, 1.0, 0.5]),
    ...     is_correct=np.array([True, False, True, False, False]),
    ... )
    >>> items.starts, items.sizes
    (array([0, 2]), array([2, 3]))
    """

    ids: npt.NDArray[np.str_]
    category: npt.NDArray[np.str_]
    offsets: IntArray
    reward: FloatArray
    is_correct: BoolArray
    votes: IntArray | None = None
    columns: tuple[Mapping[str, str], ...] = ()

    @property
    def starts(self) -> IntArray:
        """Index of the first response of each prompt: int (n,)."""
        return self.offsets[:-1]

    @property
    def sizes(self) -> IntArray:
        """Number of responses of each prompt: int (n,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class OfficialScore:
    """One number that a benchmark's authors report.

    Parameters
    ----------
    metric : str
        Name of the number, such as `"accuracy"`.
    category : str
        Category of the prompts; `"all"` for the headline.
    value : float
        The number, usually between 0 and 1.
    n : int
        Number of prompts that it is computed from.

    Examples
    --------
    >>> OfficialScore("accuracy", "all", 0.75, 4).value
    0.75
    """

    metric: str
    category: str
    value: float
    n: int


@dataclass(frozen=True)
class BenchmarkEntry:
    """A benchmark that rmcalib can read: an entry of the registry.

    Parameters
    ----------
    name : str
        The name for `--benchmark` and `--format`.
    title : str
        Full name.
    labels : {"one", "several", "pairs", "votes"}
        What is known about the responses: exactly one is correct, several may be correct, they are pairs of a
        better and a worse one, or people voted on them.
    columns : tuple of str
        Columns that every row must have.
    read : callable
        Takes an iterable of `Row` and yields an `Item` per prompt, or a str, which is the reason why a row is
        left out. `each` makes one from a function of a single row.
    or_columns : tuple of str
        Another set of columns that is accepted instead of `columns`; empty if there is none.
    licence : str
        Licence of the data, as its authors state it.
    homepage : str
        Where it is described or can be downloaded.
    prompts : int or None
        Number of prompts; None if it varies.
    responses : str
        Number of responses per prompt, such as `"2"` or `"3 to 7"`.
    hub : tuple of HubSource
        Its data sets on the Hub; empty if it can only be read from files.
    categories : tuple of str
        Its categories in its authors' order; empty if any name is allowed.
    no_single_answer : frozenset[str]
        Categories whose prompts have no single correct answer. Metrics of the first choice leave them out.
    official : callable or None
        Takes `ScoredItems` and returns a list of `OfficialScore`; None if the authors define no score.
    official_about : str
        What the official score is, in one line.
    folder : str or None
        Name of the subfolder that contains its files, if the files of other benchmarks are beside it.
    aliases : tuple of str
        Other names.

    Examples
    --------
    >>> from rmcalib.benchmarks import Item, each
    >>> def read(row):
    ...     responses = (row.text("right"), row.text("wrong"))
    ...     return Item(row.name("key"), "quiz", row.text("question"), responses, 1)
    >>> entry = BenchmarkEntry("quiz", "A quiz", "pairs", ("key", "question", "right", "wrong"), each(read))
    >>> entry.labels, entry.hub_id
    ('pairs', None)
    """

    name: str
    title: str
    labels: Labels
    columns: tuple[str, ...]
    read: Reader = field(repr=False)
    or_columns: tuple[str, ...] = ()
    licence: str = "none stated"
    homepage: str = ""
    prompts: int | None = None
    responses: str = "any"
    hub: tuple[HubSource, ...] = ()
    categories: tuple[str, ...] = ()
    no_single_answer: frozenset[str] = frozenset()
    official: Callable[[ScoredItems], list[OfficialScore]] | None = field(default=None, repr=False)
    official_about: str = ""
    folder: str | None = None
    aliases: tuple[str, ...] = ()

    @property
    def hub_id(self) -> str | None:
        """The Hub id if the benchmark is a single data set, else None."""
        return self.hub[0].id if len(self.hub) == 1 else None

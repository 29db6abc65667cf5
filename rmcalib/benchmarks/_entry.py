"""What is known about a benchmark: where it is, how it is read, and how its authors score it."""

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
    """A data set of the Hugging Face Hub: its id, the configuration and the split.

    `category` is given to the rows (as `subset`) where the data set is one of several parts of a benchmark.
    """

    id: str
    split: str = "test"
    config: str | None = None
    category: str | None = None


@dataclass(frozen=True)
class ScoredItems:
    """Rewards of a benchmark's prompts as plain arrays, flat: one entry per response (N,).

    `offsets` (n + 1,) says where each of the n prompts starts; `ids` and `category` (n,) name the prompts.
    `votes` (N,) counts people's votes, or is None. `columns` has the further columns of each prompt, or is
    empty where the benchmark's texts are not at hand.
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
        """Where each prompt starts: (n,)."""
        return self.offsets[:-1]

    @property
    def sizes(self) -> IntArray:
        """How many responses each prompt has: (n,)."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class OfficialScore:
    """One number that a benchmark's authors report, between 0 and 1 unless the metric says otherwise.

    `category` is `"all"` for the headline. `n` counts the prompts behind the number.
    """

    metric: str
    category: str
    value: float
    n: int


@dataclass(frozen=True)
class BenchmarkEntry:
    """A benchmark that rmcalib can read.

    Parameters
    ----------
    name : what `--benchmark` and `--format` call it.
    title : its full name.
    labels : what is known about the responses: `"one"` is correct, `"several"` may be, `"pairs"` of a better
        and a worse one, or people's `"votes"`.
    columns, or_columns : what each row of a file must have: the first, or the second if it is not empty.
    read : turns rows into items (`Reader`).
    licence : of the data, as its authors state it.
    homepage : where it is described or can be downloaded.
    prompts, responses : how many there are; None if any.
    hub : where it is on the Hub; empty if it is read from files only.
    categories : in its authors' order; empty if any.
    no_single_answer : categories whose prompts have no single right answer: top-1 metrics leave them out.
    official : computes what its authors report; None if they report nothing from rewards alone.
    official_about : says in one line what that is.
    folder : where the files are, in a folder that holds others too.
    aliases : other names.
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
        """The id on the Hub if it is one data set, else None."""
        return self.hub[0].id if len(self.hub) == 1 else None

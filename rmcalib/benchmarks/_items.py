"""`Item`, one prompt with its responses, and `Benchmark`, a named list of items."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Len

from rmcalib._util.texts import LONGEST_ID

if TYPE_CHECKING:
    from rmcalib.benchmarks._entries import BenchmarkEntry

Prompt = str | tuple[dict[str, str], ...]
"""A text, or chat messages `{"role": ..., "content": ...}` that end before the assistant's turn."""

Name = Annotated[str, Len(1, LONGEST_ID)]
Count = Annotated[int, Ge(0)]


@dataclass(frozen=True)
class Item:
    """One prompt with its responses, correct ones first.

    Parameters
    ----------
    id : str
        Unique in its benchmark.
    category : str
        Category of the prompt.
    prompt : str or tuple of dict
        A text, or chat messages `{"role": ..., "content": ...}` that end before the assistant's turn.
    responses : tuple of str
        The responses; the first `n_correct` are correct.
    n_correct : int
        Number of correct responses. If people voted, the response with most votes is the correct one; if two
        share first place, it is 0.
    votes : tuple of int or None
        How many people preferred each response; None without votes.
    ties : int
        How many people preferred no response.
    columns : mapping of str to str
        Other columns of the benchmark, such as the language. Results can be grouped by them.
    cluster : str or None
        Prompts of the same cluster belong together, such as all pairs of answers to one question.

    Examples
    --------
    >>> Item("1", "chat", "Hi", ("Hello!", "What?"), 1, votes=(3, 1), ties=1).votes
    (3, 1)
    """

    id: Name
    category: Name
    prompt: Prompt
    responses: Annotated[tuple[str, ...], Len(2)]
    n_correct: Count
    votes: tuple[Count, ...] | None = None
    ties: Count = 0
    columns: Mapping[str, str] = field(default_factory=dict)
    cluster: Name | None = None


@dataclass(frozen=True)
class Benchmark:
    """A named list of prompts; :func:`rmcalib.load_benchmark` loads one.

    Parameters
    ----------
    name : str
        Name of the benchmark; run folders are named after it.
    revision : str
        Commit of the data set, or the SHA-256 of the files.
    items : tuple of Item
        The prompts.
    format : str
        Name of its entry among :func:`benchmarks`, which has the official score.
    notes : tuple of str
        What was left out while reading, one sentence each.
    entry : BenchmarkEntry, optional
        Its entry, if that is not among :func:`benchmarks`.

    Examples
    --------
    >>> bench = Benchmark("mine", "1", (Item("a", "Math", "2+2?", ("4", "5"), 1),))
    >>> bench
    Benchmark('mine', revision='1', 1 prompts)
    >>> bench.categories, bench.n_responses
    (('Math',), 2)
    """

    name: str
    revision: str
    items: tuple[Item, ...]
    format: str = "rmcalib"
    notes: tuple[str, ...] = ()
    entry: BenchmarkEntry | None = field(default=None, compare=False)

    def __len__(self) -> int:
        """Return the number of prompts."""
        return len(self.items)

    def __repr__(self) -> str:
        """Return a summary."""
        return f"Benchmark({self.name!r}, revision={self.revision!r}, {len(self)} prompts)"

    @property
    def categories(self) -> tuple[str, ...]:
        """Categories, in order of appearance."""
        return tuple(dict.fromkeys(item.category for item in self.items))

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the other columns of the prompts, in order of appearance."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.columns))

    @property
    def n_responses(self) -> int:
        """Number of responses of all prompts."""
        return sum(len(item.responses) for item in self.items)

    @property
    def n_empty(self) -> int:
        """Number of responses without text. They are scored like the others, and reported."""
        return sum(not response.strip() for item in self.items for response in item.responses)


def distinct_ids(ids: Sequence[str], categories: Sequence[str], *, keep: Collection[str] = ()) -> list[str]:
    """Make ids unique: an id that several categories use gets its category as a prefix.

    The ids of the categories `keep` have a meaning, and stay unchanged.

    >>> distinct_ids(["1", "2", "1"], ["Math", "Math", "Focus"])
    ['Math/1', '2', 'Focus/1']
    """
    used: dict[str, set[str]] = {}
    for identifier, category in zip(ids, categories, strict=True):
        used.setdefault(identifier, set()).add(category)
    return [
        identifier if len(used[identifier]) == 1 or category in keep else f"{category}/{identifier}"
        for identifier, category in zip(ids, categories, strict=True)
    ]

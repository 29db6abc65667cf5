"""What travels: prompts with their responses and what is true of them, and named lists of prompts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Benchmark", "Item", "Prompt", "distinct_ids", "voted_item"]

Prompt = str | tuple[dict[str, str], ...]
"""A text, or chat messages `{"role": ..., "content": ...}` that end before the assistant's turn."""


@dataclass(frozen=True)
class Item:
    """One prompt with its responses, the `n_correct` correct ones first.

    Where people voted, `votes` counts those who preferred each response, and `ties` those who preferred none.
    The response with most votes is the correct one; if two have as many, `n_correct` is 0. `columns` keeps
    what else the benchmark says about the prompt, such as its language: results can be grouped by it.

    >>> item = Item("1", "chat", "Hi", ("Hello!", "What?"), 1, votes=(3, 1), ties=1)
    >>> item.n_votes, item.shares
    (5, (0.75, 0.25))
    """

    id: str
    category: str
    prompt: Prompt
    responses: tuple[str, ...]
    n_correct: int
    votes: tuple[int, ...] | None = None
    ties: int = 0
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def n_votes(self) -> int:
        """Count the people who voted, ties included."""
        return sum(self.votes or ()) + self.ties

    @property
    def shares(self) -> tuple[float, ...] | None:
        """The share of each response among the people who preferred one; None if nobody did."""
        total = sum(self.votes or ())
        return tuple(count / total for count in self.votes or ()) if total else None


def voted_item(
    identifier: str,
    category: str,
    prompt: Prompt,
    responses: Sequence[str],
    votes: Sequence[int],
    *,
    ties: int = 0,
    columns: Mapping[str, str] | None = None,
) -> Item:
    """Return an item whose truth is how people voted: the response with most votes comes first.

    >>> voted_item("1", "chat", "Hi", ("What?", "Hello!"), (1, 3)).responses
    ('Hello!', 'What?')
    """
    order = sorted(range(len(votes)), key=lambda i: -votes[i])  # stable: equal ones stay as they are
    ranked = tuple(votes[i] for i in order)
    texts = tuple(responses[i] for i in order)
    n_correct = int(ranked[0] > ranked[1])
    return Item(identifier, category, prompt, texts, n_correct, ranked, ties, columns or {})


@dataclass(frozen=True)
class Benchmark:
    """A named list of prompts; `revision` is the data set's commit, or the SHA-256 of its files.

    `format` is the name of its entry in the registry (`entry_for`), which knows its official score. `notes`
    say in one sentence each what was left out while reading.
    """

    name: str
    revision: str
    items: tuple[Item, ...]
    format: str = "rmcalib"
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Count the prompts."""
        return len(self.items)

    def __repr__(self) -> str:
        """Name it and count it."""
        return f"Benchmark({self.name!r}, revision={self.revision!r}, {len(self)} prompts)"

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in the order in which they appear."""
        return tuple(dict.fromkeys(item.category for item in self.items))

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what else is known about the prompts, in the order in which they appear."""
        return tuple(dict.fromkeys(name for item in self.items for name in item.columns))

    @property
    def has_votes(self) -> bool:
        """Whether people voted on the responses."""
        return any(item.votes is not None for item in self.items)

    @property
    def n_responses(self) -> int:
        """Count the responses of all prompts."""
        return sum(len(item.responses) for item in self.items)

    @property
    def n_empty(self) -> int:
        """Count the responses without any text: they are scored like the others, and reported."""
        return sum(not response.strip() for item in self.items for response in item.responses)


def distinct_ids(ids: Sequence[str], categories: Sequence[str], *, keep: Collection[str] = ()) -> list[str]:
    """Put the category in front of ids that several categories use, because each counts its own prompts.

    Ids in the categories `keep` stay as they are, because they carry a meaning.

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

"""Read columns of labels: truth values, words, the best id, ranks, fractions, and ratings of several people.

A column is read by the first of `READERS` that understands it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.display import count
from rmcalib._util.texts import repeated
from rmcalib.scores._files import Table
from rmcalib.scores._roles import KNOWN, plain
from rmcalib.scores._schema import as_number
from rmcalib.scores.scale import Labels

WORDS: dict[str, float] = {word: value for value, words in KNOWN["words"].items() for word in words}
TIES = {word for word, value in WORDS.items() if value == 0.5}
"""Words for responses that are equally good."""


def by_name(name: str) -> Labels | None:
    """Return what the name of a column says about its labels.

    >>> by_name("is_correct"), by_name("winner"), by_name("label")
    ('correct', 'best', None)
    """
    words = {*plain(name).split("_")}
    meanings = [meaning for meaning, of_meaning in KNOWN["meaning"].items() if words & {*of_meaning}]
    return meanings[0] if len(meanings) == 1 else None


def id_text(value: Any) -> str:
    """Return an id as text; the number 7.0 is 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def is_empty(value: Any) -> bool:
    """Whether a cell has no value."""
    return (
        value is None
        or (isinstance(value, str) and value == "")
        or (isinstance(value, float) and value != value)
    )


@dataclass(frozen=True)
class Cells:
    """A column of labels: its texts (N,), None where empty; each row's prompt, and the ids of responses."""

    name: str
    texts: list[str | None]
    group: IntArray
    ids: list[str] | None = None

    @property
    def are_words(self) -> bool:
        """Whether each of them is a word such as yes or wrong, or 0 or 1."""
        return all(text is None or text.lower() in WORDS for text in self.texts)

    @property
    def numbers(self) -> FloatArray | None:
        """The numbers (N,), NaN where empty; None if some cell is not a number."""
        numbers = [np.nan if text is None else as_number(text) for text in self.texts]
        return None if None in numbers else np.array(numbers, dtype=np.float64)


class Read(NamedTuple):
    """Labels (N,), NaN where unknown, and whether they name the best response of a prompt."""

    label: FloatArray
    names_best: bool


def read_labels(table: Table, name: str, response: str | None, group: IntArray) -> Read:
    """Read a column of labels of responses; `response` is the column of their ids."""
    texts = [None if is_empty(value) else id_text(value).strip() for value in table.columns[name].tolist()]
    ids = None if response is None else [id_text(value) for value in table.columns[response].tolist()]
    cells = Cells(name, texts, group, ids)
    for read in READERS:
        labels = read(cells)
        if labels is not None:
            return labels
    row = next(row for row, text in enumerate(texts) if text is not None and not _is_share(text))
    raise table.error(
        row,
        name,
        "no label: give true or false, 0 or 1, a share from 0 to 1, ranks 1, 2, ..., or the id of the "
        'best response, or name another column, columns="label=NAME"',
    )


def _best_ids(cells: Cells) -> Read | None:
    """Read the id of the best response, which each row of a prompt repeats."""
    if cells.ids is None or (cells.are_words and plain(cells.name) not in KNOWN["best"]):
        return None
    groups = cells.group.tolist()
    responses = {*zip(groups, cells.ids, strict=True)}
    best = {(group, text) for group, text in zip(groups, cells.texts, strict=True) if text is not None}
    if not best <= responses or repeated(group for group, _ in best) is not None:
        return None
    chosen = [
        np.nan if text is None else float(text == response)
        for text, response in zip(cells.texts, cells.ids, strict=True)
    ]
    return Read(np.array(chosen), True)


def _words(cells: Cells) -> Read | None:
    """Read yes and no, right and wrong, 1 and 0; a tie is one between best responses."""
    if not cells.are_words:
        return None
    words = [None if text is None else text.lower() for text in cells.texts]
    labels = np.array([np.nan if word is None else WORDS[word] for word in words])
    return Read(labels, any(word in TIES for word in words))


def _ranks(cells: Cells) -> Read | None:
    """Read ranks, whole numbers from 1 to a prompt's size; responses that share first place get 1/t each."""
    ranks, sizes = cells.numbers, np.bincount(cells.group)
    if ranks is None or np.isnan(ranks).any() or (ranks != np.round(ranks)).any() or ranks.max() < 2:
        return None
    least = np.full(len(sizes), np.inf)
    np.minimum.at(least, cells.group, ranks)
    if (least != 1).any() or (ranks > sizes[cells.group]).any():
        return None
    first = (ranks == 1).astype(np.float64)
    return Read(first / np.bincount(cells.group, weights=first)[cells.group], True)


def _shares(cells: Cells) -> Read | None:
    """Read shares from 0 to 1."""
    if not all(text is None or _is_share(text) for text in cells.texts):
        return None
    return Read(np.array([np.nan if text is None else as_number(text) for text in cells.texts]), False)


def _is_share(text: str) -> bool:
    number = as_number(text)
    return number is not None and not (number < 0 or number > 1)


READERS: tuple[Callable[[Cells], Read | None], ...] = (_best_ids, _words, _ranks, _shares)


def could_be_labels(columns: Mapping[str, Any]) -> list[str]:
    """Return the columns that would be read as labels if they were named: truth values, words, shares.

    >>> could_be_labels({"verified": ["yes", "no"], "tokens": [12, 7], "source": ["web", "book"]})
    ['verified']
    """
    names = []
    for name, values in columns.items():
        texts = [None if is_empty(value) else id_text(value).strip() for value in values]
        cells = Cells(name, texts, np.zeros(len(texts), dtype=np.int64))
        distinct = {text for text in texts if text is not None}
        if (
            len(distinct) > 1
            and plain(name) not in KNOWN["not_rewards"]
            and (_words(cells) or _shares(cells))
        ):
            names.append(name)
    return names


# Ratings of several people


class Votes(NamedTuple):
    """People's votes (N,), their ties (N,), the same on all rows of a prompt, and a note that says the rule."""

    votes: IntArray
    ties: IntArray
    note: str


def read_ratings(table: Table, name: str, group: IntArray) -> Votes:
    """Turn ratings into votes: each person votes for the response of a prompt that they rate highest.

    A person who rates all responses of a prompt alike finds them equally good: a tie. A person who rates only
    some of several responses alike and highest has no single favourite, and a person who did not rate all
    responses cannot say which is the best; neither is counted on this prompt. Nor is a prompt with one response.
    """
    by_person: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for row, (prompt, ratings) in enumerate(zip(group.tolist(), table.columns[name].tolist(), strict=True)):
        for person, value in (ratings or {}).items():
            if is_empty(value):
                continue
            number = as_number(value)
            if number is None or not np.isfinite(number):
                what = "no rating: a rating is a number, and a larger one is better"
                raise ValueError(
                    f"{table.source}: {table.place(row)}: the rating of {person} is {value!r}: {what}"
                )
            by_person.setdefault((prompt, person), []).append((row, number))
    sizes = np.bincount(group)
    votes, ties, uncounted = np.zeros(len(group), dtype=np.int64), np.zeros(len(sizes), dtype=np.int64), 0
    for (prompt, _), rated in by_person.items():
        highest = max(number for _, number in rated)
        favourites = [row for row, number in rated if number == highest]
        if len(rated) < sizes[prompt] or sizes[prompt] < 2 or 1 < len(favourites) < len(rated):
            uncounted += 1
        elif len(favourites) == 1:
            votes[favourites[0]] += 1
        else:
            ties[prompt] += 1
    raters = count(len({person for _, person in by_person}), "rater")
    note = (
        f"The ratings of {raters} are votes: each votes for the response that they rate highest "
        f"({int(votes.sum()):,} votes), or finds all responses equally good ({int(ties.sum()):,})."
    )
    if uncounted:
        note += (
            f" Not counted: {count(uncounted, 'time')}, a person rated some responses only, or has several "
            "favourites."
        )
    return Votes(votes, ties[group], note)

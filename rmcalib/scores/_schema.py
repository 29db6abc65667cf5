"""The schema of scores: the columns, their types, and what a table of them must satisfy.

`checked` is the only place where columns are checked. It finds all problems before it raises one error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.texts import LONGEST_ID, brief

Columns = dict[str, npt.NDArray[Any]]
Lists = npt.NDArray[np.object_]
"""A column of tuples: row i of a prompt has P(i beats j) for each j of its responses, None if unknown."""
Place = Callable[[int], str]
"""Returns the place of a row by its number, such as `row 3` or `line 7`."""
UNKNOWN_LENGTH = -1
"""`n_tokens` of scores that were not made by rmcalib."""
LARGEST_REWARD = 1e100
"""Larger rewards are refused: their differences and squares overflow float64. float32 ends at 3.4e38."""
_TOLERANCE = 1e-6
_NONE: IntArray = np.empty(0, dtype=np.int64)
_SHOWN = 10  # problems in a message
_MOST = 10**12  # of votes, tokens and responses: sums of more could overflow
_BAD_SIGNS = re.compile("[\0\ud800-\udfff]")  # numpy drops a final NUL; UTF-8 has no lone surrogates


@dataclass(frozen=True)
class Field:
    """The type of a column (of Arrow), what a value should be and what to do about a bad one, and limits."""

    type: str
    expected: str
    low: float = 0
    high: float = 0
    may_be_empty: bool = False


_TEXT = f"a number, or a text of 1 to {LONGEST_ID} characters without NUL or lone surrogate"
_FILL = f"{_TEXT}: fill it in, or leave the column out"
_VOTES = "a number of votes: leave the column out if there are no votes"
_REWARD = (
    f'a finite number of at most {LARGEST_REWARD:g}: name another column, columns="reward=NAME", or say what '
    'becomes of such rewards: missing="lowest" or missing="drop"'
)
SCHEMA: dict[str, Field] = {
    "item_id": Field("string", f"{_TEXT}: give every row the id of its prompt"),
    "category": Field("string", _FILL),
    "response": Field("int64", "a whole number: number a prompt's responses 0, 1, 2, ...", 0, _MOST),
    "label": Field("double", "1, 0, a share in between, or empty: see `label` in the docs", 0, 1, True),
    "reward": Field("double", _REWARD, -LARGEST_REWARD, LARGEST_REWARD),
    "n_tokens": Field("int64", "a number of tokens, or -1: leave the column out if unknown", -1, _MOST),
    "truncated": Field("bool", "true or false: leave the column out if it is unknown", 0, 1),
    "votes": Field("int64", _VOTES, 0, _MOST),
    "ties": Field("int64", _VOTES, 0, _MOST),
    "beats": Field("lists", "a list of probabilities: P(this response beats response j), or null"),
    "cluster": Field("string", _FILL),
}
NEEDED = ("item_id", "category", "response", "label", "reward")
_OF_THE_PROMPT = ("category", "ties", "cluster")  # the same on all rows of a prompt
_TYPES: dict[str, Any] = {"string": np.str_, "int64": np.int64, "bool": np.bool_, "double": np.float64}


def raise_if_any(problems: Sequence[str], source: str) -> None:
    """Raise a ValueError with all problems of a source of scores, one per line if there are several."""
    if len(problems) == 1:
        raise ValueError(f"{source}: {problems[0]}")
    if problems:
        lines = "".join(f"\n- {problem}" for problem in problems[:_SHOWN])
        lines += f"\n- and {len(problems) - _SHOWN:,} more" if len(problems) > _SHOWN else ""
        raise ValueError(f"{source}: {len(problems)} problems{lines}")


def row_place(row: int) -> str:
    """Name a row by its number, counted from 0."""
    return f"row {row}"


def starts_of(item_id: npt.NDArray[np.str_]) -> IntArray:
    """Return where each prompt, or another text that is repeated, starts: (n,)."""
    return np.flatnonzero(np.r_[True, item_id[1:] != item_id[:-1]])


def checked(columns: Mapping[str, Any], *, source: str, place: Place = row_place) -> Columns:
    """Return the columns of a table of scores as typed arrays (N,), prompt after prompt.

    Columns that the schema does not know are kept as they are if their values are texts, numbers or truth
    values. Prompts keep the order of their first row. A ValueError lists everything that is wrong.
    """
    problems: list[str] = []
    absent = [name for name in NEEDED if name not in columns]
    if absent:
        problems.append(f"no column {', '.join(absent)} (has {', '.join(map(str, columns))})")
    if "ties" in columns and "votes" not in columns:
        problems.append("a column ties, but no column votes")
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {n}" for name, n in lengths.items())
        problems.append(f"the columns have different lengths ({counts})")
    elif not max(lengths.values(), default=0):
        problems.append("contains no scores")
    raise_if_any(problems, source)
    arrays: Columns = {}
    # Ids come first in the schema, because messages about other columns use them.
    for name in [name for name in SCHEMA if name in columns]:
        typed, bad = _typed(columns[name], SCHEMA[name])
        if len(bad):
            row = int(bad[0])
            value = brief(columns[name][row]) + (f" ({len(bad):,} values)" if len(bad) > 1 else "")
            where = f"{place(row)}{_whose(arrays, row)}"
            problems.append(f"{where}: {name} is {value}, not {SCHEMA[name].expected}")
        else:
            arrays[name] = typed
    raise_if_any(problems, source)
    extra = {name: as_column(values) for name, values in columns.items() if name not in SCHEMA}
    arrays |= {name: array for name, array in extra.items() if array is not None}
    order = _order(arrays["item_id"], arrays["response"])
    if order is not None:
        arrays = {name: array[order] for name, array in arrays.items()}
    raise_if_any(_inconsistent(arrays), source)
    return arrays


def as_column(values: Any) -> npt.NDArray[Any] | None:
    """Return further values as an array (N,); None if they are neither texts nor numbers nor truth values."""
    array = objects(values)
    if array.dtype.kind != "O":
        return array if array.dtype.kind in "Ubiuf" else None
    listed = array.tolist()
    kinds = {type(value) for value in listed} - {type(None)}
    if not kinds <= {str, int, float, bool}:
        return None
    too_large = any(isinstance(value, int) and abs(value) >= 2**63 for value in listed)
    if str in kinds or too_large:  # Arrow has neither columns of several types nor such numbers
        return objects(None if value is None else str(value) for value in listed)
    return np.array(listed, dtype=np.float64 if None in listed else None)


def objects(values: Any) -> npt.NDArray[Any]:
    """Return values as a column (N,): an array as it is, others as objects."""
    if isinstance(values, np.ndarray) and values.ndim == 1:
        return values
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return np.fromiter(plain, dtype=object, count=len(plain))


def _typed(values: Any, field: Field) -> tuple[npt.NDArray[Any], IntArray]:
    """Return a column with the type of its field, and the rows of bad values."""
    if field.type == "lists":
        lists = as_lists(values)
        return lists, np.flatnonzero([row is None for row in lists])
    array = objects(values)
    if field.type == "string":
        return _texts(array)
    if field.type == "bool" and array.dtype.kind in "OU":
        array = objects({"true": 1, "false": 0}.get(str(value).lower(), value) for value in array)
    numbers, unread = _floats(array)
    wrong = unread | ~((numbers >= field.low) & (numbers <= field.high))
    if field.may_be_empty:
        wrong &= unread | ~np.isnan(numbers)
    if field.type != "double":
        wrong |= numbers != np.round(numbers)
    bad = np.flatnonzero(wrong)
    return (numbers if len(bad) else numbers.astype(_TYPES[field.type], copy=False)), bad


def _floats(array: npt.NDArray[Any]) -> tuple[FloatArray, BoolArray]:
    """Return the numbers of a column, also of texts, with NaN for None, and which values are none."""
    if array.dtype.kind in "fiub":
        return array.astype(np.float64, copy=False), np.zeros(len(array), dtype=bool)
    listed = array.tolist() if array.dtype.kind in "OU" else [()] * len(array)
    numbers = [as_number(value) for value in listed]
    unread = [number is None and value is not None for number, value in zip(numbers, listed, strict=True)]
    return np.array(numbers, dtype=np.float64), np.array(unread, dtype=bool)


def as_number(value: Any) -> float | None:
    """Return a value as a number; None if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _texts(array: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], IntArray]:
    """Return ids as texts, and the rows of bad ones; distinct values are checked once."""
    is_text = array.dtype.kind == "U"
    if is_text and _are_fine(array[starts_of(array)].tolist()):
        return array, _NONE
    listed = array.tolist()
    if not is_text:
        listed = [value if isinstance(value, str | int | float) else None for value in listed]
    texts = {value: _text(value) for value in dict.fromkeys(listed)}
    if None in texts.values():
        return array, np.flatnonzero([texts[value] is None for value in listed])
    return (array if is_text else np.array([texts[value] for value in listed], dtype=np.str_)), _NONE


def _are_fine(texts: list[str]) -> bool:
    """Return whether `_text` would leave all of many texts as they are."""
    short = max(map(len, texts)) <= LONGEST_ID
    return short and all(map(str.strip, texts)) and not _BAD_SIGNS.search("".join(texts))


def _text(value: str | float | None) -> str | None:
    """Return an id or a category as text; None if it cannot be stored unchanged."""
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value) if math.isfinite(value) else None
    text = str(value)
    return None if not text.strip() or len(text) > LONGEST_ID or _BAD_SIGNS.search(text) else text


def _order(item_id: npt.NDArray[np.str_], response: IntArray) -> IntArray | None:
    """Return how to sort rows by prompt and response; None if they are sorted."""
    starts = starts_of(item_id)
    sizes = np.diff(np.r_[starts, len(item_id)])
    in_order = np.array_equal(response, np.arange(len(item_id)) - np.repeat(starts, sizes))
    if in_order and len(np.unique(item_id[starts])) == len(starts):
        return None
    _, first, inverse = np.unique(item_id, return_index=True, return_inverse=True)
    return np.lexsort((response, first[inverse]))


def _inconsistent(arrays: Columns) -> list[str]:
    """Return what is wrong with sorted columns, the first prompt of each kind."""
    item_id, response = arrays["item_id"], arrays["response"]
    starts = starts_of(item_id)
    sizes = np.diff(np.r_[starts, len(item_id)])
    expected = np.arange(len(item_id)) - np.repeat(starts, sizes)
    problems = []
    wrong = np.flatnonzero(response != expected)
    if len(wrong):
        row = int(wrong[0])
        problems.append(
            f"item {str(item_id[row])!r}: response {response[row]} instead of {expected[row]}: number a prompt's "
            "responses 0, 1, 2, ..., each once"
        )
    for name in _OF_THE_PROMPT:
        if name in arrays:
            wrong = np.flatnonzero(arrays[name] != np.repeat(arrays[name][starts], sizes))
            if len(wrong):
                where = _whose(arrays, int(wrong[0]))
                problems.append(f"{name} differs between the responses of a prompt{where}")
    if "beats" in arrays:
        try:
            flat_beats(arrays["beats"], sizes)
        except ValueError as error:
            problems.append(str(error))
    return problems


def _whose(arrays: Mapping[str, npt.NDArray[Any]], row: int) -> str:
    columns = {"item_id": "item", "response": "response"}
    parts = [f"{label} {arrays[name][row].item()!r}" for name, label in columns.items() if name in arrays]
    return f" ({', '.join(parts)})" if parts else ""


def voted_labels(label: FloatArray, votes: IntArray, starts: IntArray) -> FloatArray:
    """Return labels in which the response with most votes is correct; t responses that share them have 1/t each.

    Only prompts change whose labels are unknown, or that have no correct response because votes are tied.
    """
    sizes = np.diff(np.r_[starts, len(label)])
    most = votes == np.repeat(np.maximum.reduceat(votes, starts), sizes)
    leaders = np.add.reduceat(most, starts, dtype=np.int64)
    largest = np.fmax.reduceat(label, starts)
    change = (np.isnan(largest) | ((largest == 0) & (leaders > 1))) & (np.add.reduceat(votes, starts) > 0)
    shared: FloatArray = np.where(np.repeat(change, sizes), most / np.repeat(leaders, sizes), label)
    return shared


def as_lists(values: Iterable[Any]) -> Lists:
    """Return lists of probabilities as a column (N,) of tuples, with None where one is unknown.

    Anything else becomes None.

    >>> as_lists([[float("nan"), 1], [0, None], [7]]).tolist()
    [(None, 1.0), (0.0, None), None]
    """
    return objects([_probabilities(value) for value in values])


def _probabilities(value: Any) -> tuple[float | None, ...] | None:
    try:
        row = np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    if row.ndim != 1 or ((row < 0) | (row > 1)).any():
        return None
    return tuple(None if p != p else p for p in row.tolist())


def flat_beats(column: Lists, sizes: IntArray) -> FloatArray:
    """Return the column as one array (Σ m²,), NaN where unknown; a ValueError names the first bad prompt.

    >>> flat_beats(as_lists([[None, 1], [0, None]]), np.array([2]))
    array([nan,  1.,  0., nan])
    """
    tables, start = [], 0
    for m in sizes.tolist():
        rows = column[start : start + m].tolist()
        if any(len(row) != m for row in rows):
            raise ValueError(f"row {start}: beats needs {m} entries for each of {m} responses")
        p = np.array(rows, dtype=np.float64)
        np.fill_diagonal(p, np.nan)
        if not np.allclose(p, 1 - p.T, rtol=0, atol=_TOLERANCE, equal_nan=True):
            raise ValueError(f"row {start}: beats: P(i beats j) and P(j beats i) must sum to 1")
        tables.append(p.ravel())
        start += m
    return np.concatenate(tables)

"""The columns of scores. Every value is checked; errors name the place and the remedy."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray
from rmcalib._util.texts import LONGEST_ID
from rmcalib.scores._beats import as_lists, is_beats

__all__ = [
    "COLUMNS",
    "DETAIL",
    "KINDS",
    "LARGEST_REWARD",
    "NEEDED",
    "OTHER_KINDS",
    "VOTE_COLUMNS",
    "Place",
    "checked_columns",
    "columns_of_rows",
    "is_known",
    "row_place",
]

Place = Callable[[int], str]
"""Returns the place of a row by its number, such as `row 3` or `line 7`."""

KINDS: dict[str, Any] = {
    "item_id": np.str_,
    "category": np.str_,
    "response": np.int64,
    "is_correct": np.bool_,
    "reward": np.float64,
    "n_tokens": np.int64,
    "truncated": np.bool_,
    "votes": np.int64,
    "ties": np.int64,
    "beats": np.object_,
}
COLUMNS = (*KINDS,)[:7]
"""The columns of every table of scores. Tables with votes or pairs have more."""
NEEDED = COLUMNS[:5]
VOTE_COLUMNS = (*KINDS,)[7:9]
OTHER_KINDS = ("steps", "spread", "quantiles")
"""Columns of other kinds of scores. They are turned into rewards when they are read."""
DETAIL = "judge_"
"""Prefix of columns with other numbers of a judge's answer; NaN if unknown."""
LARGEST_REWARD = 1e100
"""Larger rewards are refused: their differences and squares overflow float64. float32 ends at 3.4e38."""

_EXPECTED = {
    np.str_: "a text",
    np.int64: "a whole number",
    np.bool_: "true or false",
    np.float64: "a finite number",
    np.object_: "a list of probabilities",
}
_SAFE = {
    np.str_: "iu",
    np.int64: "iu",
    np.bool_: "b",
    np.float64: "iu",
    np.object_: "",
}  # dtypes that cannot hold a bad value
_NAMES = {"item_id": "item", "response": "response"}
_ANY_NAME = f"give a number, or a text of 1 to {LONGEST_ID} characters without NUL and lone surrogates"
_REMEDY = {
    "item_id": _ANY_NAME,
    "category": _ANY_NAME,
    "reward": "score it again, or leave its prompt out",
    "response": "number a prompt's responses 0, 1, 2, ...",
    "n_tokens": "leave it out of all rows if lengths are unknown",
    "truncated": "leave it out of all rows if it is unknown",
    "votes": "leave it out of all rows if there are no votes",
    "ties": "leave it out of all rows if there are no votes",
}
_MOST_VOTES = 10**12  # sums of more could overflow
_BAD_SIGNS = re.compile("[\0\ud800-\udfff]")  # numpy drops a final NUL; UTF-8 has no lone surrogates


def is_known(name: object) -> bool:
    """Return whether scores keep a column of this name.

    >>> is_known("reward"), is_known("judge_votes"), is_known("note")
    (True, True, False)
    """
    return name in KINDS or (isinstance(name, str) and name.startswith(DETAIL) and name != DETAIL)


def row_place(row: int) -> str:
    """Name a row by its number, counted from 0.

    >>> row_place(3)
    'row 3'
    """
    return f"row {row}"


def columns_of_rows(
    rows: Iterable[Mapping[str, Any]], *, source: str, place: Place = row_place, missing: bool = False
) -> dict[str, list[Any]]:
    """Turn rows into columns. Optional columns are kept only if every row has them.

    The reward is optional if there are steps, quantiles or pairwise probabilities instead. With ``missing``,
    it may be empty.

    >>> row = {"item_id": "a", "category": "x", "response": 0, "is_correct": True, "reward": None}
    >>> columns_of_rows([row], source="s.jsonl")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ValueError: s.jsonl, row 0: no value for reward (a row needs item_id, category, ...)
    """
    columns: dict[str, list[Any]] = {name: [] for name in (*KINDS, *OTHER_KINDS)}
    details: dict[str, dict[int, Any]] = {}
    present = dict.fromkeys(columns, 0)
    kept: dict[str, str] = {}
    n = 0
    for row in rows:
        for name in row:
            if name not in KINDS and is_known(name) and row[name] is not None:
                details.setdefault(name, {})[n] = row[name]
        n += 1
        for name, values in columns.items():
            value = row.get(name)
            # Ids are repeated for every response; one copy in memory is enough.
            values.append(kept.setdefault(value, value) if isinstance(value, str) else value)
            present[name] += name in row
    for name in VOTE_COLUMNS:  # without them the votes of all others would be lost
        if 0 < present[name] < n:
            row_number = next(i for i, value in enumerate(columns[name]) if value is None)
            raise ValueError(f"{source}, {place(row_number)}: nothing for {name}, which other rows have")
    names = [name for name in columns if name in NEEDED or (n and present[name] == n)]
    if present["reward"] == 0 and {"steps", "quantiles", "beats"} & {*names}:
        names.remove("reward")
    may_be_empty = ("reward", "steps", "quantiles") if missing else ()
    checked = [name for name in names if name not in may_be_empty]
    empty = [columns[name].index(None) for name in checked if None in columns[name]]
    if empty:
        row_number = min(empty)
        absent = [name for name in checked if columns[name][row_number] is None]
        raise ValueError(
            f"{source}, {place(row_number)}: no value for {', '.join(absent)} "
            f"(a row needs {', '.join(names)})"
        )
    filled = {name: [known.get(row, math.nan) for row in range(n)] for name, known in details.items()}
    return {**{name: columns[name] for name in names}, **filled}


def checked_columns(
    columns: Mapping[str, Any], *, source: str, place: Place = row_place
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of scores as typed arrays (N,); a ValueError names the first bad value.

    Whole numbers may be given as 1.0, and truth values as 0 and 1, because tables with missing values store
    them like this. Texts are never converted to numbers or truth values: "false" would become true.

    >>> checked_columns({"response": [0, 1.0], "is_correct": [1, False]}, source="x")["is_correct"].tolist()
    [True, False]
    >>> checked_columns({"is_correct": [1, "no"]}, source="s.jsonl", place=lambda row: f"line {row + 1}")
    Traceback (most recent call last):
    ValueError: s.jsonl, line 2: is_correct is 'no', not true or false
    """
    known = {name: values for name, values in columns.items() if is_known(name)}
    if len({len(values) for values in known.values()}) > 1:
        counts = ", ".join(f"{name} {len(values)}" for name, values in known.items())
        raise ValueError(f"{source}: the columns have different lengths ({counts})")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in sorted(known, key=[*KINDS, *sorted({*known} - {*KINDS})].index):
        try:
            arrays[name] = _checked(name, known[name])
            _check_range(name, arrays[name])
        except _BadValueError as bad:
            row = bad.args[0]
            ours = [f"{label} {arrays[key][row].item()!r}" for key, label in _NAMES.items() if key in arrays]
            about = f" ({', '.join(ours)})" if ours else ""
            raise ValueError(f"{source}, {place(row)}{about}: {bad.args[1]}") from None
    return arrays


class _BadValueError(ValueError):
    """The row of a bad value, and what is wrong with it."""


def _checked(name: str, values: Any) -> npt.NDArray[Any]:
    if name not in KINDS:
        return _details(name, values)
    kind = KINDS[name]
    if isinstance(values, np.ndarray) and values.ndim == 1:
        finite = values.dtype.kind == "f" and kind is np.float64 and bool(np.isfinite(values).all())
        if values.dtype.kind in _SAFE[kind] or finite:
            return values.astype(kind, copy=False)
    if kind is np.str_ and _all_good_texts(values):
        return np.asarray(values, dtype=np.str_)
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    listed = [value.item() if isinstance(value, np.generic) else value for value in plain]
    for row, value in enumerate(listed):
        if not _IS[kind](value):
            remedy = f" ({_REMEDY[name]})" if name in _REMEDY else ""
            raise _BadValueError(row, f"{name} is {_shown(value)}, not {_EXPECTED[kind]}{remedy}")
    if kind is np.object_:
        return as_lists(listed)
    # Converted one by one: numpy would first turn a mixed list into texts.
    return np.array([_TYPES[kind](value) for value in listed], dtype=kind)


def _details(name: str, values: Any) -> FloatArray:
    """Return a column of a judge's details: numbers, with NaN where one is missing."""
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    for row, value in enumerate(plain):
        missing = value is None or (isinstance(value, float) and math.isnan(value))
        if not missing and not _is_number(value):
            raise _BadValueError(row, f"{name} is {_shown(value)}, not a finite number")
    return np.array([math.nan if value is None else value for value in plain], dtype=np.float64)


def _check_range(name: str, array: npt.NDArray[Any]) -> None:
    if name == "reward":
        bad = np.abs(array) > LARGEST_REWARD
        problem = f"is too large (at most {LARGEST_REWARD:g}): divide the rewards by a constant"
    elif name in VOTE_COLUMNS:
        bad, problem = (array < 0) | (array > _MOST_VOTES), f"is not a number of votes (0 to {_MOST_VOTES:,})"
    elif name == "n_tokens":
        bad, problem = array < -1, "is not a number of tokens (0 or more; -1 if it is not known)"
    else:
        return
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise _BadValueError(row, f"{name} is {array[row].item()!r}, which {problem}")


def _all_good_texts(values: Any) -> bool:
    """Check the distinct texts, which are few: every prompt has several rows."""
    if isinstance(values, np.ndarray):
        if values.dtype.kind == "U":
            return all(map(_is_text, dict.fromkeys(values.tolist())))
        if values.dtype.kind != "O":
            return False
    return {*map(type, values)} == {str} and all(map(_is_text, {*values}))


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:  # a whole number of hundreds of digits
        return False


def _is_whole(value: Any) -> bool:
    return _is_number(value) and value == int(value) and abs(value) < 2**63


def _is_text(value: Any) -> bool:
    """Return whether an id or a category can be stored unchanged."""
    if not isinstance(value, str):
        return _is_number(value)
    return value.strip() != "" and len(value) <= LONGEST_ID and not _BAD_SIGNS.search(value)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (_is_number(value) and value in (0, 1))


_IS: dict[Any, Callable[[Any], bool]] = {
    np.str_: _is_text,
    np.int64: _is_whole,
    np.bool_: _is_truth,
    np.float64: _is_number,
    np.object_: is_beats,
}
_TYPES: dict[Any, Callable[[Any], Any]] = {np.str_: str, np.int64: int, np.bool_: bool, np.float64: float}


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

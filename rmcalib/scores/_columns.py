"""The columns of scores, checked value by value: a bad one is told with its place and its remedy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["KINDS", "checked_columns", "row_place"]

Place = Callable[[int], str]
"""Says where the row of that number is: `row 3`, `line 7`."""

KINDS: dict[str, Any] = {
    "item_id": np.str_,
    "category": np.str_,
    "response": np.int64,
    "is_correct": np.bool_,
    "reward": np.float64,
    "n_tokens": np.int64,
    "truncated": np.bool_,
}
_NEEDED = {
    np.str_: "a text",
    np.int64: "a whole number",
    np.bool_: "true or false",
    np.float64: "a finite number",
}
_SAFE = {np.str_: "iuU", np.int64: "iu", np.bool_: "b", np.float64: "iu"}  # dtypes without a bad value
_NAMES = {"item_id": "item", "response": "response"}
_REMEDY = {
    "reward": "score it again, or leave its prompt out",
    "response": "number a prompt's responses 0, 1, 2, ...",
    "n_tokens": "leave it out of all rows if lengths are not known",
    "truncated": "leave it out of all rows if it is not known",
}


def row_place(row: int) -> str:
    """Name a row by its number, from 0 on.

    >>> row_place(3)
    'row 3'
    """
    return f"row {row}"


def checked_columns(
    columns: Mapping[str, Any], *, source: str, place: Place = row_place
) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of scores as arrays (N,) of their types; a ValueError names the first bad value.

    Whole numbers may be written 1.0 and truth values 0 and 1, as tables with missing values have them. Texts
    are never read as numbers or truth values: "false" would be true.

    >>> checked_columns({"response": [0, 1.0], "is_correct": [1, False]}, source="x")["is_correct"].tolist()
    [True, False]
    >>> checked_columns({"is_correct": [1, "no"]}, source="s.jsonl", place=lambda row: f"line {row + 1}")
    Traceback (most recent call last):
    ValueError: s.jsonl, line 2: is_correct is 'no', not true or false
    """
    known = {name: values for name, values in columns.items() if name in KINDS}
    if len({len(values) for values in known.values()}) > 1:
        counts = ", ".join(f"{name} {len(values)}" for name, values in known.items())
        raise ValueError(f"{source}: the columns have different lengths ({counts})")
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name in sorted(known, key=[*KINDS].index):
        try:
            arrays[name] = _checked(name, known[name])
        except _BadValueError as bad:
            row = bad.args[0]
            ours = [f"{told} {arrays[key][row].item()!r}" for key, told in _NAMES.items() if key in arrays]
            about = f" ({', '.join(ours)})" if ours else ""
            raise ValueError(f"{source}, {place(row)}{about}: {bad.args[1]}") from None
    return arrays


class _BadValueError(ValueError):
    """The row of a bad value, and what is wrong with it."""


def _checked(name: str, values: Any) -> npt.NDArray[Any]:
    kind = KINDS[name]
    if isinstance(values, np.ndarray) and values.ndim == 1:
        finite = values.dtype.kind == "f" and kind is np.float64 and bool(np.isfinite(values).all())
        if values.dtype.kind in _SAFE[kind] or finite:
            return values.astype(kind)
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    listed = [value.item() if isinstance(value, np.generic) else value for value in plain]
    for row, value in enumerate(listed):
        if not _IS[kind](value):
            remedy = f" ({_REMEDY[name]})" if name in _REMEDY else ""
            raise _BadValueError(row, f"{name} is {_shown(value)}, not {_NEEDED[kind]}{remedy}")
    # By hand: numpy would turn all of a mixed list into texts first.
    return np.array([_TYPES[kind](value) for value in listed], dtype=kind)


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
    """Tell whether an id or a category can be kept as it is: numpy drops NUL characters at a text's end."""
    return "\0" not in value if isinstance(value, str) else _is_number(value)


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool) or (_is_number(value) and value in (0, 1))


_IS: dict[Any, Callable[[Any], bool]] = {
    np.str_: _is_text,
    np.int64: _is_whole,
    np.bool_: _is_truth,
    np.float64: _is_number,
}
_TYPES: dict[Any, Callable[[Any], Any]] = {np.str_: str, np.int64: int, np.bool_: bool, np.float64: float}


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

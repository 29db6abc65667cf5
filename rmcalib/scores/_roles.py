"""Find the role of each column of a foreign table: by its name, or as the user says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from rmcalib._util.texts import did_you_mean, parse_yaml, repeated
from rmcalib.scores._files import Table
from rmcalib.scores._schema import as_number, objects, raise_if_any

ROLES = ("prompt", "response", "reward", "label", "category", "cluster", "step", "model", "person")
"""The roles of columns: the keys of ``columns`` in `load_scores`."""
SEVERAL = ("reward", "label")
"""Roles that several columns can have: the rewards of a prompt's responses, the ratings of several people."""
Roles = Mapping[str, list[str]]
"""The columns of each role; an empty list if none has it."""
KNOWN: dict[str, Any] = parse_yaml(Path(__file__).with_name("columns.yaml").read_bytes(), "columns.yaml")
"""What columns are called, and the words of labels."""
SAMPLE = 200
"""Rows that decide whether a column fits its name."""
LONGEST_ID = 100
"""Longer prompts are texts, and their digest is their id."""
_LONGEST_RESPONSE = 20  # longer values in a column of responses are texts, not ids
_OURS = ("reward", "label", "is_correct")  # our own names settle which of several columns is meant
_CHOSEN = re.compile(r"(^|_)chosen(_|$)")


def parse_columns(given: str | Mapping[str, Any] | None, more: tuple[str, ...] = ()) -> dict[str, list[str]]:
    """Return the columns of each role: of a mapping, or of a text such as `reward=a+b,label=best`.

    A `-` before a reward turns it round: lower is better. ``more`` are further roles.

    >>> parse_columns("reward=-loss, prompt=prompt_id")
    {'reward': ['-loss'], 'prompt': ['prompt_id']}
    """
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.split(",") if part.strip()]
        wrong = [f"{role}{sign}{name}" for role, sign, name in parts if not sign or not name.strip()]
        if wrong:
            raise ValueError(f"columns: {wrong[0]!r}: expected role=column, such as reward=score")
        given = {role.strip(): name.strip() for role, _, name in parts}
    roles: dict[str, list[str]] = {}
    for role, names in (given or {}).items():
        if role not in (*ROLES, *more):
            raise ValueError(f"columns: unknown {role!r} ({did_you_mean(role, (*ROLES, *more))})")
        split = names.split("+") if isinstance(names, str) else [str(name) for name in names]
        roles[role] = [name.strip() for name in split]
        if len(roles[role]) > 1 and role not in SEVERAL:
            raise ValueError(f"columns: {role}: one column, not {len(roles[role])}")
    both = {*roles.get("reward", ())} & {*roles.get("label", ())}
    if both:
        raise ValueError(f"columns: {both.pop()!r} is the reward and the label; they are different columns")
    return roles


def unknown_names(given: Roles, have: Sequence[str]) -> list[str]:
    """Return a problem for each name of a column that does not exist."""
    return [
        f"no column {name!r} for {role} ({did_you_mean(name, have)})"
        for role, names in given.items()
        for name in names
        if name not in have
    ]


def turned(table: Table, rewards: Iterable[str]) -> Table:
    """Flip the signs of reward columns such as `-loss`, where lower is better, and rename them so."""
    names = {name[1:]: name for name in rewards if name.startswith("-") and name not in table.columns}
    if not names:
        return table
    columns = {
        names.get(name, name): objects(map(_negative, values)) if name in names else values
        for name, values in table.columns.items()
    }
    return replace(table, columns=columns)


def _negative(value: Any) -> Any:
    if isinstance(value, list):
        return [_negative(each) for each in value]
    number = as_number(value)
    return value if number is None else -number


def find_roles(table: Table, stated: Roles, *, wide: bool = False) -> dict[str, list[str]]:
    """Return the columns of each role: those that are stated, and others by their usual names.

    A ``wide`` table has one row per prompt. Everything that is missing or ambiguous goes into one message.
    """
    problems = unknown_names(stated, [*table.columns])
    roles = {role: list(names) for role, names in stated.items()}
    for role in KNOWN["names"]:
        if role in roles or (role == "label" and "ratings" in roles):
            continue
        is_id = role == "prompt" and not wide
        names = prompt_columns(table, stated) if is_id else usual_columns(table, role, stated)
        problems += ambiguous(role, names)
        if names:
            roles[role] = names[:1]
    raise_if_any(problems, table.source)
    raise_if_any(_absent(table, roles, wide=wide), table.source)
    if "model" in roles and "model" not in stated and not wide and _are_authors(table, roles):
        del roles["model"]
    if roles.get("prompt") == roles.get("response"):
        roles.pop("response", None)
    return {role: names for role, names in roles.items() if names}


def usual_columns(table: Table, role: str, stated: Roles) -> list[str]:
    """Return the columns that a role may have by their names and values, in the order of preference."""
    free = free_columns(table, stated)
    return [free[name] for name in KNOWN["names"][role] if name in free and fits(role, table, free[name])]


def prompt_columns(table: Table, stated: Roles) -> list[str]:
    """Return the columns that may be ids of prompts, those last that are ids of rows: no value is there twice."""
    names = usual_columns(table, "prompt", stated)
    return sorted(names, key=lambda name: not have_repeats([table.columns[name]]))


def free_columns(table: Table, stated: Roles) -> dict[str, str]:
    """Return the columns without a stated role, by their plain names."""
    used = {name for names in stated.values() for name in names}
    return {plain(name): name for name in reversed(table.columns) if name not in used}


def ambiguous(role: str, names: Sequence[str]) -> list[str]:
    """Return a problem if several columns may be the reward or the label."""
    if role not in SEVERAL or len(names) < 2 or plain(names[0]) in _OURS:
        return []
    return [f'{role}: could be {" or ".join(names)}; say which: columns="{role}={names[0]}"']


def _absent(table: Table, roles: Roles, *, wide: bool) -> list[str]:
    """Return a problem for each role that a table needs and does not have."""
    have, problems = ", ".join(table.columns), []
    if not {"reward", "steps"} & {*roles} and "beats" not in table.columns:
        problems.append(f'no column of rewards (has {have}); name it: columns="reward=NAME"')
    if "prompt" not in roles and not wide:
        problems.append(f'no column of prompts (has {have}); name it: columns="prompt=NAME"')
    if len(roles.get("label", ())) > 1:
        names = " and ".join(roles["label"])
        problems.append(f"label: {names} need one rating for each response, as the rewards have")
    return problems


def fits(role: str, table: Table, name: str) -> bool:
    """Whether values fit the name of their column: texts of responses are not ids or labels."""
    tests: dict[str, Callable[[Any], bool]] = {
        "response": lambda value: len(str(value)) <= _LONGEST_RESPONSE,
        "label": lambda value: not isinstance(value, str) or len(value) <= LONGEST_ID,
        "model": lambda value: isinstance(value, str) and as_number(value) is None,
        "rewards": lambda value: isinstance(value, list) or as_number(value) is not None,
    }
    sample = [value for value in table.columns[name][:SAMPLE].tolist() if value is not None]
    return role not in tests or all(map(tests[role], sample))


def _are_authors(table: Table, roles: Roles) -> bool:
    """Whether a column `model` says who wrote a response, not who judged it: none is there twice."""
    name = roles["model"][0]
    if name == "judge" or len(set(map(str, table.columns[name]))) == 1:
        return False
    keys = [table.columns[roles[role][0]] for role in ("category", "prompt", "response") if role in roles]
    return "response" not in roles or not have_repeats(keys)


def have_repeats(keys: Iterable[npt.NDArray[Any]]) -> bool:
    """Whether some rows are equal in all these columns."""
    return repeated(zip(*(map(str, values) for values in keys), strict=True)) is not None


def has_lists(table: Table, name: str) -> bool:
    """Whether the cells of a column are lists: one value for each response of a prompt."""
    return any(isinstance(value, list) for value in table.columns[name][:SAMPLE])


def is_chosen(name: str) -> bool:
    """Whether a column is about the chosen response, by its name."""
    return _CHOSEN.search(plain(name)) is not None


def plain(name: str) -> str:
    """Return the name of a column in lower case, with `_` for everything but letters and digits.

    >>> plain(" Reward (A)")
    'reward_a'
    """
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_")


def listed(names: Iterable[str], most: int = 10) -> str:
    """Return names for a message; of many, the first ones."""
    every = list(names)
    return ", ".join([*every[:most], *([f"and {len(every) - most} more"] if len(every) > most else [])])

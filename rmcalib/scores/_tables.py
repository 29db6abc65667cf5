"""Find out what the columns of a foreign table are, and turn it into the columns of `Scores`.

A table is long (one row per response) or wide (one row per prompt: several columns of rewards, or a column of
lists). Columns have a role, which their names give away or the user states. Everything that is missing or
ambiguous goes into one message.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.texts import did_you_mean, parse_yaml, repeated
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._files import Table
from rmcalib.scores._schema import Columns, as_number, objects, raise_if_any
from rmcalib.scores.scale import Labels

ROLES = ("prompt", "response", "reward", "label", "category", "cluster", "step", "model")
"""What a column can be: the keys of ``columns`` in `load_scores`."""
KNOWN: dict[str, Any] = parse_yaml(Path(__file__).with_name("columns.yaml").read_bytes(), "columns.yaml")
"""What columns are called, and the words of labels."""
ROW = "__row__"
"""A column with the row of the source that each response is from."""
_WORDS: dict[str, float] = {word: value for value, words in KNOWN["words"].items() for word in words}
_TIES = {word for word, value in _WORDS.items() if value == 0.5}
_OURS = ("reward", "label", "is_correct")  # our own names settle which of several columns is meant
_CHOSEN, _REJECTED = re.compile(r"(^|_)chosen(_|$)"), re.compile(r"(^|_)rejected(_|\d|$)")
_NUMBERED = re.compile(r"^(reward|score)s?_?(\d+|[a-h])$")
_LONGEST_ID = 100  # longer prompts are texts, and their digest is their id
_LONGEST_RESPONSE = 20  # longer values in a column of responses are texts, not ids
_SAMPLE = 200  # rows that decide whether a column fits its name


def parse_columns(given: str | Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return the columns of each role: of a mapping, or of a text such as `reward=a+b,label=best`.

    A `-` before a reward turns it round: lower is better.

    >>> parse_columns("reward=-loss, prompt=prompt_id")
    {'reward': ['-loss'], 'prompt': ['prompt_id']}
    """
    if isinstance(given, str):
        parts = [part.partition("=") for part in given.split(",") if part.strip()]
        wrong = [f"{role}{sign}{name}" for role, sign, name in parts if not sign or not name.strip()]
        if wrong:
            raise ValueError(f"columns: {wrong[0]!r}: expected role=column, such as reward=score")
        given = {role.strip(): name.strip() for role, _, name in parts}
    found: dict[str, list[str]] = {}
    for role, names in (given or {}).items():
        if role not in ROLES:
            raise ValueError(f"columns: unknown {role!r} ({did_you_mean(role, ROLES)})")
        listed = names.split("+") if isinstance(names, str) else [str(name) for name in names]
        found[role] = [name.strip() for name in listed]
        if len(found[role]) > 1 and role != "reward":
            raise ValueError(f"columns: {role}: one column, not {len(found[role])}")
    return found


def unknown_names(given: Mapping[str, list[str]], have: Sequence[str]) -> list[str]:
    """Return a problem for each name of a column that does not exist."""
    return [
        f"no column {name!r} for {role} ({did_you_mean(name, have)})"
        for role, names in given.items()
        for name in names
        if name not in have
    ]


def turned(table: Table, rewards: Iterable[str]) -> Table:
    """Rename the columns of rewards such as `-loss`, of which lower is better, and turn their numbers round."""
    names = {name[1:]: name for name in rewards if name.startswith("-") and name not in table.columns}
    columns = {
        names.get(name, name): objects(map(_negative, values)) if name in names else values
        for name, values in table.columns.items()
    }
    return replace(table, columns=columns)


def _negative(value: Any) -> Any:
    if isinstance(value, list):
        return [_negative(one) for one in value]
    number = as_number(value)
    return value if number is None else -number


def to_columns(
    table: Table, given: Mapping[str, list[str]]
) -> tuple[dict[str | None, Columns], Labels | None]:
    """Return the columns of `Scores` for each model of a table (None if it names none), and what labels mean.

    A winner, a rank or the id of the best response names the best one; the name of a column of truth values
    may say that each response is correct or not. None if neither tells.
    """
    if not len(table):
        raise ValueError(f"{table.source}: contains no scores")
    table = turned(table, given.get("reward", ()))
    roles = _roles(table, given)
    rows = np.arange(len(table))
    labels = _labels_by_name(roles["label"][0]) if "label" in roles else None
    if _is_wide(table, roles):
        labels = "best" if _names_the_best(table, roles) else labels
        table, roles, rows = _as_long(table, roles)
    models, columns, names_best = _of_long(table, roles)
    labels = "best" if names_best else labels
    used = {name for names in roles.values() for name in names} | {"is_correct"}
    for name, values in table.columns.items():
        if name not in used:
            columns.setdefault("response_text" if name == "response" else name, values)
    columns[ROW] = rows
    if models is None:
        return {None: columns}, labels
    return {
        model: {name: values[models == model] for name, values in columns.items()}
        for model in dict.fromkeys(models.tolist())
    }, labels


def _labels_by_name(name: str) -> Labels | None:
    """Return what the name of a column says about its labels.

    >>> _labels_by_name("is_correct"), _labels_by_name("winner"), _labels_by_name("label")
    ('correct', 'best', None)
    """
    words = {*_plain(name).split("_")}
    found = [meaning for meaning, known in KNOWN["meaning"].items() if words & {*known}]
    return found[0] if len(found) == 1 else None


def _names_the_best(table: Table, roles: Mapping[str, list[str]]) -> bool:
    """Whether the rows of a wide table name their best response: chosen and rejected, or the id of the best."""
    if len(roles["reward"]) > 1 and _is_chosen(roles["reward"][0]):
        return True
    values = table.columns[roles["label"][0]] if "label" in roles else ()
    return any(not isinstance(value, list) and not _is_empty(value) for value in values)


# Which column is what


def _roles(table: Table, given: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the columns of each role."""
    have = [*table.columns]
    problems = unknown_names(given, have)
    found = {role: list(names) for role, names in given.items()}
    named = {name for names in found.values() for name in names}
    free = {_plain(name): name for name in reversed(have) if name not in named}
    if "reward" not in given and "reward" not in have and (rewards := _reward_columns(table, free)):
        found["reward"] = rewards
        free = {plain: name for plain, name in free.items() if name not in rewards}
    several = len(found.get("reward", ())) > 1
    for role, known in KNOWN["names"].items():
        if role in found or (role == "label" and several and _is_chosen(found["reward"][0])):
            continue
        there = [free[name] for name in known if name in free and _fits(role, table.columns[free[name]])]
        if role == "prompt" and not several:  # an id of rows is no id of prompts
            there.sort(key=lambda name: not _repeat([table.columns[name]]))
        if len(there) > 1 and role in ("reward", "label") and _plain(there[0]) not in _OURS:
            problems.append(f"{role}: could be {' or '.join(there)}: say which, --columns {role}={there[0]}")
        if there:
            found[role] = there[:1]
    raise_if_any(problems, table.source)
    wide = _is_wide(table, found)
    if not {"reward", "steps"} & {*found} and "beats" not in have:
        problems.append(f"no column of rewards (has {', '.join(have)}): name it, --columns reward=NAME")
    if "prompt" not in found and not wide:
        problems.append(f"no column of prompts (has {', '.join(have)}): name it, --columns prompt=NAME")
    raise_if_any(problems, table.source)
    if "model" in found and "model" not in given and not wide and _are_authors(table, found):
        del found["model"]
    if found.get("prompt") == found.get("response"):
        found.pop("response", None)
    return found


def _reward_columns(table: Table, free: Mapping[str, str]) -> list[str]:
    """Return the reward columns of a wide table, the chosen one first; none if it is not wide."""
    order = [*table.columns].index
    numeric = {plain: name for plain, name in free.items() if _fits("rewards", table.columns[name])}
    chosen = [name for plain, name in numeric.items() if _CHOSEN.search(plain)]
    rejected = [name for plain, name in numeric.items() if _REJECTED.search(plain)]
    if len(chosen) == 1 and rejected:
        return [*chosen, *sorted(rejected, key=order)]
    numbered = [name for plain, name in numeric.items() if _NUMBERED.match(plain)]
    return sorted(numbered, key=order) if len(numbered) > 1 else []


def _is_wide(table: Table, roles: Mapping[str, list[str]]) -> bool:
    """Whether a row has the rewards of all responses of a prompt: several columns, or a list."""
    names = roles.get("reward", ())
    if len(names) != 1 or "response" in roles:
        return len(names) > 1
    return any(isinstance(value, list) for value in table.columns[names[0]][:_SAMPLE])


def _is_chosen(name: str) -> bool:
    return _CHOSEN.search(_plain(name)) is not None


def _fits(role: str, values: npt.NDArray[Any]) -> bool:
    """Whether values can be what the name of their column says: texts of responses are no ids or labels."""
    fits: dict[str, Callable[[Any], bool]] = {
        "response": lambda value: len(str(value)) <= _LONGEST_RESPONSE,
        "label": lambda value: not isinstance(value, str) or len(value) <= _LONGEST_ID,
        "model": lambda value: isinstance(value, str) and as_number(value) is None,
        "rewards": lambda value: isinstance(value, list) or as_number(value) is not None,
    }
    sample = [value for value in values[:_SAMPLE].tolist() if value is not None]
    return role not in fits or all(map(fits[role], sample))


def _are_authors(table: Table, roles: Mapping[str, list[str]]) -> bool:
    """Whether a column `model` says who wrote a response, not who judged it: none is there twice."""
    name = roles["model"][0]
    if name == "judge" or len(set(map(str, table.columns[name]))) == 1:
        return False
    keys = [table.columns[roles[role][0]] for role in ("category", "prompt", "response") if role in roles]
    return "response" not in roles or not _repeat(keys)


def _repeat(keys: Iterable[npt.NDArray[Any]]) -> bool:
    """Whether some rows are equal in all these columns."""
    return repeated(zip(*(map(str, values) for values in keys), strict=True)) is not None


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_")


# From wide to long


def _as_long(table: Table, roles: Mapping[str, list[str]]) -> tuple[Table, dict[str, list[str]], IntArray]:
    """Turn a table with one row per prompt into one with a row per response, and return whose row each is."""
    names = roles["reward"]
    rewards: list[list[Any]] = [[] for _ in range(len(table))]
    ids: list[list[str]] = [[] for _ in range(len(table))]
    name_of = _response_names(names)
    for name in names:
        for row, value in enumerate(table.columns[name].tolist()):
            for one in value if isinstance(value, list) else [value]:
                ids[row].append(name_of(name) if len(names) > 1 else str(len(ids[row])))
                rewards[row].append(one[0] if isinstance(one, list) and len(one) == 1 else one)
    sizes = np.array([len(own) for own in rewards])
    if not sizes.all():
        raise ValueError(f"{table.source}: {table.place(int(np.argmin(sizes)))}: no rewards")
    rows = np.repeat(np.arange(len(table)), sizes)
    found = {role: own for role, own in roles.items() if role not in ("reward", "label", "response")}
    gone = {name for role in ("reward", "label") for name in roles.get(role, ())}
    gone -= {name for own in found.values() for name in own}
    columns = {name: values[rows] for name, values in table.columns.items() if name not in gone}
    columns["reward"] = objects(value for own in rewards for value in own)
    found["reward"] = ["reward"]
    keys = [table.columns[roles[role][0]] for role in ("category", "prompt") if role in roles]
    if "prompt" not in roles or _repeat(keys):
        if "prompt" in roles:  # one question behind several rows
            found.setdefault("cluster", roles["prompt"])
        columns[ROW], found["prompt"] = rows, [ROW]
    if len(names) > 1 and _is_chosen(names[0]):
        columns["label"] = np.array([float(one == name_of(names[0])) for own in ids for one in own])
    elif "label" in roles:
        columns["label"] = objects(_wide_labels(table, roles["label"][0], ids, name_of))
    if "label" in columns:
        found["label"] = ["label"]
    return Table(columns, table.source, lambda row: table.place(int(rows[row]))), found, rows


def _response_names(rewards: Sequence[str]) -> Callable[[str], str]:
    """Return what shortens the names of reward columns: `reward_a` is `a`, if the others end differently."""
    if repeated(_plain(name).rpartition("_")[2] for name in rewards) is None:
        return lambda name: _plain(name).rpartition("_")[2]
    return _plain


def _wide_labels(
    table: Table, name: str, ids: Sequence[Sequence[str]], name_of: Callable[[str], str]
) -> Iterator[Any]:
    """Yield the labels of responses: each row has a list of them, or the id of its best response."""
    for row, (value, own) in enumerate(zip(table.columns[name].tolist(), ids, strict=True)):
        best = "" if _is_empty(value) else name_of(_id_text(value))
        if isinstance(value, list) and len(value) == len(own):
            yield from value
        elif best in _TIES:
            yield from [1 / len(own)] * len(own)
        elif best in (*own, ""):
            yield from [float(best == one) if best else None for one in own]
        else:
            raise table.error(row, name, f"none of its responses ({', '.join(own)}), nor a list of labels")


# The columns of a long table


def _of_long(
    table: Table, roles: Mapping[str, list[str]]
) -> tuple[npt.NDArray[np.str_] | None, Columns, bool]:
    """Return the model of each row of a table with one row per response, if it has models, and the columns.

    Also return whether its labels name the best response of a prompt.
    """
    names = {role: own[0] for role, own in roles.items()}
    texts = {
        role: _ids(table, names[role]) for role in ("prompt", "category", "model", "cluster") if role in names
    }
    ids, models = texts["prompt"], texts.get("model")
    columns: Columns = {role: texts[role] for role in ("category", "cluster") if role in texts}
    if "category" in texts:  # (category, id) is the id
        keys = [*zip(ids.tolist(), texts["category"].tolist(), strict=True)]
        distinct = [*dict.fromkeys(keys)]
        new = distinct_ids([own for own, _ in distinct], [own for _, own in distinct], keep=("Ties",))
        by_key = dict(zip(distinct, new, strict=True))
        ids = np.array([by_key[key] for key in keys])
    if "step" in names:
        steps = np.array([as_number(value) for value in table.columns[names["step"]]], dtype=np.float64)
        if len(np.unique(steps)) > 1:  # a prompt that returns in a later step is a prompt of its own
            columns.setdefault("cluster", ids)
            at = map(_id_text, steps.tolist())
            ids = np.array([f"{name}@{step}" for name, step in zip(ids.tolist(), at, strict=True)])
        columns["step"] = steps
    columns["item_id"] = ids
    groups = ids if models is None else np.array([f"{m}\n{i}" for m, i in zip(models, ids, strict=True)])
    _, group = np.unique(groups, return_inverse=True)
    columns["response"], as_given = _numbered(table, names.get("response"), group)
    if not as_given:
        name = names["response"]
        columns["response_id" if name == "response" else name] = table.columns[name]
    names_best = False
    if "label" in names:
        columns["label"], names_best = _labels(table, names["label"], names.get("response"), group)
    if "reward" in names:
        columns["reward"] = table.columns[names["reward"]]
    elif "steps" in names:
        columns["steps"] = table.columns[names["steps"]]
    return models, columns, names_best


def _ids(table: Table, name: str) -> npt.NDArray[np.str_]:
    """Return ids as texts; the id of a long text is its digest."""
    texts = []
    for row, value in enumerate(table.columns[name].tolist()):
        text = "" if _is_empty(value) else _id_text(value)
        if not text.strip():
            raise table.error(row, name, "fill it in")
        if len(text) > _LONGEST_ID:
            text = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        texts.append(text)
    return np.array(texts, dtype=np.str_)


def _id_text(value: Any) -> str:
    """Return an id as text; the number 7.0 is 7."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, float) and value != value)


def _numbered(table: Table, name: str | None, group: IntArray) -> tuple[IntArray, bool]:
    """Return the numbers of responses within prompts, and whether they say all that ids say.

    Responses are in the order of their ids if these are numbers, and of their rows otherwise.
    """
    numbers: FloatArray = np.arange(len(group), dtype=np.float64)
    if name is not None:
        keys = [*zip(group.tolist(), map(str, table.columns[name]), strict=True)]
        if (twice := repeated(keys)) is not None:
            problem = "its prompt has two such responses: leave one out, or name another column, "
            raise table.error(keys.index(twice), name, problem + "--columns response=NAME")
        given = np.array([as_number(value) for value in table.columns[name]], dtype=np.float64)
        are_numbers = not np.isnan(given).any()
        numbers = given if are_numbers else numbers
    order, sizes = np.lexsort((numbers, group)), np.bincount(group)
    found = np.empty(len(group), dtype=np.int64)
    found[order] = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Ids that count from 0 or 1 are numbers.
    return found, name is None or (are_numbers and bool(np.isin(given - found, (0, 1)).all()))


def _labels(table: Table, name: str, response: str | None, group: IntArray) -> tuple[FloatArray, bool]:
    """Read labels of responses: truth values, words, the best id, ranks, shares; empty is unknown.

    Also return whether they name the best response: by its id, by ranks, or because some are ties.
    """
    values = table.columns[name].tolist()
    texts = [None if _is_empty(value) else _id_text(value).strip() for value in values]
    words = all(text is None or text.lower() in _WORDS for text in texts)
    if response is not None and (_plain(name) in KNOWN["best"] or not words):
        ids = [_id_text(value) for value in table.columns[response].tolist()]
        own = {*zip(group.tolist(), ids, strict=True)}
        best = {(g, text) for g, text in zip(group.tolist(), texts, strict=True) if text is not None}
        if best <= own and repeated(g for g, _ in best) is None:
            chosen = [np.nan if t is None else float(t == one) for t, one in zip(texts, ids, strict=True)]
            return np.array(chosen), True
    if words:
        labels = np.array([np.nan if text is None else _WORDS[text.lower()] for text in texts])
        return labels, any(text is not None and text.lower() in _TIES for text in texts)
    numbers = [np.nan if text is None else as_number(text) for text in texts]
    found = np.array(numbers, dtype=np.float64)
    if None not in numbers and (first := _first_of_ranks(found, group)) is not None:
        return first, True
    for row, number in enumerate(numbers):
        if number is None or number < 0 or number > 1:
            raise table.error(
                row,
                name,
                "no label: give true or false, 0 or 1, a share from 0 to 1, ranks 1, 2, ..., or the id of the "
                "best response, or name another column, --columns label=NAME",
            )
    return found, False


def _first_of_ranks(values: FloatArray, group: IntArray) -> FloatArray | None:
    """Return shares of first place if the numbers of each prompt are ranks: whole, from 1 to its size."""
    sizes = np.bincount(group)
    if np.isnan(values).any() or (values != np.round(values)).any() or values.max() < 2:
        return None
    least = np.full(len(sizes), np.inf)
    np.minimum.at(least, group, values)
    if (least != 1).any() or (values > sizes[group]).any():
        return None
    first = (values == 1).astype(np.float64)
    shared: FloatArray = first / np.bincount(group, weights=first)[group]
    return shared


def listed(names: Iterable[str], most: int = 10) -> str:
    """Return names for a message; of many, the first ones."""
    known = list(names)
    return ", ".join([*known[:most], *([f"and {len(known) - most} more"] if len(known) > most else [])])

"""Find out what the columns of a foreign table are, and turn it into the columns of `Scores`.

A table is long (one row per response) or wide (one row per prompt, with several rewards). Columns have a
role, which their names give away or the user states. Everything that is missing or ambiguous goes into one
message.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.texts import parse_yaml
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._files import Table
from rmcalib.scores._schema import Problems, as_number, shown, taken

ROLES = ("prompt", "response", "reward", "label", "category", "cluster", "step", "model")
"""What a column can be: the keys of ``columns`` in `load_scores`."""
KNOWN: dict[str, Any] = parse_yaml(Path(__file__).with_name("columns.yaml").read_bytes(), "columns.yaml")
"""What columns are called, and the words of labels."""
_WORDS: dict[str, float] = {word: value for value, words in KNOWN["words"].items() for word in words}
_ONE_OF = ("reward", "label")  # two candidates for these are a question; of others the first is used
_CHOSEN, _REJECTED = re.compile(r"(^|_)chosen(_|$)"), re.compile(r"(^|_)rejected(_|\d|$)")
_NUMBERED = re.compile(r"^(reward|score)s?_?(\d+|[a-h])$")
_MODEL = "__model__"
_LONGEST_ID = 100  # longer prompts are texts, and their digest is their id


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
        if role == "item_id":
            role = "prompt"
        if role == "is_correct":
            role = "label"
        if role not in ROLES:
            near = difflib.get_close_matches(str(role), ROLES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"have: {', '.join(ROLES)}"
            raise ValueError(f"columns: unknown {role!r} ({hint})")
        listed = names.split("+") if isinstance(names, str) else [str(name) for name in names]
        found[role] = [name.strip() for name in listed]
        if len(found[role]) > 1 and role != "reward":
            raise ValueError(f"columns: {role}: one column, not {len(found[role])}")
    return found


def to_columns(
    table: Table, given: Mapping[str, list[str]], cluster: str | None = None
) -> dict[str | None, dict[str, Any]]:
    """Return the columns of `Scores` for each model of a table (None if it names none)."""
    problems = Problems(table.source)
    if not len(table):
        problems.append("contains no scores")
        problems.raise_if_any()
    asked = dict(given) | ({"cluster": [cluster]} if cluster is not None else {})
    roles = _roles(table, asked, problems)
    problems.raise_if_any()
    rows = np.arange(len(table))
    used = {name.removeprefix("-") for names in roles.values() for name in names}
    if "wide" in roles:
        table, roles, rows = _as_long(table, roles, problems)
        used |= {name for names in roles.values() for name in names}
    columns = _of_long(table, roles, problems)
    problems.raise_if_any()
    for name, values in table.columns.items():
        if name not in used and name != "is_correct":
            columns.setdefault("response_text" if name == "response" else name, values)
    columns["__row__"] = rows
    models = columns.pop(_MODEL, None)
    if models is None:
        return {None: columns}
    parts: dict[str | None, dict[str, Any]] = {}
    for model in dict.fromkeys(models.tolist()):
        own = np.flatnonzero(models == model)
        parts[model] = {name: taken(values, own) for name, values in columns.items()}
    return parts


def _roles(table: Table, given: Mapping[str, list[str]], problems: Problems) -> dict[str, list[str]]:
    """Return the columns of each role; `wide` has the reward columns of a wide table."""
    have = [*table.columns]
    found: dict[str, list[str]] = {}
    for role, names in given.items():
        for name in names:
            plain = name.removeprefix("-") if name not in have and role == "reward" else name
            if plain not in have:
                near = difflib.get_close_matches(plain, have, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"has {', '.join(have)}"
                problems.append(f"no column {plain!r} for {role} ({hint})")
        found[role] = list(names)
    taken = {name.removeprefix("-") for names in found.values() for name in names}
    by_name = {_plain(name): name for name in reversed(have) if name not in taken}
    if "reward" not in found and "reward" not in have:
        if several := _reward_columns(table, by_name):
            found["wide"] = several
            by_name = {plain: name for plain, name in by_name.items() if name not in several}
    elif len(found.get("reward", ())) > 1:
        found["wide"] = found.pop("reward")
    for role, known in KNOWN["names"].items():
        if role in found or (role == "reward" and "wide" in found):
            continue
        if role == "label" and "wide" in found and _CHOSEN.search(_plain(found["wide"][0])):
            continue
        there = [by_name[name] for name in known if name in by_name]
        there = [name for name in there if _fits(role, table.columns[name])]
        if role == "prompt" and "wide" not in found:
            there = sorted(there, key=lambda name: not _repeats(table.columns[name]))  # stable
        exact = [name for name in there if _plain(name) in KNOWN["ours"].get(role, ())]
        if len(there) > 1 and role in _ONE_OF and not exact:
            problems.append(f"{role}: could be {' or '.join(there)}: say which, {_option(role, there[0])}")
        if there:
            found[role] = exact[:1] or there[:1]
    if not {"reward", "wide", "steps"} & {*found} and "beats" not in have:
        texts = [by_name[name] for name in KNOWN["names"]["reward"] if name in by_name]
        why = f"; {texts[0]} has values that are not numbers" if texts else ""
        problems.append(f"no column of rewards (has {', '.join(have)}{why}): name it, {_option('reward')}")
    if "prompt" not in found and "wide" not in found and not _is_listed(table, found):
        problems.append(f"no column of prompts (has {', '.join(have)}): name it, {_option('prompt')}")
    if "wide" not in found and _is_listed(table, found):
        found["wide"] = found.pop("reward")
    if "model" in found and "model" not in given and _are_authors(table, found):
        del found["model"]
    if found.get("prompt") == found.get("response") and "prompt" in found:
        del found["response"]
    return found


def _are_authors(table: Table, roles: Mapping[str, list[str]]) -> bool:
    """Whether a column `model` says who wrote a response, not who judged it: none is there twice."""
    name = roles["model"][0]
    if name == "judge" or "wide" in roles or len(set(map(str, table.columns[name]))) == 1:
        return False
    keys = [table.columns[roles[role][0]] for role in ("category", "prompt", "response") if role in roles]
    rows = [*zip(*(map(str, values) for values in keys), strict=True)]
    return "response" not in roles or len(set(rows)) == len(rows)


def _option(role: str, name: str = "NAME") -> str:
    """Return the option that names a column, on the command line and in Python."""
    return f"--columns {role}={name} or columns={{{role!r}: {name!r}}}"


def _plain(name: str) -> str:
    return re.sub(r"\W+", "_", name.strip().lower()).strip("_")


def _repeats(values: Any) -> bool:
    listed = list(map(str, values))
    return len(set(listed)) < len(listed)


def _is_listed(table: Table, roles: Mapping[str, list[str]]) -> bool:
    """Whether the reward is a list with one number per response of a prompt."""
    if len(roles.get("reward", ())) != 1 or "response" in roles:
        return False
    first = next((v for v in table.columns.get(roles["reward"][0], ()) if v is not None), None)
    return isinstance(first, (list, tuple, np.ndarray))


def _fits(role: str, values: Any) -> bool:
    """Whether a column with the name of a role can have it: texts of responses are no rewards or ids."""
    sample = [value for value in values[:200] if value is not None]
    if role == "reward":
        return all(as_number(value) is not None or isinstance(value, (list, np.ndarray)) for value in sample)
    if role == "response":
        return all(as_number(value) is not None or len(str(value)) <= 20 for value in sample)
    if role == "model":
        return all(isinstance(value, str) and as_number(value) is None for value in sample)
    return role != "label" or all(not isinstance(v, str) or len(v) <= _LONGEST_ID for v in sample)


def _reward_columns(table: Table, by_name: Mapping[str, str]) -> list[str]:
    """Return the reward columns of a wide table, the chosen one first; none if it is not wide."""
    numeric = {plain: name for plain, name in by_name.items() if _fits("reward", table.columns[name])}
    chosen = [name for plain, name in numeric.items() if _CHOSEN.search(plain)]
    rejected = [name for plain, name in numeric.items() if _REJECTED.search(plain)]
    if len(chosen) == 1 and rejected:
        return [*chosen, *sorted(rejected, key=[*table.columns].index)]
    numbered = [name for plain, name in numeric.items() if _NUMBERED.match(plain)]
    return sorted(numbered, key=[*table.columns].index) if len(numbered) > 1 else []


def _of_long(table: Table, roles: Mapping[str, list[str]], problems: Problems) -> dict[str, Any]:
    """Return the columns of a table with one row per response."""

    def column(role: str) -> Any:
        return table.columns[roles[role][0]] if role in roles else None

    columns: dict[str, Any] = {}
    ids = _ids(column("prompt"), "prompt", table, problems)
    categories = None if "category" not in roles else _ids(column("category"), "category", table, problems)
    models = None if "model" not in roles else _ids(column("model"), "model", table, problems)
    given = column("response")
    problems.raise_if_any()
    if models is not None:
        columns[_MODEL] = models
    if categories is not None:
        columns["category"] = categories
        rows = dict.fromkeys(zip(ids.tolist(), categories.tolist(), strict=True))
        if len(rows) > len({name for name, _ in rows}):  # (category, id) is the id
            keep = ("Ties",)
            names = distinct_ids([a for a, _ in rows], [b for _, b in rows], keep=keep)
            by_row = dict(zip(rows, names, strict=True))
            ids = np.array([by_row[key] for key in zip(ids.tolist(), categories.tolist(), strict=True)])
    if "cluster" in roles:
        columns["cluster"] = _ids(column("cluster"), "cluster", table, problems)
    if "step" in roles:
        steps = np.array([as_number(value) for value in column("step")], dtype=np.float64)
        if len(np.unique(steps)) > 1:  # a prompt that returns in a later step is a prompt of its own
            columns.setdefault("cluster", ids)
            ids = np.array([f"{name}@{step:g}" for name, step in zip(ids.tolist(), steps, strict=True)])
        columns["step"] = steps
    columns["item_id"] = ids
    groups = ids if models is None else np.array([f"{m}\n{i}" for m, i in zip(models, ids, strict=True)])
    _, group = np.unique(groups, return_inverse=True)
    columns["response"], kept = _numbered(given, group, roles, table, problems)
    if kept is not None:
        name = roles["response"][0]
        columns["response_id" if name == "response" else name] = kept
    if "label" in roles:
        name = roles["label"][0]
        columns["label"] = _labels(column("label"), name, group, given, table, problems)
    if "reward" in roles:
        values, sign = _signed(table, roles["reward"][0])
        columns["reward"] = values if sign > 0 else [None if v is None else -float(v) for v in values]
    if "steps" in roles and "reward" not in roles:
        columns["steps"] = column("steps")
    return columns


def _as_long(
    table: Table, roles: Mapping[str, list[str]], problems: Problems
) -> tuple[Table, dict[str, list[str]], IntArray]:
    """Turn a table with one row per prompt into one with a row per response, and return whose row each is."""
    names = roles["wide"]
    rewards: list[list[Any]] = [[] for _ in range(len(table))]
    owners: list[list[str]] = [[] for _ in range(len(table))]
    for name in names:
        values, sign = _signed(table, name)
        for row, value in enumerate(values):
            many = value.tolist() if isinstance(value, np.ndarray) else value
            for one in many if isinstance(many, (list, tuple)) else [many]:
                number = one[0] if isinstance(one, (list, tuple)) and len(one) == 1 else one
                rewards[row].append(number if sign > 0 or number is None else -float(number))
                owners[row].append(name)
    sizes = np.array([len(own) for own in rewards])
    if (sizes == 0).any():
        problems.append(f"{table.place(int(np.argmin(sizes)))}: no rewards ({(sizes == 0).sum():,} rows)")
        problems.raise_if_any()
    rows = np.repeat(np.arange(len(table)), sizes)
    columns = {name: taken(values, rows) for name, values in table.columns.items()}
    long_roles = {role: own for role, own in roles.items() if role not in ("wide", "label", "prompt")}
    if "prompt" in roles and not _repeats(table.columns[roles["prompt"][0]]):
        long_roles["prompt"] = roles["prompt"]
    else:
        columns["row number"], long_roles["prompt"] = rows, ["row number"]
        if "prompt" in roles:  # one question behind several rows
            long_roles.setdefault("cluster", roles["prompt"])
    columns["reward of a response"] = [value for own in rewards for value in own]
    long_roles["reward"] = ["reward of a response"]
    labels = None
    if _CHOSEN.search(_plain(names[0])) and len(names) > 1:
        labels = np.array([float(name == names[0]) for own in owners for name in own])
    elif "label" in roles:
        labels = _wide_labels(roles["label"][0], names, sizes, table, problems)
    elif "num_correct" in table.columns:
        counts = np.array([as_number(value) for value in columns["num_correct"]], dtype=np.float64)
        labels = (np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) < counts).astype(
            np.float64
        )
    if labels is not None:
        columns["label of a response"], long_roles["label"] = labels, ["label of a response"]
    return Table(columns, table.source, lambda row: table.place(int(rows[row]))), long_roles, rows


def _signed(table: Table, name: str) -> tuple[Any, int]:
    """Return the values of a column of rewards, and -1 for one such as `-loss`, of which lower is better."""
    return (table.columns[name], 1) if name in table.columns else (table.columns[name[1:]], -1)


def _ids(values: Any, name: str, table: Table, problems: Problems) -> npt.NDArray[np.str_]:
    """Return ids as texts; the id of a long text is its digest."""
    texts = []
    for row, value in enumerate(values.tolist() if isinstance(values, np.ndarray) else values):
        if isinstance(value, (list, dict)):
            value = repr(value)
        elif isinstance(value, float) and value.is_integer():
            value = int(value)
        text = "" if value is None or value != value else str(value)
        if not text.strip():
            problems.append(f"{table.place(row)}: {name} is {shown(value)}: fill it in")
            break
        if len(text) > _LONGEST_ID:
            text = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        texts.append(text)
    return np.array(texts, dtype=np.str_)


def _numbered(
    given: Any, group: IntArray, roles: Mapping[str, list[str]], table: Table, problems: Problems
) -> tuple[IntArray, Any]:
    """Return the numbers of responses within prompts, and the ids that are not numbers 0, 1, ..."""
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.r_[True, group[order][1:] != group[order][:-1]])
    within = np.arange(len(group)) - np.repeat(starts, np.diff(np.r_[starts, len(group)]))
    by_appearance = np.empty(len(group), dtype=np.int64)
    by_appearance[order] = within
    if given is None:
        return by_appearance, None
    numbers = [as_number(value) for value in given]
    if all(value is not None and value == int(value) for value in numbers if value == value):
        found = np.array(numbers, dtype=np.float64)
        if not np.isnan(found).any():
            least = np.full(group.max() + 1, np.inf)
            np.minimum.at(least, group, found)
            ranks = found - least[group]
            ordered = np.lexsort((ranks, group))
            if (least <= 1).all() and (ranks[ordered] == within).all():
                return ranks.astype(np.int64), None
    if roles["response"][0] == "response" and all(isinstance(v, (int, np.integer)) for v in given):
        return given, None  # our own column: the schema says what is wrong
    seen: set[tuple[int, str]] = set()
    for row, key in enumerate(zip(group.tolist(), map(str, given), strict=True)):
        if key in seen:
            problems.append(
                f"{table.place(row)}: response {shown(given[row])} of its prompt appears twice: leave one "
                f"out, or name other columns, {_option('response')}"
            )
            break
        seen.add(key)
    return by_appearance, given


def _labels(
    values: Any, name: str, group: IntArray, responses: Any, table: Table, problems: Problems
) -> FloatArray:
    """Read labels of responses: truth values, words, the best id, ranks, shares; empty is unknown."""
    texts = [None if value is None or value != value else str(value).strip() for value in values]
    n_groups = int(group.max()) + 1
    distinct: list[set[str]] = [set() for _ in range(n_groups)]
    own: list[set[str]] = [set() for _ in range(n_groups)]
    for g, text, response in zip(group, texts, responses if responses is not None else texts, strict=True):
        distinct[g] |= {text} if text else set()
        own[g].add(_id_text(response))
    same = all(len(one) <= 1 for one in distinct)
    best = (
        responses is not None
        and same
        and all({_id_text(t) for t in a} <= b for a, b in zip(distinct, own, strict=True))
    )
    words = all(text is None or text.lower() in _WORDS for text in texts)
    if best and (_plain(name) in KNOWN["best"] or not words):
        return np.array(
            [
                np.nan if t is None else float(_id_text(t) == _id_text(r))
                for t, r in zip(texts, responses, strict=True)
            ]
        )
    if words:
        return np.array([np.nan if t is None else _WORDS[t.lower()] for t in texts])
    numbers = [None if text is None else as_number(text) for text in texts]
    bad = [row for row, text in enumerate(texts) if text is not None and numbers[row] is None]
    found = np.array([np.nan if value is None else value for value in numbers], dtype=np.float64)
    if not bad and _are_ranks(found, group):
        return _first_of_ranks(found, group)
    outside = np.flatnonzero((found < 0) | (found > 1))
    if not bad and not len(outside):
        return found
    row = bad[0] if bad else int(outside[0])
    problems.append(
        f"{table.place(row)}: {name} is {shown(values[row])}, which is no label: give true or false, 0 or 1, "
        "a share from 0 to 1, ranks 1, 2, ..., or the id of the best response, or name another column, "
        f"{_option('label')}"
    )
    return found


def _id_text(value: Any) -> str:
    number = as_number(value) if not isinstance(value, str) else None
    return str(int(number)) if number is not None and number == number and number.is_integer() else str(value)


def _are_ranks(values: FloatArray, group: IntArray) -> bool:
    """Whether the numbers of each prompt are ranks: whole, from 1 to at most the number of responses."""
    if np.isnan(values).any() or (values != np.round(values)).any() or values.min() < 1 or values.max() < 2:
        return False
    sizes = np.bincount(group)
    least = np.full(len(sizes), np.inf)
    np.minimum.at(least, group, values)
    return bool((least == 1).all() and (values <= sizes[group]).all())


def _first_of_ranks(values: FloatArray, group: IntArray) -> FloatArray:
    first = (values == 1).astype(np.float64)
    shared: FloatArray = first / np.bincount(group, weights=first)[group]
    return shared


def _wide_labels(
    name: str, names: Sequence[str], sizes: IntArray, table: Table, problems: Problems
) -> FloatArray:
    """Read the best response of each row: the name of a reward column or its end, a letter, or a number."""
    values = table.columns[name]
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    found: list[float] = []
    numbers = {_id_text(v) for v in listed if not isinstance(v, (list, tuple)) and v is not None and v == v}
    from_one = "0" not in numbers and numbers <= {str(i + 1) for i in range(int(sizes.max()))}
    for row, (value, size) in enumerate(zip(listed, sizes.tolist(), strict=True)):
        if isinstance(value, (list, tuple, np.ndarray)):
            many = [_WORDS.get(str(one).lower(), as_number(one)) for one in value]
            if len(many) == size and all(one is not None and 0 <= one <= 1 for one in many):
                found += [float(one) for one in many if one is not None]
                continue
        elif value is None or value != value:
            found += [np.nan] * size
            continue
        text = _plain(_id_text(value))
        if text in ("tie", "tied", "draw", "both"):
            found += [1 / size] * size
            continue
        ends = [j for j, one in enumerate(names) if text in (_plain(one), _plain(one).rpartition("_")[2])]
        letter = "abcdefgh".find(text) if len(text) == 1 else -1
        index = ends[0] if len(ends) == 1 else int(text) - from_one if text.isdigit() else letter
        if not 0 <= index < size:
            problems.append(
                f"{table.place(row)}: {name} is {shown(value)}, which is none of its {size} responses: give "
                "the name of a reward column, a letter, a number from 0, or a list with 0 or 1 for each"
            )
            return np.full(int(sizes.sum()), np.nan)
        found += [float(j == index) for j in range(size)]
    return np.array(found)


def listed(names: Iterable[str], most: int = 10) -> str:
    """Return names for a message; of many, the first ones."""
    known = list(names)
    return ", ".join([*known[:most], *([f"and {len(known) - most} more"] if len(known) > most else [])])

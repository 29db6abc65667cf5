"""The layouts of foreign tables: small readers that turn a table into one with a row per response.

A layout recognises a table, and reads it into a simpler one, which the layouts after it read further:

==============  =====================================================================  ===================
layout          one row has                                                            it becomes
==============  =====================================================================  ===================
nested          a list of objects, `candidates: [{score, correct}]`                    lists
pairs           the rewards of a chosen and of rejected responses                      lists
numbered        `reward_a, reward_b, ...`, and the name of the best one                lists
rated           `rating_1, rating_2, ...`: the ratings of several people               ratings in one column
lists           a list of rewards, and lists of whatever else belongs to responses     a row per response
a server's log  one response that was scored while a model was trained                 a row per response
people          the rating of one response by one person                               a row per response
==============  =====================================================================  ===================

To add one, write two functions and a row of `LAYOUTS`. `recognise` returns what the columns are that show the
layout, by role, or None; `read` returns a simpler table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import IntArray
from rmcalib._util.texts import brief, repeated
from rmcalib.scores._files import Table
from rmcalib.scores._labels import TIES, by_name, id_text, is_empty
from rmcalib.scores._roles import (
    KNOWN,
    SAMPLE,
    Roles,
    ambiguous,
    find_roles,
    fits,
    free_columns,
    has_lists,
    have_repeats,
    is_chosen,
    plain,
    prompt_columns,
    turned,
    unknown_names,
    usual_columns,
)
from rmcalib.scores._schema import Columns, objects, raise_if_any
from rmcalib.scores.scale import Labels

ROW = "__row__"
"""A column with the row of the source that each response is from."""
RATINGS = "__ratings__"
"""A column with the ratings of each response, by person."""
_REJECTED = re.compile(r"(^|_)rejected(_|\d|$)")
_NUMBERED = re.compile(r"^(reward|score)s?_?(\d+|[a-h])$")
_NUMBERED_TEXT = re.compile(r"^(response|completion|answer|output|generation)s?_?(\d+|[a-h])$")
_RATED = re.compile(rf"^({'|'.join([*KNOWN['ratings'], *KNOWN['people']])})_?(\d+|[a-h])$")
_LOG = {"time", "prompt", "response", "reward"}


class Simpler(NamedTuple):
    """A table as a layout was read: its columns, their roles, and what its labels mean if the layout defines it."""

    table: Table
    roles: Roles
    labels: Labels | None = None


@dataclass(frozen=True)
class Layout:
    """A layout of tables: how it is recognised, by the roles of the columns that show it, and how it is read."""

    recognise: Callable[[Table, Roles], Roles | None]
    read: Callable[[Table, Roles], Simpler]


def to_long(table: Table, stated: Roles) -> Simpler:
    """Return a table with one row per response, the roles of some columns, and what its labels mean."""
    roles, labels = stated, None
    for layout in LAYOUTS:
        table = turned(table, roles.get("reward", ()))
        shown = layout.recognise(table, roles)
        if shown is not None:
            table, roles, named = layout.read(table, {**roles, **shown})
            labels = named or labels
    return Simpler(table, roles, labels)


# candidates: [{"score": 1.5, "correct": true}, ...]


def _nested(table: Table, roles: Roles) -> Roles | None:
    """Recognise a column whose cells are lists of objects with a reward."""
    rewards = {name.removeprefix("-") for name in roles.get("reward", ())} or {*KNOWN["names"]["reward"]}
    for name, values in table.columns.items():
        lists = (value for value in values[:SAMPLE].tolist() if isinstance(value, list) and value)
        if isinstance(first := next(lists, [None])[0], dict):
            fields = {*map(str, first)}
            if rewards & {*fields, *map(plain, fields)}:
                return {"nested": [name]}
    return None


def _read_nested(table: Table, roles: Roles) -> Simpler:
    """Turn objects into lists, one for each of their fields; an id in an object is that of a response."""
    (name,) = roles["nested"]
    cells = [value or [] for value in table.columns[name].tolist()]
    for row, cell in enumerate(cells):
        if not isinstance(cell, list) or not all(isinstance(entry, dict) for entry in cell):
            raise table.error(row, name, "expected a list of objects, as in the other rows")
    columns = {other: values for other, values in table.columns.items() if other != name}
    fields = dict.fromkeys(str(field) for cell in cells for entry in cell for field in entry)
    for field in fields:
        taken = field in columns or plain(field) in KNOWN["names"]["prompt"]
        columns[f"{name}_{field}" if taken else field] = objects(
            [[entry.get(field) for entry in cell] for cell in cells]
        )
    left = {role: names for role, names in roles.items() if role != "nested"}
    return Simpler(replace(table, columns=columns), left)


# chosen, rejected


def _pairs(table: Table, roles: Roles) -> Roles | None:
    stated = roles.get("reward")
    if stated is not None:
        return {} if len(stated) > 1 and is_chosen(stated[0]) and {*stated} <= {*table.columns} else None
    numeric = _numeric(table, roles)
    chosen = [name for name in numeric if is_chosen(name)]
    rejected = [name for name in numeric if _REJECTED.search(plain(name))]
    return {"reward": [*chosen, *rejected]} if len(chosen) == 1 and rejected else None


def _numeric(table: Table, roles: Roles) -> list[str]:
    """Return the columns of numbers that have no role yet; none if a column is called `reward`."""
    if "reward" in table.columns:
        return []
    free = {*free_columns(table, roles).values()}
    return [name for name in table.columns if name in free and fits("rewards", table, name)]


def _read_pairs(table: Table, roles: Roles) -> Simpler:
    first, *others = roles["reward"]
    chosen = [_cells(value) for value in table.columns[first].tolist()]
    rejected = _side_by_side(table, others)
    labels = [[1.0] * len(a) + [0.0] * len(b) for a, b in zip(chosen, rejected, strict=True)]
    rewards = [a + b for a, b in zip(chosen, rejected, strict=True)]
    return Simpler(*_with_lists(table, roles, rewards, labels), "best")


def _cells(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _side_by_side(table: Table, names: Sequence[str]) -> list[list[Any]]:
    """Return the values of several columns as one list per row."""
    columns = [table.columns[name].tolist() for name in names]
    return [[cell for value in row for cell in _cells(value)] for row in zip(*columns, strict=True)]


def _with_lists(
    table: Table, roles: Roles, rewards: list[list[Any]], labels: list[list[Any]] | None
) -> tuple[Table, Roles]:
    """Replace columns of rewards and labels by one column of lists each."""
    kept = {role: names for role, names in roles.items() if role not in ("reward", "label", "response")}
    others = {name for names in kept.values() for name in names}
    gone = {name for role in ("reward", "label") for name in roles.get(role, ())} - others
    columns = {name: values for name, values in table.columns.items() if name not in gone}
    columns["reward"] = objects(rewards)
    kept["reward"] = ["reward"]
    if labels is not None:
        columns["label"] = objects(labels)
        kept["label"] = ["label"]
    return replace(table, columns=columns), kept


# reward_a, reward_b, winner


def _numbered(table: Table, roles: Roles) -> Roles | None:
    stated = roles.get("reward")
    if stated is not None:
        return {} if len(stated) > 1 and {*stated} <= {*table.columns} else None
    names = [name for name in _numeric(table, roles) if _NUMBERED.match(plain(name))]
    return {"reward": names} if len(names) > 1 else None


def _read_numbered(table: Table, roles: Roles) -> Simpler:
    name_of = _response_names(roles["reward"])
    ids = [
        [name_of(name) for name in roles["reward"] for _ in _cells(table.columns[name][row])]
        for row in range(len(table))
    ]
    table = _with_texts(table, ids)
    rewards, labels = _side_by_side(table, roles["reward"]), _wide_labels(table, roles)
    lists = {name: [*_label_lists(table, name, ids, name_of)] for name in labels}
    roles = {**roles, "label": labels}
    if len(labels) > 1:  # the votes of several people
        return _with_ratings(*_with_lists(table, roles, rewards, None), _by_response(lists))
    named = _meaning(table, labels[0]) if labels else None
    return Simpler(*_with_lists(table, roles, rewards, lists[labels[0]] if labels else None), named)


def _with_texts(table: Table, ids: Sequence[Sequence[str]]) -> Table:
    """Return a table with a list of the texts of each row's responses, if there is a column for each response."""
    matches = {name: match for name in table.columns if (match := _NUMBERED_TEXT.match(plain(name)))}
    texts = {match[2]: table.columns[name] for name, match in matches.items()}
    if len(texts) < len(matches) or not {*chain(*ids)} <= {*texts}:
        return table
    lists = [[texts[name][row] for name in names] for row, names in enumerate(ids)]
    return replace(table, columns={**table.columns, "response_text": objects(lists)})


def _response_names(rewards: Sequence[str]) -> Callable[[str], str]:
    """Return what shortens the names of reward columns: `reward_a` is `a`, if the others end differently."""
    if repeated(plain(name).rpartition("_")[2] for name in rewards) is None:
        return lambda name: plain(name).rpartition("_")[2]
    return plain


def _wide_labels(table: Table, roles: Roles) -> list[str]:
    """Return the column of labels of a table with one row per prompt, or those of several people."""
    if "label" in roles:
        raise_if_any(unknown_names({"label": roles["label"]}, [*table.columns]), table.source)
        return roles["label"]
    names = usual_columns(table, "label", roles)
    raise_if_any(ambiguous("label", names), table.source)
    return names[:1]


def _meaning(table: Table, label: str) -> Labels | None:
    """Return what labels of a wide table mean: a row that has no list names its best response."""
    values = table.columns[label].tolist()
    names_best = any(not isinstance(value, list) and not is_empty(value) for value in values)
    return "best" if names_best else by_name(label)


def _label_lists(
    table: Table, name: str, ids: Sequence[Sequence[str]], name_of: Callable[[str], str]
) -> Iterator[list[Any]]:
    """Yield the labels of each row's responses: it has a list of them, or the id of its best response."""
    for row, (value, responses) in enumerate(zip(table.columns[name].tolist(), ids, strict=True)):
        text = "" if is_empty(value) else id_text(value)
        best = text if text in responses else name_of(text)
        if isinstance(value, list):
            if len(value) != len(responses):
                raise table.error(row, name, f"expected {len(responses)} labels, one for each reward")
            yield value
        elif best in TIES:
            yield [1 / len(responses)] * len(responses)
        elif best in (*responses, ""):
            yield [float(best == response) if best else None for response in responses]
        else:
            have = f"({', '.join(responses)})"
            raise table.error(row, name, f"none of its responses {have}, nor a list of labels")


# rating_1, rating_2, ...: the ratings of several people


def _rated(table: Table, roles: Roles) -> Roles | None:
    names = roles.get("label", ())
    if len(names) < 2:
        if "label" in roles or usual_columns(table, "label", roles):
            return None
        free = free_columns(table, roles)
        names = [name for name in table.columns if name in free.values() and _RATED.match(plain(name))]
    if len(names) < 2 or not {*names} <= {*table.columns}:
        return None
    reward = _reward(table, roles)
    # In a table with one row per prompt, each cell must have the ratings of all responses.
    alike = reward and all(has_lists(table, name) == has_lists(table, reward) for name in names)
    return {"ratings": [*names]} if alike else None


def _reward(table: Table, roles: Roles) -> str | None:
    """Return the column of rewards, if there is one."""
    names = roles.get("reward") or usual_columns(table, "reward", roles)
    return names[0] if names and names[0] in table.columns else None


def _read_rated(table: Table, roles: Roles) -> Simpler:
    names, reward = roles["ratings"], _reward(table, roles)
    if reward is None or not has_lists(table, reward):
        rows = zip(*(table.columns[name].tolist() for name in names), strict=True)
        return _with_ratings(table, roles, [dict(zip(names, row, strict=True)) for row in rows])
    sizes = [len(_cells(value)) for value in table.columns[reward].tolist()]
    lists = {name: [_cells(value) for value in table.columns[name].tolist()] for name in names}
    for name in names:
        for row, (cell, size) in enumerate(zip(lists[name], sizes, strict=True)):
            if len(cell) != size:
                raise table.error(row, name, f"expected {size} ratings, one for each reward")
    return _with_ratings(table, roles, _by_response(lists))


def _by_response(lists: Mapping[str, Sequence[Sequence[Any]]]) -> list[list[dict[str, Any]]]:
    """Turn the lists of each person, one per row, into the ratings of each response of a row."""
    rows = zip(*lists.values(), strict=True)
    return [[dict(zip(lists, values, strict=True)) for values in zip(*row, strict=True)] for row in rows]


def _with_ratings(table: Table, roles: Roles, ratings: list[Any]) -> Simpler:
    columns = {**table.columns, RATINGS: objects(ratings)}
    left = {role: names for role, names in roles.items() if role != "label"}
    return Simpler(replace(table, columns=columns), {**left, "ratings": [RATINGS]}, "votes")


# scores: [1.5, 0.5], correct: [true, false]


def _lists(table: Table, roles: Roles) -> Roles | None:
    reward = _reward(table, roles)
    if reward is None or not has_lists(table, reward):
        return None
    response = roles.get("response") or usual_columns(table, "response", roles)
    is_long = any(name in table.columns and not has_lists(table, name) for name in response)
    return None if is_long else {}


def _read_lists(table: Table, roles: Roles) -> Simpler:
    """Give each response a row; lists of a row that are as long as its rewards belong to the responses."""
    roles = find_roles(table, roles, wide=True)
    cells = [_cells(value) for value in table.columns[roles["reward"][0]].tolist()]
    sizes = np.array([len(cell) for cell in cells])
    if not sizes.all():
        raise ValueError(f"{table.source}: {table.place(int(np.argmin(sizes)))}: no rewards")
    lists = _of_responses(table, roles, sizes)
    labels, named = None, None
    if "label" in roles:
        label = roles["label"][0]
        ids = _response_ids(roles, lists, sizes)
        named = _meaning(table, label)
        labels = [*_label_lists(table, label, ids, _response_names([label]))]
    rewards = [[value[0] if _is_single(value) else value for value in cell] for cell in cells]
    lists |= {"reward": objects(rewards)} | ({} if labels is None else {"label": objects(labels)})
    table, roles = _with_lists(table, roles, rewards, labels)
    rows = np.repeat(np.arange(len(table)), sizes)
    columns = {
        name: objects([entry for cell in lists[name] for entry in cell]) if name in lists else values[rows]
        for name, values in table.columns.items()
    }
    columns[ROW] = rows
    long = Table(columns, table.source, lambda row: table.place(int(rows[row])))
    return Simpler(long, {**_of_prompts(table, roles), "response": []}, named)


def _is_single(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def _of_responses(table: Table, roles: Roles, sizes: IntArray) -> Columns:
    """Return the columns of lists that are as long as the rewards. A chat of two messages is a prompt."""
    of_prompts = {
        name for role, names in roles.items() if role not in ("response", "ratings") for name in names
    }

    def fit(value: Any, size: int) -> bool:
        return isinstance(value, list) and len(value) == size and not any(isinstance(v, dict) for v in value)

    return {
        name: values
        for name, values in table.columns.items()
        if name == RATINGS or (name not in of_prompts and all(map(fit, values.tolist(), sizes.tolist())))
    }


def _response_ids(roles: Roles, lists: Columns, sizes: IntArray) -> list[list[str]]:
    """Return what the responses of each row are called: by their ids, or by numbers from 0."""
    free = {plain(name): name for name in lists}
    names = roles.get("response") or [free[name] for name in KNOWN["names"]["response"] if name in free]
    if names and names[0] in lists:
        return [[id_text(value) for value in cell] for cell in lists[names[0]]]
    return [[str(number) for number in range(size)] for size in sizes.tolist()]


def _of_prompts(table: Table, roles: Roles) -> Roles:
    """Return roles in which each row of a wide table is a prompt; rows with the same id are one cluster."""
    keys = [table.columns[roles[role][0]] for role in ("category", "prompt") if role in roles]
    if "prompt" in roles and not have_repeats(keys):
        return roles
    cluster = {"cluster": roles["prompt"]} if "prompt" in roles else {}
    return {**cluster, **roles, "prompt": [ROW]}


# The log of `rmcalib serve`: time, step, prompt, response, reward, raw, probability, label


def _server_log(table: Table, roles: Roles) -> Roles | None:
    names = {*table.columns}
    is_log = names >= _LOG and names & {"raw", "probability"}
    if not is_log or "response" in roles:
        return None
    # The optimiser may have got something else than the judge's own number.
    return {"prompt": ["prompt"], "reward": ["raw" if "raw" in names else "reward"], **roles}


def _read_server_log(table: Table, roles: Roles) -> Simpler:
    """Read texts of responses as texts: a policy may give the same short answer twice."""
    columns = {
        "response_text" if name == "response" else name: values for name, values in table.columns.items()
    }
    return Simpler(replace(table, columns=columns), roles)


# One row per person and response


def _people(table: Table, roles: Roles) -> Roles | None:
    free = free_columns(table, roles)

    def column(role: str, names: Sequence[str]) -> list[str]:
        return [*roles.get(role, [free[name] for name in names if name in free][:1])]

    person = column("person", KNOWN["people"])
    response = column("response", KNOWN["names"]["response"])
    rating = column("label", [*KNOWN["ratings"], *KNOWN["names"]["label"]])
    prompt = [*roles.get("prompt", prompt_columns(table, roles)[:1])]
    shown = {"person": person, "response": response, "rating": rating, "prompt": prompt}
    if "ratings" in roles or any(
        len(names) != 1 or names[0] not in table.columns for names in shown.values()
    ):
        return None
    # Correct or not is not a rating: two answers may both be correct.
    is_rating = "label" in roles or by_name(rating[0]) != "correct"
    return shown if is_rating and have_repeats(_keys(table, {**roles, **shown})) else None


def _keys(table: Table, roles: Roles) -> list[npt.NDArray[Any]]:
    """Return the columns that identify responses."""
    free = free_columns(table, roles)
    names = [roles[role][0] for role in ("prompt", "response")]
    for role in ("category", "step", "model"):
        names += roles.get(role, [free[name] for name in KNOWN["names"][role] if name in free])[:1]
    return [table.columns[name] for name in names]


def _read_people(table: Table, roles: Roles) -> Simpler:
    """Keep the first row of each response, with the ratings of all people."""
    person, rating = roles["person"][0], roles["rating"][0]
    stated = {**roles, "label": [rating]}
    reward = [*stated.get("reward", usual_columns(table, "reward", stated)[:1])]
    keys = [*zip(*(map(str, values) for values in _keys(table, roles)), strict=True)]
    first: dict[tuple[str, ...], int] = {}
    ratings: list[dict[str, Any]] = []
    numbers: list[int] = []
    for row, key in enumerate(keys):
        if key not in first:
            first[key] = row
            numbers.append(len(ratings))
            ratings.append({})
        else:
            numbers.append(numbers[first[key]])
        ratings_of, who = ratings[numbers[row]], str(table.columns[person][row])
        if who in ratings_of:
            raise table.error(row, person, "rated the same response twice: leave one of the ratings out")
        ratings_of[who] = table.columns[rating][row]
        for name in reward:
            if str(table.columns[name][row]) != str(table.columns[name][first[key]]):
                before = brief(table.columns[name][first[key]])
                raise table.error(row, name, f"the same response has {before} in an earlier row")
    kept = np.array([*first.values()])
    columns = {name: values[kept] for name, values in table.columns.items() if name not in (person, rating)}
    columns |= {RATINGS: objects(ratings), ROW: table.columns.get(ROW, np.arange(len(table)))[kept]}
    long = Table(columns, table.source, lambda row: table.place(int(kept[row])))
    left = {role: names for role, names in roles.items() if role not in ("person", "rating", "label")}
    if not fits("response", long, left["response"][0]):
        del left["response"]  # texts
    return Simpler(long, {**left, "ratings": [RATINGS]}, "votes")


LAYOUTS = (
    Layout(_nested, _read_nested),
    Layout(_pairs, _read_pairs),
    Layout(_numbered, _read_numbered),
    Layout(_rated, _read_rated),
    Layout(_lists, _read_lists),
    Layout(_server_log, _read_server_log),
    Layout(_people, _read_people),
)
"""In this order: what one reads, the later ones may read further."""

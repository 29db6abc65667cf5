"""Turn a foreign table into the columns of `Scores`.

Its layout is read first (`_layouts`): then it has one row per response. Each column has a role, which
follows from its name or is stated by the user (`_roles`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib._util.texts import digest_of, repeated
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._files import Table, as_numbers
from rmcalib.scores._labels import by_name, id_text, is_empty, read_labels, read_ratings
from rmcalib.scores._layouts import ROW, to_long
from rmcalib.scores._roles import LONGEST_ID, Roles, find_roles
from rmcalib.scores._schema import Columns
from rmcalib.scores.scale import Labels


class Foreign(NamedTuple):
    """The content of a foreign table: columns of `Scores` by model, what labels mean, and notes for the manifest.

    The model is None if the table names none.
    """

    models: dict[str | None, Columns]
    labels: Labels | None
    notes: list[str]


def to_columns(table: Table, given: Mapping[str, list[str]]) -> Foreign:
    """Return the columns of `Scores` for each model of a table, and what its labels mean.

    A winner, a rank or the id of the best response names the best one; the name of a column of truth values
    may say that each response is correct or not; ratings of several people are votes.
    """
    if not len(table):
        raise ValueError(f"{table.source}: contains no scores")
    long, stated, labels = to_long(table, given)
    roles = find_roles(long, stated)
    if labels is None and "label" in roles:
        labels = by_name(roles["label"][0])
    notes: list[str] = []
    columns, models, names_best = _of_long(long, roles, notes)
    labels = "best" if names_best else labels
    used = {name for names in roles.values() for name in names if name != ROW} | {"is_correct"}
    for name, values in long.columns.items():
        if name not in used:
            columns.setdefault(
                "response_text" if name == "response" else name, values if table.typed else as_numbers(values)
            )
    columns.setdefault(ROW, np.arange(len(long)))
    if models is None:
        return Foreign({None: columns}, labels, notes)
    by_model: dict[str | None, Columns] = {
        model: {name: values[models == model] for name, values in columns.items()}
        for model in dict.fromkeys(models.tolist())
    }
    return Foreign(by_model, labels, notes)


def _of_long(
    table: Table, roles: Roles, notes: list[str]
) -> tuple[Columns, npt.NDArray[np.str_] | None, bool]:
    """Return the columns of a table with one row per response, and the model of each row if it has models.

    Also return whether its labels name the best response of a prompt.
    """
    names = {role: columns_of[0] for role, columns_of in roles.items()}
    of_prompts = [role for role in ("prompt", "category", "model", "cluster") if role in names]
    texts: Columns = {role: _ids(table, names[role], notes) for role in of_prompts}
    models = texts.get("model")
    columns: Columns = {role: texts[role] for role in ("category", "cluster") if role in texts}
    steps = table.numbers(names["step"]) if "step" in names else None
    columns |= _prompts(texts, columns.get("cluster"), steps)
    ids = columns["item_id"]
    groups = ids if models is None else np.array([f"{m}\n{i}" for m, i in zip(models, ids, strict=True)])
    _, group = np.unique(groups, return_inverse=True)
    columns["response"], as_given = _numbered(table, names.get("response"), group)
    if not as_given:
        name = names["response"]
        columns["response_id" if name == "response" else name] = table.columns[name]
    names_best = False
    if "label" in names:
        columns["label"], names_best = read_labels(table, names["label"], names.get("response"), group)
    if "ratings" in names:
        columns["votes"], columns["ties"], note = read_ratings(table, names["ratings"], group)
        notes.append(note)
    reward = next((role for role in ("reward", "steps") if role in names), None)
    if reward is not None:
        columns[reward] = table.columns[names[reward]]
    return columns, models, names_best


def _prompts(texts: Columns, cluster: Any, steps: FloatArray | None) -> Columns:
    """Return the ids of prompts. (category, id) is the id; a prompt of a later step is a separate one."""
    columns, ids = {}, texts["prompt"]
    if "category" in texts:
        keys = [*zip(ids.tolist(), texts["category"].tolist(), strict=True)]
        distinct = [*dict.fromkeys(keys)]
        new = distinct_ids(
            [prompt for prompt, _ in distinct], [prompt for _, prompt in distinct], keep=("Ties",)
        )
        by_key = dict(zip(distinct, new, strict=True))
        ids = np.array([by_key[key] for key in keys])
    if steps is not None:
        columns["step"] = steps
        if len(np.unique(steps)) > 1:
            columns |= {"cluster": ids} if cluster is None else {}
            at = map(id_text, steps.tolist())
            ids = np.array([f"{name}@{step}" for name, step in zip(ids.tolist(), at, strict=True)])
    return {**columns, "item_id": ids}


def _ids(table: Table, name: str, notes: list[str]) -> npt.NDArray[np.str_]:
    """Return ids as texts; the id of a long text is its digest. Notes name ids that look alike."""
    values = table.columns[name].tolist()
    texts = []
    for row, value in enumerate(values):
        text = "" if is_empty(value) else id_text(value)
        if not text.strip():
            raise table.error(row, name, "fill it in")
        if len(text) > LONGEST_ID:
            text = digest_of(text)
        texts.append(text)
    notes += _look_alikes(name, values)
    return np.array(texts, dtype=np.str_)


def _look_alikes(name: str, values: Iterable[Any]) -> list[str]:
    """Return notes on a number and a text that are the same id, and on texts that look or read alike."""
    distinct = {value for value in values if isinstance(value, str | int | float)}
    texts = {value for value in distinct if isinstance(value, str)}
    notes = []
    if both := sorted(texts & {id_text(value) for value in distinct - texts}):
        notes.append(
            f"{name}: {both[0]} occurs as a number and as a text; they are read as the same "
            f"({len(both):,} such values)."
        )
    by_look: dict[str, str] = {}
    for text in sorted(texts):
        other = by_look.setdefault(_look(text), text)
        if other != text:
            notes.append(f"{name}: {ascii(other)[:60]} and {ascii(text)[:60]} are read as different.")
            break
    return notes


def _look(text: str) -> str:
    """Return what texts that look or read alike share: 7 and 7.0, the forms of an accented letter, spaces."""
    words = " ".join(unicodedata.normalize("NFKC", text).split())
    number = words.removesuffix(".0")
    return number if number.isdecimal() else words


def _numbered(table: Table, name: str | None, group: IntArray) -> tuple[IntArray, bool]:
    """Return the numbers of responses within prompts, and whether they say all that ids say.

    Responses are in the order of their ids if these are numbers, and of their rows otherwise.
    """
    numbers: FloatArray = np.arange(len(group), dtype=np.float64)
    if name is not None:
        keys = [*zip(group.tolist(), map(str, table.columns[name]), strict=True)]
        if (twice := repeated(keys)) is not None:
            problem = "its prompt has two such responses: leave one out, or name another column, "
            raise table.error(keys.index(twice), name, problem + 'columns="response=NAME"')
        given = table.numbers(name)
        are_numbers = not np.isnan(given).any()
        numbers = given if are_numbers else numbers
    order, sizes = np.lexsort((numbers, group)), np.bincount(group)
    places = np.empty(len(group), dtype=np.int64)
    places[order] = np.arange(len(group)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    # Ids that count from 1 are kept: labels and other judges' scores name responses by them.
    return places, name is None or (are_numbers and bool((given == places).all()))

"""Files of scores that benchmarks publish: RewardBench's `eval-set-scores`, and RewardMATH's.

RewardBench has one object of lists: one entry per prompt, with a list of scores. RewardMATH has two layouts.
The authors publish a JSON list per model, one object per problem, with `problem`, `solution_reference` (who
wrote each solution), `score` (one entry per solution) and, for verdicts, `chosen_position`. The tidy layout
is a table of many models with the columns `model, problem, response, score` or, for verdicts, `model,
problem, rejected, verdict, chosen_position`; response 0 is the correct one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.terminal import count
from rmcalib.benchmarks._entries import known_entry
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._schema import Problems, as_lists, shown

Columns = dict[str, Any]
About = dict[str, Any]
_LISTS = ("id", "subset", "scores", "num_correct")
_ABOUT = ("model", "model_type", "chat_template")
_DEFECT = "Factuality", list(map(str, range(30, 40))), list(map(str, range(10)))
_SCORE_COLUMNS = {"model", "problem", "response", "score"}
_VERDICT_COLUMNS = {"model", "problem", "rejected", "verdict", "chosen_position"}
_CORRECT = "human_to_GPT-4"
_LETTERS = ("A", "B")
_REWARDMATH = {"benchmark": "rewardmath", "benchmark_format": "rewardmath"}


def is_rewardbench(content: Any) -> bool:
    """Return whether the content of a JSON file has RewardBench's layout."""
    return isinstance(content, Mapping) and all(name in content for name in _LISTS)


def rewardbench_columns(content: Any, source: str) -> tuple[Columns, About]:
    """Return the columns of scores and the manifest of RewardBench's layout; correct responses come first."""
    lists = [content[name] for name in _LISTS if name in content] if isinstance(content, Mapping) else []
    equal = len({len(values) for values in lists if isinstance(values, list)}) == 1
    if len(lists) < len(_LISTS) or not equal or not all(isinstance(values, list) for values in lists):
        raise ValueError(f"{source}: not RewardBench scores ({', '.join(_LISTS)} as lists of one length)")
    problems = Problems(source)
    for name in ("id", "subset"):
        for i, value in enumerate(content[name]):
            if isinstance(value, bool) or not isinstance(value, (str, int)) or value == "":
                problems.append(f"{name} {i}: {shown(value)} is not a text")
    problems.raise_if_any()
    ids, categories = [str(one) for one in content["id"]], [str(one) for one in content["subset"]]
    about: About = {"source": source, "benchmark_format": "reward-bench-2"}
    about |= {key: content[key] for key in _ABOUT if key in content}
    ids, repaired = _repaired_ids(ids, categories)
    if repaired:
        about["repaired_ids"] = repaired
        about["notes"] = [f"{repaired} ids of Factuality that the file has wrong (30 to 39) were repaired."]
    keep = known_entry("reward-bench-2").no_single_answer
    names = distinct_ids(ids, categories, keep=keep)
    problems += [
        f"the id {name!r} appears {times} times" for name, times in Counter(names).items() if times > 1
    ][:5]
    columns: Columns = {name: [] for name in ("item_id", "category", "response", "label", "reward")}
    for name, category, scores, n_correct in zip(names, categories, *lists[2:], strict=True):
        if not isinstance(scores, list):
            raise ValueError(f"{source}, id {name!r}: no scores (a generative judge gives none)")
        if isinstance(n_correct, bool) or not isinstance(n_correct, int) or n_correct < 1:
            problems.append(f"id {name!r}: num_correct is {shown(n_correct)}, not a positive whole number")
            continue
        for i, score in enumerate(scores):
            while isinstance(score, list) and len(score) == 1:
                score = score[0]
            if isinstance(score, bool) or not isinstance(score, (int, float)):
                problems.append(f"id {name!r}: score {i} is {shown(score)}, not a number")
            row = (name, category, i, float(i < n_correct), score)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    problems.raise_if_any()
    return columns, about


def _repaired_ids(ids: list[str], categories: Sequence[str]) -> tuple[list[str], int]:
    """Undo the known defect of published files: the first ten ids of Factuality are 30 to 39, not 0 to 9."""
    category, wrong, right = _DEFECT
    own = [i for i, name in enumerate(categories) if name == category]
    found = [ids[i] for i in own]
    if found[:10] != wrong or not {*wrong} <= {*found[10:]} or {*right} & {*found}:
        return ids, 0
    repaired = list(ids)
    for i, name in zip(own[:10], right, strict=True):
        repaired[i] = name
    return repaired, len(right)


def is_rewardmath(content: Any) -> bool:
    """Return whether the content of a JSON file has RewardMATH's own layout."""
    keys = {"problem", "solution_reference", "score"}
    return (
        isinstance(content, list) and bool(content) and isinstance(content[0], dict) and keys <= {*content[0]}
    )


def is_rewardmath_table(columns: Mapping[str, Any]) -> bool:
    """Return whether a table has RewardMATH's tidy layout of many models (which has no labels)."""
    names = {*columns}
    return names >= _VERDICT_COLUMNS or (names >= _SCORE_COLUMNS and not {"label", "is_correct"} & names)


def rewardmath_columns(content: Sequence[Any], source: str) -> tuple[Columns, About]:
    """Return the columns and the manifest of a file in RewardMATH's own layout.

    >>> row = {"problem": "1 + 1", "solution_reference": ["human_to_GPT-4", "b"], "score": [10, 3]}
    >>> columns, about = rewardmath_columns([row], "x.json")
    >>> columns["reward"], about["scale"]
    ([10, 3], 'ratings')
    """
    found: dict[str, list[Any]] = {}
    problems = Problems(source)
    verdicts = isinstance(content[0], dict) and "chosen_position" in content[0]
    for number, row in enumerate(content):
        authors, scores, places = (
            (row.get(name) for name in ("solution_reference", "score", "chosen_position"))
            if isinstance(row, dict)
            else (None, None, None)
        )
        where = f"entry {number}"
        if not (isinstance(authors, list) and isinstance(scores, list) and len(authors) == len(scores)):
            problems.append(f"{where}: expected lists solution_reference and score of one length")
        elif verdicts:
            if not isinstance(places, list) or len(places) != len(scores) or {*places} - {*_LETTERS}:
                problems.append(
                    f"{where}: chosen_position: expected A or B for each score, got {shown(places)}"
                )
            else:
                found.setdefault(repr((row["problem"], authors)), list(zip(scores, places, strict=True)))
        elif authors.count(_CORRECT) != 1 or len(scores) < 2:
            problems.append(f"{where}: expected one solution by {_CORRECT} (the correct one) and another")
        else:
            first = authors.index(_CORRECT)
            ordered = [scores[first], *scores[:first], *scores[first + 1 :]]
            found.setdefault(repr((row["problem"], authors)), ordered)
    problems.raise_if_any()
    columns, about = (_verdicts if verdicts else _scores)(dict(enumerate(found.values())))
    if repeated := len(content) - len(found):
        note = f"{count(repeated, 'problem')} repeated in the file; only the first of each is used."
        about["notes"] = [note, *about.get("notes", [])]
    return columns, about


def rewardmath_models(table: Mapping[str, Sequence[Any]], source: str) -> dict[str, tuple[Columns, About]]:
    """Return columns and manifest of each model of a tidy table.

    >>> table = {"model": ["m"] * 2, "problem": [0, 0], "response": [0, 1], "score": [[2.5], [1.0]]}
    >>> rewardmath_models(table, "x.parquet")["m"][0]["reward"]
    [2.5, 1.0]
    """
    verdicts = "verdict" in table
    number, first = ("rejected", 1) if verdicts else ("response", 0)
    values = [*zip(table["verdict"], table["chosen_position"], strict=True)] if verdicts else table["score"]
    found: dict[str, dict[Any, dict[int, Any]]] = {}
    problems = Problems(source)
    rows = zip(table["model"], table["problem"], table[number], values, strict=True)
    for row, (model, problem, place, value) in enumerate(rows):
        if not isinstance(model, str) or not isinstance(problem, (str, int, np.integer)) or place != place:
            problems.append(f"row {row}: expected a model, a problem and a number {number}")
            continue
        if not isinstance(place, (int, float, np.number)) or isinstance(place, bool) or int(place) != place:
            problems.append(f"row {row}: {number} is {shown(place)}, not a whole number")
            continue
        if verdicts and value[1] not in _LETTERS:
            problems.append(f"row {row}: chosen_position is {shown(value[1])}, not A or B")
        own = found.setdefault(str(model), {}).setdefault(problem, {})
        if int(place) in own:
            problems.append(f"row {row}: {number} {place} of problem {problem} appears twice")
        own[int(place)] = value
    for model, by_problem in found.items():
        for problem, own in by_problem.items():
            if sorted(own) != [*range(first, len(own) + first)]:
                problems.append(f"{model}, problem {problem}: {number} has gaps: {sorted(own)}")
    problems.raise_if_any()
    if not found:
        raise ValueError(f"{source}: the table has no rows")
    result = {}
    for model, by_problem in found.items():
        columns, about = (_verdicts if verdicts else _scores)(
            {key: [own[i] for i in sorted(own)] for key, own in by_problem.items()}
        )
        # The same judge may be in both kinds of tables.
        name = f"{model} (pairs)" if verdicts else model
        result[name] = (columns, {"model": name, **about})
    return result


def star(wins: Sequence[Sequence[float | None]]) -> npt.NDArray[np.object_]:
    """Return the column `beats` for comparisons of the first response of each prompt with all its others.

    ``wins`` are P(response 0 beats response j) for j = 1, 2, ... of each prompt; None if unknown.

    >>> star([[1.0, 0.25]]).tolist()
    [(None, 1.0, 0.25), (0.0, None, None), (0.75, None, None)]
    """
    rows: list[list[float | None]] = []
    for own in wins:
        rows.append([None, *own])
        rows += [[None if p is None else 1 - p, *[None] * len(own)] for p in own]
    return as_lists(rows)


def _scores(problems: Mapping[Any, Sequence[Any]]) -> tuple[Columns, About]:
    """Return columns of rewards, ratings or step scores."""
    values = [
        value.tolist() if hasattr(value, "tolist") else value for own in problems.values() for value in own
    ]
    about: About = dict(_REWARDMATH)
    if any(isinstance(value, list) and len(value) != 1 for value in values):
        return _rows(problems) | {"steps": values}, about
    rewards = [value[0] if isinstance(value, list) else value for value in values]
    numbers = [value for value in rewards if isinstance(value, (int, float)) and value == value]
    if all(0 <= value <= 10 and value == int(value) for value in numbers):
        about |= {"scale": "ratings", "score_kind": "ratings"}
    return _rows(problems) | {"reward": rewards}, about


def _verdicts(problems: Mapping[Any, Sequence[tuple[Any, Any]]]) -> tuple[Columns, About]:
    """Return columns of verdicts on pairs. A verdict that is not a letter counts as half a win."""
    wins = [[_win(*pair) for pair in own] for own in problems.values()]
    columns = _rows({key: [None, *own] for key, own in problems.items()}) | {"beats": star(wins)}
    # The correct response has the largest reward if it wins all its comparisons.
    columns["reward"] = [reward for own in wins for reward in (0.0, *(0.5 - p for p in own))]
    pairs = [pair for own in problems.values() for pair in own]
    unclear = sum(verdict not in _LETTERS for verdict, _ in pairs)
    right = {
        letter: [_win(verdict, place) for verdict, place in pairs if place == letter] for letter in _LETTERS
    }
    at = {f"right_at_{letter}": sum(own) / len(own) for letter, own in right.items() if own}
    notes = ["Its verdicts on two responses have no probabilities: each counts as certain."]
    if unclear:
        notes.append(
            f"{unclear:,} of {len(pairs):,} verdicts name neither response; each counts as undecided."
        )
    if len(at) == 2:
        notes.append(
            f"It is right in {at['right_at_A']:.0%} of the pairs that show the correct response first, "
            f"and in {at['right_at_B']:.0%} of those that show it second."
        )
    counts = {"pairs": len(pairs), "unclear": unclear, **at}
    return columns, _REWARDMATH | {
        "score_kind": "pairs",
        "scale": "pairs",
        "verdicts": counts,
        "notes": notes,
    }


def _win(verdict: Any, position: Any) -> float:
    return 0.5 if verdict not in _LETTERS else float(verdict == position)


def _rows(problems: Mapping[Any, Sequence[Any]]) -> Columns:
    sizes = [len(own) for own in problems.values()]
    return {
        "item_id": [str(key) for key, own in problems.items() for _ in own],
        "category": ["MATH"] * sum(sizes),
        "response": [i for size in sizes for i in range(size)],
        "label": [float(i == 0) for size in sizes for i in range(size)],
    }

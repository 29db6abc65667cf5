"""Scores in RewardMATH's form: rewards, ratings, step scores or verdicts, of one model or of many.

Two shapes. Its authors publish a JSON list per model, one object per problem, with `problem`,
`solution_reference` (who wrote each solution), `score` (one entry per solution) and, for verdicts,
`chosen_position`. The tidy shape is a table of many models with the columns `model, kind, problem, response,
score` or, for verdicts, `model, problem, rejected, verdict, chosen_position`; response 0 is the correct one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rmcalib._util.terminal import count
from rmcalib.scores._beats import star

__all__ = ["SCORE_COLUMNS", "VERDICT_COLUMNS", "is_rewardmath", "models_of_list", "models_of_table"]

Columns = dict[str, Any]
About = dict[str, Any]
SCORE_COLUMNS = ("model", "problem", "response", "score")
VERDICT_COLUMNS = ("model", "problem", "rejected", "verdict", "chosen_position")
BENCHMARK, _CATEGORY, _CORRECT = "rewardmath", "MATH", "human_to_GPT-4"
_LETTERS = ("A", "B")


def is_rewardmath(content: Any) -> bool:
    """Return whether the content of a JSON file has RewardMATH's shape.

    >>> is_rewardmath([{"problem": "1 + 1", "solution_reference": ["a"], "score": [1]}]), is_rewardmath({})
    (True, False)
    """
    keys = {"problem", "solution_reference", "score"}
    return (
        isinstance(content, list)
        and bool(content)
        and isinstance(content[0], Mapping)
        and keys <= {*content[0]}
    )


def models_of_list(content: Sequence[Any], source: str) -> tuple[Columns, About]:
    """Return the columns and the manifest of a file in RewardMATH's own shape.

    >>> row = {"problem": "1 + 1", "solution_reference": ["human_to_GPT-4", "b"], "score": [10, 3]}
    >>> columns, about = models_of_list([row], "x.json")
    >>> columns["reward"], about["scale"]
    ([10, 3], 'ratings')
    """
    rows: list[Mapping[str, Any]] = []
    seen: set[str] = set()
    repeated = 0
    for number, row in enumerate(content):
        where = f"{source}, entry {number}"
        authors, scores = (
            (row.get("solution_reference"), row.get("score")) if isinstance(row, Mapping) else (None, None)
        )
        if not (isinstance(authors, list) and isinstance(scores, list) and len(authors) == len(scores)):
            raise ValueError(f"{where}: expected lists solution_reference and score of one length")
        name = repr((row.get("problem"), row["solution_reference"]))
        repeated += name in seen
        if name not in seen:
            rows.append({**row, "where": where})
        seen.add(name)
    notes = (
        [f"In the file twice: {count(repeated, 'problem')}; the second one is left out."] if repeated else []
    )
    if "chosen_position" in rows[0]:
        columns, about = _verdicts({i: _pairs_of(row) for i, row in enumerate(rows)})
    else:
        columns, about = _scores({i: _ordered(row) for i, row in enumerate(rows)})
    return columns, {**about, "notes": [*notes, *about.get("notes", [])]}


def models_of_table(table: Mapping[str, Sequence[Any]], source: str) -> dict[str, tuple[Columns, About]]:
    """Return columns and manifest of each model of a tidy table.

    >>> table = {"model": ["m"] * 2, "problem": [0, 0], "response": [0, 1], "score": [[2.5], [1.0]]}
    >>> models_of_table(table, "x.parquet")["m"][0]["reward"]
    [2.5, 1.0]
    """
    found: dict[str, dict[Any, dict[int, Any]]] = {}
    verdicts = "verdict" in table
    number = "rejected" if verdicts else "response"
    value: Iterable[Any] = (
        zip(table["verdict"], table["chosen_position"], strict=True) if verdicts else table["score"]
    )
    for row, (model, problem, place, own) in enumerate(
        zip(table["model"], table["problem"], table[number], value, strict=True)
    ):
        _check_row(f"{source}, row {row}", model=model, problem=problem, **{number: place})
        problems = found.setdefault(str(model), {}).setdefault(problem, {})
        if int(place) in problems:
            raise ValueError(f"{source}, row {row}: {number} {place} of problem {problem} is there twice")
        problems[int(place)] = own
        if verdicts and own[1] not in _LETTERS:
            raise ValueError(f"{source}, row {row}: chosen_position is {own[1]!r}, not A or B")
    if not found:
        raise ValueError(f"{source}: a table without rows")
    result = {}
    for model, problems in found.items():
        for problem, own in problems.items():
            if sorted(own) != list(range(int(verdicts), len(own) + int(verdicts))):
                raise ValueError(f"{source}: {model}, problem {problem}: {number} has gaps: {sorted(own)}")
        ordered = {key: [own[i] for i in sorted(own)] for key, own in problems.items()}
        columns, about = (_verdicts if verdicts else _scores)(ordered)
        # Many judges are in both kinds of tables.
        name = f"{model} (pairs)" if verdicts else model
        result[name] = (columns, {"model": name, **about})
    return result


def _check_row(where: str, **values: Any) -> None:
    """Refuse a row of a tidy table whose model, problem or number of a response cannot be used."""
    for name, value in values.items():
        if name in ("model", "problem"):
            if isinstance(value, bool) or not isinstance(value, (str, int)):
                raise ValueError(f"{where}: {name} is {value!r}, not a text or a whole number")
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or value % 1 != 0:
            raise ValueError(f"{where}: {name} is {value!r}, not a whole number")


def _ordered(row: Mapping[str, Any]) -> list[Any]:
    """Scores of a problem, the correct solution first."""
    authors, scores = row["solution_reference"], row["score"]
    if authors.count(_CORRECT) != 1 or len(scores) < 2:
        raise ValueError(
            f"{row['where']}: expected one solution by {_CORRECT} (the correct one) and at least one other"
        )
    first = authors.index(_CORRECT)
    return [scores[first], *scores[:first], *scores[first + 1 :]]


def _pairs_of(row: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    places = row.get("chosen_position")
    if not isinstance(places, list) or len(places) != len(row["score"]):
        raise ValueError(f"{row['where']}: expected a list chosen_position with one entry per score")
    wrong = [place for place in places if place not in _LETTERS]
    if wrong:
        raise ValueError(f"{row['where']}: chosen_position is {wrong[0]!r}, not A or B")
    return list(zip(row["score"], places, strict=True))


def _scores(problems: Mapping[Any, Sequence[Any]]) -> tuple[Columns, About]:
    """Columns of rewards, ratings or step scores."""
    values = [_plain(value) for own in problems.values() for value in own]
    lists = [value for value in values if isinstance(value, list)]
    about: About = {"benchmark": BENCHMARK, "benchmark_format": BENCHMARK}
    if lists and any(len(value) != 1 for value in lists):
        return _rows(problems) | {"steps": values}, about
    rewards = [value[0] if isinstance(value, list) else value for value in values]
    numbers = [value for value in rewards if isinstance(value, (int, float)) and value == value]
    if all(0 <= value <= 10 and value == int(value) for value in numbers):
        about |= {"scale": "ratings", "score_kind": "ratings"}
    return _rows(problems) | {"reward": rewards}, about


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _verdicts(problems: Mapping[Any, Sequence[tuple[Any, Any]]]) -> tuple[Columns, About]:
    """Columns of verdicts on pairs. One that is not a letter counts as undecided: half a win."""
    wins = [[_win(*pair) for pair in own] for own in problems.values()]
    columns = _rows({key: [None, *own] for key, own in problems.items()}) | {"beats": star(wins)}
    # The correct response has the largest reward if it wins all its comparisons.
    columns["reward"] = [reward for own in wins for reward in (0.0, *(0.5 - p for p in own))]
    pairs = [pair for own in problems.values() for pair in own]
    unclear = sum(verdict not in _LETTERS for verdict, _ in pairs)
    about: About = {
        "benchmark": BENCHMARK,
        "benchmark_format": BENCHMARK,
        "score_kind": "pairs",
        "scale": "pairs",
        "verdicts": {"pairs": len(pairs), "unclear": unclear, **_by_position(pairs)},
    }
    return columns, {**about, "notes": _verdict_notes(about["verdicts"])}


def _win(verdict: Any, position: Any) -> float:
    return 0.5 if verdict not in _LETTERS else float(verdict == position)


def _by_position(pairs: Sequence[tuple[Any, Any]]) -> dict[str, float]:
    """How often the verdict is right, if the correct response is shown first, and if it is shown second."""
    found = {}
    for letter in _LETTERS:
        wins = [_win(verdict, place) for verdict, place in pairs if place == letter]
        if wins:
            found[f"right_at_{letter}"] = sum(wins) / len(wins)
    return found


def _verdict_notes(counts: Mapping[str, Any]) -> list[str]:
    notes = ["Its verdicts on two responses have no probabilities: each counts as certain."]
    if counts["unclear"]:
        notes.append(
            f"{counts['unclear']:,} of {counts['pairs']:,} verdicts name neither response; each counts as "
            "undecided."
        )
    if "right_at_A" in counts and "right_at_B" in counts:
        notes.append(
            f"It is right in {counts['right_at_A']:.0%} of the pairs that show the correct response first, "
            f"and in {counts['right_at_B']:.0%} of those that show it second."
        )
    return notes


def _rows(problems: Mapping[Any, Sequence[Any]]) -> Columns:
    sizes = [len(own) for own in problems.values()]
    return {
        "item_id": [str(key) for key, own in problems.items() for _ in own],
        "category": [_CATEGORY] * sum(sizes),
        "response": [i for size in sizes for i in range(size)],
        "is_correct": [i == 0 for size in sizes for i in range(size)],
    }

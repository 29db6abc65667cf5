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
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from annotated_types import Ge, Len
from pydantic import BeforeValidator, Strict
from typing_extensions import TypedDict

from rmcalib._util.terminal import count
from rmcalib._util.texts import typed
from rmcalib.benchmarks._entries import known_entry
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._files import Table
from rmcalib.scores._schema import Problems, as_lists, shown
from rmcalib.scores._tables import to_columns

Columns = dict[str, Any]
About = dict[str, Any]
_ABOUT = ("model", "model_type", "chat_template")
_DEFECT = "Factuality", list(map(str, range(30, 40))), list(map(str, range(10)))
_CORRECT = "human_to_GPT-4"
_LETTERS = ("A", "B")
_REWARDMATH = {"benchmark": "rewardmath", "benchmark_format": "rewardmath"}


class NoScoresError(ValueError):
    """A published file of a generative judge, which gives no scores."""


def _single(value: Any) -> Any:
    """Return the number in nested lists of one element."""
    while isinstance(value, list) and len(value) == 1:
        value = value[0]
    return value


_Text = Annotated[str, Strict(), Len(1)] | Annotated[int, Strict()]
_Score = Annotated[float, Strict(), BeforeValidator(_single)]


class RewardBenchFile(TypedDict):
    """The lists of a file in RewardBench's layout."""

    id: list[_Text]
    subset: list[_Text]
    scores: list[Annotated[list[_Score], Len(1)]]
    num_correct: list[Annotated[int, Strict(), Ge(1)]]


def is_rewardbench(content: Any) -> bool:
    """Return whether the content of a JSON file has RewardBench's layout."""
    return isinstance(content, Mapping) and all(name in content for name in RewardBenchFile.__annotations__)


def rewardbench_columns(content: Any, source: str) -> tuple[Columns, About]:
    """Return the columns of scores and the manifest of RewardBench's layout; correct responses come first."""
    if not is_rewardbench(content):
        raise ValueError(f"{source}: not RewardBench scores")
    scored = content["scores"]
    if isinstance(scored, list) and any(own is None for own in scored):
        raise NoScoresError(f"{source}: prompts without scores (a generative judge gives none)")
    file = typed(RewardBenchFile, content, source)
    n = len(file["id"])
    if not n == len(file["subset"]) == len(file["scores"]) == len(file["num_correct"]):
        raise ValueError(f"{source}: its lists have different lengths")
    about: About = {"source": source, "benchmark_format": "reward-bench-2"}
    about |= {key: content[key] for key in _ABOUT if key in content}
    categories = [str(one) for one in file["subset"]]
    ids, repaired = _repaired_ids([str(one) for one in file["id"]], categories)
    if repaired:
        about["repaired_ids"] = repaired
        about["notes"] = [f"{repaired} ids of Factuality that the file has wrong (30 to 39) were repaired."]
    names = distinct_ids(ids, categories, keep=known_entry("reward-bench-2").no_single_answer)
    twice = [f"the id {name!r} appears {times} times" for name, times in Counter(names).items() if times > 1]
    Problems(source, twice).raise_if_any()
    sizes = [len(own) for own in file["scores"]]
    numbers = [i for size in sizes for i in range(size)]
    correct = np.repeat(file["num_correct"], sizes)
    columns: Columns = {
        "item_id": np.repeat(names, sizes),
        "category": np.repeat(categories, sizes),
        "response": numbers,
        "label": (np.array(numbers) < correct).astype(np.float64),
        "reward": [score for own in file["scores"] for score in own],
    }
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


class RewardMathProblem(TypedDict):
    """The solutions of a problem in RewardMATH's own layout."""

    problem: str
    solution_reference: list[str]
    score: list[Any]


def is_rewardmath(content: Any) -> bool:
    """Return whether the content of a JSON file has RewardMATH's own layout."""
    keys = {*RewardMathProblem.__annotations__}
    return (
        isinstance(content, list) and bool(content) and isinstance(content[0], dict) and keys <= {*content[0]}
    )


def is_rewardmath_table(columns: Mapping[str, Any]) -> bool:
    """Return whether a table has RewardMATH's tidy layout of many models (which has no labels)."""
    names = {*columns}
    if names >= {"model", "problem", "rejected", "verdict", "chosen_position"}:
        return True
    return names >= {"model", "problem", "response", "score"} and not {"label", "is_correct"} & names


def rewardmath_table(content: Sequence[Any], source: str, model: str) -> tuple[Table, list[str]]:
    """Return a file in RewardMATH's own layout as a tidy table of one model, and notes."""
    verdicts = "chosen_position" in content[0]
    rows: list[dict[str, Any]] = []
    known: set[str] = set()
    problems = Problems(source)
    for number, entry in enumerate(typed(list[RewardMathProblem], content, source)):
        authors, scores = entry["solution_reference"], entry["score"]
        places = content[number].get("chosen_position") if verdicts else scores
        if not isinstance(places, list) or not len(authors) == len(scores) == len(places):
            problems.append(f"entry {number}: its lists have different lengths")
        elif not scores:
            problems.append(f"entry {number}: has no solutions")
        elif not verdicts and (authors.count(_CORRECT) != 1 or len(scores) < 2):
            problems.append(
                f"entry {number}: expected one solution by {_CORRECT} (the correct one) and another"
            )
        elif (key := repr((entry["problem"], authors))) not in known:
            own = {"model": model, "problem": len(known)}
            known.add(key)
            if verdicts:
                answers = enumerate(zip(scores, places, strict=True), start=1)
                rows += [own | {"rejected": j, "verdict": a, "chosen_position": b} for j, (a, b) in answers]
            else:
                first = authors.index(_CORRECT)
                ordered = [scores[first], *scores[:first], *scores[first + 1 :]]
                rows += [own | {"response": j, "score": score} for j, score in enumerate(ordered)]
    problems.raise_if_any()
    repeated = len(content) - len(known)
    note = f"{count(repeated, 'problem')} repeated in the file; only the first of each is used."
    return Table({name: [row[name] for row in rows] for name in rows[0]}, source), [note] if repeated else []


def rewardmath_models(table: Table) -> dict[str, tuple[Columns, About]]:
    """Return columns and manifest of each model of a tidy table.

    >>> columns = {"model": ["m"] * 2, "problem": [0, 0], "response": [0, 1], "score": [[2.5], [1.0]]}
    >>> rewardmath_models(Table(columns, "x.parquet"))["m"][0]["reward"]
    [2.5, 1.0]
    """
    if "verdict" in table.columns:
        return _verdicts(table)
    correct = [str(number) == "0" for number in table.columns["response"]]
    labelled = Table(table.columns | {"label": correct, "category": ["MATH"] * len(table)}, table.source)
    roles = {"model": "model", "prompt": "problem", "response": "response", "reward": "score"}
    parts = to_columns(labelled, {role: [name] for role, name in roles.items()})
    return {str(model): _meant(own, {"model": model, **_REWARDMATH}) for model, own in parts.items()}


def _meant(columns: Columns, about: About) -> tuple[Columns, About]:
    """Find out whether the scores of a model are rewards, ratings or lists of step scores."""
    values = [value.tolist() if hasattr(value, "tolist") else value for value in columns.pop("reward")]
    if any(isinstance(value, list) and len(value) != 1 for value in values):
        return columns | {"steps": values}, about
    rewards = [_single(value) for value in values]
    numbers = [value for value in rewards if isinstance(value, (int, float)) and value == value]
    if all(0 <= value <= 10 and value == int(value) for value in numbers):
        about |= {"scale": "ratings", "score_kind": "ratings"}
    return columns | {"reward": rewards}, about


def _verdicts(table: Table) -> dict[str, tuple[Columns, About]]:
    """Return verdicts on pairs. A verdict that is not a letter counts as half a win."""
    names = ("model", "problem", "rejected", "verdict", "chosen_position")
    found: dict[str, dict[Any, dict[int, tuple[Any, Any]]]] = {}
    problems = Problems(table.source)
    for row, values in enumerate(zip(*(table.columns[name] for name in names), strict=True)):
        model, problem, number, verdict, place = values
        own = found.setdefault(str(model), {}).setdefault(problem, {})
        if place not in _LETTERS:
            problems.append(f"{table.place(row)}: chosen_position is {shown(place)}, not A or B")
        elif number != len(own) + 1:
            problems.append(f"{table.place(row)}: rejected is {shown(number)}: expected {len(own) + 1} next")
        own[len(own) + 1] = verdict, place
    problems.raise_if_any()
    # The same judge may be in both kinds of tables.
    return {f"{model} (pairs)": _compared(f"{model} (pairs)", own) for model, own in found.items()}


def _compared(model: str, by_problem: Mapping[Any, Mapping[int, tuple[Any, Any]]]) -> tuple[Columns, About]:
    """Return the columns and the manifest of the verdicts of one judge."""
    pairs = [pair for own in by_problem.values() for pair in own.values()]
    wins = [[_win(*pair) for pair in own.values()] for own in by_problem.values()]
    sizes = [1 + len(own) for own in wins]
    numbers = [i for size in sizes for i in range(size)]
    columns = {
        "item_id": np.repeat([str(problem) for problem in by_problem], sizes),
        "category": ["MATH"] * sum(sizes),
        "response": numbers,
        "label": [float(i == 0) for i in numbers],
        "beats": star(wins),
        # The correct response has the largest reward if it wins all its comparisons.
        "reward": [reward for own in wins for reward in (0.0, *(0.5 - p for p in own))],
    }
    unclear = sum(verdict not in _LETTERS for verdict, _ in pairs)
    right = {letter: [_win(*pair) for pair in pairs if pair[1] == letter] for letter in _LETTERS}
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
    about = {"model": model, **_REWARDMATH, "score_kind": "pairs", "scale": "pairs"}
    return columns, about | {"verdicts": {"pairs": len(pairs), "unclear": unclear, **at}, "notes": notes}


def _win(verdict: Any, position: Any) -> float:
    return 0.5 if verdict not in _LETTERS else float(verdict == position)


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

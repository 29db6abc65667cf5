"""Files of scores that benchmarks publish: RewardBench's `eval-set-scores`, and RewardMATH's.

RewardBench has one object of lists: one entry per prompt, with a list of scores. RewardMATH has two layouts.
The authors publish a JSON list per model, one object per problem, with `problem`, `solution_reference` (who
wrote each solution), `score` (one entry per solution) and, for verdicts, `chosen_position`. The tidy layout
is a table of many models with the columns `model, problem, response, score` or, for verdicts, `model,
problem, rejected, verdict, chosen_position`; response 0 is the correct one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from annotated_types import Ge
from typing_extensions import TypedDict

from rmcalib._util.display import count
from rmcalib._util.texts import repeated, typed
from rmcalib.scores._files import Table, columns_of
from rmcalib.scores._schema import as_lists, objects
from rmcalib.scores._tables import to_columns
from rmcalib.scores.scale import Scale

Columns = dict[str, Any]
About = dict[str, Any]
_ABOUT = ("model", "model_type", "chat_template")
_CORRECT = "human_to_GPT-4"
_LETTERS = ("A", "B")
_VERDICTS = ("model", "problem", "rejected", "verdict", "chosen_position")
_REWARDMATH = {"benchmark": "rewardmath", "benchmark_format": "rewardmath"}


class NoScoresError(ValueError):
    """A published file of a generative judge, which gives no scores."""


class RewardBenchFile(TypedDict):
    """The lists of a file in RewardBench's layout. A score may be a list of one number."""

    id: list[str | int]
    subset: list[str | int]
    scores: list[list[Any]]
    num_correct: list[Annotated[int, Ge(1)]]


class RewardMathProblem(TypedDict):
    """The solutions of a problem in RewardMATH's own layout."""

    problem: str
    solution_reference: list[str]
    score: list[Any]


def models_of_json(content: Any, source: str, stem: str) -> dict[str, tuple[Columns, About]]:
    """Return columns and manifest of the model of a published JSON file; empty if it has another layout."""
    if isinstance(content, Mapping) and {*RewardBenchFile.__annotations__} <= {*content}:
        columns, about = rewardbench_columns(content, source)
        return {str(about.get("model") or stem): (columns, about)}
    first = content[0] if isinstance(content, list) and content else None
    if isinstance(first, dict) and {*RewardMathProblem.__annotations__} <= {*first}:
        table, notes = _rewardmath_table(content, source, stem)
        ((columns, about),) = models_of_table(table).values()
        return {stem: (columns, about | {"model": stem, "notes": [*notes, *about.get("notes", [])]})}
    return {}


def models_of_table(table: Table) -> dict[str, tuple[Columns, About]]:
    """Return columns and manifest of each model of a table in RewardMATH's tidy layout, which has no labels."""
    names = {*table.columns}
    if names >= {*_VERDICTS}:
        return _verdicts(table)
    if not names >= {"model", "problem", "response", "score"} or {"label", "is_correct"} & names:
        return {}
    numbers = [*map(str, table.columns["response"])]
    if not all(number.isdecimal() for number in numbers):  # texts of responses: somebody else's table
        return {}
    correct = np.array([number == "0" for number in numbers])
    category = np.full(len(table), "MATH")
    labelled = Table({**table.columns, "label": correct, "category": category}, table.source)
    roles = {"model": "model", "prompt": "problem", "response": "response", "reward": "score"}
    parts = to_columns(labelled, {role: [name] for role, name in roles.items()}).models
    return {str(model): _meant(columns, {"model": model, **_REWARDMATH}) for model, columns in parts.items()}


def rewardbench_columns(content: Any, source: str) -> tuple[Columns, About]:
    """Return the columns of scores and the manifest of RewardBench's layout; correct responses come first."""
    if isinstance(content, dict) and isinstance(content.get("scores"), list) and None in content["scores"]:
        raise NoScoresError(f"{source}: prompts without scores (a generative judge gives none)")
    file = typed(RewardBenchFile, content, source)
    subsets, scores, n_correct = [*map(str, file["subset"])], file["scores"], file["num_correct"]
    given = [*map(str, file["id"])]
    ids = _repaired_ids(given, subsets)
    if not len(ids) == len(subsets) == len(scores) == len(n_correct):
        raise ValueError(f"{source}: its lists have different lengths")
    if (twice := repeated(zip(subsets, ids, strict=True))) is not None:
        raise ValueError(f"{source}: the id {twice[1]!r} of {twice[0]} appears twice")
    about: About = {"source": source, "benchmark_format": "reward-bench-2"}
    about |= {key: content[key] for key in _ABOUT if key in content}
    if ids != given:
        about["repaired_ids"] = 10
        about["notes"] = ["10 ids of Factuality that the file has wrong (30 to 39) were repaired."]
    labels = [
        [float(i < n) for i in range(len(of_prompt))] for n, of_prompt in zip(n_correct, scores, strict=True)
    ]
    lists = {"prompt": ids, "category": subsets, "reward": scores, "label": labels}
    table = Table({role: objects(values) for role, values in lists.items()}, source)
    return to_columns(table, {role: [role] for role in lists}).models[None], about


def _repaired_ids(ids: list[str], categories: Sequence[str]) -> list[str]:
    """Undo the known defect of published files: the first ten ids of Factuality are 30 to 39, not 0 to 9."""
    right, wrong = [*map(str, range(10))], [*map(str, range(30, 40))]
    rows = [i for i, name in enumerate(categories) if name == "Factuality"]
    of_factuality = [ids[i] for i in rows]
    if of_factuality[:10] != wrong or not {*wrong} <= {*of_factuality[10:]} or {*right} & {*of_factuality}:
        return ids
    repaired = dict(zip(rows, right, strict=False))
    return [repaired.get(i, name) for i, name in enumerate(ids)]


def _rewardmath_table(content: Sequence[Any], source: str, model: str) -> tuple[Table, list[str]]:
    """Return a file in RewardMATH's own layout as a tidy table of one model, and notes."""
    verdicts = "chosen_position" in content[0]
    rows: list[dict[str, Any]] = []
    seen: set[str] = set()
    for number, entry in enumerate(typed(list[RewardMathProblem], content, source)):
        authors, scores = entry["solution_reference"], entry["score"]
        places = content[number].get("chosen_position") if verdicts else scores
        if not isinstance(places, list) or not 0 < len(authors) == len(scores) == len(places):
            raise ValueError(f"{source}: entry {number}: its lists are empty, or have different lengths")
        if not verdicts and (authors.count(_CORRECT) != 1 or len(scores) < 2):
            raise ValueError(
                f"{source}: entry {number}: expected one solution by {_CORRECT} (the correct one) and another"
            )
        key = repr((entry["problem"], authors))
        if key in seen:
            continue
        about = {"model": model, "problem": len(seen)}
        seen.add(key)
        if verdicts:
            answers = enumerate(zip(scores, places, strict=True), start=1)
            rows += [about | {"rejected": j, "verdict": a, "chosen_position": b} for j, (a, b) in answers]
        else:
            first = authors.index(_CORRECT)
            ordered = [scores[first], *scores[:first], *scores[first + 1 :]]
            rows += [about | {"response": j, "score": score} for j, score in enumerate(ordered)]
    again = len(content) - len(seen)
    note = f"{count(again, 'problem')} repeated in the file; only the first of each is used."
    return Table(columns_of(rows), source), [note] if again else []


def _meant(columns: Columns, about: About) -> tuple[Columns, About]:
    """Find out whether the scores of a model are rewards, ratings or lists of step scores."""
    values = columns.pop("reward").tolist()
    if any(isinstance(value, list) and len(value) != 1 for value in values):
        return columns | {"steps": values}, about
    rewards = [value[0] if isinstance(value, list) else value for value in values]
    numbers = [value for value in rewards if isinstance(value, (int, float)) and value == value]
    if all(0 <= value <= 10 and value == int(value) for value in numbers):
        about |= {"scale": asdict(Scale("rating", "grades from 0 to 10")), "score_kind": "rating"}
    return columns | {"reward": rewards}, about


def _verdicts(table: Table) -> dict[str, tuple[Columns, About]]:
    """Return verdicts on pairs. A verdict that is not a letter counts as half a win."""
    by_model: dict[str, dict[Any, list[tuple[Any, Any]]]] = {}
    for row, values in enumerate(zip(*(table.columns[name].tolist() for name in _VERDICTS), strict=True)):
        model, problem, number, verdict, place = values
        verdicts = by_model.setdefault(str(model), {}).setdefault(problem, [])
        if place not in _LETTERS:
            raise table.error(row, "chosen_position", "expected A or B")
        verdicts.append((verdict, place))
        if str(number) != str(len(verdicts)):
            raise table.error(row, "rejected", f"expected {len(verdicts)} next")
    # The same judge may be in both kinds of tables.
    return {
        f"{model} (pairs)": _compared(f"{model} (pairs)", problems) for model, problems in by_model.items()
    }


def _compared(model: str, by_problem: Mapping[Any, list[tuple[Any, Any]]]) -> tuple[Columns, About]:
    """Return the columns and the manifest of the verdicts of one judge."""
    pairs = [pair for of_problem in by_problem.values() for pair in of_problem]
    wins = [[_win(*pair) for pair in of_problem] for of_problem in by_problem.values()]
    sizes = [1 + len(of_problem) for of_problem in wins]
    numbers = [i for size in sizes for i in range(size)]
    columns = {
        "item_id": np.repeat([str(problem) for problem in by_problem], sizes),
        "category": ["MATH"] * sum(sizes),
        "response": numbers,
        "label": [float(i == 0) for i in numbers],
        "beats": star(wins),
        # The correct response has the largest reward if it wins all its comparisons.
        "reward": [reward for of_problem in wins for reward in (0.0, *(0.5 - p for p in of_problem))],
    }
    unclear = sum(verdict not in _LETTERS for verdict, _ in pairs)
    right = {letter: [_win(*pair) for pair in pairs if pair[1] == letter] for letter in _LETTERS}
    at = {
        f"right_at_{letter}": sum(of_problem) / len(of_problem)
        for letter, of_problem in right.items()
        if of_problem
    }
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
    about = {
        "model": model,
        **_REWARDMATH,
        "score_kind": "pairs",
        "scale": asdict(Scale("pairs", "verdicts on pairs")),
    }
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
    for of_prompt in wins:
        rows.append([None, *of_prompt])
        rows += [[None if p is None else 1 - p, *[None] * len(of_prompt)] for p in of_prompt]
    return as_lists(rows)

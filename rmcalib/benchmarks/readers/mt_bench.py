"""MT-bench human judgments: pairs of conversations, compared by several people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource, OfficialScore, ScoredItems
from rmcalib.benchmarks._items import Item, voted_item
from rmcalib.benchmarks._rows import Row, common_prompt
from rmcalib.benchmarks._winning import has_largest_reward

__all__ = ["ENTRIES"]

_CATEGORIES = ("writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities")
_FIRST_QUESTION = 81  # ten per category
_WINNERS = {"model_a": 0, "model_b": 1, "tie": None, "tie (inconsistent)": None}


def read(rows: Iterable[Row]) -> Iterator[Item | str]:
    """Collect the votes on each question, turn and pair of models.

    Comparisons whose conversations differ before the last response (most second turns) have no common prompt
    and are left out.
    """
    compared: dict[tuple[str, ...], list[tuple[Row, bool]]] = {}
    for row in rows:
        models = (row.name("model_a"), row.name("model_b"))
        key = (row.name("question_id"), row.name("turn"), *sorted(models))
        compared.setdefault(key, []).append((row, models[0] > models[1]))
    for key, votes in compared.items():
        row, swapped = votes[0]
        turn = int(row.number("turn"))
        talks = [row.messages(f"conversation_{side}")[: 2 * turn] for side in ("a", "b")]
        talks = talks[::-1] if swapped else talks
        if any(len(talk) != 2 * turn or talk[-1]["role"] != "assistant" for talk in talks):
            raise row.error(f"the conversations have no response of the assistant in turn {turn}")
        found = common_prompt(talks[0], talks[1], row)
        if isinstance(found, str):
            yield found
            continue
        prompt, *responses = found
        winners = [one.choice("winner", _WINNERS) for one, _ in votes]
        sides = [w if w is None else w ^ other for w, (_, other) in zip(winners, votes, strict=True)]
        yield voted_item(
            "/".join(key),
            _category(row),
            prompt,
            responses,
            (sides.count(0), sides.count(1)),
            ties=sides.count(None),
            columns={"turn": key[1], "model_a": key[2], "model_b": key[3]},
        )


def _category(row: Row) -> str:
    number = int(row.number("question_id")) - _FIRST_QUESTION
    return _CATEGORIES[number // 10] if 0 <= number < 80 else "other"


def score(items: ScoredItems) -> list[OfficialScore]:
    """Agreement: the fraction of votes, without ties, for the response with the larger reward."""
    if items.votes is None:
        return []
    first = has_largest_reward(items)
    alone = np.repeat(np.add.reduceat(first, items.starts, dtype=np.int64) == 1, items.sizes)
    agreeing = np.add.reduceat(items.votes * (first & alone), items.starts)
    total = np.add.reduceat(items.votes, items.starts)
    rows = []
    for name in ("all", *dict.fromkeys(items.category.tolist())):
        own = (items.category == name) | (name == "all")
        counted = int(total[own].sum())
        value = float(agreeing[own].sum() / counted) if counted else float("nan")
        rows.append(OfficialScore("agreement", name, value, int((total[own] > 0).sum())))
    return rows


ENTRIES = (
    BenchmarkEntry(
        name="mt-bench-human",
        title="MT-bench human judgments",
        labels="votes",
        columns=("question_id", "model_a", "model_b", "winner", "conversation_a", "conversation_b", "turn"),
        read=read,
        licence="CC-BY-4.0",
        homepage="https://huggingface.co/datasets/lmsys/mt_bench_human_judgments",
        prompts=3355,
        responses="2",
        hub=(HubSource("lmsys/mt_bench_human_judgments", "human"),),
        categories=_CATEGORIES,
        official=score,
        official_about="fraction of people's votes, without ties, for the response with the larger reward",
    ),
)

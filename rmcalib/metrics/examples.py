"""Examples to read: the prompts with the worst forecasts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rmcalib.benchmarks import Benchmark, Item
from rmcalib.metrics.views import Part

__all__ = ["Example", "ExampleResponse", "worst_examples"]


@dataclass(frozen=True)
class ExampleResponse:
    """One response of an `Example`; the text is None if it is not available."""

    text: str | None
    probability: float
    reward: float
    is_correct: bool


@dataclass(frozen=True)
class Example:
    """One prompt and its responses."""

    item_id: str
    category: str
    prompt: str | None
    responses: tuple[ExampleResponse, ...]


def worst_examples(whole: Part, benchmark: Benchmark | None, size: int) -> list[Example]:
    """Return the prompts with the worst forecasts: a wrong response is the most probable one."""
    part = whole.prompts("one")
    if part is None or size < 1:
        return []
    loss = -part.log_p[part.is_correct]
    items = {} if benchmark is None else {item.id: item for item in benchmark.items}
    ahead = part.first_choice.log_p > -loss
    order = np.argsort(-loss, kind="stable")
    return [_example(part, int(number), items) for number in order[ahead[order]][:size]]


def _example(part: Part, number: int, items: Mapping[str, Item]) -> Example:
    rows = range(part.scores.offsets[number], part.scores.offsets[number + 1])
    item_id = str(part.scores.item_id[rows[0]])
    item = items.get(item_id)
    if item is not None and len(item.responses) != len(rows):
        item = None
    responses = [
        ExampleResponse(
            text=None if item is None else item.responses[place],
            probability=float(np.exp(part.log_p[row])),
            reward=float(part.reward[row]),
            is_correct=bool(part.is_correct[row]),
        )
        for place, row in enumerate(rows)
    ]
    responses.sort(key=lambda response: -response.probability)
    prompt = None if item is None else _prompt_text(item)
    return Example(item_id, str(part.category[number]), prompt, tuple(responses))


def _prompt_text(item: Item) -> str:
    if isinstance(item.prompt, str):
        return item.prompt
    return "\n\n".join(f"[{message['role']}] {message['content']}" for message in item.prompt)

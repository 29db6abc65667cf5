"""Examples to read: the prompts that a model got most wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib.benchmarks import Benchmark, Item
from rmcalib.metrics import Forecasts, select_prompts, top_1_prompts
from rmcalib.scores import Scores

__all__ = ["Example", "ExampleResponse", "clean_text", "worst_examples"]


@dataclass(frozen=True)
class ExampleResponse:
    """One response: what the model gave it, and whether it is correct; the text is None if it is not here."""

    text: str | None
    probability: float
    reward: float
    is_correct: bool


@dataclass(frozen=True)
class Example:
    """One prompt, its responses from the most to the least probable; None if the text is not here."""

    item_id: str
    category: str
    prompt: str | None
    responses: tuple[ExampleResponse, ...]


def worst_examples(
    scores: Scores, forecasts: Forecasts, benchmark: Benchmark | None, size: int
) -> list[Example]:
    """Return ``size`` prompts where a wrong response is ahead and the correct one got least, the worst first.

    ``forecasts`` are those of all of the scores' prompts; only prompts with one correct response count.
    """
    part = select_prompts(forecasts, top_1_prompts(forecasts)) if top_1_prompts(forecasts).any() else None
    if part is None or size < 1:
        return []
    loss = -part.log_probability[part.is_correct]
    items = {} if benchmark is None else {item.id: item for item in benchmark.items}
    starts = scores.offsets
    examples = []
    ahead = np.maximum.reduceat(part.log_probability, part.offsets[:-1]) > -loss
    order = np.argsort(-loss, kind="stable")
    for number in order[ahead[order]][:size]:
        rows = np.arange(part.offsets[number], part.offsets[number + 1])
        item_id = str(scores.item_id[starts[part.source[number]]])
        item = items.get(item_id)
        if item is not None and len(item.responses) != len(rows):
            item = None
        responses = [
            ExampleResponse(
                text=None if item is None else clean_text(item.responses[place]),
                probability=float(np.exp(part.log_probability[row])),
                reward=float(part.reward[row]),
                is_correct=bool(part.is_correct[row]),
            )
            for place, row in enumerate(rows)
        ]
        responses.sort(key=lambda response: -response.probability)
        prompt = None if item is None else clean_text(_prompt_text(item))
        examples.append(Example(item_id, str(part.category[number]), prompt, tuple(responses)))
    return examples


def clean_text(text: str) -> str:
    """Return text that any browser shows: control characters and halves of surrogate pairs become �.

    >>> clean_text("a\\x00b\\ud800c")
    'a�b�c'
    """
    whole = "".join("�" if "\ud800" <= sign <= "\udfff" else sign for sign in text)
    return "".join(sign if sign >= " " or sign in "\n\t" else "�" for sign in whole.replace("\r\n", "\n"))


def _prompt_text(item: Item) -> str:
    if isinstance(item.prompt, str):
        return item.prompt
    return "\n\n".join(f"[{message['role']}] {message['content']}" for message in item.prompt)

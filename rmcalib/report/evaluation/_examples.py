"""Examples to read: the prompts with the worst forecasts."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from rmcalib._util.terminal import REPLACEMENT
from rmcalib.benchmarks import Benchmark, Item
from rmcalib.metrics import Forecasts, select_prompts, top_1_prompts
from rmcalib.scores import Scores

__all__ = ["Example", "ExampleResponse", "clean_text", "worst_examples"]

_UNSHOWN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class ExampleResponse:
    """One response: its probability and reward, and whether it is correct; text is None if not available."""

    text: str | None
    probability: float
    reward: float
    is_correct: bool


@dataclass(frozen=True)
class Example:
    """One prompt and its responses, the most probable first; prompt is None if its text is not available."""

    item_id: str
    category: str
    prompt: str | None
    responses: tuple[ExampleResponse, ...]


def worst_examples(
    scores: Scores, forecasts: Forecasts, benchmark: Benchmark | None, size: int
) -> list[Example]:
    """Return up to ``size`` prompts where a wrong response is most probable, the worst first.

    The worst prompt is the one whose correct response has the smallest probability. ``forecasts`` are those
    of all prompts in ``scores``; only prompts with exactly one correct response are considered.
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
    r"""Return text that every browser shows: control characters and lone surrogates become `�`.

    Marks of direction stay, because right-to-left texts need them; the page isolates each text.

    >>> clean_text("a\x00b\ud800c\u200f")
    'a�b�c\u200f'
    """
    return _UNSHOWN.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def _prompt_text(item: Item) -> str:
    if isinstance(item.prompt, str):
        return item.prompt
    return "\n\n".join(f"[{message['role']}] {message['content']}" for message in item.prompt)

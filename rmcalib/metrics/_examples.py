"""Examples to read: the prompts with the worst forecasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rmcalib.benchmarks import Benchmark, Item
from rmcalib.metrics._forecasts import Forecasts, select_prompts, top_1_prompts
from rmcalib.scores import Scores

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
    """One prompt and its responses.

    Attributes
    ----------
    item_id, category : str
        Which prompt it is.
    prompt : str, optional
        Its text; None if it is not available.
    responses : tuple[ExampleResponse, ...]
        The most probable first, each with text, probability, reward and is_correct.

    Examples
    --------
    >>> Example("a", "math", None, (ExampleResponse("4", 0.9, 2.0, True),)).responses[0].probability
    0.9
    """

    item_id: str
    category: str
    prompt: str | None
    responses: tuple[ExampleResponse, ...]


def worst_examples(
    scores: Scores, forecasts: Forecasts, benchmark: Benchmark | None, size: int
) -> list[Example]:
    """Return the prompts with the worst forecasts: a wrong response is the most probable one.

    The worst prompt is the one whose correct response has the smallest probability. Only prompts with exactly
    one correct response are considered.

    Parameters
    ----------
    scores : Scores
        The scores of one model.
    forecasts : Forecasts
        The forecasts of all prompts in ``scores``.
    benchmark : Benchmark, optional
        Where the texts come from; None if they are not available.
    size : int
        The largest number of prompts to return.

    Returns
    -------
    list of Example
        The worst comes first.

    Examples
    --------
    >>> from rmcalib.metrics import forecast
    >>> scores = Scores.from_arrays([[1.0, 0.0], [0.0, 3.0]], item_id=["a", "b"])
    >>> [example.item_id for example in worst_examples(scores, forecast(scores), None, 10)]
    ['b']
    """
    one_answer = top_1_prompts(forecasts)
    if not one_answer.any() or size < 1:
        return []
    part = select_prompts(forecasts, one_answer)
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
                text=None if item is None else item.responses[place],
                probability=float(np.exp(part.log_probability[row])),
                reward=float(part.reward[row]),
                is_correct=bool(part.is_correct[row]),
            )
            for place, row in enumerate(rows)
        ]
        responses.sort(key=lambda response: -response.probability)
        prompt = None if item is None else _prompt_text(item)
        examples.append(Example(item_id, str(part.category[number]), prompt, tuple(responses)))
    return examples


def _prompt_text(item: Item) -> str:
    if isinstance(item.prompt, str):
        return item.prompt
    return "\n\n".join(f"[{message['role']}] {message['content']}" for message in item.prompt)

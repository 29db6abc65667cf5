"""One response to reward, as frameworks and requests give it: texts, chat messages, or whole texts; and its reward."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmcalib.benchmarks._items import Prompt


@dataclass(frozen=True, slots=True)
class Sample:
    """A response with its prompt.

    Without a prompt, `response` is a whole text, or its token ids, which the judge reads as it is. `label` and
    `step` are for the log.
    """

    prompt: Prompt | None
    response: str | tuple[int, ...]
    label: Any = None
    step: int | None = None

    @property
    def key(self) -> str:
        """A text that is equal for equal prompts."""
        return self.prompt if isinstance(self.prompt, str) else json.dumps(self.prompt)

    @property
    def size(self) -> int:
        """The number of characters, or of tokens."""
        messages = self.prompt if isinstance(self.prompt, tuple) else ()
        prompt = len(self.prompt) if isinstance(self.prompt, str) else 0
        return prompt + sum(len(message["content"]) for message in messages) + len(self.response)


@dataclass(frozen=True, slots=True)
class Scored:
    """The reward of a sample.

    `reward` is what the optimiser gets, `raw` the judge's number, `probability` None if it is unknown, and
    `outside` whether it is beyond the range that the calibrator was fitted on. Of several judges, `raw` is the one
    reward that the calibrator makes of their numbers, `inputs`.
    """

    reward: float
    raw: float
    probability: float | None
    outside: bool
    inputs: tuple[float, ...] = ()


def as_text(content: Any, where: str) -> str:
    """Return the content of a message: a text, or a list of parts that are all texts."""
    if isinstance(content, str):
        return content
    if isinstance(content, Sequence):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        if all(isinstance(text, str) for text in texts):
            return "".join(texts)  # type: ignore[arg-type]
    raise ValueError(f"{where}: expected a text, got {type(content).__name__}")


def as_messages(messages: Any, where: str) -> tuple[dict[str, str], ...]:
    """Return chat messages with their roles and texts; a ValueError names what is not one."""
    if isinstance(messages, str | Mapping) or not hasattr(messages, "__iter__"):
        raise ValueError(f"{where}: expected a list of messages, got {type(messages).__name__}")
    checked = []
    for number, message in enumerate(messages):
        place = f"{where}, message {number}"
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ValueError(f"{place}: expected role and content")
        checked.append({"role": message["role"], "content": as_text(message.get("content"), place)})
    return tuple(checked)


def as_sample(
    prompt: Any, response: Any, where: str, *, label: Any = None, step: int | None = None
) -> Sample:
    """Return a sample from a prompt and a response; each is a text or a list of messages.

    Messages that come before the last one of the response, such as tool calls, belong to the prompt.

    >>> as_sample([{"role": "user", "content": "Hi"}], [{"role": "assistant", "content": "Hello"}], "a").response
    'Hello'
    """
    if isinstance(response, str):
        asked = prompt if isinstance(prompt, str) else as_messages(prompt, f"{where}: prompt")
        return Sample(asked, response, label, step)
    before: tuple[dict[str, str], ...]
    before = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else as_messages(prompt, where)
    asked, answer = split_conversation((*before, *as_messages(response, f"{where}: response")), where)
    return Sample(asked, answer, label, step)


def split_conversation(messages: Any, where: str) -> tuple[Prompt, str]:
    """Return the prompt and the response of a conversation that ends with the assistant's message."""
    checked = as_messages(messages, where)
    if len(checked) < 2 or checked[-1]["role"] != "assistant":
        raise ValueError(f"{where}: expected a prompt, and last a message of the assistant")
    return checked[:-1], checked[-1]["content"]


def as_samples(
    prompts: Sequence[Any],
    responses: Sequence[Any],
    labels: Sequence[Any] | None = None,
    step: int | None = None,
) -> list[Sample]:
    """Return samples from columns of the same length; a ValueError names the first that is wrong."""
    if isinstance(prompts, str) or isinstance(responses, str):
        raise ValueError("prompts, responses: expected lists, got a text")
    n = len(responses)
    for name, values in {"prompts": prompts, "labels": labels}.items():
        if values is not None and len(values) != n:
            raise ValueError(f"{name}: {len(values)} for {n} responses")
    given = [None] * n if labels is None else labels
    return [as_sample(prompts[i], responses[i], f"sample {i}", label=given[i], step=step) for i in range(n)]

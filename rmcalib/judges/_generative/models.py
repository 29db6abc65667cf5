"""What a judge needs of a language model: the next token's log-probabilities, and sampled answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rmcalib.judges._generative.prompts import Message

__all__ = ["ChatModel", "LabelAnswer", "TextAnswer"]


@dataclass(frozen=True)
class LabelAnswer:
    """The log-probabilities of labels at the next token.

    Parameters
    ----------
    logprobs : log p(label) (k,), in the whole vocabulary, all spellings of a label together.
    floored : whether each value is only an upper bound (k,): servers report only the most likely tokens.
    tokens : tokens of the request.
    """

    logprobs: tuple[float, ...]
    floored: tuple[bool, ...]
    tokens: int = 0


@dataclass(frozen=True)
class TextAnswer:
    """A sampled answer, and the tokens of request and answer."""

    text: str
    tokens: int = 0


class ChatModel(Protocol):
    """A language model that can be asked. Several threads may ask at once, up to `workers`."""

    workers: int

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Return the log-probabilities of labels as the next token of the assistant."""

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> TextAnswer:
        """Return one sampled answer; the same seed gives the same answer if the model supports seeds."""

    def identity(self) -> dict[str, Any]:
        """Return everything about the model that changes an answer."""

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without loading a model."""

    def about(self) -> dict[str, Any]:
        """Return what else a manifest records."""

    def check(self) -> None:
        """Raise a `ValueError` if the model has changed since it was loaded."""

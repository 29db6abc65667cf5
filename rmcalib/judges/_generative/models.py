"""The interface of language models that judge: log-probabilities of the next token, and sampled answers."""

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
    logprobs : tuple[float, ...]
        log p(label) of each of the k labels, summed over all spellings of the label.
    floored : tuple[bool, ...]
        Whether each value is only an upper bound, because the server did not return the label.
    tokens : int
        Number of tokens of the request.
    """

    logprobs: tuple[float, ...]
    floored: tuple[bool, ...]
    tokens: int = 0


@dataclass(frozen=True)
class TextAnswer:
    """A sampled answer, and the number of tokens of request and answer."""

    text: str
    tokens: int = 0


class ChatModel(Protocol):
    """A language model that answers questions. Up to `workers` threads may use it at the same time."""

    workers: int

    def label_logprobs(self, messages: Sequence[Message], labels: Sequence[str]) -> LabelAnswer:
        """Return the log-probabilities of labels as the next token of the assistant."""

    def sample(
        self, messages: Sequence[Message], *, seed: int, temperature: float, max_tokens: int
    ) -> TextAnswer:
        """Return one sampled answer. The same seed gives the same answer if the model supports seeds."""

    def identity(self) -> dict[str, Any]:
        """Return everything about the model that changes an answer."""

    def asked(self) -> dict[str, Any]:
        """Return what determines `identity`, as far as it is known without loading a model."""

    def about(self) -> dict[str, Any]:
        """Return what else a manifest records."""

    def check(self) -> None:
        """Raise a `ValueError` if the model has changed since it was loaded."""

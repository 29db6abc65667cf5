"""An API of rewards, from both sides: what a client sends and reads, and what `serve` reads and answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal, Protocol

from rmcalib.judges.apis.samples import Sample, Scored

Text = str | list[dict[str, str]] | list[int]
"""A whole text, a conversation, or token ids."""
Body = Mapping[str, Any]
_LARGEST_STEP = 2**53  # beyond it, readers of the log would round it, or refuse the file


class WholeTexts(Protocol):
    """What `serve` does with whole texts, which have a policy's chat template in them."""

    def samples(
        self,
        queries: Sequence[str],
        prompts: Sequence[str] | None = None,
        labels: Sequence[Any] | None = None,
        step: int | None = None,
    ) -> list[Sample]:
        """Return the samples of texts, with or without the prompts with which they begin."""


class Api:
    """How clients ask for rewards and what servers answer; each API is a class in a separate file.

    A judge asks servers of an API that has `paths`, and `serve` answers requests that have `keys`.

    Attributes
    ----------
    name, title : str
        The name in settings and manifests, and in sentences.
    paths : tuple of str
        Where servers are asked for rewards; the next one is tried if a server does not know the first.
    reads : {"messages", "tokens", "texts"}
        What servers are sent: conversations (or token ids), token ids, or whole texts with their special tokens.
    raw : mapping
        Parameters of a request with which a server returns rewards and not their sigmoid.
    cards : bool
        Whether `/v1/models` says what is served.
    model_info, version : tuple of str
        More paths with facts: of the checkpoint and its weights, and of the server's version.
    tokens : str
        The path that shows the tokens of a text, if there is one.
    chat : mapping
        What is added to each request for a chat, of a language model behind such a server.
    chooses : bool
        Whether an answer in a chat can be limited to given choices.
    limit : str
        How the server is started with another limit of length, if requests cannot set it.
    start, remedy : str
        How the server is started, and what to do if it does not return raw rewards.
    served_at : tuple of str
        The paths at which `serve` answers.
    keys : tuple of tuples of str
        Keys of a request, by which `serve` tells APIs at the same path apart.
    """

    name = "other"
    title = ""
    paths: tuple[str, ...] = ()
    reads: Literal["messages", "tokens", "texts"] = "tokens"
    raw: ClassVar[Mapping[str, bool]] = {}
    cards = False
    model_info: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    tokens = ""
    chat: ClassVar[Mapping[str, Any]] = {}
    chooses = False
    limit = ""
    start = ""
    remedy = ""
    served_at: tuple[str, ...] = ()
    keys: tuple[tuple[str, ...], ...] = ()

    def recognise(self, owners: Collection[str], paths: Collection[str]) -> bool:  # noqa: ARG002
        """Return whether a server speaks it, from the owners of its models and the paths that it documents."""
        return bool(self.paths) and self.name in owners

    def write(self, texts: Sequence[Text], limit: int) -> list[dict[str, Any]]:
        """Return the bodies of requests for the rewards of texts, which are cut to a limit of tokens."""
        raise NotImplementedError

    def rows(self, answer: Any) -> list[Any]:
        """Return the numbers of each text in an answer."""
        raise NotImplementedError

    def read(self, body: Body, texts: WholeTexts) -> list[Sample]:
        """Return the samples of a request, or raise a ValueError that says what is wrong."""
        raise NotImplementedError

    def answer(self, path: str, model: str, scored: Sequence[Scored]) -> Any:
        """Return what the client expects from this path for the rewards of its samples."""
        raise NotImplementedError


def texts_of(body: Body, name: str) -> list[str]:
    """Return a list of texts."""
    values = body[name]
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise ValueError(f"{name}: expected a list of texts")
    return values


def list_of(body: Body, name: str, n: int) -> list[Any] | None:
    """Return an optional list with one entry per sample."""
    values = body.get(name)
    if values is not None and (not isinstance(values, list) or len(values) != n):
        raise ValueError(f"{name}: expected a list of {n}")
    return values


def step_of(body: Body) -> int | None:
    """Return the step of training, for the log."""
    step = body.get("step")
    if step is not None and (
        isinstance(step, bool) or not isinstance(step, int) or abs(step) > _LARGEST_STEP
    ):
        raise ValueError("step: expected a whole number")
    return step

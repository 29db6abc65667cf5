"""Any Python function as a judge."""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.terminal import count
from rmcalib.judges._judge import SCALES, Scale, ScoredItem

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

__all__ = ["FunctionJudge"]


class FunctionJudge:
    """A function that rewards responses, as a judge.

    Parameters
    ----------
    function : Callable[[Any, Any], Any]
        `f(prompt, responses) -> numbers`. `prompt` is a text, or a tuple of chat messages if the benchmark
        has conversations. `responses` is a list of texts. The result is one number per response.
    name : str, optional
        Name in reports and run folders. Default: the function's own name.
    scale : Scale
        Scale of its numbers (`Scale`).
    identity : Any
        A JSON value that stands for everything that changes the numbers and is not in the function's source:
        a version, a training step, a path. It replaces the hash of the source. A run resumes only if it is
        the same.
    batched : bool
        The function takes many prompts at once, `f(prompts, responses) -> lists of numbers`, with one list of
        responses per prompt.
    batch_size : int
        Prompts per chunk. A killed run loses at most one chunk.

    Examples
    --------
    >>> from rmcalib.benchmarks import Item
    >>> judge = FunctionJudge(lambda prompt, responses: [-len(text) for text in responses], name="shortest")
    >>> list(judge.score([Item("a", "Math", "2+2?", ("4", "five"), 1)]))[0][0].rewards
    (-1.0, -4.0)
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        *,
        name: str | None = None,
        scale: Scale = "unknown",
        identity: Any = None,
        batched: bool = False,
        batch_size: int = 32,
    ) -> None:
        """Check the settings; the function is not called yet."""
        self.name = _own_name(function) if name is None else name
        if not self.name.strip():
            raise ValueError("name: is empty")
        if scale not in SCALES:
            raise ValueError(f"scale: unknown {scale!r} (have: {', '.join(SCALES)})")
        if batch_size < 1:
            raise ValueError(f"batch_size: must be at least 1, got {batch_size}")
        try:
            json.dumps(identity, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ValueError(f"identity: must be JSON (numbers, texts, lists, mappings): {error}") from error
        self.scale: Scale = scale
        self._function, self._version = function, identity
        self._batched, self._batch_size = batched, batch_size

    def identity(self) -> dict[str, Any]:
        """Return the name, and the given identity or a hash of the function's source."""
        version: dict[str, Any]
        if self._version is not None:
            version = {"identity": self._version}
        else:
            version = {"source_sha256": _source_hash(self._function)}
        return {"kind": "function", "function": self.name, **version}

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Call the function for each prompt, or once per chunk if it is batched."""
        for start in range(0, len(items), self._batch_size):
            chunk = items[start : start + self._batch_size]
            if self._batched:
                prompts, responses = [item.prompt for item in chunk], [list(item.responses) for item in chunk]
                answers = list(self._function(prompts, responses))
                if len(answers) != len(chunk):
                    raise ValueError(
                        f"{self.name}: prompts {chunk[0].id!r} to {chunk[-1].id!r}: the function returned "
                        f"{count(len(answers), 'list')} for {count(len(chunk), 'prompt')}"
                    )
            else:
                answers = [self._function(item.prompt, list(item.responses)) for item in chunk]
            yield [
                ScoredItem(item.id, _numbers(self.name, item, answer))
                for item, answer in zip(chunk, answers, strict=True)
            ]


def _numbers(name: str, item: Item, answer: Any) -> tuple[float, ...]:
    """Return the function's result for a prompt as numbers; it may be a list, an array or a tensor."""
    where = f"{name}: prompt {item.id!r}"
    try:
        numbers = tuple(float(value) for value in answer)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: the function must return one number per response: {error}") from error
    if len(numbers) != len(item.responses):
        raise ValueError(
            f"{where}: the function returned {count(len(numbers), 'number')} for "
            f"{count(len(item.responses), 'response')}"
        )
    for response, number in enumerate(numbers):
        if not math.isfinite(number):
            raise ValueError(f"{where}, response {response}: the function returned {number}")
    return numbers


def _own_name(function: Callable[..., Any]) -> str:
    name: str | None = getattr(function, "__name__", None)
    if name is None or not name.isidentifier():  # a lambda, a partial, an object
        raise ValueError("name: this function has no name; give one, such as name='mine'")
    return name


def _source_hash(function: Callable[..., Any]) -> str | None:
    """Return the SHA-256 of a function's source, so that an edited function does not resume an old run."""
    try:
        source = inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):  # defined in an interpreter, or compiled
        return None
    return hashlib.sha256(source.encode()).hexdigest()

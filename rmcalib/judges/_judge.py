"""What a judge is: whatever gives rewards to the responses of a prompt.

A Hugging Face classifier, a served model, a language model that grades answers and a plain Python function
are all judges. Everything that scores goes through `scored_chunks`, which checks what a judge returns.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

from rmcalib._util.terminal import count
from rmcalib.scores import UNKNOWN_LENGTH

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

Scale = Literal["log-utilities", "log-probabilities", "probabilities", "ratings", "pairs", "unknown"]
"""What the rewards of a judge are.

- `log-utilities`: their softmax is a probability (Bradley-Terry, Plackett-Luce).
- `log-probabilities`: logarithms of the probability that a response is the best of its prompt.
- `probabilities`: the probability that a response is correct, for each response by itself.
- `ratings`: grades. Their order means something, their differences do not.
- `pairs`: what is known is the probability that one response beats another (`Scores.beats`).
- `unknown`: nothing is known. They are treated as log-utilities.
"""

SCALES: tuple[Scale, ...] = get_args(Scale)

Progress = Callable[[int, int], None]
"""Called with the number of responses that were just scored, and the number of tokens in them."""


@dataclass(frozen=True)
class ScoredItem:
    """The rewards of one prompt's responses, in the order of the benchmark.

    Parameters
    ----------
    id : the prompt's id.
    rewards : one finite number per response.
    n_tokens : the length of each text in tokens (prompt and response, after truncation). Empty: unknown.
    truncated : whether each text was cut. Empty: none was.
    details : more about each response, by name, such as votes: one number per response, NaN if there is
        none. They are kept with the scores (`Scores.details`).
    distinct : whether the rewards differ; None where they cannot (equal texts, one response).

    Examples
    --------
    >>> ScoredItem("a", (1.5, -0.5)).rewards
    (1.5, -0.5)
    """

    id: str
    rewards: tuple[float, ...]
    n_tokens: tuple[int, ...] = ()
    truncated: tuple[bool, ...] = ()
    details: Mapping[str, Sequence[float]] = field(default_factory=dict)
    distinct: bool | None = None


class Judge(Protocol):
    """Whatever rewards responses. Any object with these four members is a judge.

    A judge may also have

    - `about() -> dict`: what else the manifest records, such as the device or the server's version. It
      is not part of the resume hash.
    - `asked() -> dict | None`: an identity that is known without loading anything. A finished run is found by
      it. Default: `identity()`.
    - `work() -> dict[str, int]`: counts of what it has computed so far, such as tokens. They are in the
      manifest of the run, added up over all processes.
    - a keyword `progress` of `score` (`Progress`), to count while a chunk is being scored. Without it,
      progress is counted per chunk.

    Everything in these dictionaries must be JSON.
    """

    @property
    def name(self) -> str:
        """What reports and run folders call the judge."""

    @property
    def scale(self) -> Scale:
        """What its rewards are."""

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; two judges with equal identities can share a run."""

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score prompts in their order, in chunks. A chunk that was yielded is kept if the run is killed."""


def is_judge(thing: object) -> bool:
    """Return whether an object has the methods of a `Judge`.

    >>> is_judge("org/name"), is_judge(len)
    (False, False)
    """
    return not isinstance(thing, type) and all(
        callable(getattr(thing, method, None)) for method in ("score", "identity")
    )


def about_judge(judge: Judge) -> dict[str, Any]:
    """Return what a manifest records about a judge in addition to its identity: name, scale, its `about`."""
    about: Callable[[], dict[str, Any]] | None = getattr(judge, "about", None)
    return {"model": judge.name, "scale": judge.scale, **(about() if about is not None else {})}


def work_of(judge: Judge) -> dict[str, int]:
    """Return what a judge has computed so far; empty if it does not count."""
    work: Callable[[], dict[str, int]] | None = getattr(judge, "work", None)
    return work() if work is not None else {}


def asked_of(judge: Judge) -> dict[str, Any] | None:
    """Return what identifies a judge before it is loaded; None if it is known only after loading."""
    asked: Callable[[], dict[str, Any] | None] | None = getattr(judge, "asked", None)
    return asked() if asked is not None else judge.identity()


def scored_chunks(
    judge: Judge, items: Sequence[Item], progress: Progress | None = None
) -> Iterator[list[ScoredItem]]:
    """Score prompts with any judge, and check what it returns.

    Parameters
    ----------
    judge : the judge.
    items : prompts with their responses.
    progress : called as responses are scored.

    Returns
    -------
    iterator of list of ScoredItem
        The chunks of the judge, with `n_tokens` and `truncated` filled in.

    Raises
    ------
    ValueError : if the judge changes the order of the prompts, leaves one out, or gives a prompt too few or
        too many rewards, or one that is not finite. The message names the prompt.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> from rmcalib.judges import load_judge
    >>> judge = load_judge(lambda prompt, responses: [len(text) for text in responses], name="longest")
    >>> [[item.rewards for item in chunk] for chunk in scored_chunks(judge, load_benchmark("demo").items[:1])]
    [[(32.0, 29.0, 32.0, 32.0)]]
    """
    counts = progress is not None and "progress" in inspect.signature(judge.score).parameters
    chunks: Iterator[list[ScoredItem]]
    chunks = judge.score(items, progress=progress) if counts else judge.score(items)  # type: ignore[call-arg]
    position = 0
    for chunk in chunks:
        checked = []
        for scored in chunk:
            if position == len(items) or scored.id != items[position].id:
                expected = "after the last one" if position == len(items) else f"not {items[position].id!r}"
                raise ValueError(f"{judge.name}: scored prompt {scored.id!r}, {expected}: keep their order")
            checked.append(_checked(judge.name, items[position], scored))
            position += 1
        yield checked  # counted when the caller comes back, which has kept it by then
        if progress is not None and not counts:
            lengths = [max(n, 0) for scored in checked for n in scored.n_tokens]
            progress(len(lengths), sum(lengths))
    if position < len(items):
        raise ValueError(
            f"{judge.name}: scored {position} of {len(items)} prompts; the first one that is missing is "
            f"{items[position].id!r}"
        )


def _checked(name: str, item: Item, scored: ScoredItem) -> ScoredItem:
    """Return a scored prompt with all its columns; raise if they do not fit its responses."""
    n = len(item.responses)
    if len(scored.rewards) != n:
        raise ValueError(
            f"{name}: prompt {item.id!r}: {count(len(scored.rewards), 'reward')} for {count(n, 'response')}"
        )
    for number, reward in enumerate(scored.rewards):
        if not math.isfinite(reward):
            raise ValueError(f"{name}: prompt {item.id!r}, response {number}: the reward is {reward}")
    lengths = scored.n_tokens or (UNKNOWN_LENGTH,) * n
    truncated = scored.truncated or (False,) * n
    for column, values in {"n_tokens": lengths, "truncated": truncated, **scored.details}.items():
        if len(values) != n:
            raise ValueError(f"{name}: prompt {item.id!r}: {len(values)} {column} for {n} responses")
    return dataclasses.replace(scored, n_tokens=tuple(lengths), truncated=tuple(truncated))

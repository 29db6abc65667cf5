"""The `Judge` protocol: a judge gives rewards to the responses of a prompt.

Hugging Face classifiers, served models, language models that grade answers and Python functions are judges.
Everything that scores calls `scored_chunks`, which checks what a judge returns.
"""

from __future__ import annotations

import inspect
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from rmcalib._util.display import count
from rmcalib.scores._schema import UNKNOWN_LENGTH
from rmcalib.scores.scale import Scale

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item

Progress = Callable[[int, int], None]
"""A callback: it is called with the number of responses just scored and the number of their tokens."""


class RewardError(ValueError):
    """A judge returned something that is not a reward of its responses: the judge is wrong, not the text."""


@dataclass(frozen=True)
class ScoredItem:
    """The rewards of one prompt's responses, in the order of the benchmark.

    Parameters
    ----------
    id : str
        Id of the prompt.
    rewards : tuple[float, ...]
        One finite number per response.
    n_tokens : tuple[int, ...]
        Number of tokens of each text (prompt and response, after truncation). Empty if unknown.
    truncated : tuple[bool, ...]
        Whether each text was truncated. Empty if none was.
    details : Mapping[str, Sequence[float]]
        Further columns by name, such as votes: one number per response, NaN where there is no value. They are
        stored with the scores (`Scores.details`).

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


class Judge(Protocol):
    """The protocol of judges. Any object with these four members is a judge; no base class is needed.

    A judge may also have

    - `about() -> dict`: what else the manifest records, such as the device or the server's version. It is
      not part of the hash that decides whether a run can resume.
    - `asked() -> dict | None`: an identity that is known without loading anything. It is used to find a
      finished run. Default: `identity()`.
    - `work() -> dict[str, int]`: counts of what was computed so far, such as tokens. The manifest of the run
      has their sum over all processes.
    - a keyword argument `progress` of `score`: a function to call with the numbers of responses and tokens
      just scored. Without it, progress is counted per chunk.
    - `close()`: frees what the judge holds, such as a server. It is called when a run is over, for judges that
      were given by name.

    The values in these dictionaries must be JSON.
    """

    @property
    def name(self) -> str:
        """Name of the judge in reports and run folders."""

    @property
    def scale(self) -> Scale | str:
        """What its rewards are: a `Scale`, or how its numbers are to be read, as in ``load_scores(scale=...)``."""

    def identity(self) -> dict[str, Any]:
        """Return everything that changes a reward; two judges with equal identities can share a run."""

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Yield the scored prompts in order, in chunks. A chunk that was yielded survives a killed run."""


def is_judge(thing: object) -> bool:
    """Return whether an object has the members of a `Judge`.

    >>> is_judge("org/name"), is_judge(len)
    (False, False)
    """
    return not isinstance(thing, type) and all(
        hasattr(thing, member) for member in ("name", "scale", "identity", "score")
    )


def close_judge(judge: Judge) -> None:
    """Free what a judge holds, if it has a `close`."""
    close: Callable[[], None] | None = getattr(judge, "close", None)
    if close is not None:
        close()


def about_judge(judge: Judge) -> dict[str, Any]:
    """Return what a manifest records about a judge in addition to its identity.

    Parameters
    ----------
    judge : Judge
        The judge.

    Returns
    -------
    dict
        `model` (the judge's name), `scale` or `numbers` (how they are to be read), and what its `about`
        returns, if it has one.

    Examples
    --------
    >>> from rmcalib.judges import load_judge
    >>> about_judge(load_judge(lambda prompt, responses: [0.0] * len(responses), name="zero"))
    {'model': 'zero'}
    """
    about: Callable[[], dict[str, Any]] | None = getattr(judge, "about", None)
    scale = judge.scale
    if isinstance(scale, Scale):
        meaning: dict[str, Any] = {"scale": asdict(scale)}
    else:
        meaning = {} if scale == "reward" else {"numbers": scale}
    return {"model": judge.name, **meaning, **(about() if about is not None else {})}


def scored_chunks(
    judge: Judge, items: Sequence[Item], progress: Progress | None = None
) -> Iterator[list[ScoredItem]]:
    """Score prompts with any judge, and check what it returns.

    Parameters
    ----------
    judge : Judge
        The judge.
    items : Sequence[Item]
        Prompts with their responses.
    progress : Progress, optional
        Function to call with the numbers of responses and tokens just scored.

    Yields
    ------
    list of ScoredItem
        The next chunk of the judge, with `n_tokens` and `truncated` filled in.

    Raises
    ------
    ValueError
        If the judge changes the order of the prompts or leaves one out, or if a prompt gets the wrong number
        of rewards or a reward that is not finite. The message names the prompt.

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
    waiting = deque(items)
    for chunk in chunks:
        if not isinstance(chunk, list) or not all(isinstance(entry, ScoredItem) for entry in chunk):
            raise ValueError(f"{judge.name}: `score` must yield lists of ScoredItem")
        checked = []
        for scored in chunk:
            if not waiting or scored.id != waiting[0].id:
                rest = f"the next one is {waiting[0].id!r}" if waiting else "none is left"
                raise ValueError(
                    f"{judge.name}: returned prompt {scored.id!r}, but {rest}: return the prompts in the "
                    "order in which they are given"
                )
            checked.append(_checked(judge.name, waiting.popleft(), scored))
        yield checked  # progress is counted afterwards, when the caller has stored the chunk
        if progress is not None and not counts:
            lengths = [max(n, 0) for scored in checked for n in scored.n_tokens]
            progress(len(lengths), sum(lengths))
    if waiting:
        left = count(len(waiting), "prompt")
        raise ValueError(f"{judge.name}: left out {left}; the first one is {waiting[0].id!r}")


def _checked(name: str, item: Item, scored: ScoredItem) -> ScoredItem:
    """Return a scored prompt with all its columns as Python numbers; raise if they do not fit its responses."""
    n = len(item.responses)
    if len(scored.rewards) != n:
        raise RewardError(
            f"{name}: prompt {item.id!r}: {count(len(scored.rewards), 'reward')} for {count(n, 'response')}"
        )
    for number, reward in enumerate(scored.rewards):
        if not math.isfinite(reward):
            raise RewardError(f"{name}: prompt {item.id!r}, response {number}: the reward is {reward}")
    lengths = scored.n_tokens or (UNKNOWN_LENGTH,) * n
    truncated = scored.truncated or (False,) * n
    for column, values in {"n_tokens": lengths, "truncated": truncated, **scored.details}.items():
        if len(values) != n:
            raise RewardError(f"{name}: prompt {item.id!r}: {len(values)} {column} for {n} responses")
    details = {column: tuple(map(float, values)) for column, values in scored.details.items()}
    rewards = tuple(map(float, scored.rewards))
    return ScoredItem(scored.id, rewards, tuple(map(int, lengths)), tuple(map(bool, truncated)), details)

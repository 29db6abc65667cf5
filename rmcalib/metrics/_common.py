"""Scores of several judges on the same prompts: their names, and the prompts that all have scored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rmcalib._util.terminal import count
from rmcalib.scores import Scores

__all__ = ["named_scores", "on_common_prompts"]


def named_scores(
    scores: Iterable[Scores] | Mapping[str, Scores], names: Sequence[str] | None, *, least: int, caller: str
) -> dict[str, Scores]:
    """Return the scores of several judges by name.

    Parameters
    ----------
    scores : Iterable[Scores] | Mapping[str, Scores]
        The scores of each judge, or a mapping from names to scores.
    names : Sequence[str], optional
        Names of the judges; by default those in the manifests, else 1, 2, ...
    least : int
        The smallest number of judges that is allowed.
    caller : str
        The first word of error messages.

    Returns
    -------
    dict of str to Scores
        The scores by name.

    Examples
    --------
    >>> one = Scores.from_arrays([[1.0, 0.0]], manifest={"model": "org/rm"})
    >>> list(named_scores([one], None, least=1, caller="leaderboard"))
    ['org/rm']
    """
    if isinstance(scores, Mapping):
        names, every = [*scores], [*scores.values()]
    else:
        every = list(scores)
        names = list(names or [str(one.manifest.get("model") or i + 1) for i, one in enumerate(every)])
    if len(every) < least:
        raise ValueError(
            f"{caller}: got the scores of {count(len(every), 'judge')}, expected at least {least}"
        )
    if len(names) != len(every) or len(set(names)) < len(names):
        raise ValueError(
            f"{caller}: {len(every)} judges with the names {', '.join(names)}; expected a different name for "
            "each (give names=[...])"
        )
    return dict(zip(names, every, strict=True))


def on_common_prompts(scores: Sequence[Scores]) -> list[Scores]:
    """Return the scores of the prompts that all judges have scored, in the order of the first judge.

    Parameters
    ----------
    scores : Sequence[Scores]
        The scores of two or more judges.

    Returns
    -------
    list of Scores
        One per judge, with the same prompts and responses.

    Raises
    ------
    ValueError
        If they have no prompt in common, or differ in the responses to a prompt.

    Examples
    --------
    >>> a = Scores.from_arrays([[1.0, 0.0], [2.0, 0.0]], item_id=["a", "b"])
    >>> b = Scores.from_arrays([[3.0, 0.0], [4.0, 0.0]], item_id=["b", "c"])
    >>> [one.reward.tolist() for one in on_common_prompts([a, b])]
    [[2.0, 0.0], [3.0, 0.0]]
    """
    every = list(scores)
    who = "the two" if len(every) == 2 else f"the {len(every)} judges"
    ids = [one.item_id[one.offsets[:-1]].tolist() for one in every]
    common = set(ids[0]).intersection(*ids[1:])
    if not common:
        raise ValueError(f"{who} have no prompt in common: were they scored on the same benchmark?")
    place = {name: i for i, name in enumerate(ids[0])}
    parts = []
    for one in every:
        at = np.array([place[name] if name in common else -1 for name in one.item_id.tolist()])
        rows = np.flatnonzero(at >= 0)
        rows = rows[np.argsort(at[rows], kind="stable")]
        columns = {name: array[rows] for name, array in one.columns().items()}
        parts.append(Scores.from_columns(columns, one.manifest))
    first = parts[0]
    for other in parts[1:]:
        same = len(first) == len(other) and (first.is_correct == other.is_correct).all()
        if not same or (first.item_id != other.item_id).any():
            raise ValueError(
                f"{who} differ in the responses to a prompt: were they scored on the same benchmark?"
            )
    return parts

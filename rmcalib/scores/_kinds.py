"""Other kinds of scores: turn steps, distributions, pairs and missing values into plain columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray, check_choice
from rmcalib._util.terminal import count
from rmcalib.ranking import IndependentRewards
from rmcalib.scores._beats import as_lists, is_beats
from rmcalib.scores._columns import LARGEST_REWARD, Place, row_place
from rmcalib.scores._steps import STEPS, step_rewards

__all__ = ["MISSING", "Missing", "Reading", "plain_columns"]

Missing = Literal["refuse", "lowest", "drop"]
"""What to do about responses without a score; see `Reading`."""
MISSING = ("refuse", "lowest", "drop")
"""The values of `Missing`."""


@dataclass(frozen=True)
class Reading:
    """How to read scores that are not plain rewards.

    Parameters
    ----------
    steps : str
        How to combine the step scores of a response: product, min, last, mean or geometric_mean.
    missing : Missing
        What to do about a response without a score: ``"refuse"`` the file, count it as the ``"lowest"``
        reward of all, or ``"drop"`` its prompt. The manifest records how many there were.

    Examples
    --------
    >>> columns = {"item_id": ["a", "a"], "category": ["x", "x"], "response": [0, 1],
    ...            "is_correct": [True, False], "steps": [[0.9, 0.8], [0.9, 0.1]]}
    >>> from rmcalib.scores import Scores
    >>> Scores.from_columns(columns, reading=Reading(steps="min")).reward.round(2).tolist()
    [1.39, -2.2]
    """

    steps: str = "product"
    missing: Missing = "refuse"

    def __post_init__(self) -> None:
        """Check the names."""
        check_choice(self.steps, "steps", STEPS)
        check_choice(self.missing, "missing", MISSING)

    def combined_by(self, steps: str) -> Reading:
        """Return a copy with another way to combine steps."""
        return dataclasses.replace(self, steps=steps)


def plain_columns(
    columns: Mapping[str, Any], reading: Reading, *, source: str, place: Place = row_place
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Turn `steps`, `spread`, `quantiles` and `beats` into rewards.

    Returns the columns, and entries for the manifest. Plain columns are returned unchanged. Kinds:

    - `steps`: a list of step scores per response (see `step_rewards`).
    - `reward` and `spread`: the mean and the standard deviation of a normal reward. The new reward is
      log P(it is the largest), and `beats` has P(R_i > R_j).
    - `quantiles`: a list of quantiles of the reward, at evenly spaced levels; as above.
    - `beats` without `reward`: the reward is the mean probability of beating another response.

    >>> columns = {"item_id": ["a", "a"], "reward": [1.0, 0.0], "spread": [1.0, 1.0]}
    >>> found, about = plain_columns(columns, Reading(), source="x")
    >>> np.exp(found["reward"]).round(3).tolist(), about["scale"]
    ([0.76, 0.24], 'log-probabilities')
    """
    given = dict(columns)
    kinds = [name for name in ("steps", "quantiles", "spread") if name in given]
    if len(kinds) > 1:
        raise ValueError(f"{source}: columns {' and '.join(kinds)}: give one of them")
    about: dict[str, Any] = {}
    if "steps" in given:
        lists = _lists(given.pop("steps"), "steps", reading, source, place)
        rewards, known = _by_steps(lists, reading.steps, source)
        given["reward"] = rewards
        about = {"score_kind": "steps", "steps": reading.steps}
        about["scale"] = "log-utilities" if known else "unknown"
    elif "quantiles" in given:
        lists = _lists(given.pop("quantiles"), "quantiles", reading, source, place)
        about = {"score_kind": "quantiles", "scale": "log-probabilities"}
        given |= {"reward": _means(lists), "row": range(len(lists))}
        given, about = _without_missing(given, about, reading)
        lists = [lists[row] for row in given.pop("row")]
        given |= _distributed(given, _same_length(lists, source), source)
        return given, about
    elif "spread" in given:
        given["reward"] = _numbers(given["reward"], "reward", reading, source, place)
        given["spread"] = _numbers(given["spread"], "spread", Reading(), source, place)
        bad = np.flatnonzero(~(np.asarray(given["spread"]) >= 1 / LARGEST_REWARD))
        if len(bad):
            value, where = given["spread"][bad[0]], place(int(bad[0]))
            least = "above 0" if value <= 0 else f"at least {1 / LARGEST_REWARD:g}"
            raise ValueError(f"{source}, {where}: spread is {value:g}, and it must be {least}")
        about = {"score_kind": "normal", "scale": "log-probabilities"}
        given, about = _without_missing(given, about, reading)
        pair = np.stack([given["reward"], given.pop("spread")], axis=1)
        given |= _distributed(given, pair, source, normal=True)
        return given, about
    elif "beats" in given and "reward" not in given:
        about = {"score_kind": "pairs", "scale": "pairs"}
        given["reward"] = _borda(given["beats"], source, place)
    elif reading.missing != "refuse" and "reward" in given:
        given["reward"] = _numbers(given["reward"], "reward", reading, source, place)
    if reading.missing == "refuse":
        return given, about
    return _without_missing(given, about, reading)


def _lists(values: Any, name: str, reading: Reading, source: str, place: Place) -> list[FloatArray]:
    """Return lists of numbers as arrays. A missing list becomes [NaN], unless it is refused."""
    rows = []
    for number, value in enumerate(values):
        listed = value.tolist() if isinstance(value, np.ndarray) else value
        if listed is None or (isinstance(listed, float) and listed != listed):
            listed = [None]
        if not isinstance(listed, (list, tuple)) or not listed or not all(map(_is_number, listed)):
            raise ValueError(f"{source}, {place(number)}: {name} is {str(value)[:60]}, not a list of numbers")
        row = _floats(listed)
        if (np.abs(row) > LARGEST_REWARD).any() and np.isfinite(row).all():
            raise ValueError(f"{source}, {place(number)}: {name} has a value that is {_TOO_LARGE}")
        if not np.isfinite(row).all():
            if reading.missing == "refuse" or np.isinf(row).any():
                raise ValueError(f"{source}, {place(number)}: {name} has a value that is not finite{_REMEDY}")
            row = np.array([np.nan])
        rows.append(row)
    return rows


_TOO_LARGE = f"too large (at most {LARGEST_REWARD:g}): divide the rewards by a constant"
_REMEDY = " (missing='lowest' counts it as the lowest of all, missing='drop' leaves its prompt out)"


def _numbers(values: Any, name: str, reading: Reading, source: str, place: Place) -> FloatArray:
    """Return numbers as an array, with NaN for None where missing values are allowed."""
    rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
    for number, value in enumerate(rows):
        empty = value is None or value != value
        infinite = value in (float("inf"), float("-inf"))
        if infinite or (empty and reading.missing == "refuse") or not _is_number(value):
            raise ValueError(f"{source}, {place(number)}: {name} is {value!r}, not a finite number")
    found = _floats(rows)
    large = np.flatnonzero(np.abs(found) > LARGEST_REWARD)
    if len(large):
        raise ValueError(f"{source}, {place(int(large[0]))}: {name} is {_TOO_LARGE}")
    return found


def _floats(values: Sequence[Any]) -> FloatArray:
    """Return numbers as float64: NaN for None, infinity for whole numbers that float64 cannot hold."""

    def as_float(value: Any) -> float:
        try:
            return float("nan") if value is None else float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")

    return np.array([as_float(value) for value in values], dtype=np.float64)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, (int, float, np.number)) and not isinstance(value, bool))


def _by_steps(lists: Sequence[FloatArray], steps: str, source: str) -> tuple[FloatArray, bool]:
    """Combine steps; a response without a score has NaN."""
    rewards = np.full(len(lists), np.nan)
    known = np.array([not np.isnan(row).any() for row in lists])
    if not known.any():
        raise ValueError(f"{source}: no response has step scores")
    kept = [row for row, there in zip(lists, known, strict=True) if there]
    counts = np.array([len(row) for row in kept])
    try:
        rewards[known], probabilities = step_rewards(np.concatenate(kept), counts, steps)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    return rewards, probabilities


def _means(lists: Sequence[FloatArray]) -> FloatArray:
    return np.array([row.mean() for row in lists])


def _same_length(lists: Sequence[FloatArray], source: str) -> FloatArray:
    lengths = sorted({len(row) for row in lists})
    if len(lengths) != 1 or lengths[0] < 2:
        raise ValueError(
            f"{source}: quantiles: got {lengths}; every response needs the same number, at least 2"
        )
    return np.array(lists)


def _without_missing(
    given: dict[str, Any], about: dict[str, Any], reading: Reading
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give responses without a reward the lowest one, or leave their prompts out; note it in the manifest."""
    reward = np.asarray(given["reward"], dtype=np.float64)
    absent = np.isnan(reward)
    if not absent.any():
        return given, about
    items = np.asarray([str(name) for name in given["item_id"]])
    prompts = np.unique(items[absent])
    n, of = int(absent.sum()), len(prompts)
    about = about | {"missing": {"responses": n, "prompts": of, "treated": reading.missing}}
    # A distribution has no lowest value.
    if reading.missing == "drop" or absent.all() or about.get("score_kind") in ("quantiles", "normal"):
        kept = np.flatnonzero(~np.isin(items, prompts))
        given = {name: [values[i] for i in kept] for name, values in given.items()}
        given["reward"] = reward[kept]
        about["missing"]["treated"] = "drop"
        note = f"{count(n, 'response')} had no score; {count(of, 'prompt')} left out."
    else:
        given["reward"] = np.where(absent, reward[~absent].min(), reward)
        note = f"{count(n, 'response')} of {count(of, 'prompt')} had no score; lowest reward assumed."
    return given, about | {"notes": [note]}


def _distributed(
    given: Mapping[str, Any], values: FloatArray, source: str, *, normal: bool = False
) -> dict[str, Any]:
    """Return the columns `reward` and `beats` of rewards that have a distribution."""
    names = np.asarray([str(name) for name in given["item_id"]])
    _, inverse, counts = np.unique(names, return_inverse=True, return_counts=True)
    # Entries of `beats` are in the order of the response numbers, not of the rows.
    order = np.lexsort((np.asarray(given.get("response", np.zeros(len(names)))), inverse))
    starts = np.cumsum(counts) - counts
    rewards: FloatArray = np.empty(len(names))
    lists: npt.NDArray[np.object_] = np.empty(len(names), dtype=object)
    for m in np.unique(counts):
        if m < 2:
            raise ValueError(f"{source}: a prompt has only one response")
        rows = order[starts[counts == m][:, None] + np.arange(m)]  # (prompts, m)
        there = values[rows]
        try:
            model = (
                IndependentRewards.normal(there[..., 0], there[..., 1])
                if normal
                else IndependentRewards.from_quantiles(there)
            )
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from None
        rewards[rows] = model.log_first()
        lists[rows.ravel()] = _matrix_rows(model)
    return {"reward": rewards, "beats": lists}


def _matrix_rows(model: IndependentRewards) -> npt.NDArray[np.object_]:
    """Return P(R_i > R_j) as one tuple per response."""
    m = model.n_items
    one, other = np.triu_indices(m, 1)
    matrix = np.full((len(model), m, m), np.nan)
    p = model.sub(np.stack([one, other], axis=1))
    matrix[:, one, other], matrix[:, other, one] = p, 1 - p
    return as_lists(matrix.reshape(-1, m).tolist())


def _borda(lists: Any, source: str, place: Place) -> FloatArray:
    """Return the mean known probability of beating another response; 1/2 if none is known."""
    means = []
    for number, row in enumerate(lists):
        if not is_beats(row):
            raise ValueError(f"{source}, {place(number)}: beats is not a list of probabilities")
        known = [p for p in row if p is not None and p == p]
        means.append(sum(known) / len(known) if known else 0.5)
    return np.array(means)

"""Where a model is over- or under-confident: its gap by group, corrected for multiple tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib._util.terminal import count
from rmcalib.benchmarks import Benchmark
from rmcalib.calibration import check_level, mean_difference
from rmcalib.metrics._events import accuracy_of, confidence_of, if_right_and_if_wrong, of_first_choice
from rmcalib.metrics._forecasts import Forecasts, forecast, select_prompts, top_1_prompts
from rmcalib.metrics._texts import response_lengths
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["GROUPINGS", "Audit", "audit", "check_groupings"]

Row = dict[str, Any]
Labels = Sequence[str | None]
GROUPINGS = ("category", "length", "responses")
_FEWEST = 10  # prompts: with fewer, intervals and flags have little meaning
_QUARTERS = ("shortest quarter", "second quarter", "third quarter", "longest quarter")


@dataclass(frozen=True)
class Audit:
    """The gap of a model by group of prompts.

    Attributes
    ----------
    rows : list[Row]
        One per group, with group_by, group, n, says, right, gap, low, high, p_value, p_adjusted, flagged and
        note.
    level : float
        Confidence level of the intervals.

    Examples
    --------
    >>> scores = Scores.from_arrays([[1.0, 0.0]] * 30, category=["code"] * 15 + ["math"] * 15)
    >>> found = audit(scores, group_by=["category"])
    >>> found.table[["group", "n"]].values.tolist()
    [['code', 15], ['math', 15]]
    """

    rows: list[Row]
    level: float

    @property
    def table(self) -> pandas.DataFrame:
        """The rows as a pandas table."""
        import pandas

        return pandas.DataFrame(self.rows)

    @property
    def summary(self) -> str:
        """The groups that are over- or under-confident, in a sentence."""
        flagged = [row for row in self.rows if row["flagged"]]
        if not flagged:
            return "No group is over- or under-confident beyond chance."
        flagged.sort(key=lambda row: -abs(row["gap"]))
        kinds = {"over-confident": 1, "under-confident": -1}
        parts = []
        for kind, sign in kinds.items():
            names = [f"{row['group']} ({row['gap']:+.2f})" for row in flagged if row["gap"] * sign > 0]
            if names:
                parts.append(f"{kind} on {', '.join(names)}")
        rest = "" if len(flagged) == len(self.rows) else "; nothing found elsewhere"
        return f"{'; '.join(parts)}{rest}.".capitalize()


def audit(
    scores: Scores,
    *,
    benchmark: Benchmark | None = None,
    group_by: Iterable[str] = GROUPINGS,
    columns: Mapping[str, Mapping[str, str]] | None = None,
    level: float = 0.95,
) -> Audit:
    """Return the gap of a model (mean confidence minus accuracy) in each group of prompts.

    The p-values test that there is no gap. Holm's method adjusts them for the number of groups, so a
    calibrated model has no flagged group with probability ``level``.

    Parameters
    ----------
    scores : Scores
        The scores of one model; only prompts with exactly one correct response count.
    benchmark : Benchmark, optional
        The benchmark with its texts, for lengths in characters.
    group_by : Iterable[str]
        "category", "length" (quarters of the length of the picked response), "responses" (number of
        responses), or names of ``columns``. Groupings with a single group are left out, and so is "length" if
        lengths are unknown.
    columns : Mapping[str, Mapping[str, str]], optional
        More groupings: for each name, a mapping from item ids to groups. The columns of the benchmark's items
        need not be given.
    level : float
        Confidence level of the intervals. A group is flagged if its adjusted p-value is at most 1 − level.

    Returns
    -------
    Audit
        It has the rows as a pandas ``table``, and a ``summary`` in words.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rewards = np.column_stack([np.full(400, 3.0), np.zeros(400)])
    >>> wrong = np.arange(400) % 4 == 0  # the model says 95% and is right 75% of the time
    >>> columns = {"item_id": np.repeat(np.arange(400).astype(str), 2), "response": np.tile([0, 1], 400),
    ...            "category": np.repeat(["code", "math"], 400), "reward": rewards.ravel(),
    ...            "is_correct": np.column_stack([~wrong, wrong]).ravel()}
    >>> audit(Scores.from_columns(columns), group_by=["category"]).summary
    'Over-confident on code (+0.20), math (+0.20).'
    """
    check_level(level)
    everything = forecast(scores, lengths=response_lengths(scores, benchmark))
    one_answer = top_1_prompts(everything)
    if not one_answer.any():
        return Audit([], level)
    part = select_prompts(everything, one_answer)
    known = {**benchmark_columns(benchmark), **(columns or {})}
    names = check_groupings(group_by, known)
    groupings = {name: _labels(part, name, known) for name in names}
    return Audit(audit_rows(part, {k: v for k, v in groupings.items() if v is not None}, level), level)


def check_groupings(names: Iterable[str], known: Benchmark | Iterable[str] | None = None) -> list[str]:
    """Return the names of groupings without repeats; raise a ValueError if one is unknown.

    Parameters
    ----------
    names : Iterable[str]
        Names of groupings.
    known : Benchmark | Iterable[str], optional
        A benchmark, whose columns are groupings too, or the names of more groupings.

    Returns
    -------
    list of str

    Examples
    --------
    >>> check_groupings(["category", "length", "category"])
    ['category', 'length']
    >>> check_groupings(["language"])
    Traceback (most recent call last):
    ...
    ValueError: group by: unknown 'language' (have: category, length, responses)
    """
    have = [*GROUPINGS, *(benchmark_columns(known) if isinstance(known, Benchmark | None) else known)]
    found = list(dict.fromkeys(names))
    for name in found:
        if name not in have:
            raise ValueError(f"group by: unknown {name!r} (have: {', '.join(have)})")
    return found


def benchmark_columns(benchmark: Benchmark | None) -> dict[str, dict[str, str]]:
    """Return the additional columns of a benchmark's items: for each one, the value of each item id."""
    columns: dict[str, dict[str, str]] = {}
    for item in () if benchmark is None else benchmark.items:
        for name, value in getattr(item, "columns", {}).items():
            columns.setdefault(name, {})[item.id] = value
    return columns


def audit_rows(part: Forecasts, groupings: Mapping[str, Labels], level: float) -> list[Row]:
    """Return one row per grouping and group, given the label of each prompt (n,) in each grouping."""
    says = confidence_of(part)
    rights = [accuracy_of(one) for one in (part, *if_right_and_if_wrong(part))]
    rows = []
    for name, labels in groupings.items():
        groups = [group for group in dict.fromkeys(labels) if group is not None]
        if len(groups) < 2:
            continue
        for group in groups if name == "category" else sorted(groups, key=_natural):
            members = np.array([label == group for label in labels])
            own = [one[members] for one in (says, *rights)]
            rows.append({"group_by": name, "group": group, **_gap(*own, level=level)})
    known = [row for row in rows if row["p_value"] is not None]
    for row, adjusted in zip(known, holm([row["p_value"] for row in known]), strict=True):
        row["p_adjusted"], row["flagged"] = adjusted, adjusted <= round(1 - level, 12)
    return rows


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values adjusted by Holm's method, which controls the probability of any false alarm.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p, kind="stable")
    scaled = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)), 1.0)
    adjusted = np.empty(len(p))
    adjusted[order] = scaled
    return [float(value) for value in adjusted]


def _gap(
    says: FloatArray, right: FloatArray, at_most: FloatArray, at_least: FloatArray, *, level: float
) -> Row:
    """Return the gap of n prompts, given how right each choice is, and at most and at least would be."""
    n = len(says)
    row: Row = {"n": n, "says": float(says.mean()), "right": float(right.mean())}
    row["gap"] = row["says"] - row["right"]
    unknown = dict.fromkeys(("low", "high", "p_value", "p_adjusted")) | {"flagged": False}
    if n < _FEWEST:
        return row | unknown | {"note": f"fewer than {_FEWEST} prompts"}
    found = mean_difference(right, says, level=level, base=says - at_most, others=[says - at_least])
    return row | unknown | {"low": found.low, "high": found.high, "p_value": found.p_value, "note": ""}


def _labels(part: Forecasts, name: str, columns: Mapping[str, Mapping[str, str]]) -> Labels | None:
    """Return the group of each prompt, None where it has none; None if the grouping is unknown here."""
    if name in columns:
        ids = part.scores.item_id[part.scores.offsets[:-1]][part.source].tolist()
        return [None if (label := columns[name].get(one)) is None else str(label) for one in ids]
    if name == "category":
        return [str(label) for label in part.category.tolist()]
    if name == "responses":
        return [count(size, "response") for size in part.sizes.tolist()]
    if name == "length":
        length = of_first_choice(part, part.length)
        if np.isnan(length).any():
            return None
        quarter = np.searchsorted(np.quantile(length, [0.25, 0.5, 0.75]), length, side="left")
        return [_QUARTERS[i] for i in quarter.tolist()]
    raise AssertionError(name)  # check_groupings refuses it


def _natural(group: str) -> tuple[float, str]:
    """Order groups: quarters of length by length, numbers by size, others by name."""
    if group in _QUARTERS:
        return float(_QUARTERS.index(group)), ""
    number = group.split(" ")[0]
    return (float(number), "") if number.isdigit() else (float("inf"), group)

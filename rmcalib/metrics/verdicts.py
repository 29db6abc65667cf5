"""Verdicts of judges that name the best of several responses: what the order, repeats and labels do to them.

A judge sees the responses at places A, B, C, ... and names one. The same prompt is shown in several orders,
perhaps several times. Three things can make a verdict wrong: the place of the correct response, noise between
repeats of the same question, and real disagreement with the label, which remains if orders are averaged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration.intervals import standard_error
from rmcalib.scores._files import Table, is_frame, read_frame, read_table
from rmcalib.scores._schema import Problems, shown

UNREAD = -1
"""The response of a verdict that could not be read."""
_LETTERS = "ABCDEFGHIJ"
_ROLES: dict[str, Sequence[str]] = {
    "judge": ("judge", "model"),
    "prompt": ("prompt", "prompt_id", "item_id", "id", "problem"),
    "order": ("order", "permutation", "correct_at", "chosen_position"),
    "verdict": ("verdict", "letter", "answer"),
    "wording": ("wording", "template"),
    "category": ("category", "subset"),
}
_STABLE = 0.95
_MOST_SUBSETS = 200
_BUILT_IN = Path(__file__).parents[1] / "demo" / "letters.parquet"


@dataclass(frozen=True)
class Verdicts:
    """The verdicts of judges, one row per verdict. Response 0 is the correct one.

    Attributes
    ----------
    judge, prompt, wording : str (N,)
        Who was asked what, in which words of the question.
    order : object array (N,)
        The responses at places A, B, ..., as a tuple of their numbers; of verdicts whose file gives only the
        place of the correct response, a tuple with 0 at that place.
    response : int (N,)
        The response that the verdict names; -1 if it could not be read.
    """

    judge: npt.NDArray[np.str_]
    prompt: npt.NDArray[np.str_]
    wording: npt.NDArray[np.str_]
    order: npt.NDArray[np.object_]
    response: IntArray

    def __len__(self) -> int:
        """Return the number of verdicts."""
        return len(self.response)


@dataclass(frozen=True)
class Rate:
    """A fraction with its confidence limits and the number of prompts that it is from."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class VerdictAnalysis:
    """What one judge's verdicts depend on.

    Attributes
    ----------
    judge : str
        Its name.
    n_verdicts, n_prompts, n_unread : int
        How many there are. Unread verdicts count as wrong wherever a verdict is right or wrong, and are left
        out where two verdicts are compared.
    right : Rate
        The fraction of verdicts that name the correct response.
    right_at : dict of str to Rate
        The same by the place of the correct response.
    named : dict of str to float
        How often each place is named, among verdicts that were read.
    noise : Rate or None
        How often two verdicts on the same prompt, order and wording differ; None without repeats.
    across_orders : Rate or None
        How often two verdicts on the same prompt and wording in different orders differ.
    position_effect : float or None
        ``across_orders − noise`` (noise is 0 if nothing was repeated): what the order alone changes.
    across_wordings : Rate or None
        How often two verdicts on the same prompt and order in different wordings differ.
    disagreement : Rate
        How often the verdict that most orders give is not the correct response: no order repairs this.
    right_by_orders : dict of int to float
        The fraction of correct verdicts if the most frequent one of 1, 2, ... orders counts.
    agreement_by_orders : dict of int to float
        How often the most frequent verdict of 1, 2, ... orders is that of all orders.
    orders_needed : int or None
        The smallest number of orders, fewer than all, with which that happens in 95% of the prompts; None if
        there are too few orders to tell.
    """

    judge: str
    n_verdicts: int
    n_prompts: int
    n_unread: int
    right: Rate
    right_at: dict[str, Rate]
    named: dict[str, float]
    noise: Rate | None
    across_orders: Rate | None
    position_effect: float | None
    across_wordings: Rate | None
    disagreement: Rate
    right_by_orders: dict[int, float]
    agreement_by_orders: dict[int, float]
    orders_needed: int | None


def load_verdicts(source: Any = "real", columns: Mapping[str, str] | None = None) -> Verdicts:
    """Read verdicts from a file or a table with the columns `judge, prompt, order, verdict`.

    Parameters
    ----------
    source : str, Path, DataFrame or Arrow table
        A file (CSV, TSV, Parquet, JSONL, JSON) or a table. ``"real"`` are the built-in verdicts of five
        judges on RewardBench 2, 1,763 prompts in four orders each.
    columns : Mapping[str, str], optional
        The columns of judge, prompt, order, verdict, wording and category, if they have other names. The
        category is used only to tell equal ids apart.

    Returns
    -------
    Verdicts

    Notes
    -----
    The order lists the responses at places A, B, ...: ``[1, 0, 2]``, ``"1,0,2"`` or ``"102"``, where response
    0 is the correct one; or it is the place of the correct response, A, B, .... A verdict is the letter of a
    place, or its number from 1. Anything else is unread. Repeats are rows with the same judge, prompt, order
    and wording.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"judge": "m", "prompt": ["a", "a"], "order": ["01", "10"],
    ...                       "verdict": ["A", "A"]})
    >>> load_verdicts(table).response.tolist()  # the first place, whatever is there
    [0, 1]
    """
    file = _BUILT_IN if str(source) == "real" else source
    table = read_frame(source) if is_frame(source) else read_table(file)
    problems = Problems(table.source)
    found = {
        role: (columns or {}).get(role) or next((name for name in names if name in table.columns), None)
        for role, names in _ROLES.items()
    }
    for role in ("prompt", "order", "verdict"):
        if found[role] is None:
            problems.append(
                f"no column of {role}s (has {', '.join(table.columns)}): name it with {role}=NAME"
            )
    for role, name in found.items():
        if name is not None and name not in table.columns:
            problems.append(f"no column {name!r} for {role} (has {', '.join(table.columns)})")
    problems.raise_if_any()
    orders = _orders(table, str(found["order"]), problems)
    problems.raise_if_any()

    def texts(role: str) -> npt.NDArray[np.str_]:
        name = found[role]
        return np.array([""] * len(table) if name is None else [str(v) for v in table.columns[name]])

    prompt, category = texts("prompt"), texts("category")
    if found["category"] is not None:
        prompt = np.char.add(np.char.add(category, "/"), prompt)
    named = [
        _named(value, order)
        for value, order in zip(table.columns[str(found["verdict"])], orders, strict=True)
    ]
    column = np.empty(len(orders), dtype=object)
    column[:] = orders
    return Verdicts(texts("judge"), prompt, texts("wording"), column, np.array(named, dtype=np.int64))


def _orders(table: Table, name: str, problems: Problems) -> list[tuple[int, ...]]:
    """Return the responses at each place. If only the place of the correct one is known, it has 0 there."""
    values = table.columns[name]
    places = {str(value).strip().upper() for value in values}
    if places <= {*_LETTERS}:  # the place of the correct response
        m = max(2, 1 + max(map(_LETTERS.index, places)))
        by_letter = {
            letter: tuple(0 if i == at else i + (i < at) for i in range(m))
            for at, letter in enumerate(_LETTERS[:m])
        }
        return [by_letter[str(value).strip().upper()] for value in values]
    orders: list[tuple[int, ...]] = []
    for row, value in enumerate(values):
        parts: Iterable[Any] = value
        if isinstance(value, str):
            parts = value.replace(",", " ").split() if not value.strip().isdigit() else value.strip()
        try:
            order = tuple(int(part) for part in parts)
        except (TypeError, ValueError):
            order = ()
        if sorted(order) != [*range(len(order))] or len(order) < 2:
            problems.append(
                f"{table.place(row)}: {name} is {shown(value)}: list the responses in the order shown, such "
                "as 1,0,2, or give the place of the correct one, A, B, ..."
            )
            break
        orders.append(order)
    return orders


def _named(verdict: Any, order: Sequence[int]) -> int:
    """Return the response at the place that a verdict names."""
    text = str(verdict).strip().upper().removesuffix(".0")
    place = (
        _LETTERS.find(text) if len(text) == 1 and text.isalpha() else int(text) - 1 if text.isdigit() else -1
    )
    return order[place] if 0 <= place < len(order) else UNREAD


def analyse_verdicts(verdicts: Verdicts, *, level: float = 0.95) -> dict[str, VerdictAnalysis]:
    """Split what makes verdicts wrong: place, noise between repeats, disagreement with the labels.

    Parameters
    ----------
    verdicts : Verdicts
        The verdicts of one or more judges.
    level : float
        The level of the intervals. Prompts are the units: all verdicts on a prompt belong together.

    Returns
    -------
    dict of str to VerdictAnalysis
        By judge.

    Examples
    --------
    >>> found = analyse_verdicts(load_verdicts())["Skywork/Skywork-Critic-Llama-3.1-8B"]
    >>> {place: round(rate.value, 2) for place, rate in found.right_at.items()}
    {'A': 0.89, 'B': 0.78, 'C': 0.31, 'D': 0.27}
    """
    return {
        str(judge): _analysis(str(judge), verdicts, np.flatnonzero(verdicts.judge == judge), level)
        for judge in dict.fromkeys(verdicts.judge.tolist())
    }


def _analysis(judge: str, verdicts: Verdicts, rows: IntArray, level: float) -> VerdictAnalysis:
    response, order, wording = verdicts.response[rows], verdicts.order[rows], verdicts.wording[rows]
    _, prompt = np.unique(verdicts.prompt[rows], return_inverse=True)
    correct = (response == 0).astype(np.float64)
    at = np.array([one.index(0) for one in order])
    read = response != UNREAD
    place = np.array(
        [one.index(r) if r != UNREAD else UNREAD for one, r in zip(order, response, strict=True)]
    )
    m = max(map(len, order))
    pairs = _pairs(prompt, order, wording, response)
    noise = _rate_of_pairs(pairs, level, same_order=True, same_wording=True)
    orders = _rate_of_pairs(pairs, level, same_order=False, same_wording=True)
    by_prompt = _shares(prompt, order, response, m)
    right, agree = _by_number_of_orders(by_prompt)
    final = np.array([_most_frequent(np.concatenate(own).reshape(-1, m).sum(axis=0))[0] for own in by_prompt])
    return VerdictAnalysis(
        judge=judge,
        n_verdicts=len(rows),
        n_prompts=len(by_prompt),
        n_unread=int((~read).sum()),
        right=_rate(correct, prompt, level),
        right_at={
            _LETTERS[i]: _rate(correct[at == i], prompt[at == i], level) for i in np.unique(at).tolist()
        },
        named={_LETTERS[i]: float((place[read] == i).mean()) for i in range(m)} if read.any() else {},
        noise=noise,
        across_orders=orders,
        position_effect=None if orders is None else orders.value - (noise.value if noise else 0.0),
        across_wordings=_rate_of_pairs(pairs, level, same_order=True, same_wording=False),
        disagreement=_rate(1 - final, np.arange(len(final)), level),
        right_by_orders=right,
        agreement_by_orders=agree,
        orders_needed=next((k for k, v in agree.items() if v >= _STABLE and k < max(agree)), None),
    )


def _rate(values: FloatArray, prompt: IntArray, level: float) -> Rate:
    """Return the mean over all rows; its standard error has prompts as clusters."""
    from scipy.special import ndtri

    _, cluster = np.unique(prompt, return_inverse=True)
    n, mean = int(cluster.max()) + 1, float(values.mean())
    width = float(ndtri(0.5 + level / 2)) * standard_error(values, cluster)
    return Rate(mean, max(0.0, mean - width), min(1.0, mean + width), n)


def _pairs(
    prompt: IntArray, order: Any, wording: Any, response: IntArray
) -> list[tuple[int, bool, bool, bool]]:
    """Return all pairs of read verdicts on a prompt: (prompt, same order, same wording, differ)."""
    own: dict[int, list[int]] = {}
    for i, p in enumerate(prompt.tolist()):
        if response[i] != UNREAD:
            own.setdefault(p, []).append(i)
    return [
        (p, order[i] == order[j], bool(wording[i] == wording[j]), bool(response[i] != response[j]))
        for p, rows in own.items()
        for i, j in combinations(rows, 2)
    ]


def _rate_of_pairs(
    pairs: Sequence[tuple[int, bool, bool, bool]], level: float, *, same_order: bool, same_wording: bool
) -> Rate | None:
    chosen = [(p, differ) for p, o, w, differ in pairs if o is same_order and w is same_wording]
    if not chosen:
        return None
    return _rate(np.array([float(d) for _, d in chosen]), np.array([p for p, _ in chosen]), level)


def _shares(prompt: IntArray, order: Any, response: IntArray, m: int) -> list[list[FloatArray]]:
    """Return, for each prompt and each of its orders, how often each response is named: lists of (m,)."""
    found: list[dict[Any, FloatArray]] = [{} for _ in range(int(prompt.max()) + 1)]
    for p, o, r in zip(prompt.tolist(), order, response.tolist(), strict=True):
        counts = found[p].setdefault(o, np.zeros(m))
        if r != UNREAD:
            counts[r] += 1
    return [[counts / max(counts.sum(), 1.0) for counts in own.values()] for own in found]


def _most_frequent(counts: FloatArray) -> FloatArray:
    """Return the share of each response in first place: (m,), zeros if no verdict was read."""
    top = (counts == counts.max()) & (counts > 0)
    return np.asarray(top / max(int(top.sum()), 1), dtype=np.float64)


def _by_number_of_orders(
    by_prompt: Sequence[Sequence[FloatArray]],
) -> tuple[dict[int, float], dict[int, float]]:
    """Return, for 1, 2, ... orders: how often their verdict is right, and how often it is that of all."""
    right: dict[int, list[float]] = {}
    agree: dict[int, list[float]] = {}
    rng = np.random.default_rng(0)
    for own in by_prompt:
        shares = np.array(own)
        final = _most_frequent(shares.sum(axis=0))
        for k in range(1, len(own) + 1):
            if comb(len(own), k) <= _MOST_SUBSETS:
                subsets = np.array([*combinations(range(len(own)), k)])
            else:
                subsets = np.array([rng.permutation(len(own))[:k] for _ in range(_MOST_SUBSETS)])
            firsts = [_most_frequent(shares[chosen].sum(axis=0)) for chosen in subsets]
            right.setdefault(k, []).append(float(np.mean([first[0] for first in firsts])))
            agree.setdefault(k, []).append(float(np.mean([first @ final for first in firsts])))
    return _means(right), _means(agree)


def _means(lists: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {k: float(np.mean(values)) for k, values in lists.items()}

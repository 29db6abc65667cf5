"""Verdicts of judges that name the best of several responses: what the order, repeats and labels do to them.

A judge sees the responses at places A, B, C, ... and names one. The same prompt is shown in several orders,
perhaps several times. Three things can make a verdict wrong: the place of the correct response, noise between
repeats of the same question, and real disagreement with the label, which remains if orders are averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from rmcalib.scores._schema import shown

UNREAD = -1
"""The response of a verdict that could not be read."""
_LETTERS = "ABCDEFGHIJ"
_ROLES: dict[str, Sequence[str]] = {
    "prompt": ("prompt", "prompt_id", "item_id", "id", "problem"),
    "order": ("order", "permutation", "correct_at", "chosen_position"),
    "verdict": ("verdict", "letter", "answer"),
    "judge": ("judge", "model"),
    "wording": ("wording", "template"),
    "category": ("category", "subset"),
}
_NEEDED = ("prompt", "order", "verdict")
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
    order : list of tuples of int
        The numbers of the responses at places A, B, .... If a file gives only the place of the correct
        response, 0 is at that place.
    response : int (N,)
        The response that the verdict names; -1 if it could not be read.
    """

    judge: npt.NDArray[np.str_]
    prompt: npt.NDArray[np.str_]
    wording: npt.NDArray[np.str_]
    order: list[tuple[int, ...]]
    response: IntArray


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
    noise : Rate or None
        How often two verdicts on the same prompt, order and wording differ; None without repeats.
    across_orders, across_wordings : Rate or None
        The same for different orders in the same wording, and for different wordings in the same order.
    position_effect : float or None
        ``across_orders − noise`` (noise is 0 if nothing was repeated): what the order alone changes.
    disagreement : Rate
        How often the verdict that most orders give is not the correct response: no order repairs this.
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
    noise: Rate | None
    across_orders: Rate | None
    across_wordings: Rate | None
    position_effect: float | None
    disagreement: Rate
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
    table = read_frame(source) if is_frame(source) else read_table(_BUILT_IN if source == "real" else source)
    found = {
        role: next((name for name in names if name in table.columns), "") for role, names in _ROLES.items()
    }
    found |= columns or {}
    missing = [role for role in _NEEDED if not found[role]]
    missing += [repr(name) for name in found.values() if name and name not in table.columns]
    if missing:
        raise ValueError(f"{table.source}: no column {', '.join(missing)} (has {', '.join(table.columns)})")

    def texts(role: str) -> npt.NDArray[np.str_]:
        name = found[role]
        return np.array([str(value) for value in table.columns[name]] if name else [""] * len(table))

    prompt, orders = texts("prompt"), _orders(table, found["order"])
    if found["category"]:
        prompt = np.char.add(np.char.add(texts("category"), "/"), prompt)
    named = [_named(text, order) for text, order in zip(texts("verdict"), orders, strict=True)]
    return Verdicts(texts("judge"), prompt, texts("wording"), orders, np.array(named, dtype=np.int64))


def _orders(table: Table, name: str) -> list[tuple[int, ...]]:
    """Return the responses at each place. If only the place of the correct one is known, it has 0 there."""
    texts = [str(value).strip().upper() for value in table.columns[name]]
    if {*texts} <= {*_LETTERS}:
        places = [_LETTERS.index(text) for text in texts]
        m = max(2, 1 + max(places))
        return [(*range(1, at + 1), 0, *range(at + 1, m)) for at in places]
    orders = []
    for row, text in enumerate(texts):
        order = tuple(int(part) for part in (text if text.isdigit() else re.findall(r"\d+", text)))
        if sorted(order) != [*range(len(order))] or len(order) < 2:
            raise ValueError(
                f"{table.source}, {table.place(row)}: {name} is {shown(table.columns[name][row])}: list the "
                "responses in the order shown, such as 1,0,2, or give the place of the correct one, A, B, ..."
            )
        orders.append(order)
    return orders


def _named(verdict: str, order: Sequence[int]) -> int:
    """Return the response at the place that a verdict names."""
    text = verdict.strip().upper().removesuffix(".0")
    place = int(text) - 1 if text.isdigit() else _LETTERS.find(text) if len(text) == 1 else -1
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
    names = dict.fromkeys(verdicts.judge.tolist())
    return {name: _analysis(name, verdicts, np.flatnonzero(verdicts.judge == name), level) for name in names}


def _analysis(judge: str, verdicts: Verdicts, rows: IntArray, level: float) -> VerdictAnalysis:
    response, wording = verdicts.response[rows], verdicts.wording[rows]
    order = [verdicts.order[row] for row in rows]
    _, prompt = np.unique(verdicts.prompt[rows], return_inverse=True)
    correct, at = (response == 0).astype(np.float64), np.array([one.index(0) for one in order])
    own: dict[int, list[int]] = {}  # the read verdicts on each prompt
    for row in np.flatnonzero(response != UNREAD).tolist():
        own.setdefault(int(prompt[row]), []).append(row)
    pairs = np.array(
        [
            (p, order[i] == order[j], wording[i] == wording[j], response[i] != response[j])
            for p, mine in own.items()
            for i, j in combinations(mine, 2)
        ]
    ).reshape(-1, 4)

    def differ(same_order: bool, same_wording: bool) -> Rate | None:
        chosen = pairs[(pairs[:, 1] == same_order) & (pairs[:, 2] == same_wording)]
        return _rate(chosen[:, 3].astype(np.float64), chosen[:, 0], level) if len(chosen) else None

    noise, across = differ(True, True), differ(False, True)
    by_prompt = _shares(prompt, order, response)
    wrong = np.array([1 - _most_frequent(shares.sum(axis=0))[0] for shares in by_prompt])
    agree = _agreement_by_orders(by_prompt)
    return VerdictAnalysis(
        judge=judge,
        n_verdicts=len(rows),
        n_prompts=len(by_prompt),
        n_unread=int((response == UNREAD).sum()),
        right=_rate(correct, prompt, level),
        right_at={
            _LETTERS[i]: _rate(correct[at == i], prompt[at == i], level) for i in np.unique(at).tolist()
        },
        noise=noise,
        across_orders=across,
        across_wordings=differ(True, False),
        position_effect=None if across is None else across.value - (noise.value if noise else 0.0),
        disagreement=_rate(wrong, np.arange(len(wrong)), level),
        agreement_by_orders=agree,
        orders_needed=next((k for k, v in agree.items() if v >= _STABLE and k < max(agree)), None),
    )


def _rate(values: FloatArray, prompt: IntArray, level: float) -> Rate:
    """Return the mean over all rows; its standard error has prompts as clusters."""
    from scipy.special import ndtri

    _, cluster = np.unique(prompt, return_inverse=True)
    mean, width = float(values.mean()), float(ndtri(0.5 + level / 2)) * standard_error(values, cluster)
    return Rate(mean, max(0.0, mean - width), min(1.0, mean + width), int(cluster.max()) + 1)


def _shares(prompt: IntArray, order: Sequence[tuple[int, ...]], response: IntArray) -> list[FloatArray]:
    """Return for each prompt how often each response is named in each of its orders: (orders, m)."""
    found: list[dict[tuple[int, ...], FloatArray]] = [{} for _ in range(int(prompt.max()) + 1)]
    m = max(map(len, order))
    for p, shown_as, named in zip(prompt.tolist(), order, response.tolist(), strict=True):
        counts = found[p].setdefault(shown_as, np.zeros(m))
        if named != UNREAD:
            counts[named] += 1
    return [np.array([counts / max(counts.sum(), 1.0) for counts in own.values()]) for own in found]


def _most_frequent(counts: FloatArray) -> FloatArray:
    """Return the share of each response in first place: (m,), zeros if no verdict was read."""
    top = (counts == counts.max()) & (counts > 0)
    return np.asarray(top / max(int(top.sum()), 1), dtype=np.float64)


def _agreement_by_orders(by_prompt: Sequence[FloatArray]) -> dict[int, float]:
    """Return for 1, 2, ... orders how often their most frequent verdict is that of all orders."""
    agree: dict[int, list[float]] = {}
    rng = np.random.default_rng(0)
    for shares in by_prompt:
        n, final = len(shares), _most_frequent(shares.sum(axis=0))
        for k in range(1, n + 1):
            if comb(n, k) <= _MOST_SUBSETS:
                subsets = [list(one) for one in combinations(range(n), k)]
            else:
                subsets = [rng.permutation(n)[:k].tolist() for _ in range(_MOST_SUBSETS)]
            firsts = [_most_frequent(shares[chosen].sum(axis=0)) @ final for chosen in subsets]
            agree.setdefault(k, []).append(float(np.mean(firsts)))
    return {k: float(np.mean(values)) for k, values in agree.items()}

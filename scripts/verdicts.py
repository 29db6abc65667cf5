"""Verdicts of judges that name the best of several responses: what the order, repeats and labels do to them.

A judge sees the responses at places A, B, C, ... and names one. The same prompt is shown in several orders,
perhaps several times. Three things can make a verdict wrong: the place of the correct response, noise between
repeats of the same question, and real disagreement with the label, which remains if orders are averaged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import rmcalib
from rmcalib._util.arrays import FloatArray
from rmcalib.calibration.clusters import mean_error
from rmcalib.scores._files import is_frame, read_frame, read_table

if TYPE_CHECKING:
    import pandas

UNREAD = -1
"""The response of a verdict that could not be read."""
_LETTERS = "ABCDEFGHIJ"
_NEEDED = ("prompt", "order", "verdict")
_OPTIONAL = ("judge", "wording", "category")
_STABLE = 0.95
_MOST_SUBSETS = 200
_BUILT_IN = Path(rmcalib.__file__).parent / "demo" / "letters.parquet"
_ITS_COLUMNS = {"prompt": "id", "order": "correct_at", "verdict": "letter", "category": "subset"}


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


def load_verdicts(source: Any = "real", columns: Mapping[str, str] | None = None) -> pandas.DataFrame:
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
    DataFrame
        One row per verdict: judge, prompt, wording, order (the responses at places A, B, ..., such as "102";
        response 0 is the correct one) and response (the one that the verdict names; -1 if it could not be read).

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
    >>> load_verdicts(table)["response"].tolist()  # the first place, whatever is there
    [0, 1]
    """
    import pandas

    if isinstance(source, str) and source == "real":
        source, columns = _BUILT_IN, _ITS_COLUMNS
    table, named = read_frame(source) if is_frame(source) else read_table(source), columns or {}
    frame = pandas.DataFrame(index=range(len(table)))
    for role in (*_NEEDED, *_OPTIONAL):
        name = named.get(role, role)
        if name in table.columns:
            frame[role] = [str(value).strip() for value in table.columns[name]]
        elif role in named or role in _NEEDED:
            have = ", ".join(table.columns)
            raise ValueError(f"{table.source}: no column {name!r} for {role} (has {have})")
        else:
            frame[role] = ""
    frame["prompt"] = frame["category"] + "/" + frame["prompt"]
    frame["order"] = _orders(frame["order"].tolist(), table.source)
    frame["response"] = list(map(_named, frame["verdict"], frame["order"]))
    return frame[["judge", "prompt", "wording", "order", "response"]]


def _orders(values: list[str], source: str) -> list[str]:
    """Return the responses at each place. If only the place of the correct one is known, it has 0 there."""
    places = {value.upper() for value in values}
    if places <= {*_LETTERS}:
        m = max([2, *(1 + _LETTERS.index(place) for place in places)])
        wrong = "123456789"[: m - 1]
        return [wrong[:at] + "0" + wrong[at:] for at in (_LETTERS.index(value.upper()) for value in values)]
    orders = ["".join(re.findall(r"\d", value)) for value in values]
    for row, (order, value) in enumerate(zip(orders, values, strict=True)):
        if len(order) < 2 or sorted(order) != [*"0123456789"[: len(order)]]:
            raise ValueError(
                f"{source}, row {row}: order is {value!r}: list the responses in the order shown, such as 1,0,2, "
                "or give the place of the correct one, A, B, ..."
            )
    return orders


def _named(verdict: str, order: str) -> int:
    """Return the response at the place that a verdict names."""
    text = verdict.upper().removesuffix(".0")
    place = int(text) - 1 if text.isdigit() else _LETTERS.find(text) if len(text) == 1 else -1
    return int(order[place]) if 0 <= place < len(order) else UNREAD


def analyse_verdicts(verdicts: pandas.DataFrame, *, level: float = 0.95) -> dict[str, VerdictAnalysis]:
    """Split what makes verdicts wrong: place, noise between repeats, disagreement with the labels.

    Parameters
    ----------
    verdicts : DataFrame
        The verdicts of one or more judges, from `load_verdicts`.
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
        str(judge): _analysis(str(judge), own, level) for judge, own in verdicts.groupby("judge", sort=False)
    }


def _analysis(judge: str, own: pandas.DataFrame, level: float) -> VerdictAnalysis:
    prompt, correct = own["prompt"], (own["response"] == 0).astype(float)
    at = own["order"].str.find("0")
    read = own[own["response"] != UNREAD].reset_index()
    # All pairs of read verdicts on a prompt.
    pairs = read.merge(read, on="prompt", suffixes=("", "_2"))
    pairs = pairs[pairs["index"] < pairs["index_2"]]
    same_order, same_wording = pairs["order"] == pairs["order_2"], pairs["wording"] == pairs["wording_2"]
    differ = (pairs["response"] != pairs["response_2"]).astype(float)

    def difference(kept: pandas.Series[bool]) -> Rate | None:
        return _rate(differ[kept], pairs["prompt"][kept], level) if kept.any() else None

    noise, orders = difference(same_order & same_wording), difference(~same_order & same_wording)
    by_orders = _by_number_of_orders(own)
    agreement = dict(enumerate(by_orders.groupby("orders")["agrees"].mean().tolist(), start=1))
    wrong = 1 - by_orders.groupby("prompt")["right"].last()  # of all orders
    return VerdictAnalysis(
        judge=judge,
        n_verdicts=len(own),
        n_prompts=len(wrong),
        n_unread=len(own) - len(read),
        right=_rate(correct, prompt, level),
        right_at={_LETTERS[i]: _rate(correct[at == i], prompt[at == i], level) for i in sorted(set(at))},
        noise=noise,
        across_orders=orders,
        position_effect=None if orders is None else orders.value - (noise.value if noise else 0.0),
        across_wordings=difference(same_order & ~same_wording),
        disagreement=_rate(wrong, wrong.index, level),
        agreement_by_orders=agreement,
        orders_needed=next((k for k, v in agreement.items() if v >= _STABLE and k < max(agreement)), None),
    )


def _rate(values: Any, prompt: Any, level: float) -> Rate:
    """Return the mean over all rows; its standard error has prompts as clusters."""
    rows = np.asarray(values, dtype=np.float64)
    names, cluster = np.unique(np.asarray(prompt), return_inverse=True)
    mean = float(rows.mean())
    width = mean_error(rows, cluster).margin(level)
    return Rate(mean, max(0.0, mean - width), min(1.0, mean + width), len(names))


def _by_number_of_orders(own: pandas.DataFrame) -> pandas.DataFrame:
    """Return, per prompt and for 1, 2, ... orders: how often their verdict is right, and is that of all orders."""
    import pandas

    m = own["order"].str.len().max()
    counts = own.groupby(["prompt", "order", "response"]).size().unstack(fill_value=0)
    counts = counts.reindex(columns=range(m), fill_value=0)  # without unread verdicts
    shares = counts.div(counts.sum(axis=1).clip(lower=1), axis=0)
    sizes = shares.groupby(level="prompt").size()
    rng, found = np.random.default_rng(0), []
    for size in sorted(set(sizes)):
        prompts = sizes.index[sizes == size]
        each = shares.loc[prompts].to_numpy().reshape(len(prompts), size, m)
        final = _most_frequent(each.sum(axis=1))
        for k in range(1, size + 1):
            if comb(size, k) <= _MOST_SUBSETS:
                subsets = [list(chosen) for chosen in combinations(range(size), k)]
            else:
                subsets = [rng.permutation(size)[:k].tolist() for _ in range(_MOST_SUBSETS)]
            first = np.mean([_most_frequent(each[:, chosen].sum(axis=1)) for chosen in subsets], axis=0)
            columns = {"right": first[:, 0], "agrees": (first * final).sum(axis=1)}
            found.append(pandas.DataFrame({"prompt": prompts, "orders": k, **columns}))
    return pandas.concat(found)


def _most_frequent(counts: FloatArray) -> FloatArray:
    """Return the share of each response in first place: (n, m), zeros where no verdict was read."""
    top = (counts == counts.max(axis=1, keepdims=True)) & (counts > 0)
    return np.asarray(top / np.maximum(top.sum(axis=1, keepdims=True), 1))

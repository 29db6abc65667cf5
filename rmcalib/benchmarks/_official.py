"""Official scores: the numbers that a benchmark's authors report, computed from rewards as they do."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.benchmarks._entries import BenchmarkEntry, entry_for
from rmcalib.benchmarks._items import Benchmark

_TIED_ID = re.compile(r"(ref|tied):.+")


@dataclass(frozen=True)
class OfficialScore:
    """One number that a benchmark's authors report.

    Parameters
    ----------
    metric : str
        Name of the number, such as `"accuracy"`.
    category : str
        Category of the prompts; `"all"` for the headline.
    value : float
        The number, usually between 0 and 1.
    n : int
        Number of prompts that it is computed from.

    Examples
    --------
    >>> OfficialScore("accuracy", "all", 0.75, 4).value
    0.75
    """

    metric: str
    category: str
    value: float
    n: int


def official_score(
    scores: Any, benchmark: Benchmark | BenchmarkEntry | str | None = None
) -> list[OfficialScore]:
    """Compute the scores that the benchmark's authors report, as they do.

    Parameters
    ----------
    scores : Scores
        Rewards of the prompts (`rmcalib.scores.Scores`).
    benchmark : Benchmark | BenchmarkEntry | str, optional
        The benchmark, its entry or its name; default the one in the manifest of the scores. Some official
        scores use columns of the benchmark; without them, they use the rewards alone.

    Returns
    -------
    list of OfficialScore
        The headline comes first. The list is empty if the authors define no score, or if the benchmark is
        unknown.

    Examples
    --------
    >>> from rmcalib.scores import Scores
    >>> scores = Scores.from_arrays([[2.0, 1.0], [0.0, 1.0]], category=["mmlu-pro", "livebench"])
    >>> [(row.metric, row.category, row.value) for row in official_score(scores, "judgebench")]
    [('accuracy', 'all', 0.5), ('accuracy', 'mmlu-pro', 1.0), ('accuracy', 'livebench', 0.0)]
    """
    if benchmark is None:
        entry = entry_of(scores.manifest)
    else:
        entry = benchmark if isinstance(benchmark, BenchmarkEntry) else entry_for(benchmark)
    if entry is None or entry.official is None:
        return []
    if isinstance(benchmark, Benchmark):
        scores = _with_columns(scores, benchmark)
    return OFFICIAL[entry.official](scores, entry)


def _with_columns(scores: Any, benchmark: Benchmark) -> Any:
    """Return scores that have the columns of their benchmark, such as the pairs that its authors drew."""
    columns_of = {item.id: item.columns for item in benchmark.items}
    of_row = [columns_of.get(identifier, {}) for identifier in scores.item_id.tolist()]
    extra = {name: np.array([columns.get(name) for columns in of_row]) for name in benchmark.columns}
    return replace(scores, extra={**scores.extra, **extra})


def _starts(scores: Any) -> IntArray:
    """Return the index of the first response of each prompt: (n,)."""
    starts: IntArray = scores.offsets[:-1]
    return starts


def _categories(scores: Any) -> npt.NDArray[np.str_]:
    """Return the category of each prompt: (n,)."""
    names: npt.NDArray[np.str_] = scores.category[_starts(scores)]
    return names


def _per_response(values: Any, scores: Any) -> Any:
    """Repeat a value per prompt (n,) for each of its responses: (N,)."""
    return np.repeat(values, np.diff(scores.offsets))


# Which responses have the largest rewards


def has_largest_reward(scores: Any) -> BoolArray:
    """Return which responses have the largest reward of their prompt: (N,)."""
    largest = np.maximum.reduceat(scores.reward, _starts(scores))
    return np.asarray(scores.reward == _per_response(largest, scores))


def best_beats_all(scores: Any) -> BoolArray:
    """Return whether every correct response of a prompt has a larger reward than every wrong one: (n,)."""
    worst = np.minimum.reduceat(np.where(scores.is_correct, scores.reward, np.inf), _starts(scores))
    rival = np.maximum.reduceat(np.where(scores.is_correct, -np.inf, scores.reward), _starts(scores))
    return np.asarray(worst > rival)


def shared_first_place(scores: Any) -> FloatArray:
    """Return the accuracy of each prompt (n,), where responses with equal rewards share first place.

    It is 1/t if the first correct response is one of the t responses with the largest reward, else 0. A prompt
    without a correct response has 0.

    >>> from rmcalib.scores import Scores
    >>> shared_first_place(Scores.from_arrays([[2.0, 1.0], [1.0, 1.0], [0.0, 1.0]]))
    array([1. , 0.5, 0. ])
    """
    first = has_largest_reward(scores)
    sharing = np.add.reduceat(first, _starts(scores), dtype=np.int64)
    none = len(scores)  # the row of the first correct response if there is none
    chosen = np.minimum.reduceat(np.where(scores.is_correct, np.arange(none), none), _starts(scores))
    place: FloatArray = np.where(np.append(first, False)[chosen], 1.0 / sharing, 0.0)
    return place


def mean_by_category(
    metric: str,
    values: npt.NDArray[np.float64 | np.bool_],
    scores: Any,
    *,
    weights: npt.NDArray[np.int64 | np.bool_] | None = None,
    average_categories: bool = False,
) -> list[OfficialScore]:
    """Return the mean of `values` (n,) over all prompts, and by category in order of appearance.

    `weights` (n,) are 0 for prompts that do not count. With `average_categories`, the headline is the mean of
    the values of the categories.
    """
    weights = np.ones(len(values), dtype=bool) if weights is None else weights

    def row(name: str, prompts: BoolArray) -> OfficialScore:
        mean = np.average(values[prompts], weights=weights[prompts]) if prompts.any() else np.nan
        return OfficialScore(metric, name, float(mean), int(prompts.sum()))

    kept, category = weights > 0, _categories(scores)
    rows = [row(name, kept & (category == name)) for name in dict.fromkeys(category[kept].tolist())]
    overall = row("all", kept)
    if average_categories and rows:
        overall = replace(overall, value=float(np.mean([each.value for each in rows])))
    return [overall, *rows]


# The scores. Each takes the rewards and the benchmark's entry; the headline comes first.


def accuracy(scores: Any, _: BenchmarkEntry) -> list[OfficialScore]:
    """Return how often the correct responses beat all others. Prompts without any do not count: votes may be tied."""
    return mean_by_category("accuracy", best_beats_all(scores), scores, weights=_has_correct(scores))


def _has_correct(scores: Any) -> BoolArray:
    """Return which prompts have a correct response: (n,)."""
    return np.asarray(np.logical_or.reduceat(scores.is_correct, _starts(scores)))


def sections(scores: Any, entry: BenchmarkEntry) -> list[OfficialScore]:
    """RewardBench: the mean of the sections, the sections (weighted means), and the subsets."""
    subsets = {row.category: row for row in accuracy(scores, entry)[1:]}
    rows = []
    for section, weights in entry.sections.items():
        subsets_of = [(subsets[name], weight) for name, weight in weights.items() if name in subsets]
        if subsets_of:
            values, total = zip(*((row.value, weight) for row, weight in subsets_of), strict=True)
            mean = float(np.average(values, weights=total))
            rows.append(OfficialScore("section_score", section, mean, sum(row.n for row, _ in subsets_of)))
    headline = float(np.mean([row.value for row in rows])) if rows else float("nan")
    return [OfficialScore("score", "all", headline, sum(row.n for row in rows)), *rows, *subsets.values()]


def categories_and_ties(scores: Any, _: BenchmarkEntry) -> list[OfficialScore]:
    """RewardBench 2: the mean of the categories, and the accuracy of each; Ties has its own score."""
    rows = category_scores(scores)
    mean = float(np.mean([row.value for row in rows])) if rows else float("nan")
    return [OfficialScore("score", "all", mean, sum(row.n for row in rows)), *rows]


def category_scores(scores: Any) -> list[OfficialScore]:
    """Return each category's accuracy, or in RewardBench 2's Ties their own score.

    It is NaN if there are no pairs of ids ref:N and tied:N.
    """
    rows = mean_by_category("accuracy", shared_first_place(scores), scores, weights=_has_correct(scores))
    tied, scores_of = tied_categories(scores), []
    for row in rows[1:]:
        if row.category in tied:
            total = ties_sums(scores, row.category).sum(axis=0, keepdims=True)
            value = float(ties_scores(total)[0]) if total[0, -1] > 0 else float("nan")
            row = OfficialScore("ties_score", row.category, value, row.n)
        scores_of.append(row)
    return scores_of


def entry_of(manifest: Mapping[str, Any]) -> BenchmarkEntry | None:
    """Return the benchmark that scores are from, by their manifest; None if it is not a known one."""
    name = str(manifest.get("benchmark_format") or manifest.get("benchmark") or "")
    return entry_for(name.partition("@")[0])


def tied_categories(scores: Any) -> frozenset[str]:
    """Return the categories without a single right answer: RewardBench 2's Ties."""
    ids, category = scores.item_id[_starts(scores)], _categories(scores)
    names, first = np.unique(category, return_index=True)
    entry = entry_of(scores.manifest)
    if entry is not None and entry.no_single_answer:
        return frozenset(names.tolist()) & entry.no_single_answer
    # The first prompt of most categories shows already that they are others.
    seeming = [name for name, i in zip(names.tolist(), first, strict=True) if _TIED_ID.fullmatch(ids[i])]
    return frozenset(name for name in seeming if all(map(_TIED_ID.fullmatch, ids[category == name].tolist())))


def ties_sums(scores: Any, category: str) -> FloatArray:
    """Return the terms of RewardBench 2's Ties score for each number N in the ids `ref:N` and `tied:N`.

    For each prompt, let g = worst correct − best wrong reward, w = best correct − worst correct reward, and
    a = [g > 0]. The eight columns are

    - a_tied, and whether there is a prompt `tied:N`;
    - a_ref, and whether there is a prompt `ref:N`;
    - [g_tied > w_tied], [min(g_ref, g_tied) > w_tied] and tanh(min(g_ref, g_tied) / w_tied − 1), where
      0/0 = 0, if there are both prompts, else 0;
    - whether there are both prompts.

    """
    rows = scores.category == category
    ids, reward, is_correct = scores.item_id[rows], scores.reward[rows], scores.is_correct[rows]
    starts: IntArray = np.flatnonzero(np.r_[True, ids[1:] != ids[:-1]])
    worst = np.minimum.reduceat(np.where(is_correct, reward, np.inf), starts)
    best = np.maximum.reduceat(np.where(is_correct, reward, -np.inf), starts)
    gap = worst - np.maximum.reduceat(np.where(is_correct, -np.inf, reward), starts)
    kind, _, number = np.array([name.partition(":") for name in ids[starts].tolist()]).T
    numbers, place = np.unique(number, return_inverse=True)
    g_ref, g_tied, w = np.full((3, len(numbers)), np.nan)
    g_ref[place[kind == "ref"]] = gap[kind == "ref"]
    g_tied[place[kind == "tied"]] = gap[kind == "tied"]
    w[place[kind == "tied"]] = (best - worst)[kind == "tied"]
    both = ~np.isnan(g_ref) & ~np.isnan(g_tied)
    least = np.fmin(g_ref, g_tied)
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = np.nan_to_num(np.tanh(least / w - 1), nan=0.0)
    columns = (
        g_tied > 0,
        ~np.isnan(g_tied),
        g_ref > 0,
        ~np.isnan(g_ref),
        both & (g_tied > w),
        both & (least > w),
        np.where(both, margin, 0.0),
        both,
    )
    return np.column_stack([column.astype(np.float64) for column in columns])


def ties_scores(sums: FloatArray) -> FloatArray:
    """Return RewardBench 2's Ties score, a number between -0.01 and 1.01.

    It is 0.3 mean a_tied + 0.3 mean a_ref + 0.2 mean [g_tied > w] + 0.2 mean [min(g_ref, g_tied) > w]
    + 0.01 mean tanh(min(g_ref, g_tied) / w − 1), in the terms of `ties_sums`.
    """
    a_tied, n_tied, a_ref, n_ref, wide, wide_both, margin, n_both = sums.T
    n_tied, n_ref, n_both = (np.maximum(n, 1) for n in (n_tied, n_ref, n_both))
    score: FloatArray = (
        0.3 * a_tied / n_tied
        + 0.3 * a_ref / n_ref
        + 0.2 * (wide + wide_both) / n_both
        + 0.01 * margin / n_both
    )
    return score


def styles(scores: Any, _: BenchmarkEntry) -> list[OfficialScore]:
    """RM-Bench: easy, normal and hard accuracy, as means over the domains and by domain.

    Entry (i, j) of a 3 × 3 table is the fraction of prompts where the correct response in style i has at
    least the reward of the wrong one in style j. Styles range from concise to detailed with Markdown. Normal
    accuracy is the mean of the diagonal. Hard accuracy is the mean above it, where the wrong response looks
    better; easy accuracy is the mean below. The two safety sets count as one domain.
    """
    sizes, first_three = np.diff(scores.offsets), np.arange(6) < 3
    if (sizes != 6).any() or (scores.is_correct.reshape(-1, 6) != first_three).any():
        return []
    reward = scores.reward.reshape(-1, 2, 3)
    wins = reward[:, 0, :, None] >= reward[:, 1, None, :]
    domains: dict[str, list[str]] = {}
    for name in dict.fromkeys(_categories(scores).tolist()):
        domains.setdefault(name.partition("-")[0], []).append(name)
    rows: list[OfficialScore] = []
    levels: list[tuple[float, float, float]] = []
    for domain, names in domains.items():
        parts = [wins[_categories(scores) == name].mean(axis=0) for name in names]
        levels.append(_levels(np.mean(parts, axis=0)))
        rows += _style_rows(domain, levels[-1], int(np.isin(_categories(scores), names).sum()))
    easy, normal, hard = np.mean(levels, axis=0).tolist()
    return [*_style_rows("all", (easy, normal, hard), len(reward)), *rows]


def _levels(table: FloatArray) -> tuple[float, float, float]:
    above, below = np.triu_indices(3, 1), np.tril_indices(3, -1)
    return float(table[below].mean()), float(np.diag(table).mean()), float(table[above].mean())


def _style_rows(category: str, levels: tuple[float, float, float], n: int) -> list[OfficialScore]:
    named = zip(("easy_accuracy", "normal_accuracy", "hard_accuracy"), levels, strict=True)
    score = OfficialScore("score", category, float(np.mean(levels)), n)
    return [score, *(OfficialScore(name, category, value, n) for name, value in named)]


def reciprocal_rank(scores: Any, entry: BenchmarkEntry) -> list[OfficialScore]:
    """RewardMATH: the accuracy, and the mean of one over the rank of the best correct response.

    Wrong responses with its reward come first.
    """
    best = np.maximum.reduceat(np.where(scores.is_correct, scores.reward, -np.inf), _starts(scores))
    above = ~scores.is_correct & (scores.reward >= _per_response(best, scores))
    inverse = 1.0 / (1 + np.add.reduceat(above, _starts(scores), dtype=np.int64))
    return [accuracy(scores, entry)[0], mean_by_category("mean_reciprocal_rank", inverse, scores)[0]]


def conflict_pairs(scores: Any, _: BenchmarkEntry) -> list[OfficialScore]:
    """PPE: accuracy on pairs, and of the response with the largest reward, as means over data sets.

    The pairs are those that the authors drew (`sampled_conflict_pairs`). Without the columns of the
    benchmark, they are all pairs of a correct and a wrong response, and the metric is `all_pairs_accuracy`.
    """
    column = scores.extra.get("sampled_conflict_pairs")
    drawn: list[Any] = [None] if column is None else column[_starts(scores)].tolist()
    name = "all_pairs_accuracy" if None in drawn else "pair_accuracy"
    wins = np.empty(len(_starts(scores)))
    for n, (start, end) in enumerate(pairwise(scores.offsets.tolist())):
        reward, correct = scores.reward[start:end], scores.is_correct[start:end]
        if None in drawn:
            wins[n] = (reward[correct][:, None] > reward[~correct]).mean()
        else:
            first, second = np.array(json.loads(drawn[n]), dtype=np.int64).reshape(-1, 2).T
            wins[n] = (reward[first] > reward[second]).mean() if len(first) else np.nan
    top = has_largest_reward(scores)
    right = np.add.reduceat(top & scores.is_correct, _starts(scores), dtype=np.int64)
    best = right / np.add.reduceat(top, _starts(scores), dtype=np.int64)
    return [
        *mean_by_category(name, wins, scores, average_categories=True),
        *mean_by_category("best_of_k_accuracy", best, scores, average_categories=True),
    ]


def agreement(scores: Any, _: BenchmarkEntry) -> list[OfficialScore]:
    """MT-bench: the fraction of votes, without ties, for the response with the larger reward."""
    if scores.votes is None:
        return []
    first, starts = has_largest_reward(scores), _starts(scores)
    alone = np.add.reduceat(first, starts, dtype=np.int64) == 1
    total = np.add.reduceat(scores.votes, starts)
    share = np.add.reduceat(scores.votes * first, starts) * alone / np.maximum(total, 1)
    return mean_by_category("agreement", share, scores, weights=total)


OFFICIAL: dict[str, Callable[[Any, BenchmarkEntry], list[OfficialScore]]] = {
    "accuracy": accuracy,
    "sections": sections,
    "categories-and-ties": categories_and_ties,
    "styles": styles,
    "reciprocal-rank": reciprocal_rank,
    "conflict-pairs": conflict_pairs,
    "agreement": agreement,
}
"""The scores, by the names that YAML files use."""

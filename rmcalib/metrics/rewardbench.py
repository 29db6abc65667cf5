"""RewardBench 2's own metrics: accuracy, the Ties score, and the leaderboard score."""

from __future__ import annotations

import re

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks._entries import entry_for
from rmcalib.benchmarks._official import scored_items, shared_first_place, ties_scores
from rmcalib.benchmarks._official import ties_sums as sums_of_ties
from rmcalib.scores import Scores

TIES = "Ties"
_TIED_ID = re.compile(r"(ref|tied):.+")


def tied_categories(scores: Scores) -> frozenset[str]:
    """Return the categories without a single right answer: RewardBench 2's Ties."""
    starts = scores.offsets[:-1]
    ids, category = scores.item_id[starts], scores.category[starts]
    names = np.unique(category).tolist()
    about = scores.manifest
    entry = entry_for(str(about.get("benchmark_format") or about.get("benchmark") or "").partition("@")[0])
    if entry is not None and entry.no_single_answer:
        return frozenset(names) & entry.no_single_answer
    return frozenset(
        name for name in names if all(_TIED_ID.fullmatch(one) for one in ids[category == name].tolist())
    )


def item_accuracy(scores: Scores) -> FloatArray:
    """Return the accuracy of each prompt: (n_items,), in the order of the scores."""
    return shared_first_place(scored_items(scores))


def ties_score(scores: Scores) -> float:
    """Return RewardBench 2's score of the Ties category, between -0.01 and 1.01; NaN if there is none."""
    tied = sorted(tied_categories(scores))
    return _ties_score(scores, tied[0]) if tied else float("nan")


def ties_sums(scores: Scores, category: str = TIES) -> FloatArray:
    """Return the contribution of each number N to the Ties score, for `ties_scores`: (numbers, 8)."""
    rows = scores.category == category
    return sums_of_ties(scores.item_id[rows], scores.reward[rows], scores.is_correct[rows])


def category_scores(scores: Scores) -> dict[str, float]:
    """Return each category's score in [0, 1], in the order of appearance: mean accuracy, or the Ties score."""
    accuracy, tied = item_accuracy(scores), tied_categories(scores)
    category = scores.category[scores.offsets[:-1]]
    return {
        name: _ties_score(scores, name) if name in tied else float(accuracy[category == name].mean())
        for name in dict.fromkeys(category.tolist())
    }


def leaderboard_score(scores: Scores) -> float:
    """Return the mean of the category scores; the leaderboard shows it times 100."""
    return float(np.mean(list(category_scores(scores).values())))


def _ties_score(scores: Scores, category: str) -> float:
    total = ties_sums(scores, category).sum(axis=0, keepdims=True)
    has_both = total[0, -1] > 0
    return float(ties_scores(total)[0]) if has_both else float("nan")

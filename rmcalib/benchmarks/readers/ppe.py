"""PPE, Preference Proxy Evaluations: people's preferences, and correctness of many responses."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib.benchmarks._entry import BenchmarkEntry, HubSource, OfficialScore, ScoredItems
from rmcalib.benchmarks._items import Item, voted_item
from rmcalib.benchmarks._rows import Row, each
from rmcalib.benchmarks._winning import best_beats_all, decided, has_largest_reward, mean_by_category

__all__ = ["ENTRIES"]

_SETS = {
    "MMLU-Pro": "lmarena-ai/PPE-MMLU-Pro-Best-of-K",
    "MATH": "lmarena-ai/PPE-MATH-Best-of-K",
    "GPQA": "lmarena-ai/PPE-GPQA-Best-of-K",
    "MBPP-Plus": "lmarena-ai/PPE-MBPP-Plus-Best-of-K",
    "IFEval": "lmarena-ai/PPE-IFEval-Best-of-K",
}
_WINNERS = {"model_a": (1, 0), "model_b": (0, 1), "tie": (0, 0), "tie (bothbad)": (0, 0)}
_ABOUT = ("language", "is_code", "is_refusal", "hard_prompt", "easy_prompt", "if_prompt", "math_prompt")
_PAIRS = "sampled_conflict_pairs"


def read_human(row: Row) -> Item:
    """Read a battle with one person's vote."""
    votes = row.choice("winner", _WINNERS)
    responses = (row.text("response_1"), row.text("response_2"))
    more = row.columns("model_a", "model_b", "winner", *_ABOUT)
    return voted_item(
        row.name("question_id"),
        "human",
        row.prompt("prompt"),
        responses,
        votes,
        ties=int(votes == (0, 0)),
        columns=more,
    )


def read_correctness(row: Row) -> Item | str:
    """Read a prompt with many responses of one model, each correct or not; correct ones come first."""
    names = [f"response_{i}" for i in range(1, 1 + sum(key.startswith("response_") for key in row.values))]
    scores = row.value("scores")
    if not isinstance(scores, (list, tuple)) or not all(value in (0, 1) for value in scores):
        raise row.error("'scores' must be a list of true and false")
    if len(scores) != len(names):
        raise row.error(f"{len(scores)} scores for {len(names)} responses")
    n_correct = int(sum(scores))
    if n_correct in (0, len(scores)):
        return "all responses are correct, or all are wrong"
    order = sorted(range(len(scores)), key=lambda i: not scores[i])
    place = {old: new for new, old in enumerate(order)}
    texts = [row.text(name) for name in names]
    more = row.columns("model_name", "mean_score")
    if row.has(_PAIRS):
        try:
            # Pairs of two correct or two wrong responses are not in conflict.
            pairs = [sorted((place[i], place[j])) for i, j in row.value(_PAIRS) if scores[i] != scores[j]]
        except (TypeError, ValueError, LookupError):
            raise row.error(f"{_PAIRS!r} must be a list of pairs of response numbers") from None
        more[_PAIRS] = json.dumps(pairs)
    category = row.name("subset", default="correctness")
    identifier = "/".join(row.name(name) for name in ("question_id", "model_name") if row.has(name))
    responses = tuple(texts[i] for i in order)
    return Item(identifier, category, row.prompt("prompt"), responses, n_correct, columns=more)


def score_human(items: ScoredItems) -> list[OfficialScore]:
    """Fraction of battles with a winner where the winner has the larger reward."""
    return mean_by_category("accuracy", best_beats_all(items), items, kept=decided(items))


def score_correctness(items: ScoredItems) -> list[OfficialScore]:
    """Accuracy on pairs, and correctness of the response with the largest reward, as means over data sets.

    The pairs are those that the authors drew (`sampled_conflict_pairs`). Without the columns of the
    benchmark, they are all pairs of a correct and a wrong response, and the metric is `all_pairs_accuracy`.
    """
    name, wins = _pair_wins(items)
    top = has_largest_reward(items)
    right = np.add.reduceat(top & items.is_correct, items.starts, dtype=np.int64)
    best = right / np.add.reduceat(top, items.starts, dtype=np.int64)
    return [
        *mean_by_category(name, wins, items, average_categories=True),
        *mean_by_category("best_of_k_accuracy", best, items, average_categories=True),
    ]


def _pair_wins(items: ScoredItems) -> tuple[str, FloatArray]:
    if items.columns and all(_PAIRS in columns for columns in items.columns):
        wins = np.empty(len(items.starts))
        for n, (start, columns) in enumerate(zip(items.starts, items.columns, strict=True)):
            pairs = np.array(json.loads(columns[_PAIRS]), dtype=np.int64).reshape(-1, 2) + start
            wins[n] = (items.reward[pairs[:, 0]] > items.reward[pairs[:, 1]]).mean() if len(pairs) else np.nan
        return "pair_accuracy", wins
    wins = np.array(
        [
            _pair_accuracy(items.reward[start:end], items.is_correct[start:end])
            for start, end in pairwise(items.offsets.tolist())
        ]
    )
    return "all_pairs_accuracy", wins


def _pair_accuracy(reward: FloatArray, correct: BoolArray) -> float:
    return float((reward[correct][:, None] > reward[~correct]).mean())


ENTRIES = (
    BenchmarkEntry(
        name="ppe-human",
        title="PPE, human preference",
        labels="votes",
        columns=("question_id", "winner", "prompt", "response_1", "response_2"),
        read=each(read_human),
        licence="prompts CC-BY-4.0",
        homepage="https://huggingface.co/datasets/lmarena-ai/PPE-Human-Preference-V1",
        prompts=16038,
        responses="2",
        hub=(HubSource("lmarena-ai/PPE-Human-Preference-V1"),),
        categories=("human",),
        official=score_human,
        official_about="fraction of battles with a winner where the winner has the larger reward",
    ),
    BenchmarkEntry(
        name="ppe-correctness",
        title="PPE, correctness",
        labels="several",
        columns=("question_id", "prompt", "response_1", "response_2", "scores"),
        read=each(read_correctness),
        licence="prompts CC-BY-4.0",
        homepage="https://huggingface.co/collections/lmarena-ai",
        prompts=2560,
        responses="32",
        hub=tuple(HubSource(name, "train", category=category) for category, name in _SETS.items()),
        categories=tuple(_SETS),
        official=score_correctness,
        official_about="accuracy over the authors' pairs, and of the best response; means over the five sets",
    ),
)

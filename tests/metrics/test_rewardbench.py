"""RewardBench's numbers against slow loops that follow their definition word by word."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.benchmarks import _official as official
from rmcalib.benchmarks import official_score
from rmcalib.scores import Scores
from rmcalib.scores._files import columns_of

Prompt = tuple[str, str, int, Sequence[float]]  # id, category, number correct, rewards


def made(prompts: Sequence[Prompt]) -> Scores:
    rows = [
        {"item_id": name, "category": category, "response": i, "is_correct": i < n, "reward": reward}
        for name, category, n, rewards in prompts
        for i, reward in enumerate(rewards)
    ]
    return Scores.from_columns(columns_of(rows))


def category_values(scores: Scores) -> dict[str, float]:
    return {row.category: row.value for row in official.category_scores(scores)}


def slow_accuracy(rewards: Sequence[float]) -> float:
    best = max(rewards)
    return 1.0 / sum(reward == best for reward in rewards) if rewards[0] == best else 0.0


def slow_ties(prompts: Sequence[Prompt]) -> float:
    stats: dict[str, dict[str, tuple[bool, float, float]]] = {"ref": {}, "tied": {}}
    for name, category, n, rewards in prompts:
        if category == "Ties":
            kind, number = name.split(":")
            right, wrong = rewards[:n], rewards[n:]
            stats[kind][number] = (min(right) > max(wrong), max(right) - min(right), min(right) - max(wrong))
    both = [number for number in stats["ref"] if number in stats["tied"]]
    preferred, hard, margins = [], [], []
    for number in both:
        _, width, gap = stats["tied"][number]
        least = min(stats["ref"][number][2], gap)
        preferred.append(gap > width)
        hard.append(least > width)
        if width == 0:
            margins.append(0.0 if least == 0 else math.copysign(1.0, least))
        else:
            margins.append(math.tanh(least / width - 1))
    a_tied = np.mean([accurate for accurate, _, _ in stats["tied"].values()])
    a_ref = np.mean([accurate for accurate, _, _ in stats["ref"].values()])
    return float(
        0.3 * a_tied + 0.3 * a_ref + 0.2 * np.mean(preferred) + 0.2 * np.mean(hard) + 0.01 * np.mean(margins)
    )


REWARDS = st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])  # few values, so that many are equal


@st.composite
def prompts(draw: st.DrawFn) -> list[Prompt]:
    plain: list[Prompt] = [
        (str(i), draw(st.sampled_from(["Math", "Focus"])), 1, draw(st.lists(REWARDS, min_size=2, max_size=6)))
        for i in range(draw(st.integers(1, 6)))
    ]
    for i in range(draw(st.integers(1, 4))):
        for kind in ("ref", "tied")[: 2 if i == 0 else draw(st.integers(1, 2))]:
            n = 1 if kind == "ref" else draw(st.integers(2, 4))
            rewards = draw(st.lists(REWARDS, min_size=n + 1, max_size=n + 4))
            plain.append((f"{kind}:{i}", "Ties", n, rewards))
    return draw(st.permutations(plain))


@given(prompts=prompts())
@settings(max_examples=80, deadline=None)
def test_all_numbers_equal_a_direct_computation(prompts: list[Prompt]) -> None:
    scores = made(prompts)
    assert official.shared_first_place(scores).tolist() == [slow_accuracy(rewards) for *_, rewards in prompts]
    by_category = category_values(scores)
    assert list(by_category) == list(dict.fromkeys(category for _, category, *_ in prompts))
    headline = official_score(scores, "reward-bench-2")[0]
    assert headline.value == pytest.approx(np.mean(list(by_category.values())))
    for name, value in by_category.items():
        if name == "Ties":
            assert value == pytest.approx(slow_ties(prompts), abs=1e-12)
        else:
            expected = [slow_accuracy(rewards) for _, category, _, rewards in prompts if category == name]
            assert value == pytest.approx(float(np.mean(expected)))


def test_a_perfect_model_scores_above_one() -> None:
    perfect = [("ref:0", "Ties", 1, [9.0, 0.0]), ("tied:0", "Ties", 2, [9.0, 8.9, 0.0])]
    assert category_values(made(perfect))["Ties"] == pytest.approx(1.01, abs=1e-3)


def test_without_pairs_there_is_no_ties_score() -> None:
    assert math.isnan(category_values(made([("ref:0", "Ties", 1, [9.0, 0.0])]))["Ties"])

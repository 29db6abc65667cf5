"""The built-in demo is trained, imperfect and small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import rmcalib
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import RewardModel, ScoredItem, load_model
from rmcalib.judges._scoring import ItemScorer
from rmcalib.judges._sharing import how_to_share

FOLDER = Path(rmcalib.__file__).parent / "demo"


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return load_benchmark("demo")


@pytest.fixture(scope="module")
def model() -> RewardModel:
    torch.set_num_threads(1)
    return load_model("demo", device="cpu")


@pytest.fixture(scope="module")
def scores(model: RewardModel, benchmark: Benchmark) -> dict[str, ScoredItem]:
    return {item.id: item for chunk in ItemScorer(model).chunks(benchmark.items) for item in chunk}


def test_it_is_small_enough_for_a_wheel() -> None:
    assert sum(file.stat().st_size for file in FOLDER.rglob("*") if file.is_file()) < 3_000_000


def test_the_benchmark_has_hundreds_of_prompts_in_rewardbenchs_schema(benchmark: Benchmark) -> None:
    rows = [json.loads(line) for line in (FOLDER / "benchmark.jsonl").read_text().splitlines()]
    assert len(rows) == len(benchmark) >= 300
    assert set(benchmark.categories) == {"Factuality", "Precise IF", "Math", "Safety", "Focus", "Ties"}
    for row in rows:
        assert row["num_correct"] == len(row["chosen"])
        assert row["num_incorrect"] == len(row["rejected"])
        assert row["total_completions"] == row["num_correct"] + row["num_incorrect"]
        assert len({*row["chosen"], *row["rejected"]}) == row["total_completions"]
        if row["subset"] != "Ties":
            assert (row["num_correct"], row["num_incorrect"]) == (1, 3)
    prompts = [row["prompt"] for row in rows if row["subset"] != "Ties"]
    assert len(set(prompts)) == len(prompts)


def test_the_model_is_better_than_chance_and_imperfect(
    benchmark: Benchmark, scores: dict[str, ScoredItem]
) -> None:
    four = [item for item in benchmark.items if item.category != "Ties"]
    right = np.array([np.argmax(scores[item.id].rewards) == 0 for item in four])
    assert 0.5 < right.mean() < 0.95  # chance is 0.25
    confidence = np.array(
        [np.exp(r - np.logaddexp.reduce(r)).max() for r in (scores[i.id].rewards for i in four)]
    )
    assert confidence[right].mean() > confidence[~right].mean() + 0.05
    assert np.ptp(confidence) > 0.4


def test_a_loaded_model_shares_its_prompts_with_the_same_rewards(
    model: RewardModel, benchmark: Benchmark, scores: dict[str, ScoredItem]
) -> None:
    how = how_to_share(model)
    assert how is not None
    assert how.branches
    for chunk in ItemScorer(model, share=False).chunks(benchmark.items[::7]):
        for item in chunk:
            np.testing.assert_allclose(item.rewards, scores[item.id].rewards, atol=1e-5)


def test_nothing_is_truncated(scores: dict[str, ScoredItem]) -> None:
    assert not any(flag for item in scores.values() for flag in item.truncated)

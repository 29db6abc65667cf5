"""Blocks of prompts on a cluster are one job: checks consider all blocks, and run once per worker."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rmcalib.batch import PlanEntry
from rmcalib.batch._batch import Job, open_batch, scoring_ticket
from rmcalib.batch._ray import _blocks
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import LoadOptions, ScoredItem, indifference_note
from rmcalib.judges._scoring import ItemScorer
from rmcalib.runs import score
from rmcalib.scores import Scores
from tests.batch.stand_in_ray import score_in_process

N = 150
ENTRY = PlanEntry(LoadOptions().recipe_for("demo"), "llama")


def on_a_cluster(
    output: Path, monkeypatch: pytest.MonkeyPatch, *, shards: int = 1
) -> tuple[Scores, list[str]]:
    """Score the demo on a replacement for a cluster; also return the warnings."""
    job = Job(load_benchmark("demo", limit=N), LoadOptions(device="cpu", token_budget=512))
    assert len(_blocks(job.benchmark.items, shards)) > 2
    with open_batch(output, [ENTRY]) as batch:
        ticket = scoring_ticket(batch, job, ENTRY)
        score_in_process(batch, job, ticket, monkeypatch, shards=shards)
    return Scores.from_parquet(ticket.folder / "scores.parquet"), batch.status.models["demo"].warnings


def test_a_worker_checks_the_model_once_and_scores_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[object] = []
    check = ItemScorer._disagreement

    def count(scorer: ItemScorer, *args: Any) -> float:
        checks.append(scorer)
        return check(scorer, *args)

    monkeypatch.setattr(ItemScorer, "_disagreement", count)
    bench = load_benchmark("demo", limit=N)
    local = score("demo", bench, output=tmp_path / "local", device="cpu", token_budget=512)
    assert len(set(map(id, checks))) == 1
    there, warned = on_a_cluster(tmp_path / "cluster", monkeypatch, shards=2)
    assert len(set(map(id, checks))) == 3  # each worker checks for itself
    assert warned == []
    assert there.item_id.tolist() == local.item_id.tolist()
    assert there.reward.tobytes() == local.reward.tobytes()


@pytest.mark.parametrize("n_distinct", [0, 1])
def test_equal_rewards_are_only_reported_if_they_occur_in_all_prompts(
    n_distinct: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = load_benchmark("demo", limit=N)
    distinct = {item.id for item in bench.items[:n_distinct]}
    chunks = ItemScorer.chunks

    def indifferent(scorer: ItemScorer, items: Any) -> Iterator[list[ScoredItem]]:
        for chunk in chunks(scorer, items):
            yield [dataclasses.replace(item, distinct=item.id in distinct) for item in chunk]

    monkeypatch.setattr(ItemScorer, "chunks", indifferent)
    _, warned = on_a_cluster(tmp_path / "cluster", monkeypatch)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score("demo", bench, device="cpu", token_budget=512)
    local = [str(warning.message) for warning in caught if warning.category is UserWarning]
    assert warned == local == ([] if n_distinct else [f"demo: {indifference_note({False})}"])


def test_identical_responses_do_not_count_as_equal_rewards() -> None:
    from rmcalib.benchmarks import Item
    from rmcalib.judges import load_model

    items = [
        Item("same", "x", "2+2?", ("4", "4"), 1),
        Item("other", "x", "2+2?", ("4", "a cat"), 1),
    ]
    scorer = ItemScorer(load_model("demo", device="cpu"))
    (chunk,) = scorer.chunks(items)
    assert [item.distinct for item in chunk] == [None, True]

"""The workers of a model, with a replacement for Ray: lost workers, lost nodes, differing nodes."""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmcalib
from rmcalib.batch import Listed, PlanEntry
from rmcalib.batch import _ray_workers as cluster_workers
from rmcalib.batch._batch import Job, open_batch, scoring_ticket
from rmcalib.batch._plan import make_plan
from rmcalib.batch._ray import _check_same, _remarks
from rmcalib.batch._ray_cluster import Stopped, patience, reserve
from rmcalib.batch._ray_workers import Origin, results, wait_for_first
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import LoadOptions, Recipe, ScoredItem
from rmcalib.scores import Scores
from tests.batch.stand_in_ray import (
    ActorDiedError,
    RayError,
    RayTaskError,
    StandInRay,
    method,
    score_in_process,
)
from tests.judges.reward_servers import Vllm
from tests.judges.serving import serving

ORIGIN = Origin({"dtype": "float32"}, {})


def load() -> Benchmark:
    return load_benchmark("demo", limit=8)


def worker(
    score: Callable[..., Any] = lambda items: (items, [], ORIGIN),
    origin: Callable[..., Origin] = lambda: ORIGIN,
    *,
    ready: bool = True,
) -> Any:
    return SimpleNamespace(origin=method(origin, ready=ready), score=method(score, ready=ready))


def raises(error: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call


def test_all_blocks_are_scored_once_and_idle_workers_are_ended() -> None:
    ray, workers = StandInRay(), [worker(), worker(ready=False)]
    assert wait_for_first(ray, workers, lambda: None) == ORIGIN
    blocks = [[item] for item in load().items[:5]]
    looks: list[int] = []
    scored = [items for items, _, _ in results(ray, workers, blocks, lambda: looks.append(1))]
    assert sorted(items[0].id for items in scored) == sorted(items[0].id for items in blocks)
    assert len(looks) > len(blocks)  # also while there is no result
    assert sorted(map(id, ray.killed)) == sorted(map(id, workers))


def test_an_error_of_a_worker_is_the_failure_of_the_model() -> None:
    ray = StandInRay()
    with pytest.raises(ValueError, match=r"^the model is gated$"):
        wait_for_first(ray, [worker(origin=raises(RayTaskError(ValueError("the model is gated"))))], print)
    missing = ActorDiedError("No module named 'rmcalib'", init_failed=True)
    with pytest.raises(
        ValueError, match=r"cannot start a worker \(is rmcalib installed there\?\): .*rmcalib"
    ):
        wait_for_first(ray, [worker(origin=raises(missing))], print)


def test_a_model_that_crashes_every_worker_fails() -> None:
    lost = worker(raises(RayError("out of memory")))
    with pytest.raises(ValueError, match=r"a worker was lost 6 times, .*: RayError: out of memory"):
        list(results(StandInRay(), [lost], [list(load().items[:1])], lambda: None))


def test_nodes_that_would_score_differently_are_refused() -> None:
    first, other = Origin({"dtype": "bfloat16", "n": 1}, {}), Origin({"dtype": "float32", "n": 1}, {})
    with pytest.raises(ValueError, match=r"score differently \(dtype: bfloat16 and float32\)"):
        _check_same(first, other)
    _check_same(first, first)


def test_other_packages_and_lost_workers_are_reported() -> None:
    first = Origin({}, {"versions": {"torch": "2.13.0", "rmcalib": "1"}})
    other = Origin({}, {"versions": {"torch": "2.5.0", "rmcalib": "1"}}, restarted=True)
    assert list(_remarks(first, [first])) == []
    assert list(_remarks(first, [first, other])) == [
        "not all workers have the same packages (some: torch 2.5.0)",
        "1 worker lost while scoring; Ray replaced it",
    ]
    assert list(_remarks(other, [other, other])) == ["2 workers lost while scoring; Ray replaced them"]


def test_an_interruption_ends_the_wait_and_is_not_a_failure() -> None:
    stopping = threading.Event()
    look = patience(StandInRay([{"CPU": 4}]), {"CPU": 1}, stopping)
    look()
    stopping.set()
    with pytest.raises(Stopped):
        wait_for_first(StandInRay(), [worker(ready=False)], look)
    assert not isinstance(Stopped(), Exception)


def test_waiting_for_a_cluster_without_nodes_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0, 30)
    monkeypatch.setattr("rmcalib.batch._ray_cluster.time.monotonic", lambda: float(next(clock)))
    ray = StandInRay([{"CPU": 4, "GPU": 2}])
    look = patience(ray, {"CPU": 1, "GPU": 2}, threading.Event())
    for _ in range(50):
        look()  # for example a long download
    ray.node_list = [{"CPU": 4}]
    for _ in range(10):
        look()
    ray.node_list = [{"CPU": 4, "GPU": 2}]  # one came back
    look()
    ray.node_list = []
    for _ in range(20):
        look()
    with pytest.raises(ValueError, match="the cluster has had no node with 1 CPUs and 2 GPUs"):
        look()


def test_as_many_workers_are_reserved_as_fit_on_the_cluster() -> None:
    ray, asked = StandInRay([{"CPU": 8, "GPU": 2}, {"CPU": 8, "GPU": 1}]), []
    ready = iter((False, False, True))

    def group(bundles: list[dict[str, float]]) -> Any:
        asked.append(len(bundles))
        return SimpleNamespace(wait=lambda _: next(ready))

    removed: list[Any] = []
    ray.util = SimpleNamespace(placement_group=group, remove_placement_group=removed.append)

    def look() -> None:
        if len(asked) == 1:
            ray.node_list.pop()  # a node is lost while the model waits

    reserve(ray, {"CPU": 1.0, "GPU": 1.0}, 4, look)
    assert (asked, len(removed)) == ([3, 2], 1)
    with pytest.raises(ValueError, match="needs 4 GPUs on one node, and the largest has 2"):
        reserve(ray, {"CPU": 1.0, "GPU": 4.0}, 1, look)


def test_warnings_of_workers_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    blocks = itertools.count(1)

    def chunks(items: list[Any]) -> Any:
        warnings.warn_explicit("from a library", UserWarning, "elsewhere.py", 1)
        yield [
            ScoredItem(
                id=item.id,
                rewards=(1.0,) * len(item.responses),
                n_tokens=(1,) * len(item.responses),
                truncated=(False,) * len(item.responses),
                distinct=True,
            )
            for item in items
        ]
        ours = cluster_workers.__file__
        warnings.warn_explicit(f"demo: rewards differ by up to {next(blocks)}e-05", UserWarning, ours, 1)

    scorer = SimpleNamespace(chunks=chunks)
    monkeypatch.setattr("rmcalib.judges._classifier.ItemScorer", lambda *_, **__: scorer)
    job = Job(load_benchmark("demo", limit=200), LoadOptions(device="cpu"))
    entry = PlanEntry(Recipe("demo"), "llama")
    with open_batch(tmp_path, [entry]) as batch:
        score_in_process(batch, job, scoring_ticket(batch, job, entry), monkeypatch, shards=2)
        assert batch.status.models["demo"].warnings == ["demo: rewards differ by up to 1e-05"]
    assert next(blocks) > 2
    assert "demo: UserWarning: from a library" in capfd.readouterr().err


def test_served_models_are_scored_by_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = load_benchmark("demo", limit=70)
    with serving(Vllm()) as server:
        (entry,) = make_plan([Listed(Recipe("org/rm"), {"endpoint": server.url})])
        job = Job(bench, LoadOptions(device="cpu"))
        with open_batch(tmp_path, [entry], benchmark=bench) as batch:
            ticket = scoring_ticket(batch, job, entry)
            assert ticket.commit is None
            score_in_process(batch, job, ticket, monkeypatch, shards=2)
            assert scoring_ticket(batch, job, entry).scored
        local = rmcalib.score("org/rm", bench, endpoint=server.url)
    scores = Scores.from_parquet(ticket.folder / "scores.parquet")
    assert scores.reward.tolist() == local.reward.tolist()
    assert scores.manifest["endpoint"] == server.url

"""The crew of a model on a cluster, with a stand-in for Ray: lost workers, lost nodes, disagreement."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmcalib.batch import Job, PlanEntry, open_batch
from rmcalib.batch import _ray_workers as cluster_workers
from rmcalib.batch._local import scoring_ticket
from rmcalib.batch._ray import _Room, _score
from rmcalib.batch._ray_workers import Crew, Stopped
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import LoadOptions, Recipe


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ActorDiedError(RayError):
    actor_init_failed = True


class FakeRay:
    """References are functions that give a result, or raise; None is never ready."""

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def __init__(self, *nodes: dict[str, float]) -> None:
        self.node_list = list(nodes)
        self.killed: list[Any] = []

    def wait(self, references: list[Any], *, num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        assert timeout > 0
        ready = [reference for reference in references if reference.ready][:num_returns]
        return ready, []

    def get(self, reference: Any) -> Any:
        return reference.call()

    def kill(self, worker: Any) -> None:
        self.killed.append(worker)

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": node} for node in self.node_list]


@dataclass(eq=False)
class Task:
    call: Callable[[], Any]
    ready: bool = True


def worker(
    inputs: dict[str, Any],
    score: Callable[[list[str]], Any] = lambda block: block,
    *,
    ready: bool = True,
    fail: Exception | None = None,
    free: Callable[[], int] = lambda: 7,
    **more: Any,
) -> Any:
    def about() -> Any:
        if fail is not None:
            raise fail
        return inputs, more

    def method(make: Callable[..., Any]) -> Any:
        return SimpleNamespace(remote=make)

    return SimpleNamespace(
        about=method(lambda: Task(about, ready)),
        score=method(lambda block: Task(lambda: score(block))),
        free=method(lambda _: Task(free)),
    )


def crew_of(*workers: Any, patience: Callable[[], None] = lambda: None) -> tuple[Crew, FakeRay]:
    ray, hired = FakeRay(), iter(workers)
    return Crew(ray, lambda: next(hired), patience), ray


def raises(error: Exception) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmcalib.batch._ray_workers.time.sleep", lambda _: None)


def test_a_lost_workers_block_goes_to_another() -> None:
    lost = worker({"dtype": "float32"}, raises(RayError("node died")))
    crew, ray = crew_of(lost, worker({"dtype": "float32"}))
    assert crew.open(1) == ({"dtype": "float32"}, {})
    scored: list[Any] = list(crew.work_off([["a"], ["b"], ["c"]]))
    assert sorted(scored) == [["a"], ["b"], ["c"]]
    assert (crew.losses, ray.killed) == (1, [lost])
    crew.dismiss()
    assert len(ray.killed) == 2


def test_a_model_that_takes_every_worker_down_has_failed() -> None:
    crew, _ = crew_of(*(worker({}, raises(RayError("out of memory"))) for _ in range(7)))
    crew.open(1)
    with pytest.raises(ValueError, match=r"6 workers were lost, .*: RayError: out of memory"):
        list(crew.work_off([["a"]]))


def test_what_a_worker_raises_is_the_models_failure() -> None:
    crew, _ = crew_of(worker({}, fail=RayTaskError(ValueError("the model is gated"))))
    with pytest.raises(ValueError, match=r"^the model is gated$"):
        crew.open(1)
    crew, _ = crew_of(worker({}, fail=ActorDiedError("No module named 'rmcalib'")))
    with pytest.raises(
        ValueError, match=r"cannot start a worker \(is rmcalib installed there\?\): .*rmcalib"
    ):
        crew.open(1)


def test_nodes_that_would_score_differently_are_refused() -> None:
    crew, _ = crew_of(worker({"dtype": "bfloat16", "n": 1}), worker({"dtype": "float32", "n": 1}))
    crew.open(2)
    with pytest.raises(ValueError, match=r"score differently \(dtype: bfloat16 and float32\)"):
        list(crew.work_off([["a"], ["b"], ["c"]]))


def test_nodes_with_other_packages_are_named() -> None:
    first = worker({}, versions={"torch": "2.13.0", "rmcalib": "1"})
    crew, _ = crew_of(first, worker({}, versions={"torch": "2.5.0", "rmcalib": "1"}))
    crew.open(2)
    list(crew.work_off([["a"], ["b"], ["c"]]))
    assert crew.other_versions == {"torch 2.5.0"}


def test_disks_of_lost_nodes_need_no_cleaning() -> None:
    crew, _ = crew_of(worker({}), worker({}, free=raises(RayError("gone"))))
    crew.open(2)
    list(crew.work_off([["a"], ["b"], ["c"], ["d"]]))
    assert crew.free("0" * 40) == 7


def test_an_interruption_ends_the_wait_and_is_no_failure() -> None:
    room = _Room(FakeRay({"CPU": 4}))
    crew, _ = crew_of(worker({}, ready=False), patience=room.patience({"CPU": 1}))
    room.stopping.set()
    with pytest.raises(Stopped):
        crew.open(1)
    assert not isinstance(Stopped(), Exception)


def test_a_cluster_that_has_lost_all_nodes_is_not_waited_for_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(0, 30)
    monkeypatch.setattr("rmcalib.batch._ray.time.monotonic", lambda: float(next(clock)))
    ray = FakeRay({"CPU": 4, "GPU": 2})
    patience = _Room(ray).patience({"CPU": 1, "GPU": 2})
    for _ in range(50):
        patience()  # a long download, say
    ray.node_list = [{"CPU": 4}]
    for _ in range(10):
        patience()
    ray.node_list = [{"CPU": 4, "GPU": 2}]  # one came back
    patience()
    ray.node_list = []
    for _ in range(20):
        patience()
    with pytest.raises(ValueError, match="the cluster has had no node left with 1 CPUs and 2 GPUs"):
        patience()


class InProcess(FakeRay):
    """Workers are real, and live in this process."""

    def remote(self, **_: Any) -> Callable[[type], Any]:
        def actor(kind: type) -> Any:
            def hire(*args: Any) -> Any:
                made = kind(*args)

                def method(name: str) -> Any:
                    return SimpleNamespace(remote=lambda *a: Task(lambda: getattr(made, name)(*a)))

                return SimpleNamespace(**{name: method(name) for name in ("about", "score", "free")})

            return SimpleNamespace(remote=hire)

        return actor


def test_what_workers_warn_of_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ray, blocks = InProcess({"CPU": 2}), itertools.count(1)

    def chunks(items: list[Any]) -> Any:
        warnings.warn_explicit("from a library", UserWarning, "elsewhere.py", 1)
        yield [
            SimpleNamespace(
                id=item.id,
                rewards=(1.0,) * len(item.responses),
                n_tokens=(1,) * len(item.responses),
                truncated=(False,) * len(item.responses),
                told_apart=True,
            )
            for item in items
        ]
        ours = cluster_workers.__file__
        warnings.warn_explicit(f"demo: rewards differ by up to {next(blocks)}e-05", UserWarning, ours, 1)

    monkeypatch.setattr("rmcalib.batch._ray.import_ray", lambda: ray)
    scorer = SimpleNamespace(chunks=chunks)
    monkeypatch.setattr("rmcalib.judges._classifier.ItemScorer", lambda *_, **__: scorer)
    job = Job(load_benchmark("demo", limit=200), "demo", limit=200, options=LoadOptions(device="cpu"))
    entry = PlanEntry(Recipe("demo"), "llama")
    with open_batch(tmp_path, [entry]) as batch:
        ticket = scoring_ticket(batch, job, entry)
        _score(batch, job, ticket, 2, _Room(ray), {"CPU": 1.0, "GPU": 0.0}, job.benchmark)
        assert batch.status.models["demo"].warnings == ["demo: rewards differ by up to 1e-05"]
    assert next(blocks) > 2
    assert "demo: UserWarning: from a library" in capfd.readouterr().err

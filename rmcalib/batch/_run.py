"""Run a batch: from a list of models to run folders with scores."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rmcalib._util.hub import HubError
from rmcalib._util.processes import process_rank
from rmcalib._util.storage import as_path
from rmcalib.batch._batch import Batch, Evaluator, Job, open_batch
from rmcalib.batch._local import run_local
from rmcalib.batch._models import Listed, Selection, read_models
from rmcalib.batch._plan import (
    Machine,
    PlanEntry,
    choose_machine,
    estimated_tokens,
    make_plan,
    plan_problems,
    select,
)
from rmcalib.batch._published import published_plan, run_published
from rmcalib.batch._ray import run_ray
from rmcalib.batch._ray_cluster import Cluster
from rmcalib.batch._status import Status
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import LoadOptions, Recipe

_Loaded = TypeVar("_Loaded", bound=Benchmark | None)

__all__ = ["BatchRequest", "Plan", "Published", "Scoring", "plan_batch", "run_batch"]


@dataclass(frozen=True)
class Scoring:
    """Settings of a batch that scores models.

    Parameters
    ----------
    benchmark : str | Benchmark
        A benchmark, or a name that :func:`rmcalib.load_benchmark` takes.
    benchmark_revision, limit, format
        As for :func:`rmcalib.load_benchmark`, if the benchmark is a name.
    options : LoadOptions
        How to load and run the models.
    cluster : Cluster, optional
        A Ray cluster to run on; default this machine.
    free_disk : bool
        Remove each model from the Hub's cache when it is done.
    ignore_memory : bool
        Also run models that seem too large for the memory.

    Examples
    --------
    >>> Scoring("demo", limit=8, options=LoadOptions(device="cpu")).benchmark
    'demo'
    """

    benchmark: str | Benchmark = "reward-bench-2"
    benchmark_revision: str | None = None
    limit: int | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    cluster: Cluster | None = None
    free_disk: bool = False
    ignore_memory: bool = False
    format: str | None = None


@dataclass(frozen=True)
class Published:
    """Settings of a batch that downloads the scores that RewardBench has published. No model is run.

    Parameters
    ----------
    jobs : int
        Number of simultaneous downloads.

    Examples
    --------
    >>> BatchRequest(how=Published(jobs=8)).how
    Published(jobs=8)
    """

    jobs: int = 4


@dataclass(frozen=True)
class BatchRequest:
    """The models of a batch, what to do with them, and where to write the results.

    Parameters
    ----------
    models : str | Path | Iterable[Recipe | Listed], optional
        Path of a YAML file, or recipes and entries of a list. Default: the leaderboard, or all models with
        published scores.
    selection : Selection
        Which of these models to run.
    how : Scoring | Published
        `Scoring` or `Published`.
    output : str | Path
        Folder or URL for the results.
    fresh : bool
        Run everything again, and replace the results of earlier runs.

    Examples
    --------
    >>> BatchRequest("models.yaml", Selection(max_parameters=10), Scoring("demo")).output
    'runs'
    """

    models: str | Path | Iterable[Recipe | Listed] | None = None
    selection: Selection = field(default_factory=Selection)
    how: Scoring | Published = field(default_factory=Scoring)
    output: str | Path = "runs"
    fresh: bool = False


@dataclass(frozen=True)
class Plan:
    """The result of `plan_batch`.

    Attributes
    ----------
    entries : list of PlanEntry
        The models in order.
    problems : dict of str to str
        The models that are certain to fail, with the cause.

    Examples
    --------
    >>> how = Scoring("demo", options=LoadOptions(device="cpu"))
    >>> plan_batch(BatchRequest([Recipe("./missing")], how=how)).problems
    {'./missing': "'./missing' is neither a file or folder here nor a Hub id like 'org/name'"}
    """

    entries: list[PlanEntry]
    problems: dict[str, str]


def plan_batch(request: BatchRequest) -> Plan:
    """Return what a batch would do. No model or benchmark is downloaded.

    Parameters
    ----------
    request : BatchRequest
        The models, what to do with them, and where to write the results.

    Returns
    -------
    Plan
        The models in order, with estimates of memory and time.

    Examples
    --------
    >>> recipes = [Recipe("org/rm-8B"), Recipe("org/rm-1B")]
    >>> how = Scoring("demo", options=LoadOptions(device="cpu"), ignore_memory=True)
    >>> [entry.model for entry in plan_batch(BatchRequest(recipes, how=how)).entries]
    ['org/rm-1B', 'org/rm-8B']
    """
    how = request.how
    if isinstance(how, Published):
        return Plan(published_plan(_models(request), request.selection)[0], {})
    name = how.benchmark
    here = isinstance(name, str) and (
        name == "demo" or Path(name).is_file() or Path(name).suffix in (".jsonl", ".json", ".parquet")
    )
    entries, _ = _scoring_plan(request, how, lambda: _benchmark(how) if here else None)
    # The nodes of a cluster may have folders that do not exist here.
    return Plan(entries, plan_problems(entries) if how.cluster is None else {})


def run_batch(
    request: BatchRequest,
    *,
    evaluator: Evaluator | None = None,
    on_change: Callable[[Status], None] | None = None,
) -> Status:
    """Run a batch. If a model fails, the others continue.

    Parameters
    ----------
    request : BatchRequest
        The models, what to do with them, and where to write the results.
    evaluator : Evaluator, optional
        Computes and writes the metrics of each model; default none are written.
    on_change : Callable[[Status], None], optional
        Called, from any thread, when the state of a model has changed.

    Returns
    -------
    Status
        The final state of every model, as in `batch.json`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     how = Scoring("demo", limit=4, options=LoadOptions(device="cpu"))
    ...     run_batch(BatchRequest([Recipe("./nowhere")], how=how, output=folder)).counts()
    {'failed': 1}
    """
    if process_rank()[1] > 1:
        raise ValueError("a batch is one process: start it without torchrun (--engine ray uses several GPUs)")
    output, how = as_path(request.output), request.how
    bench: Benchmark | None
    work: Callable[[Batch], None]
    if isinstance(how, Published):
        jobs = how.jobs
        plan, commit = published_plan(_models(request), request.selection)
        bench = None if evaluator is None else _texts()
        about = {"scores": "published"}
        work = lambda batch: run_published(batch, plan, commit, jobs=jobs, fresh=request.fresh)  # noqa: E731
    else:
        plan, loaded = _scoring_plan(request, how, lambda: _benchmark(how))
        job = Job(loaded, how.options, request.fresh, how.free_disk)
        cluster, bench = how.cluster, loaded
        about = {"engine": "local" if cluster is None else "ray"}
        work = lambda batch: (  # noqa: E731
            run_local(batch, job, plan) if cluster is None else run_ray(batch, job, plan, cluster)
        )
    opened = open_batch(output, plan, benchmark=bench, evaluator=evaluator, on_change=on_change, **about)
    with opened as batch:
        work(batch)
    return batch.status


def _scoring_plan(
    request: BatchRequest, how: Scoring, load: Callable[[], _Loaded]
) -> tuple[list[PlanEntry], _Loaded]:
    # The memory of the nodes of a cluster is unknown here.
    on_cluster = Machine("cpu" if how.options.device == "cpu" else "cuda")
    machine = choose_machine(how.options.device) if how.cluster is None else on_cluster
    models = _models(request) or []
    select(models, request.selection)  # refuses an empty selection before anything is downloaded
    benchmark = load()
    plan = make_plan(
        models,
        request.selection,
        machine,
        dtype=how.options.dtype,
        tokens=estimated_tokens(benchmark),
        trust_remote_code=how.options.trust_remote_code,
        ignore_memory=how.ignore_memory,
    )
    return plan, benchmark


def _models(request: BatchRequest) -> Sequence[Recipe | Listed] | None:
    if request.models is None and isinstance(request.how, Published):
        return None
    if request.models is None or isinstance(request.models, (str, Path)):
        return read_models(request.models)
    return list(request.models)


def _benchmark(how: Scoring) -> Benchmark:
    if isinstance(how.benchmark, Benchmark):
        return how.benchmark
    return load_benchmark(how.benchmark, format=how.format, revision=how.benchmark_revision, limit=how.limit)


def _texts() -> Benchmark | None:
    """Load the texts of the benchmark, which are optional in reports."""
    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        warnings.warn(f"the reports will not show the texts of the benchmark ({error})", stacklevel=2)
        return None

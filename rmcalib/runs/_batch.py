"""Batches: from a list of models to run folders with scores, on this machine or on a Ray cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object, write_bytes, write_json
from rmcalib._util.hub import HubError, resolve_commit
from rmcalib._util.processes import process_rank
from rmcalib._util.storage import as_path, is_remote
from rmcalib.benchmarks import Benchmark, known_entry, load_benchmark
from rmcalib.judges import Judge, LoadOptions, Recipe, load_judge, registry
from rmcalib.judges._devices import find_hardware
from rmcalib.judges._files import identify, is_local, locate
from rmcalib.judges._registry import remember_model
from rmcalib.judges._scoring import indifference_note
from rmcalib.runs._engine import Cluster, LocalEngine, Part, RayEngine, Stopped, Task, cause
from rmcalib.runs._folder import inputs_hash, locked
from rmcalib.runs._plan import (
    Listed,
    PlanEntry,
    Selection,
    estimated_tokens,
    make_plan,
    plan_problems,
    read_models,
    select,
)
from rmcalib.runs._run import Run, finished_scores, keep_scores, run_folder, scored_before
from rmcalib.runs._score import asked_for, score_inputs, shard
from rmcalib.runs._status import ModelStatus, Status
from rmcalib.scores import Scores, published_models, published_scores
from rmcalib.scores._published import RESULTS

_GRACE = 5.0  # seconds that an interruption waits for threads
_NO_SCORES = "a generative judge gives none"  # in the message of `from_rewardbench`


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
    """The result of `plan_batch`: the models in order, and those that are certain to fail, with the cause."""

    entries: list[PlanEntry]
    problems: dict[str, str]


@dataclass(frozen=True)
class Evaluator:
    """Functions that compute and write the metrics of a model.

    Both take the recipe, the scores, and the benchmark or None.

    Parameters
    ----------
    write : Callable[[Recipe, Scores, Benchmark | None, Path], None]
        Writes the metrics into the run folder, its fourth argument; `metrics.json` must be written last.
    made_from : Callable[[Recipe, Scores, Benchmark | None], str]
        Returns a hash of everything that the metrics depend on. If `metrics.json` contains the same hash, the
        metrics are not computed again.
    """

    write: Callable[[Recipe, Scores, Benchmark | None, Path], None]
    made_from: Callable[[Recipe, Scores, Benchmark | None], str]


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
        return Plan(_published_plan(request)[0], {})
    name = how.benchmark
    here = isinstance(name, str) and (
        name == "demo" or Path(name).is_file() or Path(name).suffix in (".jsonl", ".json", ".parquet")
    )
    entries, _ = _scoring_plan(request, how, load=here)
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
    if isinstance(how, Published):
        plan, commit = _published_plan(request)
        bench, about = None if evaluator is None else _texts(), {"scores": "published"}
    else:
        plan, bench = _scoring_plan(request, how, load=True)
        about = {"engine": "local" if how.cluster is None else "ray"}
    with locked(output, ".batch.lock", owner="batch.json"):
        models = [ModelStatus(e.model, parameters=e.parameters, planned=e.seconds) for e in plan]
        status = Status(output, models, on_change=on_change, **about)
        batch = _Batch(output, status, evaluator, bench, request.fresh)
        for entry in plan:
            if entry.skipped:
                status.change(entry.model, "skipped", why=entry.skipped)
        entries = [entry for entry in plan if not entry.skipped]
        try:
            if isinstance(how, Published):
                _each(batch, entries, lambda entry: _take(batch, entry, commit), how.jobs)
            else:
                _run_models(batch, entries, how)
        except BaseException:
            status.end("interrupted")
            raise
        status.end()
    return status


@dataclass(frozen=True)
class _Batch:
    """A running batch."""

    output: Path
    status: Status
    evaluator: Evaluator | None
    benchmark: Benchmark | None
    fresh: bool

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Turn any error in the block into the failure of one model."""
        try:
            yield
        except Exception as error:
            self.status.change(name, "failed", why=cause(error))

    def conclude(self, recipe: Recipe, folder: Path, scores: Scores, new: bool) -> None:
        """Evaluate the scores of a model if necessary, and mark the model as done."""
        with self.attempt(recipe.model):
            if self.evaluator is not None:
                made_from = self.evaluator.made_from(recipe, scores, self.benchmark)
                if self.fresh or read_object(folder / "metrics.json").get("made_from") != made_from:
                    new = True
                    self.status.change(recipe.model, "evaluating")
                    self.evaluator.write(recipe, scores, self.benchmark, folder)
            self.status.change(recipe.model, "done", folder=str(folder), fresh=new)


_Found = tuple[Path, Scores, bool]  # the folder and the scores of a model, and whether they are new


def _each(
    batch: _Batch,
    entries: Sequence[PlanEntry],
    find: Callable[[PlanEntry], _Found | None],
    at_once: int,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Find the scores of each model, `at_once` at a time. Meanwhile, evaluate those that are there."""
    finding, evaluating = ThreadPoolExecutor(at_once), ThreadPoolExecutor(1)  # Matplotlib needs one thread

    def one(entry: PlanEntry) -> None:
        with contextlib.suppress(Stopped), batch.attempt(entry.model):
            found = find(entry)
            if found is not None:
                evaluating.submit(batch.conclude, entry.recipe, *found)

    futures = [finding.submit(one, entry) for entry in entries]
    try:
        # Wait for futures, not threads: Python 3.11 considers a thread ended if its join was interrupted.
        wait(futures)
        evaluating.shutdown()
    except BaseException:
        # Every thread that scores ends within about a second and releases its folder.
        for pool in (finding, evaluating):
            pool.shutdown(wait=False, cancel_futures=True)
        stop()
        wait(futures, timeout=_GRACE)
        raise


def _run_models(batch: _Batch, entries: Sequence[PlanEntry], how: Scoring) -> None:
    """Score models, small ones first. On this machine, the next one is downloaded meanwhile."""
    with contextlib.ExitStack() as opened:
        engine: LocalEngine | RayEngine
        if how.cluster is None:
            engine = LocalEngine(opened.enter_context(_log(batch.output)))
        else:
            engine = RayEngine(how.cluster, on_cpu=how.options.device == "cpu")
        opened.enter_context(engine)
        downloading = ThreadPoolExecutor(1)
        following = dict(zip((entry.model for entry in entries), entries[1:], strict=False))

        def find(entry: PlanEntry) -> _Found:
            if how.cluster is None and entry.model in following:
                downloading.submit(_fetch, batch, how, following[entry.model])
            return _score_model(batch, how, engine, entry)

        try:
            _each(batch, entries, find, engine.at_once, engine.stop)
        finally:
            downloading.shutdown(wait=False, cancel_futures=True)


def _score_model(batch: _Batch, how: Scoring, engine: LocalEngine | RayEngine, entry: PlanEntry) -> _Found:
    """Score a model unless it is done; return its folder, its scores, and whether they are new."""
    bench, name, status = batch.benchmark, entry.model, batch.status
    assert bench is not None
    judge, commit = _judge(how, entry)
    asked = asked_for(judge, bench)
    folder = run_folder(batch.output, name, bench.name)
    there = None if batch.fresh else finished_scores(folder, asked)
    if there is not None:
        return folder, there, False
    before = set() if batch.fresh else scored_before(folder)
    items = [item for item in bench.items if item.id not in before]
    shards = [shard(items, rank, engine.shards(entry)) for rank in range(engine.shards(entry))]
    tasks = [Task(judge, one, commit if how.free_disk else None) for one in shards if one]
    with contextlib.closing(engine.run(tasks or [Task(judge, [])], entry)) as parts:
        identity, about = _first(parts, status, name)
        about |= {} if asked is None else {"asked": asked}
        inputs = score_inputs(judge, bench, identity)
        with Run(folder, bench, inputs, about=about, fresh=batch.fresh) as run:
            status.change(name, "scoring")
            if run.remaining:
                _collect(run, parts, identity, status, name)
            scores = run.finish(processes=len(tasks))
    status.change(name, "scored")
    return folder, scores, True


def _collect(run: Run, parts: Iterator[Part], identity: dict[str, Any], status: Status, name: str) -> None:
    """Add what the workers yield to a run."""
    total = sum(len(item.responses) for item in run.remaining)
    done = tokens = 0
    distinct: set[bool | None] = set()
    status.progress(name, 0, total, 0)
    for part in parts:
        _check_same(identity, part)
        run.add(part.scored)
        _warn(status, name, part)
        distinct |= {item.distinct for item in part.scored}
        done += sum(len(item.rewards) for item in part.scored)
        tokens += sum(max(0, n) for item in part.scored for n in item.n_tokens)
        status.progress(name, done, total, tokens)
    if note := indifference_note(distinct):
        status.warn(name, f"{name}: {note}")


def _first(parts: Iterator[Part], status: Status, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Wait until a worker has loaded the judge; return the identity of the judge and what else is known."""
    for part in parts:
        if part.identity is None:  # a worker has started
            status.change(name, "downloading")
            continue
        _warn(status, name, part)
        return part.identity, dict(part.about or {})
    raise ValueError("no worker has loaded the model")


def _warn(status: Status, name: str, part: Part) -> None:
    for text in part.warnings:
        if text not in status.models[name].warnings:
            status.warn(name, text)


def _check_same(identity: dict[str, Any], part: Part) -> None:
    """Refuse a worker whose scores would differ, for example because of its dtype."""
    other = part.identity
    if other is None or other == identity:
        return
    differing = sorted(key for key in {**identity, **other} if identity.get(key) != other.get(key))
    shown = "; ".join(f"{key}: {identity.get(key)} and {other.get(key)}" for key in differing)
    raise ValueError(
        f"the nodes of the cluster would score differently ({shown}): set it, for example -J dtype=float32"
    )


def _judge(how: Scoring, entry: PlanEntry) -> tuple[Judge, str | None]:
    """Return the judge of an entry, which is not loaded yet, and the commit of a model on the Hub."""
    options = how.options
    if entry.options:
        given: dict[str, Any] = {} if options.max_length is None else {"max_length": options.max_length}
        given |= {} if entry.recipe == Recipe(entry.model) else {"recipe": entry.recipe}
        return load_judge(entry.model, **{**given, **entry.options}), None
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given |= {"recipe": entry.recipe, "revision": None}
    commit = None if is_local(entry.model) else identify(entry.model)
    return load_judge(entry.model, **{**given, "revision": commit}), commit


def _fetch(batch: _Batch, how: Scoring, entry: PlanEntry) -> None:
    """Download a model while another one is scored; errors are reported when the model is due."""
    with contextlib.suppress(Exception):
        judge, commit = _judge(how, entry)
        assert batch.benchmark is not None
        folder = run_folder(batch.output, entry.model, batch.benchmark.name)
        manifest = read_object(folder / "run.json")
        done = manifest.get("status") == "finished" and manifest.get("asked") == asked_for(
            judge, batch.benchmark
        )
        if commit is not None and (batch.fresh or not done):
            locate(entry.model, dataclasses.replace(how.options, recipe=entry.recipe, revision=commit))


@contextlib.contextmanager
def _log(output: Path) -> Iterator[Path]:
    """Yield the file for the worker's output. It is uploaded to object storage at the end."""
    if not is_remote(output):
        yield output / "batch.log"
        return
    with tempfile.TemporaryDirectory(prefix="rmcalib-") as folder:
        log = Path(folder) / "batch.log"
        try:
            yield log
        finally:
            if log.exists():
                write_bytes(output / "batch.log", log.read_bytes())


def _scoring_plan(
    request: BatchRequest, how: Scoring, *, load: bool
) -> tuple[list[PlanEntry], Benchmark | None]:
    # The memory of the nodes of a cluster is unknown here.
    device, memory = "cpu" if how.options.device == "cpu" else "cuda", math.inf
    if how.cluster is None:
        hardware = find_hardware(how.options.device)
        device, memory = hardware.device, hardware.memory
    models = _models(request) or []
    select(models, request.selection)  # refuses an empty selection before anything is downloaded
    bench = how.benchmark if isinstance(how.benchmark, Benchmark) else None
    if isinstance(how.benchmark, str) and load:
        revision = how.benchmark_revision
        bench = load_benchmark(how.benchmark, format=how.format, revision=revision, limit=how.limit)
    tokens = estimated_tokens(bench)
    return make_plan(
        models, request.selection, how.options, device, memory, tokens=tokens, ignore_memory=how.ignore_memory
    ), bench


def _models(request: BatchRequest) -> Sequence[Recipe | Listed] | None:
    if request.models is None and isinstance(request.how, Published):
        return None
    if request.models is None or isinstance(request.models, (str, Path)):
        return read_models(request.models)
    return list(request.models)


def _published_plan(request: BatchRequest) -> tuple[list[PlanEntry], str]:
    """Return the plan for the published scores, and the commit of the results."""
    commit = resolve_commit(RESULTS, repo_type="dataset")
    names = published_models(revision=commit)
    known, models = registry(), _models(request)
    wanted = [known.get(name) or Recipe(name) for name in names] if models is None else models
    plan = []
    for entry in select(wanted, request.selection):
        missing = "" if entry.model in names else f"no published scores in {RESULTS}"
        plan.append(dataclasses.replace(entry, skipped=entry.skipped or missing))
    return sorted(plan, key=lambda entry: (bool(entry.skipped), entry.model)), commit


def _take(batch: _Batch, entry: PlanEntry, commit: str) -> _Found | None:
    """Download the scores of a model unless it is done. A model without scores is marked as skipped."""
    folder = run_folder(batch.output, entry.model, f"{known_entry('reward-bench-2').hub_id}-published")
    request = {"model": entry.model, "results": commit, "recipe": dataclasses.asdict(entry.recipe)}
    asked = inputs_hash(request)
    there = None if batch.fresh else finished_scores(folder, asked)
    if there is not None:
        return folder, there, False
    mark = {} if batch.fresh else read_object(folder / "skipped.json")
    why = str(mark.get("why", "")) if mark.get("asked") == asked else ""
    if not why:
        batch.status.change(entry.model, "downloading")
        try:
            scores = remember_model(published_scores(entry.model, revision=commit), entry.recipe)
        except ValueError as error:
            if _NO_SCORES not in str(error):
                raise
            why = "a generative judge: it has no scores"
            write_json(folder / "skipped.json", {"asked": asked, "why": why})
        else:
            keep_scores(folder, scores, asked=asked, fresh=batch.fresh)
            return folder, scores, True
    batch.status.change(entry.model, "skipped", why=why)
    return None


def _texts() -> Benchmark | None:
    """Load the texts of the benchmark, which are optional in reports."""
    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        warnings.warn(f"the reports will not show the texts of the benchmark ({error})", stacklevel=2)
        return None

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
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.benchmarks._entries import known_entry
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
    read_models,
    select,
)
from rmcalib.runs._run import Run, finished_scores, keep_scores, run_folder, scored_before
from rmcalib.runs._score import asked_for, score_inputs, shard
from rmcalib.runs._status import ModelStatus, Status
from rmcalib.scores import Scores, published_models, published_scores
from rmcalib.scores._formats import NoScoresError
from rmcalib.scores._known import RESULTS

_DOWNLOADS = 4  # of published scores at a time
_GRACE = 5.0  # seconds that an interruption waits for threads


@dataclass(frozen=True)
class Batch:
    """The models of a batch, what to do with them, and where to write the results.

    Parameters
    ----------
    models : str | Path | Iterable[Recipe | Listed], optional
        Path of a YAML file, or recipes and entries of a list. Default: the leaderboard, or all models with
        published scores.
    benchmark : str | Benchmark
        A benchmark, or a name that :func:`rmcalib.load_benchmark` takes.
    output : str | Path
        Folder or URL for the results.
    selection : Selection
        Which of these models to run.
    options : LoadOptions
        How to load and run the models.
    cluster : Cluster, optional
        A Ray cluster to run on; default this machine.
    published : bool
        Download the scores that RewardBench has published. No model is run.
    fresh : bool
        Run everything again, and replace the results of earlier runs.
    format, limit
        As for :func:`rmcalib.load_benchmark`, if the benchmark is a name.
    free_disk : bool
        Remove each model from the Hub's cache when it is done.
    ignore_memory : bool
        Also run models that seem too large for the memory.

    Examples
    --------
    >>> Batch("models.yaml", "demo", limit=8, selection=Selection(max_parameters=10)).output
    'runs'
    """

    models: str | Path | Iterable[Recipe | Listed] | None = None
    benchmark: str | Benchmark = "reward-bench-2"
    output: str | Path = "runs"
    selection: Selection = field(default_factory=Selection)
    options: LoadOptions = field(default_factory=LoadOptions)
    cluster: Cluster | None = None
    published: bool = False
    fresh: bool = False
    format: str | None = None
    limit: int | None = None
    free_disk: bool = False
    ignore_memory: bool = False


Evaluate = Callable[[Recipe, Scores, Benchmark | None], tuple[str, Callable[[Path], object]]]
"""Returns a hash of everything that the metrics of scores depend on, and a function that writes them.

The function gets the run folder and writes `metrics.json` last, with the hash as `made_from`.
"""


def plan_batch(batch: Batch) -> list[PlanEntry]:
    """Return what a batch would do. No model or benchmark is downloaded.

    Parameters
    ----------
    batch : Batch
        The models, what to do with them, and where to write the results.

    Returns
    -------
    list of PlanEntry
        The models in order, with estimates of memory and time.

    Examples
    --------
    >>> recipes = [Recipe("org/rm-8B"), Recipe("org/rm-1B")]
    >>> batch = Batch(recipes, "demo", options=LoadOptions(device="cpu"), ignore_memory=True)
    >>> [entry.model for entry in plan_batch(batch)]
    ['org/rm-1B', 'org/rm-8B']
    """
    if batch.published:
        return _published_plan(batch)[0]
    name = batch.benchmark
    here = isinstance(name, str) and (
        name == "demo" or Path(name).is_file() or Path(name).suffix in (".jsonl", ".json", ".parquet")
    )
    return _scoring_plan(batch, load=here)[0]


def run_batch(
    batch: Batch, *, evaluate: Evaluate | None = None, on_change: Callable[[Status], None] | None = None
) -> Status:
    """Run a batch. If a model fails, the others continue.

    Parameters
    ----------
    batch : Batch
        The models, what to do with them, and where to write the results.
    evaluate : Callable, optional
        Takes the recipe, the scores, and the benchmark or None. Returns a hash of everything that the metrics
        depend on, and a function that writes them into the run folder, its argument. They are not written if
        `metrics.json` has the hash already. Default: no metrics are written.
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
    ...     batch = Batch([Recipe("./nowhere")], "demo", folder, limit=4, options=LoadOptions(device="cpu"))
    ...     run_batch(batch).counts()
    {'failed': 1}
    """
    if process_rank()[1] > 1:
        raise ValueError("a batch is one process: start it without torchrun (--engine ray uses several GPUs)")
    output = as_path(batch.output)
    if batch.published:
        plan, commit = _published_plan(batch)
        bench, about = None if evaluate is None else _texts(), {"scores": "published"}
    else:
        plan, bench = _scoring_plan(batch, load=True)
        about = {"engine": "local" if batch.cluster is None else "ray"}
    with locked(output, ".batch.lock", owner="batch.json"):
        models = [ModelStatus(entry.model, parameters=entry.parameters) for entry in plan]
        status = Status(output, models, on_change=on_change, **about)
        running = _Running(batch, output, status, evaluate, bench)
        for entry in plan:
            if entry.skipped:
                status.change(entry.model, "skipped", why=entry.skipped)
        entries = [entry for entry in plan if not entry.skipped]
        try:
            if batch.published:
                _each(running, entries, lambda entry: _take(running, entry, commit), _DOWNLOADS)
            else:
                _run_models(running, entries)
        except BaseException:
            status.end("interrupted")
            raise
        status.end()
    return status


@dataclass(frozen=True)
class _Running:
    """A running batch."""

    batch: Batch
    output: Path
    status: Status
    evaluate: Evaluate | None
    benchmark: Benchmark | None

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
            if self.evaluate is not None:
                made_from, write = self.evaluate(recipe, scores, self.benchmark)
                if self.batch.fresh or read_object(folder / "metrics.json").get("made_from") != made_from:
                    new = True
                    self.status.change(recipe.model, "evaluating")
                    write(folder)
            self.status.change(recipe.model, "done", folder=str(folder), fresh=new)


_Found = tuple[Path, Scores, bool]  # the folder and the scores of a model, and whether they are new


def _each(
    running: _Running,
    entries: Sequence[PlanEntry],
    find: Callable[[PlanEntry], _Found | None],
    at_once: int,
    stop: Callable[[], None] = lambda: None,
) -> None:
    """Find the scores of each model, `at_once` at a time. Meanwhile, evaluate those that are there."""
    finding, evaluating = ThreadPoolExecutor(at_once), ThreadPoolExecutor(1)  # Matplotlib needs one thread

    def one(entry: PlanEntry) -> None:
        with contextlib.suppress(Stopped), running.attempt(entry.model):
            found = find(entry)
            if found is not None:
                evaluating.submit(running.conclude, entry.recipe, *found)

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


def _run_models(running: _Running, entries: Sequence[PlanEntry]) -> None:
    """Score models, small ones first. On this machine, the next one is downloaded meanwhile."""
    batch = running.batch
    with contextlib.ExitStack() as opened:
        engine: LocalEngine | RayEngine
        if batch.cluster is None:
            engine = LocalEngine(opened.enter_context(_log(running.output)))
        else:
            engine = RayEngine(batch.cluster, on_cpu=batch.options.device == "cpu")
        opened.enter_context(engine)
        downloading = ThreadPoolExecutor(1)
        following = dict(zip((entry.model for entry in entries), entries[1:], strict=False))

        def find(entry: PlanEntry) -> _Found:
            if batch.cluster is None and entry.model in following:
                downloading.submit(_fetch, running, following[entry.model])
            return _score_model(running, engine, entry)

        try:
            _each(running, entries, find, engine.at_once, engine.stop)
        finally:
            downloading.shutdown(wait=False, cancel_futures=True)


def _score_model(running: _Running, engine: LocalEngine | RayEngine, entry: PlanEntry) -> _Found:
    """Score a model unless it is done; return its folder, its scores, and whether they are new."""
    batch, bench, name, status = running.batch, running.benchmark, entry.model, running.status
    assert bench is not None
    judge, commit = _judge(batch, entry)
    asked = asked_for(judge, bench)
    folder = run_folder(running.output, name, bench.name)
    there = None if batch.fresh else finished_scores(folder, asked)
    if there is not None:
        return folder, there, False
    before = set() if batch.fresh else scored_before(folder)
    items = [item for item in bench.items if item.id not in before]
    shards = [shard(items, rank, engine.shards(entry)) for rank in range(engine.shards(entry))]
    tasks = [Task(judge, one, commit if batch.free_disk else None) for one in shards if one]
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


def _judge(batch: Batch, entry: PlanEntry) -> tuple[Judge, str | None]:
    """Return the judge of an entry, which is not loaded yet, and the commit of a model on the Hub."""
    options = batch.options
    if entry.options:
        given: dict[str, Any] = {} if options.max_length is None else {"max_length": options.max_length}
        given |= {} if entry.recipe == Recipe(entry.model) else {"recipe": entry.recipe}
        return load_judge(entry.model, **{**given, **entry.options}), None
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    given |= {"recipe": entry.recipe, "revision": None}
    commit = None if is_local(entry.model) else identify(entry.model)
    return load_judge(entry.model, **{**given, "revision": commit}), commit


def _fetch(running: _Running, entry: PlanEntry) -> None:
    """Download a model while another one is scored; errors are reported when the model is due."""
    batch, bench = running.batch, running.benchmark
    with contextlib.suppress(Exception):
        assert bench is not None
        judge, commit = _judge(batch, entry)
        manifest = read_object(run_folder(running.output, entry.model, bench.name) / "run.json")
        done = manifest.get("status") == "finished" and manifest.get("asked") == asked_for(judge, bench)
        if commit is not None and (batch.fresh or not done):
            locate(entry.model, dataclasses.replace(batch.options, recipe=entry.recipe, revision=commit))


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


def _scoring_plan(batch: Batch, *, load: bool) -> tuple[list[PlanEntry], Benchmark | None]:
    # The memory of the nodes of a cluster is unknown here.
    device, memory = "cpu" if batch.options.device == "cpu" else "cuda", math.inf
    if batch.cluster is None:
        hardware = find_hardware(batch.options.device)
        device, memory = hardware.device, hardware.memory
    models = _models(batch)
    select(models, batch.selection)  # refuses an empty selection before anything is downloaded
    bench = batch.benchmark if isinstance(batch.benchmark, Benchmark) else None
    if isinstance(batch.benchmark, str) and load:
        bench = load_benchmark(batch.benchmark, format=batch.format, limit=batch.limit)
    plan = make_plan(
        models,
        batch.selection,
        batch.options,
        device,
        memory,
        tokens=estimated_tokens(bench),
        ignore_memory=batch.ignore_memory,
    )
    return plan, bench


def _models(batch: Batch) -> Sequence[Recipe | Listed]:
    if batch.models is None or isinstance(batch.models, (str, Path)):
        return read_models(batch.models)
    return list(batch.models)


def _published_plan(batch: Batch) -> tuple[list[PlanEntry], str]:
    """Return the plan for the published scores, and the commit of the results."""
    commit = resolve_commit(RESULTS, repo_type="dataset")
    names = published_models(revision=commit)
    known = registry()
    all_of_them = [known.get(name) or Recipe(name) for name in names]
    plan = []
    for entry in select(all_of_them if batch.models is None else _models(batch), batch.selection):
        missing = "" if entry.model in names else f"no published scores in {RESULTS}"
        plan.append(dataclasses.replace(entry, skipped=entry.skipped or missing))
    return sorted(plan, key=lambda entry: (bool(entry.skipped), entry.model)), commit


def _take(running: _Running, entry: PlanEntry, commit: str) -> _Found | None:
    """Download the scores of a model unless it is done. A model without scores is marked as skipped."""
    fresh = running.batch.fresh
    folder = run_folder(running.output, entry.model, f"{known_entry('reward-bench-2').hub_id}-published")
    request = {"model": entry.model, "results": commit, "recipe": dataclasses.asdict(entry.recipe)}
    asked = inputs_hash(request)
    there = None if fresh else finished_scores(folder, asked)
    if there is not None:
        return folder, there, False
    mark = {} if fresh else read_object(folder / "skipped.json")
    why = str(mark.get("why", "")) if mark.get("asked") == asked else ""
    if not why:
        running.status.change(entry.model, "downloading")
        try:
            scores = remember_model(published_scores(entry.model, revision=commit), entry.recipe)
        except NoScoresError:
            why = "a generative judge: it has no scores"
            write_json(folder / "skipped.json", {"asked": asked, "why": why})
        else:
            keep_scores(folder, scores, asked=asked, fresh=fresh)
            return folder, scores, True
    running.status.change(entry.model, "skipped", why=why)
    return None


def _texts() -> Benchmark | None:
    """Load the texts of the benchmark, which are optional in reports."""
    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        warnings.warn(f"the reports will not show the texts of the benchmark ({error})", stacklevel=2)
        return None

"""Batches: from a list of models to run folders with scores, on this machine or on a Ray cluster.

Other processes can follow a batch on disk. `batch.json` is the current state of all models, replaced atomically.
`events.jsonl` has one JSON object per line for each event, over all runs of the batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import platform
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rmcalib._util.files import json_hash, opened_to_append, read_object, utc, write_bytes, write_json
from rmcalib._util.hub import HubError, resolve_commit
from rmcalib._util.processes import process_rank
from rmcalib._util.storage import as_path, is_remote, read_file
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.benchmarks._entries import known_entry
from rmcalib.judges import Judge, Recipe, load_judge
from rmcalib.judges._files import identify, is_local, locate
from rmcalib.judges._registry import scaled_by
from rmcalib.runs import _folder, _plan
from rmcalib.runs._engine import LocalEngine, Part, RayEngine, Stopped, Task, cause
from rmcalib.runs._plan import Batch, PlanEntry
from rmcalib.runs._run import Run, asked_for, indifference_note, score_inputs, scored_before, shard
from rmcalib.scores import Scores, published_scores
from rmcalib.scores._formats import NoScoresError
from rmcalib.scores._known import RESULTS

STATES = ("waiting", "downloading", "scoring", "scored", "evaluating", "done", "failed", "skipped")
_EVERY = 2.0  # seconds between two writes of the state if only the progress has changed
_GRACE = 5.0  # seconds that an interruption waits for threads
_DOWNLOADS = 4  # of published scores at a time

Evaluate = Callable[[Recipe, Scores, Benchmark | None], tuple[str, Callable[[Path], object]]]
"""Returns a hash of everything that the metrics of scores depend on, and a function that writes them.

The function gets the run folder and writes `metrics.json` last, with the hash as `made_from`.
"""


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
    ...     run_batch(Batch(["./nowhere"], "demo", folder, limit=4)).counts()
    {'failed': 1}
    """
    if process_rank()[1] > 1:
        raise ValueError("a batch is one process: start it without torchrun (on Ray, it uses several GPUs)")
    output = as_path(batch.output)
    commit = ""
    benchmark: Benchmark | None
    if batch.published:
        commit = resolve_commit(RESULTS, repo_type="dataset")
        plan = _plan.published_plan(batch, commit)
        benchmark = None if evaluate is None else _texts()
    else:
        entries = _plan.selected(batch)  # refuses an empty selection before anything is downloaded
        benchmark = _plan.loaded_benchmark(batch)
        plan = _plan.scoring_plan(batch, entries, benchmark)
    with _folder.locked(output, ".batch.lock"):
        status = Status(output, plan, on_change)
        entries = [entry for entry in plan if not entry.skipped]
        running = _Running(batch, output, status, benchmark, evaluate)
        try:
            if batch.published:
                running.each(entries, lambda entry: running.take(entry, commit), _DOWNLOADS)
            else:
                running.score_all(entries)
        except BaseException:
            status.end("interrupted")
            raise
        status.end()
    return status


@dataclass
class ModelStatus:
    """The state of one model of a batch.

    Attributes
    ----------
    model : str
        Id of the model.
    state : str
        `waiting`, `downloading`, `scoring`, `scored`, `evaluating`, `done`, `failed` or `skipped`.
    parameters : float, optional
        Size in billions of parameters; None if it is unknown.
    why : str
        The cause of a failure, or the reason why the model was skipped.
    responses_done, responses : int
        Number of scored responses, and of all responses.
    tokens : int
        Number of tokens read so far.
    fresh : bool
        Whether this run did the work, and not an earlier one.
    folder : str
        The run folder.
    warnings : list[str]
        Warnings about the model.
    """

    model: str
    state: str = "waiting"
    parameters: float | None = None
    why: str = ""
    responses_done: int = 0
    responses: int = 0
    tokens: int = 0
    fresh: bool = False
    folder: str = ""
    warnings: list[str] = field(default_factory=list)


class Status:
    """The states of the models of a batch, in memory and on disk. Methods are thread-safe."""

    def __init__(
        self, output: Path, plan: Iterable[PlanEntry], on_change: Callable[[Status], None] | None = None
    ) -> None:
        """Start a run of a batch: write the first `batch.json`, and the events so far."""
        self.output, self.on_change = output, on_change
        self.models = {
            entry.model: ModelStatus(
                entry.model,
                "skipped" if entry.skipped else "waiting",
                parameters=entry.parameters,
                why=entry.skipped,
            )
            for entry in plan
        }
        self.state, self.started = "running", time.time()
        self._lock = threading.RLock()
        self._written = 0.0
        self._events = b""
        if is_remote(output):
            with contextlib.suppress(FileNotFoundError):
                self._events = read_file(output / "events.jsonl")
        self._write()
        self._event("start", models=len(self.models), pid=os.getpid())
        for model in self.models.values():
            if model.state == "skipped":
                self._event("skipped", model=model.model, why=model.why)

    def change(self, model: str, state: str, **values: Any) -> None:
        """Change the state of a model (one of `STATES`), and other fields."""
        with self._lock:
            self.models[model] = dataclasses.replace(self.models[model], state=state, **values)
            self._event(state, model=model, **values)
            self._write()

    def progress(self, model: str, done: int, total: int, tokens: int) -> None:
        """Record the progress of a model."""
        with self._lock:
            entry = self.models[model]
            entry.responses_done, entry.responses, entry.tokens = done, total, tokens
            if time.time() - self._written > _EVERY:
                self._write()
            elif self.on_change is not None:
                self.on_change(self)

    def warn(self, model: str, text: str) -> None:
        """Record a warning about a model, once."""
        with self._lock:
            if text not in self.models[model].warnings:
                self.models[model].warnings.append(text)
                self._event("warning", model=model, text=text)

    def end(self, state: str = "finished") -> None:
        """End the run of the batch, and write its final state."""
        with self._lock:
            self.state = state
            self._event("end", status=state, **self.counts())
            self._write()

    def counts(self) -> dict[str, int]:
        """Return the number of models in each state that occurs."""
        states = [entry.state for entry in self.models.values()]
        return {state: states.count(state) for state in STATES if state in states}

    def content(self) -> dict[str, Any]:
        """Return the content of `batch.json`."""
        return {
            "status": self.state,
            "started": utc(self.started),
            "updated": utc(time.time()),
            "pid": os.getpid(),
            "host": platform.node(),
            "counts": self.counts(),
            "models": [asdict(entry) for entry in self.models.values()],
        }

    def _event(self, kind: str, **values: Any) -> None:
        """Append one line to `events.jsonl`."""
        line = json.dumps({"time": utc(time.time()), "event": kind, **values}) + "\n"
        path = self.output / "events.jsonl"
        with self._continues():
            if is_remote(path):  # objects cannot be appended to
                self._events += line.encode()
                write_bytes(path, self._events)
            else:
                with opened_to_append(path) as file:
                    file.write(line.encode())

    def _write(self) -> None:
        with self._continues():
            write_json(self.output / "batch.json", self.content())
        self._written = time.time()
        if self.on_change is not None:
            self.on_change(self)

    @contextlib.contextmanager
    def _continues(self) -> Iterator[None]:
        """Let a failure to write be a warning, except for that of the first file."""
        try:
            yield
        except (OSError, ValueError) as error:
            if not self._written:
                raise
            warnings.warn(f"{error}; the batch continues", stacklevel=1)


class _Scored(NamedTuple):
    """The folder and the scores of a model, and whether they are new."""

    folder: Path
    scores: Scores
    is_new: bool


class _Request(NamedTuple):
    """What a model is asked: its judge, not loaded yet, its commit, its run folder, and the request's record."""

    judge: Judge
    commit: str | None
    folder: Path
    asked: str | None


@dataclass(frozen=True)
class _Running:
    """A running batch."""

    batch: Batch
    output: Path
    status: Status
    benchmark: Benchmark | None
    evaluate: Evaluate | None

    def each(
        self,
        entries: Sequence[PlanEntry],
        find: Callable[[PlanEntry], _Scored | None],
        at_once: int,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Find the scores of each model, `at_once` at a time. Meanwhile, evaluate those that are there."""
        finding = ThreadPoolExecutor(at_once)
        evaluating = ThreadPoolExecutor(1)  # Matplotlib needs one thread

        def find_and_conclude(entry: PlanEntry) -> None:
            with contextlib.suppress(Stopped), self.attempt(entry.model):
                scored = find(entry)
                if scored is not None:
                    evaluating.submit(self.conclude, entry.recipe, *scored)

        futures = [finding.submit(find_and_conclude, entry) for entry in entries]
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
                if read_object(folder / "metrics.json").get("made_from") != made_from:
                    new = True
                    self.status.change(recipe.model, "evaluating")
                    write(folder)
            self.status.change(recipe.model, "done", folder=str(folder), fresh=new)

    def score_all(self, entries: Sequence[PlanEntry]) -> None:
        """Score models, small ones first. On this machine, the next one is downloaded meanwhile."""
        cluster = self.batch.cluster
        engine: LocalEngine | RayEngine
        if cluster is None:
            # Objects cannot be appended to, so the log of a batch in object storage stays here.
            place = Path(tempfile.mkdtemp(prefix="rmcalib-")) if is_remote(self.output) else self.output
            engine = LocalEngine(place / "batch.log")
        else:
            engine = RayEngine(cluster, on_cpu=self.batch.options.device == "cpu")
        with contextlib.ExitStack() as opened:
            opened.callback(engine.close)
            downloading = ThreadPoolExecutor(1)
            opened.callback(downloading.shutdown, wait=False, cancel_futures=True)
            following = dict(zip((entry.model for entry in entries), entries[1:], strict=False))

            def find(entry: PlanEntry) -> _Scored:
                if cluster is None and entry.model in following:
                    downloading.submit(self.fetch, following[entry.model])
                return self.score(engine, entry)

            self.each(entries, find, engine.at_once, engine.stop)

    def request(self, entry: PlanEntry, benchmark: Benchmark) -> _Request:
        """Return what a model is asked."""
        options, commit = self.batch.options, None
        if entry.options is None:
            commit = None if is_local(entry.model) else identify(entry.model)
            given = {**vars(options), "recipe": entry.recipe, "revision": commit}
        else:
            given = {} if options.max_length is None else {"max_length": options.max_length}
            given |= {} if entry.recipe == Recipe(entry.model) else {"recipe": entry.recipe}
            given |= entry.options
        judge = load_judge(entry.model, **given)
        folder = _folder.run_folder(self.output, entry.model, benchmark.name)
        return _Request(judge, commit, folder, asked_for(judge, benchmark))

    def fetch(self, entry: PlanEntry) -> None:
        """Download a model while another one is scored; errors are reported when the model is due."""
        assert self.benchmark is not None
        with contextlib.suppress(Exception):
            due = self.request(entry, self.benchmark)
            if due.commit is not None and (
                self.batch.fresh or not _folder.is_finished(due.folder, due.asked)
            ):
                options = dataclasses.replace(self.batch.options, recipe=entry.recipe, revision=due.commit)
                locate(entry.model, options)

    def score(self, engine: LocalEngine | RayEngine, entry: PlanEntry) -> _Scored:
        """Score a model unless it is done; return its folder, its scores, and whether they are new."""
        bench, name, fresh = self.benchmark, entry.model, self.batch.fresh
        assert bench is not None
        judge, commit, folder, asked = self.request(entry, bench)
        there = None if fresh else _folder.finished_scores(folder, asked)
        if there is not None:
            return _Scored(folder, there, False)
        before = set() if fresh else scored_before(folder)
        items = [item for item in bench.items if item.id not in before]
        cluster = self.batch.cluster
        n_shards = 1 if cluster is None or entry.served else cluster.shards
        shards = [shard(items, rank, n_shards) for rank in range(n_shards)]
        tasks = [Task(judge, part, commit if self.batch.free_disk else None) for part in shards if part]
        with contextlib.closing(engine.run(tasks or [Task(judge, [])], entry)) as parts:
            next(parts)  # a worker has started
            self.status.change(name, "downloading")
            first = next(part for part in parts if part.identity is not None)  # a worker has loaded the judge
            inputs = score_inputs(judge, bench, first.identity)
            about = {**(first.about or {}), **({} if asked is None else {"asked": asked})}
            with Run(folder, bench, inputs, about=about, fresh=fresh) as run:
                self.status.change(name, "scoring")
                if run.remaining:
                    self.collect(run, name, first, parts)
                scores = run.finish(processes=len(tasks))
        if note := indifference_note(scores):
            self.status.warn(name, note)
        self.status.change(name, "scored")
        return _Scored(folder, scores, True)

    def collect(self, run: Run, name: str, first: Part, others: Iterable[Part]) -> None:
        """Add what the workers yield to a run."""
        total = sum(len(item.responses) for item in run.remaining)
        done = tokens = 0
        for part in itertools.chain([first], others):
            if part.identity not in (None, first.identity):
                raise ValueError(
                    'the nodes of the cluster would score differently: set what differs, for example dtype="float32" '
                    f"({first.identity} and {part.identity})"
                )
            if part.scored:
                run.add(part.scored)
            for text in part.warnings:
                self.status.warn(name, text)
            done += sum(len(item.rewards) for item in part.scored)
            tokens += sum(max(0, n) for item in part.scored for n in item.n_tokens)
            self.status.progress(name, done, total, tokens)

    def take(self, entry: PlanEntry, commit: str) -> _Scored | None:
        """Download the scores of a model unless it is done. A model without scores is marked as skipped."""
        benchmark = f"{known_entry('reward-bench-2').hub_id}-published"
        folder, fresh = _folder.run_folder(self.output, entry.model, benchmark), self.batch.fresh
        asked = json_hash({"model": entry.model, "results": commit, "recipe": asdict(entry.recipe)})
        there = None if fresh else _folder.finished_scores(folder, asked)
        if there is not None:
            return _Scored(folder, there, False)
        self.status.change(entry.model, "downloading")
        try:
            scores = scaled_by(published_scores(entry.model, revision=commit), entry.recipe)
        except NoScoresError:
            self.status.change(entry.model, "skipped", why="a generative judge: it has no scores")
            return None
        _folder.keep_scores(folder, scores, asked=asked, fresh=fresh)
        return _Scored(folder, scores, True)


def _texts() -> Benchmark | None:
    """Load the texts of the benchmark, which are optional in reports."""
    try:
        return load_benchmark("reward-bench-2")
    except HubError as error:
        warnings.warn(f"the reports will not show the texts of the benchmark ({error})", stacklevel=2)
        return None

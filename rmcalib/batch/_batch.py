"""What all engines share: the job, which models are done, and the evaluation of a scored model.

The engines are `rmcalib.batch._local`, `rmcalib.batch._ray` and `rmcalib.batch._published`.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object
from rmcalib.batch._plan import PlanEntry
from rmcalib.batch._status import ModelStatus, Status
from rmcalib.batch._worker import cause
from rmcalib.benchmarks import Benchmark
from rmcalib.judges import Classifier, Judge, LoadOptions, Recipe, is_local, load_judge
from rmcalib.runs import asked_for, finished_scores, locked, remove_leftover_parts, run_folder
from rmcalib.scores import Scores

__all__ = ["Batch", "Evaluator", "Job", "Ticket", "free_checkpoint", "open_batch", "scoring_ticket"]

_SCANS = 100  # most attempts to scan the Hub's cache while other processes change it


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

    Examples
    --------
    >>> from rmcalib._util.files import write_json
    >>> def write(recipe, scores, benchmark, folder):
    ...     write_json(folder / "metrics.json", {"prompts": scores.n_items, "made_from": "1"})
    >>> evaluator = Evaluator(write, made_from=lambda recipe, scores, benchmark: "1")
    """

    write: Callable[[Recipe, Scores, Benchmark | None, Path], None]
    made_from: Callable[[Recipe, Scores, Benchmark | None], str]


@dataclass(frozen=True)
class Job:
    """The settings that all models of a batch share.

    Parameters
    ----------
    benchmark : Benchmark
        The prompts.
    options : LoadOptions
        How to load and run the models.
    fresh : bool
        Score everything again.
    free_disk : bool
        Remove each model from the Hub's cache when it is done.
    """

    benchmark: Benchmark
    options: LoadOptions = field(default_factory=LoadOptions)
    fresh: bool = False
    free_disk: bool = False

    def judge(self, entry: PlanEntry, revision: str | None = None) -> Judge:
        """Return the judge of an entry of the plan; its model is not loaded yet."""
        if entry.options:
            length = self.options.max_length
            given: dict[str, Any] = {} if length is None else {"max_length": length}
            if entry.recipe != Recipe(entry.model):
                given["recipe"] = entry.recipe
            return load_judge(entry.model, **{**given, **entry.options})
        options = dataclasses.replace(self.options, recipe=entry.recipe, revision=revision)
        return Classifier(entry.model, options)


@dataclass(frozen=True)
class Ticket:
    """One model to score: its commit, the hash of the request (`asked`), and whether it is done."""

    entry: PlanEntry
    commit: str | None  # None if the model is not from the Hub
    asked: str | None
    folder: Path
    scored: bool = False
    fresh: bool = False


class Batch:
    """A running batch; `open_batch` opens one."""

    def __init__(
        self, output: Path, status: Status, evaluator: Evaluator | None, benchmark: Benchmark | None
    ) -> None:
        """Store the arguments."""
        self.output, self.status, self.evaluator, self.benchmark = output, status, evaluator, benchmark

    def conclude(self, ticket: Ticket, scores: Scores | None = None) -> None:
        """Evaluate the scores of a model if necessary, and mark the model as done."""
        recipe, folder = ticket.entry.recipe, ticket.folder
        remove_leftover_parts(folder)
        evaluated = True
        if self.evaluator is not None:
            scores = scores or Scores.from_parquet(folder / "scores.parquet")
            made_from = read_object(folder / "metrics.json").get("made_from")
            evaluated = not ticket.fresh and made_from == self.evaluator.made_from(
                recipe, scores, self.benchmark
            )
            if not evaluated:
                self.status.change(recipe.model, "evaluating")
                self.evaluator.write(recipe, scores, self.benchmark, folder)
        self.status.change(recipe.model, "done", folder=str(folder), fresh=not (ticket.scored and evaluated))

    @contextlib.contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Turn any error in the block into the failure of one model."""
        try:
            yield
        except Exception as error:
            self.status.change(name, "failed", why=cause(error))


@contextlib.contextmanager
def open_batch(
    output: Path,
    plan: Sequence[PlanEntry],
    *,
    benchmark: Benchmark | None = None,
    evaluator: Evaluator | None = None,
    on_change: Callable[[Status], None] | None = None,
    **about: Any,
) -> Iterator[Batch]:
    """Lock the output folder of a batch, and write its state to `batch.json` and `events.jsonl`."""
    with locked(output, ".batch.lock", owner="batch.json"):
        models = [ModelStatus(e.model, parameters=e.parameters, planned=e.seconds) for e in plan]
        status = Status(output, models, on_change=on_change, **about)
        for entry in plan:
            if entry.skipped:
                status.change(entry.model, "skipped", why=entry.skipped)
        try:
            yield Batch(output, status, evaluator, benchmark)
        except BaseException:
            status.end("interrupted")
            raise
        status.end()


def scoring_ticket(batch: Batch, job: Job, entry: PlanEntry) -> Ticket:
    """Find out whether a model is done. This asks the Hub for its commit, and downloads nothing.

    With ``job.fresh``, no model counts as done.
    """
    judge = job.judge(entry)
    asked = asked_for(judge, job.benchmark)
    folder = run_folder(batch.output, entry.model, job.benchmark.name)
    commit = judge.commit if isinstance(judge, Classifier) and not is_local(entry.model) else None
    scored = not job.fresh and finished_scores(folder, asked) is not None
    return Ticket(entry, commit, asked, folder, scored, job.fresh)


def free_checkpoint(commit: str) -> int:
    """Remove the files of a commit from the Hub's cache, and return the number of freed bytes."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    for attempt in range(_SCANS):
        try:
            cache = scan_cache_dir()
            break
        except CacheNotFound:
            return 0
        except FileNotFoundError:  # another process changed the cache during the scan
            if attempt + 1 == _SCANS:
                raise
    strategy = cache.delete_revisions(commit)
    strategy.execute()
    return int(strategy.expected_freed_size)

"""A batch of published scores: downloads files from the Hub, a few at a time. No model is run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait

from rmcalib._util.files import read_object, write_json
from rmcalib._util.hub import resolve_commit
from rmcalib.batch._batch import Batch, Ticket
from rmcalib.batch._models import Listed, Selection
from rmcalib.batch._plan import PlanEntry, select
from rmcalib.benchmarks import known_entry
from rmcalib.judges import Recipe, registry, remember_model
from rmcalib.runs import finished_scores, inputs_hash, keep_scores, run_folder
from rmcalib.scores import RESULTS, Scores, published_models, published_scores

__all__ = ["published_plan", "run_published"]

_GRACE = 2.0  # seconds that an interruption waits for downloads
_NO_SCORES = "a generative judge gives none"  # in the message of `from_rewardbench`


def published_plan(
    models: Iterable[Recipe | Listed] | None, selection: Selection
) -> tuple[list[PlanEntry], str]:
    """Return the plan for the published scores of `models` (default all), and the commit of the results."""
    commit = resolve_commit(RESULTS, repo_type="dataset")
    names = published_models(revision=commit)
    known = registry()
    all_published = [known.get(name) or Recipe(name) for name in names]
    wanted: Iterable[Recipe | Listed] = all_published if models is None else models
    have = set(names)
    plan = [
        entry
        if entry.skipped or entry.model in have
        else dataclasses.replace(entry, skipped=f"no published scores in {RESULTS}")
        for entry in select(wanted, selection)
    ]
    return sorted(plan, key=lambda entry: (bool(entry.skipped), entry.model)), commit


def run_published(
    batch: Batch, plan: Sequence[PlanEntry], commit: str, *, jobs: int = 4, fresh: bool = False
) -> None:
    """Download the published scores of the models in `plan`, `jobs` files at a time.

    Downloaded scores are cached. Models that are done are skipped unless ``fresh`` is set.
    """
    pool = ThreadPoolExecutor(max_workers=jobs)
    futures: dict[Future[tuple[Ticket | None, Scores | None]], PlanEntry] = {}
    try:
        entries = [entry for entry in plan if not entry.skipped]
        futures = {pool.submit(_take, batch, entry, commit, fresh): entry for entry in entries}
        for future in as_completed(futures):
            entry = futures[future]
            with batch.attempt(entry.model):
                ticket, scores = future.result()
                if ticket is None:
                    continue
                if scores is not None:
                    known = remember_model(scores, entry.recipe)
                    keep_scores(ticket.folder, known, asked=ticket.asked, fresh=fresh)
                batch.conclude(ticket, scores)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        wait(futures, timeout=_GRACE)


def _take(batch: Batch, entry: PlanEntry, commit: str, fresh: bool) -> tuple[Ticket | None, Scores | None]:
    """Download the scores of a model unless it is done. A model without scores is marked as skipped."""
    folder = run_folder(batch.output, entry.model, f"{known_entry('reward-bench-2').hub_id}-published")
    request = {"model": entry.model, "results": commit, "recipe": dataclasses.asdict(entry.recipe)}
    asked = inputs_hash(request)
    scored = not fresh and finished_scores(folder, asked) is not None
    ticket = Ticket(entry, commit, asked, folder, scored, fresh)
    if ticket.scored:
        return ticket, None
    mark = {} if fresh else read_object(folder / "skipped.json")
    why = str(mark.get("why", "")) if mark.get("asked") == asked else ""
    if not why:
        batch.status.change(entry.model, "downloading")
        try:
            return ticket, published_scores(entry.model, revision=commit)
        except ValueError as error:
            if _NO_SCORES not in str(error):
                raise
            why = "a generative judge: it has no scores"
        write_json(folder / "skipped.json", {"asked": asked, "why": why})
    batch.status.change(entry.model, "skipped", why=why)
    return None, None

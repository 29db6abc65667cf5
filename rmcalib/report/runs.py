"""Find the runs of a report, and give different labels to the runs of one model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from rmcalib._util.display import clean_line
from rmcalib._util.storage import as_path, within
from rmcalib.report.evaluation import UNNAMED
from rmcalib.scores import Scores, load_all_scores, load_board
from rmcalib.scores._known import BOARDS
from rmcalib.scores._runs import ScoredRun, find_runs


def runs_by_benchmark(
    folders: Iterable[str | Path], benchmark: str | None = None
) -> tuple[dict[str, list[ScoredRun]], list[str]]:
    """Find the finished runs under some folders, by benchmark, or those of one; return them with notes.

    A run that is found twice (the same hash) counts once. Runs of one model with different hashes are all
    kept, and labelled by their folders. A part of a benchmark (``--part``) is left out if its model was scored
    on the whole, too. The folder ``real`` is the built-in board. A file of scores counts as one run for each of
    its models.
    """
    runs, notes = _finished_runs(folders)
    if benchmark is not None:
        runs = _of_benchmark(runs, benchmark)
    scored = {(run.model, run.benchmark) for run in runs}
    groups: dict[str, list[ScoredRun]] = {}
    for run in runs:
        whole = re.sub(r"-\d+of\d+$", "", run.benchmark)
        if whole != run.benchmark and (run.model, whole) in scored:
            notes.append(
                clean_line(f"{run.model}: {run.benchmark} is left out, because {whole} has its prompts, too.")
            )
        else:
            groups.setdefault(clean_line(run.benchmark), []).append(run)
    return {name: _tell_apart(same) for name, same in groups.items()}, notes


def source_notes(runs: Iterable[ScoredRun]) -> list[str]:
    """Return where built-in scores come from, if there are any."""
    found = {run.manifest["source"]: run.manifest for run in runs if "licence" in run.manifest}
    return [
        f"The built-in scores of {about['benchmark']} are from {source} at commit {about['source_revision'][:12]} "
        f"({about['licence']})" + (f", published with {about['paper']}." if "paper" in about else ".")
        for source, about in found.items()
    ]


def training_steps(runs: Sequence[ScoredRun]) -> list[int]:
    """Return the step of each run if they are steps of one training run; else nothing."""
    steps = [run.manifest.get("step") for run in runs]
    known = [step for step in steps if isinstance(step, int)]
    one_model = len({run.model for run in runs}) == 1 and len(runs) > 1
    return known if one_model and len(set(known)) == len(runs) else []


def _finished_runs(folders: Iterable[str | Path]) -> tuple[list[ScoredRun], list[str]]:
    """Find the finished runs of all models and benchmarks; the notes name those that are not finished."""
    runs: list[ScoredRun] = []
    notes: list[str] = []
    for name in dict.fromkeys(map(str, folders)):
        folder = Path(name)
        if name in BOARDS and not folder.exists():
            runs += _of_scores(folder, load_board(name))
            continue
        folder = _named(name)
        if folder.is_file():
            runs += _of_scores(folder, load_all_scores(folder))
            continue
        own, unfinished = find_runs(folder)
        runs += own
        notes += unfinished
    if not runs:
        raise ValueError("no finished run; run the same `rmcalib eval` command again to finish one")
    return runs, notes


def _of_scores(source: Path, found: dict[str, Scores]) -> list[ScoredRun]:
    """Return the models of a file or of a built-in board as runs; their folders are only names."""
    runs = []
    for model, scores in found.items():
        # Several files may hold parts of one run, so its hash does not tell them apart.
        manifest = {key: value for key, value in scores.manifest.items() if key != "hash"}
        benchmark = str(manifest.get("benchmark") or UNNAMED)
        runs.append(ScoredRun(source / model, manifest, model, benchmark, clean_line(model), scores))
    return runs


def _named(source: str | Path) -> Path:
    """Return the path of a folder or file of scores; storage that does not answer is reported by its URL."""
    if not str(source).strip():
        raise ValueError("an empty name; '.' is the current folder")
    path = as_path(source)
    try:
        within(path.exists)
    except OSError as error:
        raise ValueError(f"{source}: cannot be read: {error.strerror or error}") from error
    return path


def _of_benchmark(runs: list[ScoredRun], wanted: str) -> list[ScoredRun]:
    """Return the runs of one benchmark, by its name, with or without the owner, or by its format."""
    kept = [
        run
        for run in runs
        if wanted in (run.benchmark, run.benchmark.rpartition("/")[2], run.manifest.get("benchmark_format"))
    ]
    if not kept:
        have = ", ".join(dict.fromkeys(run.benchmark for run in runs))
        raise ValueError(f"--benchmark {wanted}: no run of it (have: {have})")
    return kept


def _tell_apart(runs: Sequence[ScoredRun]) -> list[ScoredRun]:
    """Leave out runs that were found twice, and label several runs of a model by step or folder."""
    different = {str(run.manifest.get("hash") or run.folder): run for run in runs}
    by_model: dict[str, list[ScoredRun]] = {}
    for run in different.values():
        by_model.setdefault(run.model, []).append(run)
    found = []
    for same in by_model.values():
        if len(same) == 1:
            found += same
            continue
        labels = [f"step {step}" for step in training_steps(same)] or [str(run.folder) for run in same]
        found += [
            replace(run, label=clean_line(f"{run.model} ({label})"))
            for run, label in zip(same, labels, strict=True)
        ]
    return found

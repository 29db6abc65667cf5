"""Find the runs of a leaderboard, and give different labels to the runs of one model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.hub import folder_name
from rmcalib._util.storage import StorageError, as_path, find_files, read_file, similar_file
from rmcalib._util.terminal import clean_line
from rmcalib.report.evaluation import UNNAMED
from rmcalib.runs import read_run
from rmcalib.runs._folder import flattened
from rmcalib.scores import Scores, load_all_scores, load_board, load_scores
from rmcalib.scores._known import BOARDS, is_built_in


@dataclass(frozen=True)
class ScoredRun:
    """One finished run: its folder, its manifest, the names of model and benchmark, and its label.

    ``read`` are its scores if they are not in the folder, but from a file or built in.
    """

    folder: Path
    manifest: dict[str, Any]
    model: str
    benchmark: str
    label: str
    read: Scores | None = None

    def scores(self) -> Scores:
        """Read the scores."""
        found = self.read or read_run(self.folder)
        if found is None:
            raise ValueError(f"{self.folder}: it has no scores.parquet any more; run its command again")
        return found


def runs_by_benchmark(
    folders: Iterable[str | Path], benchmark: str | None = None
) -> tuple[dict[str, list[ScoredRun]], list[str]]:
    """Find the finished runs under some folders, by benchmark, or those of one; return them with notes.

    A run that is found twice (the same hash) counts once. Runs of one model with different hashes are all
    kept, and labelled by their differences. Parts of a benchmark (``--part``) and the whole are one benchmark.
    The folder ``real`` is the built-in board. A file of scores counts as one run for each of its models.
    """
    runs, notes = _finished_runs(folders)
    if benchmark is None:
        runs, notes = _join_parts(runs, notes)
    else:
        runs = _of_benchmark(runs, benchmark)
    groups = {}
    for name in dict.fromkeys(run.benchmark for run in runs):
        groups[name], notes = _tell_apart([run for run in runs if run.benchmark == name], notes)
    return groups, notes


def source_notes(runs: Iterable[ScoredRun]) -> list[str]:
    """Return where built-in scores come from, if there are any."""
    found = {run.manifest["source"]: run.manifest for run in runs if "licence" in run.manifest}
    return [
        f"The built-in scores of {about['benchmark']} are from {source} at commit {about['source_revision'][:12]} "
        f"({about['licence']})" + (f", published with {about['paper']}." if "paper" in about else ".")
        for source, about in found.items()
    ]


def step_labels(models: Sequence[str], manifests: Sequence[Mapping[str, Any]]) -> dict[int, int] | None:
    """Return the step of each run by its position, if the runs are steps of one training run; else None."""
    steps = [manifest.get("step") for manifest in manifests]
    integers = [step for step in steps if isinstance(step, int) and not isinstance(step, bool)]
    if len(set(models)) != 1 or len(steps) < 2 or len(set(integers)) != len(steps):
        return None
    return dict(enumerate(integers))


def _finished_runs(folders: Iterable[str | Path]) -> tuple[list[ScoredRun], list[str]]:
    """Find the finished runs of all models and benchmarks; the notes name those that are not finished."""
    runs: list[ScoredRun] = []
    notes: list[str] = []
    for name in dict.fromkeys(map(str, folders)):
        if name in BOARDS and not Path(name).exists():
            runs += _built_in_runs(name)
            continue
        folder = _named(name)
        if folder.is_file():
            runs += _runs_in_file(folder)
            continue
        if not folder.is_dir():
            hint = similar_file(folder) or " (runs are written by `rmcalib eval --output`)"
            raise ValueError(f"{folder}: no such folder or file{hint}")
        files = find_files(folder, "scores.parquet")
        found = sorted({path.parent for path in files if _is_run(path, folder)})
        known = {path: run_of(path) for path in found}
        begun = {path.parent for path in find_files(folder, "run.json") if path.parent not in known}
        unfinished = sorted(begun | {path for path, run in known.items() if not _is_finished(run)})
        if not found and not unfinished:
            raise ValueError(
                f"{folder}: no runs in it (folders with a scores.parquet, written by `rmcalib eval`)"
            )
        runs += [run for path, run in known.items() if path not in unfinished]
        notes += [_unfinished_note(run_of(path)) for path in unfinished]
    if not runs:
        raise ValueError("no finished run; run the same `rmcalib eval` command again to finish one")
    return runs, notes


def _built_in_runs(board: str) -> list[ScoredRun]:
    return [
        ScoredRun(Path(board, model), scores.manifest, model, scores.manifest["benchmark"], model, scores)
        for model, scores in load_board(board).items()
    ]


def _runs_in_file(file: Path) -> list[ScoredRun]:
    """The models of a file of scores; their folders are only names."""
    found = load_all_scores(file)
    return [
        ScoredRun(
            file / model,
            {key: value for key, value in scores.manifest.items() if key != "hash"},
            model,
            str(scores.manifest.get("benchmark") or UNNAMED),
            model,
            scores,
        )
        for model, scores in found.items()
    ]


def _unfinished_note(run: ScoredRun) -> str:
    model, benchmark = clean_line(run.model), clean_line(run.benchmark)
    return f"The run of {model} on {benchmark} is not finished, and left out."


def run_of(folder: Path) -> ScoredRun:
    """Read the manifest of a run folder; without one, the names are taken from the folders."""
    manifest = _manifest(folder)
    model = str(manifest.get("model") or folder.parent.name.replace("__", "/", 1))
    benchmark = str(manifest.get("benchmark") or folder.name)
    return ScoredRun(folder, manifest, model, benchmark, model)


def open_scores(source: str | Path) -> tuple[Scores, str]:
    """Read scores from a run folder, from a folder that contains one run, or from a file.

    Parameters
    ----------
    source : str | Path
        The folder or file; ``real/<model>`` are the built-in scores of a real model.

    Returns
    -------
    scores : Scores
        The scores.
    name : str
        The name of the model, or of the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Scores.from_arrays([[1.0, 0.0]]).to_parquet(f"{folder}/mine.parquet")
    ...     open_scores(f"{folder}/mine.parquet")[1]
    'mine'
    """
    path = _named(source)
    if is_built_in(source) or path.is_file():
        scores = load_scores(source)
        return scores, str(scores.manifest.get("model") or path.stem)
    runs, _ = _tell_apart(*_finished_runs([path]))
    if len(runs) > 1:
        have = ", ".join(str(run.folder) for run in runs[:3])
        raise ValueError(f"{path}: {len(runs)} runs in it; name one of them, such as {have}")
    return runs[0].scores(), runs[0].label


def _named(source: str | Path) -> Path:
    """Return the path of a folder or file of scores; storage that does not answer is reported by its URL."""
    if not str(source).strip():
        raise ValueError("an empty name; '.' is the current folder")
    path = as_path(source)
    try:
        path.exists()
    except OSError as error:
        raise ValueError(f"{source}: cannot be read: {error.strerror or error}") from error
    return path


def _is_finished(run: ScoredRun) -> bool:
    """Return whether a run is finished; a folder without a manifest counts as finished."""
    return bool(run.manifest.get("status", "finished") == "finished")


def _is_run(path: Path, top: Path) -> bool:
    """Return whether a file belongs to a run; parts of unfinished runs and hidden folders do not count."""
    return not any(part == "parts" or part.startswith(".") for part in path.relative_to(top).parts[:-1])


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        content = json.loads(read_file(path))
    except FileNotFoundError:
        return {}
    except StorageError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: not a readable manifest: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: not a readable manifest: expected an object")
    return content


def _of_benchmark(runs: list[ScoredRun], wanted: str) -> list[ScoredRun]:
    """Return the runs of one benchmark, by its name, its format, or the name of its folder."""
    have = ", ".join(dict.fromkeys(run.benchmark for run in runs))
    if not wanted.strip():
        raise ValueError(f"--benchmark: an empty name (have: {have})")
    key = folder_name(wanted)
    kept = [
        run
        for run in runs
        if wanted in (run.benchmark, run.manifest.get("benchmark_format"))
        or key in (folder_name(run.benchmark), run.folder.name)
        or folder_name(run.benchmark).endswith(f"__{key}")
    ]
    if not kept:
        raise ValueError(f"--benchmark {wanted}: no run of it (have: {have})")
    return kept


def _join_parts(runs: list[ScoredRun], notes: list[str]) -> tuple[list[ScoredRun], list[str]]:
    """Make one benchmark of its parts and the whole: they have the same prompts.

    A model's parts are left out if it was scored on the whole, too; otherwise they are joined.
    """
    bases = {run.benchmark: _whole(run.benchmark) for run in runs}
    several = {base for base in bases.values() if list(bases.values()).count(base) > 1}
    by_model: dict[tuple[str, str, str], list[ScoredRun]] = {}
    for run in runs:
        base = bases[run.benchmark]
        key = (
            (base, run.model, str(run.manifest.get("step"))) if base in several else ("", "", str(run.folder))
        )
        by_model.setdefault(key, []).append(run)
    kept: list[ScoredRun] = []
    for (base, model, _), same in by_model.items():
        whole = [run for run in same if run.benchmark == base]
        if base not in several or len(whole) == len(same):
            kept += same
            continue
        parts = [run for run in same if run.benchmark != base]
        names = ", ".join(dict.fromkeys(clean_line(run.benchmark) for run in parts))
        kept += whole or [_joined(parts, base)]
        what = "and left out, because the whole was scored, too" if whole else "and joined"
        notes = [*notes, f"{clean_line(model)}: {names}: prompts of {clean_line(base)}, {what}."]
    return kept, notes


def _whole(benchmark: str) -> str:
    """Return the name of the benchmark of which this is a part, or the name itself.

    >>> _whole("demo-1of2"), _whole("demo")
    ('demo', 'demo')
    """
    return re.sub(r"-\d+of\d+$", "", benchmark)


def _joined(parts: list[ScoredRun], benchmark: str) -> ScoredRun:
    """Return the runs of one model on parts of a benchmark as one run; each prompt counts once."""
    first = parts[0]
    manifest = {key: value for key, value in first.manifest.items() if key != "hash"}
    manifest["benchmark"] = benchmark
    seen: set[str] = set()
    columns: list[dict[str, Any]] = []
    for run in parts:
        scores = run.scores()
        new = np.array([name not in seen for name in scores.item_id.tolist()], dtype=bool)
        columns.append({name: column[new] for name, column in scores.columns().items()})
        seen |= set(scores.item_id.tolist())
    shared = [name for name in columns[0] if all(name in one for one in columns)]
    together = {name: np.concatenate([one[name] for one in columns]) for name in shared}
    scores = Scores.from_columns(together, manifest)
    return replace(first, manifest=manifest, benchmark=benchmark, read=scores)


def _tell_apart(runs: list[ScoredRun], notes: list[str]) -> tuple[list[ScoredRun], list[str]]:
    by_model: dict[str, list[ScoredRun]] = {}
    for run in runs:
        same = by_model.setdefault(run.model, [])
        digest = run.manifest.get("hash")
        if digest is not None and any(other.manifest.get("hash") == digest for other in same):
            notes.append(f"{run.model}: the same run was found twice; {run.folder} is left out.")
        else:
            same.append(run)
    result: list[ScoredRun] = []
    for model, same in by_model.items():
        if len(same) > 1:
            labels = _labels(same)
            # Steps of a training run have a separate table and note.
            if step_labels([run.model for run in same], [run.manifest for run in same]) is None:
                notes.append(f"{model} has {len(same)} different runs, shown as {'; '.join(labels)}.")
            same = [replace(run, label=label) for run, label in zip(same, labels, strict=True)]
        result += same
    return result, notes


def _labels(runs: list[ScoredRun]) -> list[str]:
    """Label runs of one model by the inputs that differ, or by their folders if none differs."""
    if (steps := step_labels([run.model for run in runs], [run.manifest for run in runs])) is not None:
        return [f"{run.model} (step {steps[i]})" for i, run in enumerate(runs)]
    flat = [{key: str(v) for key, v in flattened(_inputs(run.manifest)).items()} for run in runs]
    keys = [
        key for key in dict.fromkeys(k for one in flat for k in one) if len({o.get(key) for o in flat}) > 1
    ]
    labels = [", ".join(f"{_short(key)} {one[key][:12]}" for key in keys[:3] if key in one) for one in flat]
    if len(set(labels)) < len(runs) or not all(labels):
        labels = [str(run.folder) for run in runs]
    return [f"{run.model} ({text})" for run, text in zip(runs, labels, strict=True)]


def _inputs(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    found = manifest.get("inputs")
    if isinstance(found, Mapping):
        return found
    names = ("scores", "source_revision", "model_revision", "dtype", "max_length")
    return {name: manifest[name] for name in names if name in manifest}


def _short(key: str) -> str:
    return {"model_revision": "revision", "max_length": "at most"}.get(key, key.rpartition(".")[2])

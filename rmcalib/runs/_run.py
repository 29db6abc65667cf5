"""One scoring run: which prompts are scored, their parts, and the final scores.

`<output>/<org>__<name>/<benchmark>/` contains `run.json` from the start, `parts/part-00007.parquet` while
scoring, and `scores.parquet` at the end (`RunFolder`). Every file contains the hash of its run, so that files
of different runs are never mixed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object, utc
from rmcalib._util.hub import folder_name
from rmcalib._util.storage import StorageError, as_path, is_remote
from rmcalib._util.terminal import count
from rmcalib.benchmarks import Benchmark
from rmcalib.judges import ScoredItem, answers_summary, identify
from rmcalib.runs._folder import Layout, RunFolder
from rmcalib.runs._lock import RunError, locked
from rmcalib.runs._manifest import model_folder, package_versions
from rmcalib.scores import Scores

__all__ = [
    "SCORING",
    "Run",
    "finished_manifest",
    "finished_scores",
    "read_run",
    "remove_leftover_parts",
    "run_folder",
]

SCORING = Layout(("scores.parquet", "metrics.json"), "part-*.parquet", "scoring")
"""The files of a scoring run."""

_DAMAGED = "restore it from a copy, or give --fresh to score again"

Rows = dict[str, list[dict[str, Any]]]  # by prompt


def run_folder(output: str | Path, model: str, benchmark: str) -> Path:
    """Return the folder of a run, `<output>/<org>__<name>/<benchmark>`. It is always inside `output`.

    Parameters
    ----------
    output : str | Path
        Path or URL of the folder of all runs.
    model : str
        Name of the judge: a Hub id, a path, or any other name.
    benchmark : str
        Name of the benchmark.

    Returns
    -------
    Path
        For a URL it is a `UPath`.

    Examples
    --------
    >>> run_folder("runs", "org/rm", "allenai/reward-bench-2").as_posix()
    'runs/org__rm/allenai__reward-bench-2'
    """
    return as_path(output) / model_folder(model) / folder_name(benchmark)


def finished_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of the finished run in `folder`; empty if there is none.

    >>> finished_manifest(Path("nowhere"))
    {}
    """
    manifest = read_object(folder / "run.json")
    return manifest if manifest.get("status") == "finished" else {}


def finished_scores(folder: Path, asked: str | None) -> Scores | None:
    """Return the scores of a finished run, if they answer a request.

    All commands use this to find out whether a run is done. It needs neither the weights nor the texts.

    Parameters
    ----------
    folder : Path
        The folder of the run.
    asked : str, optional
        The hash of the request (`asked_for`).

    Returns
    -------
    Scores or None
        None if the run is not finished, or answers another request.

    Examples
    --------
    >>> finished_scores(Path("nowhere"), "e3b0c442") is None
    True
    """
    manifest = finished_manifest(folder)
    if asked is None or manifest.get("asked") != asked:
        return None
    with locked(folder):
        scores = read_run(folder)
    return scores if scores is not None and _same_sources(manifest) else None


def read_run(folder: Path) -> Scores | None:
    """Read the scores of a run folder and check them against its manifest; None if it has no scores yet.

    Damaged scores are an error: to score again what is lost is the user's decision.
    """
    manifest = read_object(folder / "run.json")
    scores = _read_part(folder / "scores.parquet")
    if scores is None:
        return None
    # Object storage has no locks: two processes may finish the same run there, each with its own timings.
    compare = (lambda one: one.get("hash")) if is_remote(folder) else dict
    if manifest.get("status") == "finished" and compare(scores.manifest) != compare(manifest):
        raise RunError(f"{folder}: damaged: run.json and scores.parquet do not belong together; {_DAMAGED}")
    return scores


def _read_part(file: Path) -> Scores | None:
    try:
        return Scores.from_parquet(file)
    except StorageError:
        raise
    except ValueError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise RunError(f"{error}; {_DAMAGED}") from error


def remove_leftover_parts(folder: Path) -> None:
    """Remove the parts of a finished run that was killed before it could remove them.

    Parameters
    ----------
    folder : Path
        The folder of the run.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     part = Path(folder, "parts", "part-00000.parquet")
    ...     part.parent.mkdir()
    ...     part.touch()
    ...     remove_leftover_parts(Path(folder))
    ...     part.parent.exists()
    False
    """
    files = RunFolder(folder, {}, SCORING)
    files.remove_parts(files.part_files())


def _same_sources(manifest: Mapping[str, Any]) -> bool:
    """Return whether an adapter's base model and code from other repositories are unchanged since the run.

    Only the files of the model name them, so `asked` does not include them.
    """
    sources = manifest.get("inputs", {}).get("model_sources", {})
    for kind in ("base", "code"):
        name, _, commit = sources.get(kind, "").rpartition("@")
        if name and identify(name, sources.get(f"{kind}_asked")) != commit:
            return False
    return True


class Run:
    """An open scoring run; use it as a context manager, so that its lock is released.

    Parameters
    ----------
    folder : Path
        The folder of the run (`run_folder`).
    benchmark : Benchmark
        The prompts; the final file has their order.
    inputs : Mapping[str, Any]
        Everything that changes a score (`score_inputs`).
    about : Mapping[str, Any], optional
        Other entries of the manifest.
    fresh : bool
        Remove the files of an earlier run, even if its inputs differ.
    rank : int
        Number of this process, if several share the run. Rank 0 takes the lock and must open the run before
        the others. Every rank writes its own parts. Rank 0 calls `finish` when all are done.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from rmcalib.benchmarks import Benchmark, Item
    >>> from rmcalib.judges import ScoredItem
    >>> bench = Benchmark("b", "1", (Item("a", "Math", "2+2?", ("4", "5"), 1),))
    >>> with TemporaryDirectory() as folder:
    ...     with Run(Path(folder), bench, {"model": "m"}) as run:
    ...         run.add([ScoredItem("a", (1.0, -1.0), n_tokens=(5, 5), truncated=(False, False))])
    ...         scores = run.finish()
    >>> scores.reward.tolist(), scores.manifest["counts"]["responses"]
    ([1.0, -1.0], 2)
    """

    def __init__(
        self,
        folder: Path,
        benchmark: Benchmark,
        inputs: Mapping[str, Any],
        *,
        about: Mapping[str, Any] | None = None,
        fresh: bool = False,
        rank: int = 0,
    ) -> None:
        """Store the arguments; nothing is read or written before the run is entered."""
        kept = {"versions": package_versions(), "benchmark_format": benchmark.format}
        described = {**kept, **(about or {})}
        self.files = RunFolder(folder, inputs, SCORING, about=described, fresh=fresh, rank=rank)
        self.benchmark = benchmark
        self.done: set[str] = set()
        self._items = {item.id: item for item in benchmark.items}
        self._started = time.time()

    @property
    def folder(self) -> Path:
        """Folder of the run."""
        return self.files.folder

    @property
    def parts(self) -> Path:
        """Folder of the finished parts."""
        return self.files.parts

    @property
    def remaining(self) -> list[Any]:
        """Items of the benchmark that are not scored yet, in its order."""
        return [item for item in self.benchmark.items if item.id not in self.done]

    def __enter__(self) -> Run:
        """Take the lock, check that existing files belong to the same inputs, and read what is done."""
        self.files.__enter__()
        try:
            self.done = set(self._read_parts()[0])
            if self.files.before is not None:
                self._note_versions(self.files.before)
        except BaseException:
            self.files.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.files.__exit__()

    def add(self, scored: Iterable[ScoredItem]) -> None:
        """Write scored prompts as a new part. After this call they survive a crash."""
        scored = [item for item in scored if item.id not in self.done]
        if not scored:
            return
        rows = [row for item in scored for row in self._rows(item)]
        part = Scores.from_rows(rows, {"hash": self.files.hash}, source="scoring")
        part.to_parquet(self.files.new_part(".parquet"))
        self.done.update(item.id for item in scored)

    def finish(self, **about: Any) -> Scores:
        """Join the parts of all processes into `scores.parquet`, in the benchmark's order."""
        rows, parts = self._read_parts()
        missing = [item.id for item in self.benchmark.items if item.id not in rows]
        if missing:
            raise RunError(
                f"{self.folder}: {count(len(missing), 'prompt')} {'is' if len(missing) == 1 else 'are'} "
                f"not scored yet (the first: {missing[0]!r})"
            )
        ordered = [row for item in self.benchmark.items for row in rows[item.id]]
        counts = {
            "items": len(self.benchmark),
            "responses": len(ordered),
            "truncated": sum(bool(row["truncated"]) for row in ordered),
            "empty": self.benchmark.n_empty,
            "tokens": sum(max(0, int(row["n_tokens"])) for row in ordered),  # negative: unknown
        }
        timings = {"started": utc(self._started), "finished": utc(time.time())}
        self.files.about |= {**about, "counts": counts, "timings": timings}
        scores = Scores.from_rows(ordered, source=str(self.folder))
        answers = answers_summary(scores)
        self.files.about |= {"judge_answers": answers} if answers else {}
        scores = replace(scores, manifest=self.files.manifest("finished"))
        signed = scores.to_parquet(self.folder / "scores.parquet")
        self.files.finish(scores_sha256=signed["scores_sha256"])
        self.files.remove_parts(parts)  # only now: everything is in scores.parquet
        return replace(scores, manifest=signed)

    def _rows(self, scored: ScoredItem) -> Iterable[dict[str, Any]]:
        item = self._items[scored.id]
        if not len(item.responses) == len(scored.rewards) == len(scored.n_tokens) == len(scored.truncated):
            raise ValueError(
                f"item {item.id!r}: {count(len(scored.rewards), 'reward')} for "
                f"{count(len(item.responses), 'response')}"
            )
        for i, reward in enumerate(scored.rewards):
            voted = {} if item.votes is None else {"votes": item.votes[i], "ties": item.ties}
            yield {
                "item_id": item.id,
                "category": item.category,
                "response": i,
                "is_correct": i < item.n_correct,
                "reward": reward,
                "n_tokens": scored.n_tokens[i],
                "truncated": scored.truncated[i],
                **voted,
                **{f"judge_{name}": values[i] for name, values in scored.details.items()},
            }

    def _note_versions(self, manifest: Mapping[str, Any]) -> None:
        """Record the package versions of the existing parts, if they differ from the current ones."""
        known = [*manifest.get("versions_before", []), manifest.get("versions")] if self.done else []
        now = self.files.about["versions"]
        before = [one for i, one in enumerate(known) if one and one != now and one not in known[:i]]
        if before:
            self.files.about["versions_before"] = before
        if self.remaining and now != manifest.get("versions"):
            self.files.write_manifest()

    def _read_parts(self) -> tuple[Rows, list[Path]]:
        """Read everything finished so far: rows by item, and the files of the parts.

        `scores.parquet` is read last. Another process that finishes the same run writes it before it removes
        the parts, so it contains the rows of a part that has just been removed.
        """
        rows: Rows = {}
        read = []
        for file in (*self.files.part_files(), self.folder / "scores.parquet"):
            part = read_run(self.folder) if file.name == "scores.parquet" else _read_part(file)
            if part is None:
                continue
            if part.manifest.get("hash") != self.files.hash:
                warnings.warn(f"{file}: belongs to another run; its prompts are scored again", stacklevel=3)
                continue
            read.append(file)
            columns = {name: array.tolist() for name, array in part.columns().items()}
            for i, identifier in enumerate(columns["item_id"]):
                if identifier in self._items and columns["response"][i] == 0:
                    rows[identifier] = []
                if identifier in self._items:
                    rows[identifier].append({name: values[i] for name, values in columns.items()})
        return rows, [file for file in read if file.parent.name == "parts"]

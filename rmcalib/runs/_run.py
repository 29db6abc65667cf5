"""One scoring run: the journal of scored prompts, and the table of scores at the end.

`<output>/<org>__<name>/<benchmark>/` has `run.json` from the start. While scoring, `scored-0.jsonl` gets one
line per prompt, and a blank line after each chunk of prompts that were scored together. At the end,
`scores.parquet` is written once and the journal is removed. A line has a check of its content. A half-written
chunk at the end is ignored, because the last bits of a reward can depend on the whole chunk. Any other damage
is an error.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import platform
import time
import uuid
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.files import kind_on_disk, read_object, utc, write_bytes
from rmcalib._util.hub import folder_name
from rmcalib._util.storage import StorageError, as_path, is_remote, read_file
from rmcalib._util.terminal import count
from rmcalib.judges import ScoredItem
from rmcalib.judges._files import identify
from rmcalib.judges._readings import answers_summary
from rmcalib.runs._folder import RunError, RunFolder
from rmcalib.scores import Scores

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark, Item


_TABLE, _JOURNAL = "scores.parquet", "scored-*.jsonl"
_FILES = (_TABLE, "metrics.json", _JOURNAL)
_REMEDY = "restore it from a copy, or give --fresh to score again"
_PACKAGES = (
    "torch",
    "transformers",
    "tokenizers",
    "datasets",
    "huggingface_hub",
    "accelerate",
    "peft",
    "numpy",
)
_AT_ONCE = 50_000  # values that are hashed at a time


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
        the others. Every rank writes its own journal. Rank 0 calls `finish` when all are done.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from rmcalib.benchmarks import Benchmark, Item
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
        described = {"versions": package_versions(), "benchmark_format": benchmark.format, **(about or {})}
        self.files = RunFolder(folder, inputs, _FILES, about=described, fresh=fresh, rank=rank)
        self.folder, self.benchmark = self.files.folder, benchmark
        self._items = {item.id: item for item in benchmark.items}
        self._scored: dict[str, ScoredItem] = {}
        self._finished: Scores | None = None
        self._started = time.time()
        self._parts = 0
        self._writer = uuid.uuid4().hex[:8]

    @property
    def remaining(self) -> list[Item]:
        """Prompts that are not scored yet, in the order of the benchmark."""
        if self._finished is not None:
            return []
        return [item for item in self.benchmark.items if item.id not in self._scored]

    def __enter__(self) -> Run:
        """Take the lock, check that existing files belong to the same inputs, and read what is done."""
        self.files.__enter__()
        try:
            manifest = read_object(self.folder / "run.json")
            if manifest.get("status") == "finished" and manifest.get("hash") == self.files.hash:
                self._finished = read_run(self.folder)
            if self._finished is not None:
                return self
            self._scored = self._read_journals()
            self._note_versions(manifest)
        except BaseException:
            self.files.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Release the lock."""
        self.files.__exit__()

    def add(self, scored: Iterable[ScoredItem]) -> None:
        """Append a chunk of scored prompts to the journal. After this call they survive a crash."""
        scored = list(scored)
        if not scored:
            return
        for one in scored:
            n, item = len(one.rewards), self._items[one.id]
            if not len(item.responses) == n == len(one.n_tokens) == len(one.truncated):
                raise ValueError(
                    f"item {item.id!r}: {count(n, 'reward')} for {count(len(item.responses), 'response')}"
                )
        lines = "".join((*(_line(self.files.hash, one) for one in scored), "\n")).encode()
        if is_remote(self.folder):  # objects cannot be appended to, and another process may write here, too
            write_bytes(self.folder / f"scored-{self._writer}-{self._parts:05d}.jsonl", lines)
        else:
            _append(self.folder / f"scored-{self.files.rank}.jsonl", lines, trim=not self._parts)
        self._parts += 1
        self._scored.update((one.id, one) for one in scored)

    def finish(self, **about: Any) -> Scores:
        """Write the scores of all processes to `scores.parquet`, in the benchmark's order."""
        if self._finished is not None:
            return self._finished
        self._scored |= self._read_journals()
        missing = [item.id for item in self.benchmark.items if item.id not in self._scored]
        if missing:
            raise RunError(
                f"{self.folder}: {count(len(missing), 'prompt')} {'is' if len(missing) == 1 else 'are'} "
                f"not scored yet (the first: {missing[0]!r})"
            )
        rows = [row for item in self.benchmark.items for row in _rows(item, self._scored[item.id])]
        scores = Scores.from_rows(rows, source=str(self.folder))
        answers = answers_summary(scores)
        self.files.about |= {
            **about,
            "counts": {
                "items": len(self.benchmark),
                "responses": len(scores),
                "truncated": int(scores.truncated.sum()),
                "empty": self.benchmark.n_empty,
                "tokens": int(scores.n_tokens[scores.n_tokens > 0].sum()),  # negative: unknown
            },
            "timings": {"started": utc(self._started), "finished": utc(time.time())},
            **({"judge_answers": answers} if answers else {}),
        }
        self._finished = _write(self.files, scores)
        _remove_journals(self.folder)  # only now: everything is in scores.parquet
        return self._finished

    def _note_versions(self, manifest: Mapping[str, Any]) -> None:
        """Record the package versions that made the existing scores, if they differ from the current ones."""
        known = [*manifest.get("versions_before", []), manifest.get("versions")] if self._scored else []
        now = self.files.about["versions"]
        before = [one for i, one in enumerate(known) if one and one != now and one not in known[:i]]
        if before:
            self.files.about["versions_before"] = before
        if self.files.rank == 0 and now != manifest.get("versions"):
            self.files.write_manifest()

    def _read_journals(self) -> dict[str, ScoredItem]:
        found: dict[str, ScoredItem] = {}
        for file in self.files.find(_JOURNAL):
            records = _read_journal(file)
            if any(run != self.files.hash for run, _ in records):
                warnings.warn(f"{file}: belongs to another run, and is ignored", stacklevel=3)
                continue
            found |= {one.id: one for _, one in records if one.id in self._items}
        return found


def run_folder(output: str | Path, model: str, benchmark: str) -> Path:
    """Return the folder of a run, `<output>/<org>__<name>/<benchmark>`. It is always inside `output`.

    >>> run_folder("runs", "org/rm", "allenai/reward-bench-2").as_posix()
    'runs/org__rm/allenai__reward-bench-2'
    """
    return as_path(output) / model_folder(model) / folder_name(benchmark)


def model_folder(name: str) -> str:
    """Return the name of the folder of a judge; a local model is named by its full path."""
    return folder_name(str(Path(name).resolve()) if kind_on_disk(name) == "folder" else name)


def scored_before(folder: Path) -> set[str]:
    """Return the ids of the prompts in the journals of a run that is not open."""
    files = RunFolder(folder, {}).find(_JOURNAL)
    return {one.id for file in files for _, one in _read_journal(file)}


def read_run(folder: Path) -> Scores | None:
    """Read the scores of a run folder and check them against its manifest; None if it has no scores yet.

    Damaged scores are an error: whether to score again what is lost is the user's decision.
    """
    manifest = read_object(folder / "run.json")
    try:
        scores = Scores.from_parquet(folder / _TABLE)
    except StorageError:
        raise
    except ValueError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise RunError(f"{error}; {_REMEDY}") from error
    # Object storage has no locks: two processes may finish the same run there, each with its own timings.
    compared = (lambda one: one.get("hash")) if is_remote(folder) else dict
    if manifest.get("status") == "finished" and compared(scores.manifest) != compared(manifest):
        raise RunError(f"{folder}: damaged: run.json and {_TABLE} do not belong together; {_REMEDY}")
    return scores


def is_finished(folder: Path, asked: str | None) -> bool:
    """Return whether the manifest of a run says that it is finished and answers a request (`asked_for`)."""
    manifest = read_object(folder / "run.json")
    return asked is not None and manifest.get("status") == "finished" and manifest.get("asked") == asked


def finished_scores(folder: Path, asked: str | None) -> Scores | None:
    """Return the scores of a finished run, if they answer a request (`asked_for`); otherwise None.

    All commands use this to find out whether a run is done. It needs neither the weights nor the texts.

    >>> finished_scores(Path("nowhere"), "e3b0c442") is None
    True
    """
    if not is_finished(folder, asked):
        return None
    scores = read_run(folder)
    if scores is None or not _same_sources(scores.manifest):
        return None
    _remove_journals(folder)
    return scores


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


def is_own_run(folder: Path, scores: Scores) -> bool:
    """Return whether scores were read from the finished run of a judge in this folder."""
    manifest, digest = read_object(folder / "run.json"), content_hash(scores)
    if manifest.get("status") != "finished" or not manifest["hash"] == scores.manifest.get("hash") != digest:
        return False
    there = read_run(folder)
    return there is not None and content_hash(there) == digest


def keep_scores(
    folder: Path,
    scores: Scores,
    *,
    asked: str | None = None,
    source: Path | None = None,
    fresh: bool = False,
) -> None:
    """Write scores that were made elsewhere to a run folder, with a manifest.

    The hash of the run is that of the scores themselves, so they are never mistaken for a run of a judge.
    Writing a run's own scores to its folder changes nothing. `asked` is the hash of a request by which
    `finished_scores` finds them again. Another run in the folder is replaced only if `fresh` is set, or if it
    has earlier scores of the same file `source`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     keep_scores(Path(folder), Scores.from_arrays([[1.0, 0.0]]))
    ...     sorted(path.name for path in Path(folder).iterdir() if path.name != ".lock")
    ['run.json', 'scores.parquet']
    """
    digest, before = content_hash(scores), read_object(folder / "run.json")
    if is_own_run(folder, scores):
        return
    model, here = before.get("model"), scores.manifest.get("model")
    if model and here and model != here and not fresh:
        raise RunError(
            f"{folder} holds the scores of {model!r}, and {here!r} has the same folder: choose another "
            "--output, or --fresh to replace them"
        )
    about = {key: value for key, value in scores.manifest.items() if key not in ("asked", "scores_sha256")}
    if asked is None and before.get("hash") == digest:
        asked = before.get("asked")
    about |= {"asked": asked} if asked else {}
    if source is not None:
        about["source_file"] = str(source.resolve())
        fresh = fresh or about["source_file"] == before.get("source_file")
    with RunFolder(folder, {}, _FILES, about=about, fresh=fresh, digest=digest) as run:
        _write(run, scores)


def content_hash(scores: Scores) -> str:
    """Return a SHA-256 of the columns of scores, without their manifest.

    It equals `inputs_hash` of the columns as lists, but is computed in pieces to save memory.

    >>> scores = Scores.from_arrays([[1.0, 0.0]])
    >>> content_hash(scores) == content_hash(Scores.from_arrays([[1.0, 0.0]], manifest={"model": "m"}))
    True
    """
    digest = hashlib.sha256()
    columns = scores.columns()
    for i, name in enumerate(sorted(columns)):
        digest.update(f"{', ' if i else '{'}{json.dumps(name)}: [".encode())
        for start in range(0, len(scores), _AT_ONCE):
            values = json.dumps(columns[name][start : start + _AT_ONCE].tolist())[1:-1]
            digest.update(f"{', ' if start else ''}{values}".encode())
        digest.update(b"]")
    digest.update(b"}")
    return digest.hexdigest()


def package_versions() -> dict[str, str]:
    """Return the versions of Python, rmcalib and the packages that scoring uses.

    >>> "numpy" in package_versions()
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    versions = {"rmcalib": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def _write(run: RunFolder, scores: Scores) -> Scores:
    """Write the table and then the manifest of a finished run, with the digest of the table."""
    finished = dataclasses.replace(scores, manifest=run.manifest("finished"))
    manifest = finished.to_parquet(run.folder / _TABLE)
    run.finish(scores_sha256=manifest["scores_sha256"])
    return dataclasses.replace(finished, manifest=manifest)


def _rows(item: Item, scored: ScoredItem) -> Iterable[dict[str, Any]]:
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


def _remove_journals(folder: Path) -> None:
    """Remove the journals of a finished run, also if it was killed before it could do so."""
    for file in RunFolder(folder, {}).find(_JOURNAL):
        file.unlink(missing_ok=True)


def _line(run: str, scored: ScoredItem) -> str:
    """Return the line of a prompt in the journal."""
    record = {
        "run": run,
        "id": scored.id,
        "rewards": [float(reward) for reward in scored.rewards],
        "n_tokens": [int(n) for n in scored.n_tokens],
        "truncated": [bool(cut) for cut in scored.truncated],
        "details": {name: [float(value) for value in values] for name, values in scored.details.items()},
    }
    text = json.dumps(record)
    return f'{text[:-1]}, "check": "{_check(text)}"}}\n'


def _check(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read_journal(file: Path) -> list[tuple[str, ScoredItem]]:
    """Return the records of a journal, each with the hash of its run; none if the file was just removed."""
    try:
        content = read_file(file)
    except FileNotFoundError:
        return []
    found = []
    for number, line in enumerate(_whole_chunks(content).split(b"\n"), 1):
        if not line:
            continue
        try:
            record = json.loads(line)
            check = record.pop("check")
            if check != _check(json.dumps(record)):
                raise ValueError("the check does not match")
            run = record.pop("run")
            values = {key: tuple(value) for key, value in record.items() if isinstance(value, list)}
            found.append((run, ScoredItem(**{**record, **values})))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{file}, line {number}: damaged; {_REMEDY}") from error
    return found


def _whole_chunks(content: bytes) -> bytes:
    """Return the content of a journal without what was being written when the process was killed."""
    end = content.rfind(b"\n\n")
    return content[: end + 2] if end >= 0 else b""


def _append(path: Path, lines: bytes, *, trim: bool) -> None:
    """Append lines to a file; with `trim`, first remove the incomplete chunk that a killed process left."""
    try:
        if trim and path.exists():
            os.truncate(path, len(_whole_chunks(path.read_bytes())))
        with path.open("ab") as file:
            file.write(lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise ValueError(f"{path}: cannot be written: {error.strerror or error}") from error

"""The folder of one scoring run: parts as they are finished, a lock, resuming, the final files.

`<output>/<org>__<name>/<benchmark>/` holds `run.json` (the manifest) from the start,
`parts/part-00007.parquet` while scoring, and `scores.parquet` at the end. Every file is written under a
temporary name, flushed and renamed, so that a process killed at any moment leaves whole files only; what it
had finished is not scored again. Every file carries the run's hash: what another run has left is never taken
for this one's.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.files import write_json
from rmcalib._util.hub import folder_name
from rmcalib._util.nested import flattened
from rmcalib.benchmarks import Benchmark
from rmcalib.judges import ScoredItem, identify
from rmcalib.runs._lock import RunError, locked, read_manifest, utc
from rmcalib.runs._manifest import inputs_hash, model_folder, package_versions
from rmcalib.scores import COLUMNS, Scores

__all__ = ["Run", "RunError", "finished_manifest", "finished_scores", "run_folder"]


def run_folder(output: str | Path, model: str, benchmark: str) -> Path:
    """Return `<output>/<org>__<name>/<benchmark>`, which never leaves `output`.

    >>> run_folder("runs", "org/rm", "allenai/reward-bench-2").as_posix()
    'runs/org__rm/allenai__reward-bench-2'
    """
    return Path(output) / model_folder(model) / folder_name(benchmark)


def finished_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of the finished run in `folder`; empty if there is none.

    >>> finished_manifest(Path("nowhere"))
    {}
    """
    manifest = read_manifest(folder / "run.json") or {}
    return manifest if manifest.get("status") == "finished" else {}


def finished_scores(folder: Path, asked: str | None) -> Scores | None:
    """Return the scores in `folder` if they are finished and are what is `asked` for (`asked_for`).

    This is the one way to know that a run is done, for all commands. Neither weights nor texts are needed.

    >>> finished_scores(Path("nowhere"), "e3b0c442") is None
    True
    """
    manifest, file = finished_manifest(folder), folder / "scores.parquet"
    if asked is None or manifest.get("asked") != asked or not file.is_file():
        return None
    with locked(folder):
        try:
            scores = Scores.from_parquet(file)
        except ValueError:
            return None
    return scores if scores.manifest.get("hash") == manifest.get("hash") and _same_sources(manifest) else None


def _same_sources(manifest: Mapping[str, Any]) -> bool:
    """Tell whether an adapter's base model, and code from elsewhere, are still those of the run.

    They are named in the model's files only, so that what is asked for does not say.
    """
    sources = manifest.get("inputs", {}).get("model_sources", {})
    for kind in ("base", "code"):
        name, _, commit = sources.get(kind, "").rpartition("@")
        if name and identify(name, sources.get(f"{kind}_asked")) != commit:
            return False
    return True


class Run:
    """An open run folder; use it as a context manager, so that its lock is given back.

    Parameters
    ----------
    folder : where the run lives (`run_folder`).
    benchmark : what is scored; the final file has its order.
    inputs : everything that changes a score (`score_inputs`).
    about : what else the manifest should say (`describe`, the seed, the `versions` where others score, ...).
    fresh : throw away what an earlier run left, whatever its inputs.
    rank : with several processes, this one's number. Rank 0 takes the lock and must open the run before the
        others do; every rank writes parts of its own, and rank 0 calls `finish` when all are done.

    >>> from tempfile import TemporaryDirectory
    >>> from types import SimpleNamespace
    >>> from rmcalib.benchmarks import Benchmark, Item
    >>> bench = Benchmark("b", "1", (Item("a", "Math", "2+2?", ("4", "5"), 1),))
    >>> with TemporaryDirectory() as folder:
    ...     with Run(Path(folder), bench, {"model": "m"}) as run:
    ...         cut = (False, False)
    ...         run.add([SimpleNamespace(id="a", rewards=(1.0, -1.0), n_tokens=(5, 5), truncated=cut)])
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
        """Remember the run; nothing is touched before it is entered."""
        self.folder, self.benchmark, self.rank, self.fresh = folder, benchmark, rank, fresh
        # Through JSON and back, so that what is compared later is what is stored.
        self.inputs: dict[str, Any] = json.loads(json.dumps(dict(inputs)))
        self.hash = inputs_hash(self.inputs)
        self.about = {"versions": package_versions(), **(about or {})}
        self.done: set[str] = set()
        self._items = {item.id: item for item in benchmark.items}
        self._next_part = 0
        self._started = time.time()
        self._lock = contextlib.ExitStack()
        self._versions_before: list[dict[str, str]] = []

    @property
    def parts(self) -> Path:
        """The folder of the finished parts."""
        return self.folder / "parts"

    @property
    def remaining(self) -> list[Any]:
        """The benchmark's items that are not scored yet, in its order."""
        return [item for item in self.benchmark.items if item.id not in self.done]

    def __enter__(self) -> Run:
        """Take the lock, check that what is there belongs to the same inputs, and see what is done."""
        with contextlib.ExitStack() as opened:
            if self.rank == 0:
                opened.enter_context(locked(self.folder))
            self._open()
            self._lock = opened.pop_all()  # kept: nothing went wrong
        return self

    def __exit__(self, *_: object) -> None:
        """Give the lock back."""
        self._lock.close()

    def add(self, scored: Iterable[ScoredItem]) -> None:
        """Write finished prompts as one more part; after this call they survive anything."""
        scored = [item for item in scored if item.id not in self.done]
        if not scored:
            return
        rows = [row for item in scored for row in self._rows(item)]
        part = Scores.from_rows(rows, {"hash": self.hash}, source="scoring")
        mark = "" if self.rank == 0 else f"r{self.rank}-"
        part.to_parquet(self.parts / f"part-{mark}{self._next_part:05d}.parquet")
        self._next_part += 1
        self.done.update(item.id for item in scored)

    def finish(self, **about: Any) -> Scores:
        """Join the parts of all ranks into `scores.parquet` in the benchmark's order; end the manifest."""
        rows = self._read_parts()
        missing = [item.id for item in self.benchmark.items if item.id not in rows]
        if missing:
            raise RunError(
                f"{self.folder}: {len(missing)} prompts are not scored yet (the first: {missing[0]!r})"
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
        self.about |= about
        manifest = self._manifest(status="finished", counts=counts, timings=timings)
        scores = Scores.from_rows(ordered, manifest, source=str(self.folder))
        scores.to_parquet(self.folder / "scores.parquet")
        write_json(self.folder / "run.json", manifest)
        shutil.rmtree(self.parts, ignore_errors=True)  # only now: everything is in scores.parquet
        return scores

    def _manifest(self, **more: Any) -> dict[str, Any]:
        recipe = {"hash": self.hash, "inputs": self.inputs}
        before = [one for one in self._versions_before if one != self.about["versions"]]
        earlier = {"versions_before": before} if before else {}
        return {**self.inputs, **self.about, **earlier, **more, **recipe}

    def _rows(self, scored: ScoredItem) -> Iterable[dict[str, Any]]:
        item = self._items[scored.id]
        if not len(item.responses) == len(scored.rewards) == len(scored.n_tokens) == len(scored.truncated):
            raise ValueError(
                f"item {item.id!r}: {len(scored.rewards)} rewards for {len(item.responses)} responses"
            )
        for i, reward in enumerate(scored.rewards):
            yield {
                "item_id": item.id,
                "category": item.category,
                "response": i,
                "is_correct": i < item.n_correct,
                "reward": reward,
                "n_tokens": scored.n_tokens[i],
                "truncated": scored.truncated[i],
            }

    def _open(self) -> None:
        manifest: dict[str, Any] | None = None
        if self.rank == 0:
            manifest = read_manifest(self.folder / "run.json")
            used = manifest is not None or (self.folder / "scores.parquet").exists() or self.parts.exists()
            same = manifest is not None and manifest.get("hash") == self.hash
            if used and not same and not self.fresh:
                raise RunError(self._difference(manifest or {}))
            if self.fresh or not same:
                manifest = None
                for of_another in ("scores.parquet", "metrics.json"):
                    (self.folder / of_another).unlink(missing_ok=True)
                shutil.rmtree(self.parts, ignore_errors=True)
                write_json(self.folder / "run.json", self._manifest(status="scoring"))
            for left in self.folder.rglob(".*.tmp"):
                left.unlink(missing_ok=True)
        self.done = set(self._read_parts())
        if manifest is not None:
            self._note_versions(manifest)

    def _note_versions(self, manifest: Mapping[str, Any]) -> None:
        """Remember the packages that made what is there; a run may go on with others, and says so."""
        known = [*manifest.get("versions_before", []), manifest.get("versions")] if self.done else []
        self._versions_before = [one for i, one in enumerate(known) if one and one not in known[:i]]
        now = self._manifest(status="scoring")
        if self.remaining and now["versions"] != manifest.get("versions"):
            write_json(self.folder / "run.json", now)

    def _difference(self, manifest: Mapping[str, Any]) -> str:
        now, then = flattened(self.inputs), flattened(manifest.get("inputs", {}))
        changed = [
            f"{key}: {then.get(key, 'nothing')} there, {now.get(key, 'nothing')} now"
            for key in sorted({*now, *then})
            if now.get(key) != then.get(key)
            and not (key == "items_sha256" and now.get("n_items") != then.get("n_items"))  # which says more
        ]
        if not manifest.get("hash"):
            changed = ["without a readable manifest, run.json"]
        elif not then or not changed:
            changed = ["scores that were made elsewhere"]
        told = "; ".join(changed)
        return f"{self.folder} holds another run ({told}): choose another --output, or --fresh to replace it"

    def _read_parts(self) -> dict[str, list[dict[str, Any]]]:
        """Read everything finished so far: rows by item."""
        files = sorted(self.parts.glob("part-*.parquet"))
        mark = "part-" if self.rank == 0 else f"part-r{self.rank}-"
        numbers = [file.stem.removeprefix(mark) for file in files if file.stem.startswith(mark)]
        self._next_part = 1 + max((int(number) for number in numbers if number.isdigit()), default=-1)
        if (self.folder / "scores.parquet").is_file():
            files.append(self.folder / "scores.parquet")
        rows: dict[str, list[dict[str, Any]]] = {}
        for file in files:
            try:
                part = Scores.from_parquet(file)
            except ValueError as error:
                warnings.warn(f"{error}; its prompts are scored again", stacklevel=3)
                file.unlink(missing_ok=True)
                continue
            if part.manifest.get("hash") != self.hash:
                warnings.warn(f"{file}: not of this run; its prompts are scored again", stacklevel=3)
                continue
            columns = {name: getattr(part, name).tolist() for name in COLUMNS}
            for i, identifier in enumerate(columns["item_id"]):
                if identifier in self._items and columns["response"][i] == 0:
                    rows[identifier] = []
                if identifier in self._items:
                    rows[identifier].append({name: values[i] for name, values in columns.items()})
        return rows

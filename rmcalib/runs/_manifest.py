"""The inputs of a run: everything that changes a score, and its hash."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.files import kind_on_disk
from rmcalib._util.hub import folder_name

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark, Item
    from rmcalib.judges import Judge
    from rmcalib.scores import Scores

_CHUNK = 50_000  # values that are hashed at a time
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


def score_inputs(
    judge: Judge, benchmark: Benchmark, identity: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return everything that changes a score; runs with equal inputs can share their parts.

    ``identity`` is the judge's, if it was loaded elsewhere.
    """
    return {
        **(judge.identity() if identity is None else identity),
        "model": model_folder(judge.name),
        "benchmark": benchmark.name,
        "benchmark_revision": benchmark.revision,
        "n_items": len(benchmark),
        "items_sha256": _items_hash(benchmark),
    }


def asked_for(judge: Judge, benchmark: Benchmark) -> str | None:
    """Return a hash of what was asked for; None if the judge is known only after loading.

    It is in the manifest of a run (`asked`). Any command or engine that asks for the same again finds the run
    finished (`finished_scores`), and loads no weights.
    """
    known: Callable[[], dict[str, Any] | None] = getattr(judge, "asked", None) or judge.identity
    asked = known()
    if asked is None:
        return None
    data = [benchmark.name, benchmark.revision, _items_hash(benchmark)]
    return inputs_hash({**asked, "model": model_folder(judge.name), "benchmark": data})


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """Return a SHA-256 of the inputs that does not depend on their order.

    >>> inputs_hash({"a": 1, "b": 2}) == inputs_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def content_hash(scores: Scores) -> str:
    """Return a SHA-256 of the scores themselves, whatever their manifest says.

    It is `inputs_hash` of the columns as lists, computed in chunks: as one text they need much memory.
    """
    digest = hashlib.sha256()
    columns = scores.columns()
    for i, name in enumerate(sorted(columns)):
        digest.update(f"{', ' if i else '{'}{json.dumps(name)}: [".encode())
        for start in range(0, len(scores), _CHUNK):
            values = json.dumps(columns[name][start : start + _CHUNK].tolist())[1:-1]
            digest.update(f"{', ' if start else ''}{values}".encode())
        digest.update(b"]")
    digest.update(b"}")
    return digest.hexdigest()


def _items_hash(benchmark: Benchmark) -> str:
    items = json.dumps([_item_parts(item) for item in benchmark.items])
    return hashlib.sha256(items.encode("utf-8", "surrogatepass")).hexdigest()


def _item_parts(item: Item) -> tuple[Any, ...]:
    """List what scores depend on, or repeat; votes only where there are some."""
    parts = (item.id, item.category, item.prompt, item.responses, item.n_correct)
    return parts if item.votes is None else (*parts, item.votes, item.ties)


def package_versions() -> dict[str, str]:
    """Return the versions of the packages that take part in scoring."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"rmcalib": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def model_folder(name: str) -> str:
    """Return the name of a judge's folder; a local model is named by its full path."""
    return folder_name(str(Path(name).resolve()) if kind_on_disk(name) == "folder" else name)

"""The inputs of a run (everything that changes a score) and their hash."""

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
    """Return everything that changes a score. Runs with equal inputs can share their parts.

    Parameters
    ----------
    judge : Judge
        The judge.
    benchmark : Benchmark
        The prompts.
    identity : Mapping[str, Any], optional
        Result of `judge.identity()`, if another process has loaded the judge; default it is called here.

    Returns
    -------
    dict
        The inputs of a `Run`, as JSON.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> from rmcalib.judges import load_judge
    >>> judge = load_judge(lambda prompt, responses: [len(text) for text in responses], name="longest")
    >>> inputs = score_inputs(judge, load_benchmark("demo", limit=4))
    >>> inputs["model"], inputs["benchmark"], inputs["n_items"]
    ('longest', 'demo', 4)
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
    """Return a hash of a request to score, which is known before the judge is loaded.

    The manifest of a run contains it as `asked`. If the same request comes again, `finished_scores` finds the
    finished run by it, and no weights are loaded.

    Parameters
    ----------
    judge : Judge
        The judge.
    benchmark : Benchmark
        The prompts.

    Returns
    -------
    str or None
        None if the identity of the judge is only known after loading it.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> from rmcalib.judges import load_judge
    >>> asked = asked_for(load_judge("demo"), load_benchmark("demo", limit=4))
    >>> asked == asked_for(load_judge("demo"), load_benchmark("demo", limit=5))
    False
    """
    known: Callable[[], dict[str, Any] | None] = getattr(judge, "asked", None) or judge.identity
    asked = known()
    if asked is None:
        return None
    data = [benchmark.name, benchmark.revision, _items_hash(benchmark)]
    return inputs_hash({**asked, "model": model_folder(judge.name), "benchmark": data})


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """Return a SHA-256 of the inputs that does not depend on the order of their keys.

    Parameters
    ----------
    inputs : Mapping[str, Any]
        Mapping that can be written as JSON.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> inputs_hash({"a": 1, "b": 2}) == inputs_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def content_hash(scores: Scores) -> str:
    """Return a SHA-256 of the columns of scores, without their manifest.

    It equals `inputs_hash` of the columns as lists, but is computed in chunks to save memory.

    Parameters
    ----------
    scores : Scores
        The scores.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> from rmcalib.scores import Scores
    >>> scores = Scores.from_arrays([[1.0, 0.0]])
    >>> content_hash(scores) == content_hash(Scores.from_arrays([[1.0, 0.0]], manifest={"model": "m"}))
    True
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
    """Return the fields that scores depend on or contain; votes only if there are any."""
    parts = (item.id, item.category, item.prompt, item.responses, item.n_correct)
    return parts if item.votes is None else (*parts, item.votes, item.ties)


def package_versions() -> dict[str, str]:
    """Return the versions of Python, rmcalib and the packages that scoring uses.

    Returns
    -------
    dict of str to str
        Versions by package; packages that are not installed are missing.

    Examples
    --------
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


def model_folder(name: str) -> str:
    """Return the name of the folder of a judge; a local model is named by its full path."""
    return folder_name(str(Path(name).resolve()) if kind_on_disk(name) == "folder" else name)

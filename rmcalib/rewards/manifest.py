"""What a run was made of: the inputs that change a score, their hash, and what else is worth keeping."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib.rewards.hub import folder_name

if TYPE_CHECKING:
    from rmcalib.rewards.benchmarks import Benchmark
    from rmcalib.rewards.models import RewardModel

SCORING_VERSION = 1  # raise it when the same inputs would get other scores
# Fields of a recipe that speak about the model and do not change its scores.
_TOLD = ("model", "status", "reason", "loss", "evidence", "bradley_terry", "parameters", "note")
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


def score_inputs(model: RewardModel, benchmark: Benchmark) -> dict[str, Any]:
    """List everything that changes a score; two runs with equal inputs can share their parts."""
    recipe = dataclasses.asdict(model.recipe)
    for told in _TOLD:
        recipe.pop(told)
    items = json.dumps([dataclasses.astuple(item) for item in benchmark.items])
    return {
        "model": model_folder(model.name),
        "model_revision": model.revision,
        "model_sources": dict(model.sources),
        "benchmark": benchmark.name,
        "benchmark_revision": benchmark.revision,
        "n_items": len(benchmark),
        "items_sha256": hashlib.sha256(items.encode("utf-8", "surrogatepass")).hexdigest(),
        "recipe": recipe,
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_length": model.max_length,
        "scoring_version": SCORING_VERSION,
    }


def describe(model: RewardModel) -> dict[str, Any]:
    """Say about a model what does not change its scores but belongs in the manifest."""
    known = {name: getattr(model.recipe, name) for name in _TOLD if name != "model"}
    return {"model": model.name, "device": str(model.device), "kind": model.kind, "about_model": known}


def inputs_hash(inputs: Mapping[str, Any]) -> str:
    """Return a SHA-256 of the inputs that does not depend on their order.

    >>> inputs_hash({"a": 1, "b": 2}) == inputs_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()


def package_versions() -> dict[str, str]:
    """Return the versions of what took part in scoring."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {"rmcalib": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def model_folder(name: str) -> str:
    """Name a model's folder; a local model is named by where it is, however its path was written."""
    return folder_name(str(Path(name).resolve()) if name and Path(name).is_dir() else name)

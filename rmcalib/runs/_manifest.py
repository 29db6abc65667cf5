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
from rmcalib._util.files import kind_on_disk
from rmcalib._util.hub import folder_name

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark, Item
    from rmcalib.judges import Recipe, RewardModel
    from rmcalib.scores import Scores

_CHUNK = 50_000  # values that are hashed at a time
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
    return {
        "model": model_folder(model.name),
        "model_revision": model.revision,
        "model_sources": dict(model.sources),
        "benchmark": benchmark.name,
        "benchmark_revision": benchmark.revision,
        "n_items": len(benchmark),
        "items_sha256": _items_hash(benchmark),
        "recipe": recipe,
        "kind": model.kind,
        "own_code": _own_code(model),
        "attention": _attention(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "max_length": model.max_length,
        "scoring_version": SCORING_VERSION,
    }


def asked_for(
    model: str,
    revision: str,
    benchmark: Benchmark,
    *,
    device: str = "auto",
    dtype: str = "auto",
    max_length: int | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    recipe: Recipe | None = None,
) -> str:
    """Return a hash of what was asked for, as far as it decides about `score_inputs`.

    It needs no weights, and is in a run's manifest (`asked`): whoever asks for the same again, by whatever
    command or engine, finds the run done (`rmcalib.runs._folder.finished_scores`). `revision` is the model's
    commit or SHA-256; the options are those of `load_model`. What is left to the machine stays `auto`: the
    one that asks need not be the one that scores. The base model of a PEFT adapter, which only the adapter
    names, is not in it.
    """
    from rmcalib.judges import identify, recipe_for

    recipe = recipe or recipe_for(model)
    asked = {
        "model": model_folder(model),
        "revision": revision,
        "tokenizer": recipe.tokenizer and identify(recipe.tokenizer),
        "benchmark": [benchmark.name, benchmark.revision, _items_hash(benchmark)],
        "recipe": dataclasses.asdict(recipe),
        "dtype": [dtype, device.partition(":")[0]] if dtype == "auto" else dtype,  # the device settles `auto`
        "max_length": max_length,
        "allowed": [trust_remote_code, allow_pickle],
        "scoring_version": SCORING_VERSION,
    }
    return inputs_hash(asked)


def describe(model: RewardModel) -> dict[str, Any]:
    """Say about a model what does not change its scores but belongs in the manifest."""
    known = {name: getattr(model.recipe, name) for name in _TOLD if name != "model"}
    return {"model": model.name, "device": str(model.device), "about_model": known}


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


def _own_code(model: RewardModel) -> list[str]:
    """Name the classes that came with the checkpoint: the same files are another model without them."""
    parts = [*model.backbone.modules(), model.tokenizer, model.config]
    kinds = {type(part) for part in parts}
    return sorted(kind.__name__ for kind in kinds if kind.__module__.startswith("transformers_modules"))


def _attention(model: RewardModel) -> str | None:
    """Name the attention that transformers has settled on: each rounds in its own way."""
    config = getattr(model.backbone, "config", model.config)
    name: str | None = getattr(config, "_attn_implementation", None)
    return name


def _items_hash(benchmark: Benchmark) -> str:
    items = json.dumps([_item_parts(item) for item in benchmark.items])
    return hashlib.sha256(items.encode("utf-8", "surrogatepass")).hexdigest()


def _item_parts(item: Item) -> tuple[Any, ...]:
    """List what a run keeps of an item, or scores; votes only where there are some."""
    parts = (item.id, item.category, item.prompt, item.responses, item.n_correct)
    return parts if item.votes is None else (*parts, item.votes, item.ties)


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
    return folder_name(str(Path(name).resolve()) if kind_on_disk(name) == "folder" else name)

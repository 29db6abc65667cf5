"""What a batch does: its settings, and the plan of models in order, with what each needs and why some are skipped.

Everything is estimated from the recipes. Nothing is downloaded.
"""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from rmcalib._util.arrays import check_choice
from rmcalib._util.display import shortened
from rmcalib._util.files import kind_on_disk
from rmcalib._util.hub import OWN_CODE, resolve_commit
from rmcalib._util.texts import typed
from rmcalib.benchmarks import Benchmark, load_benchmark
from rmcalib.judges import LoadOptions, Recipe, load_judge, registry
from rmcalib.judges._devices import find_hardware
from rmcalib.judges._load import judge_kind, judge_settings, registered_judges
from rmcalib.judges._registry import read_entries, recipe_from
from rmcalib.scores import published_models
from rmcalib.scores._known import RESULTS

# What a name contains, and the family of such models; the names of families come last.
_FAMILIES = {
    "pythia": "gpt_neox",
    "worldpm": "qwen",
    "beaver": "llama",
    "armorm": "llama",
    "tulu": "llama",
    "eurus": "mistral",
    "ultrarm": "llama",
    "skywork-vl": "qwen",
    **{name: name for name in ("llama", "qwen", "gemma", "mistral", "internlm", "deberta")},
}
# Assumptions behind the estimated times, which are rough.
_REWARD_BENCH_2_TOKENS = 8_500 * 500.0
_CHARACTERS_PER_TOKEN = 4
_OPERATIONS_PER_SECOND = {"cuda": 1e14, "mps": 5e12, "cpu": 3e10}  # for a CPU: of one core
_OVERHEAD = 1.2  # memory of a running model, relative to its weights
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_UNITS = {"": 1e9, "b": 1e9, "g": 1e9, "gb": 1e9, "m": 1e6, "mb": 1e6, "tb": 1e12}


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster, and the resources of each model.

    Parameters
    ----------
    address : str
        `"local"` starts a cluster on this machine, `"auto"` finds a running one, or `"HOST:PORT"`.
    shards : int
        Number of workers that share the prompts of a model.
    gpus : float, optional
        Number of GPUs per worker. Default: as many as the model needs, or none if the cluster has none.
    gpu_memory : float
        Memory of one GPU in bytes.

    Examples
    --------
    >>> Cluster("auto", shards=4, gpus=0.5).shards
    4
    """

    address: str = "local"
    shards: int = 1
    gpus: float | None = None
    gpu_memory: float = 80e9


@dataclass(frozen=True)
class Batch:
    """The models of a batch, what to do with them, and where to write the results.

    Parameters
    ----------
    models : str | Path | Iterable[str | Mapping[str, Any] | Recipe], optional
        Path of a YAML file, or its entries: ids, mappings with the fields of an entry, or recipes. Default: the
        leaderboard, or all models with published scores.
    benchmark : str | Benchmark
        A benchmark, or a name that :func:`rmcalib.load_benchmark` takes.
    output : str | Path
        Folder or URL for the results.
    published : bool
        Download the scores that RewardBench has published; no model is run.
    include, exclude : tuple[str, ...]
        Patterns of ids, such as `"Skywork/*"`. A model must match one of `include`, if there are any, and none
        of `exclude`.
    max_parameters : float, optional
        The maximum size in billions of parameters. Models of unknown size are skipped.
    families : tuple[str, ...]
        Families of base models, such as `"llama"`; default all.
    limit, format
        As for :func:`rmcalib.load_benchmark`, if the benchmark is a name.
    options : LoadOptions
        How to load and run the models.
    cluster : Cluster, optional
        A Ray cluster to run on; default this machine.
    free_disk : bool
        Remove each model from the Hub's cache when it is done.
    ignore_memory : bool
        Also run models that seem too large for the memory.
    fresh : bool
        Run everything again, and replace the results of earlier runs.

    Examples
    --------
    >>> Batch(["demo", "org/rm-8B"], "demo", max_parameters=10).output
    'runs'
    """

    models: str | Path | Iterable[str | Mapping[str, Any] | Recipe] | None = None
    benchmark: str | Benchmark = "reward-bench-2"
    output: str | Path = "runs"
    _: KW_ONLY
    published: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_parameters: float | None = None
    families: tuple[str, ...] = ()
    limit: int | None = None
    format: str | None = None
    options: LoadOptions = field(default_factory=LoadOptions)
    cluster: Cluster | None = None
    free_disk: bool = False
    ignore_memory: bool = False
    fresh: bool = False


@dataclass(frozen=True)
class PlanEntry:
    """One model of a plan.

    Attributes
    ----------
    recipe : Recipe
        How to load and score the model.
    options : Mapping[str, Any], optional
        Options of :func:`rmcalib.load_judge`, such as the `endpoint` of a served model. None for classifiers,
        which have the options of the batch.
    parameters, memory, seconds : float, optional
        Size in billions of parameters, estimated memory in bytes, and roughly estimated time. None if the
        size is unknown.
    device : str
        Type of the device, or `"server"`.
    skipped : str
        The reason why the model is not run; empty if it is run.
    """

    recipe: Recipe
    options: Mapping[str, Any] | None = None
    parameters: float | None = None
    memory: float | None = None
    seconds: float | None = None
    device: str = ""
    skipped: str = ""

    @property
    def model(self) -> str:
        """Id of the model."""
        return self.recipe.model

    @property
    def family(self) -> str:
        """Family of the base model, from the architecture or the name; "other" if it is unknown."""
        text = f"{self.recipe.architecture or ''} {self.model.split('/')[-1]}".lower()
        return next((family for word, family in _FAMILIES.items() if word in text), "other")

    @property
    def served(self) -> bool:
        """Whether a server runs the model, so that it needs no memory here."""
        return self.options is not None and self.options.get("endpoint") is not None


def plan_batch(batch: Batch) -> list[PlanEntry]:
    """Return what a batch would do. No model or benchmark is downloaded.

    Parameters
    ----------
    batch : Batch
        The models, what to do with them, and where to write the results.

    Returns
    -------
    list of PlanEntry
        The models from small to large, with estimates of memory and time, then those that are skipped.

    Examples
    --------
    >>> batch = Batch(["org/rm-8B", "org/rm-1B"], "demo", options=LoadOptions(device="cpu"), ignore_memory=True)
    >>> [entry.model for entry in plan_batch(batch)]
    ['org/rm-1B', 'org/rm-8B']
    """
    if batch.published:
        return published_plan(batch, resolve_commit(RESULTS, repo_type="dataset"))
    name = batch.benchmark
    here = isinstance(name, Benchmark) or name == "demo" or kind_on_disk(name) == "file"
    return scoring_plan(batch, selected(batch), loaded_benchmark(batch) if here else None)


def loaded_benchmark(batch: Batch) -> Benchmark:
    """Return the benchmark of a batch."""
    if isinstance(batch.benchmark, Benchmark):
        return batch.benchmark
    return load_benchmark(batch.benchmark, format=batch.format, limit=batch.limit)


def scoring_plan(batch: Batch, entries: list[PlanEntry], benchmark: Benchmark | None) -> list[PlanEntry]:
    """Add memory, time and reasons to skip a model; without a benchmark, times are those of RewardBench 2."""
    options = batch.options
    check_choice(options.dtype, "dtype", ("auto", *_BYTES))
    # The memory of the nodes of a cluster is unknown here.
    device, memory = "cpu" if options.device == "cpu" else "cuda", math.inf
    if batch.cluster is None:
        hardware = find_hardware(options.device)
        device, memory = hardware.device, hardware.memory
    cores = (os.cpu_count() or 1) if device == "cpu" else 1
    seconds_per_parameter = 2 * _tokens(benchmark) / (_OPERATIONS_PER_SECOND.get(device, 1e14) * cores)
    plan = []
    for entry in entries:
        recipe = entry.recipe
        reason = entry.skipped or (recipe.reason if recipe.status == "unsupported" else "")
        if entry.served:
            plan.append(replace(entry, device="server", skipped=reason))
            continue
        if recipe.trust_remote_code and not options.trust_remote_code:
            reason = reason or OWN_CODE
        needed = seconds = None
        if entry.parameters is not None:
            chosen = "float32" if device == "cpu" else recipe.dtype or "bfloat16"
            width = _BYTES[chosen if options.dtype == "auto" else options.dtype]
            n_models = 2 if "reference" in (entry.options or {}) else 1  # a policy and its reference
            needed = n_models * entry.parameters * 1e9 * width * _OVERHEAD
            seconds = entry.parameters * 1e9 * seconds_per_parameter
        if not reason and needed and needed > memory and not batch.ignore_memory:
            reason = (
                f"needs about {needed / 1e9:.3g} GB of memory, and there are {memory / 1e9:.3g} GB "
                "(ignore_memory=True runs it anyway)"
            )
        plan.append(replace(entry, memory=needed, seconds=seconds, device=device, skipped=reason))
    return sorted(plan, key=lambda entry: (bool(entry.skipped), entry.parameters or math.inf, entry.model))


def published_plan(batch: Batch, commit: str) -> list[PlanEntry]:
    """Return the plan for the scores that are published at a commit of the results."""
    names = published_models(revision=commit)
    given = batch if batch.models is not None else replace(batch, models=names)
    plan = []
    for entry in selected(given):
        missing = "" if entry.model in names else f"no published scores in {RESULTS}"
        plan.append(replace(entry, skipped=entry.skipped or missing))
    return sorted(plan, key=lambda entry: (bool(entry.skipped), entry.model))


def selected(batch: Batch) -> list[PlanEntry]:
    """Return the selected models. With a maximum size, models of unknown size are skipped."""
    models = read_models(batch.models)
    families = {name.lower() for name in batch.families}
    most = math.inf if batch.max_parameters is None else batch.max_parameters
    chosen = []
    for entry in models:
        if not _like(entry.model, batch.include or ("*",)) or _like(entry.model, batch.exclude):
            continue
        size = parameters_of(entry.recipe)
        if (families and entry.family not in families) or (size or 0) > most:
            continue
        unknown = "unknown size, and a maximum size was given (set `parameters` in its recipe)"
        reason = unknown if size is None and most < math.inf else ""
        chosen.append(replace(entry, parameters=size, skipped=reason))
    if not chosen:
        have = ", ".join(sorted({entry.family for entry in models}))
        raise ValueError(
            "no model matches the names, the maximum size and the families "
            f"(of {len(models)}; their families: {have})"
        )
    return chosen


def read_models(models: str | Path | Iterable[Any] | None = None) -> list[PlanEntry]:
    """Read the models of a YAML file, or of a list with the same entries; default the leaderboard.

    An entry is an id, which uses the recipe of the registry, or has the fields of a recipe. For judges that are
    not classifiers, it has `kind` and the options of this kind, such as `endpoint` or `judge`.

    >>> [entry.model for entry in read_models(["demo", {"model": "org/rm", "column": 1}])]
    ['demo', 'org/rm']
    """
    if models is None or isinstance(models, (str, Path)):
        entries = read_entries(models)
    else:
        entries = [(f"models, entry {i}", entry) for i, entry in enumerate(models, start=1)]
    recipes, installed = registry(), registered_judges()
    return [_entry(entry, where, recipes, installed) for where, entry in entries]


def _entry(entry: Any, where: str, recipes: Mapping[str, Recipe], installed: Container[str]) -> PlanEntry:
    if isinstance(entry, str):
        entry = {"model": entry}
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str):
        return PlanEntry(recipe_from(entry, where))  # raises, unless it is a recipe
    if entry["model"] in installed and "kind" not in entry:
        return PlanEntry(Recipe(entry["model"]), {str(k): v for k, v in entry.items() if k != "model"})
    # In a list, `judge` is how a language model judges; in Python it is the judge itself.
    given = {"judging" if key == "judge" else str(key): value for key, value in entry.items()}
    of_recipe = {each.name for each in fields(Recipe)}
    try:
        kind = judge_kind(given.pop("kind", None), given)
        # All fields of a classifier are those of a recipe, unless another program runs it.
        is_classifier = kind == "classifier" and "backend" not in given
        recipe = recipe_from({k: v for k, v in given.items() if is_classifier or k in of_recipe}, where)
        recipe = recipes.get(recipe.model, recipe) if recipe == Recipe(recipe.model) else recipe
        if is_classifier:
            return PlanEntry(recipe)
        options = {"kind": kind, **{key: value for key, value in given.items() if key not in of_recipe}}
        typed(judge_settings(kind, {}), given, where)
        load_judge(recipe.model, **options)  # checks the rest; no server is contacted yet
    except (TypeError, ValueError) as error:
        named = str(error).startswith(where)
        raise ValueError(
            str(error) if named else f"{where} ({shortened(entry['model'], 100)}): {error}"
        ) from error
    return PlanEntry(recipe, options)


def _tokens(benchmark: Benchmark | None) -> float:
    """Estimate the number of tokens of a benchmark from its characters; None means RewardBench 2."""
    if benchmark is None:
        return _REWARD_BENCH_2_TOKENS
    characters = sum(
        len(item.responses) * len(str(item.prompt)) + sum(map(len, item.responses))
        for item in benchmark.items
    )
    return characters / _CHARACTERS_PER_TOKEN


def parameters_of(recipe: Recipe) -> float | None:
    """Return the size of a model in billions of parameters, from its recipe or its name.

    >>> names = ("org/Qwen3-0.6B", "org/rm-350m", "org/internlm2-1_8b", "org/rm")
    >>> [parameters_of(Recipe(name)) for name in names]
    [0.6, 0.35, 1.8, None]
    """
    if recipe.parameters is not None:
        return recipe.parameters
    sizes = re.findall(r"(?<![A-Za-z0-9.])(\d+(?:[._]\d+)?)([bm])(?![A-Za-z0-9])", recipe.model.lower())
    if not sizes:
        return None
    number, unit = sizes[-1]
    return float(number.replace("_", ".")) / (1 if unit == "b" else 1000)


def _like(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def parse_size(text: str, option: str) -> float:
    """Turn `10B`, `600M` or `80GB` into a number; without a unit, it is in billions.

    >>> parse_size("600M", "--max-params"), parse_size("80GB", "--gpu-memory")
    (600000000.0, 80000000000.0)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) == 0:
        raise ValueError(f"{option}: {text!r} is not a size (write it like 10B, 600M or 80GB)")
    return float(match[1]) * unit

"""The plan of a batch: the models of a list in order, what each needs, and which are skipped and why.

Everything is estimated from the recipes. Nothing is downloaded.
"""

from __future__ import annotations

import fnmatch
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import shortened
from rmcalib._util.hub import OWN_CODE
from rmcalib._util.texts import typed
from rmcalib.judges import Recipe, load_judge, registry
from rmcalib.judges._load import judge_kind, judge_settings
from rmcalib.judges._registry import read_entries, recipe_from

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.judges import LoadOptions


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


@dataclass(frozen=True)
class Selection:
    """Which models of a list to run; the default is all.

    Parameters
    ----------
    include : tuple[str, ...]
        Patterns of ids, such as `"Skywork/*"`; a model must match one of them. Empty: all match.
    exclude : tuple[str, ...]
        Patterns of ids; models that match one of them are left out.
    max_parameters : float, optional
        The maximum size in billions of parameters. Models of unknown size are skipped.
    families : tuple[str, ...]
        Families of base models, such as `"llama"`. Empty: all.

    Examples
    --------
    >>> selection = Selection(include=("*llama*",), exclude=("*old*",))
    >>> [selection.matches(Recipe(name)) for name in ("a/Llama-8B", "a/Llama-old-8B", "a/Qwen-4B")]
    [True, False, False]
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_parameters: float | None = None
    families: tuple[str, ...] = ()

    def matches(self, recipe: Recipe) -> bool:
        """Return whether the id and the family of a model match. The size is not checked."""
        if not _like(recipe.model, self.include or ("*",)) or _like(recipe.model, self.exclude):
            return False
        return not self.families or family_of(recipe) in {name.lower() for name in self.families}


@dataclass(frozen=True)
class Listed:
    """One entry of a list of models: its recipe, and options of :func:`rmcalib.load_judge`.

    The options, such as `endpoint`, are empty for classifiers.
    """

    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanEntry:
    """One model of a plan.

    Attributes
    ----------
    recipe : Recipe
        How to load and score the model.
    family : str
        Family of its base model.
    parameters, memory, seconds : float, optional
        Size in billions of parameters, estimated memory in bytes, and roughly estimated time. None if the
        size is unknown.
    device : str
        Type of the device, or `"server"`.
    skipped : str
        The reason why the model is not run; empty if it is run.
    options : Mapping[str, Any]
        Options of :func:`rmcalib.load_judge`, such as the `endpoint` of a served model.
    """

    recipe: Recipe
    family: str
    parameters: float | None = None
    memory: float | None = None
    seconds: float | None = None
    device: str = ""
    skipped: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """Id of the model."""
        return self.recipe.model

    @property
    def served(self) -> bool:
        """Whether a server runs the model, so that it needs no memory here."""
        return self.options.get("endpoint") is not None


def read_models(path: str | Path | None = None) -> list[Listed]:
    """Read the models of a YAML file; default the leaderboard. A bare id uses the recipe of the registry.

    An entry may have the fields of a recipe and, for judges that are not classifiers, `kind` and the options
    of this kind, such as `endpoint` or `judge`.
    """
    entries = read_entries(path)
    if not entries:
        raise ValueError(f"{path}: contains no models (write `- model: org/name`)")
    known = registry()
    return [_listed(entry, where, known) for where, entry in entries]


def _listed(entry: Any, where: str, known: Mapping[str, Recipe]) -> Listed:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str):
        return Listed(recipe_from(entry, where))  # raises
    # In a list, `judge` is how a language model judges; in Python it is the judge itself.
    given = {"judging" if key == "judge" else str(key): value for key, value in entry.items()}
    own = {each.name for each in fields(Recipe)}
    try:
        kind = judge_kind(given.pop("kind", None), given)
        # All fields of a classifier are those of a recipe, unless another program runs it.
        is_classifier = kind == "classifier" and "backend" not in given
        recipe = recipe_from({k: v for k, v in given.items() if is_classifier or k in own}, where)
        recipe = known.get(recipe.model, recipe) if recipe == Recipe(recipe.model) else recipe
        if is_classifier:
            return Listed(recipe)
        options = {"kind": kind, **{key: value for key, value in given.items() if key not in own}}
        typed(judge_settings(kind, {}), given, where)
        load_judge(recipe.model, **options)  # checks the rest; no server is contacted yet
    except (TypeError, ValueError) as error:
        named = str(error).startswith(where)
        raise ValueError(
            str(error) if named else f"{where} ({shortened(entry['model'], 100)}): {error}"
        ) from error
    return Listed(recipe, options)


def select(models: Iterable[Recipe | Listed], selection: Selection) -> list[PlanEntry]:
    """Return the selected models. With a maximum size, models of unknown size are skipped."""
    entries = []
    listed = [each if isinstance(each, Listed) else Listed(each) for each in models]
    most = math.inf if selection.max_parameters is None else selection.max_parameters
    for each in listed:
        size = parameters_of(each.recipe)
        if not selection.matches(each.recipe) or (size or 0) > most:
            continue
        unknown = "unknown size, and --max-params was given (set `parameters` in its recipe)"
        reason = unknown if size is None and most < math.inf else ""
        entries.append(
            PlanEntry(each.recipe, family_of(each.recipe), size, skipped=reason, options=each.options)
        )
    if not entries:
        have = ", ".join(sorted({family_of(each.recipe) for each in listed}))
        raise ValueError(
            "no model matches --include, --exclude, --max-params and --family "
            f"(of {len(listed)}; their families: {have})"
        )
    return entries


def make_plan(
    models: Iterable[Recipe | Listed],
    selection: Selection,
    options: LoadOptions,
    device: str,
    memory: float,
    *,
    tokens: float = _REWARD_BENCH_2_TOKENS,
    ignore_memory: bool = False,
) -> list[PlanEntry]:
    """Return the plan: the selected models from small to large, then those that are skipped.

    `device` is the type of the devices, and `memory` that of all devices together, in bytes.

    >>> from rmcalib.judges import LoadOptions
    >>> recipes = [Recipe("a/rm-8B"), Recipe("b/rm-70B"), Recipe("c/rm-1.5B")]
    >>> plan = make_plan(recipes, Selection(), LoadOptions(), "cuda", 80e9)
    >>> [(entry.model, entry.skipped) for entry in plan]  # doctest: +ELLIPSIS
    [('c/rm-1.5B', ''), ('a/rm-8B', ''), ('b/rm-70B', 'needs about 168 GB of memory, ...')]
    """
    if options.dtype not in ("auto", *_BYTES):
        raise ValueError(f"dtype: unknown {options.dtype!r} (have: {', '.join(('auto', *_BYTES))})")
    cores = (os.cpu_count() or 1) if device == "cpu" else 1
    speed = _OPERATIONS_PER_SECOND.get(device, 1e14) * cores
    entries = []
    for entry in select(models, selection):
        recipe = entry.recipe
        unsupported = recipe.reason if recipe.status == "unsupported" else ""
        if entry.served:
            entries.append(replace(entry, device="server", skipped=entry.skipped or unsupported))
            continue
        needs_code = OWN_CODE if recipe.trust_remote_code and not options.trust_remote_code else ""
        reason = entry.skipped or unsupported or needs_code
        needed = seconds = None
        if entry.parameters is not None:
            chosen = "float32" if device == "cpu" else recipe.dtype or "bfloat16"
            width = _BYTES[chosen if options.dtype == "auto" else options.dtype]
            n_models = 1 if entry.options.get("reference") is None else 2  # a policy and its reference
            needed = n_models * entry.parameters * 1e9 * width * _OVERHEAD
            seconds = 2 * entry.parameters * 1e9 * tokens / speed
        if not reason and needed and needed > memory and not ignore_memory:
            reason = (
                f"needs about {needed / 1e9:.3g} GB of memory, and there are {memory / 1e9:.3g} GB "
                "(--ignore-memory runs it anyway)"
            )
        entries.append(replace(entry, memory=needed, seconds=seconds, device=device, skipped=reason))
    return sorted(entries, key=lambda e: (bool(e.skipped), e.parameters or math.inf, e.model))


def estimated_tokens(benchmark: Benchmark | None) -> float:
    """Estimate the number of tokens of a benchmark from its characters; None means RewardBench 2."""
    if benchmark is None:
        return _REWARD_BENCH_2_TOKENS
    characters = 0
    for item in benchmark.items:
        turns = [item.prompt] if isinstance(item.prompt, str) else [turn["content"] for turn in item.prompt]
        characters += len(item.responses) * sum(map(len, turns)) + sum(map(len, item.responses))
    return characters / _CHARACTERS_PER_TOKEN


def parameters_of(recipe: Recipe) -> float | None:
    """Return the size of a model in billions of parameters, from its recipe or its name.

    >>> names = ("org/Qwen3-0.6B", "org/rm-350m", "org/internlm2-1_8b", "org/rm")
    >>> [parameters_of(Recipe(name)) for name in names]
    [0.6, 0.35, 1.8, None]
    """
    if recipe.parameters is not None:
        return recipe.parameters
    found = re.findall(r"(?<![A-Za-z0-9.])(\d+(?:[._]\d+)?)([bm])(?![A-Za-z0-9])", recipe.model.lower())
    if not found:
        return None
    number, unit = found[-1]
    return float(number.replace("_", ".")) / (1 if unit == "b" else 1000)


def family_of(recipe: Recipe) -> str:
    """Return the family of the base model, from the architecture or the name; default "other".

    >>> names = ("infly/INF-ORM-Llama3.1-70B", "PKU-Alignment/beaver-7b", "org/rm")
    >>> [family_of(Recipe(name)) for name in names]
    ['llama', 'llama', 'other']
    """
    text = f"{recipe.architecture or ''} {recipe.model.split('/')[-1]}".lower()
    return next((family for word, family in _FAMILIES.items() if word in text), "other")


def _like(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def parse_parameters(text: str) -> float:
    """Turn `10B`, `600M` or `7` (billions) into billions.

    >>> parse_parameters("10B"), parse_parameters("600M")
    (10.0, 0.6)
    """
    return _parse(text, {"": 1, "b": 1, "m": 1e-3}, "--max-params", "10B or 600M")


def parse_bytes(text: str) -> float:
    """Turn `80GB` or `80` (gigabytes) into bytes.

    >>> parse_bytes("80GB")
    80000000000.0
    """
    return _parse(text, {"": 1e9, "gb": 1e9, "g": 1e9, "tb": 1e12, "mb": 1e6}, "--gpu-memory", "80GB")


def _parse(text: str, units: Mapping[str, float], option: str, example: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    unit = units.get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) == 0:
        raise ValueError(f"{option}: {text!r} is not a size (write it like {example})")
    return float(match[1]) * unit

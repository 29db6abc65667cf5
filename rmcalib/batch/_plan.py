"""The plan of a batch: which models, in which order, what each needs, and which are skipped and why.

Everything is estimated from the recipes. Nothing is downloaded.
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import OWN_CODE
from rmcalib.judges import (
    Recipe,
    judge_kind,
    load_judge,
    read_entries,
    recipe_from,
    registry,
)

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark

__all__ = [
    "Listed",
    "Machine",
    "PlanEntry",
    "Selection",
    "choose_machine",
    "estimated_tokens",
    "make_plan",
    "parse_bytes",
    "parse_parameters",
    "plan_problems",
    "read_models",
    "select",
]

# Assumptions behind the estimated times, which should be right within a factor of a few.
_TOKENS_PER_RESPONSE = 500
_REWARD_BENCH_2_RESPONSES = 8_500
_CHARACTERS_PER_TOKEN = 4
_OPERATIONS_PER_SECOND = {"cuda": 1e14, "mps": 5e12, "cpu": 3e10}  # the CPU's is for one core
_OVERHEAD = 1.2  # memory of a running model, relative to its weights
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
_FAMILIES = ("llama", "qwen", "gemma", "mistral", "internlm", "deberta")
_BASES = {  # families that the name does not contain
    "pythia": "gpt_neox",
    "worldpm": "qwen",
    "beaver": "llama",
    "armorm": "llama",
    "tulu": "llama",
    "eurus": "mistral",
    "ultrarm": "llama",
    "skywork-vl": "qwen",
}


@dataclass(frozen=True)
class Machine:
    """What models run on.

    Parameters
    ----------
    device : the type of its devices.
    count : how many there are.
    memory : of all of them together, in bytes; None if it is not known here.
    rate : operations per second that `rmcalib doctor --bench` measured on one device; None if it never ran.
    """

    device: str
    count: int = 1
    memory: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class Selection:
    """Which models are wanted: patterns of ids, a maximum size, families. The default is all."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    max_parameters: float | None = None  # billions
    families: tuple[str, ...] = ()


@dataclass(frozen=True)
class Listed:
    """One entry of a list of models: its recipe, and the options of its judge if it is not a classifier."""

    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanEntry:
    """One model of a plan; `skipped` is the reason why it is not run, or empty.

    `parameters` are billions, `memory` bytes, `seconds` a rough estimate; None if the size is unknown.
    `options` are those of `rmcalib.load_judge`, such as the `endpoint` of a served model.
    """

    recipe: Recipe
    family: str
    parameters: float | None = None
    memory: float | None = None
    seconds: float | None = None
    device: str = ""
    skipped: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: bool = False  # whether `seconds` comes from a speed that was measured on this machine

    @property
    def model(self) -> str:
        """The model's id."""
        return self.recipe.model

    @property
    def served(self) -> bool:
        """Whether a server runs the model: it needs no memory or GPU of the batch."""
        return self.options.get("endpoint") is not None


def read_models(path: str | Path | None = None) -> list[Listed]:
    """Read the models of a YAML file; default the leaderboard. A bare id gets the registry's recipe.

    An entry may have the fields of a recipe and, for judges that are not classifiers, `kind` and the options
    of its kind, such as `endpoint` or `judge`.
    """
    entries = read_entries(path)
    if not entries:
        raise ValueError(f"{path}: no models in it (write `- model: org/name`)")
    known = registry()
    return [_listed(entry, where, known) for where, entry in entries]


def _listed(entry: Any, where: str, known: Mapping[str, Recipe]) -> Listed:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("model"), str):
        return Listed(_recipe(entry, where, known))  # raises
    # In a list `judge` says how a language model judges; in Python it is the judge itself.
    given = {"judging" if key == "judge" else str(key): value for key, value in entry.items()}
    try:
        kind = judge_kind(given.pop("kind", None), given)
        if kind == "classifier":
            return Listed(_recipe(given, where, known))
        own = {each.name for each in fields(Recipe)}
        recipe = _recipe({key: value for key, value in given.items() if key in own}, where, known)
        options = {"kind": kind, **{key: value for key, value in given.items() if key not in own}}
        load_judge(recipe.model, **options)  # checks the options; no server is asked yet
    except (TypeError, ValueError) as error:
        named = str(error).startswith(where)
        raise ValueError(str(error) if named else f"{where} ({entry['model']}): {error}") from error
    return Listed(recipe, options)


def _recipe(entry: Any, where: str, known: Mapping[str, Recipe]) -> Recipe:
    recipe = recipe_from(entry, where)
    return known.get(recipe.model, recipe) if recipe == Recipe(model=recipe.model) else recipe


def make_plan(
    models: Iterable[Recipe | Listed],
    selection: Selection | None = None,
    machine: Machine | None = None,
    *,
    dtype: str = "auto",
    tokens: float = _REWARD_BENCH_2_RESPONSES * _TOKENS_PER_RESPONSE,
    trust_remote_code: bool = False,
    ignore_memory: bool = False,
) -> list[PlanEntry]:
    """Order the selected models from small to large, and give the reason for those that cannot be run.

    Models to run come first, then those that are skipped. The plan has only the models of the selection.

    >>> recipes = [Recipe("a/rm-8B"), Recipe("b/rm-70B"), Recipe("c/rm-1.5B")]
    >>> plan = make_plan(recipes, machine=Machine("cuda", memory=80e9))
    >>> [(entry.model, entry.skipped) for entry in plan]  # doctest: +ELLIPSIS
    [('c/rm-1.5B', ''), ('a/rm-8B', ''), ('b/rm-70B', 'needs about 168 GB of memory, ...')]
    """
    selection, machine = selection or Selection(), machine or Machine("cpu")
    if dtype not in ("auto", *_BYTES):
        raise ValueError(f"dtype: unknown {dtype!r} (have: {', '.join(('auto', *_BYTES))})")
    entries = []
    for entry in select(models, selection):
        if entry.served:
            unsupported = entry.recipe.reason if entry.recipe.status == "unsupported" else ""
            entries.append(replace(entry, device="server", skipped=entry.skipped or unsupported))
            continue
        size, recipe = entry.parameters, entry.recipe
        memory = None if size is None else size * 1e9 * _item_size(recipe, machine, dtype) * _OVERHEAD
        if memory is not None and entry.options.get("reference") is not None:
            memory *= 2  # a policy's reference is in memory, too
        seconds = None if size is None else 2 * size * 1e9 * tokens / _speed(machine)
        reason = entry.skipped or _obstacle(recipe, trust_remote_code)
        if not reason and memory and machine.memory and memory > machine.memory and not ignore_memory:
            reason = (
                f"needs about {memory / 1e9:.3g} GB of memory, and there are {machine.memory / 1e9:.3g} GB "
                "(--ignore-memory tries it anyway)"
            )
        entries.append(
            replace(
                entry,
                memory=memory,
                seconds=seconds,
                device=machine.device,
                skipped=reason,
                measured=machine.rate is not None,
            )
        )
    return sorted(entries, key=lambda e: (bool(e.skipped), e.parameters or math.inf, e.model))


def plan_problems(plan: Iterable[PlanEntry]) -> dict[str, str]:
    """Return the models that are sure to fail on this machine, and why. The Hub is not asked.

    >>> plan_problems([PlanEntry(Recipe("org/rm-8B"), "other"), PlanEntry(Recipe("./gone"), "other")])
    {'./gone': "'./gone' is neither a file or folder here nor a Hub id like 'org/name'"}
    """
    from rmcalib.judges import check_judge_name, is_local

    problems: dict[str, str] = {}
    for entry in plan:
        if entry.skipped or entry.model == "demo":
            continue
        try:
            check_judge_name(entry.model)
        except ValueError as error:
            problems[entry.model] = str(error)
        files = (Path(entry.model) / name for name in ("config.json", "adapter_config.json"))
        if is_local(entry.model) and not entry.options and not any(file.is_file() for file in files):
            problems[entry.model] = "no config.json in the folder, so this is not a transformers model"
    return problems


def select(models: Iterable[Recipe | Listed], selection: Selection) -> list[PlanEntry]:
    """Return the models of a selection. With a maximum size, models of unknown size are skipped."""
    entries = []
    listed = [each if isinstance(each, Listed) else Listed(each) for each in models]
    for each in listed:
        recipe = each.recipe
        size, family = parameters_of(recipe), family_of(recipe)
        if not _like(recipe.model, selection.include or ("*",)) or _like(recipe.model, selection.exclude):
            continue
        if selection.families and family not in {name.lower() for name in selection.families}:
            continue
        reason = ""
        if selection.max_parameters is not None:
            if size is not None and size > selection.max_parameters:
                continue
            if size is None:
                reason = "of unknown size, and --max-params was given (set `parameters` in its recipe)"
        entries.append(PlanEntry(recipe, family, size, skipped=reason, options=each.options))
    if not entries:
        have = ", ".join(sorted({family_of(each.recipe) for each in listed}))
        raise ValueError(
            "no model is left by --include, --exclude, --max-params and --family "
            f"(of {len(listed)}; their families: {have})"
        )
    return entries


def parameters_of(recipe: Recipe) -> float | None:
    """Return a model's size in billions, from its recipe or its name.

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
    """Return the family of a model's base, from its architecture or its name; default "other".

    >>> names = ("infly/INF-ORM-Llama3.1-70B", "PKU-Alignment/beaver-7b", "org/rm")
    >>> [family_of(Recipe(name)) for name in names]
    ['llama', 'llama', 'other']
    """
    text = f"{recipe.architecture or ''} {recipe.model.split('/')[-1]}".lower()
    for word, family in _BASES.items():
        if word in text:
            return family
    return next((family for family in _FAMILIES if family in text), "other")


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


def choose_machine(device: str = "auto") -> Machine:
    """Describe this machine: all CUDA devices together (a large model is spread over them), or one device.

    >>> choose_machine("cpu").device
    'cpu'
    """
    from rmcalib.judges import find_hardware

    return Machine(*find_hardware(device))


def estimated_tokens(benchmark: Benchmark | None) -> float:
    """Estimate the tokens of a benchmark from its characters; None stands for RewardBench 2."""
    if benchmark is None:
        return _REWARD_BENCH_2_RESPONSES * _TOKENS_PER_RESPONSE
    characters = sum(
        len(item.responses) * _length(item.prompt) + sum(map(len, item.responses)) for item in benchmark.items
    )
    return characters / _CHARACTERS_PER_TOKEN


def _length(prompt: str | Sequence[Mapping[str, str]]) -> int:
    return len(prompt) if isinstance(prompt, str) else sum(len(turn["content"]) for turn in prompt)


def _obstacle(recipe: Recipe, trust_remote_code: bool) -> str:
    if recipe.status == "unsupported":
        return recipe.reason
    return OWN_CODE if recipe.trust_remote_code and not trust_remote_code else ""


def _item_size(recipe: Recipe, machine: Machine, dtype: str) -> int:
    if dtype == "auto":
        dtype = "float32" if machine.device == "cpu" else recipe.dtype or "bfloat16"
    return _BYTES[dtype]


def _speed(machine: Machine) -> float:
    """Return operations per second: as measured, or a guess."""
    import os

    if machine.rate is not None:
        return machine.rate

    cores = (os.cpu_count() or 1) if machine.device == "cpu" else 1
    return _OPERATIONS_PER_SECOND.get(machine.device, 1e14) * cores


def _like(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), glob.lower()) for glob in globs)


def _parse(text: str, units: Mapping[str, float], option: str, example: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    convert: Callable[[str], float | None] = units.get
    unit = convert(match[2]) if match else None
    if match is None or unit is None or float(match[1]) == 0:
        raise ValueError(f"{option}: {text!r} is not a size (write it like {example})")
    return float(match[1]) * unit

"""The plan of a batch: the models in order, what each needs, and which are skipped and why.

Everything is estimated from the recipes. Nothing is downloaded.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import OWN_CODE
from rmcalib.batch._models import Listed, Selection, family_of, parameters_of
from rmcalib.judges import Recipe

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark

__all__ = [
    "Machine",
    "PlanEntry",
    "choose_machine",
    "estimated_tokens",
    "make_plan",
    "plan_problems",
    "select",
]

# Assumptions behind the estimated times, which are rough.
_TOKENS_PER_RESPONSE = 500
_REWARD_BENCH_2_RESPONSES = 8_500
_CHARACTERS_PER_TOKEN = 4
_OPERATIONS_PER_SECOND = {"cuda": 1e14, "mps": 5e12, "cpu": 3e10}  # for a CPU: of one core
_OVERHEAD = 1.2  # memory of a running model, relative to its weights
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Machine:
    """The machine that runs the models.

    Parameters
    ----------
    device : str
        Type of its devices.
    count : int
        Number of devices.
    memory : float, optional
        Memory of all devices together, in bytes; None if it is unknown.
    rate : float, optional
        Operations per second of one device, as `rmcalib doctor --bench` measured it; None if it was not run.
    """

    device: str
    count: int = 1
    memory: float | None = None
    rate: float | None = None


@dataclass(frozen=True)
class PlanEntry:
    """One model of a plan.

    Parameters
    ----------
    recipe : Recipe
        How to load and score the model.
    family : str
        Family of its base model.
    parameters : float, optional
        Size in billions of parameters; None if it is unknown.
    memory : float, optional
        Estimated memory in bytes; None if the size is unknown.
    seconds : float, optional
        Roughly estimated time; None if the size is unknown.
    device : str
        Type of the device, or `"server"`.
    skipped : str
        The reason why the model is not run; empty if it is run.
    options : Mapping[str, Any]
        Options of :func:`rmcalib.load_judge`, such as the `endpoint` of a served model.
    measured : bool
        Whether `seconds` is based on a speed that was measured on this machine.

    Examples
    --------
    >>> entry = PlanEntry(Recipe("org/rm-8B"), "other", 8.0, skipped="needs about 19.2 GB of memory")
    >>> entry.model, bool(entry.skipped)
    ('org/rm-8B', True)
    """

    recipe: Recipe
    family: str
    parameters: float | None = None
    memory: float | None = None
    seconds: float | None = None
    device: str = ""
    skipped: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    measured: bool = False

    @property
    def model(self) -> str:
        """Id of the model."""
        return self.recipe.model

    @property
    def served(self) -> bool:
        """Whether a server runs the model, so that it needs no memory here."""
        return self.options.get("endpoint") is not None


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
    """Return the plan: the selected models from small to large, then those that are skipped.

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
            memory *= 2  # the policy and its reference
        seconds = None if size is None else 2 * size * 1e9 * tokens / _speed(machine)
        reason = entry.skipped or _obstacle(recipe, trust_remote_code)
        if not reason and memory and machine.memory and memory > machine.memory and not ignore_memory:
            reason = (
                f"needs about {memory / 1e9:.3g} GB of memory, and there are {machine.memory / 1e9:.3g} GB "
                "(--ignore-memory runs it anyway)"
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
    """Return the models that are certain to fail on this machine, and why. The Hub is not contacted.

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
    """Return the selected models. With a maximum size, models of unknown size are skipped."""
    entries = []
    listed = [each if isinstance(each, Listed) else Listed(each) for each in models]
    for each in listed:
        recipe = each.recipe
        size, family = parameters_of(recipe), family_of(recipe)
        if not selection.matches(recipe):
            continue
        reason = ""
        if selection.max_parameters is not None:
            if size is not None and size > selection.max_parameters:
                continue
            if size is None:
                reason = "unknown size, and --max-params was given (set `parameters` in its recipe)"
        entries.append(PlanEntry(recipe, family, size, skipped=reason, options=each.options))
    if not entries:
        have = ", ".join(sorted({family_of(each.recipe) for each in listed}))
        raise ValueError(
            "no model matches --include, --exclude, --max-params and --family "
            f"(of {len(listed)}; their families: {have})"
        )
    return entries


def choose_machine(device: str = "auto") -> Machine:
    """Describe this machine: all CUDA devices together (large models are spread over them), or one device.

    >>> choose_machine("cpu").device
    'cpu'
    """
    from rmcalib.judges import find_hardware

    return Machine(*find_hardware(device))


def estimated_tokens(benchmark: Benchmark | None) -> float:
    """Estimate the number of tokens of a benchmark from its characters; None means RewardBench 2."""
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
    """Return operations per second, measured or assumed."""
    if machine.rate is not None:
        return machine.rate
    cores = (os.cpu_count() or 1) if machine.device == "cpu" else 1
    return _OPERATIONS_PER_SECOND.get(machine.device, 1e14) * cores

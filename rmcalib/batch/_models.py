"""Lists of models: read them, and select models by name, size and family."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rmcalib.judges import Recipe, judge_kind, load_judge, read_entries, recipe_from, registry

__all__ = ["Listed", "Selection", "family_of", "parameters_of", "read_models"]

_FAMILIES = ("llama", "qwen", "gemma", "mistral", "internlm", "deberta")
_BASES = {  # families of models whose names do not contain them
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
    """One entry of a list of models.

    Parameters
    ----------
    recipe : Recipe
        How to load and score the model.
    options : Mapping[str, Any]
        Options of :func:`rmcalib.load_judge`, such as `endpoint`; empty for classifiers.

    Examples
    --------
    >>> Listed(Recipe("org/rm"), {"endpoint": "http://host:8000"}).recipe.model
    'org/rm'
    """

    recipe: Recipe
    options: Mapping[str, Any] = field(default_factory=dict)


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
        return Listed(_recipe(entry, where, known))  # raises
    # In a list, `judge` is how a language model judges; in Python it is the judge itself.
    given = {"judging" if key == "judge" else str(key): value for key, value in entry.items()}
    try:
        kind = judge_kind(given.pop("kind", None), given)
        if kind == "classifier":
            return Listed(_recipe(given, where, known))
        own = {each.name for each in fields(Recipe)}
        recipe = _recipe({key: value for key, value in given.items() if key in own}, where, known)
        options = {"kind": kind, **{key: value for key, value in given.items() if key not in own}}
        load_judge(recipe.model, **options)  # checks the options; no server is contacted yet
    except (TypeError, ValueError) as error:
        named = str(error).startswith(where)
        raise ValueError(str(error) if named else f"{where} ({entry['model']}): {error}") from error
    return Listed(recipe, options)


def _recipe(entry: Any, where: str, known: Mapping[str, Recipe]) -> Recipe:
    recipe = recipe_from(entry, where)
    return known.get(recipe.model, recipe) if recipe == Recipe(model=recipe.model) else recipe


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
    for word, family in _BASES.items():
        if word in text:
            return family
    return next((family for family in _FAMILIES if family in text), "other")


def _like(name: str, globs: Iterable[str]) -> bool:
    return any(fnmatch.fnmatchcase(name.lower(), glob.lower()) for glob in globs)

"""Find the recipe of a model: by its name, by the name of its folder, or by its files.

A model that was downloaded to a folder keeps its recipe. The folder may be named as the Hub's cache names it
(`models--org--name/snapshots/COMMIT`), `org__name`, `org--name`, `org/name`, or `name` alone. Otherwise the
snapshot's own files decide: classes and settings in `config.json` and names of tensors, as the recipe's
`recognised_by` lists them, and the files of the head. Nothing is guessed: if several recipes fit and would load a
model differently, none is used.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rmcalib._util.files import kind_on_disk, read_object
from rmcalib._util.texts import did_you_mean
from rmcalib.judges._registry import Recipe, hashed_recipe

_LISTED = "`rmcalib list models` has them"
_CACHED = re.compile(r"models--(.+?)--(.+)")
HEAD_NAMES = ("score", "classifier", "classification_head", "logits_proj")
"""Names of the head of stock classifiers."""
STOCK_HEADS = frozenset(f"{head}{end}" for head in HEAD_NAMES for end in (".weight", ".out_proj.weight"))
"""Names of the weight of a stock classifier's last layer."""


@dataclass(frozen=True)
class FoundRecipe:
    """The recipe of a model. `source` says how it was found; it is empty if the user or the registry named it."""

    recipe: Recipe
    source: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The files of a model in a folder that say which recipe it needs. Nothing is loaded."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return read_object(self.folder / "config.json")

    @cached_property
    def tensors(self) -> frozenset[str]:
        """The names of the checkpoint's tensors; empty if they are only known after loading."""
        for index in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
            table = read_object(self.folder / index).get("weight_map")
            if isinstance(table, dict):
                return frozenset(map(str, table))
        single = self.folder / "model.safetensors"
        if not single.is_file():
            return frozenset()
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(single, framework="np") as file:
                return frozenset(file.keys())
        except (OSError, ValueError, SafetensorError):  # loading reports a damaged file
            return frozenset()

    def has_head_of(self, recipe: Recipe) -> bool:
        """Return whether the head's files and tensors are those that a recipe names."""
        files = [file for file in (recipe.head_file, recipe.gate_file) if file is not None]
        if not all((self.folder / file).is_file() for file in files):
            return False
        patterns = [] if recipe.backbone_prefix is None else [rf"{re.escape(recipe.backbone_prefix)}\..*"]
        if not files and recipe.head not in ("auto", "own-code"):
            patterns.append(rf"{re.escape(recipe.head)}(\.\d+)?\.weight")
        return not self.tensors or all(
            any(re.fullmatch(pattern, name) for name in self.tensors) for pattern in patterns
        )

    def is_named_in(self, recipe: Recipe) -> bool:
        """Return whether the files have what a recipe's `recognised_by` says."""
        return bool(recipe.recognised_by) and all(
            set(self._values(field)) & set(wanted) for field, wanted in recipe.recognised_by.items()
        )

    def _values(self, field: str) -> Iterator[str]:
        """Yield the values of a field of config.json, the classes that it names, or the tensors' names."""
        if field == "tensor":
            yield from self.tensors
            return
        if field != "class":
            yield str(self.config.get(field))
            return
        architectures, auto_map = self.config.get("architectures"), self.config.get("auto_map")
        yield from map(str, architectures if isinstance(architectures, list) else ())
        for reference in auto_map.values() if isinstance(auto_map, Mapping) else ():
            yield str(reference).rpartition(".")[2]  # org/name--module.Class


def find_recipe(name: str, recipes: Mapping[str, Recipe], given: Recipe | str | None = None) -> FoundRecipe:
    """Return the recipe of a model: the given one, that of its name, of its folder, or of its files.

    `given` is a recipe, or the registered model whose recipe is to be used. Without any of these, the model is
    a classifier with one label.

    >>> recipes = {"org/rm": Recipe("org/rm", sign=-1.0)}
    >>> find_recipe("Org/RM", recipes).recipe.sign, find_recipe("org/other", recipes, "org/rm").recipe.sign
    (-1.0, -1.0)
    """
    if isinstance(given, str):
        model = registered_name(given, recipes)
        if model not in recipes:
            raise ValueError(f"recipe: no recipe of {given!r} ({did_you_mean(given, recipes, _LISTED)})")
        return FoundRecipe(dataclasses.replace(recipes[model], model=name))
    if given is not None and given != Recipe(name):
        return FoundRecipe(given)
    model = registered_name(name, recipes)
    if model in recipes:
        return FoundRecipe(recipes[model])
    if kind_on_disk(name) != "folder":
        return FoundRecipe(Recipe(name))
    return _of_folder(name, recipes) or FoundRecipe(Recipe(name))


def registered_name(name: str, registered: Iterable[str]) -> str:
    """Return the registered name that is equal to `name` but for upper and lower case, or else `name`.

    >>> registered_name("skywork/RM-8b", ["Skywork/RM-8B"])
    'Skywork/RM-8B'
    """
    names = list(registered)
    same = [each for each in names if each.lower() == name.lower()]
    return same[0] if len(same) == 1 and name not in names else name


def fitting_recipes(folder: Path, recipes: Mapping[str, Recipe]) -> list[str]:
    """Return the models whose recipes name a head that is in a folder, for messages."""
    snapshot = Snapshot(folder)
    return [
        model
        for model, recipe in recipes.items()
        if recipe.status != "unsupported"
        and (
            snapshot.is_named_in(recipe)
            or (recipe.head not in ("auto", "own-code") and snapshot.tensors and snapshot.has_head_of(recipe))
        )
    ]


def _of_folder(name: str, recipes: Mapping[str, Recipe]) -> FoundRecipe | None:
    """Return the recipe of a downloaded model; None if neither its name nor its files say which."""
    snapshot = Snapshot(Path(name))
    loadable = {model: recipe for model, recipe in recipes.items() if recipe.status != "unsupported"}
    for model in _named_by(Path(name), loadable):
        if snapshot.has_head_of(loadable[model]):
            recipe = dataclasses.replace(loadable[model], model=name)
            return FoundRecipe(recipe, f"the recipe of {model}, after the folder's name")
    fits = {
        model: recipe
        for model, recipe in loadable.items()
        if snapshot.is_named_in(recipe) and snapshot.has_head_of(recipe)
    }
    common = _common(name, list(fits.values()))
    if common is None:
        return None
    return FoundRecipe(common, f"the recipe of {' and '.join(fits)}, after its files")


def _named_by(folder: Path, recipes: Mapping[str, Recipe]) -> Iterator[str]:
    """Yield the registered models that a folder can be named after."""
    for path in dict.fromkeys((folder.absolute(), folder.resolve())):
        parts = path.parts[-3:]
        ids = ["/".join(match.groups()) for part in parts if (match := _CACHED.fullmatch(part))]
        ids += [path.name.replace("__", "/", 1), path.name.replace("--", "/", 1), "/".join(parts[-2:])]
        alone = [model for model in recipes if model.rpartition("/")[2].lower() == path.name.lower()]
        for model in [registered_name(each, recipes) for each in ids] + (alone if len(alone) == 1 else []):
            if model in recipes:
                yield model


def _common(name: str, recipes: list[Recipe]) -> Recipe | None:
    """Return what recipes that load a model in the same way have in common; None if they differ in that."""
    if not recipes or any(hashed_recipe(each) != hashed_recipe(recipes[0]) for each in recipes):
        return None
    fields = (field.name for field in dataclasses.fields(Recipe) if field.name != "model")
    values = {field: [getattr(each, field) for each in recipes] for field in fields}
    same = {field: every[0] for field, every in values.items() if all(value == every[0] for value in every)}
    return Recipe(name, **same)

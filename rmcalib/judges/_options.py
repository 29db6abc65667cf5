"""Options for loading and running Hugging Face models."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib.judges._registry import Recipe, recipe_for

__all__ = ["LoadOptions", "check_options", "refuse_local_options"]


@dataclass(frozen=True)
class LoadOptions:
    """Options for loading and running a reward model.

    Parameters
    ----------
    revision : str, optional
        Branch, tag or commit. The manifest has the commit.
    device : str
        `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. With `auto`, a model that is too large for one CUDA device
        is spread over all of them.
    dtype : str
        A name such as `bfloat16`, or `auto`: float32 on a CPU, otherwise the recipe's or the checkpoint's.
    max_length : int, optional
        The longest text in tokens. Default: the model's own limit, at most 4096.
    token_budget : int, optional
        The most tokens in one forward pass. Default: what free memory allows.
    compile : bool
        Compile the layers with `torch.compile`. This takes minutes, and is then faster on a GPU.
    trust_remote_code : bool
        Run the Python code that comes with the model.
    allow_pickle : bool
        Load pickle weights, which can run code, if there are no safetensors.
    recipe : Recipe, optional
        How to load the model. Default: its entry in the registry, or a classifier with one label.
    recipes : tuple[str | Path, ...]
        YAML files with more recipes.

    Examples
    --------
    >>> LoadOptions(device="cpu").dtype
    'auto'
    """

    revision: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    max_length: int | None = None
    token_budget: int | None = None
    compile: bool = False
    trust_remote_code: bool = False
    allow_pickle: bool = False
    recipe: Recipe | None = None
    recipes: tuple[str | Path, ...] = ()

    @classmethod
    def of(cls, options: LoadOptions | None = None, **changes: Any) -> LoadOptions:
        """Return `options` with some fields changed; unknown names are an error.

        >>> LoadOptions.of(devise="cpu")
        Traceback (most recent call last):
        ValueError: devise: unknown option (did you mean 'device'?)
        """
        check_options(changes, (field.name for field in dataclasses.fields(cls)))
        return dataclasses.replace(options or cls(), **changes)

    def recipe_for(self, name: str) -> Recipe:
        """Return the recipe of a model: `recipe` if it is given, otherwise the registry's."""
        return self.recipe or recipe_for(name, self.recipes)


def refuse_local_options(given: Iterable[str], allowed: Iterable[str] = ()) -> None:
    """Raise a `ValueError` for the first option of `LoadOptions` that has no effect on a served model.

    >>> refuse_local_options(["device"])
    Traceback (most recent call last):
    ValueError: device: has no effect on a served model: the server decides
    """
    local = {field.name for field in dataclasses.fields(LoadOptions)} - {*allowed}
    for name in given:
        if name in local:
            raise ValueError(f"{name}: has no effect on a served model: the server decides")


def check_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a `ValueError` for the first option that is not known."""
    allowed = list(known)
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"have: {', '.join(allowed)}"
            raise ValueError(f"{name}: unknown option ({remedy})")

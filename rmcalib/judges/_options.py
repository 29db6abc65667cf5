"""How to load and run a Hugging Face model: the options that travel together."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib.judges._registry import Recipe, recipe_for

__all__ = ["LoadOptions", "check_options"]


@dataclass(frozen=True)
class LoadOptions:
    """How to load and run a reward model.

    Parameters
    ----------
    revision : branch, tag or commit; the commit that it stands for is in the manifest.
    device : `auto`, `cpu`, `cuda`, `cuda:1` or `mps`. `auto` spreads a model that is too large for one CUDA
        device over all of them.
    dtype : `auto` (float32 on a CPU, else the recipe's or the checkpoint's) or a name such as `bfloat16`.
    max_length : longest text in tokens; default the model's own limit, at most 4096.
    token_budget : tokens in one forward pass; default what free memory allows.
    compile : compile the layers (`torch.compile`): some minutes at first, then faster on a GPU.
    trust_remote_code : run the Python code that comes with the model.
    allow_pickle : load pickle weights, which can run code, where there are no safetensors.
    recipe : how to read the model; default the registry's entry, or a plain one-label classifier.
    recipes : YAML files with more recipes for the registry.

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
        """Return `options` (default: the defaults) with some fields changed; unknown names are refused.

        >>> LoadOptions.of(devise="cpu")
        Traceback (most recent call last):
        ValueError: devise: unknown option (did you mean 'device'?)
        """
        check_options(changes, (field.name for field in dataclasses.fields(cls)))
        return dataclasses.replace(options or cls(), **changes)

    def recipe_for(self, name: str) -> Recipe:
        """Return the recipe of a model: the one given, or the registry's."""
        return self.recipe or recipe_for(name, self.recipes)


def check_options(given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a `ValueError` that names the first option that is not known."""
    allowed = list(known)
    for name in given:
        if name not in allowed:
            near = difflib.get_close_matches(name, allowed, n=1)
            remedy = f"did you mean {near[0]!r}?" if near else f"have: {', '.join(allowed)}"
            raise ValueError(f"{name}: unknown option ({remedy})")

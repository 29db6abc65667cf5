"""What is known of the scale of a model's rewards: are they utilities, so that a softmax means something?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from rmcalib.judges._registry import Recipe, recipe_from
from rmcalib.scores import Scores

__all__ = ["recipe_of_run", "remember_model", "scale_note", "why_no_calibration"]

_ABOUT = ("loss", "evidence", "bradley_terry", "parameters", "note")


def recipe_of_run(model: str, manifest: Mapping[str, Any], known: Mapping[str, Recipe]) -> Recipe:
    """Return what is known of the model of a run: what ``known`` says, else what its manifest remembers.

    ``known`` is a :func:`~rmcalib.judges._registry.registry`, with the user's files. It comes first, because
    what is known of a model can be put right after it was scored.

    >>> told = {"about_model": {"loss": "quantile regression", "bradley_terry": "no"}}
    >>> recipe_of_run("org/rm", told, {}).loss
    'quantile regression'
    >>> recipe_of_run("org/rm", told, {"org/rm": Recipe("org/rm", loss="ranking")}).loss
    'ranking'
    """
    told = manifest.get("about_model")
    if model in known or not isinstance(told, Mapping):
        return known.get(model) or Recipe(model)
    about = {name: told[name] for name in _ABOUT if name in told}
    return recipe_from({"model": model, **about}, "about_model in the manifest of a run")


def remember_model(scores: Scores, recipe: Recipe) -> Scores:
    """Return scores that were made elsewhere with a manifest that remembers what is known of the model."""
    about = {name: getattr(recipe, name) for name in _ABOUT}
    return dataclasses.replace(scores, manifest={**scores.manifest, "about_model": about})


def why_no_calibration(recipe: Recipe) -> str | None:
    """Return why a model's rewards are no Plackett-Luce utilities at all, or None if they can be read so.

    >>> why_no_calibration(Recipe("org/rm")) is None
    True
    """
    if recipe.bradley_terry == "no" and "quantile" in recipe.loss.lower():
        return f"its outputs are not Plackett-Luce utilities ({recipe.loss})"
    return None


def scale_note(recipe: Recipe) -> str:
    """Return what a reader should know about the scale of a model's rewards; empty for Bradley-Terry ones.

    >>> scale_note(Recipe("org/rm", bradley_terry="no", loss="attribute regression"))
    'not trained on a Bradley-Terry scale (attribute regression): a softmax of its rewards means little'
    """
    if recipe.bradley_terry == "no":
        return f"not trained on a Bradley-Terry scale ({recipe.loss}): a softmax of its rewards means little"
    if recipe.bradley_terry == "modified":
        return f"trained with a modified Bradley-Terry loss ({recipe.loss})"
    return ""

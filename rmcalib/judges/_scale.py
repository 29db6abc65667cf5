"""The scale of a judge's rewards: is a softmax of them meaningful?"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

from rmcalib.judges._judge import SCALES, Scale
from rmcalib.judges._registry import Recipe, recipe_from
from rmcalib.scores import Scores

__all__ = ["about_model", "recipe_of_run", "remember_model", "scale_note", "scale_of", "why_no_calibration"]

_ABOUT = ("loss", "evidence", "bradley_terry", "parameters", "note")
_BY_LOSS: dict[str, Scale] = {"yes": "log-utilities", "modified": "log-utilities", "no": "ratings"}


def scale_of(recipe: Recipe) -> Scale:
    """Return the scale of a model's rewards: its recipe's `scale`, or what follows from `bradley_terry`.

    >>> scale_of(Recipe("org/rm", bradley_terry="yes")), scale_of(Recipe("org/rm"))
    ('log-utilities', 'unknown')
    """
    return cast("Scale", recipe.scale) if recipe.scale else _BY_LOSS.get(recipe.bradley_terry, "unknown")


def recipe_of_run(model: str, manifest: Mapping[str, Any], known: Mapping[str, Recipe]) -> Recipe:
    """Return what is known about the judge of a run.

    Parameters
    ----------
    model : str
        Name of the judge.
    manifest : Mapping[str, Any]
        Manifest of the run.
    known : Mapping[str, Recipe]
        Recipes by model, as `registry` returns them.

    Returns
    -------
    Recipe
        For a classifier, the known recipe, because it may have been corrected since the run. If there is
        none, what the manifest says (`about_model`). For other judges, a recipe with the `scale` that the
        manifest states.

    Examples
    --------
    >>> manifest = {"about_model": {"loss": "quantile regression", "bradley_terry": "no"}}
    >>> recipe_of_run("org/rm", manifest, {}).loss
    'quantile regression'
    >>> recipe_of_run("org/rm", manifest, {"org/rm": Recipe("org/rm", loss="ranking")}).loss
    'ranking'
    >>> recipe_of_run("mine", {"scale": "ratings"}, {}).scale
    'ratings'
    """
    about, scale = manifest.get("about_model"), manifest.get("scale")
    if isinstance(about, Mapping) and model not in known:
        stored = {name: about[name] for name in (*_ABOUT, "scale") if name in about}
        return recipe_from({"model": model, **stored}, "about_model in the manifest of a run")
    recipe = known.get(model) or Recipe(model)
    # Scores that are not rewards have the scale of their kind, whatever loss the model was trained with.
    stated = ("score_kind" in manifest or not isinstance(about, Mapping)) and scale in SCALES
    return dataclasses.replace(recipe, scale=scale) if stated else recipe


def remember_model(scores: Scores, recipe: Recipe) -> Scores:
    """Add what is known about a model to the manifest of scores that were made elsewhere.

    Parameters
    ----------
    scores : Scores
        The scores.
    recipe : Recipe
        The recipe of their model.

    Returns
    -------
    Scores
        The same scores, with `about_model` in the manifest.

    Examples
    --------
    >>> scores = remember_model(Scores.from_arrays([[1.0, 0.0]]), Recipe("org/rm", loss="ranking"))
    >>> scores.manifest["about_model"]["loss"]
    'ranking'
    """
    return dataclasses.replace(scores, manifest={**scores.manifest, "about_model": about_model(recipe)})


def about_model(recipe: Recipe) -> dict[str, Any]:
    """Return what a manifest says about a model that was not loaded here.

    >>> about_model(Recipe("org/rm", loss="ranking"))["loss"]
    'ranking'
    """
    about = {name: getattr(recipe, name) for name in _ABOUT}
    return about if recipe.scale is None else {**about, "scale": recipe.scale}


def why_no_calibration(recipe: Recipe) -> str | None:
    """Return why calibration cannot be measured from a judge's rewards.

    Parameters
    ----------
    recipe : Recipe
        What is known about the judge.

    Returns
    -------
    str or None
        The reason why a softmax of the rewards is meaningless. None if calibration can be measured.

    Examples
    --------
    >>> why_no_calibration(Recipe("org/rm")) is None
    True
    >>> why_no_calibration(Recipe("mine", scale="probabilities"))
    'its rewards are probabilities of single responses: a softmax needs their logits'
    """
    if recipe.scale == "probabilities":
        return "its rewards are probabilities of single responses: a softmax needs their logits"
    if recipe.scale == "pairs":
        return "it compares two responses at a time: only pairs are measured"
    if recipe.scale is None and recipe.bradley_terry == "no" and "quantile" in recipe.loss.lower():
        return f"its outputs are not Plackett-Luce utilities ({recipe.loss})"
    return None


def scale_note(recipe: Recipe) -> str:
    """Return a note for reports about the scale of a judge's rewards.

    Parameters
    ----------
    recipe : Recipe
        What is known about the judge.

    Returns
    -------
    str
        A warning if a softmax of the rewards is doubtful; empty for log-utilities.

    Examples
    --------
    >>> scale_note(Recipe("org/rm", bradley_terry="no", loss="attribute regression"))
    'not trained on a Bradley-Terry scale (attribute regression): a softmax of its rewards means little'
    >>> scale_note(Recipe("mine", scale="ratings"))
    'its rewards are ratings: a softmax of them means little'
    """
    if recipe.scale is not None:
        return "its rewards are ratings: a softmax of them means little" if recipe.scale == "ratings" else ""
    if recipe.bradley_terry == "no":
        return f"not trained on a Bradley-Terry scale ({recipe.loss}): a softmax of its rewards means little"
    if recipe.bradley_terry == "modified":
        return f"trained with a modified Bradley-Terry loss ({recipe.loss})"
    return ""

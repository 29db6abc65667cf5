"""What rewards are and what labels mean: the two facts that scores carry, and what follows from them.

Both facts are decided once, where scores come in. `refusal` is the only place that says what can be measured
with them, and why not; every command asks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_choice
from rmcalib._util.texts import parse_yaml

Kind = Literal["utility", "log_odds", "probability", "rating", "pairs", "none"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Labels = Literal["best", "correct", "votes"]
View = Literal["top_1", "pointwise"]
Use = Literal["top_1", "pointwise", "pairs", "fit", "apply"]
_MOSTLY = 0.9  # bare 0/1 labels name the best response if at least this fraction of prompts has exactly one 1
_LEADERBOARD = Path(__file__).parents[1] / "judges" / "leaderboard.yaml"


@dataclass(frozen=True)
class Scale:
    """What rewards are.

    Attributes
    ----------
    kind : {"utility", "log_odds", "probability", "rating", "pairs", "none"}
        ``utility``: the softmax of a prompt's rewards is P(the response is the best), as in a Bradley-Terry
        model. ``log_odds``: the sigmoid of a reward is P(the response is correct). ``probability``: the numbers
        were probabilities; `of` says which, and the rewards are their logarithms (best) or log-odds (correct).
        ``rating``: grades, whose differences mean little. ``pairs``: only P(one response beats another) is
        known. ``none``: the rewards order the responses and state nothing more.
    reason : str
        How it is known, or why there are no probabilities.
    assumed : bool
        Whether it was assumed.
    of : {"best", "correct"}
        What a ``probability`` is the probability of.

    Examples
    --------
    >>> Scale("rating", "grades from 1 to 10").kind, Scale().assumed
    ('rating', True)
    """

    kind: Kind = "utility"
    reason: str = ""
    assumed: bool = False
    of: Literal["best", "correct"] = "best"

    def __post_init__(self) -> None:
        """Check the kind; a scale without a reason is assumed."""
        check_choice(self.kind, "scale", KINDS)
        check_choice(self.of, "scale: of", ("best", "correct"))
        if not self.reason:
            object.__setattr__(self, "assumed", True)

    @property
    def states_correct(self) -> bool:
        """Whether the sigmoid of a reward is meant to be P(the response is correct)."""
        return self.kind == "log_odds" or (self.kind == "probability" and self.of == "correct")


def as_scale(given: Any, reason: str = "") -> Scale:
    """Return a scale from what a manifest or a judge has: a scale, its fields, its kind, or nothing."""
    if isinstance(given, Scale):
        return given
    if isinstance(given, Mapping):
        return Scale(**{name: given[name] for name in ("kind", "reason", "assumed", "of") if name in given})
    return Scale(given, reason or "stated by the judge") if given in KINDS else Scale()


def view_of(labels: Labels | None) -> View:
    """Return how labels are read: one response of a prompt is the best, or each is correct or not."""
    return "pointwise" if labels == "correct" else "top_1"


def refusal(scale: Scale, labels: Labels | None, use: Use) -> str | None:
    """Return why scores cannot be used in some way; None if they can.

    Parameters
    ----------
    scale : Scale
        What the rewards are.
    labels : {"best", "correct", "votes"}, optional
        What the labels mean; None without labels.
    use : {"top_1", "pointwise", "pairs", "fit", "apply"}
        ``top_1`` and ``pointwise``: compare stated probabilities with labels, in the view of this name.
        ``pairs``: the same for pairs of responses. ``fit``: find the scale on which rewards become
        probabilities. ``apply``: turn rewards into probabilities by a calibrator, without labels.

    Returns
    -------
    str or None

    Examples
    --------
    >>> refusal(Scale("pairs"), "best", "top_1")
    'it compares two responses at a time: only pairs are measured'
    >>> refusal(Scale("utility"), "best", "top_1") is None
    True
    """
    if use != "apply" and labels is None:
        return 'there are no labels (labels="FILE" joins some; `rmcalib label` draws prompts to label)'
    if scale.kind == "pairs":
        return None if use == "pairs" else "it compares two responses at a time: only pairs are measured"
    if scale.kind == "none":
        return f"its rewards state no probabilities{f' ({scale.reason})' if scale.reason else ''}"
    if use in ("top_1", "pairs") and labels == "correct":
        return "labels are correct or not, response by response: there is no best response of a prompt"
    if use == "pointwise" and not (scale.states_correct or (scale.kind == "utility" and scale.assumed)):
        what = {"rating": "a rating", "probability": "a probability of being the best"}.get(
            scale.kind, "a Bradley-Terry reward"
        )
        return f"{what} states nothing about a single response until a calibrator is fitted (`rmcalib calibrate`)"
    return None


def scale_note(scale: Scale) -> str:
    """Return a warning for reports if a softmax of the rewards is doubtful; empty otherwise.

    >>> scale_note(Scale("rating", "grades from 1 to 10"))
    'its rewards are ratings (grades from 1 to 10): a softmax of them means little'
    """
    if scale.kind == "rating":
        return f"its rewards are ratings ({scale.reason}): a softmax of them means little"
    return scale.reason if "modified" in scale.reason else ""


def meaning_of_labels(
    label: FloatArray, starts: IntArray, named: Labels | None, *, untied: BoolArray | None = None
) -> tuple[Labels | None, str]:
    """Return what labels (N,) mean, and how that was decided.

    ``named`` is what the column's name or the source says. ``untied`` (n,) is whether a prompt is meant to have
    one right answer; those of RewardBench 2's Ties are not.
    """
    labelled = ~np.isnan(label)
    if not labelled.any():
        return None, ""
    if named in ("best", "votes"):
        return named, "by its column or source"
    sizes = np.diff(np.append(starts, len(label)))
    counted = (np.add.reduceat(labelled, starts, dtype=np.int64) == sizes) & (sizes > 1)
    if untied is not None and (counted & untied).any():
        counted &= untied
    n = int(counted.sum())
    single = int((np.add.reduceat(label == 1, starts, dtype=np.int64) == 1)[counted].sum())
    count = f"{single:,} of {n:,} prompts have exactly one correct response"
    if named == "correct":
        # If every prompt has exactly one correct response, it is the best one.
        return ("best", count) if n and single == n else ("correct", "by its column or source")
    return ("best" if n and single >= _MOSTLY * n else "correct"), count


@lru_cache(maxsize=1)
def _leaderboard() -> dict[str, dict[str, Any]]:
    """Return what the registry says about known models, by name. It is data: no judge is imported."""
    content = parse_yaml(_LEADERBOARD.read_bytes(), _LEADERBOARD.name)
    return {str(entry["model"]): entry for entry in content["models"]}


def scale_by_loss(loss: str, bradley_terry: Any, stated: Any = None) -> Scale:
    """Return the scale of a classifier from how it was trained.

    >>> scale_by_loss("regression", "no").kind, scale_by_loss("pairwise", "yes").kind
    ('rating', 'utility')
    """
    if stated is not None:
        return as_scale(stated, f"by its recipe ({loss})")
    trained = {True: "yes", False: "no"}.get(bradley_terry, bradley_terry)
    if trained == "no":
        return Scale("rating", f"not trained on a Bradley-Terry scale ({loss})")
    if trained == "modified":
        return Scale("utility", f"trained with a modified Bradley-Terry loss ({loss})")
    return Scale("utility", f"trained with a Bradley-Terry loss ({loss})") if trained == "yes" else Scale()


def registered_scale(model: str) -> Scale | None:
    """Return the scale of a registered model; None for others."""
    entry = _leaderboard().get(model)
    if entry is None:
        return None
    return scale_by_loss(
        entry.get("loss", "unknown"), entry.get("bradley_terry", "unknown"), entry.get("scale")
    )


def family_of(model: str) -> str:
    """Return the family of a model, whose members are not independent: of the registry, or its owner."""
    return str(_leaderboard().get(model, {}).get("family") or model.partition("/")[0])


def scale_of_manifest(manifest: Mapping[str, Any]) -> Scale:
    """Return what rewards are, by their manifest.

    The registry wins over what a run recorded, because a recipe may have been corrected since. It does not
    know scores that are not the model's rewards (``score_kind``): those keep what was stated.
    """
    if "score_kind" not in manifest and "model" in manifest:
        registered = registered_scale(str(manifest["model"]))
        if registered is not None and not registered.assumed:
            return registered
    return as_scale(manifest.get("scale"))

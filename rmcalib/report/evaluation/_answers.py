"""Notes on the answers of a language model that judges."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

import numpy as np

from rmcalib._util.terminal import count
from rmcalib.judges import answers_summary
from rmcalib.scores import Scores

__all__ = ["answer_notes"]

_LITTLE_MASS = 0.5


def answer_notes(scores: Scores) -> list[str]:
    """Return notes on position bias, answers that could not be read, and labels without a probability.

    >>> answer_notes(Scores.from_arrays([[1.0, 0.0]]))
    []
    """
    found = answers_summary(scores)
    if not found:
        return []
    notes = [_place_note(found["places"])] if "places" in found else []
    graded = int(np.isnan(scores.details["place"])[scores.offsets[:-1]].sum()) if "places" in found else 0
    if graded and "votes" not in found:
        notes.append(
            f"{count(graded, 'prompt')} got a grade for each response, without a comparison. A softmax of "
            "grades has little meaning."
        )
    unread, answers = found["unread"], found["answers"]
    if unread:
        notes.append(
            f"{unread:,} of {answers:,} answers ({unread / answers:.1%}) could not be read. They are not "
            "counted, so the forecasts of their prompts are closer to uniform."
        )
    if found["floored"]:
        notes.append(
            f"The server did not return {found['floored']:,} log-probabilities. They are set to their upper "
            f"bounds, so probabilities are off by at most {found['largest_floor']:.1g}."
        )
    if found.get("label_mass", 1.0) < _LITTLE_MASS:
        notes.append(
            f"The labels have only {found['label_mass']:.1%} of the next token's probability: the judge "
            "tends to write something else first. Use sampled answers instead (--judge votes)."
        )
    if "votes" in found:
        fewest, mean, most = found["votes"]
        counted = f"{fewest}" if fewest == most else f"{fewest} to {most} (mean {mean:.1f})"
        notes.append(f"Forecasts are smoothed fractions of {counted} votes per question.")
    return notes


def _place_note(places: dict[str, Any]) -> str:
    means = places["mean_probability"]
    errors = [error for error in places["standard_error"] if error is not None]
    spread = f" (standard errors up to {max(errors):.3f})" if errors else ""
    by_place = ", ".join(f"{letter} {mean:.3f}" for letter, mean in zip(ascii_uppercase, means, strict=False))
    moves = places.get("choice_moves")
    moved = f" The answers to {moves:.0%} of the prompts depend on the order or the sample." if moves else ""
    return (
        f"Position bias: the mean probability by place is {by_place}, where {1 / len(means):.3f} would be "
        f"fair{spread}; {places['prompts']:,} prompts. Forecasts are averaged over the orders.{moved}"
    )

"""Notes on scores: what readers should know about them before they believe a number."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

import numpy as np

from rmcalib._util.display import percent
from rmcalib._util.terminal import clean_line, count
from rmcalib.benchmarks import Benchmark
from rmcalib.judges import Recipe
from rmcalib.judges._readings import answers_summary
from rmcalib.judges._registry import scale_note, why_no_calibration
from rmcalib.metrics.texts import disagreements
from rmcalib.metrics.views import Part
from rmcalib.scores import Scores

_LITTLE_MASS = 0.5
_CROWDED = 0.8  # of all probabilities in one bin
_READ_AS = {
    "reward": "rewards",
    "probability": "probabilities",
    "logprob": "log-probabilities",
    "rating": "ratings",
    "logit": "rewards that went through a sigmoid",
}


def meaning_sentence(manifest: dict[str, Any]) -> str:
    """Return what the numbers looked like and how they were read; empty if there is nothing to say."""
    found = manifest.get("meaning")
    if not isinstance(found, dict):
        return ""
    if found.get("asked"):
        rated = found.get("measured_as") == "rating"
        return (
            "Its numbers are ratings: a softmax of them means little before a temperature is fitted."
            if rated
            else ""
        )
    looks, used = str(found.get("looks_like")), str(found.get("measured_as"))
    if looks == "reward":
        return ""
    evidence = {
        "sum to 1": "sum to 1 in every prompt",
        "sum to 100": "sum to 100 in every prompt",
        "exponentials sum to 1": "are logarithms of numbers that sum to 1",
        "all from 0 to 1": "are all from 0 to 1",
        "none above 0": "are never above 0",
    }.get(str(found.get("evidence")), f"look like {clean_line(found.get('evidence'))}")
    if used == looks:
        return f"The numbers {evidence}, so they were read as {_READ_AS[used]} (--scale reward undoes that)."
    return (
        f"The numbers {evidence} but were read as rewards: if they are {_READ_AS.get(looks, looks)}, "
        f"say --scale {looks}."
    )


def score_notes(
    scores: Scores,
    benchmark: Benchmark | None,
    recipe: Recipe,
    whole: Part,
    *,
    in_characters: bool,
    pointwise: bool,
) -> list[str]:
    """Return notes on scale, undecided prompts, cut and empty responses, equal rewards, lengths and dtype."""
    notes = []
    reason, mark = why_no_calibration(recipe), scale_note(recipe)
    if reason:
        start = "Top-1 calibration" if recipe.scale == "pairs" else "Calibration"
        notes.append(f"{start} is not measured: {reason}. Accuracy does not need it.")
    elif mark:
        notes.append(f"{mark[0].upper()}{mark[1:]}.")
    notes += [clean_line(str(note)) for note in scores.manifest.get("notes") or ()]
    notes += _decided_notes(whole, pointwise=pointwise)
    if not reason:
        notes += _crowded_notes(whole)
    notes += _answer_notes(scores)
    cut = int(scores.truncated.sum())
    if cut:
        limit = scores.manifest.get("max_length")
        at = f" at {limit} tokens" if limit else ""
        notes.append(
            f"{cut} of {len(scores)} responses ({cut / len(scores):.1%}) were cut{at} and scored without "
            "their end."
        )
    counts = scores.manifest.get("counts") or {}
    empty = benchmark.n_empty if benchmark is not None else counts.get("empty", 0)
    if empty:
        were = "is empty; it was" if empty == 1 else "are empty; they were"
        notes.append(f"{count(empty, 'response')} {were} scored like the others.")
    if recipe.scale != "pairs":  # verdicts on pairs are often equal
        notes += _shared_rewards(scores)
    if benchmark is not None:
        notes += disagreements(scores, benchmark)
    if in_characters:
        notes.append("Lengths are in characters of the response.")
    elif (scores.n_tokens >= 0).all():
        notes.append("Lengths are in tokens of prompt and response.")
    if "dtype" in scores.manifest:
        notes.append(
            f"Scored in {clean_line(scores.manifest['dtype'])}. Other dtypes can change probabilities by a few "
            "hundredths."
        )
    return notes


def _decided_notes(whole: Part, *, pointwise: bool) -> list[str]:
    """Return which prompts the headline leaves out, and how votes for "equally good" are counted."""
    decided, one = whole.prompts("all"), whole.prompts("one")
    undecided = len(whole) - (0 if decided is None else len(decided))
    several = (0 if decided is None else len(decided)) - (0 if one is None else len(one))
    notes = []
    if undecided and not pointwise:
        notes.append(
            f"{count(undecided, 'prompt')} where no response, or every one, is correct, or labels are missing: left "
            "out where one must be."
        )
    if several and not pointwise:
        notes.append(
            f"{count(several, 'prompt')} with several correct responses, or of Ties: not part of says, right "
            "and gap."
        )
    if whole.scores.ties is not None and whole.scores.ties.any():
        how = "left out" if whole.ties == "drop" else "forecast by Davidson's model"
        notes.append(f"Votes for “equally good” are {how}.")
    return notes


def _crowded_notes(whole: Part) -> list[str]:
    """Warn if most probabilities lie in one bin, where the ECE hides errors."""
    one = whole.prompts("one")
    if one is None:
        return []
    counts, edges = np.histogram(one.top_1.p, 10, (0.0, 1.0))
    fullest = int(counts.argmax())
    share = counts[fullest] / counts.sum()
    if share < _CROWDED:
        return []
    return [
        f"{percent(float(share))} of all probabilities are in one bin of the ECE ({edges[fullest]:.3g} to "
        f"{edges[fullest + 1]:.3g}), where it hides errors. Use the gap."
    ]


def _shared_rewards(scores: Scores) -> list[str]:
    prompt = np.repeat(np.arange(scores.n_items), np.diff(scores.offsets))
    order = np.lexsort((scores.reward, prompt))
    same = (np.diff(prompt[order]) == 0) & (np.diff(scores.reward[order]) == 0)
    shared = np.concatenate([[False], same]) | np.concatenate([same, [False]])
    if not shared.any():
        return []
    return [
        f"{count(int(shared.sum()), 'response')} share their reward with another response to the same prompt "
        "(common with 16-bit dtypes). A tie of t responses counts as 1/t right."
    ]


def _answer_notes(scores: Scores) -> list[str]:
    """Return notes on position bias, answers that could not be read, and labels without a probability."""
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
            "tends to write something else first. Use sampled answers instead (-J judging=votes)."
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

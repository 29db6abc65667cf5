"""Every sentence about a result, written once. A sentence claims only what a test or an interval shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util.display import number, p_value, percent, points, temperature_text
from rmcalib._util.terminal import clean_line, count
from rmcalib.judges._prompts import answers_summary
from rmcalib.judges._registry import scale_note, why_no_calibration
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.table import OVERALL, disagreements, find_value
from rmcalib.metrics.views import FEWEST, Part

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.judges import Recipe
    from rmcalib.report.evaluation import Evaluation
    from rmcalib.scores import Scores

Row = Mapping[str, Any]
Rows = Sequence[Row]
HEADLINE = {
    "mean_confidence": "says",
    "accuracy": "right",
    "overconfidence": "gap in points",
    "kept_information": "kept information",
    "lost_information": "lost information",
    "usable_information": "usable information",
}
"""The first metrics of every table, with their headings."""
PAIRS = {
    "pairwise_confidence": "says in pairs",
    "pairwise_accuracy": "right in pairs",
    "pairwise_overconfidence": "gap in pairs",
}
_REVERSED = "its order looks reversed: are the labels or the sign of the rewards swapped?"
_NAMES = {"ece_score": "ECE (ece_score)", "abs_log_temperature": "|log T|"}
_LITTLE_MASS = 0.5
_CROWDED = 0.8  # of all probabilities in one bin
_READ_AS = {
    "reward": "rewards",
    "probability": "probabilities",
    "logprob": "log-probabilities",
    "rating": "ratings",
    "logit": "rewards that went through a sigmoid",
}


def metric_name(metric: str) -> str:
    """Return the label of a metric in the catalogue; other names unchanged."""
    found = catalogue().get(metric)
    return _NAMES.get(metric, metric) if found is None else found.label


def direction(gap: float) -> str:
    """Name the sign of a gap."""
    return "over-confident" if gap > 0 else "under-confident"


def outside_zero(row: Row | None) -> bool:
    """Return whether the interval of a row leaves out zero."""
    return row is not None and row["low"] is not None and bool(row["low"] > 0 or row["high"] < 0)


def _verdict(gap: Row, unit: str = "prompt") -> str:
    """Return what a gap shows; nothing about a handful of prompts."""
    if gap["n"] < FEWEST:
        return f"{count(gap['n'], unit)} are too few for a verdict"
    if outside_zero(gap):
        return f"{direction(gap['value'])} by {points(gap, sign=False, unit=' points')}"
    return f"not shown to be over- or under-confident (gap {points(gap, unit=' points')})"


def p_text(value: float, floor: float | None = None) -> str:
    """Return a p-value as "p = 0.123" or "p < 0.001"."""
    text = p_value(value, floor)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


# Evaluations.


def evaluation_sentences(evaluation: Evaluation) -> list[str]:
    """Return the result of an evaluation: the verdict first, then information, repair, groups, the check."""
    rows, facts = evaluation.rows, evaluation.facts
    found = [_meaning_sentence(evaluation.manifest)]
    n = facts["one_answer"]
    if facts["view"] == "pointwise":
        found += _pointwise_sentences(rows)
    else:
        found += _vote_sentences(rows)
        if n == 1:
            found.append("One prompt shows nothing about calibration.")
        elif n:
            found.append(_reversed_sentence(rows, facts))
            if _known(rows, "overconfidence") is None:
                found += _uncalibrated_sentences(rows, facts)
            else:
                found.append(_gap_sentence(rows, facts))
                if n >= FEWEST:
                    found += [_information_sentence(rows), _temperature_sentence(rows, facts)]
                    found += [_groups_sentence(evaluation.groups), _check_sentence(evaluation)]
        elif not any(found):
            found.append(_nothing_sentence(facts))
    return [sentence for sentence in found if sentence] or [_values_sentence(rows)]


def _meaning_sentence(manifest: Row) -> str:
    """Return what the numbers looked like and how they were read; empty if there is nothing to say."""
    found = manifest.get("meaning")
    if not isinstance(found, dict):
        return ""
    looks, used = str(found.get("looks_like")), str(found.get("measured_as"))
    if found.get("asked"):
        little = "Its numbers are ratings: a softmax of them means little before a temperature is fitted."
        return little if used == "rating" else ""
    if looks == "reward":
        return ""
    start = f"The numbers look like {_READ_AS.get(looks, looks)} ({clean_line(found.get('evidence'))})"
    if used == looks:
        return f"{start} and were read as such (--scale reward undoes that)."
    return f"{start} but were read as rewards; if that is wrong, say --scale {looks}."


def _nothing_sentence(facts: Row) -> str:
    """Say why there is nothing to measure, and what to give."""
    if facts["prompts"] == facts["responses"]:
        return (
            "Every prompt has one response, and their labels are all the same, so there is nothing to compare: give "
            "two or more responses per prompt, or labels of correct and of wrong ones."
        )
    return (
        "No prompt has exactly one correct response, so it cannot be measured how often its choice is right: label "
        "one response per prompt as the best one."
    )


def _gap_sentence(rows: Rows, facts: Row) -> str:
    says, right, gap = (_known(rows, name) for name in ("mean_confidence", "accuracy", "overconfidence"))
    if gap is None or says is None or right is None:
        return "" if gap is None else f"Its gap is {points(gap, unit=' points')}."
    start = f"It says {percent(says['value'])} and is right {percent(right['value'])} of the time"
    if gap["n"] < FEWEST:
        of = f" of {facts['clusters']:,} questions" if facts["clusters"] else ""
        return f"{start}, but {count(gap['n'], 'prompt')}{of} are too few for a verdict."
    if outside_zero(gap):
        return f"{start}: {_verdict(gap)}."
    if facts["cancels"] is not None and facts["cancels"] < 0.05:
        return (
            f"{start}, but errors of both signs cancel in this gap of {points(gap, unit=' points')}: it is "
            "over-confident on some prompts and under-confident on others."
        )
    least = facts["smallest_gap"]
    shown = f"{count(gap['n'], 'prompt')} would show a gap of {100 * (least or 0):.1f} points in 4 of 5 cases"
    return f"{start}: {_verdict(gap)}." + (f" {shown}." if least else "")


def _reversed_sentence(rows: Rows, facts: Row) -> str:
    """Say that a model is right less often than a random choice, and ask about the labels if pairs are, too."""
    right, pairs, chance = _known(rows, "accuracy"), _known(rows, "pairwise_accuracy"), facts["chance"]
    if right is None or right["high"] is None or chance is None or right["n"] < 5 or right["high"] >= chance:
        return ""
    start = f"It is right {percent(right['value'])} of the time, less often than a random choice ({percent(chance)})"
    if pairs is not None and (pairs["high"] is None or pairs["high"] >= 0.5):
        return f"{start}."
    return f"{start}: {_REVERSED}"


def _information_sentence(rows: Rows) -> str:
    kept, lost, usable = (_known(rows, f"{name}_information") for name in ("kept", "lost", "usable"))
    if kept is None or lost is None or usable is None:
        return ""
    start = f"Its probabilities keep {_share(kept)} of the information that decides a prompt"
    if kept["high"] is not None and kept["high"] < 0:
        start = f"Its probabilities are worse than a uniform guess (kept information {_share(kept)})"
    elif kept["low"] is not None and kept["low"] <= 0:
        start = f"Its probabilities are not shown to be better than a uniform guess (kept information {_share(kept)})"
    if lost["low"] is not None and lost["low"] <= 0:
        return f"{start}; their scale is not shown to be off."
    if usable["low"] is not None and usable["low"] <= 0:
        return f"{start}; its rewards are not shown to say anything at any scale."
    return f"{start}; its rewards would give {_share(usable)} at their best scale."


def temperature_helps(rows: Rows, facts: Row) -> bool:
    """Return whether a temperature is shown to lower the log loss on other prompts."""
    gain = facts["gain"]
    return _known(rows, "temperature") is not None and gain is not None and bool(gain["low"] > 0)


def _temperature_sentence(rows: Rows, facts: Row) -> str:
    best, gain = _known(rows, "temperature"), facts["gain"]
    if best is None:
        return ""
    if not temperature_helps(rows, facts):
        return "A temperature is not shown to help."
    around = (
        "" if best["low"] is None else f" [{temperature_text(best['low'])}, {temperature_text(best['high'])}]"
    )
    return (
        f"Dividing its rewards by T = {temperature_text(best['value'])}{around} is estimated to lower the log "
        f"loss on other prompts by {number(gain['value'])} [{number(gain['low'])}, {number(gain['high'])}]."
    )


def _groups_sentence(groups: Rows) -> str:
    """Name the groups whose gap differs from 0 after the correction for looking at many."""
    flagged = [row for row in groups if row["flagged"]]
    if len(groups) < 2:
        return ""
    looked = f"corrected for looking at {count(len(groups), 'group')}"
    if not flagged:
        return f"No group is shown to be over- or under-confident ({looked})."
    ordered = sorted(flagged, key=lambda row: -abs(row["pooled"] or row["gap"]))
    named = [
        f"{clean_line(row['group'])} ({100 * (row['pooled'] or row['gap']):+.0f})" for row in ordered[:3]
    ]
    more = f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
    return f"Gaps beyond chance, {looked}: {', '.join(named)}{more}."


def _check_sentence(evaluation: Evaluation) -> str:
    """Return the check that does not cancel: the ECE of the first choice, and what a calibrated model shows."""
    error, null, p = (
        _known(evaluation.rows, f"confidence_ece{end}") for end in ("", "_null_mean", "_p_value")
    )
    if error is None or null is None or p is None:
        return ""
    shown = p_text(p["value"], 1 / (evaluation.settings.resamples + 1))
    return (
        f"Check: its confidence ECE is {number(error['value'])}; a calibrated model would show about "
        f"{number(null['value'])} ({shown})."
    )


def _uncalibrated_sentences(rows: Rows, facts: Row) -> list[str]:
    says, right, gap = (
        _known(rows, f"pairwise_{name}") for name in ("confidence", "accuracy", "overconfidence")
    )
    whole = _known(rows, "accuracy")
    found = []
    if says is not None and right is not None and gap is not None:
        found.append(
            f"In pairs it says {percent(says['value'])} and is right {percent(right['value'])} of the time: "
            f"{_verdict(gap)}."
        )
    if whole is not None:
        found.append(f"Its first choice is right {percent(whole['value'])} of the time.")
    if facts["no_calibration"] and not found:
        found.append(f"Its calibration is not measured: {facts['no_calibration']}.")
    return found


def _pointwise_sentences(rows: Rows) -> list[str]:
    says, right, gap = (_known(rows, f"pointwise_{name}") for name in ("confidence", "accuracy", "gap"))
    order, best, chance = (
        _known(rows, name) for name in ("within_prompt_auroc", "best_of_n", "best_of_n_chance")
    )
    found = []
    if says is not None and right is not None and gap is not None:
        found.append(
            f"Response by response it says {percent(says['value'])} and {percent(right['value'])} are correct: "
            f"{_verdict(gap, 'response')}."
        )
        fitted = _known(rows, "gap_fitted")
        if fitted is not None:
            found.append(
                "A model that was trained on pairs states nothing about single responses; with b and T fitted on "
                f"other prompts the gap is {points(fitted, unit=' points')}."
            )
    if order is not None:
        beats = f"Within a prompt, a correct response beats a wrong one {percent(order['value'])} of the time"
        if order["n"] >= 5 and order["high"] is not None and order["high"] < 0.5:
            found.insert(0, f"{beats}: {_REVERSED}")
        else:
            found.append(f"{beats}.")
    if order is not None and best is not None and chance is not None:  # else all choices are equally good
        found.append(
            f"The response with the largest reward is correct {percent(best['value'])} of the time; a random "
            f"one {percent(chance['value'])}."
        )
    return found


def _vote_sentences(rows: Rows) -> list[str]:
    says, agree, gap = (_known(rows, f"vote_{name}") for name in ("confidence", "agreement", "gap"))
    if says is None or agree is None or gap is None:
        return []
    found = [
        f"It says {percent(says['value'])}, and {percent(agree['value'])} of people prefer its first choice: "
        f"{_verdict(gap)}."
    ]
    best = _known(rows, "vote_agreement_ceiling")
    if best is not None and gap["n"] >= FEWEST:
        found.append(f"With the best choices, about {percent(best['value'])} would agree (estimated).")
    found.append("Counting the most preferred response as the correct one:")
    return found


def _values_sentence(rows: Rows) -> str:
    values = [
        f"{metric_name(row['metric'])} {number(row['value'])}"
        for row in rows
        if row["category"] == OVERALL and row["value"] is not None
    ]
    return f"{', '.join(values) or 'No values'}."


# Notes on scores: what readers should know about them before they believe a number.


def score_notes(
    scores: Scores, benchmark: Benchmark | None, recipe: Recipe, whole: Part, *, pointwise: bool
) -> list[str]:
    """Return notes on scale, undecided prompts, cut responses, equal rewards, and answers of a language model."""
    reason, mark = why_no_calibration(recipe), scale_note(recipe)
    notes = []
    if reason:
        start = "Top-1 calibration" if recipe.scale == "pairs" else "Calibration"
        notes.append(f"{start} is not measured: {reason}. Accuracy does not need it.")
    elif mark:
        notes.append(f"{mark[0].upper()}{mark[1:]}.")
    notes += [clean_line(note) for note in scores.manifest.get("notes") or ()]
    if not pointwise:
        notes += _undecided_notes(whole)
    if scores.ties is not None and scores.ties.any():
        how = "left out" if whole.ties == "drop" else "forecast by Davidson's model"
        notes.append(f"Votes for “equally good” are {how}.")
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
    if recipe.scale != "pairs":  # verdicts on pairs are often equal
        notes += _shared_rewards(scores)
    return notes if benchmark is None else [*notes, *disagreements(scores, benchmark)]


def _undecided_notes(whole: Part) -> list[str]:
    """Return which prompts the headline leaves out."""
    decided, one = (0 if part is None else len(part) for part in (whole.prompts("all"), whole.prompts("one")))
    notes = []
    if decided < len(whole):
        notes.append(
            f"{count(len(whole) - decided, 'prompt')} where no response, or every one, is correct, or labels are "
            "missing: left out where one must be."
        )
    if one < decided:
        notes.append(
            f"{count(decided - one, 'prompt')} with several correct responses, or of Ties: not part of says, right "
            "and gap."
        )
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


# Shared.


def _known(rows: Rows, metric: str, category: str = OVERALL) -> Row | None:
    row = find_value(rows, metric, category)
    return None if row is None or row["value"] is None else row


def _share(row: Row) -> str:
    """Return a fraction with its interval as a percentage."""
    digits = 0 if abs(row["value"]) >= 0.0995 else 1
    value, low, high = (
        None if (found := row.get(name)) is None else f"{100 * found:,.{digits}f}"
        for name in ("value", "low", "high")
    )
    return f"{value}%" if low is None else f"{value}% [{low}, {high}]"

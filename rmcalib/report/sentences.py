"""Every sentence about an evaluation, written once. A sentence claims only what a test or an interval shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from shlex import quote
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util import display
from rmcalib._util.display import HUGE, bracketed, clean_line, count, number, percent, points
from rmcalib.benchmarks import benchmarks
from rmcalib.benchmarks._load import in_part
from rmcalib.calibration.binning import CROWDED
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.table import OVERALL, disagreements
from rmcalib.metrics.views import FEWEST, Part
from rmcalib.report.document import Step
from rmcalib.scores._answers import answers_summary
from rmcalib.scores.scale import scale_note

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.report.evaluation import Evaluation
    from rmcalib.scores import Scores

Row = Mapping[str, Any]
Rows = Sequence[Row]
UNNAMED = "unnamed-benchmark"
"""The name of the benchmark if the scores do not have one."""
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
RESPONSES = {
    "pointwise_confidence": "says",
    "pointwise_accuracy": "right",
    "pointwise_gap": "gap in points",
    "pointwise_kept_information": "kept information",
    "within_prompt_auroc": "order within prompts",
    "best_of_n": "best of n",
}
"""The first metrics where labels say of each response whether it is correct."""
CLAIMS = {
    "top_1": ("mean_confidence", "accuracy", "overconfidence"),
    "pairs": tuple(PAIRS),
    "pointwise": ("pointwise_confidence", "pointwise_accuracy", "pointwise_gap"),
    "votes": ("vote_confidence", "vote_agreement", "vote_gap"),
}
"""What a model says, what happens, and the gap between them, in each view."""
_STATEMENTS = {"top_1": "gap", "pairs": "pairs", "pointwise": "pointwise", "votes": "votes"}
_CLAIM_WORDS = {
    "top_1": "It says {} and is right {} of the time",
    "pairs": "In pairs it says {} and is right {} of the time",
    "pointwise": "Response by response it says {} and {} are correct",
    "votes": "It says {}, and {} of people prefer its first choice",
}
_REVERSED = "its order looks reversed: are the labels or the sign of the rewards swapped?"
_NOTHING = (
    "No prompt has exactly one correct response among several, so its accuracy cannot be measured: "
    "give two or more responses per prompt, and label the best one, or correct and wrong ones."
)
UNDECIDED = (
    "It gives all responses of a prompt the same reward, so it prefers none of them, and there is no first choice to "
    "judge."
)
_NO_REPAIR = "No repair is needed: no error was found. More prompts could show smaller errors."
_NO_USE = "Do not act on its probabilities: they are not clearly better than a uniform guess."
_LITTLE_MASS = 0.5
_REPEATED = 0.05  # of all prompts
_SAME = (
    1e-5  # of the spread of rewards: by chance, two prompts with several responses are hardly ever so near
)
_READ_AS = {
    "reward": "rewards",
    "probability": "probabilities",
    "logprob": "log-probabilities",
    "rating": "ratings",
    "logit": "rewards that went through a sigmoid",
}


WORDS = {
    "says": "the mean probability that it states for its first choice",
    "right": "how often its first choice is the best response",
    "gap": "says minus right; + is over-confident, - under-confident",
    "interval": "numbers in brackets; the true value is inside for 95% of data sets like this one",
    "temperature": "a number that rewards are divided by before they become probabilities; it changes how sure the "
    "model is, never which response is first",
    "best temperature": "the temperature that makes the labels most probable",
    "kept information": "how much better its probabilities are than a guess, by their log loss: 100% is knowing the "
    "best response, 0% is giving every response the same probability, below 0% is worse than that",
    "usable information": "the kept information at the best temperature; lost is the difference",
    "ECE": "expected calibration error, the mean distance of says and right over groups of similar probability; it is "
    "above 0 for a calibrated model, too, so the value of a calibrated model stands beside it",
    "log loss": "minus the logarithm of the probability of what happened, on average; lower is better",
    "score": "the benchmark's own number, under All metrics; it may count prompts in another way than right does",
}
"""The words of a page, in one line each."""
_SINGLE = {
    "says": "the mean probability that it states for a response to be correct",
    "right": "how many of the responses are correct",
    "kept information": "how much better its probabilities are than the same probability for every response, by their "
    "log loss: 100% is knowing which responses are correct, 0% is no better, below 0% is worse",
}
"""The words that mean something else if each response is correct or not."""
_USES = {
    "says": ("confidence",),
    "right": ("accuracy",),
    "gap": ("overconfidence", "gap"),
    "temperature": ("temperature",),
    "best temperature": ("temperature",),
    "kept information": ("kept_information",),
    "usable information": ("usable_information",),
    "ECE": ("ece",),
    "log loss": ("nll", "log_loss"),
    "score": ("rewardbench_score",),
}
"""How the names of metrics end that a word is about."""


def glossary(view: str, rows: Rows) -> dict[str, str]:
    """Return the words of a page with these metrics, and their meanings."""
    shown = {row["metric"] for row in rows if row["value"] is not None}
    words = WORDS | (_SINGLE if view == "pointwise" else {})
    used = {word for word, ends in _USES.items() if any(name.endswith(ends) for name in shown)}
    used |= {"interval"} if any(row["low"] is not None for row in rows) else set()
    return {word: meaning for word, meaning in words.items() if word in used}


def metric_name(metric: str) -> str:
    """Return the label of a metric in the catalogue; columns of a user's table keep their names."""
    entry = catalogue().get(metric)
    return {"abs_log_temperature": "|log T|"}.get(metric, metric) if entry is None else entry.label


def overall_values(rows: Rows) -> dict[str, Row]:
    """Return the rows of all prompts that have a value, by metric."""
    return {row["metric"]: row for row in rows if row["category"] == OVERALL and row["value"] is not None}


def direction(gap: float) -> str:
    """Name the sign of a gap."""
    return "over-confident" if gap > 0 else "under-confident"


def outside_zero(row: Row) -> bool:
    """Return whether the interval of a row leaves out zero."""
    return row["low"] is not None and bool(row["low"] > 0 or row["high"] < 0)


def p_text(value: float, floor: float | None = None) -> str:
    """Return a p-value as "p = 0.123" or "p < 0.001"."""
    text = display.p_value(value, floor)
    return f"p < {text[1:]}" if text.startswith("<") else f"p = {text}"


# Evaluations.


def evaluation_sentences(evaluation: Evaluation) -> list[str]:
    """Return the result of an evaluation: the verdict first, then information, repair, groups, the check."""
    at, facts = overall_values(evaluation.rows), evaluation.facts
    if facts["undecided"]:
        return [UNDECIDED]
    about = [_meaning_sentence(evaluation.manifest), _sample_sentence(facts["sample"])]
    if facts["sample"] is not None and facts["sample"]["unlike"]:
        start, _ = _claim(at, facts["view"], facts)
        return [
            sentence
            for sentence in (*about, f"On the labelled prompts: {start}." if start else "")
            if sentence
        ]
    if facts["view"] == "pointwise":
        sentences = [*_pointwise_sentences(at, facts), _check_sentence(evaluation, at, "pointwise_ece")]
    else:
        sentences = _vote_sentences(at, facts)
        if facts["by_majority"]:
            sentences += _majority_sentences(at, facts)
        elif facts["one_answer"] == 1:
            sentences.append("One prompt shows nothing about calibration.")
        elif facts["one_answer"]:
            sentences += _choice_sentences(evaluation, at)
        elif not sentences:
            sentences.append(_NOTHING)
    verdict, *others = [sentence for sentence in sentences if sentence] or [""]
    values = ", ".join(f"{metric_name(name)} {number(row['value'])}" for name, row in at.items())
    return [sentence for sentence in (verdict, *about, *others) if sentence] or [f"{values or 'No values'}."]


def _sample_sentence(sample: Row | None) -> str:
    """Say how many prompts are labelled, how they were drawn, and if they are unlike the others."""
    if sample is None:
        return ""
    start = f"{sample['n']:,} of {count(sample['of'], 'prompt')} are labelled"
    if sample["unlike"]:
        return (
            f"{start}, and they are unlike the others: it says {percent(sample['says'])} on them and "
            f"{percent(sample['says_all'])} on all. So there is no verdict on all prompts; label prompts that are "
            "drawn at random (`rmcalib label`), or give each category its share (--labels-by category)."
        )
    if sample["drawn"] is None:  # then it is a note
        return ""
    return f"{start}, drawn {sample['drawn']}."


def _more_sentence(sample: Row | None, gap: Row) -> str:
    """Say what more labels would show."""
    if sample is None or sample["unlike"] or gap["low"] is None:
        return ""
    n, margin = sample["n"], 50 * (gap["high"] - gap["low"])
    more = min(3 * n, sample["of"] - n)
    after = margin * float(np.sqrt(n / (n + more)))
    return (
        f"The gap is known to about ±{margin:.0f} points; {more:,} more labels would show it to ±{after:.0f}."
    )


def _meaning_sentence(manifest: Row) -> str:
    """Return what the numbers looked like and how they were read; empty if there is nothing to say."""
    meaning = manifest.get("meaning")
    if not isinstance(meaning, dict):
        return ""
    looks, used = str(meaning.get("looks_like")), str(meaning.get("measured_as"))
    if meaning.get("asked"):
        little = "Its numbers are ratings: a softmax of them means little before a temperature is fitted."
        return little if used == "rating" else ""
    if looks == "reward":
        return ""
    start = f"The numbers look like {_READ_AS.get(looks, looks)} ({clean_line(meaning.get('evidence'))})"
    if used == looks:
        return f"{start} and were read as such (--scale reward undoes that)."
    if used == "probability":
        return f"{start} and were read as probabilities of being correct (--scale reward undoes that)."
    return f"{start} but were read as rewards; if that is wrong, use --scale {looks}."


def _claim(at: Mapping[str, Row], view: str, facts: Row, unit: str = "prompt") -> tuple[str, str]:
    """Return what a model says and what happens, and the verdict on its gap; nothing if a number is missing."""
    if not set(CLAIMS[view]) <= at.keys():
        return "", ""
    says, right, gap = (at[name] for name in CLAIMS[view])
    start = _CLAIM_WORDS[view].format(percent(says["value"]), percent(right["value"]))
    if gap["n"] < FEWEST:
        return start, f"{count(gap['n'], unit)} are too few for a verdict"
    if gap["low"] is None:
        return start, f"no verdict ({clean_line(gap['note'])})"
    if _STATEMENTS[view] in facts["shown"]:
        return start, f"{direction(gap['value'])} by {points(gap, sign=False, unit=' points')}"
    look = f", corrected for {count(len(facts['tests']), 'statement')}" if outside_zero(gap) else ""
    return start, f"not clearly over- or under-confident (gap {points(gap, unit=' points')}{look})"


def _choice_sentences(evaluation: Evaluation, at: Mapping[str, Row]) -> list[str]:
    """Return what the first choices of prompts with one correct response show."""
    facts = evaluation.facts
    start, verdict = _claim(at, "top_1", facts)
    if not start:
        return [_reversed_sentence(at, facts), *_uncalibrated_sentences(at, facts)]
    gap, least, right = at["overconfidence"], facts["smallest_gap"], at["accuracy"]
    if right["low"] is not None and right["low"] <= facts["chance"] <= right["high"]:
        start += f", as often as a random choice may be ({percent(facts['chance'])})"
    sentences = [_reversed_sentence(at, facts), f"{start}: {verdict}."]
    if gap["n"] < FEWEST or gap["low"] is None:
        return sentences
    if "gap" not in facts["shown"] and "cancels" in facts["shown"]:
        sentences[1] = (
            f"{start}, but errors of both signs cancel in this gap of {points(gap, unit=' points')}: it is "
            "over-confident on some prompts and under-confident on others."
        )
    elif "gap" not in facts["shown"] and least:
        shown = f"{count(gap['n'], 'prompt')} would show a gap of {100 * least:.1f} points in 4 of 5 cases"
        sentences.append(f"{shown}.")
    sentences.append(_more_sentence(facts["sample"], gap))
    sentences += [_information_sentence(at, facts), _temperature_sentence(at, facts)]
    sentences += [_beta_sentence(evaluation, at), _groups_sentence(evaluation)]
    return [*sentences, _check_sentence(evaluation, at)]


def _reversed_sentence(at: Mapping[str, Row], facts: Row) -> str:
    """Say that a model is right less often than a random choice, and ask about the labels if pairs are, too."""
    right, pairs, chance = at.get("accuracy"), at.get("pairwise_accuracy"), facts["chance"]
    if right is None or right["high"] is None or chance is None or right["n"] < 5 or right["high"] >= chance:
        return ""
    # A model that is right so rarely is over-confident.
    if facts["tests"] and not {"gap", "votes", "pairs"} & {*facts["shown"]}:
        return ""
    start = f"It is right {percent(right['value'])} of the time, less often than a random choice ({percent(chance)})"
    if pairs is not None and (pairs["high"] is None or pairs["high"] >= 0.5):
        return f"{start}."
    return f"{start}: {_REVERSED}"


def _information_sentence(at: Mapping[str, Row], facts: Row) -> str:
    kept, lost, usable = (at.get(f"{name}_information") for name in ("kept", "lost", "usable"))
    if kept is None or lost is None or usable is None:
        return ""
    start = f"Its probabilities keep {_share(kept)} of the information about the best response"
    if kept["high"] is not None and kept["high"] < 0 and "scale" in facts["shown"]:
        start = f"Its probabilities are worse than a uniform guess (kept information {_share(kept)})"
    elif kept["low"] is not None and kept["low"] <= 0:
        start = (
            f"Its probabilities are not clearly better than a uniform guess (kept information {_share(kept)})"
        )
    if "scale" not in facts["shown"]:
        more = "" if facts["shown"] else "; no error of their scale was found"
        return f"{start}{more}."
    if not is_usable(at):
        return f"{start}, and no temperature makes them clearly better."
    if not temperature_helps(facts):
        return f"{start}."
    return f"{start}; its rewards would give {_share(usable)} at the best temperature."


def is_usable(at: Mapping[str, Row]) -> bool:
    """Return whether rewards are significantly better than a uniform guess at their best temperature."""
    usable = at.get("usable_information")
    return usable is None or usable["low"] is None or bool(usable["low"] > 0)


def temperature_helps(facts: Row) -> bool:
    """Return whether the best temperature and its gain on other prompts differ significantly from 1 and from 0."""
    return "scale" in facts["shown"] and facts["gain"] is not None and bool(facts["gain"]["low"] > 0)


def offers_temperature(evaluation: Evaluation) -> bool:
    """Return whether a page offers the best temperature: it is shown to help, and rewards are shown to be useful."""
    return temperature_helps(evaluation.facts) and is_usable(overall_values(evaluation.rows))


def _temperature_sentence(at: Mapping[str, Row], facts: Row) -> str:
    if "temperature" not in at or not is_usable(at):
        return ""
    if "scale" not in facts["shown"]:
        return "One temperature does not clearly repair it." if facts["shown"] else ""
    if not temperature_helps(facts):
        return "A temperature does not clearly help on other prompts."
    best, gain = bracketed(at["temperature"], display.temperature_text), bracketed(facts["gain"])
    return (
        f"Dividing its rewards by T = {best} is estimated to lower the log loss on other prompts by {gain}."
    )


def _beta_sentence(evaluation: Evaluation, at: Mapping[str, Row]) -> str:
    """Return which beta of a DPO policy would be calibrated: its rewards are multiples of it."""
    beta, best = evaluation.manifest.get("beta"), at.get("temperature")
    if not isinstance(beta, float) or best is None or not best["value"]:
        return ""
    guess = ", which is a guess" if evaluation.manifest.get("beta_from") == "default" else ""
    limits = [beta / best[end] if best[end] else None for end in ("high", "low")]
    beta_of_best = {"value": beta / best["value"], "low": limits[0], "high": limits[1]}
    right = bracketed(beta_of_best if None not in limits else beta_of_best | {"low": None})
    return f"Its rewards are for β = {beta:g}{guess}; its best temperature corresponds to β = {right}."


def _groups_sentence(evaluation: Evaluation) -> str:
    """Name the groups whose gap differs from 0 after the correction for looking at many, and at other numbers."""
    groups, facts = evaluation.group_rows, evaluation.facts
    flagged = [row for row in groups if row["flagged"]]
    if len(groups) < 2:
        return ""
    looked = f"corrected for looking at {count(len(groups), 'group')}"
    if not flagged and {"gap", "cancels"} & {*facts["shown"]}:
        return f"No single group stands out ({looked})."
    if not flagged:
        return f"No group stands out ({looked})."
    gaps = {clean_line(row["group"]): row["gap"] for row in flagged}
    largest = sorted(gaps.items(), key=lambda each: -abs(each[1]))[:3]
    named = ", ".join(f"{group} ({100 * gap:+.0f})" for group, gap in largest)
    more = f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
    return f"Gaps beyond chance, {looked}: {named}{more}."


def _check_sentence(evaluation: Evaluation, at: Mapping[str, Row], metric: str = "confidence_ece") -> str:
    """Return the check that does not cancel: the ECE, and that of a calibrated model."""
    error, null, p = (at.get(f"{metric}{end}") for end in ("", "_null_mean", "_p_value"))
    if error is None or null is None or p is None:
        return ""
    shown = p_text(p["value"], 1 / (evaluation.settings.resamples + 1))
    chance = ""
    if p["value"] <= 1 - evaluation.settings.level and "check" not in evaluation.facts["shown"]:
        chance = (
            f"; corrected for {count(len(evaluation.facts['tests']), 'statement')}, that is within chance"
        )
    return (
        f"Check: its {metric_name(metric)} is {number(error['value'])}; a calibrated model would show about "
        f"{number(null['value'])} ({shown}){chance}."
    )


def _uncalibrated_sentences(at: Mapping[str, Row], facts: Row) -> list[str]:
    start, verdict = _claim(at, "pairs", facts)
    sentences = [f"{start}: {verdict}."] if start else []
    if "accuracy" in at:
        sentences.append(f"Its first choice is right {percent(at['accuracy']['value'])} of the time.")
    if facts["no_calibration"] and not sentences:
        sentences.append(f"Its calibration is not measured: {facts['no_calibration']}.")
    return sentences


def _pointwise_sentences(at: Mapping[str, Row], facts: Row) -> list[str]:
    start, verdict = _claim(at, "pointwise", facts, "response")
    sentences = (
        [f"{start}: {verdict}.", _more_sentence(facts["sample"], at["pointwise_gap"])] if start else []
    )
    excess = at.get("fitted_log_loss_excess")
    if excess is not None:
        unstated = "" if start else "Its rewards state nothing about single responses. "
        sentences.append(
            f"{unstated}With b and T fitted on other prompts, its log loss minus that of the base rate is "
            f"{bracketed(excess)} nats: {_worth(excess)}."
        )
    order = at.get("within_prompt_auroc")
    if order is None:
        return sentences
    beats = f"Within a prompt, a correct response beats a wrong one {percent(order['value'])} of the time"
    if "order" in facts["shown"]:
        sentences.insert(0, f"{beats}: {_REVERSED}")
    else:
        sentences.append(f"{beats}.")
    if {"best_of_n", "best_of_n_chance"} <= at.keys():
        sentences.append(
            f"The response with the largest reward is correct {percent(at['best_of_n']['value'])} of the time; a "
            f"random one {percent(at['best_of_n_chance']['value'])}."
        )
    return sentences


def _worth(excess: Row) -> str:
    """Say how much information rewards have response by response: their log loss minus that of the base rate."""
    if excess["high"] is not None and excess["high"] < 0:
        return "its rewards separate correct responses from wrong ones"
    return "its rewards do not clearly separate correct responses from wrong ones"


def _vote_sentences(at: Mapping[str, Row], facts: Row) -> list[str]:
    start, verdict = _claim(at, "votes", facts)
    if not start:
        return []
    sentences = [f"{start}: {verdict}."]
    best = at.get("vote_agreement_ceiling")
    if best is not None and best["n"] >= FEWEST:
        sentences.append(f"Even the best choices would get about {percent(best['value'])} (estimated).")
    return (
        sentences
        if facts["by_majority"]
        else [*sentences, "Counting the most preferred response as the correct one:"]
    )


def _majority_sentences(at: Mapping[str, Row], facts: Row) -> list[str]:
    """Say how often the first choice is what most people prefer, which a forecast of votes does not state."""
    reverse = _reversed_sentence(at, facts)
    if reverse or "accuracy" not in at:
        return [reverse]
    return [
        f"Its first choice is the most preferred response {percent(at['accuracy']['value'])} of the time."
    ]


def _share(row: Row) -> str:
    """Return a fraction with its interval as a percentage."""
    digits = 0 if abs(row["value"]) >= 0.0995 else 1
    huge = max(abs(row[name] or 0.0) for name in ("value", "low", "high")) >= HUGE
    form = ".2e" if huge else f"z,.{digits}f"
    value, low, high = (
        None if row[name] is None else f"{100 * row[name]:{form}}" for name in ("value", "low", "high")
    )
    return f"{value}%" if low is None else f"{value}% [{low}, {high}]"


# What to do next.


def next_steps(evaluation: Evaluation, source: str = "SCORES", labelled: str = "") -> list[Step]:
    """Return what to do next, with commands; ``source`` is where the scores are.

    ``labelled`` is how `rmcalib label` reads the scores with their labels, if not from the source.
    """
    sample, steps = evaluation.facts["sample"], _result_steps(evaluation, source)
    if sample is None or sample["unlike"] or sample["drawn"] != "at random":
        return steps
    draw = (
        f"rmcalib label {labelled or quote(source)} --more --n {min(50, sample['of'] - sample['n'])} "
        "--output more-labels"
    )
    more = Step("Label more prompts, most where its first choices were wrong so far.", draw)
    return sorted(
        [*steps, more], key=lambda step: step.command.startswith("rmcalib compare")
    )  # comparing comes last


def _result_steps(evaluation: Evaluation, source: str) -> list[Step]:
    """Return what to do about the result."""
    at, facts, file = overall_values(evaluation.rows), evaluation.facts, quote(source)
    other = Step("Compare it with another model on the same prompts.", f"rmcalib compare {file} OTHER_SCORES")
    sample = facts["sample"]
    if facts["undecided"]:
        return [Step("Check that the right column was read as the reward: --columns reward=NAME names it.")]
    if sample is not None and sample["unlike"]:
        draw = f"rmcalib label {file} --n {max(100, sample['n'])} --output labels"
        return [Step("Label prompts that are drawn at random.", draw)]
    if facts["in_fit"]:
        half = f"rmcalib calibrate {file} --part 1/2 --to calibrator.json"
        other_half = f"rmcalib eval --scores {file} --part 2/2 --calibrator calibrator.json"
        return [
            Step(
                f"Fit on one half: the calibrator has seen {count(facts['in_fit'], 'prompt')} of these.", half
            ),
            Step("Check it on the other half.", other_half),
        ]
    if facts["view"] == "pointwise":
        return _pointwise_steps(at, facts, file, other)
    if facts["no_calibration"] or not facts["one_answer"] or "overconfidence" not in at:
        return [other]
    if _reversed_sentence(at, facts).endswith(_REVERSED):
        return [
            Step("Check the labels and the sign of the rewards. Wrong choices are under All prompts."),
            other,
        ]
    if at["overconfidence"]["n"] < FEWEST:
        return [Step(f"Take more prompts: fewer than {FEWEST} show nothing about calibration.")]
    if "calibrator" in evaluation.manifest and not facts["shown"]:
        return [Step("Use the calibrator: on these prompts its probabilities show no error.")]
    repair = [other] if facts["by_majority"] else _repair_steps(evaluation, at, file, other)
    return [*repair, *_acting_steps(evaluation, file)]


def _repair_steps(evaluation: Evaluation, at: Mapping[str, Row], file: str, other: Step) -> list[Step]:
    """Return how to repair probabilities, or that no repair is needed, or none helps."""
    facts, kept = evaluation.facts, at.get("kept_information")
    if not facts["shown"]:
        guess = kept is not None and kept["low"] is not None and kept["low"] <= 0
        return [Step(_NO_USE if guess else _NO_REPAIR), other]
    if not is_usable(at):
        words = (
            "Do not act on its probabilities, and do not repair them: no temperature makes them clearly useful. "
            "Check that labels and rewards belong together (All prompts), then try another model."
        )
        return [Step(words), other]
    if _errs_both_ways(evaluation):
        words = (
            "One temperature cannot repair groups that are over-confident and groups that are under-confident: "
            "calibrate each of them in a file of its own."
        )
        return [Step(words)]
    if temperature_helps(facts):
        half = " --part 1/2" if _accepts(evaluation) and _has_halves(evaluation) else ""
        return [
            Step(
                "Repair the scale: fit a temperature. It never changes which response is first.",
                f"rmcalib calibrate {file}{half} --to calibrator.json",
            ),
            Step(
                "Turn new rewards into probabilities with it.",
                "rmcalib apply NEW_SCORES --calibrator calibrator.json --to probabilities.csv",
            ),
        ]
    return [_groups_step(evaluation, file)]


def _errs_both_ways(evaluation: Evaluation) -> bool:
    """Return whether some groups are shown to be over-confident, and others to be under-confident."""
    return len({row["gap"] > 0 for row in evaluation.group_rows if row["flagged"]}) > 1


def _accepts(evaluation: Evaluation) -> bool:
    """Return whether confident choices can be accepted without asking a person."""
    return evaluation.decisions is not None and evaluation.decisions.choice.threshold is not None


def _has_halves(evaluation: Evaluation) -> bool:
    """Return whether a rule can be tested on other prompts than those of the fit: half of a benchmark has no halves."""
    return len(set(in_part(np.unique(evaluation.scores.item_id).tolist(), "1/2"))) == 2


def _groups_step(evaluation: Evaluation, file: str) -> Step:
    """Return how to find the prompts that a model is wrong about: groups need different sizes, or texts."""
    words, texts = (
        "Find where its errors are: one temperature does not clearly repair them.",
        evaluation.texts,
    )
    command = f"rmcalib eval --scores {file}"
    if len(set(np.diff(evaluation.scores.offsets).tolist())) > 1:
        return Step(words, f"{command} --group-by responses")
    names = {
        name for entry in benchmarks().values() for name in (entry.name, *(each.id for each in entry.hub))
    }
    if texts is not None and texts.name in names:
        return Step(words, f"{command} --benchmark {quote(texts.name)} --group-by length")
    return Step(f"{words} Wrong choices are under All prompts.")


def _acting_steps(evaluation: Evaluation, file: str) -> list[Step]:
    """Return the rule for accepting choices without asking a person, if there is one."""
    decisions = evaluation.decisions
    if decisions is None or not _accepts(evaluation):
        return []
    words = (
        f"Accept confident choices without asking a person: {percent(decisions.choice.accepted)} of the prompts, with "
        f"at most {decisions.wrong_at_most:.0%} of them wrong."
    )
    repaired = temperature_helps(evaluation.facts) and not _errs_both_ways(evaluation)
    fits = repaired and _has_halves(evaluation)
    fitted = " --part 2/2 --calibrator calibrator.json" if fits else ""
    return [Step(words, f"rmcalib decide {file}{fitted} --to rule.json")]


def _pointwise_steps(at: Mapping[str, Row], facts: Row, file: str, other: Step) -> list[Step]:
    excess = at.get("fitted_log_loss_excess")
    if "order" in facts["shown"]:
        return [
            Step("Check the labels and the sign of the rewards. Wrong choices are under All prompts."),
            other,
        ]
    if excess is None or excess["high"] is None or excess["high"] >= 0:
        return [
            Step(
                "Do not read its rewards as probabilities of being correct: correct and wrong responses do not "
                "clearly differ in their rewards."
            ),
            other,
        ]
    fit = Step(
        "Fit what a reward means, a threshold b and a temperature T.",
        f"rmcalib calibrate {file} --to calibrator.json",
    )
    is_right = "pointwise_gap" in at and facts["tests"] and not facts["shown"]
    return [
        Step(_NO_REPAIR) if is_right else fit,
        Step("See how many samples are worth drawing.", f"rmcalib best-of-n {file}"),
    ]


# Notes on scores: what readers should know about them before they believe a number.


def score_notes(scores: Scores, benchmark: Benchmark | None, whole: Part) -> list[str]:
    """Return notes on scale and labels, undecided prompts, cut and empty responses, equal rewards, answers."""
    scale, reason = scores.scale, scores.refusal()
    notes = [labels_note(scores)]
    if reason:
        start = "Top-1 calibration" if scale.kind == "pairs" else "Calibration"
        notes.append(f"{start} is not measured: {reason}. Accuracy does not need it.")
    elif mark := scale_note(scale):
        notes.append(f"{mark[0].upper()}{mark[1:]}.")
    elif scores.view == "pointwise" and scale.assumed:
        notes.append(
            "The scale of these rewards is unknown. They are taken as log-odds of being correct; if they come from "
            "a Bradley-Terry model, use --scale utility."
        )
    notes += [clean_line(note) for note in scores.manifest.get("notes") or ()]
    if scores.view == "top_1":
        notes += _undecided_notes(whole)
    if not reason:
        notes += _crowded_notes(whole)
    notes += _answer_notes(scores)
    n_categories = len(np.unique(whole.category))
    if n_categories > len(whole.categories):
        notes.append(
            f"There are {n_categories:,} categories. The {len(whole.categories)} with most prompts are measured on "
            "their own; the others count in all numbers of all prompts."
        )
    cut = int(scores.truncated.sum())
    if cut:
        limit = scores.manifest.get("max_length")
        at = f" at {limit} tokens" if limit else ""
        notes.append(
            f"{cut} of {len(scores)} responses ({cut / len(scores):.1%}) were cut{at} and scored without their end."
        )
    texts = [] if benchmark is None else [text for item in benchmark.items for text in item.responses]
    empty = sum(not text.strip() for text in texts)
    if empty:
        notes.append(f"{count(empty, 'response')} of {len(texts):,} have no text.")
    if scale.kind != "pairs":  # verdicts on pairs are often equal
        notes += _shared_rewards(scores)
        notes += _repeated_prompts(scores)
    return notes if benchmark is None else [*notes, *disagreements(scores, benchmark)]


_LABEL_WORDS = {
    "best": "one response of a prompt is the best",
    "correct": "correct or not, response by response",
    "votes": "votes of people",
}


def labels_note(scores: Scores) -> str:
    """Return what labels mean, how that was decided, and how to change it."""
    if scores.labels is None:
        return "Labels: none."
    decided = scores.manifest["labels"]["from"]
    other = {"best": "correct", "correct": "best"}.get(scores.labels)
    guessed = "prompts have exactly one" in decided
    change = f" (--labels-are {other} changes that)" if other and guessed else ""
    how = f": {decided}{change}" if guessed else ""
    return f"Labels: {_LABEL_WORDS[scores.labels]}{how}."


def _undecided_notes(whole: Part) -> list[str]:
    """Return which prompts the headline leaves out."""
    decided, single, labelled = (
        0 if part is None else len(part) for part in map(whole.prompts, ("all", "one", "labelled"))
    )
    notes = []
    if labelled < len(whole) and "inclusion" not in whole.scores.extra:
        notes.append(
            f"{labelled:,} of {count(len(whole), 'prompt')} are labelled; all numbers are about these, because it is "
            "unknown how they were drawn (`rmcalib label` draws at random)."
        )
    if whole.n_tied:
        notes.append(
            f"{whole.n_tied:,} of {labelled:,} labelled prompts are ties (first place is shared): left out of says, "
            "right and gap"
            + (
                ", forecast with the votes."
                if whole.ties == "davidson"
                else ". --ties davidson forecasts them."
            )
        )
    if decided + whole.n_tied < labelled:
        notes.append(
            f"{count(labelled - decided - whole.n_tied, 'prompt')} where no response or every response is correct, or "
            "labels are missing: left out."
        )
    if single < decided:
        notes.append(
            f"{count(decided - single, 'prompt')} with several correct responses, or of Ties: not part of says, right "
            "and gap."
        )
    return notes


def _crowded_notes(whole: Part) -> list[str]:
    """Warn if most probabilities lie in one bin, where the ECE hides errors."""
    single = whole.prompts("one")
    if single is None:
        return []
    counts, edges = np.histogram(single.top_1.p, 10, (0.0, 1.0))
    fullest = int(counts.argmax())
    share = float(counts[fullest] / counts.sum())
    if share <= CROWDED:
        return []
    place = f"{edges[fullest]:.3g} to {edges[fullest + 1]:.3g}"
    return [
        f"{percent(share)} of all probabilities are in one bin ({place}), where the {metric_name('ece')} is near 0 "
        "whatever they are worth. Use the gap."
    ]


def _shared_rewards(scores: Scores) -> list[str]:
    prompt = np.repeat(np.arange(scores.n_items), np.diff(scores.offsets))
    order = np.lexsort((scores.reward, prompt))
    same = (np.diff(prompt[order]) == 0) & (np.diff(scores.reward[order]) == 0)
    shared = int((np.append(same, False) | np.append(False, same)).sum())
    if not shared:
        return []
    return [
        f"{count(shared, 'response')} have the same reward as another response to the same prompt. "
        "A tie of t responses counts as 1/t right."
    ]


def _repeated_prompts(scores: Scores) -> list[str]:
    """Propose clusters if many prompts have the same rewards and labels as another one."""
    if scores.cluster is not None or len(np.unique(scores.reward)) < max(20, len(scores) / 20):
        return []  # few different rewards, such as ratings, are equal by chance
    sizes, reward = np.diff(scores.offsets), scores.reward
    unit = _SAME * float(reward.std())
    if sizes.min() > 1 and unit > 0:  # scored again, a prompt may differ by rounding
        reward = np.round(reward / unit) + 0.0
    order = np.lexsort((reward, np.repeat(np.arange(scores.n_items), sizes)))
    both = np.column_stack([reward, scores.label])[order]
    first, times = np.unique(both[scores.offsets[:-1], 0], return_inverse=True, return_counts=True)[1:]
    shared = np.flatnonzero(times[first] > 1)  # prompts whose smallest reward another one has, too
    ends = zip(scores.offsets[shared].tolist(), scores.offsets[shared + 1].tolist(), strict=True)
    same = [both[start:stop].tobytes() for start, stop in ends]
    repeated = len(same) - len(set(same))
    if repeated < max(5, _REPEATED * scores.n_items):
        return []
    return [
        f"{count(repeated, 'prompt')} of {scores.n_items:,} have the rewards and labels of another one. "
        "If prompts are repeated, intervals are too narrow: name the column that groups them with --cluster."
    ]


def _answer_notes(scores: Scores) -> list[str]:
    """Return notes on position bias, answers that could not be read, and labels without a probability."""
    summary = answers_summary(scores)
    if not summary:
        return []
    notes = []
    if "places" in summary:
        means = summary["places"]["mean_probability"]
        places = zip(ascii_uppercase, means, strict=False)
        notes.append(
            f"Position bias: the mean probability by place is {', '.join(f'{at} {p:.3f}' for at, p in places)}, "
            f"where {1 / len(means):.3f} would be fair. Forecasts are averaged over the orders."
        )
    unread, answers = summary["unread"], summary["answers"]
    if unread:
        notes.append(
            f"{unread:,} of {answers:,} answers ({unread / answers:.1%}) could not be read. They are not "
            "counted, so the forecasts of their prompts are closer to uniform."
        )
    if summary["floored"]:
        notes.append(
            f"The server did not return {summary['floored']:,} log-probabilities. They are set to their upper "
            f"bounds, so probabilities are off by at most {summary['largest_floor']:.1g}."
        )
    if summary.get("label_mass", 1.0) < _LITTLE_MASS:
        notes.append(
            f"The labels have only {summary['label_mass']:.1%} of the next token's probability: the judge "
            'tends to write something else first. Use sampled answers instead (judging="votes").'
        )
    return notes

"""Every sentence about an evaluation, written once. A sentence claims only what a test or an interval shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib._util import display
from rmcalib._util.display import HUGE, bracketed, clean_line, count, number, percent, points
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.table import OVERALL
from rmcalib.metrics.views import FEWEST

if TYPE_CHECKING:
    from rmcalib.report.evaluation import Evaluation

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


def looks_reversed(at: Mapping[str, Row], facts: Row) -> bool:
    """Return whether a model is right less often than a random choice, in pairs as well."""
    pairs = at.get("pairwise_accuracy")
    in_pairs = pairs is None or (pairs["high"] is not None and pairs["high"] < 0.5)
    return in_pairs and _is_seldom_right(at, facts)


def _is_seldom_right(at: Mapping[str, Row], facts: Row) -> bool:
    """Return whether a model is right less often than a random choice."""
    right, chance = at.get("accuracy"), facts["chance"]
    if right is None or right["high"] is None or chance is None or right["n"] < 5 or right["high"] >= chance:
        return False
    # A model that is right so rarely is over-confident.
    return not facts["tests"] or bool({"gap", "votes", "pairs"} & {*facts["shown"]})


def _reversed_sentence(at: Mapping[str, Row], facts: Row) -> str:
    """Say that a model is right less often than a random choice, and ask about the labels if pairs are, too."""
    if not _is_seldom_right(at, facts):
        return ""
    right, chance = percent(at["accuracy"]["value"]), percent(facts["chance"])
    start = f"It is right {right} of the time, less often than a random choice ({chance})"
    return f"{start}: {_REVERSED}" if looks_reversed(at, facts) else f"{start}."


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

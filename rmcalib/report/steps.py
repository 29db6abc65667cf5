"""What to do next after an evaluation, with the commands to copy."""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING

import numpy as np

from rmcalib._util.display import count, percent
from rmcalib.benchmarks import benchmarks
from rmcalib.benchmarks._load import in_part
from rmcalib.metrics.views import FEWEST
from rmcalib.report.document import Step
from rmcalib.report.sentences import Row, is_usable, looks_reversed, overall_values, temperature_helps

if TYPE_CHECKING:
    from rmcalib.report.evaluation import Evaluation

_NO_REPAIR = "No repair is needed: no error was found. More prompts could show smaller errors."
_NO_USE = "Do not act on its probabilities: they are not clearly better than a uniform guess."


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
    if looks_reversed(at, facts):
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

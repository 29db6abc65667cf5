"""Notes on scores: what readers should know about them before they believe a number."""

from __future__ import annotations

from string import ascii_uppercase
from typing import TYPE_CHECKING

import numpy as np

from rmcalib._util.display import clean_line, count, percent
from rmcalib.calibration.binning import CROWDED
from rmcalib.metrics.table import disagreements
from rmcalib.metrics.views import Part
from rmcalib.report.sentences import metric_name
from rmcalib.scores._answers import answers_summary
from rmcalib.scores.scale import scale_note

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.scores import Scores

_LITTLE_MASS = 0.5
_REPEATED = 0.05  # of all prompts
_SAME = (
    1e-5  # of the spread of rewards: by chance, two prompts with several responses are hardly ever so near
)


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

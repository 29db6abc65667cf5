"""The document of a watched training run, and its sentences."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from rmcalib._util import display
from rmcalib._util.display import bracketed, count, number, percent
from rmcalib.integrations.alarms import CHANGES
from rmcalib.integrations.stated import OTHER_SCALE
from rmcalib.integrations.watcher import Watch
from rmcalib.report import figures
from rmcalib.report.document import Cell, Column, Columns, Document, Drawing, Step, table_of
from rmcalib.scores._label_page import DOWNLOADED

_REFERENCE = {
    "stated": "as the rewards state them",
    "none": "none, because the rewards state nothing about single samples",
    "calibrator": "the given calibrator",
    "benchmark": "a fit on the given benchmark",
    "start": "a fit on the first prompts of the run",
}
WATCHED = {
    "n_samples": Column("samples", page_only=True),
    "n_prompts": Column("prompts"),
    "mean_reward": Column("reward", "mean reward"),
    "n_labels": Column("labels", "samples with a label"),
    "says": Column("says", "mean probability of all samples", page_only=True),
    "right": Column("right", "fraction of samples that are correct"),
    "gap": Column("gap", "mean probability minus right, in points"),
    "auroc": Column("order", "how often a correct sample beats a wrong one of its prompt"),
    "length_correlation": Column("with length", "correlation of reward and length", page_only=True),
    "drift": Column(
        "drift", "change of the mean reward since the first step, in standard deviations", page_only=True
    ),
    "ties": Column("ties", "fraction of samples with the reward of another one", page_only=True),
    **{change.column: Column(change.heading, change.about, page_only=change.page_only) for change in CHANGES},
}
_PERCENT = (
    "right",
    "ties",
    "says",
    *(change.column for change in CHANGES if change.page_only and not change.relative),
)
_BRACKETED = ("gap", "auroc", *(change.column for change in CHANGES if not change.page_only))


def watch_document(watched: Watch) -> Document:
    """Return the document of a watched training run: curves, and one row per step."""
    first, last = (watched.steps[0]["step"], watched.steps[-1]["step"]) if watched.steps else (0, 0)
    between = f", {first:.15g} to {last:.15g}" if first < last else ""
    columns: Columns = {"step": lambda row: Cell(f"{row['step']:.15g}", row["step"])}
    for name, column in WATCHED.items():
        values = [row.get(name) for row in watched.steps]
        # Details that are 0 in all steps are left out.
        if any(_has(value) and (value or not column.page_only) for value in values):
            columns[column] = partial(step_cell, name)
    # Unknown numbers are left out of the curves.
    drawn = [{name: value if _has(value) else None for name, value in row.items()} for row in watched.steps]
    panels = {
        title: curves
        for title, curves in figures.WATCHED.items()
        if any(row.get(name) is not None for row in drawn for name in curves)
    }
    label = f"Over the steps: {', '.join(panels)}"
    return Document(
        title="Training run",
        subtitle=f"{count(len(watched.steps), 'step')}{between}",
        sentences=watch_sentences(watched),
        first=[
            Drawing("curves", partial(figures.curves_figure, drawn, panels), label),
            table_of("steps", reversed(watched.steps), columns),
        ],
        steps=watch_steps(watched),
        footer=f"Intervals: 95%, prompts as clusters. Probabilities: {_REFERENCE[watched.reference['kind']]}.",
    )


def watch_sentences(watched: Watch) -> list[str]:
    """Return whether the alarm holds, what it is about, what it stands on, and what could not be measured."""
    chance, effective = f"{1 - watched.level:.0%}", 100 * watched.reference["margin"]
    sentences = [f"Alarm at step {alarm['step']:.15g}: {alarm['reason']}." for alarm in watched.alarms]
    if sentences:
        sentences.append(
            f"The error is significantly above {effective:.2g} points. The chance of a false alarm in the whole run "
            f"is at most {chance}."
        )
    elif watched.waiting:
        more = count(watched.waiting, "more prompt")
        sentences = [f"No alarm yet: the reference needs labels of about {more}."]
        if watched.reference["kind"] != "start":
            sentences = [
                f"No alarm yet: labels of at most {more} show whether the rewards are log-odds. If they are, say so: "
                "--scale log_odds."
            ]
    elif watched.reference["kind"] == "none":
        sentences = [
            f"No alarm without a reference: {watched.reference['reason']}. Give a calibrator: a file, or 'start'."
        ]
    elif not watched.labels.get("samples"):
        sentences = ["Without labels there is no alarm, because it is unknown which samples are correct."]
    elif watched.labels["are"] == "best":
        sentences = [
            f"No alarm: the order is not significantly worse than stated, by {effective:.2g} points."
        ]
    else:
        sentences = [f"No alarm: the gap is not significantly above {effective:.2g} points."]
    sentences += _about_labels(watched)
    sentences += [
        f"Change at step {change['step']:.15g}: {change['reason']}. That is a change, not an error."
        for change in watched.changes
    ]
    if watched.reference["kind"] == "stated":
        what = {"probability": "as probabilities of being correct", "log_odds": "as log-odds"}
        read = what.get(watched.reference["scale"], f"as {watched.reference['scale']}")
        sentences.append(f"Rewards are read {read} ({watched.reference['reason']}).")
    if watched.reference["reason"] == OTHER_SCALE:
        sentences.append(
            "Nobody said what the rewards are. They were taken as log-odds, but the first labels show another scale, "
            "so b and T are fitted on these; if they are log-odds after all, say so: --scale log_odds."
        )
    if effective > 100 * watched.margin + 0.05:
        sentences.append(
            f"The margin of {100 * watched.margin:g} points grows to {effective:.2g} by the reference's error."
        )
    sentences += _not_measured(watched)
    if watched.problems:
        sentences.append(
            f"{count(len(watched.problems), 'problem')} with files; the last: {watched.problems[-1]}."
        )
    return sentences


def watch_steps(watched: Watch) -> list[Step]:
    """Return what to do next: about an alarm, for lack of labels or of a reference, or later."""
    if watched.alarm is not None:
        return _after_alarm(watched, watched.alarm)
    draw = _draw(watched)
    if watched.steps and not watched.labels.get("samples"):
        labelled = _command(watched, "watch", "--labels", "--label-from")
        return [
            Step("Label samples, drawn at random.", draw),
            Step("Watch with these labels.", f"{labelled} --labels {DOWNLOADED}"),
        ]
    if watched.reference["kind"] == "none":
        return [
            Step("Fit probabilities on the first labelled prompts of the run.", _fitted_at_start(watched))
        ]
    later = Step("Watch the steps that come.", f"{_command(watched, 'watch')} --follow")
    return [Step("Label more samples, drawn at random.", draw), later] if watched.waiting else [later]


def _command(watched: Watch, name: str, *without: str) -> str:
    """Return a command about the same samples, without some of its options."""
    folder, *words = watched.source
    pairs = zip(words[::2], words[1::2], strict=True)
    return shlex.join(
        ["rmcalib", name, folder, *(word for pair in pairs if pair[0] not in without for word in pair)]
    )


def _draw(watched: Watch, *more: str) -> str:
    """Return the command that draws samples to label, with the question that this watch needs."""
    ask = watched.labels.get("are", "correct")
    others = ("--labels", "--label-from", "--scale", "--benchmark", "--calibrator")
    return " ".join([_command(watched, "label", *others), *more, "--ask", ask, "--output labels"])


def _fitted_at_start(watched: Watch) -> str:
    return f"{_command(watched, 'watch', '--scale', '--benchmark', '--calibrator')} --calibrator start"


def _after_alarm(watched: Watch, alarm: Mapping[str, Any]) -> list[Step]:
    at = f"step {alarm['step']:.15g}"
    steps = [
        Step(
            f"Look at the samples around {at} that have large rewards and are wrong. Do they share a length, a format, "
            "a phrase?"
        )
    ]
    if alarm["step"] == watched.steps[0]["step"]:
        words = (
            "The alarm holds from the first step, so the rewards may not be read as what they are: fit them."
        )
        return [Step(words, _fitted_at_start(watched)), *steps]
    if any(error["what"] == "order" for error in watched.alarms):
        words = (
            "The reward no longer separates correct from wrong samples: stop, go back to the last checkpoint before "
            f"{at}, and train the reward model on labelled samples of this policy."
        )
        return [*steps, Step(words, _draw(watched, "--last", "5"))]
    words = (
        "If the order within prompts is still good, the reward is only too generous: lower its weight, raise the KL "
        "penalty, or calibrate it on labelled samples of this policy. Otherwise go back to the last checkpoint before "
        f"{at}."
    )
    # Labels of a file may name samples by their texts, and those of a function are made here: `calibrate` has neither.
    if {"--labels", "--label-from"} & {*watched.source}:
        return [*steps, Step(words)]
    words += (
        " A calibrator of these samples fits them by itself: only samples that come later, or of another run, show "
        "whether it is right."
    )
    return [
        *steps,
        Step(words, f"{_command(watched, 'calibrate', '--benchmark', '--calibrator')} --to calibrator.json"),
    ]


def _not_measured(watched: Watch) -> list[str]:
    """Return which columns are unknown, and why."""
    labels = bool(watched.labels.get("samples"))
    texts = any(_has(row.get("mean_length")) for row in watched.steps)
    reasons = {
        "right": "no labels",
        "auroc": "no prompt has a right and a wrong sample with labels" if labels else "no labels",
        "gap": "no probabilities yet" if labels else "no labels",
        "length_correlation": "rewards or lengths are equal within each prompt" if texts else "no texts",
    }
    if labels and watched.labels["are"] == "best":
        reasons |= dict.fromkeys(("right", "gap"), "labels name the best sample of a prompt")
    missing = [name for name in watched.misses if name != "gap" or watched.reference["kind"] != "none"]
    by_reason: dict[str, list[str]] = {}
    for name in missing:
        by_reason.setdefault(reasons.get(name, "all rewards are equal"), []).append(name)
    listed = "; ".join(f"{', '.join(names)} ({reason})" for reason, names in by_reason.items())
    return [f"Not measured: {listed}."] if listed else []


def _about_labels(watched: Watch) -> list[str]:
    """Return how many labels there are, what they could show, and what would make the alarm wrong."""
    about = watched.labels
    if not about.get("samples"):
        return []
    share = about["samples"] / about["of"]
    text = f"{count(about['samples'], 'label')} on {count(about['prompts'], 'prompt')} ({share:.0%} of the samples)"
    if about["shown_from"] is not None and np.isfinite(about["shown_from"]):
        text += f"; a gap over the whole run of {100 * about['shown_from']:.0f} points would be shown"
    sentences = [f"{text}."]
    if share < 1:
        sentences.append(
            "The alarm is wrong if correct samples are labelled more or less often than wrong ones: label at random."
        )
    return sentences


def _has(value: Any) -> bool:
    return value is not None and value == value


def step_cell(name: str, row: Mapping[str, Any]) -> Cell:
    """Return a number of a step, in the unit of its column in `WATCHED`."""
    value = row.get(name)
    if not _has(value):
        return Cell("–")
    if isinstance(value, int):
        return Cell(f"{value:,}", value)
    low = row.get(f"{name}_low") if name in _BRACKETED else None
    both = {"value": value, "low": low if _has(low) else None, "high": row.get(f"{name}_high")}
    if name == "gap":
        return Cell(display.points(both), value)
    return Cell(bracketed(both, percent if name in _PERCENT else number), value)

"""The document of a watched training run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import percent
from rmcalib._util.terminal import count
from rmcalib.report import figures
from rmcalib.report.document import Cell, Column, Document, Drawing, Table

if TYPE_CHECKING:
    from rmcalib.integrations.watching import Watch

_REFERENCE = {
    "stated": "the sigmoid of the reward, as it is",
    "calibrator": "the given calibrator",
    "benchmark": "a fit on the given benchmark",
    "start": "a fit on the first prompts of the run",
}
_COLUMNS = {
    "n_samples": Column("samples", page_only=True),
    "n_prompts": Column("prompts"),
    "mean_reward": Column("reward", "mean reward"),
    "right": Column("right", "fraction of samples that are correct"),
    "gap": Column("gap", "mean probability minus right, in points"),
    "gap_fitted": Column("gap, fitted", "the same with b and T fitted on the first prompts", page_only=True),
    "auroc": Column("order", "how often a correct sample beats a wrong one of its prompt"),
    "length_correlation": Column("with length", "correlation of reward and length", page_only=True),
    "drift": Column(
        "drift", "change of the mean reward since the first step, in standard deviations", page_only=True
    ),
    "ties": Column("ties", "fraction of samples with the reward of another one", page_only=True),
}
_PERCENT = ("right", "ties")
_POINTS = ("gap", "gap_fitted")
_BRACKETED = ("gap", "auroc")


def watch_document(found: Watch) -> Document:
    """Return the document of a watched training run: curves, and one row per step."""
    first, last = (found.steps[0]["step"], found.steps[-1]["step"]) if found.steps else (0, 0)
    shown = [name for name in _COLUMNS if any(_known(row.get(name)) for row in found.steps)]
    rows = [
        [Cell(f"{row['step']:g}", row["step"]), *(_cell(row, name) for name in shown)] for row in found.steps
    ]
    # Unknown numbers are left out of the curves.
    drawn = [{name: value if _known(value) else None for name, value in row.items()} for row in found.steps]
    label = "Gap, right, order within prompts and mean reward over the steps"
    return Document(
        title="Training run",
        subtitle=f"{count(len(found.steps), 'step')}, {first:g} to {last:g}",
        sentences=watch_sentences(found),
        first=[
            Drawing("curves", partial(figures.watch_figure, drawn), label),
            Table(
                "steps", [Column("step", text=True), *(_COLUMNS[name] for name in shown)], rows, newest=True
            ),
        ],
        footer=f"Intervals: 95%, prompts as clusters. Probabilities: {_REFERENCE[found.reference['kind']]}.",
    )


def watch_sentences(found: Watch) -> list[str]:
    """Return whether the alarm holds, what it is about, and what could not be measured."""
    chance = f"{1 - found.level:.0%}"
    alarm = found.alarm
    if alarm is not None:
        over = "over the run so far" if alarm["over"] == "run" else f"over the {alarm['over']}"
        size = f"{100 * abs(alarm['value']):.1f} points {over}, from {count(alarm['prompts'], 'prompt')}"
        if alarm["what"] == "order":
            what = f"the order within prompts is worse than the rewards say, by {size}"
        elif alarm["value"] > 0:
            what = f"the reward says more than is right, by {size}"
        else:
            what = f"the reward says less than is right, by {size}"
        sentences = [
            f"Alarm at step {alarm['step']:g}: {what}.",
            f"More than {100 * found.margin:g} points are shown, and a false alarm in the whole run has a chance of "
            f"at most {chance}.",
        ]
    elif "gap" in found.misses and not found.waiting:
        sentences = ["Without labels there is no alarm: nobody knows which samples are correct."]
    elif found.waiting:
        sentences = [f"No alarm yet: the reference needs {count(found.waiting, 'more labelled prompt')}."]
    else:
        sentences = [f"No alarm: a gap above {100 * found.margin:g} points is not shown."]
    if found.steps and all(row["squashed"] for row in found.steps):
        sentences.append("All rewards lie between 0 and 1: was a sigmoid applied to them?")
    if found.misses:
        sentences.append(f"Not measured, for lack of labels or texts: {', '.join(found.misses)}.")
    return sentences


def _known(value: Any) -> bool:
    return value is not None and value == value


def _cell(row: Mapping[str, Any], name: str) -> Cell:
    value = row.get(name)
    if not _known(value):
        return Cell("–", None)
    assert value is not None
    scale = 100.0 if name in _POINTS else 1.0

    def text(one: float) -> str:
        if isinstance(one, int):
            return f"{one:,}"
        return (
            percent(one) if name in _PERCENT else f"{scale * one:+.1f}" if name in _POINTS else f"{one:.3f}"
        )

    limits = ""
    if name in _BRACKETED and _known(row.get(f"{name}_low")):
        limits = f" [{text(row[f'{name}_low'])}, {text(row[f'{name}_high'])}]"
    return Cell(f"{text(value)}{limits}", float(value))

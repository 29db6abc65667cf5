"""Documents and sentences of what `repair` returns, and of a watched training run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from rmcalib._util import display
from rmcalib._util.display import bracketed, clean_line, count, number, percent, points, temperature_text
from rmcalib.integrations.watching import Watch
from rmcalib.repair.applying import Applied
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, CalibratorCheck
from rmcalib.repair.decisions import Decisions
from rmcalib.repair.panels import Panel
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.document import Cell, Column, Columns, Document, Drawing, Tile, entry, ranged, table_of
from rmcalib.report.sentences import metric_name, p_text

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
    "outside": Column(
        "outside", "fraction of rewards beyond the range of the calibrator's fit", page_only=True
    ),
    "mean_length": Column("length", "mean length in characters", page_only=True),
    "repeated": Column(
        "copies", "fraction of samples that repeat another one of their prompt", page_only=True
    ),
}
_PERCENT = ("right", "ties", "says", "outside", "repeated")
_BRACKETED = ("gap", "auroc")


# Decisions.


def decision_sentences(found: Decisions) -> list[str]:
    """Return when to accept the first choice, what acting on its probabilities costs, and when to stop drawing."""
    choice, sure, limit = found.choice, f"{found.level:.0%} confidence", f"{found.wrong_at_most:.0%}"
    if choice.threshold is None and choice.wrong is None:
        first = (
            f"Too few prompts for a threshold: even without an error, {choice.fewest} accepted responses are "
            f"needed to show that at most {limit} are wrong with {sure}."
        )
    elif choice.threshold is None:
        first = (
            f"No threshold is shown to keep accepted responses wrong at most {limit} of the time: of its "
            f"{choice.n:,} surest choices ({count(found.n, 'prompt')} in all), {percent(choice.wrong)} are wrong."
        )
    else:
        p = "calibrated probability" if found.calibrator.fitted_on else "probability"
        what = " of being correct" if found.calibrator.view == "pointwise" else ""
        when = "always" if choice.threshold == 0 else f"if its {p}{what} is at least {choice.threshold:.10g}"
        rest = "" if found.asked == 0 else f" A person decides the other {found.asked:.0%}."
        first = (
            f"Accept its first choice {when}: that accepts {choice.accepted:.0%} of the prompts, of which at most "
            f"{limit} are wrong on prompts like these, with {sure} ({percent(choice.wrong)} here).{rest}"
        )
    sentences = [first]
    if found.left_out:
        why = (
            "without a label of their first choice"
            if found.calibrator.view == "pointwise"
            else "without exactly one correct response"
        )
        sentences.append(f"{count(found.left_out, 'prompt')} {why} are left out.")
    regret = found.regret
    if regret is not None:
        chance = ", which chance can explain" if regret.low <= 0 <= regret.high else ""
        sentences.append(
            f"If you act on its own probabilities, you accept above {regret.threshold:.3g} "
            f"({regret.accepted:.0%} of the prompts) and expect a cost of {regret.believed:.3f} per prompt, where "
            f"a wrong response costs 1 and asking {found.ask_cost:.2g}. The estimated cost is {regret.cost:.3f}; "
            f"with calibrated probabilities it is {regret.calibrated_cost:.3f}. The difference is "
            f"{regret.value:z.3f} [{regret.low:z.3f}, {regret.high:z.3f}]{chance}."
        )
    if found.drawing:
        sentences.append(_drawing_sentence(found))
    return sentences


def _drawing_sentence(found: Decisions) -> str:
    """Return the cheapest way to draw samples and accept one."""
    costs = (
        f"a wrong response costs 1, asking {found.ask_cost:.2g}, a sample {found.sample_cost:.2g} "
        f"({found.level:.0%} confidence for all rules together)"
    )
    best = min(found.drawing, key=lambda row: float(row["cost"]))
    if best["threshold"] is None:
        return f"No way to draw samples and accept one is shown to be cheaper than asking at once: {costs}."
    condition = "" if best["threshold"] == 0 else f" if P(correct) is at least {best['threshold']:.3g}"
    how = f"Draw {count(best['n'], 'sample')}, and accept the best one{condition}"
    if best["rule"] == "first":
        how = f"Draw at most {count(best['n'], 'sample')}, and stop at the first one{condition}"
    return (
        f"{how}: that takes {best['samples']:.1f} samples per prompt and accepts {best['accepted']:.0%} of the "
        f"prompts, of which at most {found.wrong_at_most:.0%} are wrong ({percent(best['wrong'])} here). It costs "
        f"{best['cost']:.3f} per prompt: {costs}."
    )


def _drawing_table(found: Decisions) -> doc.Table:
    """Return the rules for drawing samples: their thresholds and costs."""
    columns: Columns = {
        "at most": lambda row: Cell(count(row["n"], "sample"), row["n"]),
        "accept": lambda row: "the best of them" if row["rule"] == "best" else "the first one, and stop",
        "if P(correct) ≥": entry("threshold", number),
        "accepts": entry("accepted", percent),
        "wrong": entry("wrong", percent),
        "samples per prompt": entry("samples", number),
        "cost": entry("cost", number),
    }
    caption = "Prompts that are not accepted go to a person. The limit of wrong responses holds for all rows at once."
    return table_of("If you draw samples", found.drawing, columns, caption)


def decisions_document(found: Decisions) -> Document:
    """Return the document of decisions: the threshold, and accuracy by how sure the model is."""
    choice, sure = found.choice, f"of those, with {found.level:.0%} confidence"
    above = "–" if choice.threshold is None else f"{choice.threshold:.3g}"
    return Document(
        title="When to accept its choice",
        subtitle=count(found.n, "prompt"),
        sentences=decision_sentences(found),
        tiles=[
            Tile("accept above", above, meaning="probability of its first choice"),
            Tile("accepts", percent(choice.accepted), meaning="of the prompts"),
            Tile("wrong, at most", percent(choice.high), meaning=sure),
        ],
        first=[
            decisions_drawing(found),
            *([_drawing_table(found)] if found.drawing else []),
            doc.Words(
                ["How many responses to choose from, and whether more of them do harm: rmcalib best-of-n."]
            ),
        ],
    )


def decisions_drawing(found: Decisions) -> Drawing:
    """Return the figure of decisions."""
    label = "Accuracy of the surest choices"
    return Drawing("decisions-figure", partial(figures.decisions_figure, found), label)


# What a calibrator makes of rewards.


def applied_document(found: Applied) -> Document:
    """Return the document of rows with their probabilities: the first ten of them."""
    table = found.table
    used = found.calibrator
    sentences = [f"Probabilities at T = {temperature_text(used.temperature)}."]
    if found.n_outside:
        sentences.append(
            f"{count(found.n_outside, 'reward')} beyond the range of the fit: probabilities there are extrapolated."
        )
    if used.rule is not None:
        sentences.append(f"{percent(found.accepted)} of the prompts are accepted. The rule: {used.rule}.")
    if used.rule is not None and found.n_other_sizes:
        fewest, most = used.rule.responses
        sentences.append(
            f"{count(found.n_other_sizes, 'prompt')} with another number of responses than the {fewest} to {most} that "
            "the rule was tested on: its guarantee is not about them."
        )
    stated = [name for name in found.added if name.startswith("probability")]
    # A terminal has room for the first column, which names the rows, and for what was added to single responses.
    brief = [table.columns[0], *(found.added if len(stated) == 1 else ())]
    shown: Columns = {
        Column(str(name), page_only=name not in brief): partial(_applied_cell, name) for name in table.columns
    }
    if len(stated) > 1:
        shown["probabilities"] = partial(_joined, stated)
    values = np.concatenate([np.asarray(found.added[name], dtype=float) for name in stated])
    drawn = partial(figures.histogram_figure, values, "probability", "responses")
    return Document(
        title="What the rewards mean",
        subtitle=f"{count(len(table), 'row')}, {count(found.n, 'prompt')}",
        sentences=sentences,
        first=[
            table_of("The first rows", table.head(10).to_dict("records"), shown),
            Drawing("probabilities", drawn, "Histogram of the probabilities"),
        ],
    )


def _joined(names: Sequence[str], row: Any) -> str:
    """Return the probabilities of a row that holds several responses; rows may have different numbers of them."""
    return ", ".join(f"{row[name]:.3f}" for name in names if np.isfinite(row[name]))


def _applied_cell(name: str, row: Any) -> Cell:
    value = row[name]
    if isinstance(value, int | float):
        return Cell(f"{value:.4g}" if isinstance(value, float) else str(value), value)
    return Cell(clean_line(value)[:80])


# Calibrations.


def calibration_sentences(found: Calibration) -> list[str]:
    """Return the temperature, its gain on other prompts, and whether categories need others."""
    fitted = found.calibrator
    gain = dict(zip(("value", "low", "high"), found.gain, strict=True))
    best = {"value": fitted.temperature, "low": fitted.low, "high": fitted.high}
    shown = "" if gain["low"] > 0 else ", which chance can explain"
    moved = ""
    if fitted.threshold is not None:
        b = {"value": fitted.threshold, "low": fitted.threshold_low, "high": fitted.threshold_high}
        moved = (
            f"Subtract b = {bracketed(b)} from the rewards, where a response is as likely correct as not. "
        )
    sentences = [
        f"{moved}Divide the rewards by T = {bracketed(best, temperature_text)}: the log loss on held-out prompts "
        f"falls by an estimated {bracketed(gain)}{shown}."
    ]
    gaps = [
        row
        for row in found.rows
        if row["category"] == "overall" and row["metric"] in ("overconfidence", "pointwise_gap")
    ]
    if len(gaps) == 2 and None not in (gaps[0]["value"], gaps[1]["value"]):
        before, after = (points(row, unit=" points") for row in gaps)
        sentences.append(f"Its gap there goes from {before} to {after}.")
    if found.p_equal is not None:
        p = p_text(found.p_equal)
        if found.p_equal < 1 - fitted.level:
            sentences.append(
                f"One temperature does not fit all categories ({p}): use it on a mix like this one."
            )
        else:
            sentences.append(f"Categories are not shown to need different temperatures ({p}).")
    sentences.append("It holds for prompts like these; check it on labelled prompts of your own.")
    return sentences


def calibration_document(found: Calibration) -> Document:
    """Return the document of a calibration: the temperature, and metrics before and after."""
    from rmcalib.report.pages import metric_cell

    overall = {(row["stage"], row["metric"]): row for row in found.rows if row["category"] == "overall"}
    columns: Columns = {"metric": metric_name}

    def value(stage: str, name: str) -> Cell:
        return metric_cell(overall.get((stage, name)), name)

    columns |= {stage: partial(value, stage) for stage in ("before", "after")}
    names = dict.fromkeys(row["metric"] for row in found.rows)
    first: list[doc.Block] = [table_of("Before and after", names, columns, "After: on held-out prompts.")]
    if found.categories:
        drawn = [
            {**row, "label": row["category"], "value": row["temperature"]}
            | {"marked": not row["low"] <= found.temperature <= row["high"]}
            for row in found.categories
        ]
        draw = partial(figures.interval_figure, drawn, "temperature (line: of all)", line=found.temperature)
        first.append(Drawing("categories", draw, "Temperature of each category with its interval"))
    n = count(found.n, "prompt")
    return Document(
        title=f"Calibrator of {clean_line(found.calibrator.model or 'a model')}",
        subtitle=n if found.n_clusters == found.n else f"{count(found.n_clusters, 'question')}, {n}",
        sentences=calibration_sentences(found),
        first=first,
    )


def check_words(calibrator: Calibrator, found: CalibratorCheck) -> str:
    """Return whether a calibrator holds on other scores, in a sentence."""
    bench = clean_line(calibrator.fitted_on.get("benchmark") or "other prompts")
    start = f"The temperature {temperature_text(calibrator.temperature)} was fitted"
    if found.holds is None:
        same = f"on these same {count(found.n, 'prompt')}"
        return f"{start} {same}, so they do not show whether it holds on others."
    seen = "is not shown to be off here" if found.holds else "does not hold here"
    best = bracketed({"value": found.temperature, "low": found.low, "high": found.high}, temperature_text)
    return f"{start} on {bench} and {seen}: on these {count(found.n, 'prompt')} the best one is {best}."


# Panels.


def panel_sentences(found: Panel) -> list[str]:
    """Return what the panel gains over its best member and a guess, and who is redundant."""
    sentences, guess = [], found.panels[0]["panel"]
    for row in found.panels:
        if row.get("gain_low") is None or row["panel"] in ("best member", guess):
            continue
        verdict = "is not shown to be better than its best member"
        if row["gains"]:
            verdict = "is better than its best member"
        elif row["gain_high"] < 0:
            verdict = "is worse than its best member"
        elif row["information_low"] is None or row["information_low"] <= 0:
            verdict += f" and {'the' if guess == 'base rate' else 'a'} {guess}"
        change = {"value": -row["gain"], "low": -row["gain_high"], "high": -row["gain_low"]}
        sentences.append(
            f"The panel ({row['panel']}) {verdict}: its log loss differs by {bracketed(change, display.signed)} nats."
        )
    redundant = [clean_line(row["judge"]) for row in found.members if row["redundant"]]
    if redundant:
        sentences.append(f"Not shown to add anything: {', '.join(redundant)}.")
    return sentences or ["There is no panel to report."]


def panel_document(found: Panel) -> Document:
    """Return the document of a panel: which judges add something."""
    members: Columns = {
        "judge": entry("judge"),
        "T": entry("temperature", temperature_text),
        "weight": entry("weight", number),
        "log loss": entry("log_loss", number),
        "right": entry("accuracy", percent),
        "log loss rises without it": ranged("left_out"),
    }
    panels: Columns = {
        "panel": entry("panel"),
        "log loss": entry("log_loss", number),
        "right": entry("accuracy", percent),
    }
    drawn = [
        {**row, "label": row["judge"], "value": row["left_out"], "marked": not row["redundant"]}
        for row in found.members
    ]
    return Document(
        title=f"Panel of {count(len(found.members), 'judge')}",
        subtitle=count(found.n, "prompt"),
        sentences=panel_sentences(found),
        first=[
            table_of("Panels", found.panels, panels),
            table_of("Members", found.members, members),
            Drawing(
                "members",
                partial(figures.interval_figure, drawn, "log loss rises without this judge, in nats"),
                "What each judge adds, with its interval",
            ),
            doc.Words(["All numbers are of prompts that temperatures and weights were not fitted on."]),
        ],
    )


# Training runs.


def watch_document(found: Watch) -> Document:
    """Return the document of a watched training run: curves, and one row per step."""
    first, last = (found.steps[0]["step"], found.steps[-1]["step"]) if found.steps else (0, 0)
    columns: Columns = {"step": lambda row: Cell(f"{row['step']:g}", row["step"])}
    for name, column in WATCHED.items():
        if any(_known(row.get(name)) for row in found.steps):
            columns[column] = partial(step_cell, name)
    # Unknown numbers are left out of the curves.
    drawn = [{name: value if _known(value) else None for name, value in row.items()} for row in found.steps]
    label = "Gap, right, order within prompts and mean reward over the steps"
    return Document(
        title="Training run",
        subtitle=f"{count(len(found.steps), 'step')}, {first:g} to {last:g}",
        sentences=watch_sentences(found),
        first=[
            Drawing("curves", partial(figures.curves_figure, drawn, figures.WATCHED), label),
            table_of("steps", reversed(found.steps), columns),
        ],
        footer=f"Intervals: 95%, prompts as clusters. Probabilities: {_REFERENCE[found.reference['kind']]}.",
    )


def watch_sentences(found: Watch) -> list[str]:
    """Return whether the alarm holds, what it is about, what it stands on, and what could not be measured."""
    chance, effective = f"{1 - found.level:.0%}", 100 * found.reference["margin"]
    sentences = [f"Alarm at step {alarm['step']:g}: {alarm['reason']}." for alarm in found.alarms]
    if sentences:
        sentences.append(
            f"More than {effective:.2g} points are shown, and a false alarm in the whole run has a chance of at most "
            f"{chance}."
        )
    elif found.waiting:
        sentences = [
            f"No alarm yet: the reference needs about {count(found.waiting, 'more labelled prompt')}."
        ]
    elif found.reference["kind"] == "none":
        sentences = [
            f"No alarm without a reference: {found.reference['reason']}. Give --calibrator FILE, or --calibrator start."
        ]
    elif not found.labels.get("samples"):
        sentences = ["Without labels there is no alarm: nobody knows which samples are correct."]
    else:
        sentences = [f"No alarm: a gap above {effective:.2g} points is not shown."]
    sentences += _about_labels(found)
    sentences += [
        f"Change at step {change['step']:g}: {change['reason']}. That is a change, not an error."
        for change in found.changes
    ]
    if found.reference["kind"] == "stated":
        what = {"probability": "as probabilities of being correct", "log_odds": "as log-odds"}
        read = what.get(found.reference["scale"], f"as {found.reference['scale']}")
        sentences.append(f"Rewards are read {read} ({found.reference['reason']}).")
    if effective > 100 * found.margin + 0.05:
        sentences.append(
            f"The margin of {100 * found.margin:g} points grows to {effective:.2g} by the reference's error."
        )
    missing = [name for name in found.misses if name != "gap" or found.reference["kind"] != "none"]
    if missing:
        sentences.append(f"Not measured, for lack of labels or texts: {', '.join(missing)}.")
    if found.problems:
        sentences.append(f"{count(len(found.problems), 'file')} could not be read: {found.problems[-1]}.")
    return sentences


def _about_labels(found: Watch) -> list[str]:
    """Return how many labels there are, what they could show, and what would make the alarm wrong."""
    about = found.labels
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


def _known(value: Any) -> bool:
    return value is not None and value == value


def step_cell(name: str, row: Mapping[str, Any]) -> Cell:
    """Return a number of a step, in the unit of its column in `WATCHED`."""
    value = row.get(name)
    if not _known(value):
        return Cell("–")
    if isinstance(value, int):
        return Cell(f"{value:,}", value)
    low = row.get(f"{name}_low") if name in _BRACKETED else None
    both = {"value": value, "low": low if _known(low) else None, "high": row.get(f"{name}_high")}
    if name == "gap":
        return Cell(display.points(both), value)
    return Cell(bracketed(both, percent if name in _PERCENT else number), value)


DOCUMENTS: dict[type, Callable[[Any], Document]] = {
    Calibration: calibration_document,
    Applied: applied_document,
    Decisions: decisions_document,
    Panel: panel_document,
    Watch: watch_document,
}

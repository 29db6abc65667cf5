"""The document of `calibrate`, its sentences, and the sentence of a calibrator's check."""

from __future__ import annotations

from functools import partial

from rmcalib._util.display import bracketed, clean_line, count, points, temperature_text
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, CalibratorCheck
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.document import Cell, Columns, Document, Drawing, table_of
from rmcalib.report.pages import metric_cell
from rmcalib.report.sentences import metric_name, p_text


def calibration_sentences(found: Calibration) -> list[str]:
    """Return the temperature, its gain on other prompts, and whether categories need others."""
    fitted = found.calibrator
    gain = dict(zip(("value", "low", "high"), found.gain, strict=True))
    best = {"value": fitted.temperature, "low": fitted.low, "high": fitted.high}
    shown = "" if gain["low"] > 0 else ", which may be chance"
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
            sentences.append(f"No difference between the temperatures of the categories was found ({p}).")
    sentences.append("It holds for prompts like these; check it on labelled prompts of your own.")
    return sentences


def calibration_document(found: Calibration) -> Document:
    """Return the document of a calibration: the temperature, and metrics before and after."""
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
        which = "these same" if found.used == found.n else f"{found.used:,} of these"
        same = f"on {which} {count(found.n, 'prompt')}"
        return f"{start} {same}, so they do not show whether it holds on others."
    seen = "shows no error here" if found.holds else "does not hold here"
    best = bracketed({"value": found.temperature, "low": found.low, "high": found.high}, temperature_text)
    if found.used:
        bench, where = f"{count(found.used, 'prompt')} of these", f"{found.n:,} others"
    else:
        where = f"these {count(found.n, 'prompt')}"
    return f"{start} on {bench} and {seen}: on {where} the best one is {best}."

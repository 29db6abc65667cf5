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


def calibration_sentences(result: Calibration) -> list[str]:
    """Return the temperature, its gain on other prompts, and whether categories need others."""
    fitted = result.calibrator
    gain = dict(zip(("value", "low", "high"), result.gain, strict=True))
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
        for row in result.rows
        if row["category"] == "overall" and row["metric"] in ("overconfidence", "pointwise_gap")
    ]
    if len(gaps) == 2 and None not in (gaps[0]["value"], gaps[1]["value"]):
        before, after = (points(row, unit=" points") for row in gaps)
        sentences.append(f"Its gap there goes from {before} to {after}.")
    if result.p_equal is not None:
        p = p_text(result.p_equal)
        if result.p_equal < 1 - fitted.level:
            sentences.append(
                f"One temperature does not fit all categories ({p}): use it on a mix like this one."
            )
        else:
            sentences.append(f"No difference between the temperatures of the categories was found ({p}).")
    sentences.append("It holds for prompts like these; check it on labelled prompts of your own.")
    return sentences


def calibration_document(result: Calibration) -> Document:
    """Return the document of a calibration: the temperature, and metrics before and after."""
    overall = {(row["stage"], row["metric"]): row for row in result.rows if row["category"] == "overall"}
    columns: Columns = {"metric": metric_name}

    def value(stage: str, name: str) -> Cell:
        return metric_cell(overall.get((stage, name)), name)

    columns |= {stage: partial(value, stage) for stage in ("before", "after")}
    names = dict.fromkeys(row["metric"] for row in result.rows)
    first: list[doc.Block] = [table_of("Before and after", names, columns, "After: on held-out prompts.")]
    if result.categories:
        drawn = [
            {**row, "label": row["category"], "value": row["temperature"]}
            | {"marked": not row["low"] <= result.temperature <= row["high"]}
            for row in result.categories
        ]
        draw = partial(figures.interval_figure, drawn, "temperature (line: of all)", line=result.temperature)
        first.append(Drawing("categories", draw, "Temperature of each category with its interval"))
    n = count(result.n, "prompt")
    return Document(
        title=f"Calibrator of {clean_line(result.calibrator.model or 'a model')}",
        subtitle=n if result.n_clusters == result.n else f"{count(result.n_clusters, 'question')}, {n}",
        sentences=calibration_sentences(result),
        first=first,
    )


def check_words(calibrator: Calibrator, result: CalibratorCheck) -> str:
    """Return whether a calibrator holds on other scores, in a sentence."""
    bench = clean_line(calibrator.fitted_on.get("benchmark") or "other prompts")
    start = f"The temperature {temperature_text(calibrator.temperature)} was fitted"
    if result.holds is None:
        which = "these same" if result.used == result.n else f"{result.used:,} of these"
        same = f"on {which} {count(result.n, 'prompt')}"
        return f"{start} {same}, so they do not show whether it holds on others."
    seen = "shows no error here" if result.holds else "does not hold here"
    best = bracketed({"value": result.temperature, "low": result.low, "high": result.high}, temperature_text)
    if result.used:
        bench, where = f"{count(result.used, 'prompt')} of these", f"{result.n:,} others"
    else:
        where = f"these {count(result.n, 'prompt')}"
    return f"{start} on {bench} and {seen}: on {where} the best one is {best}."

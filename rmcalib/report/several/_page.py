"""The files of a report on several benchmarks: page, Markdown, CSVs, JSON, and a leaderboard of each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmcalib import __version__
from rmcalib._util.display import number, percent, points, temperature_text
from rmcalib._util.files import write_bytes, write_csv, write_json, write_text
from rmcalib._util.hub import folder_name
from rmcalib._util.markdown import markdown_table, markdown_text
from rmcalib._util.storage import as_path
from rmcalib._util.terminal import count
from rmcalib.metrics import NO_TEMPERATURE
from rmcalib.report._drawing import figure_bytes, figure_svg
from rmcalib.report._page import render
from rmcalib.report.leaderboard._page import write_leaderboard
from rmcalib.report.several._figure import temperatures_figure
from rmcalib.report.several._joint import Joint

__all__ = ["write_joint"]

Row = dict[str, Any]
_TABLES = {"benchmarks": "values", "temperatures": "temperatures", "transfer": "effects", "models": "models"}


def write_joint(joint: Joint, folder: str | Path) -> Path:
    """Write report.html, summary.md, report.json, CSVs and figures/.

    The leaderboard of each benchmark is written to a separate folder.

    Parameters
    ----------
    joint : Joint
        The result of :func:`report_from_runs` for several benchmarks.
    folder : str | Path
        A folder or URL.

    Returns
    -------
    Path
        The path of the page.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from rmcalib.report import evaluate, join_evaluations
    >>> from rmcalib.scores import Scores
    >>> scores = Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]])
    >>> joint = join_evaluations([evaluate(scores, model="org/rm", resamples=20)], [scores])
    >>> with TemporaryDirectory() as folder:
    ...     write_joint(joint, folder).name
    'report.html'
    """
    out = as_path(folder)
    figure = temperatures_figure(joint.temperatures)
    drawing = None
    if figure is not None:
        label = "The best temperature of each model on each benchmark, with intervals"
        drawing = figure_svg(figure, "temperatures", label=label)
        for kind in ("png", "pdf"):
            write_bytes(out / "figures" / f"temperatures.{kind}", figure_bytes(figure, kind))
    links = _links(joint)
    for name, board in joint.boards.items():
        write_leaderboard(board, out / links[name])
    for file, table in _TABLES.items():
        if rows := getattr(joint, table):
            write_csv(out / f"{file}.csv", rows)
    write_json(out / "report.json", joint.content())
    write_text(out / "summary.md", _markdown(joint))
    settings = joint.settings
    page = render(
        "several.html",
        title="Reward models on several benchmarks",
        subtitle=f"{', '.join(joint.benchmarks)} · {count(len(joint.models), 'model')}",
        summary=joint.summary,
        benchmarks=[{"name": name, "link": links.get(name)} for name in joint.benchmarks],
        models=[
            {
                **row,
                "cells": [_cells(joint, row["model"], name) for name in joint.benchmarks],
                "transfer": transfer_rows(joint, row["model"]),
                "columns": _used_on(joint, row["model"]),
            }
            for row in joint.models
        ],
        figure=drawing,
        level=f"{settings.level:.0%}",
        notes=joint.notes,
        footer=f"rmcalib {__version__}, {settings.level:.0%} intervals over prompts, seed {settings.seed}.",
    )
    return write_text(out / "report.html", page)


def transfer_rows(joint: Joint, model: str) -> list[Row]:
    """Return one row per temperature: where it was fitted, and its effect on each benchmark."""
    mine = [row for row in joint.effects if row["model"] == model]
    columns = _used_on(joint, model)
    rows = []
    for source in dict.fromkeys(row["fitted_on"] for row in mine):
        found = {row["used_on"]: row for row in mine if row["fitted_on"] == source}
        cells = [_effect(source, found[name]) for name in columns]
        first = next(iter(found.values()))
        rows.append({"fitted_on": source, "text": temperature_text(first["temperature"]), "cells": cells})
    return rows if len(columns) > 1 else []


def _used_on(joint: Joint, model: str) -> list[str]:
    return list(dict.fromkeys(row["used_on"] for row in joint.effects if row["model"] == model))


def _effect(source: str, row: Row) -> Row:
    """A cell: the information lost at a temperature, and whether it is more or less than without one."""
    if source == row["used_on"]:
        return {"text": "0 (fitted here)", "verdict": ""}
    text = f"{number(row['lost_information'])} [{number(row['low'])}, {number(row['high'])}]"
    if source == NO_TEMPERATURE:
        return {"text": text, "verdict": ""}
    verdict = "better" if row["change_high"] < 0 else "worse" if row["change_low"] > 0 else ""
    return {"text": text, "verdict": verdict}


def _cells(joint: Joint, model: str, benchmark: str) -> Row:
    gap, lost, says, right = (
        joint.value(model, benchmark, metric)
        for metric in ("overconfidence", "lost_information", "mean_confidence", "accuracy")
    )
    both = says is not None and right is not None
    return {
        "says_right": f"{percent(says['value'])} / {percent(right['value'])}"
        if says and right and both
        else "–",
        "gap": points(gap),
        "lost": "–"
        if lost is None
        else f"{number(lost['value'])} [{number(lost['low'])}, {number(lost['high'])}]",
    }


def _links(joint: Joint) -> dict[str, str]:
    """The folder of each benchmark's leaderboard; similar names get a number."""
    links: dict[str, str] = {}
    for name in joint.boards:
        base = text = folder_name(name)
        i = 2
        while text in links.values():
            text, i = f"{base}-{i}", i + 1
        links[name] = text
    return links


def _markdown(joint: Joint) -> str:
    lines = ["# Reward models on several benchmarks", "", markdown_text(joint.summary), ""]
    heads = [
        text for name in joint.benchmarks for text in (f"gap in points: {name}", f"lost information: {name}")
    ]
    body = []
    for row in joint.models:
        cells = [_cells(joint, row["model"], name) for name in joint.benchmarks]
        body.append([row["model"], *(text for cell in cells for text in (cell["gap"], cell["lost"]))])
    lines += [*markdown_table(["model", *heads], body), "", "## Best temperatures", ""]
    limits = [
        [
            row["model"],
            row["benchmark"],
            temperature_text(row["temperature"]),
            f"{temperature_text(row['low'])} to {temperature_text(row['high'])}",
            str(row["n"]),
        ]
        for row in joint.temperatures
    ]
    lines += [*markdown_table(["model", "benchmark", "T", "interval", "prompts"], limits), ""]
    lines += [f"- {markdown_text(row['model'])}: {markdown_text(row['words'])}" for row in joint.models]
    if joint.notes:
        lines += ["", "## Notes", "", *(f"- {markdown_text(note)}" for note in joint.notes)]
    return "\n".join(lines) + "\n"

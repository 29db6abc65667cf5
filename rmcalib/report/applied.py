"""The document of `apply`: rewards with their probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from rmcalib._util.display import clean_line, count, percent, temperature_text
from rmcalib.repair.applying import Applied
from rmcalib.report import figures
from rmcalib.report.document import Cell, Column, Columns, Document, Drawing, table_of

_ROWS = 10  # that are shown
_SHORT = 24  # characters of a text in a terminal


def applied_document(result: Applied) -> Document:
    """Return the document of rows with their probabilities: the first ten of them."""
    table = result.table
    used = result.calibrator
    sentences = [f"Probabilities at T = {temperature_text(used.temperature)}.", *cautions(result)]
    if used.rule is not None:
        sentences.append(f"{percent(result.accepted)} of the prompts are accepted. The rule: {used.rule}.")
    stated = [name for name in result.added if name.startswith("probability")]
    # A terminal has room for the columns that name the rows, and for what was added to single responses.
    brief = [*_naming(table.head(_ROWS), len(result.given)), *(result.added if len(stated) == 1 else ())]
    ordered = [*brief, *(name for name in table.columns if name not in brief)]
    shown: Columns = {
        Column(str(name), page_only=name not in brief): partial(_applied_cell, name) for name in ordered
    }
    if len(stated) > 1:
        shown["probabilities"] = partial(_joined, stated)
    values = np.concatenate([np.asarray(result.added[name], dtype=float) for name in stated])
    drawn = partial(figures.histogram_figure, values, "probability", "responses")
    return Document(
        title="What the rewards mean",
        subtitle=f"{count(len(table), 'row')}, {count(result.n, 'prompt')}",
        sentences=sentences,
        first=[
            table_of("The first rows", table.head(_ROWS).to_dict("records"), shown),
            Drawing("probabilities", drawn, "Histogram of the probabilities"),
        ],
    )


def cautions(result: Applied) -> list[str]:
    """Return what speaks against these probabilities, in sentences."""
    used, sentences = result.calibrator, []
    if result.other_model:
        sentences.append(
            f"The calibrator was fitted on rewards of {clean_line(used.model)}, and these are of "
            f"{clean_line(result.other_model)}: the probabilities may be wrong."
        )
    if result.n_outside:
        asked = "" if used.rule is None else ", and their prompts are not accepted"
        sentences.append(
            f"{count(result.n_outside, 'reward')} beyond the range of the fit: probabilities there are "
            f"extrapolated{asked}."
        )
    if used.rule is not None and result.n_other_sizes:
        fewest, most = used.rule.responses
        sentences.append(
            f"{count(result.n_other_sizes, 'prompt')} with another number of responses than the {fewest} to {most} "
            "that the rule was tested on: its guarantee does not cover them."
        )
    return sentences


def _naming(table: Any, n_given: int) -> list[Any]:
    """Return the first column, which has the prompt, and the first one that differs between the rows of a prompt."""
    first, *others = table.columns[:n_given]
    apart = (name for name in others if not table.astype(str).duplicated([first, name]).any())
    alone = not table.astype(str).duplicated([first]).any()
    return [first] if alone else [first, *list(apart)[:1]]


def _joined(names: Sequence[str], row: Any) -> str:
    """Return the probabilities of a row that holds several responses; rows may have different numbers of them."""
    return ", ".join(f"{row[name]:.3f}" for name in names if np.isfinite(row[name]))


def _applied_cell(name: str, row: Any) -> Cell:
    value = row[name]
    if isinstance(value, int | float):
        return Cell(f"{value:.4g}" if isinstance(value, float) else str(value), value)
    text = clean_line(value)
    return Cell(text[:80], short=text[:_SHORT])

"""The section of a model card, in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmcalib import __version__
from rmcalib._util.display import bracketed, number, p_value, percent, points
from rmcalib._util.markdown import markdown_table, markdown_text
from rmcalib.metrics import find_value
from rmcalib.report import Evaluation, headline

__all__ = ["BADGE", "FIGURE", "card_section", "insert_section", "metric_table"]

BADGE, FIGURE = "calibration/badge.svg", "calibration/reliability.png"
"""Where the images are, as the section links to them."""

_BEGIN, _END = "<!-- rmcalib:begin -->", "<!-- rmcalib:end -->"
_COLUMNS = {
    "mean_confidence": "says",
    "accuracy": "right",
    "overconfidence": "gap in points",
    "lost_information": "lost information",
    "usable_information": "usable information",
    "ece": "ECE",
    "ece_p_value": "ECE p-value",
}


def card_section(evaluation: Evaluation) -> str:
    """Return a section for a model card: headline, table, figure, and how it was measured.

    It stands between two comments, so that `insert_section` can replace it later.

    Parameters
    ----------
    evaluation : the result of :func:`rmcalib.evaluate`.

    Examples
    --------
    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> card_section(report).splitlines()[1]
    '## Calibration'
    """
    rows, manifest = evaluation.metrics, evaluation.manifest
    said = headline(rows, subject="This model")
    lines = [_BEGIN, "## Calibration", "", f"![calibration]({BADGE})", ""]
    lines += [markdown_text(said or evaluation.summary), ""]
    lines += metric_table(rows)
    if evaluation.reliability:
        lines += ["", f"![Reliability: predicted probability against observed frequency]({FIGURE})"]
    lines += [
        "",
        "Says: the mean probability of the first choice, a softmax of the rewards. Right: how often that "
        "choice is correct. Lost information: what the wrong scale of the rewards costs, as a fraction of a "
        f"uniform guess's uncertainty; 0 is best. Brackets: {evaluation.settings.level:.0%} intervals.",
        "",
        f"Measured with rmcalib {__version__} on {markdown_text(evaluation.benchmark)}"
        f"{_revision(manifest, 'benchmark_revision')}; model {markdown_text(evaluation.model)}"
        f"{_revision(manifest, 'model_revision')}.",
    ]
    if evaluation.notes:
        lines += ["", *(f"- {markdown_text(note)}" for note in evaluation.notes)]
    return "\n".join([*lines, _END, ""])


def insert_section(card: str, section: str) -> str:
    """Return a model card with the section in it: it replaces an earlier one, or stands at the end.

    Parameters
    ----------
    card : a model card in Markdown; may be empty.
    section : the result of `card_section`.

    Examples
    --------
    >>> first = insert_section("# My model", "<!-- rmcalib:begin -->1<!-- rmcalib:end -->")
    >>> insert_section(first, "<!-- rmcalib:begin -->2<!-- rmcalib:end -->")
    '# My model\\n\\n<!-- rmcalib:begin -->2<!-- rmcalib:end -->\\n'
    """
    start, end = card.find(_BEGIN), card.find(_END)
    section = section.strip()
    if 0 <= start < end:
        return card[:start] + section + card[end + len(_END) :]
    before = card.rstrip()
    return f"{before}\n\n{section}\n" if before else f"{section}\n"


def metric_table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table: the headline metrics and the ECE, overall and by category."""
    categories = list(dict.fromkeys(row["category"] for row in rows))
    shown = {
        name: [find_value(rows, name, category) for category in categories]
        for name in _COLUMNS
        if any(row["metric"] == name for row in rows)
    }
    lines = []
    for i, category in enumerate(categories):
        found = find_value(rows, "accuracy", category)
        if found is None or found["value"] is None:
            continue
        cells = [_cell(name, values[i]) for name, values in shown.items()]
        lines.append([category, *cells, f"{found['n']:,}"])
    header = ["", *(_COLUMNS[name] for name in shown), "prompts"]
    return markdown_table(header, lines, align="l" + "r" * (len(header) - 1))


def _cell(name: str, row: Mapping[str, Any] | None) -> str:
    if row is None or row["value"] is None:
        return "–"
    if name == "overconfidence":
        return points(row)
    if name == "ece_p_value":
        return p_value(row["value"])
    form = percent if name in ("mean_confidence", "accuracy") else number
    return bracketed(row, form)


def _revision(manifest: Mapping[str, Any], key: str) -> str:
    value = manifest.get(key)
    return f" at {markdown_text(str(value)[:12])}" if value else ""

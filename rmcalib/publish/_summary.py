"""Short summaries in Markdown, for a pull request or the summary page of a workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmcalib._util.display import number, p_value, signed
from rmcalib._util.markdown import markdown_table, markdown_text
from rmcalib.metrics import OVERALL, catalogue
from rmcalib.publish._card import metric_table
from rmcalib.report import HEADLINE, Evaluation, headline

__all__ = ["comparison_summary", "evaluation_summary"]

MARK = "<!-- rmcalib -->"
"""The first line of every summary. A workflow can find its own comment by it."""


def evaluation_summary(evaluations: Sequence[Evaluation], failed: Sequence[str] = ()) -> str:
    """Return evaluations as Markdown: the headline and the table by category of each model.

    Parameters
    ----------
    evaluations : Sequence[Evaluation]
        One evaluation per model.
    failed : Sequence[str]
        The reasons why the run fails, which are shown first.

    Returns
    -------
    str

    Examples
    --------
    >>> from rmcalib.report import evaluate
    >>> from rmcalib.scores import Scores
    >>> report = evaluate(Scores.from_arrays([[2.0, 0.0], [0.0, 2.0]]), model="org/rm", resamples=20)
    >>> print("\\n".join(evaluation_summary([report], ["ece>0.1 holds"]).splitlines()[:4]))
    <!-- rmcalib -->
    **Failed:** ece\\>0.1 holds
    <BLANKLINE>
    ### Calibration of org/rm on unnamed-benchmark
    """
    lines = [MARK, *_failures(failed)]
    for one in evaluations:
        said = headline(one.metrics, subject="This model") or one.summary
        lines += [
            f"### Calibration of {markdown_text(one.model)} on {markdown_text(one.benchmark)}",
            "",
            markdown_text(said),
            "",
        ]
        lines += [*metric_table(one.metrics), ""]
        lines += [*(f"- {markdown_text(note)}" for note in one.notes), ""] if one.notes else []
    return "\n".join(lines).rstrip() + "\n"


def comparison_summary(
    names: tuple[str, str], rows: Sequence[Mapping[str, Any]], failed: Sequence[str] = ()
) -> str:
    """Return a comparison of two models, A and B, as Markdown: the headline metrics and the ECE.

    Parameters
    ----------
    names : tuple[str, str]
        The names of A and B.
    rows : Sequence[Mapping[str, Any]]
        The result of `rmcalib.metrics.compare_scores`.
    failed : Sequence[str]
        The reasons why the run fails, which are shown first.

    Returns
    -------
    str

    Examples
    --------
    >>> row = {"category": "overall", "metric": "accuracy", "a": 0.7, "b": 0.8, "difference": 0.1,
    ...        "low": 0.05, "high": 0.15, "p_value": 0.01, "better": "b", "n": 300, "note": ""}
    >>> print(comparison_summary(("old", "new"), [row]).splitlines()[-1])
    | right | 0.700 | 0.800 | +0.100 | +0.050 to +0.150 | 0.010 | B |
    """
    lines = [
        MARK,
        *_failures(failed),
        f"### Calibration: A = {markdown_text(names[0])}, B = {markdown_text(names[1])}",
        "",
    ]
    body = []
    own = {row["metric"]: row for row in rows if row["category"] == OVERALL}
    for metric in (*HEADLINE, "ece"):
        if metric not in own:
            continue
        row = own[metric]
        name = HEADLINE.get(metric) or catalogue()[metric].label
        limits = "" if row["low"] is None else f"{signed(row['low'])} to {signed(row['high'])}"
        p = "" if row["p_value"] is None else p_value(row["p_value"])
        cells = [
            number(row["a"]),
            number(row["b"]),
            signed(row["difference"]),
            limits,
            p,
            row["better"].upper(),
        ]
        body.append([name, *cells])
    header = ["metric", "A", "B", "B − A", "interval", "p-value", "better"]
    lines += markdown_table(header, body, align="lrrrrrl")
    notes = dict.fromkeys(row["note"] for row in rows if row["note"])
    lines += ["", *(f"- No calibration of {markdown_text(note)}." for note in notes)] if notes else []
    return "\n".join(lines).rstrip() + "\n"


def _failures(failed: Sequence[str]) -> list[str]:
    return [line for text in failed for line in (f"**Failed:** {markdown_text(text)}", "")]

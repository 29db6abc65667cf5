"""The document of a comparison, and its sentences."""

from __future__ import annotations

import shlex
from functools import partial

from rmcalib._util import display
from rmcalib._util.display import bracketed, clean_line, count, p_value, percent, points
from rmcalib.metrics.comparison import Comparison
from rmcalib.metrics.views import FEWEST
from rmcalib.report import document as doc
from rmcalib.report import figures, pages
from rmcalib.report.sentences import HEADLINE, PAIRS, RESPONSES, Row, Rows, metric_name, p_text

_NAMES = {**HEADLINE, **PAIRS, **RESPONSES}


def comparison_document(result: Comparison) -> doc.Document:
    """Return the document of a comparison: the verdict, the headline metrics, everything folded."""
    first = [row for name in (*_NAMES, "ece", "nll") if (row := result.row(name)) is not None]
    drawn = [
        {**row, "label": _label(row["metric"]), "marked": bool(row["better"]), "value": row["difference"]}
        for row in first
        if row["metric"] in _NAMES
        and row["difference"] is not None
        and abs(row["difference"]) <= 1  # information can be less than -1, which hides all other differences
    ]
    sizes = {row["category"]: row["n"] for row in result.rows}
    shown, left = pages.first_of(
        pages.categories_of(result.rows), sizes.__getitem__, figures.MOST_PANELS, "the file of --to"
    )
    others = [row for row in result.rows if row not in first and row["category"] in shown]
    a, b = clean_line(result.a), clean_line(result.b)
    differences = doc.Drawing(
        "differences",
        partial(figures.interval_figure, drawn, "points: B minus A", scale=100),
        "Differences B − A of the headline metrics",
        "Differences in points; a diamond marks those where one is better beyond chance.",
    )
    everything = _difference_table(others, result, "All metrics", left, by_category=True)
    return doc.Document(
        title=f"{b} against {a}",
        subtitle=f"A = {a} · B = {b} · {count(max(sizes.values(), default=0), 'labelled prompt')} in common",
        sentences=comparison_sentences(result),
        first=[differences, _difference_table(first, result, "Headline metrics")],
        sections=[doc.Section("everything", "All metrics and categories", [everything])] if others else [],
        notes=list(dict.fromkeys(row["note"] for row in result.rows if row["note"])),
        steps=comparison_steps(result),
        footer=pages.footer_of(result.settings),
    )


def _difference_table(
    rows: Rows, result: Comparison, name: str, left: str = "", *, by_category: bool = False
) -> doc.Table:
    def change(row: Row) -> doc.Cell:
        in_points = row["metric"] in _NAMES and not row["metric"].endswith("information")
        both = {**row, "value": row["difference"]}
        return doc.Cell(points(both) if in_points else bracketed(both, display.signed), row["difference"])

    def p(row: Row) -> doc.Cell:
        return doc.Cell(p_value(row["p_value"]), row["p_value"])

    def size(row: Row) -> doc.Cell:
        if row["size_difference"] is None:
            return doc.Cell("")
        ends = {name: row[f"size_{name}"] for name in ("low", "high")} | {"value": row["size_difference"]}
        return doc.Cell(f"{points(ends)}, {p_text(row['size_p_value'])}", row["size_difference"])

    def side(which: str, row: Row) -> doc.Cell:
        return pages.metric_cell({"value": row[which]}, row["metric"])

    columns: doc.Columns = {
        "metric": lambda row: doc.Cell(_label(row["metric"]), tip=pages.meaning_of(row["metric"])),
        "category": doc.entry("category"),
        "A": partial(side, "a"),
        "B": partial(side, "b"),
        "B − A": change,
        doc.Column("p-value", "That B − A is 0"): p,
        doc.Column(
            "|B| − |A|",
            "Of gaps: the difference of their sizes, and the p-value that they are equal",
            page_only=True,
        ): size,
        "better": lambda row: doc.Cell(row["better"].upper(), tone="good"),
    }
    if not by_category:
        del columns["category"]
    if all(row["size_difference"] is None for row in rows):
        columns = {name: cell for name, cell in columns.items() if cell is not size}
    level = f"{result.settings.level:.0%}"
    caption = f"Paired over prompts, with {level} intervals. Of two gaps the smaller size is better.{left}"
    return doc.table_of(name, rows, columns, caption)


def comparison_sentences(result: Comparison) -> list[str]:
    """Return the verdict of a comparison: whose gap is smaller, who is more often right, who keeps more."""
    gap, right, kept = (result.row(name) for name in _verdict_metrics(result))
    short = display.short_names([result.a, result.b])
    winner = {"": "", "a": clean_line(short[result.a]), "b": clean_line(short[result.b])}
    accuracy = "accuracy is not measured"
    if right is not None and right["low"] is None:
        accuracy = f"accuracy is {percent(right['a'])} and {percent(right['b'])}"
    elif right is not None:
        more = f"{winner[right['better']]} is more often right, by {_by(right)}"
        accuracy = more if right["better"] else "no clear difference in accuracy"
    if gap is None or gap["size_difference"] is None:
        return [f"Calibration cannot be compared; {accuracy}."]
    if gap["n"] < FEWEST:
        return [f"{count(gap['n'], 'prompt')} in common are too few for a verdict."]
    last = []
    if kept is not None and kept["better"]:
        last = [f"The probabilities of {winner[kept['better']]} keep more information, by {_by(kept)}."]
    if gap["better"]:
        better = winner[gap["better"]]
        accuracy = accuracy.replace(f"{better} is", "it is also", 1)
        smaller = f"its gap is smaller by {_by(gap, 'size_')}"
        return [f"{better} is better calibrated: {smaller}; {accuracy}.", *last]
    if last or (right is not None and right["better"]):
        return [f"No clear difference between the gaps; {accuracy}.", *last]
    enough = result.needed is None or result.needed <= gap["n"]
    need = "" if enough else f"; {result.needed:,} prompts are needed to see one of 3 points"
    return [f"No clear difference of gap or accuracy{need}."]


def comparison_steps(result: Comparison) -> list[doc.Step]:
    """Return what the differences mean for a choice between the two, for scores as they are."""
    gap = result.row(_verdict_metrics(result)[0])
    if not result.sources or gap is None or gap["size_difference"] is None or gap["n"] < FEWEST:
        return []
    a, b = map(shlex.quote, result.sources)
    usable, right = result.row("usable_information"), result.row(_verdict_metrics(result)[1])
    for row, why in ((usable, "keeps more information after a temperature"), (right, "is more often right")):
        if row is not None and row["better"]:
            best = {"a": a, "b": b}[row["better"]]
            name = clean_line({"a": result.a, "b": result.b}[row["better"]])
            return [
                doc.Step(
                    f"Take {name}: it {why}. Calibrate it.", f"rmcalib calibrate {best} --to calibrator.json"
                )
            ]
    if gap["better"] and usable is not None:
        worse, name = (b, result.b) if gap["better"] == "a" else (a, result.a)
        words = (
            "A temperature may make them equal: their usable information does not clearly differ. Calibrate"
        )
        return [doc.Step(f"{words} {clean_line(name)}.", f"rmcalib calibrate {worse} --to calibrator.json")]
    return []


def _verdict_metrics(result: Comparison) -> tuple[str, str, str]:
    """Return the names of the gap, of how often a model is right, and of what it keeps."""
    if result.view == "pointwise":
        return "pointwise_gap", "best_of_n", "pointwise_kept_information"
    if result.row("overconfidence") is None and result.row("pairwise_overconfidence") is not None:
        return "pairwise_overconfidence", "pairwise_accuracy", "kept_information"
    return "overconfidence", "accuracy", "kept_information"


def _by(row: Row, kind: str = "") -> str:
    """Return the size of a difference in points, with its interval."""
    ends = {"value": row[f"{kind}difference"], "low": row[f"{kind}low"], "high": row[f"{kind}high"]}
    return points(ends, sign=False, unit=" points")


def _label(metric: str) -> str:
    return _NAMES.get(metric) or metric_name(metric)

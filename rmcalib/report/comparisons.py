"""The document of a comparison, and its sentences."""

from __future__ import annotations

from functools import partial

from rmcalib._util.display import bracketed, number, p_value, percent, points, short_names, signed
from rmcalib._util.terminal import clean_line, count
from rmcalib.metrics.comparison import Comparison
from rmcalib.metrics.views import FEWEST
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.pages import categories_of, footer_of, meaning_of, metric_cell
from rmcalib.report.sentences import HEADLINE, PAIRS, Row, Rows, metric_name

_OTHERS = ("lost_information", "usable_information", "pairwise_accuracy", "pairwise_overconfidence")


def comparison_document(found: Comparison) -> doc.Document:
    """Return the document of a comparison: the verdict, the headline metrics, everything folded."""
    first = [row for name in (*HEADLINE, *PAIRS, "ece", "nll") if (row := found.row(name)) is not None]
    drawn = [
        {"label": _label(row["metric"]), "marked": bool(row["better"]), "value": 100 * row["difference"]}
        | {end: None if row[end] is None else 100 * row[end] for end in ("low", "high")}
        for row in first
        if row["metric"] in (*HEADLINE, *PAIRS)
        and row["difference"] is not None
        and abs(row["difference"]) <= 1  # information can be less than -1, which hides all other differences
    ]
    sizes, categories = {row["category"]: row["n"] for row in found.rows}, categories_of(found.rows)
    shown = sorted(categories, key=lambda name: -sizes[name])[: figures.MOST_PANELS]
    left = len(categories) - len(shown)
    others = [row for row in found.rows if row not in first and row["category"] in shown]
    a, b, n = clean_line(found.a), clean_line(found.b), max((row["n"] for row in found.rows), default=0)
    differences = doc.Drawing(
        "differences",
        partial(figures.interval_figure, drawn, "points: B minus A"),
        "Differences B − A of the headline metrics",
        "Differences in points; a diamond marks those where one is better beyond chance.",
    )
    everything: list[doc.Block] = [_difference_table(others, found, "All metrics", by_category=True)]
    if left:
        everything.insert(0, doc.Words([f"The largest categories; --to writes {left:,} more."]))
    return doc.Document(
        title=f"{b} against {a}",
        subtitle=f"A = {a} · B = {b} · {count(n, 'prompt')} in common",
        sentences=comparison_sentences(found),
        first=[differences, _difference_table(first, found, "Headline metrics")],
        sections=[doc.Section("everything", "All metrics and categories", everything)] if others else [],
        notes=list(dict.fromkeys(row["note"] for row in found.rows if row["note"])),
        footer=footer_of(found.settings),
    )


def _difference_table(rows: Rows, found: Comparison, name: str, *, by_category: bool = False) -> doc.Table:
    def change(row: Row) -> doc.Cell:
        in_points = row["metric"] in (*HEADLINE, *PAIRS) and not row["metric"].endswith("information")
        both = {**row, "value": row["difference"]}
        return doc.Cell(points(both) if in_points else bracketed(both, signed), row["difference"])

    def p(row: Row) -> doc.Cell:
        value = row["p_value"] if row["size_p_value"] is None else row["size_p_value"]
        return doc.Cell(p_value(value), value)

    def side(which: str, row: Row) -> doc.Cell:
        return metric_cell({"value": row[which], "low": None, "high": None}, row["metric"])

    category = doc.Column("category", text=True)
    columns: doc.Columns = {
        doc.Column("metric", text=True): lambda row: doc.Cell(
            _label(row["metric"]), tip=meaning_of(row["metric"])
        ),
        category: lambda row: clean_line(row["category"]),
        "A": partial(side, "a"),
        "B": partial(side, "b"),
        "B − A": change,
        doc.Column("p-value", "Of gaps: that their sizes are equal"): p,
        doc.Column("better", text=True): lambda row: doc.Cell(row["better"].upper(), tone="good"),
    }
    if not by_category:
        del columns[category]
    level = f"{found.settings.level:.0%}"
    caption = f"Paired over prompts, with {level} intervals. Of two gaps the smaller size is better."
    return doc.table_of(name, rows, columns, caption, sortable=by_category)


def comparison_sentences(found: Comparison) -> list[str]:
    """Return the verdict of a comparison: whose gap is smaller, who is more often right, who keeps more."""
    gap = found.row("overconfidence") or found.row("pairwise_overconfidence")
    pair = "pairwise_" if gap is not None and gap["metric"].startswith("pairwise_") else ""
    right = found.row(f"{pair}accuracy")
    accuracy = "" if right is None else _accuracy_words(found, right)
    if gap is None or gap["size_difference"] is None:
        return [f"Calibration cannot be compared; {accuracy or 'the two have no metric in common'}."]
    if gap["n"] < FEWEST:
        return [f"{count(gap['n'], 'prompt')} in common are too few for a verdict."]
    more = _kept_words(found)
    if gap["better"]:
        by = _size({"value": gap["size_difference"], "low": gap["size_low"], "high": gap["size_high"]})
        smaller = points(by, sign=False, unit=" points")
        winner = _winner(found, gap)
        first = f"{winner} is better calibrated: its gap is smaller by {smaller}"
        accuracy = accuracy.replace(f"{winner} is", "it is also", 1)
        return [f"{first}; {accuracy}." if accuracy else f"{first}.", *more]
    if more or (right is not None and right["better"]):
        return [f"No difference between the gaps is shown; {accuracy}.", *more]
    others = [row for name in _OTHERS if (row := found.row(name)) is not None and row["better"]]
    if others:
        names = {
            who: [metric_name(row["metric"]) for row in others if _winner(found, row) == who]
            for who in _called(found).values()
        }
        said = [f"{who} is better by {' and '.join(own)}" for who, own in names.items() if own]
        return [f"No difference between the gaps is shown; accuracy does not differ; {'; '.join(said)}."]
    enough = found.needed is None or found.needed <= gap["n"]
    need = "" if enough else f"; {found.needed:,} prompts would show one of 3 points"
    return [f"No difference shown{need}."]


def _accuracy_words(found: Comparison, row: Row) -> str:
    if row["low"] is None:
        return f"accuracy is {percent(row['a'])} and {percent(row['b'])}"
    if not row["better"]:
        return "accuracy does not differ"
    by = _size({"value": row["difference"], "low": row["low"], "high": row["high"]})
    return f"{_winner(found, row)} is more often right, by {points(by, sign=False, unit=' points')}"


def _kept_words(found: Comparison) -> list[str]:
    row = found.row("kept_information")
    if row is None or not row["better"]:
        return []
    by = _size({"value": row["difference"], "low": row["low"], "high": row["high"]})
    more = f"by {points(by, sign=False, unit=' points')}"
    if abs(by["value"]) > 1:
        more = f"{number(max(row['a'], row['b']))} against {number(min(row['a'], row['b']))}"
    return [f"The probabilities of {_winner(found, row)} keep more information, {more}."]


def _winner(found: Comparison, row: Row) -> str:
    return _called(found)[row["better"]]


def _called(found: Comparison) -> dict[str, str]:
    """Return what sentences call the two: names without their organisations, where that tells them apart."""
    short = short_names([found.a, found.b])
    return {"a": clean_line(short[found.a]), "b": clean_line(short[found.b])}


def _size(row: Row) -> Row:
    """Return a difference without its sign, and its limits."""
    if row["value"] >= 0:
        return row
    return {"value": -row["value"], "low": -row["high"], "high": -row["low"]}


def _label(metric: str) -> str:
    return {**HEADLINE, **PAIRS}.get(metric) or metric_name(metric)

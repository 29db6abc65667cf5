"""The page of every result; here documents are found, drawn and written, and that of an evaluation is built."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.display import bracketed, interval, number, p_value, percent, points, temperature_text
from rmcalib._util.files import write_text
from rmcalib._util.terminal import clean, clean_line, count
from rmcalib.metrics.board import Board
from rmcalib.metrics.catalogue import catalogue, metric_groups
from rmcalib.metrics.comparison import Comparison
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, find_value, shown_name
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.document import Cell, Column, Document, Drawing, Section, Tile, Words, entry
from rmcalib.report.evaluation import Evaluation
from rmcalib.report.prompts import prompt_data
from rmcalib.report.repairs import decision_sentences, decisions_drawing
from rmcalib.report.sentences import HEADLINE, PAIRS, Row, direction, evaluation_sentences, metric_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TILES = {
    "votes": [
        ("vote_confidence", "says", "mean probability of its first choice"),
        ("vote_agreement", "people agree", "fraction of people who prefer it"),
        ("vote_gap", "gap", "says minus people"),
    ],
    "pointwise": [
        ("pointwise_confidence", "says", "mean P(response is correct)"),
        ("pointwise_accuracy", "right", "fraction of correct responses"),
        ("pointwise_gap", "gap", "says minus right"),
    ],
    "top_1": [
        ("mean_confidence", "says", "mean probability of its first choice"),
        ("accuracy", "right", "how often that choice is correct"),
        ("overconfidence", "gap", "says minus right"),
    ],
    "pairs": [(name, label, "") for name, label in PAIRS.items()],
}
_POINTWISE = {
    "pointwise_confidence": "says",
    "pointwise_accuracy": "right",
    "pointwise_gap": "gap in points",
    "pointwise_ece": "ECE",
    "within_prompt_auroc": "order within prompts",
    "best_of_n": "best of n",
    "best_of_n_chance": "by chance",
}
_RELIABILITY = (
    "Each point is a group of responses: the probability that was stated for them, and how often they are correct. "
    "The bars contain 95% of a calibrated model's points. Points of an over-confident model are above the diagonal "
    "on the left and below it on the right."
)
_FOREST = (
    "Gap of each category. The bar is the category's own interval, the tick its own gap; the point is partially "
    "pooled, which moves small categories towards the others. A diamond and * mark gaps beyond chance, corrected "
    "for looking at many (Holm)."
)
_POOLED = (
    "Partially pooled gaps move small groups towards the mean of all (Morris 1983); p-values are corrected by Holm's "
    "method."
)
_PERCENT = ("confidence", "accuracy", "agreement", "auroc", "best_of_n", "best_of_n_chance")
_PAGE_ONLY = ("usable_information", "ece", "ece_p_value", "temperature")
_MOST_ROWS = 40  # categories in a table or a figure


def write_page(result: Any, path: str | Path) -> Path:
    """Write the page of a result: one self-contained file."""
    return write_text(path, doc.to_html(document_of(result)))


def first_screen(result: Any) -> str:
    """Return the first screen of a result's page as HTML, for notebooks."""
    return doc.to_fragment(document_of(result))


def plot(result: Any) -> Figure:
    """Return the figure of a result's first screen as a matplotlib figure."""
    for block in document_of(result).first:
        if isinstance(block, Drawing) and (figure := block.draw()) is not None:
            return figure
    raise ValueError(f"a {type(result).__name__} without intervals has no figure")


def document_of(result: Any) -> Document:
    """Return the document of any result."""
    from rmcalib.integrations.watching import Watch
    from rmcalib.repair.calibration import Calibration
    from rmcalib.repair.calibrator import Applied
    from rmcalib.repair.decisions import Decisions
    from rmcalib.repair.panels import Panel
    from rmcalib.report import boards, comparisons, repairs
    from rmcalib.report.leaderboards import Report

    builders: dict[type, Callable[[Any], Document]] = {
        Evaluation: evaluation_document,
        Comparison: comparisons.comparison_document,
        Board: boards.board_document,
        Report: boards.report_document,
        Calibration: repairs.calibration_document,
        Applied: repairs.applied_document,
        Decisions: repairs.decisions_document,
        Panel: repairs.panel_document,
        Watch: repairs.watch_document,
    }
    return builders[type(result)](result)


# Cells.


def metric_cell(row: Row | None, metric: str, *, limits: bool = True) -> Cell:
    """Return the cell of a metric: as a percentage, in points, or as a number, by the catalogue's unit."""
    if row is None or row.get("value") is None:
        return Cell("–", tip="" if row is None else str(row.get("note") or ""))
    found, value = catalogue().get(metric), row["value"]
    whole = row if limits else {"value": value, "low": None, "high": None}
    if found is not None and found.better == "zero" and found.unit in ("probability", "fraction of votes"):
        text = points(whole)
    elif metric.endswith("p_value"):
        text = p_value(value)
    elif metric == "temperature":
        text = bracketed(whole, temperature_text)
    elif metric.endswith(_PERCENT):
        text = bracketed(whole, percent)
    else:
        text = bracketed(whole)
    return Cell(text, float(value), tip=str(row.get("note") or ""))


def metric_column(metric: str, label: str = "", *, page_only: bool = False) -> Column:
    """Return the heading of a metric's column, with its meaning from the catalogue."""
    return Column(label or metric_name(metric), meaning_of(metric), page_only=page_only)


def meaning_of(metric: str) -> str:
    """Return what a metric means; nothing for one that is not in the catalogue."""
    found = catalogue().get(metric)
    return "" if found is None else found.meaning


def categories_of(rows: Sequence[Row]) -> list[str]:
    """Return overall and the categories; one category is the same as overall."""
    found = list(dict.fromkeys(row["category"] for row in rows))
    return found[:1] if len(found) == 2 else found


def footer_of(settings: Settings) -> str:
    """Return how numbers were computed."""
    return (
        f"rmcalib {__version__} · {settings.bins} equal-width bins · {settings.level:.0%} intervals · "
        f"{settings.resamples:,} simulated data sets · seed {settings.seed}"
    )


# Evaluations.


def evaluation_document(result: Evaluation) -> Document:
    """Return the document of an evaluation: one screen first, then folded details."""
    first: list[doc.Block] = []
    kept, usable = (_value(result, f"{name}_information") for name in ("kept", "usable"))
    if result.facts["view"] == "top_1" and kept is not None and usable is not None:
        first.append(doc.Information(kept["value"], usable["value"]))
    by_category = [row for row in result.groups if row["group_by"] == "category"]
    if len(by_category) > 1:
        first.append(_forest("categories", by_category, _FOREST))
    if result.decisions is not None:
        first.append(Words(decision_sentences(result.decisions)[:1]))
    return Document(
        title=f"Calibration of {result.model}",
        subtitle=_subtitle(result),
        sentences=evaluation_sentences(result),
        tiles=_tiles(result),
        first=first,
        sections=list(_evaluation_sections(result)),
        notes=result.notes,
        footer=footer_of(result.settings),
        data=prompt_data(result),
    )


def _value(result: Evaluation, metric: str) -> Row | None:
    """Return the row of a metric if it has a value."""
    row = find_value(result.rows, metric)
    return None if row is None or row["value"] is None else row


def _tiles(result: Evaluation) -> list[Tile]:
    kind = "pairs"
    if _value(result, "vote_gap") is not None:
        kind = "votes"
    elif result.facts["view"] == "pointwise":
        kind = "pointwise"
    elif _value(result, "overconfidence") is not None:
        kind = "top_1"
    tiles = []
    for metric, name, meaning in _TILES[kind]:
        row = _value(result, metric)
        if row is not None:
            tiles.append(_tile(row, metric, name, meaning, key=name if kind == "top_1" else ""))
    gain, best = result.facts["gain"], _value(result, "temperature")
    if gain is not None and best is not None:
        if gain["low"] > 0:
            tiles.append(_tile(best, "temperature", "best temperature", "divide the rewards by it"))
        else:
            tiles.append(Tile("temperature", "none", "not shown to help", ""))
    return tiles


def _tile(row: Row, metric: str, name: str, meaning: str, key: str = "") -> Tile:
    if metric.endswith(("overconfidence", "gap")):
        value, _, around = points(row).partition(" ")
        return Tile(name, f"{value} points", around.strip("[]").replace(", ", " to "), meaning, key)
    form = percent if metric != "temperature" else temperature_text
    around = "" if row["low"] is None else f"{form(row['low'])} to {form(row['high'])}"
    return Tile(name, form(row["value"]), around, meaning, key)


def _evaluation_sections(result: Evaluation) -> Iterator[Section]:
    facts = result.facts
    yield Section("prompt-list", "All prompts", widget="prompts")
    if facts["no_calibration"] is None and facts["one_answer"] > 1 and facts["view"] == "top_1":
        yield Section("slider", "Try a temperature", widget="slider")
    by_category = category_table(result)
    if by_category is not None:
        yield Section("by-category", "By category", [by_category], brief=True)
    panels = _largest(
        result, list(dict.fromkeys(row["panel"] for row in result.reliability)), figures.MOST_PANELS
    )
    diagrams = [_diagram(result, panel, i) for i, panel in enumerate(panels)]
    if diagrams:
        yield Section("reliability-diagrams", "Reliability", [Words([_RELIABILITY]), *diagrams])
    yield from _groups_section(result)
    if result.decisions is not None:
        said = Words(decision_sentences(result.decisions), listed=True)
        yield Section("decisions", "If you act on it", [said, decisions_drawing(result.decisions)])
    yield from _answers_section(result)
    yield _everything(result)
    manifest = {key: value for key, value in result.manifest.items() if key != "inputs"}  # repeated in it
    text = clean(json.dumps(manifest, indent=2, ensure_ascii=False, default=str))
    yield Section("manifest", "How the scores were made", [Words([text], verbatim=True)])


def _diagram(result: Evaluation, panel: str, number: int) -> Drawing:
    rows = [row for row in result.reliability if row["panel"] == panel]
    line = [row for row in result.isotonic if row["panel"] == panel]
    seen = ", ".join(f"{row['confidence']:.2f} happened {row['frequency']:.2f}" for row in rows)
    label = f"Reliability diagram, {clean_line(panel)}: predicted {seen}"
    return Drawing(f"reliability-{number}", partial(figures.reliability_figure, rows, line), label)


def category_table(result: Evaluation) -> doc.Table | None:
    """Return the headline metrics and the ECE, overall and by category."""
    names = {**HEADLINE, "ece": "ECE", "ece_p_value": "ECE p-value"}
    if result.facts["view"] == "pointwise":
        names = dict(_POINTWISE)
    elif result.facts["no_calibration"] is not None:
        names |= PAIRS
    known = {row["metric"] for row in result.rows if row["value"] is not None}
    shown = {key: label for key, label in names.items() if key in known}
    if not shown:
        return None
    sizes, categories = _sizes(result), categories_of(result.rows)
    listed = _largest(result, categories, _MOST_ROWS)
    columns: doc.Columns = {
        Column("category", text=True): clean_line,
        "prompts": lambda category: Cell(f"{sizes[category]:,}", sizes[category]),
    }
    for key, label in shown.items():
        columns[metric_column(key, label, page_only=key in _PAGE_ONLY)] = partial(
            _category_cell, result, key, limits=key.endswith(("overconfidence", "gap"))
        )
    caption = f"Brackets are {result.settings.level:.0%} intervals.{_left_out(listed, categories)}"
    return doc.table_of(
        "Metrics by category", [name for name in listed if sizes[name]], columns, caption, sortable=True
    )


def _category_cell(result: Evaluation, metric: str, category: str, *, limits: bool) -> Cell:
    return metric_cell(find_value(result.rows, metric, category), metric, limits=limits)


def _sizes(result: Evaluation) -> Counter[str]:
    """Return how many prompts each category has."""
    names = result.scores.category[result.scores.offsets[:-1]].tolist()
    return Counter(map(shown_name, names)) | Counter({OVERALL: len(names)})


def _largest(result: Evaluation, categories: Sequence[str], most: int) -> list[str]:
    """Return the categories with the most prompts, in their order; a page has no room for hundreds."""
    sizes = _sizes(result)
    kept = sorted(categories, key=lambda name: -sizes[name])[:most]
    return [name for name in categories if name in kept]


def _left_out(shown: Sequence[str], categories: Sequence[str]) -> str:
    left = len(categories) - len(shown)
    return f" The largest categories; {left:,} more are in metrics.csv." if left else ""


def _listed(groups: Sequence[Row]) -> list[Row]:
    """Return the groups that a figure or a table has room for, in their order: flagged and large ones."""
    kept = sorted(range(len(groups)), key=lambda i: (not groups[i]["flagged"], -groups[i]["n"]))[:_MOST_ROWS]
    return [groups[i] for i in sorted(kept)]


def _not_listed(groups: Sequence[Row]) -> str:
    left = len(groups) - _MOST_ROWS
    return f" Shown are flagged groups, and the largest others; {left:,} more are in metrics.json." * (
        left > 0
    )


def _forest(name: str, groups: Sequence[Row], caption: str = "") -> Drawing:
    """The gap of each group in points: partially pooled, with the interval of its own."""
    rows = [
        {
            "label": f"{clean_line(row['group'])}{' *' if row['flagged'] else ''}",
            "value": 100 * row["gap"],
            "point": 100 * row["pooled"],
            "low": 100 * row["low"],
            "high": 100 * row["high"],
            "marked": row["flagged"],
        }
        for row in _listed(groups)
        if row["pooled"] is not None
    ]
    axis = "← under-confident · gap in points · over-confident →"
    draw = partial(figures.interval_figure, rows, axis, mark=figures.BAD)
    seen = ", ".join(f"{row['label']} {row['point']:+.0f}" for row in rows)
    return Drawing(name, draw, f"Gap of each group in points: {seen}", caption + _not_listed(groups))


def _groups_section(result: Evaluation) -> Iterator[Section]:
    others = [row for row in result.groups if row["group_by"] != "category"]
    if len(result.groups) < 2:
        return
    table = doc.table_of(
        "Gap by group",
        _listed(result.groups),
        {
            Column("group", text=True): lambda row: clean_line(row["group"]),
            Column("grouped by", text=True): lambda row: clean_line(row["group_by"]),
            "prompts": entry("n", "{:,}".format),
            "says": entry("says", percent),
            "right": entry("right", percent),
            "gap in points": lambda row: Cell(points({**row, "value": row["gap"]}), row["gap"]),
            "partially pooled": lambda row: Cell(points({"value": row["pooled"]}), row["pooled"]),
            "corrected p-value": entry("p_adjusted", p_value),
            Column("flagged", text=True): lambda row: (
                Cell(direction(row["gap"]), tone="bad") if row["flagged"] else Cell("no", tone="soft")
            ),
        },
        f"{_POOLED}{_not_listed(result.groups)}",
        sortable=True,
    )
    drawn = _forest("groups-figure", others)
    yield Section("groups", "Gap by group", [drawn, table] if others else [table])


def _answers_section(result: Evaluation) -> Iterator[Section]:
    if not result.answers:
        return
    table = doc.table_of(
        "The judge's own answers",
        result.answers,
        {
            Column("measure", text=True): entry("meaning"),
            "value": entry("value", number),
            "interval": interval,
            "responses": entry("n", "{:,}".format),
        },
    )
    yield Section("answers", "The judge's own answers", [table])


def _everything(result: Evaluation) -> Section:
    """All metrics, by group of the catalogue: one row per metric, one column per category."""
    known, every = catalogue(), categories_of(result.rows)
    categories = _largest(result, every, figures.MOST_PANELS)
    place = {name: i for i, name in enumerate(metric_groups())}
    names = sorted(
        dict.fromkeys(row["metric"] for row in result.rows),
        key=lambda name: place[known[name].group] if name in known else len(place),
    )
    found = {(row["category"], row["metric"]): row for row in result.rows}
    columns: doc.Columns = {Column("metric", text=True): lambda name: Cell(name, note=meaning_of(name))}
    for category in categories:
        columns[Column(clean_line(category))] = partial(_found_cell, found, category)
    caption = (
        f"metrics.csv has all intervals, and the reason for each empty cell.{_left_out(categories, every)}"
    )
    return Section("everything", "All metrics", [doc.table_of("All metrics", names, columns, caption)])


def _found_cell(found: Mapping[tuple[str, str], Row], category: str, metric: str) -> Cell:
    return metric_cell(found.get((category, metric)), metric, limits=category == OVERALL)


def _subtitle(result: Evaluation) -> str:
    facts, manifest = result.facts, result.manifest
    parts = [
        f"{count(facts['prompts'], 'prompt')}, {count(facts['responses'], 'response')} of {result.benchmark}"
    ]
    if facts["clusters"]:
        unit = "pair" if facts["responses"] == 2 * facts["prompts"] else "prompt"
        parts = [
            f"{count(facts['clusters'], 'question')}, {count(facts['prompts'], unit)} of {result.benchmark}"
        ]
    official = find_value(result.rows, "official_score") or find_value(result.rows, "rewardbench_score")
    if official is not None and official["value"] is not None:
        parts.append(f"score {official['value']:.3f}")
    parts += [str(manifest[key]) for key in ("dtype", "device", "source") if manifest.get(key)]
    timings = manifest.get("timings")
    if isinstance(timings, dict) and timings.get("finished"):
        parts.append(f"scored {str(timings['finished'])[:10]}")
    return clean_line(" · ".join(parts))

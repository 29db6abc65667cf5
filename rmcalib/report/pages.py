"""The document of an evaluation, and the cells and columns of metrics that documents share."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from rmcalib import __version__
from rmcalib._util import display
from rmcalib._util.display import bracketed, clean_line, count, number, p_value, percent, points
from rmcalib.metrics.catalogue import catalogue, metric_groups
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, shown_name
from rmcalib.report import document as doc
from rmcalib.report import figures, sentences
from rmcalib.report.decisions import decision_sentences, decisions_drawing
from rmcalib.report.document import Cell, Column, Columns, Document, Drawing, Section, Tile, Words, entry
from rmcalib.report.prompts import prompt_data
from rmcalib.report.sentences import CLAIMS, HEADLINE, PAIRS, Row, Rows, metric_name
from rmcalib.report.steps import next_steps

if TYPE_CHECKING:
    from rmcalib.report.evaluation import Evaluation

T = TypeVar("T")
_TILES = {  # in the order of preference
    "votes": ("says", "people agree", "gap"),
    "pointwise": ("says", "right", "gap"),
    "top_1": ("says", "right", "gap"),
    "pairs": tuple(PAIRS.values()),
}
_POINTWISE = {
    "pointwise_confidence": "says",
    "pointwise_accuracy": "right",
    "pointwise_gap": "gap in points",
    "pointwise_ece": "ECE (each response)",
    "within_prompt_auroc": "order within prompts",
    "best_of_n": "best of n",
    "best_of_n_chance": "by chance",
}
_RELIABILITY = (
    "Each point is a group of responses: the probability that was stated for them, and how often they are correct. "
    "The bars contain 95% of a calibrated model's points. Points of an over-confident model are above the diagonal "
    "on the left and below it on the right."
)
_DIAGRAM = (
    "Each point is a group of {}, by its probability; its size shows how many. The bars hold 95% of the points of a "
    "model that is right as often as it says."
)
_FOREST = (
    "The gap of each category, with its 95% interval. A diamond and * mark significant gaps, after a correction for "
    "looking at many."
)
_GAPS = ("overconfidence", "gap")  # how the names of gaps end
_PERCENT = ("confidence", "accuracy", "agreement", "auroc", "best_of_n", "best_of_n_chance")
_PAGE_ONLY = ("usable_information", "ece", "ece_p_value", "temperature")
_MOST_ROWS = 40  # categories in a table or a figure


# Cells and columns.


def metric_text(row: Row, metric: str, *, limits: bool = True) -> str:
    """Return a metric as a percentage, in points, or as a number, by its name and the catalogue's unit."""
    shown = catalogue().get(metric)
    whole = {"value": row["value"], "low": None, "high": None} | (dict(row) if limits else {})
    if shown is not None and shown.better == "zero" and shown.unit in ("probability", "fraction of votes"):
        return points(whole)
    if metric.endswith("p_value"):
        return p_value(row["value"])
    if metric == "temperature":
        return bracketed(whole, display.temperature_text)
    return bracketed(whole, percent if metric.endswith(_PERCENT) else number)


def metric_cell(row: Row | None, metric: str, *, limits: bool = True) -> Cell:
    """Return the cell of a metric; a tooltip says why there is no value."""
    note = "" if row is None else str(row.get("note") or "")
    if row is None or row.get("value") is None:
        return Cell("–", tip=note)
    return Cell(metric_text(row, metric, limits=limits), float(row["value"]), tip=note)


def metric_columns(
    labels: Mapping[str, str],
    find: Callable[[Any, str], Row | None],
    *,
    limits: Collection[str] = (),
    page_only: Collection[str] = (),
) -> Columns:
    """Return one column per metric, with its meaning from the catalogue.

    ``find`` returns the values of a metric in a row of the table; those in ``limits`` show their intervals.
    """

    def cell(metric: str, row: Any) -> Cell:
        return metric_cell(find(row, metric), metric, limits=metric in limits)

    return {
        Column(label or metric_name(name), meaning_of(name), page_only=name in page_only): partial(cell, name)
        for name, label in labels.items()
    }


def meaning_of(metric: str) -> str:
    """Return what a metric means; nothing for one that is not in the catalogue."""
    described = catalogue().get(metric)
    return "" if described is None else described.meaning


def categories_of(rows: Rows) -> list[str]:
    """Return overall and the categories; one category is the same as overall."""
    names = list(dict.fromkeys(row["category"] for row in rows))
    return names[:1] if len(names) == 2 else names


def first_of(
    items: Sequence[T], weight: Callable[[T], Any], most: int = _MOST_ROWS, file: str = "metrics.json"
) -> tuple[list[T], str]:
    """Return the items of the largest weight that a page has room for, in their order, and where the others are."""
    kept = sorted(range(len(items)), key=lambda i: weight(items[i]), reverse=True)[:most]
    left = len(items) - len(kept)
    return [items[i] for i in sorted(kept)], f" {left:,} more are in {file}." if left else ""


def words_section(words: Mapping[str, str]) -> Section:
    """Return the section that explains the words of a page."""
    return Section(
        "words", "Words on this page", [Words([f"{word}: {meaning}." for word, meaning in words.items()])]
    )


def footer_of(settings: Settings) -> str:
    """Return how numbers were computed."""
    return (
        f"rmcalib {__version__} · {settings.bins} equal-width bins · {settings.level:.0%} intervals · "
        f"{settings.resamples:,} simulated data sets · seed {settings.seed}"
    )


# Evaluations.


def evaluation_document(result: Evaluation, source: str = "SCORES", labelled: str = "") -> Document:
    """Return the document of an evaluation: one screen first, then folded details.

    ``source`` and ``labelled`` are where its scores are, for the commands of the next steps; see `next_steps`.
    """
    at = sentences.overall_values(result.rows)
    first: list[doc.Block] = []
    if result.first_choice_rows and not result.facts["undecided"]:
        first.append(_first_choice(result))
    by_category = [row for row in result.group_rows if row["group_by"] == "category"]
    if len(by_category) > 1:
        first.append(_forest("categories", by_category, _FOREST))
    return Document(
        title=f"Calibration of {result.model}",
        subtitle=_subtitle(result),
        sentences=sentences.evaluation_sentences(result),
        tiles=[] if result.facts["undecided"] else _tiles(result, at),
        first=first,
        steps=next_steps(result, source, labelled),
        sections=list(_evaluation_sections(result, at)),
        notes=result.notes,
        footer=footer_of(result.settings),
        data=prompt_data(result),
    )


def _first_choice(result: Evaluation) -> Drawing:
    """Return the diagram of the first screen; a temperature moves it if one response of a prompt is the best."""
    single = result.facts["view"] == "pointwise"
    seen = ", ".join(
        f"says {percent(row['confidence'])} right {percent(row['frequency'])}"
        for row in result.first_choice_rows
    )
    return Drawing(
        "first-choice",
        partial(
            figures.first_choice_figure,
            result.first_choice_rows,
            "being correct" if single else "its first choice",
        ),
        f"What it says against how often it is right: {seen}",
        _DIAGRAM.format("responses" if single else "prompts"),
        slider=not single and not result.facts["by_majority"],
    )


def _subtitle(result: Evaluation) -> str:
    facts = result.facts
    questions = f"{count(facts['clusters'], 'question')}, " if facts["clusters"] else ""
    size = f"{questions}{count(facts['prompts'], 'prompt')}, {count(facts['responses'], 'response')}"
    benchmark = "" if result.benchmark == sentences.UNNAMED else f" of {result.benchmark}"
    dtype = result.manifest.get("dtype")
    return clean_line(f"{size}{benchmark}{f' · {dtype}' if dtype else ''}")


def _tiles(result: Evaluation, at: Mapping[str, Row]) -> list[Tile]:
    kind = next((kind for kind in _TILES if CLAIMS[kind][-1] in at), "pairs")
    tiles = [
        _tile(at[metric], metric, name, key=name if kind == "top_1" else "")
        for metric, name in zip(CLAIMS[kind], _TILES[kind], strict=True)
        if metric in at
    ]
    if result.facts["gain"] is not None and "temperature" in at:
        if sentences.offers_temperature(result):
            tiles.append(_tile(at["temperature"], "temperature", "best temperature", key="best-temperature"))
        else:
            tiles.append(Tile("best temperature", "none", "no temperature clearly helps"))
    return tiles


def _tile(row: Row, metric: str, name: str, key: str = "") -> Tile:
    value, _, around = metric_text(row, metric).partition(" [")
    unit = " points" if metric.endswith(_GAPS) else ""
    interval = around.rstrip("]").replace(", ", " to ")
    return Tile(
        name,
        f"{value}{unit}",
        interval,
        (sentences.WORDS.get(name) if key else None) or meaning_of(metric),
        key,
    )


def _evaluation_sections(result: Evaluation, at: Mapping[str, Row]) -> Iterator[Section]:
    yield Section("prompt-list", "All prompts", widget="prompts")
    by_category = _category_table(result)
    if by_category is not None and not result.facts["undecided"]:
        yield Section("by-category", "By category", [by_category], brief=True)
    if result.facts["view"] == "top_1" and {"kept_information", "usable_information"} <= at.keys():
        bar = doc.Information(at["kept_information"]["value"], at["usable_information"]["value"])
        yield Section("worth", "What its probabilities are worth", [bar])
    if result.reliability_rows:
        yield Section(
            "reliability-diagrams",
            "Reliability of all responses",
            [Words([_RELIABILITY]), *_diagrams(result)],
        )
    if len(result.group_rows) > 1:
        yield Section("groups", "Gap by group", _gaps_by_group(result.group_rows))
    if result.decisions is not None:
        said = Words(decision_sentences(result.decisions))
        yield Section("decisions", "If you act on it", [said, decisions_drawing(result.decisions)])
    yield Section("everything", "All metrics", [_everything(result)])
    manifest = {key: value for key, value in result.manifest.items() if key != "inputs"}  # repeated in it
    text = display.clean(json.dumps(manifest, indent=2, ensure_ascii=False, default=str))
    yield Section("manifest", "How the scores were made", [Words([text], verbatim=True)])
    yield words_section(sentences.glossary(result.facts["view"], result.rows))


def _diagrams(result: Evaluation) -> Iterator[Drawing]:
    panels = list(dict.fromkeys(row["panel"] for row in result.reliability_rows))
    shown, _ = first_of(panels, _sizes(result).__getitem__, figures.MOST_PANELS)
    for i, panel in enumerate(shown):
        rows = [row for row in result.reliability_rows if row["panel"] == panel]
        line = [row for row in result.isotonic_rows if row["panel"] == panel]
        seen = ", ".join(f"{row['confidence']:.2f} happened {row['frequency']:.2f}" for row in rows)
        label = f"Reliability diagram, {clean_line(panel)}: predicted {seen}"
        yield Drawing(f"reliability-{i}", partial(figures.reliability_figure, rows, line), label)


def _category_table(result: Evaluation) -> doc.Table | None:
    """Return the headline metrics and the ECE, overall and by category."""
    names = {**HEADLINE, "confidence_ece": "ECE (top choice)", "ece": "ECE (all responses)"}
    names |= {"ece_p_value": "p-value of ECE (all responses)"}
    if result.facts["view"] == "pointwise":
        names = _POINTWISE
    elif result.facts["no_calibration"] is not None:
        names |= PAIRS
    cells = {(row["category"], row["metric"]): row for row in result.rows}
    measured = {row["metric"] for row in result.rows if row["value"] is not None}
    labels = {metric: label for metric, label in names.items() if metric in measured}
    if not labels:
        return None
    sizes = _sizes(result)
    listed, left = first_of(categories_of(result.rows), sizes.__getitem__)
    columns: Columns = {
        "category": clean_line,
        "prompts": lambda category: Cell(f"{sizes[category]:,}", sizes[category]),
    }
    gaps = [metric for metric in labels if metric.endswith(_GAPS)]
    columns |= metric_columns(
        labels, lambda category, metric: cells.get((category, metric)), limits=gaps, page_only=_PAGE_ONLY
    )
    caption = f"Brackets are {result.settings.level:.0%} intervals.{left}"
    rows = [name for name in listed if sizes[name]]
    return doc.table_of("Metrics by category", rows, columns, caption)


def _sizes(result: Evaluation) -> Counter[str]:
    """Return how many prompts each category has."""
    counts = Counter({OVERALL: result.scores.n_items})
    for name, n in Counter(result.scores.category[result.scores.offsets[:-1]].tolist()).items():
        counts[shown_name(name)] += n
    return counts


def _forest(name: str, groups: Rows, caption: str = "") -> Drawing:
    """The gap of each group in points: with the interval of the group alone."""
    listed, left = first_of(groups, _worse)
    rows = [
        {**row, "label": f"{clean_line(row['group'])}{' *' if row['flagged'] else ''}"}
        | {"value": row["gap"], "marked": row["flagged"]}
        for row in listed
        if row["gap"] is not None
    ]
    axis = "← under-confident · gap in points · over-confident →"
    draw = partial(figures.interval_figure, rows, axis, scale=100, mark=figures.BAD)
    seen = ", ".join(f"{row['label']} {100 * row['value']:+.0f}" for row in rows)
    return Drawing(name, draw, f"Gap of each group in points: {seen}", f"{caption}{left}")


def _worse(group: Row) -> tuple[bool, int]:
    """What makes a group worth showing: a flag, then its size."""
    return group["flagged"], group["n"]


def _gaps_by_group(groups: Rows) -> list[doc.Block]:
    listed, left = first_of(groups, _worse)
    table = doc.table_of(
        "Gap by group",
        listed,
        {
            "group": entry("group"),
            "grouped by": entry("group_by"),
            "prompts": entry("n", "{:,}".format),
            "says": entry("says", percent),
            "right": entry("right", percent),
            "gap in points": doc.ranged("gap", points),
            "with the others": lambda row: Cell(points({"value": row["pooled"]}), row["pooled"]),
            "corrected p-value": entry("p_adjusted", p_value),
            "flagged": lambda row: (
                Cell(sentences.direction(row["gap"]), tone="bad") if row["flagged"] else "no"
            ),
        },
        "With the others: the gap, moved towards the other groups' gaps the more, the fewer prompts a group has "
        "(partial pooling, Morris 1983). Corrected p-values: for looking at all groups (Holm's method)."
        f"{left}",
    )
    others = [row for row in groups if row["group_by"] != "category"]
    return [_forest("groups-figure", others), table] if others else [table]


def _everything(result: Evaluation) -> doc.Table:
    """All metrics, by group of the catalogue: one row per metric, one column per category."""
    metrics = catalogue()
    categories, left = first_of(categories_of(result.rows), _sizes(result).__getitem__, figures.MOST_PANELS)
    place = {name: i for i, name in enumerate(metric_groups())}
    names = sorted(
        dict.fromkeys(row["metric"] for row in result.rows),
        key=lambda name: place[metrics[name].group] if name in metrics else len(place),
    )
    cells = {(row["category"], row["metric"]): row for row in result.rows}

    def cell(category: str, metric: str) -> Cell:
        return metric_cell(cells.get((category, metric)), metric, limits=category == OVERALL)

    columns: Columns = {"metric": lambda name: Cell(name, note=meaning_of(name))}
    columns |= {Column(clean_line(category)): partial(cell, category) for category in categories}
    caption = f"metrics.csv has all intervals, and the reason for each empty cell.{left}"
    return doc.table_of("All metrics", names, columns, caption)

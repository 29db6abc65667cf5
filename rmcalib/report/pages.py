"""One function per kind of result builds its document; here they are found, drawn and written."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib import __version__
from rmcalib._util.display import (
    bracketed,
    interval,
    number,
    p_value,
    percent,
    points,
    signed,
    temperature_text,
)
from rmcalib._util.files import write_text
from rmcalib._util.terminal import clean, clean_line, count
from rmcalib.metrics import Board, Comparison
from rmcalib.metrics.catalogue import catalogue, metric_groups
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, find_value, shown_name
from rmcalib.report import figures
from rmcalib.report.document import (
    Block,
    Cell,
    Column,
    Columns,
    Document,
    Drawing,
    Information,
    Section,
    Table,
    Tile,
    Words,
    table_of,
    to_fragment,
    to_html,
)
from rmcalib.report.evaluation import Evaluation
from rmcalib.report.prompts import prompt_data
from rmcalib.report.repairs import decision_sentences, decisions_drawing
from rmcalib.report.sentences import (
    comparison_sentences,
    direction,
    evaluation_sentences,
    metric_name,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADLINE: dict[str, str] = {
    "mean_confidence": "says",
    "accuracy": "right",
    "overconfidence": "gap in points",
    "kept_information": "kept information",
    "lost_information": "lost information",
    "usable_information": "usable information",
}
"""The first metrics of every table, with their headings."""
PAIRS = {
    "pairwise_confidence": "says in pairs",
    "pairwise_accuracy": "right in pairs",
    "pairwise_overconfidence": "gap in pairs",
}
_NAME = Column("category", text=True)
_RELIABILITY = (
    "Each point is a group of responses: the probability that was stated for them, and how often they are correct. "
    "The bars contain 95% of a calibrated model's points. Points of an over-confident model are above the diagonal "
    "on the left and below it on the right."
)
_POINTWISE = {
    "pointwise_confidence": "says",
    "pointwise_accuracy": "right",
    "pointwise_gap": "gap in points",
    "pointwise_ece": "ECE",
    "within_prompt_auroc": "order within prompts",
    "best_of_n": "best of n",
    "best_of_n_chance": "by chance",
}
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
Row = Mapping[str, Any]


def write_page(result: Any, path: str | Path) -> Path:
    """Write the page of a result: one self-contained file."""
    return write_text(path, to_html(document_of(result)))


def first_screen(result: Any) -> str:
    """Return the first screen of a result's page as HTML, for notebooks."""
    return to_fragment(document_of(result))


def verdict(result: Any) -> str:
    """Return the first sentence about a result."""
    if isinstance(result, Comparison):
        return comparison_sentences(result)[0]
    return str(document_of(result).sentences[0])


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
    from rmcalib.report import repairs
    from rmcalib.report.boards import board_document
    from rmcalib.report.joint import Joint, joint_document
    from rmcalib.report.watches import watch_document

    builders: list[tuple[type, Callable[[Any], Document]]] = [
        (Evaluation, evaluation_document),
        (Comparison, comparison_document),
        (Board, board_document),
        (Joint, joint_document),
        (Calibration, repairs.calibration_document),
        (Applied, repairs.applied_document),
        (Decisions, repairs.decisions_document),
        (Panel, repairs.panel_document),
        (Watch, watch_document),
    ]
    for kind, build in builders:
        if isinstance(result, kind):
            return build(result)
    raise TypeError(f"there is no page of a {type(result).__name__}")


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
        text = temperature_text(value) + (
            ""
            if whole["low"] is None
            else f" [{temperature_text(whole['low'])}, {temperature_text(whole['high'])}]"
        )
    elif metric.endswith(_PERCENT):
        text = bracketed(whole, percent)
    else:
        text = bracketed(whole)
    return Cell(text, float(value), tip=str(row.get("note") or ""))


def metric_column(metric: str, label: str = "", *, page_only: bool = False) -> Column:
    """Return the heading of a metric's column, with its meaning from the catalogue."""
    return Column(label or metric_name(metric), _meaning(metric), page_only=page_only)


def categories_of(rows: Sequence[Row]) -> list[str]:
    """Return overall and the categories; one category is the same as overall."""
    found = list(dict.fromkeys(row["category"] for row in rows))
    return found[:1] if len(found) == 2 else found


def _tile(row: Row | None, metric: str, name: str, meaning: str, key: str = "") -> Tile | None:
    if row is None or row["value"] is None:
        return None
    if metric.endswith(("overconfidence", "gap")):
        value, _, around = points(row).partition(" ")
        return Tile(name, f"{value} points", around.strip("[]").replace(", ", " to "), meaning, key)
    form = percent if metric != "temperature" else temperature_text
    around = "" if row["low"] is None else f"{form(row['low'])} to {form(row['high'])}"
    return Tile(name, form(row["value"]), around, meaning, key)


# Evaluations.


def evaluation_document(result: Evaluation) -> Document:
    """Return the document of an evaluation: one screen first, then folded details."""
    rows, facts, settings = result.rows, result.facts, result.settings
    kept, usable = (find_value(rows, f"{name}_information") for name in ("kept", "usable"))
    first: list[Block] = []
    if (
        facts["view"] == "top_1"
        and kept is not None
        and kept["value"] is not None
        and usable is not None
        and usable["value"] is not None
    ):
        first.append(Information(kept["value"], usable["value"]))
    by_category = [row for row in result.groups if row["group_by"] == "category"]
    if len(by_category) > 1:
        first.append(_forest("categories", by_category, _FOREST))
    if result.decisions is not None:
        first.append(Words(decision_sentences(result.decisions)[:1]))
    return Document(
        title=f"Calibration of {result.model}",
        subtitle=_subtitle(result),
        sentences=evaluation_sentences(result),
        tiles=_evaluation_tiles(result),
        first=first,
        sections=list(_evaluation_sections(result)),
        notes=result.notes,
        footer=footer_of(settings),
        data=prompt_data(result),
    )


def _evaluation_tiles(result: Evaluation) -> list[Tile]:
    rows = result.rows
    people = find_value(rows, "vote_gap")
    if people is not None and people["value"] is not None:
        wanted = [
            ("vote_confidence", "says", "mean probability of its first choice", ""),
            ("vote_agreement", "people agree", "fraction of people who prefer it", ""),
            ("vote_gap", "gap", "says minus people", ""),
        ]
    elif result.facts["view"] == "pointwise":
        wanted = [
            ("pointwise_confidence", "says", "mean P(response is correct)", ""),
            ("pointwise_accuracy", "right", "fraction of correct responses", ""),
            ("pointwise_gap", "gap", "says minus right", ""),
        ]
    elif (found := find_value(rows, "overconfidence")) is not None and found["value"] is not None:
        wanted = [
            ("mean_confidence", "says", "mean probability of its first choice", "says"),
            ("accuracy", "right", "how often that choice is correct", ""),
            ("overconfidence", "gap", "says minus right", "gap"),
        ]
    else:
        wanted = [(name, label, "", "") for name, label in PAIRS.items()]
    tiles = [
        _tile(find_value(rows, name), *(name, label, meaning, key)) for name, label, meaning, key in wanted
    ]
    gain, best = result.facts["gain"], find_value(rows, "temperature")
    if gain is not None and best is not None and best["value"] is not None:
        if gain["low"] > 0:
            tiles.append(_tile(best, "temperature", "best temperature", "divide the rewards by it"))
        else:
            tiles.append(Tile("temperature", "none", "not shown to help", ""))
    return [tile for tile in tiles if tile is not None]


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
    if result.margins:
        rows = [row for row in result.margins if row["panel"] == OVERALL]
        label = "Histogram of margins of the correct response"
        yield Section("margins", "Margins", [Drawing("margin", partial(figures.margin_figure, rows), label)])
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


def category_table(result: Evaluation) -> Table | None:
    """Return the headline metrics and the ECE, overall and by category."""
    rows = result.rows
    names = {**HEADLINE, "ece": "ECE", "ece_p_value": "ECE p-value"}
    if result.facts["view"] == "pointwise":
        names = dict(_POINTWISE)
    elif result.facts["no_calibration"] is not None:
        names |= PAIRS
    known = {row["metric"] for row in rows if row["value"] is not None}
    shown = {key: label for key, label in names.items() if key in known}
    if not shown:
        return None
    sizes, categories = _sizes(result), categories_of(rows)
    listed = _largest(result, categories, _MOST_ROWS)
    body = [
        [
            Cell(clean_line(category)),
            Cell(f"{n:,}", n),
            *(
                metric_cell(
                    find_value(rows, key, category), key, limits=key.endswith(("overconfidence", "gap"))
                )
                for key in shown
            ),
        ]
        for category in listed
        if (n := sizes.get(category, 0))
    ]
    head = [
        _NAME,
        Column("prompts"),
        *(metric_column(key, label, page_only=key in _PAGE_ONLY) for key, label in shown.items()),
    ]
    caption = f"Brackets are {result.settings.level:.0%} intervals.{_left_out(listed, categories)}"
    return Table("Metrics by category", head, body, caption, sortable=True)


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
    table = table_of(
        "Gap by group",
        _listed(result.groups),
        {
            Column("group", text=True): lambda row: clean_line(row["group"]),
            Column("grouped by", text=True): lambda row: clean_line(row["group_by"]),
            "prompts": lambda row: Cell(f"{row['n']:,}", row["n"]),
            "says": lambda row: Cell(percent(row["says"]), row["says"]),
            "right": lambda row: Cell(percent(row["right"]), row["right"]),
            "gap in points": lambda row: Cell(points({**row, "value": row["gap"]}), row["gap"]),
            "partially pooled": lambda row: Cell(points({"value": row["pooled"]}), row["pooled"]),
            "corrected p-value": lambda row: Cell(p_value(row["p_adjusted"]), row["p_adjusted"]),
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
    table = table_of(
        "The judge's own answers",
        result.answers,
        {
            Column("measure", text=True): lambda row: row["meaning"],
            "value": lambda row: number(row["value"]),
            "interval": interval,
            "responses": lambda row: f"{row['n']:,}",
        },
    )
    yield Section("answers", "The judge's own answers", [table])


def _everything(result: Evaluation) -> Section:
    """All metrics, by group of the catalogue: one row per metric, one column per category."""
    known, every = catalogue(), categories_of(result.rows)
    categories = _largest(result, every, figures.MOST_PANELS)
    names = list(dict.fromkeys(row["metric"] for row in result.rows))
    place = {name: i for i, name in enumerate(metric_groups())}
    names.sort(key=lambda name: place[known[name].group] if name in known else len(place))
    found = {(row["category"], row["metric"]): row for row in result.rows}
    rows = [
        [
            Cell(name, note=_meaning(name)),
            *(
                metric_cell(found.get((category, name)), name, limits=category == OVERALL)
                for category in categories
            ),
        ]
        for name in names
    ]
    columns = [Column("metric", text=True), *(Column(clean_line(category)) for category in categories)]
    caption = (
        f"metrics.csv has all intervals, and the reason for each empty cell.{_left_out(categories, every)}"
    )
    return Section("everything", "All metrics", [Table("All metrics", columns, rows, caption)])


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


def footer_of(settings: Settings) -> str:
    """Return how numbers were computed."""
    return (
        f"rmcalib {__version__} · {settings.bins} equal-width bins · {settings.level:.0%} intervals · "
        f"{settings.resamples:,} simulated data sets · seed {settings.seed}"
    )


# Comparisons.


def comparison_document(found: Comparison) -> Document:
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
    sizes = {row["category"]: row["n"] for row in found.rows}
    shown = sorted(categories_of(found.rows), key=lambda name: -sizes[name])[: figures.MOST_PANELS]
    others = [row for row in found.rows if row not in first and row["category"] in shown]
    a, b, n = clean_line(found.a), clean_line(found.b), max((row["n"] for row in found.rows), default=0)
    differences = Drawing(
        "differences",
        partial(figures.interval_figure, drawn, "points: B minus A"),
        "Differences B − A of the headline metrics",
        "Differences in points; a diamond marks those where one is better beyond chance.",
    )
    everything = _difference_table(others, found, "All metrics", by_category=True)
    return Document(
        title=f"{b} against {a}",
        subtitle=f"A = {a} · B = {b} · {count(n, 'prompt')} in common",
        sentences=comparison_sentences(found),
        first=[differences, _difference_table(first, found, "Headline metrics")],
        sections=[Section("everything", "All metrics and categories", [everything])] if others else [],
        notes=list(dict.fromkeys(row["note"] for row in found.rows if row["note"])),
        footer=footer_of(found.settings),
    )


def _difference_table(
    rows: Sequence[Row], found: Comparison, name: str, *, by_category: bool = False
) -> Table:
    def change(row: Row) -> Cell:
        in_points = row["metric"] in (*HEADLINE, *PAIRS) and not row["metric"].endswith("information")
        both = {**row, "value": row["difference"]}
        return Cell(points(both) if in_points else bracketed(both, signed), row["difference"])

    def p(row: Row) -> Cell:
        value = row["p_value"] if row["size_p_value"] is None else row["size_p_value"]
        return Cell(p_value(value), value)

    def side(which: str, row: Row) -> Cell:
        return metric_cell({"value": row[which], "low": None, "high": None}, row["metric"])

    category = Column("category", text=True)
    columns: Columns = {
        Column("metric", text=True): lambda row: Cell(_label(row["metric"]), tip=_meaning(row["metric"])),
        category: lambda row: clean_line(row["category"]),
        "A": partial(side, "a"),
        "B": partial(side, "b"),
        "B − A": change,
        Column("p-value", "Of gaps: that their sizes are equal"): p,
        Column("better", text=True): lambda row: Cell(row["better"].upper(), tone="good"),
    }
    if not by_category:
        del columns[category]
    level = f"{found.settings.level:.0%}"
    caption = f"Paired over prompts, with {level} intervals. Of two gaps the smaller size is better."
    return table_of(name, rows, columns, caption, sortable=by_category)


def _meaning(metric: str) -> str:
    found = catalogue().get(metric)
    return "" if found is None else found.meaning


def _label(metric: str) -> str:
    return {**HEADLINE, **PAIRS}.get(metric) or metric_name(metric)

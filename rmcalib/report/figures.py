"""Figures: each function takes a table and returns a matplotlib Figure. Nothing is computed here.

Figures are drawn in the colours of the page's light theme; `figure_svg` turns those colours into the page's
variables, so that a drawing follows light and dark themes.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np
import numpy.typing as npt

from rmcalib._util.display import short_names, shortened
from rmcalib.metrics.table import OVERALL

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

Table = Sequence[Mapping[str, Any]]
_Panels = Mapping[str, Mapping[str, tuple[str, str, str]]]
INK, GREY, LINE, BLUE, BAD, GOOD = "#1c2430", "#5b6675", "#d9dee6", "#2463a6", "#a3352f", "#20714b"
_VARIABLES = {INK: "ink", GREY: "soft", LINE: "line", BLUE: "accent", BAD: "bad", GOOD: "good"}
_CHANGING = {"png": "Software", "pdf": "CreationDate", "svg": "Date"}  # would differ in equal figures
_ID = re.compile(r'(\bid="|url\(#|href="#)')
_STYLE = re.compile(r' style="([^"]*)"')
_PANEL = (3.5, 4.2)  # inches
_DIAGRAM, _PLACE, _ROOM = (5.0, 4.1), (0.15, 0.14, 0.82, 0.84), 0.03  # inches; fractions; beyond 0 and 1
PRINTED: tuple[Literal["png"], Literal["pdf"]] = ("png", "pdf")
"""The kinds of files of figures for papers."""
MOST_NAMED = 30
"""How many models a figure names."""
MOST_PANELS = 12
"""How many reliability diagrams a figure or a page has: hundreds of them take minutes to draw."""


# Files.


def figure_bytes(figure: Figure, kind: Literal["png", "pdf", "svg"]) -> bytes:
    """Return a figure as the bytes of a file; the same figure gives the same bytes."""
    from matplotlib import rc_context

    left_out: Any = {_CHANGING[kind]: None}
    buffer = io.BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "rmcalib"}):
        # The font may lack some letters of a name; tables show it in full.
        warnings.filterwarnings("ignore", message="Glyph", category=UserWarning)
        figure.savefig(buffer, format=kind, metadata=left_out, transparent=kind == "svg")
    return buffer.getvalue()


def figure_svg(figure: Figure, name: str, label: str) -> Markup:
    """Return a figure as SVG for a page: in the page's colours, with unique ids and without inline styles."""
    from markupsafe import Markup, escape

    text = figure_bytes(figure, "svg").decode("utf-8")
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", text, flags=re.DOTALL)
    text = re.sub(r'\sxmlns(:\w+)?="[^"]*"', "", text)
    text = _STYLE.sub(_attributes, text)  # the page's policy forbids inline styles
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None
    wide, box = round(1.5 * float(size[1])), f"0 0 {size[1]} {size[2]}"
    head = f'<svg role="img" aria-label="{escape(label)}" viewBox="{box}" width="{wide}">'
    text = _ID.sub(rf"\g<1>{name}-", head + text[text.index(">") + 1 :])
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, f"var(--{variable})")
    return Markup(re.sub(r"\n\s*", "\n", text))


def _attributes(match: re.Match[str]) -> str:
    """Turn an inline style into presentation attributes; the page sets the font."""
    attributes = []
    for part in match[1].split(";"):
        key, _, value = part.partition(":")
        key, value = key.strip(), value.strip()
        if key == "font":
            key, value = "font-size", value.split("px")[0].split()[-1] + "px"
        if key and key != "font-family":
            attributes.append(f' {key}="{value}"')
    return "".join(attributes)


# One model.


def _first_choice_corners() -> tuple[float, float, float, float]:
    """Return where 0 and 1 are in the diagram of the first choice: left, top, right, bottom, in points."""
    (width, height), (x, y, across, up) = _DIAGRAM, _PLACE
    unit = 72 / (1 + 2 * _ROOM)
    left, bottom = (
        72 * width * x + _ROOM * unit * width * across,
        72 * height * (1 - y) - _ROOM * unit * height * up,
    )
    return left, bottom - unit * height * up, left + unit * width * across, bottom


FIRST_CHOICE = _first_choice_corners()


def first_choice_figure(rows: Table, what: str = "its first choice", *, ax: Axes | None = None) -> Figure:
    """Draw one reliability diagram: what a model says against how often that is right, by how sure it is.

    Rows have count, confidence, frequency, band_low and band_high; the bands contain 95% of a calibrated model's
    points. A point's area is its number of events.
    """
    figure, axes = _axes_of(ax, *_DIAGRAM, box=_PLACE)  # the page's script must know the place
    plain_axes(axes)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    x, counts = _column(rows, "confidence"), np.asarray(_column(rows, "count"), dtype=float)
    low, high = _column(rows, "band_low"), _column(rows, "band_high")
    axes.vlines(x, low, high, color=BLUE, alpha=0.22, linewidth=9).set_gid("band")
    radius = 2 + 10 * np.sqrt(counts / counts.sum())
    points = axes.scatter(
        x, _column(rows, "frequency"), s=(2 * radius) ** 2, color=BLUE, alpha=0.75, linewidth=0
    )
    points.set_gid("points")
    axes.text(0.02, 0.97, "right more often\nthan it says", color=GREY, fontsize=9, va="top")
    axes.text(0.98, 0.03, "right less often\nthan it says", color=GREY, fontsize=9, ha="right")
    axes.set_xlabel(f"says: probability of {what}")
    axes.set_ylabel("right: how often")
    axes.set_xlim(-_ROOM, 1 + _ROOM)
    axes.set_ylim(-_ROOM, 1 + _ROOM)
    _in_percent(axes.xaxis, axes.yaxis)
    return figure


def reliability_figure(table: Table, curve: Table = (), *, columns: int = 3) -> Figure:
    """Draw reliability diagrams, one panel for each value of ``panel`` (the first 12), with counts below.

    Parameters
    ----------
    table : rows of panel, low, high, count, confidence, frequency, band_low, band_high
        Bins; the bands contain 95% of a calibrated model's points.
    curve : rows of panel, probability, frequency
        Isotonic curves.
    columns : int
        Largest number of panels side by side.

    Returns
    -------
    matplotlib Figure

    Examples
    --------
    >>> row = {"panel": "all", "low": 0.2, "high": 0.3, "count": 4, "confidence": 0.25, "frequency": 0.5,
    ...        "band_low": 0.0, "band_high": 0.6}
    >>> reliability_figure([row]).axes[0].get_title(loc="left")
    'all'
    """
    panels = list(dict.fromkeys(row["panel"] for row in table))[:MOST_PANELS]
    across = max(1, min(columns, len(panels)))
    down = max(1, math.ceil(len(panels) / across))
    # Axes are placed by hand, because a layout engine takes as long as all the drawing.
    figure = _figure(_PANEL[0] * across, _PANEL[1] * down, None)
    for i, panel in enumerate(panels):
        x, y = i % across / across, 1 - (1 + i // across) / down
        axes = figure.add_axes((x + 0.18 / across, y + 0.36 / down, 0.77 / across, 0.57 / down))
        counts = figure.add_axes((x + 0.18 / across, y + 0.13 / down, 0.77 / across, 0.17 / down))
        # With its height, nothing searches for free room above.
        axes.set_title(shown_text(panel, 34), loc="left", y=1.0, fontsize=11, color=INK)
        line = [row for row in curve if row["panel"] == panel]
        _draw_bins(axes, counts, [row for row in table if row["panel"] == panel], line)
        if i == 0:
            axes.legend(loc="upper left", frameon=False, fontsize=8, labelcolor=INK)
    return figure


def _draw_bins(axes: Axes, counts: Axes, rows: Table, line: Table) -> None:
    from matplotlib.ticker import FixedLocator, MaxNLocator

    fifths = FixedLocator(
        [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    )  # an automatic locator makes ticks beyond the axes, too
    for part in (axes, counts):
        plain_axes(part)
        part.set_xlim(-0.02, 1.02)
        part.xaxis.set_major_locator(fifths)
    axes.yaxis.set_major_locator(fifths)
    axes.tick_params(labelbottom=False)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    x = _column(rows, "confidence")
    low, high = _column(rows, "band_low"), _column(rows, "band_high")
    axes.vlines(x, low, high, color=BLUE, alpha=0.25, linewidth=8, label="95% if calibrated")
    axes.plot(x, _column(rows, "frequency"), "o-", color=BLUE, markersize=4, label="observed")
    if line:
        curve = _column(line, "probability"), _column(line, "frequency")
        axes.plot(*curve, "-.", color=INK, linewidth=1.2, label="isotonic (no bins)")
    axes.set_ylabel("observed frequency")
    axes.set_ylim(-0.02, 1.02)
    widths = [0.96 * (row["high"] - row["low"]) for row in rows]
    heights = _column(rows, "count")
    counts.bar(_column(rows, "low"), heights, width=widths, align="edge", color=BLUE, alpha=0.55)
    counts.set_xlabel("predicted probability")
    counts.yaxis.set_major_locator(MaxNLocator(2, integer=True))


def histogram_figure(values: npt.ArrayLike, xlabel: str, ylabel: str, *, ax: Axes | None = None) -> Figure:
    """Draw a histogram of numbers from 0 to 1."""
    figure, axes = _axes_of(ax, 4.6, 2.5)
    plain_axes(axes)
    axes.hist(np.asarray(values), bins=20, range=(0, 1), rwidth=0.92, color=BLUE)
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    return figure


def decisions_figure(decisions: Any, *, ax: Axes | None = None) -> Figure:
    """Draw the accuracy of the most confident choices beside what the model says."""
    figure, axes = _axes_of(
        ax, 4.6, 3.0, box=(0.115, 0.15, 0.86, 0.755)
    )  # a layout engine takes as long again
    rows = decisions.curve
    axes.axhline(1 - decisions.wrong_at_most, color=INK, linewidth=0.8, linestyle=":")
    if decisions.choice.threshold is not None:
        axes.axvline(
            decisions.choice.accepted, color=GOOD, label=f"at most {decisions.wrong_at_most:.0%} wrong"
        )
    x = _column(rows, "fraction")
    axes.fill_between(x, _column(rows, "low"), _column(rows, "high"), color=BLUE, alpha=0.18, linewidth=0)
    axes.plot(x, _column(rows, "right"), color=BLUE, label="right")
    axes.plot(x, _column(rows, "says"), color=GREY, ls="--", label="says")
    plain_axes(axes, grid="y")
    axes.set_title("Accept the most confident choices", loc="left", y=1.0, fontsize=11, color=INK)
    axes.set_xlabel("prompts accepted, the most confident first")
    axes.set_ylim(0, 1.02)
    _in_percent(axes.xaxis, axes.yaxis)
    axes.legend(loc="lower right", frameon=False, fontsize=8, labelcolor=INK)
    return figure


def best_of_n_figure(result: Any, *, ax: Axes | None = None) -> Figure:
    """Draw how often the best of n is right, what the judge says, and pass@n, against n."""
    from matplotlib.ticker import NullLocator

    figure, axes = _axes_of(ax, 4.8, 3.4)
    rows = result.rows
    n = _column(rows, "n")
    if rows[0]["low"] is not None:
        axes.fill_between(n, _column(rows, "low"), _column(rows, "high"), color=BLUE, alpha=0.18, linewidth=0)
    marker: dict[str, Any] = {"marker": "o", "markersize": 4 if len(rows) < 12 else 2.5}
    axes.plot(n, _column(rows, "pass_at_n"), color=GREY, linestyle=":", label="pass@n, the ceiling")
    if rows[0]["says"] is not None:
        axes.plot(n, _column(rows, "says"), color=BAD, linestyle="--", label="says", **marker)
    axes.plot(n, _column(rows, "right"), color=BLUE, label="right", **marker)
    if result.second is not None:
        name = shown_text(result.second, 30)
        axes.plot(
            n, _column(rows, "second_right"), color=GOOD, linestyle="-.", label=f"right: {name}", **marker
        )
    plain_axes(axes, grid="y")
    axes.set_xscale("log", base=2)
    ticks = sorted({tick for tick in n if tick & (tick - 1) == 0} | {n[-1]})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("samples to choose from")
    axes.set_ylim(0, 1.02)
    _in_percent(axes.yaxis)
    legend = partial(figure.legend, loc="outside lower center", ncols=4) if ax is None else axes.legend
    legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


# Several models.


def says_right_figure(
    table: Table, gaps: Mapping[str, bool] | None = None, *, ax: Axes | None = None
) -> Figure | None:
    """Draw what each model says (mean confidence) against how often it is right (accuracy).

    Parameters
    ----------
    table : rows of model, category, metric, value, low, high
        Rows of `mean_confidence`, `accuracy` and `overconfidence` are used.
    gaps : mapping of str to bool, optional
        Whether the gap of a model is significant; default whether its interval leaves out 0.
    ax : matplotlib Axes, optional
        Where to draw; default a new figure.

    Returns
    -------
    matplotlib Figure or None
        None if no model has both numbers. Up to 30 models are numbered and named, in the order of the table.

    Examples
    --------
    >>> rows = [{"model": "m", "category": "overall", "metric": name, "value": 0.5, "low": 0.4, "high": 0.6}
    ...         for name in ("mean_confidence", "accuracy", "overconfidence")]
    >>> says_right_figure(rows).axes[0].get_xlabel()
    'says: mean confidence'
    """
    by_model: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in table:
        if row["category"] == OVERALL and row["value"] is not None:
            by_model.setdefault(row["model"], {})[row["metric"]] = row
    models = {
        name: metrics for name, metrics in by_model.items() if {"mean_confidence", "accuracy"} <= set(metrics)
    }
    if not models:
        return None
    named = len(models) <= MOST_NAMED
    figure, axes = _axes_of(ax, 5.2, 4.4 + (0.18 * len(models) if named else 0))
    plain_axes(axes)
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle="--")
    short = short_names(models)
    for i, (name, metrics) in enumerate(models.items(), start=1):
        says, right, (colour, marker) = (
            metrics["mean_confidence"]["value"],
            metrics["accuracy"],
            _look(name, metrics, gaps),
        )
        label = shown_text(f"{i}  {short[name]}", 44) if named else None
        axes.plot(says, right["value"], marker, color=colour, markersize=6, label=label)
        if right["low"] is not None:
            axes.vlines(says, right["low"], right["high"], color=colour, linewidth=1)
        if named:
            place = (says, right["value"])
            axes.annotate(str(i), place, (5, 4), textcoords="offset points", fontsize=8, color=INK)
    axes.set_xlabel("says: mean confidence")
    axes.set_ylabel("right: accuracy")
    _in_percent(axes.xaxis, axes.yaxis)
    axes.set_xlim(0, 1.03)
    axes.set_ylim(0, 1.03)
    if named:
        legend = partial(figure.legend, loc="outside lower left") if ax is None else axes.legend
        legend(frameon=False, fontsize=8.5, labelcolor=INK)
    return figure


def _look(
    name: str, metrics: Mapping[str, Mapping[str, Any]], gaps: Mapping[str, bool] | None
) -> tuple[str, str]:
    """Return the colour and the marker of a model: over-confident, under-confident, or neither."""
    gap = metrics.get("overconfidence")
    if gap is None or gap["low"] is None:
        return GREY, "o"
    shown = not gap["low"] <= 0 <= gap["high"] if gaps is None else gaps.get(name, False)
    if not shown:
        return GREY, "o"
    return (BAD, "v") if gap["value"] > 0 else (BLUE, "^")


def interval_figure(
    rows: Table,
    xlabel: str,
    *,
    line: float = 0.0,
    scale: float = 1.0,
    mark: str = BLUE,
    ax: Axes | None = None,
) -> Figure | None:
    """Draw values with their intervals, one line each, and a reference line; marked ones are diamonds.

    Rows have label, value, low, high and marked. ``scale`` multiplies the numbers.
    """
    drawn = [row for row in rows if row["low"] is not None and math.isfinite(row["high"])]
    if not drawn:
        return None
    figure, axes = _axes_of(ax, 5.0, 0.8 + 0.28 * len(drawn))
    plain_axes(axes, grid="x")
    for i, row in enumerate(drawn):
        colour, marker = (mark, "D") if row["marked"] else (GREY, "o")
        axes.hlines(i, scale * row["low"], scale * row["high"], color=colour, linewidth=1.5)
        axes.plot(scale * row["value"], i, marker, color=colour, markersize=5.5)
    axes.axvline(line, color=INK, linewidth=0.9)
    axes.set_yticks(range(len(drawn)), [shown_text(str(row["label"]), 34) for row in drawn], color=INK)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(drawn) - 0.4, -0.6)  # from top to bottom
    axes.set_xlabel(xlabel)
    return figure


TRAINING: _Panels = {
    "says and right": {"accuracy": ("right", BLUE, "o-"), "mean_confidence": ("says", BAD, "v--")},
    "kept information": {"kept_information": ("", BLUE, "o-")},
    "best temperature": {"temperature": ("", BLUE, "o-")},
    "ECE (all responses)": {"ece": ("measured", BLUE, "o-"), "ece_null_mean": ("if calibrated", GREY, "s--")},
}
"""The curves of a reward model's training steps: label, colour and style, by panel and metric."""
WATCHED: _Panels = {
    "gap (says − right)": {"gap": ("", BAD, "o-")},
    "right": {"right": ("", BLUE, "o-")},
    "order within prompts (AUROC)": {"auroc": ("", BLUE, "o-")},
    "mean reward": {"mean_reward": ("", GREY, "o-")},
}
"""The curves of a policy's training steps."""


def curves_figure(rows: Table, panels: _Panels) -> Figure | None:
    """Draw up to four panels of curves over steps, with their intervals where they are known."""
    from matplotlib.ticker import MaxNLocator

    if not rows or not panels:
        return None
    n_rows, n_columns = (len(panels) + 1) // 2, min(len(panels), 2)
    figure = _figure(5.6, 2.3 * n_rows)
    grid = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for unused in grid[len(panels) :]:
        unused.set_axis_off()
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        plain_axes(axes, grid="y")
        axes.set_title(title, fontsize=10, color=INK)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        for name, (label, colour, style) in curves.items():
            measured = [row for row in rows if row.get(name) is not None]
            values = _column(measured, "step"), _column(measured, name)
            axes.plot(*values, style, color=colour, markersize=4, label=label)
            banded = [row for row in measured if row.get(f"{name}_low") is not None]
            ends = _column(banded, f"{name}_low"), _column(banded, f"{name}_high")
            axes.fill_between(_column(banded, "step"), *ends, color=colour, alpha=0.15, linewidth=0)
        if len(curves) > 1:
            axes.legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


# Shared.


def _figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=130, layout=layout)
    # Notebooks show figures by themselves only where somebody has imported pyplot.
    vars(figure)["_repr_png_"] = partial(figure_bytes, figure, "png")
    return figure


def _axes_of(
    ax: Axes | None, width: float, height: float, *, box: tuple[float, float, float, float] | None = None
) -> tuple[Figure, Axes]:
    """Return the axes to draw on and their figure: those that were given, or new ones."""
    if ax is not None:
        return cast("Figure", ax.get_figure(root=True)), ax
    if box is None:
        figure = _figure(width, height)
        return figure, figure.subplots()
    figure = _figure(width, height, None)
    return figure, figure.add_axes(box)


def _in_percent(*axes: Axis) -> None:
    """Show the numbers of axes as percentages."""
    from matplotlib.ticker import PercentFormatter

    for axis in axes:
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0))


def plain_axes(axes: Axes, *, grid: Literal["", "x", "y"] = "") -> None:
    """Style axes: no box, soft colours, and grid lines along an axis if wanted."""
    for side in ("top", "right", *(("left",) if grid == "x" else ())):
        axes.spines[side].set_visible(False)
    for spine in axes.spines.values():
        spine.set_color(GREY)
    axes.patch.set_visible(False)
    axes.tick_params(colors=GREY, labelsize=9)
    axes.xaxis.label.set(color=INK, fontsize=9)
    axes.yaxis.label.set(color=INK, fontsize=9)
    if grid:
        axes.grid(axis=grid, color=LINE, linewidth=0.6)
        axes.set_axisbelow(True)


def shown_text(text: str, longest: int) -> str:
    """Shorten a text, and escape what matplotlib would read as mathematics."""
    return shortened(text, longest).replace("$", r"\$")


def _column(rows: Table, name: str) -> list[Any]:
    return [row[name] for row in rows]

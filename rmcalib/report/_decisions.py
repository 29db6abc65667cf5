"""The figure about decisions: the accuracy of the surest choices, and of the best of k responses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmcalib.repair import Decisions
from rmcalib.report._drawing import BLUE, GOOD, GREY, INK, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["decisions_figure"]


def decisions_figure(decisions: Decisions) -> Figure:
    """Draw the accuracy-rejection curve and best-of-k, each with the confidence of the judge.

    >>> from rmcalib.repair import decide
    >>> from rmcalib.scores import Scores
    >>> figure = decisions_figure(decide(Scores.from_arrays([[2.0, 0.0], [0.0, 1.0]])))
    >>> [axes.get_title(loc="left") for axes in figure.axes]
    ['Accept the surest choices', 'Best of k responses']
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.8, 3.4), dpi=150)
    left, right = (figure.add_axes((x, 0.16, 0.405, 0.7)) for x in (0.07, 0.57))
    _draw_curve(left, decisions)
    _draw_best_of(right, decisions)
    return figure


def _draw_curve(axes: Axes, decisions: Decisions) -> None:
    from matplotlib.ticker import PercentFormatter

    rows = decisions.curve
    x = [row["fraction"] for row in rows]
    axes.fill_between(
        x, [row["low"] for row in rows], [row["high"] for row in rows], color=BLUE, alpha=0.18, linewidth=0
    )
    axes.plot(x, [row["right"] for row in rows], color=BLUE, linewidth=1.8, label="right")
    axes.plot(x, [row["says"] for row in rows], color=GREY, linewidth=1.5, linestyle="--", label="says")
    axes.axhline(1 - decisions.alpha, color=INK, linewidth=0.8, linestyle=":")
    if decisions.choice.threshold is not None:
        label = f"at most {decisions.alpha:.0%} wrong"
        axes.axvline(decisions.choice.accepted, color=GOOD, linewidth=1.5, label=label)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("prompts accepted, the surest first")
    _finish(axes, "Accept the surest choices")


def _draw_best_of(axes: Axes, decisions: Decisions) -> None:
    from matplotlib.ticker import MaxNLocator

    rows = decisions.best_of
    k = [row["k"] for row in rows]
    axes.vlines(k, [row["low"] for row in rows], [row["high"] for row in rows], color=BLUE, linewidth=1.2)
    axes.plot(k, [row["right"] for row in rows], "o-", color=BLUE, markersize=4, linewidth=1.5, label="right")
    axes.plot(
        k, [row["says"] for row in rows], "s--", color=GREY, markersize=3.5, linewidth=1.2, label="says"
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, min_n_ticks=1))
    axes.set_xlabel("k responses drawn at random, the largest reward chosen")
    _finish(axes, "Best of k responses")


def _finish(axes: Axes, title: str) -> None:
    from matplotlib.ticker import PercentFormatter

    plain_axes(axes, grid="y")
    axes.spines["left"].set_visible(False)
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.legend(loc="lower right", frameon=False, fontsize=8, labelcolor=INK)

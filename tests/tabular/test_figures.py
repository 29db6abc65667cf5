"""Figures of the label-ranking experiments show the values of their tables."""

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from rmcalib.tabular._figures import errors_by_k, grouped_bars, paired_bars, scatter

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEANS = pd.DataFrame(
    [
        {
            "dataset": "d",
            "learner": learner,
            "family": family,
            "k": k,
            "mean": 0.1 * k,
            "sd": 0.01,
            "null_mean": null,
        }
        for learner, null in (("pl", 0.05), ("pl+t", 0.05), ("rpc", float("nan")))
        for family, ks in (("sub", (2, 3)), ("top", (1, 2, 3)))
        for k in ks
    ]
)


def test_errors_by_k_has_a_line_for_each_learner() -> None:
    figure = errors_by_k(MEANS, title="d")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["sub-k", "top-k"]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["Plackett-Luce", "Plackett-Luce, recalibrated", "RPC", "if calibrated"]
    mixed = errors_by_k(MEANS.assign(learner="mine", mean=-0.1), label="excess")
    assert mixed.axes[0].get_ylabel() == "excess"
    assert mixed.axes[0].get_ylim()[0] < -0.1


def test_error_bars_are_one_standard_deviation() -> None:
    for sd in (0.01, float("nan")):  # no standard deviation with one fold
        axes = errors_by_k(MEANS[MEANS["learner"] == "pl"].assign(sd=sd)).axes[0]
        points, *bars = [np.array(line.get_ydata()) for line in axes.lines][:3]
        assert points.tolist() == pytest.approx([0.2, 0.3])
        for bar, mean in zip(bars, points, strict=True):
            ends = {round(end, 9) for end in bar[np.isfinite(bar)].tolist()}
            assert ends == (set() if np.isnan(sd) else {round(mean - sd, 9), round(mean + sd, 9)})


def test_the_legend_of_points_has_their_markers_and_colours() -> None:
    points = pd.DataFrame([{"learner": name, "x": 0.1, "y": 0.2} for name in ("rc", "mine", "pl")])
    legend = scatter(points, x_label="x", y_label="y").axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["Plackett-Luce", "RankClassifier", "mine"]
    handles: list[Any] = list(legend.legend_handles)
    assert [handle.get_marker() for handle in handles] == ["o", "^", "o"]
    assert len({handle.get_color() for handle in handles}) == 3


def test_a_panel_without_rows_stays_empty() -> None:
    figure = grouped_bars(MEANS, panels=[("d", {"dataset": "d"}), ("e", {"dataset": "e"})])
    full, empty = figure.axes
    assert not empty.patches
    assert (full.get_ylabel(), empty.get_ylabel()) == ("calibration error", "")
    ticks = [[text.get_text() for text in axes.get_xticklabels()] for axes in (full, empty)]
    assert ticks == [["sub-2", "sub-3", "top-2", "top-3"]] * 2
    hatches = [handle.get_hatch() for handle in figure.legends[0].get_patches()]
    assert hatches == [None, None, "xxx"]


def heights(figure: "Figure") -> list[float]:
    patches: list[Any] = list(figure.axes[0].patches)
    return [bar.get_height() for bar in patches]


def test_grouped_bars_have_the_heights_of_the_table() -> None:
    figure = grouped_bars(MEANS, panels=[("d", {"dataset": "d"})], columns=1)
    assert sorted(heights(figure)) == sorted(MEANS[MEANS["k"] > 1]["mean"])


def test_scatter_and_paired_bars() -> None:
    nulls = (0.05, float("nan"))
    points = pd.DataFrame(
        [{"dataset": "d", "learner": "pl", "x": 0.1, "y": 0.2, "null": null} for null in nulls]
    )
    figure = scatter(points, x_label="x", y_label="y", diagonal=True)
    drawn: Any = figure.axes[0].collections[0].get_offsets()
    assert drawn.tolist() == [[0.1, 0.2], [0.1, 0.2]]
    assert heights(paired_bars(points, x_name="a", y_name="b")) == [0.1, 0.1, 0.2, 0.2]

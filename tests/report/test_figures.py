"""Figures that people share: reliability diagrams, says against right, and the gap of groups."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from rmcalib.metrics import isotonic_table
from rmcalib.report import plot_reliability, says_right_figure
from rmcalib.report._confidence import groups_figure
from rmcalib.report._drawing import figure_bytes

REAL = {
    "Skywork/Skywork-Reward-Llama-3.1-8B": (0.9, 0.222),
    "internlm/internlm2-20b-reward": (0.379, 0.34),
    "RLHFlow/ArmoRM": (0.105, 0.213),
}


def rows(models: dict[str, tuple[float, float]], half: float = 0.04) -> list[dict[str, Any]]:
    return [
        {
            "model": model,
            "category": category,
            "metric": metric,
            "value": value,
            "low": value - half,
            "high": value + half,
        }
        for model, (says, right) in models.items()
        for category in ("overall", "Math")
        for metric, value in (
            ("mean_confidence", says),
            ("accuracy", right),
            ("overconfidence", says - right),
        )
    ]


def test_says_against_right_has_a_point_for_each_model() -> None:
    figure = says_right_figure(rows(REAL))
    assert figure is not None
    axes = figure.axes[0]
    drawn: Any = axes.collections[-1].get_offsets()
    assert sorted(map(tuple, drawn.tolist())) == sorted(REAL.values())
    texts = {text.get_text() for text in axes.texts}
    assert {"Skywork-Reward-Llama-3.1-8B", "internlm2-20b-reward", "ArmoRM"} <= texts
    assert any(text.startswith("over-confident:") for text in texts)
    assert any(text.startswith("under-confident:") for text in texts)
    # Shape and words show the direction, not only the colour.
    legend = axes.get_legend()
    assert legend is not None
    kinds = [text.get_text() for text in legend.get_texts()]
    assert kinds == ["over-confident", "under-confident", "no more than chance explains"]
    for kind in ("png", "svg"):
        assert figure_bytes(figure, kind) == figure_bytes(figure, kind)


def test_says_against_right_without_numbers_gives_none() -> None:
    assert says_right_figure([]) is None
    empty = [row | {"value": None, "low": None, "high": None} for row in rows(REAL)]
    assert says_right_figure(empty) is None
    bare = [row | {"low": None, "high": None} for row in rows(REAL)]
    assert says_right_figure(bare) is not None


def test_flagged_groups_have_another_shape() -> None:
    table = [
        {
            "group_by": "category",
            "group": name,
            "n": 50,
            "gap": gap,
            "low": gap - 0.05,
            "high": gap + 0.05,
            "flagged": flagged,
        }
        for name, gap, flagged in (("code", 0.12, True), ("math", -0.1, True), ("chat", 0.01, False))
    ]
    figure = groups_figure(table)
    assert figure is not None
    markers = [line.get_marker() for line in figure.axes[0].lines]
    assert markers[:3] == ["v", "^", "o"]
    assert groups_figure([]) is None


def test_one_call_plots_arrays() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y = rng.random(500) < p
    figure = plot_reliability(p, y, bins=5, curve="isotonic")
    lines: list[Any] = list(figure.axes[0].lines)
    points = [line for line in lines if line.get_marker() == "o" and len(line.get_xdata()) == 1]
    assert len(points) == 5
    for line in points:
        (x,), (frequency,) = line.get_xdata(), line.get_ydata()
        inside = (p >= np.floor(x * 5) / 5) & (p < np.floor(x * 5) / 5 + 0.2)
        assert x == pytest.approx(p[inside].mean())
        assert frequency == pytest.approx(y[inside].mean())
    assert "isotonic (no bins)" in [text.get_text() for text in figure.legends[0].get_texts()]
    own = Figure()
    axes = own.subplots()
    assert plot_reliability(p, y, ax=axes) is own
    assert axes.get_xlabel() == "predicted probability"


def pool_adjacent(y: list[float]) -> list[float]:
    """Isotonic regression by merging blocks until no block is above the next."""
    blocks = [[value] for value in y]
    while any(np.mean(a) > np.mean(b) for a, b in itertools.pairwise(blocks)):
        i = next(i for i, (a, b) in enumerate(itertools.pairwise(blocks)) if np.mean(a) > np.mean(b))
        blocks[i : i + 2] = [blocks[i] + blocks[i + 1]]
    return [float(np.mean(block)) for block in blocks for _ in block]


@pytest.mark.parametrize("seed", range(5))
def test_the_isotonic_curve_equals_pooled_neighbours(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = np.sort(rng.random(40))
    y = (rng.random(40) < p).astype(float)
    curve = isotonic_table(p, y, panel="all")
    fitted = pool_adjacent(y.tolist())
    known = {row["probability"]: row["frequency"] for row in curve}
    for probability, frequency in known.items():
        assert frequency == pytest.approx(fitted[int(np.searchsorted(p, probability))])
    between = np.interp(p, list(known), list(known.values()))
    assert between == pytest.approx(fitted)

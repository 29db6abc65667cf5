"""The report of a forecast of rankings: words, figure, page."""

from pathlib import Path

import numpy as np

from rmcalib.calibration import Summary, SummaryRow, TemperatureFit
from rmcalib.metrics import reliability_table
from rmcalib.ranking.synthetic import synthetic_plackett_luce
from rmcalib.report import forecast_report, reliability_figure, write_forecast_report
from rmcalib.report._page import render
from rmcalib.report.rankings._forecast import plain_words


def row(value: float, p_value: float) -> SummaryRow:
    return SummaryRow("sub", 2, value, 0.0, 1.0, 0.02, 0.03, p_value, 0.02)


def test_words_follow_the_numbers() -> None:
    hot = TemperatureFit(2.0, 0.0, None, 10)
    assert "No sign" in plain_words(Summary((row(0.3, 0.2),), hot, 10, 3))
    assert "over-confident" in plain_words(Summary((row(0.3, 0.01),), hot, 10, 3))
    cold = TemperatureFit(0.5, 0.0, None, 10)
    assert "under-confident" in plain_words(Summary((row(0.3, 0.01),), cold, 10, 3))
    limit = TemperatureFit(1e9, 0.0, "hot", 10)
    assert "T =" not in plain_words(Summary((row(0.3, 0.01),), limit, 10, 3))


def test_text_is_escaped() -> None:
    page = render("base.html", title="<script>alert(1)</script>", subtitle='"><img src=x>')
    assert "<script>alert" not in page
    assert "<img src=x>" not in page


def test_figure_has_two_axes_for_each_panel() -> None:
    p = np.linspace(0.05, 0.95, 50)
    table = [row for panel in "abcd" for row in reliability_table(p, p > 0.4, panel=panel)]
    figure = reliability_figure(table)
    assert [axes.get_title(loc="left") for axes in figure.axes if axes.get_title(loc="left")] == list("abcd")


def test_all_labels_are_inside_the_figure_for_any_counts() -> None:
    p = np.repeat(np.linspace(0.05, 0.95, 10), 40_000)
    figure = reliability_figure(reliability_table(p, p > 0.4, panel="many", rng=0))
    figure.draw_without_rendering()
    width, height = figure.bbox.size
    labels = [label for axes in figure.axes for label in (axes.xaxis.label, axes.yaxis.label)]
    ticks = [label for axes in figure.axes for label in axes.yaxis.get_ticklabels()]
    boxes = {label.get_text(): label.get_window_extent() for label in [*labels, *ticks] if label.get_text()}
    assert {"observed frequency", "forecasts", "predicted probability"} <= set(boxes)
    assert all(box.x0 >= 0 and box.x1 <= width for box in boxes.values())
    named = [box for text, box in boxes.items() if text[0].isalpha()]  # ticks beyond the axes are not drawn
    assert all(box.y0 >= 0 and box.y1 <= height for box in named)
    # The axis labels do not overlap the longest number.
    assert boxes["forecasts"].x1 < min(label.get_window_extent().x0 for label in ticks if label.get_text())


def test_figures_use_the_page_colours_and_the_table_is_accessible(tmp_path: Path) -> None:
    data = synthetic_plackett_luce(150, 3, confidence=2.0, rng=np.random.default_rng(0))
    report = forecast_report(data.forecast, data.orders, title="t", subtitle="s", resamples=20)
    text = write_forecast_report(report, tmp_path).read_text(encoding="utf-8")
    assert "<img" not in text  # an image would stay white in the dark theme
    assert 'aria-label="Reliability diagram, which item comes first: predicted 0.' in text
    assert text.count('<th scope="col">') == 8
    assert text.count('<th scope="row">') == 4
    assert "<th>" not in text


def test_the_content_has_the_measured_values() -> None:
    data = synthetic_plackett_luce(150, 3, confidence=2.0, rng=np.random.default_rng(0))
    report = forecast_report(data.forecast, data.orders, title="t", subtitle="s", resamples=20)
    content = report.content()
    assert content["n"] == 150
    assert [metric["value"] for metric in content["metrics"]] == [row.value for row in report.summary.rows]
    assert sum(row["count"] for row in report.reliability) == 150 * 3

import numpy as np

from rmcalib.calibration import Summary, SummaryRow, TemperatureFit
from rmcalib.ranking.synthetic import synthetic_plackett_luce
from rmcalib.report.figures import reliability_figure
from rmcalib.report.forecast import forecast_report, plain_words, report_content
from rmcalib.report.page import render
from rmcalib.report.tables import reliability_table


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


def test_report_content_is_what_was_measured() -> None:
    data = synthetic_plackett_luce(150, 3, confidence=2.0, rng=np.random.default_rng(0))
    report = forecast_report(data.forecast, data.orders, title="t", subtitle="s", resamples=20)
    content = report_content(report)
    assert content["n"] == 150
    assert [metric["value"] for metric in content["metrics"]] == [row.value for row in report.summary.rows]
    assert sum(row["count"] for row in report.reliability) == 150 * 3

"""The report of one forecast of rankings: table, figure, page, and a summary in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib import __version__
from rmcalib._util.arrays import IntArray
from rmcalib._util.display import number
from rmcalib._util.files import write_bytes, write_csv, write_json, write_text
from rmcalib.calibration import Summary, summarise
from rmcalib.metrics import reliability_table
from rmcalib.ranking import RankingDistribution
from rmcalib.ranking.events import all_events, occurs
from rmcalib.report._drawing import figure_png
from rmcalib.report._page import render
from rmcalib.report._reliability import reliability_figure, reliability_svg

__all__ = ["ForecastReport", "forecast_report", "plain_words", "write_forecast_report"]

_PANEL = "which item comes first"


@dataclass(frozen=True)
class ForecastReport:
    """The report of a forecast of rankings.

    Attributes
    ----------
    title, subtitle, footer : str
        Texts of the page.
    summary : Summary
        The calibration errors.
    words : str
        The result in a sentence or two.
    reliability : list[dict[str, Any]]
        Rows of the reliability diagram.
    p_floor : float, optional
        The smallest p-value that the number of resamples allows.

    Examples
    --------
    >>> ForecastReport("t", "s", Summary((), None, 5, 3), "words", [], "").content()["n"]
    5
    """

    title: str
    subtitle: str
    summary: Summary
    words: str
    reliability: list[dict[str, Any]]
    footer: str
    p_floor: float | None = None

    def content(self) -> dict[str, Any]:
        """Return the numbers of the report, ready for JSON."""
        fit = self.summary.temperature
        return {
            "title": self.title,
            "protocol": "exact",
            "n": self.summary.n,
            "n_items": self.summary.n_items,
            "metrics": _rows(self.summary),
            "temperature": None if fit is None else fit.temperature,
            "temperature_at_limit": None if fit is None else fit.at_limit,
            "summary": self.words,
        }


def forecast_report(
    dist: RankingDistribution,
    orders: IntArray,
    *,
    title: str,
    subtitle: str,
    sub: Sequence[int] = (2, 3),
    top: Sequence[int] = (1, 2),
    resamples: int = 200,
    seed: int = 0,
) -> ForecastReport:
    """Evaluate a forecast of rankings by sub-k and top-k calibration.

    Parameters
    ----------
    dist : RankingDistribution
        The forecast, a distribution over rankings for each of n instances.
    orders : int array (n, m)
        The true rankings, best item first.
    title, subtitle : str
        Title and subtitle of the page.
    sub, top : Sequence[int]
        The values of k to evaluate.
    resamples, seed : int
        Number of resamples and seed of intervals and nulls.

    Returns
    -------
    ForecastReport

    Examples
    --------
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(100, 3, rng=np.random.default_rng(0))
    >>> report = forecast_report(data.forecast, data.orders, title="t", subtitle="s", resamples=20)
    >>> len(report.summary.rows)
    4
    """
    summary = summarise(dist, orders, sub=sub, top=top, resamples=resamples, rng=seed)
    first = all_events(dist.n_items, 1)
    instance = np.repeat(np.arange(len(orders)), dist.n_items)
    diagram = reliability_table(
        dist.top(first).reshape(-1),
        occurs(orders, first, "top").reshape(-1),
        panel=_PANEL,
        groups=instance,
        draw="one_per_group",
        rng=seed,
    )
    footer = f"rmcalib {__version__}, protocol exact, seed {seed}, {resamples} resamples."
    words = plain_words(summary)
    return ForecastReport(title, subtitle, summary, words, diagram, footer, 1 / (resamples + 1))


def write_forecast_report(report: ForecastReport, folder: str | Path) -> Path:
    """Write metrics.json, metrics.csv, reliability.csv, reliability.png and report.html.

    Parameters
    ----------
    report : ForecastReport
        The result of :func:`forecast_report`.
    folder : str | Path
        Where to write the files.

    Returns
    -------
    Path
        The path of the page.

    Examples
    --------
    >>> import tempfile
    >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
    >>> data = synthetic_plackett_luce(100, 3, rng=np.random.default_rng(0))
    >>> report = forecast_report(data.forecast, data.orders, title="t", subtitle="s", resamples=20)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_forecast_report(report, folder).name
    'report.html'
    """
    out = Path(folder)
    rows = _rows(report.summary)
    page = render(
        "forecast.html",
        title=report.title,
        subtitle=report.subtitle,
        summary=report.words,
        rows=rows,
        n=f"{report.summary.n:,}",
        n_items=report.summary.n_items,
        figure=reliability_svg(report.reliability, _PANEL, name="first"),
        p_floor=report.p_floor,
        footer=report.footer,
    )
    write_csv(out / "metrics.csv", rows)
    write_json(out / "metrics.json", report.content())
    write_csv(out / "reliability.csv", report.reliability)
    write_bytes(out / "reliability.png", figure_png(reliability_figure(report.reliability)))
    return write_text(out / "report.html", page)


def plain_words(summary: Summary) -> str:
    """Summarise the numbers in a sentence or two.

    >>> from rmcalib.calibration import SummaryRow
    >>> plain_words(Summary((SummaryRow("sub", 2, 0.01, 0, 0.02, 0.01, 0.02, 0.6, 0.01),), None, 10, 3))
    'No sign of miscalibration: a calibrated forecast shows errors like these with as much data.'
    """
    off = [row for row in summary.rows if row.p_value < 0.05]
    if not off:
        return "No sign of miscalibration: a calibrated forecast shows errors like these with as much data."
    worst = max(off, key=lambda row: row.value)
    text = (
        f"Not calibrated: the {worst.family}-{worst.k} error is {number(worst.value)} "
        f"(a calibrated forecast would show about {number(worst.null_mean)})."
    )
    fit = summary.temperature
    if fit is None or fit.at_limit is not None or worst.recalibrated is None:
        return text
    direction = "over-confident" if fit.temperature > 1 else "under-confident"
    return (
        f"{text} The forecast is {direction}: dividing by a temperature of T = {fit.temperature:.2f} "
        f"changes that error to {number(worst.recalibrated)} on data not used for the fit."
    )


def _rows(summary: Summary) -> list[dict[str, Any]]:
    return [
        {
            "notion": f"{row.family}-{row.k}",
            "value": row.value,
            "low": row.low,
            "high": row.high,
            "null_mean": row.null_mean,
            "null_high": row.null_high,
            "p_value": row.p_value,
            "recalibrated": row.recalibrated,
        }
        for row in summary.rows
    ]

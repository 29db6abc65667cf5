"""``rmcalib synthetic``: a calibration report of a forecast whose truth is known."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib.cli._shared.options import Common, Resamples, Seed, results_folder, with_options

if TYPE_CHECKING:
    from rmcalib.calibration import Summary

__all__ = ["synthetic"]


class Model(StrEnum):
    """The distributions truth and forecast can come from."""

    PLACKETT_LUCE = "plackett-luce"
    MALLOWS = "mallows"
    MIXTURE = "mixture"


@with_options()
def synthetic(
    *,
    model: Annotated[
        Model, typer.Option(metavar="NAME", help="Distribution: plackett-luce, mallows or mixture.")
    ] = Model.PLACKETT_LUCE,
    instances: Annotated[
        int,
        typer.Option("--instances", "-n", min=10, max=1_000_000, metavar="N", help="Number of instances."),
    ] = 2000,
    items: Annotated[
        int, typer.Option("--items", "-m", min=2, max=20, metavar="M", help="Number of items to rank.")
    ] = 4,
    confidence: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1e6,
            metavar="X",
            help="Confidence of the forecast: 1 is calibrated, 2 is over-confident, 0.5 under-confident.",
        ),
    ] = 2.0,
    resamples: Resamples = 200,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Replace what an earlier run left in the folder.")
    ] = False,
    output: Annotated[Path | None, results_folder("runs/synthetic/<model>")] = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Draw rankings from a known distribution, and report the calibration of a forecast of them.

    Shows what the numbers of a report mean when the truth is known. Results of
    other settings in the same folder are not replaced without --fresh.
    """
    import numpy as np

    from rmcalib import __version__
    from rmcalib.ranking import synthetic as generators
    from rmcalib.report import forecast_report, write_forecast_report
    from rmcalib.runs import RunFolder

    folder = output or Path("runs/synthetic") / model.value
    about = {
        "rmcalib": __version__,
        "command": "synthetic",
        "model": model.value,
        "instances": instances,
        "items": items,
        "confidence": confidence,
        "resamples": resamples,
        "seed": seed,
    }
    with RunFolder(folder, about, _RESULTS, fresh=fresh) as run:
        rng = np.random.default_rng(seed)
        if model is Model.PLACKETT_LUCE:
            data = generators.synthetic_plackett_luce(instances, items, confidence=confidence, rng=rng)
        elif model is Model.MALLOWS:
            data = generators.synthetic_mallows(instances, items, confidence=confidence, rng=rng)
        else:
            data = generators.synthetic_mixture(instances, items, confidence=confidence, rng=rng)
        report = forecast_report(
            data.forecast,
            data.orders,
            title=f"Calibration of a synthetic {model.value.title()} forecast",
            subtitle=f"{instances:,} rankings of {items} items; {confidence:g} × as confident as the truth",
            sub=[k for k in (2, 3) if k <= items],
            top=[k for k in (1, 2) if k <= items],
            resamples=resamples,
            seed=seed,
        )
        page = write_forecast_report(report, folder)
        run.finish()
    if common.json:
        typer.echo(json.dumps({**report.content(), "page": str(page)}))
    elif not common.quiet:
        _print(report.summary, report.title, report.words, page, resamples)


_RESULTS = ("metrics.csv", "metrics.json", "reliability.csv", "reliability.png", "report.html")


def _print(summary: "Summary", title: str, words: str, page: Path, resamples: int) -> None:
    from rmcalib._util.display import number, p_value
    from rmcalib._util.terminal import add_row, clean_line, open_console, print_table, table

    console = open_console()
    headings = ("error", "95% interval", "if\ncalibrated", "p-value", "at best\ntemperature")
    shown = table("\nnotion", *headings, title=clean_line(title))
    for row in summary.rows:
        cells = [number(row.value), f"{number(row.low)} to {number(row.high)}", number(row.null_mean)]
        cells += [p_value(row.p_value, 1 / (resamples + 1)), number(row.recalibrated)]
        add_row(shown, f"{row.family}-{row.k}", *cells)
    print_table(console, shown)
    console.print(words)
    console.print(f"Report: {clean_line(page.resolve())}", soft_wrap=True)

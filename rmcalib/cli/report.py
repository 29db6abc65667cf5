"""``rmcalib report``: the leaderboard by calibration over everything scored, or over a ready table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared import scoring_options as options
from rmcalib.cli._shared.options import Config, Json, Quiet, Resamples, Seed, Verbose
from rmcalib.cli._shared.places import Place, output_folder
from rmcalib.cli._shared.progress import plain_warnings, progress_bar

if TYPE_CHECKING:
    from rmcalib.report import Leaderboard

__all__ = ["report_leaderboard"]


def report_leaderboard(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[DIR]...", help="Folders or URLs with runs, as eval and batch write them."),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Report on a CSV: model, leaderboard_score, categories, and ece, ece_score or --metric.",
        ),
    ] = None,
    output: Place = "report",
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to sort by and correlate: ece (default), ece_at_temperature, reference_top_1, brier "
            "or nll; or a table's column.",
        ),
    ] = None,
    leaderboard: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Check our scores against official ones: a CSV, or 'hub' (RewardBench 2's results).",
        ),
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which benchmark, if the runs are of several.")
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A table's category columns, if not RewardBench 2's; several allowed."
        ),
    ] = None,
    bradley_terry_only: Annotated[
        bool,
        typer.Option(
            "--bradley-terry-only", help="Leave out models known not to be on a Bradley-Terry scale."
        ),
    ] = False,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Correlation: kendall (default), spearman, pearson; several allowed."
        ),
    ] = None,
    recipes: options.Recipes = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Rank all scored models by calibration, and report what calibration goes with."""
    from rmcalib._util.storage import shown
    from rmcalib.metrics import Settings
    from rmcalib.report import (
        leaderboard_from_runs,
        leaderboard_from_table,
        official_from_hub,
        read_official,
        write_leaderboard,
    )

    methods: Any = _methods(method)
    shared: Any = {
        "methods": methods,
        "bradley_terry_only": bradley_terry_only,
        "recipes": tuple(recipes or ()),
        "settings": Settings(resamples=resamples, seed=seed),
    }
    folder = output_folder(output)
    with plain_warnings(quiet=quiet, verbose=verbose):
        if table is not None:
            clash = {"folders with runs": runs, "--leaderboard": leaderboard, "--benchmark": benchmark}
            given = next((name for name, value in clash.items() if value), None)
            if given is not None:
                raise ValueError(f"--table: goes without {given}")
            board = leaderboard_from_table(table, metric=metric, categories=category, **shared)
        else:
            if not runs:
                raise ValueError("name a folder with runs, such as runs/, or a table with --table FILE")
            if category:
                raise ValueError("--category: goes with --table; runs have their own categories")
            official: Any = leaderboard and (
                official_from_hub if leaderboard == "hub" else read_official(leaderboard)
            )
            with progress_bar("reading runs", quiet=quiet) as show:
                board = leaderboard_from_runs(
                    runs,
                    benchmark=benchmark,
                    metric=metric or "ece",
                    official=official,
                    on_model=None if show is None else lambda done, total, _: show(done, total, 0),
                    **shared,
                )
        page = write_leaderboard(board, folder)
    if json_:
        typer.echo(json.dumps(_content(board, str(page))))
    elif not quiet:
        _print(board, shown(page))


def _methods(given: list[str] | None) -> tuple[str, ...]:
    from rmcalib.metrics import METHODS

    names = tuple(dict.fromkeys(given or ["kendall"]))
    for name in names:
        if name not in METHODS:
            raise ValueError(f"--method: unknown {name!r} (have: {', '.join(METHODS)})")
    return names


def _content(board: Leaderboard, page: str) -> dict[str, Any]:
    from rmcalib.report import wide_rows

    return {
        "benchmark": board.benchmark,
        "metric": board.metric,
        "protocol": board.protocol,
        "summary": board.summary,
        "models": wide_rows(board),
        "correlations": board.correlations,
        "check": board.check,
        "notes": board.notes,
        "page": page,
    }


def _print(board: Leaderboard, page: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rmcalib.report import metric_name

    console = Console()
    best = Table(
        box=None, pad_edge=False, padding=(0, 2, 0, 0), title="Best calibrated", title_justify="left"
    )
    best.add_column("#", justify="right")
    best.add_column("model", overflow="ellipsis", no_wrap=True, max_width=44)
    for name in (board.metric, "95% interval", "score"):
        best.add_column(name, justify="right", no_wrap=True)
    for row in board.ranked[:10]:
        found = row["values"][board.metric]
        interval = "" if found["low"] is None else f"{found['low']:.3f} - {found['high']:.3f}"
        score = "" if row["score"] is None else f"{row['score']:.3f}"
        best.add_row(str(row["rank"]), Text(row["model"]), f"{found['value']:.3f}", interval, score)
    console.print(best)
    goes = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title="\nCorrelations", title_justify="left")
    for name in ("against", "error", "coefficient"):
        goes.add_column(name)
    for name in ("value", "95% interval", "p"):
        goes.add_column(name, justify="right", no_wrap=True)
    for row in (row for row in board.correlations if row["metric"] == board.metric):
        if row["value"] is None:
            numbers = ["-", row["note"], "-"]
        else:
            p_value = f"{row['p_value']:.3f}" if row["p_value"] >= 0.001 else "<0.001"
            numbers = [f"{row['value']:.4f}", f"{row['low']:.3f} - {row['high']:.3f}", p_value]
        goes.add_row(Text(row["target"]), Text(metric_name(row["metric"])), row["method"], *numbers)
    console.print(goes)
    console.print(Text(f"\n{board.summary}"))
    for note in board.notes:
        console.print(Text(f"* {note}", style="dim"))
    console.print(Text(f"\nReport: {page}"), soft_wrap=True)

"""``rmcalib report``: the leaderboard by calibration of all scored models, or of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared import scoring_options as options
from rmcalib.cli._shared.kinds import MissingScores, Steps, reading_options
from rmcalib.cli._shared.options import Common, Measuring, with_options
from rmcalib.cli._shared.places import Place, input_file, output_folder
from rmcalib.cli._shared.progress import plain_warnings, progress_bar

if TYPE_CHECKING:
    from rmcalib.report import Joint, Leaderboard

__all__ = ["report_leaderboard"]


@with_options()
def report_leaderboard(
    *,
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH",
            help="Folders or URLs with runs of eval or batch, or files of scores; 'real' (the default) is "
            "the built-in board of real reward models.",
        ),
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=input_file,
            help="Use a CSV instead of runs. Columns: model, leaderboard_score, categories, and ece, "
            "ece_score or --metric.",
        ),
    ] = None,
    output: Place = "report",
    metric: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What to sort by and correlate: kept_information (default) or another metric, such as "
            "overconfidence, ece or brier; or a column of --table.",
        ),
    ] = None,
    leaderboard: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Check the scores against official ones: a CSV, or 'hub' (RewardBench 2's results).",
        ),
    ] = None,
    benchmark: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Only runs of this benchmark; default all."),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A category column of --table; default RewardBench 2's; several allowed."
        ),
    ] = None,
    bradley_terry_only: Annotated[
        bool,
        typer.Option(
            "--bradley-terry-only",
            help="Leave out models whose rewards are known not to be on a Bradley-Terry scale.",
        ),
    ] = False,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Correlation coefficient: kendall (default), spearman or pearson; several allowed.",
        ),
    ] = None,
    steps: Steps = None,
    missing: MissingScores = None,
    recipes: options.Recipes = None,
    measuring: Measuring,
    common: Common,
) -> None:
    """Rank all scored models by calibration, and correlate it with their scores.

    Without folders, the page shows nine real reward models on RewardMATH,
    whose published scores are built in. No network is needed. Runs of several
    benchmarks give a leaderboard of each, and one page that compares them:
    what does the temperature of one benchmark do on the others?
    """
    from rmcalib._util.storage import is_remote
    from rmcalib.report import Joint, leaderboard_from_table, write_joint, write_leaderboard

    shared = {
        "metric": metric,
        "methods": _methods(method),
        "bradley_terry_only": bradley_terry_only,
        "recipes": tuple(recipes or ()),
        "settings": measuring.settings(),
    }
    reading = reading_options(steps, missing)
    folder = output_folder(output)
    if not is_remote(folder) and (folder / "scores.parquet").is_file():
        raise ValueError(
            f"--output {output}: is the folder of a run, which has its own report; name another folder"
        )
    with plain_warnings(quiet=common.quiet, verbose=common.verbose):
        if table is not None:
            _refuse_with_table(
                {
                    "folders with runs": runs,
                    "--leaderboard": leaderboard,
                    "--benchmark": benchmark,
                    "--steps": steps,
                    "--missing": missing,
                }
            )
            board: Leaderboard | Joint = leaderboard_from_table(table, categories=category, **shared)
        elif category:
            raise ValueError("--category needs --table; runs have their own categories")
        else:
            board = _from_runs(runs, benchmark, leaderboard, shared | reading, quiet=common.quiet)
        page = write_joint(board, folder) if isinstance(board, Joint) else write_leaderboard(board, folder)
    _show(board, page, common)


def _refuse_with_table(options: Mapping[str, object]) -> None:
    given = next((name for name, value in options.items() if value), None)
    if given is not None:
        raise ValueError(f"--table cannot be combined with {given}")


def _methods(given: list[str] | None) -> Any:
    from rmcalib.metrics import METHODS

    names = tuple(dict.fromkeys(given or ["kendall"]))
    for name in names:
        if name not in METHODS:
            raise ValueError(f"--method: unknown {name!r} (have: {', '.join(METHODS)})")
    return names


def _from_runs(
    runs: list[str] | None,
    benchmark: str | None,
    leaderboard: str | None,
    shared: Mapping[str, Any],
    *,
    quiet: bool,
) -> Leaderboard | Joint:
    """Read runs behind a progress bar: those of one benchmark, or of all."""
    from rmcalib.report import leaderboard_from_runs, official_from_hub, read_official, report_from_runs
    from rmcalib.scores import REAL

    official: Any = official_from_hub if leaderboard == "hub" else leaderboard and read_official(leaderboard)
    with progress_bar("reading runs", quiet=quiet) as show:
        on_model = None if show is None else lambda done, total, _: show(done, total, 0)
        if benchmark is None and official is None:
            return report_from_runs(runs or [REAL], on_model=on_model, **shared)
        return leaderboard_from_runs(
            runs or [REAL], benchmark=benchmark, official=official, on_model=on_model, **shared
        )


def _show(board: Leaderboard | Joint, page: Path, common: Common) -> None:
    from rmcalib._util.storage import shown
    from rmcalib.cli._shared.joint import print_joint
    from rmcalib.report import Joint

    if common.json:
        typer.echo(json.dumps({**board.content(), "page": str(page)}))
    elif not common.quiet:
        if isinstance(board, Joint):
            print_joint(board)
        else:
            _print(board)
        _print_page(shown(page))


def _print(board: Leaderboard) -> None:
    from rich.text import Text

    from rmcalib._util.display import interval, number, p_value, percent, points, short_names
    from rmcalib._util.terminal import add_row, clean_line, open_console, print_table, table
    from rmcalib.report import headline_keys, metric_name

    terminal = open_console()
    if board.training:
        _print_training(board, terminal)
    main, level = metric_name(board.metric), f"{board.settings.level:.0%} interval"
    keys = headline_keys(board.metric)
    says, right, gap = keys
    measured = any(gap in row["values"] for row in board.models)
    scored = not measured or board.score_name != "accuracy"
    headings = [main.replace(" ", "\n", 1), level]
    headings += [*(keys.values() if measured else ()), *(["score"] if scored else [])]
    best = table("model", *headings, title=f"Best by {main}", gap=1)
    names = short_names(row["model"] for row in board.ranked[:10])
    for row in board.ranked[:10]:
        values = row["values"]
        found = values[board.metric]
        cells = [number(found["value"]), interval(found)]
        if measured:
            cells += [percent((values.get(key) or {}).get("value")) for key in (says, right)]
            cells.append(points(values.get(gap)))
        cells += [number(row["score"])] if scored else []
        mark = " †" if row["better_than_guess"] is False else ""
        add_row(best, f"{row['rank']:>2} {names[row['model']]}{mark}", *cells)
    print_table(terminal, best)
    if any(row["better_than_guess"] is False for row in board.ranked[:10]):
        terminal.print(Text("† not shown to be better than a uniform guess"))
    scores = table("score", "error", "coefficient", "value", level, "p-value", title="\nCorrelations")
    split = [row for row in board.split_correlations if row["target"] == "accuracy"]
    for row in split or (row for row in board.correlations if row["metric"] == board.metric):
        name = board.score_name if row["target"] == "leaderboard" else row["target"]
        if row["value"] is None:
            numbers = ["–", clean_line(row["note"]), "–"]
        else:
            numbers = [number(row["value"], 4), interval(row), p_value(row["p_value"])]
        add_row(scores, name, metric_name(row["metric"]), row["method"], *numbers)
    print_table(terminal, scores)
    terminal.print(Text(f"\n{board.summary}"))
    for note in board.notes:
        terminal.print(Text(f"* {note}", style="dim"))


def _print_page(page: str) -> None:
    """Print where the page is, on one line however long it is, so that it can be copied."""
    from rich.text import Text

    from rmcalib._util.terminal import clean_line, open_console

    open_console().print(Text(f"\nReport: {clean_line(page)}"), soft_wrap=True)


def _print_training(board: Leaderboard, terminal: Any) -> None:
    from rmcalib._util.display import number, p_value, percent, points
    from rmcalib._util.terminal import add_row, print_table, table

    headings = ("says", "right", "gap in\npoints", "kept\ninformation", "lost\ninformation", "best T", "ECE")
    steps = table("step", *headings, "if\ncalibrated", "p-value", title="Over the training", gap=1)
    for row in board.training:
        add_row(
            steps,
            f"{row['step']}{' (best)' if row['best'] else ''}",
            percent(row["mean_confidence"]),
            percent(row["accuracy"]),
            points({"value": row["overconfidence"]}),
            number(row["kept_information"]),
            number(row["lost_information"]),
            number(row["temperature"], 2),
            number(row["ece"]),
            number(row["ece_null_mean"]),
            p_value(row["ece_p_value"]),
        )
    print_table(terminal, steps)
    terminal.print()

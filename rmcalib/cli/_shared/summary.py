"""The end of ``rmcalib eval`` on a terminal: a table and a few sentences within 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmcalib.metrics import OVERALL, find_value

if TYPE_CHECKING:
    from rich.console import Console

    from rmcalib.report import Evaluation

__all__ = ["print_evaluations"]

WIDTH = 80


def print_evaluations(done: list[tuple[Evaluation, str]]) -> None:
    """Print each evaluation, and a comparison if there are several."""
    from rich.console import Console

    console = Console(highlight=False)
    console = Console(highlight=False, width=min(WIDTH, console.width))
    for result, folder in done:
        _print_one(console, result, folder)
    if len(done) > 1:
        _print_comparison(console, [result for result, _ in done])


def _print_one(console: Console, result: Evaluation, folder: str) -> None:
    from rich.table import Table
    from rich.text import Text

    console.print(Text(f"\n{result.model} on {result.benchmark}", style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("category", overflow="ellipsis", no_wrap=True, max_width=18)
    for name in ("prompts", "accuracy", "ECE", "95% interval", "calibr.", "T", "at T"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = result.metrics
    for category in dict.fromkeys(row["category"] for row in rows):
        ece = find_value(rows, "ece", category)
        if ece is None or not ece["n"]:
            continue
        interval = "" if ece["low"] is None else f"{ece['low']:.3f} - {ece['high']:.3f}"
        cells = [
            _cell(result, metric, category, digits)
            for metric, digits in (("ece_null_mean", 3), ("temperature", 2), ("ece_at_temperature", 3))
        ]
        table.add_row(
            Text(category, style="bold" if category == OVERALL else ""),
            f"{ece['n']:,}",
            _cell(result, "accuracy", category, 3),
            _cell(result, "ece", category, 3),
            interval,
            *cells,
        )
    console.print(table)
    console.print(
        Text("calibr.: ECE of a calibrated model with as much data. at T: ECE at temperature T.", "dim")
    )
    console.print(Text(f"\n{result.summary}"))
    for note in result.notes:
        console.print(Text(f"* {note}", style="dim"))
    # One line however long it is, so that it can be copied.
    console.print(Text(f"\nReport: {folder}/report.html"), soft_wrap=True)


def _print_comparison(console: Console, results: list[Evaluation]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title="\nAll models", title_justify="left")
    table.add_column("model", overflow="ellipsis", no_wrap=True, max_width=36)
    for name in ("ECE", "at T", "accuracy", "score"):
        table.add_column(name, justify="right", no_wrap=True)
    unmeasured = 2.0  # after all that have an ECE
    for result in sorted(results, key=lambda one: one.value("ece") or unmeasured):
        names = ("ece", "ece_at_temperature", "accuracy", "rewardbench_score")
        table.add_row(Text(result.model), *(_cell(result, name, OVERALL, 3) for name in names))
    console.print(table)


def _cell(result: Evaluation, metric: str, category: str, digits: int) -> str:
    row = find_value(result.metrics, metric, category)
    return "-" if row is None or row["value"] is None else f"{row['value']:.{digits}f}"

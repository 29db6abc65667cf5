"""``rmcalib compare``: two models or checkpoints on the same prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli.options import Config, Json, Quiet, Seed, Verbose
from rmcalib.cli.progress import plain_warnings, say

if TYPE_CHECKING:
    from rmcalib.rewards.store import Scores

__all__ = ["compare"]

_Source = typer.Argument(metavar="RUN", help="A run folder, or a file of scores (.parquet, .jsonl, .json).")


def compare(
    a: Annotated[Path, _Source],
    b: Annotated[Path, _Source],
    category: Annotated[
        str, typer.Option(metavar="NAME", help="What to print: a category, or 'all'; files have all.")
    ] = "overall",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write all rows as CSV.")
    ] = None,
    resamples: Annotated[int, typer.Option(min=20, help="Resamples of prompts.")] = 1000,
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Compare two models: every metric's difference, with a paired bootstrap over prompts."""
    from rmcalib.files import write_csv
    from rmcalib.report.comparison import compare_scores
    from rmcalib.report.examples import clean_text
    from rmcalib.report.leaderboard_runs import open_scores
    from rmcalib.rewards.measures import Settings

    with plain_warnings(quiet=quiet, verbose=verbose):
        (first, name_a), (second, name_b) = open_scores(a), open_scores(b)
        if name_a == name_b:
            name_a, name_b = f"{name_a} ({a})", f"{name_b} ({b})"
        rows = compare_scores(first, second, settings=Settings(resamples=resamples, seed=seed))
        found = list(dict.fromkeys(row["category"] for row in rows))
        if category not in (*found, "all"):
            raise ValueError(f"--category: unknown {category!r} (have: {', '.join(found)}, all)")
        if output is not None:
            write_csv(output, rows)
        if not quiet:
            _say_what_is_odd(first, second)
    names = clean_text(name_a), clean_text(name_b)
    if json_:
        typer.echo(json.dumps({"a": names[0], "b": names[1], "differences": rows}))
    elif not quiet:
        _print(rows, names, category)


def _say_what_is_odd(a: Scores, b: Scores) -> None:
    ids = set(a.item_id.tolist()), set(b.item_id.tolist())
    common = len(ids[0] & ids[1])
    left_out = len(ids[0]) + len(ids[1]) - 2 * common
    if left_out:
        say(f"warning: compared on {common:,} prompts; {left_out:,} are in one of the two only")


def _print(rows: list[dict[str, Any]], names: tuple[str, str], category: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rmcalib.report.comparison import BETTER

    console = Console()
    console.print(Text(f"A: {names[0]}\nB: {names[1]}\n"), soft_wrap=True)
    shown = list(dict.fromkeys(row["category"] for row in rows)) if category == "all" else [category]
    for name in shown:
        title = Text(name)
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=title, title_justify="left")
        table.add_column("metric", no_wrap=True)
        for column in ("A", "B", "B - A", "95% interval", "p", "better"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in (row for row in rows if row["category"] == name):
            interval = "" if row["low"] is None else f"{row['low']:+.3f} to {row['high']:+.3f}"
            p_value = "" if row["p_value"] is None else f"{row['p_value']:.3f}"
            better = ""
            if row["low"] is not None and (row["low"] > 0 or row["high"] < 0) and row["metric"] in BETTER:
                better = "B" if BETTER[row["metric"]] * row["difference"] > 0 else "A"
            numbers = (f"{row['a']:.3f}", f"{row['b']:.3f}", f"{row['difference']:+.3f}")
            table.add_row(row["metric"], *numbers, interval, p_value, better)
        console.print(table)
    console.print(Text("\n'better' where the interval leaves out zero; one in twenty does so by chance."))

"""``rmcalib compare``: two models or checkpoints on the same prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared import scoring_options as options
from rmcalib.cli._shared.options import Config, Json, Quiet, Resamples, Seed, Verbose
from rmcalib.cli._shared.progress import plain_warnings, say

if TYPE_CHECKING:
    from rmcalib.judges import Recipe
    from rmcalib.scores import Scores

__all__ = ["compare"]

_Source = typer.Argument(
    metavar="RUN", help="A run folder, or a file of scores (.parquet, .jsonl, .json); or the URL of one."
)


def compare(
    a: Annotated[str, _Source],
    b: Annotated[str, _Source],
    category: Annotated[
        str, typer.Option(metavar="NAME", help="What to print: a category, or 'all'; files have all.")
    ] = "overall",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all rows as CSV: a file, or a URL."),
    ] = None,
    recipes: options.Recipes = None,
    resamples: Resamples = 1000,
    seed: Seed = 0,
    json_: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Compare two models: every metric's difference, with a paired bootstrap over prompts."""
    from rmcalib._util.files import write_csv
    from rmcalib.judges import recipe_of_run, registry, why_no_calibration
    from rmcalib.metrics import Settings, compare_scores
    from rmcalib.report import clean_text, open_scores

    with plain_warnings(quiet=quiet, verbose=verbose):
        (first, name_a), (second, name_b) = (open_scores(place) for place in (a, b))
        known = registry(recipes or ())
        about = [recipe_of_run(name, s.manifest, known) for name, s in ((name_a, first), (name_b, second))]
        if name_a == name_b:
            name_a, name_b = f"{name_a} ({a})", f"{name_b} ({b})"
        rows = compare_scores(
            first,
            second,
            no_calibration=(why_no_calibration(about[0]), why_no_calibration(about[1])),
            settings=Settings(resamples=resamples, seed=seed),
        )
        found = list(dict.fromkeys(row["category"] for row in rows))
        if category not in (*found, "all"):
            raise ValueError(f"--category: unknown {category!r} (have: {', '.join(found)}, all)")
        if output is not None:
            write_csv(output, rows)
        if not quiet:
            _say_what_is_odd(about)
            _say_what_is_left_out(first, second)
    names = clean_text(name_a), clean_text(name_b)
    if json_:
        typer.echo(json.dumps({"a": names[0], "b": names[1], "differences": rows}))
    elif not quiet:
        _print(rows, names, category)


def _say_what_is_odd(recipes: Iterable[Recipe]) -> None:
    """Warn of models whose rewards are on another scale, or on none."""
    from rmcalib.judges import scale_note, why_no_calibration
    from rmcalib.report import clean_text

    for recipe in dict.fromkeys(recipes):
        reason = why_no_calibration(recipe)
        note = f"calibration is not compared: {reason}" if reason else scale_note(recipe)
        if note:
            say(clean_text(f"warning: {recipe.model}: {note}"))


def _say_what_is_left_out(a: Scores, b: Scores) -> None:
    ids = set(a.item_id.tolist()), set(b.item_id.tolist())
    common = len(ids[0] & ids[1])
    left_out = len(ids[0]) + len(ids[1]) - 2 * common
    if left_out:
        say(f"warning: compared on {common:,} prompts; {left_out:,} are in one of the two only")


_WIDTH = 100


def _print(rows: list[dict[str, Any]], names: tuple[str, str], category: str) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from rmcalib.metrics import BETTER
    from rmcalib.report import clean_text

    console = Console()
    console = Console(width=max(_WIDTH, console.width))  # numbers are never cut, in a log or a small window
    console.print(Text(f"A: {names[0]}\nB: {names[1]}\n"), soft_wrap=True)
    shown = list(dict.fromkeys(row["category"] for row in rows)) if category == "all" else [category]
    for name in shown:
        title = Text(name)
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), title=title, title_justify="left")
        table.add_column("metric", no_wrap=True)
        for column in ("A", "B", "B - A", "95% interval", "p", "better"):
            table.add_column(column, justify="right", no_wrap=True)
        for row in (row for row in rows if row["category"] == name):
            interval = "" if row["low"] is None else f"{row['low']:+.3f} to {row['high']:+.3f}"
            p_value = "" if row["p_value"] is None else f"{row['p_value']:.3f}"
            better = ""
            if row["low"] is not None and (row["low"] > 0 or row["high"] < 0) and row["metric"] in BETTER:
                better = "B" if BETTER[row["metric"]] * row["difference"] > 0 else "A"
            values = ("-" if row[side] is None else f"{row[side]:.3f}" for side in ("a", "b"))
            difference = "-" if row["difference"] is None else f"{row['difference']:+.3f}"
            table.add_row(row["metric"], *values, difference, interval, p_value, better)
        console.print(table)
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        console.print(Text(f"\nNo calibration of {clean_text(note)}."), soft_wrap=True)
    if any("length" in row["metric"] for row in rows):
        console.print(Text("\nLengths are in tokens; a report takes characters if it has the texts."))
    console.print(Text("\n'better' where the interval leaves out zero; one in twenty does so by chance."))

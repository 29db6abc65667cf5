"""``rmcalib benchmarks``: which benchmarks can be read, and what they hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared.options import Common, with_options

if TYPE_CHECKING:
    from rmcalib.benchmarks import BenchmarkEntry

__all__ = ["list_benchmarks"]

_LABELS = {
    "one": "one correct response per prompt",
    "several": "one or several correct responses",
    "pairs": "a better and a worse response",
    "votes": "people's votes",
}


@with_options()
def list_benchmarks(
    *,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Show all details of these benchmarks.")
    ] = None,
    common: Common,
) -> None:
    """List the benchmarks that can be read: size, labels, licence and official score.

    --benchmark NAME loads one from the Hub. --benchmark FILE --format NAME
    reads a file or folder as its authors publish it.
    """
    from rmcalib.benchmarks import benchmarks, known_entry

    entries = [known_entry(name) for name in names] if names else [*benchmarks().values()]
    if common.json:
        typer.echo(json.dumps([_content(entry) for entry in entries]))
    elif names and not common.quiet:
        typer.echo("\n\n".join(_in_full(entry) for entry in entries))
    elif not common.quiet:
        _print_table(entries)


def _print_table(entries: list[BenchmarkEntry]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name", no_wrap=True)
    table.add_column("prompts", justify="right")
    table.add_column("responses")
    table.add_column("labels")
    table.add_column("licence")
    if console.width > 100:
        table.add_column("official score")
    for entry in entries:
        size = "any" if entry.prompts is None else f"{entry.prompts:,}"
        cells = [entry.name, size, entry.responses, entry.labels, entry.licence]
        table.add_row(*map(Text, [*cells, *([entry.official_about] if console.width > 100 else [])]))
    console.print(table)
    legend = "; ".join(f"{name}: {meaning}" for name, meaning in _LABELS.items())
    console.print(Text(f"\nlabels: {legend}"))
    console.print(Text("`rmcalib benchmarks NAME` shows one in full: columns, Hub id, official score."))


def _content(entry: BenchmarkEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "title": entry.title,
        "labels": entry.labels,
        "prompts": entry.prompts,
        "responses": entry.responses,
        "licence": entry.licence,
        "homepage": entry.homepage,
        "hub": [{"id": source.id, "split": source.split, "config": source.config} for source in entry.hub],
        "categories": list(entry.categories),
        "no_single_answer": sorted(entry.no_single_answer),
        "columns": list(entry.needs),
        "official_score": entry.official_about or None,
        "aliases": list(entry.aliases),
    }


def _in_full(entry: BenchmarkEntry) -> str:
    places = dict.fromkeys(source.id for source in entry.hub)
    lines = {
        "title": entry.title,
        "prompts": "any" if entry.prompts is None else f"{entry.prompts:,}",
        "responses": entry.responses,
        "labels": f"{entry.labels}: {_LABELS[entry.labels]}",
        "licence": entry.licence,
        "Hub": ", ".join(places) or "no: give a file with --format",
        "homepage": entry.homepage,
        "columns": ", ".join(entry.needs),
        "categories": ", ".join(entry.categories),
        "official score": entry.official_about or "none",
    }
    return "\n".join([entry.name, *(f"  {name}: {text}" for name, text in lines.items() if text)])

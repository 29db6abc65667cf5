"""``rmcalib models``: what can be scored, how, and why some cannot."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib._util.terminal import count, open_console
from rmcalib.cli._shared import scoring_options as options
from rmcalib.cli._shared.options import Common, with_options

if TYPE_CHECKING:
    from rmcalib.judges import Recipe

__all__ = ["list_models"]


_HOW = {
    "plain": "loads by its name",
    "recipe": "with settings from the registry",
    "rebuilt": "with a head that is rebuilt from its checkpoint",
    "own-code": "by its own code, so that it needs --trust-remote-code",
    "unsupported": "cannot be scored (see --json)",
}


@with_options()
def list_models(
    *,
    include: Annotated[
        str | None, typer.Option(metavar="GLOB", help="Only models whose names match, such as 'Skywork/*'.")
    ] = None,
    recipes: options.Recipes = None,
    common: Common,
) -> None:
    """List the known models: what each needs, and whether its rewards are on a Bradley-Terry scale.

    Any other sequence classifier with one output also works by its name.
    """
    from rmcalib.judges import registry

    found = [
        recipe
        for name, recipe in registry(recipes or ()).items()
        if include is None or fnmatch.fnmatch(name.lower(), include.lower())
    ]
    if not found:
        raise ValueError(f"--include {include!r}: no known model matches")
    if common.json:
        typer.echo(json.dumps([dataclasses.asdict(recipe) for recipe in found]))
    elif not common.quiet:
        _print(found)


def _print(found: list[Recipe]) -> None:
    from rich.table import Table
    from rich.text import Text

    console = open_console()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("model", no_wrap=True, overflow="ellipsis", max_width=48)
    table.add_column("size", justify="right")
    table.add_column("how")
    table.add_column("BT scale")
    if console.width > 100:
        table.add_column("needs and notes")
    for recipe in found:
        size = "" if recipe.parameters is None else f"{recipe.parameters:g}B"
        cells = [recipe.model, size, recipe.status, recipe.bradley_terry]
        if console.width > 100:
            cells.append(_needs(recipe))
        table.add_row(*map(Text, cells))
    console.print(table)
    counts = ", ".join(
        f"{sum(recipe.status == status for recipe in found)} {status}"
        for status in dict.fromkeys(recipe.status for recipe in found)
    )
    console.print(
        Text(f"\n{count(len(found), 'model')}: {counts}. Any other one-label classifier works by name.")
    )
    shown = {recipe.status for recipe in found}
    ways = [f"{name}, {how}" for name, how in _HOW.items() if name in shown]
    console.print(Text(f"how: {'; '.join(ways)}"))
    console.print(Text("BT scale: are the rewards log-utilities of a Bradley-Terry (Plackett-Luce) model?"))


def _needs(recipe: Recipe) -> str:
    """What a user has to know before running it."""
    from rmcalib.judges import why_no_calibration

    remarks = ["--trust-remote-code"] if recipe.trust_remote_code else []
    remarks += [text for text in (recipe.reason, recipe.note) if text]
    reason = why_no_calibration(recipe)
    return "; ".join([*remarks, *([f"no calibration: {reason}"] if reason else [])])

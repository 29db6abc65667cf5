"""``rmcalib list``: which models, benchmarks, metrics and judges there are."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from rmcalib._util.terminal import clean_line, open_console
from rmcalib.cli.options import Common
from rmcalib.cli.screen import print_json, print_lines

Row = dict[str, Any]


def command(
    what: Annotated[Literal["models", "benchmarks", "metrics", "judges"], Parameter(help="What to list.")],
    /,
    *names: Annotated[
        str, Parameter(metavar="NAME", help="Show these in full; 'Skywork/*' matches several.")
    ],
    common: Common = Common(),
) -> int:
    """List one row each, or everything about some."""
    found = _chosen(_LISTS[what](), names, what)
    if common.json:
        print_json([{"name": name, **row} for name, row in found.items()])
    elif names:
        for name, row in found.items():
            print_lines(
                name, *(f"  {key}: {_text(value)}" for key, value in row.items() if value not in _EMPTY)
            )
    elif not common.quiet:
        _print_table(what, found)
        print_lines("", f"Next: rmcalib list {what} NAME (everything about one)")
    return 0


_EMPTY: tuple[Any, ...] = (None, "", (), [], {}, False)


def known_names(what: str) -> list[str]:
    """Return the names of models, benchmarks, metrics or judges."""
    return list(_LISTS[what]())


def _chosen(every: Mapping[str, Row], names: tuple[str, ...], what: str) -> Mapping[str, Row]:
    """Return the rows whose names match, also by an alias; a name that matches none is a ValueError."""
    if not names:
        return every
    found: dict[str, Row] = {}
    for wanted in names:
        hits = {
            name: row
            for name, row in every.items()
            if any(fnmatch.fnmatch(one.lower(), wanted.lower()) for one in (name, *row.get("aliases", ())))
        }
        if not hits:
            near = difflib.get_close_matches(wanted, every, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"`rmcalib list {what}` shows all"
            raise ValueError(f"{wanted}: unknown {what[:-1]} ({hint})")
        found |= hits
    return found


def _models() -> dict[str, Row]:
    from rmcalib.judges import registry
    from rmcalib.judges._registry import why_no_calibration

    demo = {"parameters": None, "status": "built in", "bradley_terry": "yes"}
    found = {
        name: {
            **{key: value for key, value in dataclasses.asdict(recipe).items() if key != "model"},
            "no_calibration": why_no_calibration(recipe),
        }
        for name, recipe in registry().items()
    }
    return {"demo": demo, **found}


def _benchmarks() -> dict[str, Row]:
    from rmcalib.benchmarks import benchmarks

    return {
        entry.name: {
            "prompts": entry.prompts,
            "responses": entry.responses,
            "labels": entry.labels,
            "licence": entry.licence,
            "title": entry.title,
            "hub": list(dict.fromkeys(source.id for source in entry.hub)),
            "homepage": entry.homepage,
            "columns": list(entry.needs),
            "categories": list(entry.categories),
            "official_score": entry.official_about,
            "aliases": list(entry.aliases),
        }
        for entry in benchmarks().values()
    }


def _metrics() -> dict[str, Row]:
    from rmcalib.metrics import catalogue

    return {
        name: {
            "better": one.better,
            "group": one.group,
            "unit": one.unit,
            "meaning": one.meaning,
            "prompts": one.prompts,
        }
        for name, one in catalogue().items()
    }


def _judges() -> dict[str, Row]:
    """Return the kinds of judges with their settings, and the judges of installed packages."""
    from rmcalib.judges._load import KINDS, registered_judges
    from rmcalib.judges._settings import setting_help

    kinds = {
        name: {
            "chosen by": ", ".join(f"-J {one}=" for one in kind.chosen_by),
            **{
                key: text for key, text in setting_help(kind.settings).items() if key != "recipe"
            },  # not a text
        }
        for name, kind in KINDS.items()
    }
    return kinds | {name: {"installed by": point.value} for name, point in registered_judges().items()}


_LISTS: dict[str, Callable[[], dict[str, Row]]] = {
    "models": _models,
    "benchmarks": _benchmarks,
    "metrics": _metrics,
    "judges": _judges,
}
_COLUMNS = {
    "models": {"parameters": "billions", "status": "how it is loaded", "bradley_terry": "BT scale"},
    "benchmarks": {"prompts": "prompts", "responses": "responses", "labels": "labels", "licence": "licence"},
    "metrics": {"better": "better", "meaning": "meaning"},
}


def _print_table(what: str, found: Mapping[str, Row]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(what[:-1], no_wrap=True, overflow="ellipsis", max_width=48)
    columns = _COLUMNS.get(what, {})
    for heading in columns.values() or ["settings (-J)"]:
        table.add_column(heading)
    for name, row in found.items():
        cells = [_text(row.get(key)) for key in columns] or [", ".join(key for key in row if " " not in key)]
        table.add_row(*(Text(clean_line(cell)) for cell in (name, *cells)))
    open_console().print(table)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return (
        "" if value is None else f"{value:,}" if isinstance(value, int) and value is not True else str(value)
    )

"""``rmcalib list``: which models, benchmarks, metrics and judges there are."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from rmcalib._util.display import open_console, print_table
from rmcalib._util.texts import did_you_mean
from rmcalib.cli.options import Common
from rmcalib.cli.screen import Screen, command_line, print_json, print_lines, session

Row = dict[str, Any]
_EMPTY: tuple[Any, ...] = (None, "", (), [], {}, False)


def command(
    what: Annotated[
        Literal["models", "benchmarks", "metrics", "judges"] | None,
        Parameter(help="What to list; default what can be listed."),
    ] = None,
    /,
    *names: Annotated[
        str, Parameter(metavar="NAME", help="Show these in full; 'Skywork/*' matches several.")
    ],
    common: Common = Common(),
) -> int:
    """List one row each, or everything about some."""
    with session(common) as screen:
        if what is None:
            return _print_what(screen)
        rows = _chosen(_LISTS[what](), names, what)
        if screen.json:
            print_json([{"name": name, **row} for name, row in rows.items()])
        elif names:
            for name, row in rows.items():
                filled = {key: value for key, value in row.items() if value not in _EMPTY}
                print_lines(name, *(f"  {key}: {_text(value)}" for key, value in filled.items()))
        elif screen.prints:
            _print_table(what, rows)
            print_lines("", f"Next, everything about one: {command_line('list', what, next(iter(rows)))}")
    return 0


def _print_what(screen: Screen) -> int:
    """Print what can be listed."""
    if screen.json:
        print_json(_ABOUT)
    elif screen.prints:
        print_table(
            open_console(),
            ["command", "lists"],
            [[f"rmcalib list {name}", text] for name, text in _ABOUT.items()],
            texts=True,
        )
    return 0


def known_names(what: str) -> list[str]:
    """Return the names of models, benchmarks, metrics or judges."""
    return list(_LISTS[what]())


def _chosen(every: Mapping[str, Row], names: tuple[str, ...], what: str) -> Mapping[str, Row]:
    """Return the rows whose names match; a name that matches none is a ValueError."""
    if not names:
        return every
    rows: dict[str, Row] = {}
    for wanted in names:
        hits = fnmatch.filter(every, wanted)
        if not hits:
            hint = did_you_mean(wanted, every, f"`rmcalib list {what}` shows all")
            raise ValueError(f"{wanted}: unknown {what[:-1]} ({hint})")
        rows |= {name: every[name] for name in hits}
    return rows


def _fields(entry: Any, *left_out: str) -> Row:
    """Return the fields of an entry, without some."""
    return {name: value for name, value in vars(entry).items() if name not in left_out}


def _models() -> dict[str, Row]:
    from rmcalib.judges import registry
    from rmcalib.judges._registry import scale_of
    from rmcalib.scores.scale import as_scale

    recipes = {
        name: _fields(recipe, "model") | {"scale": as_scale(scale_of(recipe)).kind}
        for name, recipe in registry().items()
    }
    return {"demo": {"parameters": None, "status": "built in", "bradley_terry": "yes"}, **recipes}


def _benchmarks() -> dict[str, Row]:
    from rmcalib.benchmarks import benchmarks

    left_out = ("name", "reader", "columns", "choices", "no_single_answer", "official", "sections")
    return {
        entry.name: _fields(entry, *left_out) | {"hub": [source.id for source in entry.hub]}
        for entry in benchmarks().values()
    }


def _metrics() -> dict[str, Row]:
    from rmcalib.metrics import catalogue
    from rmcalib.metrics.catalogue import PLAIN

    have = catalogue()
    rows = {name: _fields(metric, "name", "measure") for name, metric in have.items()}
    for word in ("says", "right", "gap"):
        first, each = PLAIN[word].values()
        rows[word] = rows[first] | {"meaning": f"{first}; if each response is correct or not, {each}"}
    return rows


def _judges() -> dict[str, Row]:
    """Return the kinds of judges with their settings, and the judges of installed packages."""
    from rmcalib.judges._load import KINDS, registered_judges
    from rmcalib.judges._settings import setting_help

    rows: dict[str, Row] = {}
    for name, kind in KINDS.items():
        rows[name] = {"chosen by": ", ".join(f"-J {setting}=" for setting in kind.chosen_by)}
        rows[name] |= setting_help(kind.settings)
    return rows | {name: {"installed by": point.value} for name, point in registered_judges().items()}


_LISTS: dict[str, Callable[[], dict[str, Row]]] = {
    "models": _models,
    "benchmarks": _benchmarks,
    "metrics": _metrics,
    "judges": _judges,
}
_ABOUT = {
    "models": "reward models whose recipe is known, with how they are loaded",
    "benchmarks": "benchmarks that are fetched by name, with their sizes and licences",
    "metrics": "metrics, with what they mean; names for --fail-if, --metric and metrics=",
    "judges": "kinds of judges, with their settings (-J)",
}
_COLUMNS = {
    "models": {"parameters": "billions", "status": "how it is loaded", "bradley_terry": "BT scale"},
    "benchmarks": {"prompts": "prompts", "responses": "responses", "labels": "labels", "licence": "licence"},
    "metrics": {"better": "better", "meaning": "meaning"},
}


def _print_table(what: str, entries: Mapping[str, Row]) -> None:
    columns = _COLUMNS.get(what)
    if columns is None:
        header = ["settings (-J)"]
        rows = [[name, ", ".join(key for key in row if " " not in key)] for name, row in entries.items()]
    else:
        header = list(columns.values())
        rows = [[name, *(_text(row.get(key)) for key in columns)] for name, row in entries.items()]
    print_table(open_console(), [what[:-1], *header], rows, texts=True)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)

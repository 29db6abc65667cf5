"""What scripts that measure by simulation share: a loop that continues where it stopped, and tables."""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rmcalib._util.display import markdown_table
from rmcalib._util.files import write_csv, write_text

RESULTS = Path(__file__).resolve().parents[1] / "results"
Row = dict[str, Any]
Setting = TypeVar("Setting")


def parser_of(about: str, runs: int) -> argparse.ArgumentParser:
    """Return the options of a script that simulates data sets."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=raw)
    parser.add_argument("--runs", type=int, default=runs, help="simulated data sets for each setting")
    parser.add_argument("--output", type=Path, default=RESULTS)
    return parser


def uncertainty(runs: int) -> float:
    """Return half the width of a 95% interval of a rate of 5% or 95%."""
    return float(1.96 * (0.95 * 0.05 / runs) ** 0.5)


def measure_all(
    table: str,
    about: str,
    settings: Mapping[tuple[str, int], Setting],
    measure: Callable[[Setting, int], list[Row]],
    report: Callable[[list[Row], int], str],
) -> None:
    """Measure the settings, by name and number of prompts, and write a table and its report after each one.

    Rows of an earlier call with as many runs are kept.
    """
    parser = parser_of(about, runs=400)
    parser.add_argument("--only", default="", help="only settings whose name contains this")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument(
        "--minutes", type=float, default=np.inf, help="stop after so many; call again to continue"
    )
    options = parser.parse_args()
    path = options.output / f"{table}.csv"
    rows: list[Row] = []
    if path.exists() and not options.fresh:
        with path.open(encoding="utf-8", newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["runs"] == str(options.runs)]
            rows = [row | {"prompts": int(row["prompts"])} for row in kept]
    done = {(row["setting"], row["prompts"]) for row in rows}
    order, start = list(settings), time.monotonic()
    for (name, n), setting in settings.items():
        if time.monotonic() - start > 60 * options.minutes:
            print("there is more to measure: call again without --fresh")
            return
        if options.only in name and (name, n) not in done:
            measured = measure(setting, options.runs)
            rows = sorted(rows + measured, key=lambda row: order.index((row["setting"], row["prompts"])))
            write_csv(path, rows)
            print(f"{name}, {n} prompts: {measured[-1]['seconds']} s", flush=True)
    write_text(options.output / f"{table}.md", report(rows, options.runs))


def markdown(rows: list[Row]) -> str:
    """Return a table of rows that have the same keys."""
    shown = [["" if value is None else value for value in row.values()] for row in rows]
    return "\n".join(markdown_table(list(rows[0]), shown, escape=False))

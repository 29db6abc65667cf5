"""``rmcalib doctor``: is this machine fit, and are its devices right?"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from rmcalib._util.terminal import open_console
from rmcalib.cli._shared.options import Config, Json, Verbose

if TYPE_CHECKING:
    from rmcalib.judges import Diagnosis

__all__ = ["examine"]


def examine(
    json_: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 (read by main)
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Is this machine fit for scoring? Looks at versions, devices and memory, and asks the Hub.

    Scores some of the demo on every device and in every dtype, and compares
    with the CPU in float32. Exits with 1 if a device is wrong in float32;
    narrower dtypes are a choice.
    """
    from rmcalib.judges import diagnose

    diagnosis = diagnose()
    if json_:
        typer.echo(json.dumps({**dataclasses.asdict(diagnosis), "healthy": diagnosis.healthy}))
    else:
        _print(diagnosis)
    if not diagnosis.healthy:
        raise typer.Exit(1)


def _print(diagnosis: Diagnosis) -> None:
    from rich.table import Table
    from rich.text import Text

    console = open_console()
    console.print(Text("  ".join(f"{name} {version}" for name, version in diagnosis.versions.items())))
    for device in diagnosis.devices:
        memory, free = (f"{size / 1e9:.1f} GB" for size in (device.memory, device.free))
        console.print(Text(f"{device.device}: {device.name}, {memory}, {free} free"))
    console.print(Text(f"Hub: {diagnosis.hub}\n"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("device", "dtype", "demo"):
        table.add_column(name)
    for name in ("reward off by", "probability off by", "seconds"):
        table.add_column(name, justify="right", no_wrap=True)
    for check in diagnosis.checks:
        numbers = (check.reward_difference, check.probability_difference, check.seconds)
        cells = ["" if value is None else f"{value:.2g}" for value in numbers]
        table.add_row(check.device, check.dtype, check.status, *cells)
    console.print(table)
    for check in diagnosis.checks:
        if check.note:
            console.print(Text(f"* {check.device} {check.dtype}: {check.note}"))
    console.print(Text("\nThis machine is fit." if diagnosis.healthy else "\nSomething is wrong, see above."))

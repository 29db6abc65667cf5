"""``rmcalib doctor``: whether this machine can score, whether its devices are right, and how fast it is."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib.cli._shared.options import Config, Json, Verbose, refuse_options

if TYPE_CHECKING:
    from rmcalib.judges import Diagnosis

__all__ = ["examine"]


def examine(
    *,
    context: typer.Context,
    speed: Annotated[
        bool, typer.Option("--bench", help="Measure instead how fast this machine scores.")
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="With --bench: the model to run; default a random one that suits the device."
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=0.1, help="With --bench: how long to score; default 60, on a CPU 10."),
    ] = None,
    device: Annotated[
        str, typer.Option(help="With --bench: auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:1 or mps.")
    ] = "auto",
    json_: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 (read by main)
    config: Config = None,  # noqa: ARG001 (its callback has done the work)
) -> None:
    """Check whether this machine can score: versions, devices, memory, and whether the Hub answers.

    Scores some of the demo on every device and in every dtype, and compares
    with the CPU in float32. Exits with 1 if a device is wrong in float32;
    narrower dtypes are a choice. With --bench, scores random texts for a
    minute and prints how fast that was.
    """
    if speed:
        return _bench(model, seconds, device, json_)
    refuse_options(context, ("model", "seconds", "device"), "doctor without --bench")
    from rmcalib.judges import diagnose

    diagnosis = diagnose()
    if json_:
        typer.echo(json.dumps({**dataclasses.asdict(diagnosis), "healthy": diagnosis.healthy}))
    else:
        _print(diagnosis)
    if not diagnosis.healthy:
        raise typer.Exit(1)
    return None


def _bench(model: str | None, seconds: float | None, device: str, json_: bool) -> None:
    from rich.console import Console
    from rich.text import Text

    from rmcalib.judges import bench, choose_device, remember_rate

    usual = 10.0 if choose_device(device).type == "cpu" else 60.0
    found = bench(model, seconds=seconds or usual, device=device)
    remember_rate(found)
    if json_:
        typer.echo(json.dumps(dataclasses.asdict(found)))
        return
    faster = found.tokens_per_second / found.plain_tokens_per_second
    peak = "not measured" if found.memory_peak is None else f"{found.memory_peak / 1e9:.2f} GB"
    lines = [
        f"device      {found.device}: {found.device_name}",
        f"model       {found.model}, {found.parameters / 1e6:,.0f}M parameters, {found.dtype}",
        f"attention   {found.attention}",
        f"scored      {found.responses:,} responses in {found.seconds:.1f} s, {found.passes:,} passes of at "
        f"most {found.token_budget:,} tokens",
        f"speed       {found.tokens_per_second:,.0f} tokens/s; a plain loop, batch 8: "
        f"{found.plain_tokens_per_second:,.0f} ({faster:.2f} times as fast)",
        f"arithmetic  {found.share_of_peak:.0%} of the {found.peak_operations_per_second / 1e12:.3g} TFLOP/s "
        "of the best matrix product here",
        f"tokens      {found.shared:.1%} shared with another response; {found.padding:.1%} of those computed "
        "were padding",
        f"memory      peak {peak}, estimated {found.memory_estimate / 1e9:.2f} GB, beyond the weights",
        *(f"* {notice}" for notice in found.notices),
    ]
    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line), soft_wrap=True)


def _print(diagnosis: Diagnosis) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
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

"""``rmcalib doctor``: can this machine score, and are its devices and a server right?"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib._util.terminal import open_console
from rmcalib.cli._shared.options import Common, refuse_options, with_options
from rmcalib.cli._shared.scoring_options import SERVED, ApiKeyEnv, EndpointKind, ServedName, TokenizeHere

if TYPE_CHECKING:
    from rmcalib.judges import Diagnosis, ServedCheck

__all__ = ["examine"]


@with_options()
def examine(
    *,
    context: typer.Context,
    endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Compare a server's rewards with those of --model, loaded here, and check nothing else.",
            rich_help_panel=SERVED,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="ID",
            help="With --endpoint: the served model.",
        ),
    ] = None,
    device: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="With --endpoint: auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:1 or mps.",
        ),
    ] = "auto",
    endpoint_kind: EndpointKind = "auto",
    served_name: ServedName = None,
    tokenize_here: TokenizeHere = False,
    api_key_env: ApiKeyEnv = None,
    common: Common,
) -> None:
    """Check whether this machine can score: versions, devices, memory, and whether the Hub answers.

    Scores a part of the demo on every device and in every dtype, and compares
    the rewards with those of the CPU in float32. With --endpoint and --model,
    compares the rewards of a server with those of the model, loaded here.

    Exit codes: 0 done; 1 a device is wrong in float32 (smaller dtypes may
    differ), or a server's rewards differ by more than rounding; 2 bad usage
    or bad input.
    """
    from rmcalib.judges import LoadOptions, compare_served, diagnose

    if (endpoint is None) != (model is None):
        raise ValueError("--endpoint, --model: give both to compare a server with the model itself")
    if endpoint is not None and model is not None:
        check = compare_served(
            model,
            endpoint,
            here=LoadOptions(device=device),
            endpoint_kind=endpoint_kind,
            served_name=served_name,
            tokenize_here=tokenize_here,
            api_key_env=api_key_env,
        )
        _finish(check, _print_served, common)
    else:
        served = ("endpoint_kind", "served_name", "tokenize_here", "api_key_env")
        refuse_options(context, ("device", *served), "a check of this machine (give --endpoint)")
        _finish(diagnose(), _print, common)


def _finish(found: Diagnosis | ServedCheck, show: Callable[[Any], None], common: Common) -> None:
    if common.json:
        typer.echo(json.dumps({**dataclasses.asdict(found), "healthy": found.healthy}))
    elif not common.quiet:
        show(found)
    if not found.healthy:
        raise typer.Exit(1)


_MEANING = {
    "right": "The server gives the model's rewards.",
    "rounding": "The rewards differ as if the server, or this machine, used a narrower dtype.",
    "differs": "The server gives other rewards. Is it the same model? If so, it reads other texts: see what "
    "--tokenize-here changes.",
}


def _print_served(check: ServedCheck) -> None:
    from rich.text import Text

    lines = (
        f"{check.endpoint}: {check.endpoint_kind} {check.server_version or '(unknown version)'}, "
        f"model {check.served_model or '(unknown)'}",
        f"here: {check.model} in {check.dtype}",
        f"{check.n_responses} responses of the demo: {check.seconds_served:.2g} s served, "
        f"{check.seconds_here:.2g} s here",
        f"rewards differ by up to {check.reward_difference:.2g}, probabilities by up to "
        f"{check.probability_difference:.2g}",
        "",
        _MEANING[check.status],
    )
    console = open_console()
    for line in lines:
        console.print(Text(line))


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
    verdict = "This machine scores correctly." if diagnosis.healthy else "Something is wrong, see above."
    console.print(Text(f"\n{verdict}"))

"""``rmcalib doctor``: can this machine score, and are its devices and a server right?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rmcalib._util.terminal import add_row, open_console, print_table, table
from rmcalib.cli.options import Common, Endpoint, JudgeSettings, Name, Scoring, refuse
from rmcalib.cli.screen import print_json, print_lines, session
from rmcalib.cli.sources import judge_options

if TYPE_CHECKING:
    from rmcalib.judges._doctor import Diagnosis, ServedCheck

_MEANING = {
    "right": "The server gives the model's rewards.",
    "rounding": "The rewards differ as if the server, or this machine, used a narrower dtype.",
    "differs": "The server gives other rewards. Is it the same model? If so, it reads other texts: see what "
    "-J tokenize_here=yes changes.",
}


def command(
    *,
    model: Annotated[Name | None, Parameter(alias="-m", metavar="ID")] = None,
    endpoint: Annotated[Endpoint, Parameter(help="Compare a server's rewards with those of --model.")] = None,
    judge: JudgeSettings = (),
    common: Common = Common(),
) -> int:
    """Check versions, devices, memory and the Hub; or a server.

    Parameters
    ----------
    model
        The served model, which is also loaded here.
    """
    from rmcalib.judges import LoadOptions, compare_served, diagnose

    if (endpoint is None) != (model is None):
        raise ValueError("--endpoint, --model: give both to compare a server with the model itself")
    with session(common) as screen:
        if endpoint is None or model is None:
            refuse({"-J": judge}, "it belongs to --endpoint")
            machine = diagnose()
            healthy, content = machine.healthy, asdict(machine)
            if screen.prints:
                _print_machine(machine)
        else:
            here = tuple(one for one in judge if one.startswith(("device=", "dtype=")))
            served = tuple(one for one in judge if one not in here)
            settings = judge_options(Scoring(judge=served), endpoint)
            loading = LoadOptions(**judge_options(Scoring(judge=here)))
            server = compare_served(model, settings.pop("endpoint"), here=loading, **settings)
            healthy, content = server.healthy, asdict(server)
            if screen.prints:
                _print_server(server)
        if screen.json:
            print_json({**content, "healthy": healthy})
    return int(not healthy)


def _print_server(check: ServedCheck) -> None:
    print_lines(
        f"{check.endpoint}: {check.endpoint_kind} {check.server_version or '(unknown version)'}, "
        f"model {check.served_model or '(unknown)'}",
        f"here: {check.model} in {check.dtype}",
        f"{check.n_responses} responses of the demo: {check.seconds_served:.2g} s served, "
        f"{check.seconds_here:.2g} s here",
        f"rewards differ by up to {check.reward_difference:.2g}, probabilities by up to "
        f"{check.probability_difference:.2g}",
        "",
        _MEANING[check.status],
        f"Next: rmcalib eval --model {check.model} --endpoint {check.endpoint}",
    )


def _print_machine(diagnosis: Diagnosis) -> None:
    print_lines("  ".join(f"{name} {version}" for name, version in diagnosis.versions.items()))
    for device in diagnosis.devices:
        memory, free = (f"{size / 1e9:.1f} GB" for size in (device.memory, device.free))
        print_lines(f"{device.device}: {device.name}, {memory}, {free} free")
    print_lines(f"Hub: {diagnosis.hub}", "")
    rows = table("device", "dtype", "demo", "reward off by", "probability off by", "seconds")
    for check in diagnosis.checks:
        numbers = (check.reward_difference, check.probability_difference, check.seconds)
        cells = ["" if value is None else f"{value:.2g}" for value in numbers]
        add_row(rows, check.device, check.dtype, check.status, *cells)
    print_table(open_console(), rows)
    print_lines(
        *(f"* {check.device} {check.dtype}: {check.note}" for check in diagnosis.checks if check.note)
    )
    verdict = "This machine scores correctly." if diagnosis.healthy else "Something is wrong, see above."
    print_lines("", verdict, "Next: rmcalib eval")

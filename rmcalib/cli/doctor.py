"""``rmcalib doctor``: can this machine score, and are its devices and a server right?"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from rmcalib._util.display import open_console, print_table
from rmcalib.cli.options import Common, Endpoint, JudgeSettings, Name, refuse
from rmcalib.cli.screen import print_json, print_lines, session
from rmcalib.cli.sources import judge_options

if TYPE_CHECKING:
    from rmcalib.judges._doctor import Check, Diagnosis

_MEANING = {
    "right": "The server gives the model's rewards.",
    "rounding": "The rewards differ as if the server, or this machine, used a narrower dtype.",
    "differs": "The server gives other rewards",
}
_REMEDIES = {
    "not finite": "Serve the model in bfloat16 or float32.",
    "sigmoid": "Ask for raw rewards (vLLM: use_activation false), or start vLLM with "
    "--pooler-config '{\"use_activation\": false}'.",
    "second bos": "Do not add special tokens to a text that has them.",
    "missing bos": "The text must begin with the beginning-of-text token.",
    "template": "Serve the model with its own chat template, or send tokens: -J tokenize_here=yes.",
    "truncated": "Start the server with the model's own limit.",
    "unknown": "Other weights, or a text that is none of those tried here: see what -J tokenize_here=yes changes.",
}


def command(
    *,
    model: Annotated[Name | None, Parameter(alias="-m", metavar="ID")] = None,
    endpoint: Annotated[Endpoint, Parameter(help="Compare a server's rewards with those of --model.")] = None,
    no_weights: bool = False,
    judge: JudgeSettings = (),
    common: Common = Common(),
) -> int:
    """Check versions, devices, memory and the Hub; or a server.

    Parameters
    ----------
    model
        The served model, which is also loaded here.
    no_weights
        Do not load the model: compare the server's tokens (vLLM) with the tokenizer's.
    """
    from rmcalib.judges import LoadOptions, compare_served, diagnose

    if (endpoint is None) != (model is None):
        raise ValueError("--endpoint, --model: give both to compare a server with the model itself")
    with session(common) as screen:
        if endpoint is None or model is None:
            refuse({"-J": judge, "--no-weights": no_weights}, "it belongs to --endpoint")
            machine = diagnose()
            healthy, content = machine.healthy, asdict(machine)
            if screen.prints:
                _print_machine(machine)
        else:
            here = tuple(setting for setting in judge if setting.startswith(("device=", "dtype=")))
            served = tuple(setting for setting in judge if setting not in here)
            settings = judge_options(served, endpoint=endpoint)
            loading = LoadOptions(**judge_options(here))
            server = compare_served(
                model, settings.pop("endpoint"), weights=not no_weights, here=loading, **settings
            )
            healthy, content = server.healthy, asdict(server)
            if screen.prints:
                _print_server(server)
        if screen.json:
            print_json({**content, "healthy": healthy})
    return int(not healthy)


def _print_server(check: Check) -> None:
    about = check.about
    print_lines(
        f"{check.where}: {about['endpoint_kind']} {about['server_version'] or '(unknown version)'}, "
        f"model {about['served_model'] or '(unknown)'}"
    )
    if check.seconds is not None:
        print_lines(
            f"here: {about['model']} in {check.dtype}",
            f"{about['n_responses']} responses: {check.seconds:.2g} s served, {about['seconds_here']:.2g} s here",
            f"rewards differ by up to {check.reward_difference:.2g}, probabilities by up to "
            f"{check.probability_difference:.2g}",
        )
    why = f": {check.cause}: {check.note}." if check.status == "differs" else f" ({check.note})"
    print_lines("", f"{_MEANING[check.status].rstrip('.')}{why}")
    if check.healthy:
        print_lines(f"Next: rmcalib eval --model {about['model']} --endpoint {check.where}")
    elif check.cause in _REMEDIES:
        print_lines(_REMEDIES[check.cause])


def _print_machine(diagnosis: Diagnosis) -> None:
    print_lines("  ".join(f"{name} {version}" for name, version in diagnosis.versions.items()))
    for device, about in diagnosis.devices.items():
        memory, free = (f"{about[size] / 1e9:.1f} GB" for size in ("memory", "free"))
        print_lines(f"{device}: {about['name']}, {memory}, {free} free")
    print_lines(f"Hub: {diagnosis.hub}", "")
    rows = []
    for check in diagnosis.checks:
        numbers = (check.reward_difference, check.probability_difference, check.seconds)
        cells = ["" if value is None else f"{value:.2g}" for value in numbers]
        rows.append([check.where, check.dtype, check.status, *cells])
    header = ("device", "dtype", "demo", "reward off by", "probability off by", "seconds")
    print_table(open_console(), header, rows)
    print_lines(*(f"* {check.where} {check.dtype}: {check.note}" for check in diagnosis.checks if check.note))
    verdict = "This machine scores correctly." if diagnosis.healthy else "Something is wrong, see above."
    print_lines("", verdict, *(["Next: rmcalib eval"] if diagnosis.healthy else []))

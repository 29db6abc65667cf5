"""``rmcalib decide``: when to accept a judge's choice without asking a person."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib.cli._shared.calibrators import CalibratorFile, calibrated, load_calibrator
from rmcalib.cli._shared.options import Common, Seed, with_options
from rmcalib.cli._shared.progress import plain_warnings

if TYPE_CHECKING:
    from rmcalib.repair import Decisions

__all__ = ["decide_scores"]


@with_options()
def decide_scores(
    *,
    source: Annotated[
        str, typer.Argument(metavar="RUN", help="A run folder, or a file of scores; or the URL of one.")
    ],
    wrong_at_most: Annotated[
        float,
        typer.Option(metavar="ALPHA", help="Largest fraction of wrong responses among the accepted ones."),
    ] = 0.1,
    confidence: Annotated[
        float, typer.Option(metavar="P", help="Confidence that this fraction is not exceeded.")
    ] = 0.95,
    ask_cost: Annotated[
        float | None,
        typer.Option(
            metavar="COST",
            help="Cost of asking a person, as a fraction of the cost of a wrong response; default the value "
            "of --wrong-at-most.",
        ),
    ] = None,
    calibrator: CalibratorFile = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Find the threshold above which a judge's first choice can be accepted without asking a person.

    Takes scores of labelled prompts. Accepted responses are wrong at most ALPHA
    of the time, with 95% confidence, on prompts like these. Also reports what
    asking a person for the rest costs, the accuracy of the surest choices,
    best-of-k, and the regret of acting on the stated probabilities.

    Exit codes: 0 done, also if no threshold is safe; 2 bad usage or bad input.
    """
    from rmcalib._util.terminal import clean_line
    from rmcalib.judges import recipe_of_run, registry, why_no_calibration
    from rmcalib.repair import decide
    from rmcalib.report import open_scores

    for option, value in (
        ("--wrong-at-most", wrong_at_most),
        ("--confidence", confidence),
        ("--ask-cost", ask_cost),
    ):
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{option}: {value:g} is not between 0 and 1")
    with plain_warnings(quiet=common.quiet, verbose=common.verbose):
        scores, name = open_scores(source)
        reason = why_no_calibration(recipe_of_run(name, scores.manifest, registry()))
        if reason:
            raise ValueError(f"{clean_line(name)}: there are no probabilities to act on: {reason}")
        scores = calibrated(scores, load_calibrator(calibrator), name, quiet=common.quiet)
        found = decide(scores, alpha=wrong_at_most, level=confidence, ask_cost=ask_cost, seed=seed)
    if common.json:
        typer.echo(json.dumps({"model": clean_line(name), **found.content()}))
    elif not common.quiet:
        _print(found, clean_line(name))


def _print(found: Decisions, name: str) -> None:
    from rich.text import Text

    from rmcalib._util.terminal import add_row, count, open_console, print_table, table

    console = open_console(widest=80)
    console.print(Text(f"{name}, {count(found.n, 'prompt')} with one correct response\n", style="bold"))
    for sentence in found.sentences:
        console.print(Text(f"* {sentence}"))
    level = f"{found.level:.0%} interval"
    rows = table("accepted", "prompts", "if p at least", "says", "right", level, title="\nthe surest choices")
    for row in found.curve[1::2]:  # every tenth
        interval = f"{row['low']:.1%} to {row['high']:.1%}"
        add_row(
            rows,
            *(f"{row['fraction']:.0%}", f"{row['n']:,}", f"{row['threshold']:.4f}"),
            *(f"{row['says']:.1%}", f"{row['right']:.1%}", interval),
        )
    print_table(console, rows)
    rows = table("k", "says", "right", level, title="\nbest of k")
    for row in found.best_of:
        interval = f"{row['low']:.1%} to {row['high']:.1%}"
        add_row(rows, str(row["k"]), f"{row['says']:.1%}", f"{row['right']:.1%}", interval)
    print_table(console, rows)

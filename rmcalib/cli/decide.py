"""``rmcalib decide``: when to accept a judge's choice without asking a person."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli.options import CalibratorFile, Common, OutputFile, Part, Reading, Seed, Source
from rmcalib.cli.screen import command_line, session
from rmcalib.cli.sources import say_if_it_holds


def command(
    source: Source,
    /,
    *,
    wrong_at_most: Annotated[float, Parameter(metavar="FRACTION", validator=Number(gte=0, lte=1))] = 0.1,
    confidence: Annotated[float, Parameter(metavar="P", validator=Number(gte=0, lte=1))] = 0.95,
    ask_cost: Annotated[float | None, Parameter(metavar="COST", validator=Number(gte=0, lte=1))] = None,
    sample_cost: Annotated[float | None, Parameter(metavar="COST", validator=Number(gte=0, lt=1))] = None,
    calibrator: CalibratorFile = None,
    part: Part = None,
    to: OutputFile = Path("runs/decide.json"),
    seed: Seed = 0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Find the threshold above which first choices are accepted, and write the calibrator with this rule.

    Parameters
    ----------
    wrong_at_most
        Largest fraction of wrong responses among the accepted ones.
    confidence
        Confidence that this fraction is not exceeded.
    ask_cost
        Cost of asking a person, as a fraction of that of a wrong response; default that of --wrong-at-most.
    sample_cost
        Cost of drawing one more sample, as a fraction of that of a wrong response; default 1% of --ask-cost.
    to
        Where to write the calibrator with its rule, for `rmcalib apply`; - is standard output.
    """
    from rmcalib.repair import Calibrator, decide

    inputs = [source, *reading.files, *([str(calibrator)] if calibrator else [])]
    with session(common, inputs, to=to) as screen:
        scores = reading.open(source, second=False)
        if part is not None:
            scores = scores.part(part)
        used = None if calibrator is None else Calibrator.load(calibrator)
        if used is not None:
            say_if_it_holds(used, scores, screen)
        result = decide(
            scores,
            wrong_at_most=wrong_at_most,
            level=confidence,
            ask_cost=ask_cost,
            sample_cost=sample_cost,
            calibrator=used,
            seed=seed,
        )
        result.calibrator.save(to)
        screen.finish(
            result.document(),
            {"model": scores.name, **result.content(), "file": str(to)},
            written={"Calibrator with its rule": to},
            then="" if result.choice.threshold is None else command_line("apply", "FILE", "--calibrator", to),
        )
    return 0

"""``rmcalib decide``: when to accept a judge's choice without asking a person."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli.options import CalibratorFile, Common, Reading, Seed, Source
from rmcalib.cli.screen import session
from rmcalib.cli.sources import calibrated


def command(
    source: Source,
    /,
    *,
    wrong_at_most: Annotated[float, Parameter(metavar="ALPHA", validator=Number(gte=0, lte=1))] = 0.1,
    confidence: Annotated[float, Parameter(metavar="P", validator=Number(gte=0, lte=1))] = 0.95,
    ask_cost: Annotated[float | None, Parameter(metavar="COST", validator=Number(gte=0, lte=1))] = None,
    calibrator: CalibratorFile = None,
    seed: Seed = 0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Find the threshold above which first choices are accepted.

    Parameters
    ----------
    wrong_at_most
        Largest fraction of wrong responses among the accepted ones.
    confidence
        Confidence that this fraction is not exceeded.
    ask_cost
        Cost of asking a person, as a fraction of that of a wrong response; default that of --wrong-at-most.
    """
    from rmcalib.repair import Calibrator, decide

    with session(common) as screen:
        scores = reading.open(source)
        name = str(scores.manifest["model"])
        if calibrator is not None:
            scores = calibrated(scores, Calibrator.load(calibrator), screen)
        found = decide(scores, alpha=wrong_at_most, level=confidence, ask_cost=ask_cost, seed=seed)
        threshold = found.choice.threshold
        then = (
            f"rmcalib apply FILE --calibrator FILE --accept {threshold:.4g}" if threshold is not None else ""
        )
        screen.finish(found, {"model": name, **found.content()}, then=then)
    return 0

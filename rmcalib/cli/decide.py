"""``rmcalib decide``: when to accept a judge's choice without asking a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from rmcalib.cli.options import MAIN, CalibratorFile, Common, Reading, Seed, Source
from rmcalib.cli.screen import messages, show
from rmcalib.cli.sources import open_run, say_whether_it_holds


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What is guaranteed."""

    wrong_at_most: Annotated[float, Parameter(metavar="ALPHA")] = 0.1
    """Largest fraction of wrong responses among the accepted ones."""
    confidence: Annotated[float, Parameter(metavar="P")] = 0.95
    """Confidence that this fraction is not exceeded."""
    ask_cost: Annotated[float | None, Parameter(metavar="COST")] = None
    """Cost of asking a person, as a fraction of that of a wrong response; default the value of --wrong-at-most."""
    calibrator: CalibratorFile = None
    seed: Seed = 0


def command(
    source: Source,
    /,
    *,
    wanted: Wanted = Wanted(),
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Find the threshold above which first choices are accepted."""
    from rmcalib.judges import registry
    from rmcalib.judges._registry import recipe_of_run, why_no_calibration
    from rmcalib.repair import Calibrator, decide

    shares = {
        "--wrong-at-most": wanted.wrong_at_most,
        "--confidence": wanted.confidence,
        "--ask-cost": wanted.ask_cost,
    }
    for option, value in shares.items():
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{option}: {value:g} is not between 0 and 1")
    with messages(quiet=common.quiet):
        scores = open_run(source, reading)
        name = str(scores.manifest["model"])
        reason = why_no_calibration(recipe_of_run(name, scores.manifest, registry()))
        if reason:
            raise ValueError(f"{name}: there are no probabilities to act on: {reason}")
        if wanted.calibrator is not None:
            calibrator = Calibrator.load(wanted.calibrator)
            if not common.quiet:
                say_whether_it_holds(calibrator, scores, name)
            scores = calibrator.apply(scores)
        found = decide(
            scores,
            alpha=wanted.wrong_at_most,
            level=wanted.confidence,
            ask_cost=wanted.ask_cost,
            seed=wanted.seed,
        )
    threshold = found.choice.threshold
    follow = "" if threshold is None else f"rmcalib apply FILE --calibrator FILE --accept {threshold:.4g}"
    show(found, common, {"model": name, **found.content()}, follow=follow)
    return 0

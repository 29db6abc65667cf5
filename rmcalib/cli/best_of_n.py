"""``rmcalib best-of-n``: how many samples are worth it."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli import options
from rmcalib.cli.screen import session
from rmcalib.cli.sources import say_if_it_holds


def command(
    source: options.Source,
    /,
    *,
    up_to: Annotated[int | None, Parameter(metavar="N", validator=Number(gte=1))] = None,
    cost: Annotated[float | None, Parameter(metavar="COST", validator=Number(gte=0, lt=1))] = None,
    calibrator: options.CalibratorFile = None,
    to: options.OutputFile | None = None,
    markdown: options.Markdown = None,
    output: options.Place = "runs/best-of-n",
    seed: options.Seed = 0,
    reading: options.Reading = options.Reading(),
    common: options.Common = options.Common(),
) -> int:
    """Report how often the best of n samples is right, for every n.

    Parameters
    ----------
    up_to
        Largest number of samples; default what nine of ten prompts have.
    cost
        Cost of a sample, as a fraction of the worth of a right answer; default: a gain of 1 point counts.
    to
        Write the table as CSV; - is standard output.
    """
    from rmcalib._util.files import write_csv, write_text
    from rmcalib._util.storage import as_path
    from rmcalib.metrics import best_of_n
    from rmcalib.repair import Calibrator
    from rmcalib.report.card import markdown_summary

    sources = [source] if reading.second is None else [source, reading.second]
    inputs = [*sources, *reading.files, *([str(calibrator)] if calibrator else [])]
    with session(common, inputs, to=to, markdown=markdown) as screen:
        scores = [replace(reading, second=None).open(each) for each in sources]
        if calibrator is not None:
            used = Calibrator.load(calibrator)
            say_if_it_holds(used, scores[0], screen)
            scores[0] = used.apply(scores[0])
        result = best_of_n(*scores, up_to=up_to, cost=cost, seed=seed)
        if calibrator is None and reading == options.Reading():
            result = replace(result, source=source)
        page = result.to_html(as_path(output) / "report.html")
        if to is not None:
            write_csv(to, result.rows)
        if markdown is not None:
            write_text(markdown, markdown_summary([result.document()], ()))
        screen.finish(result.document(), {**result.content(), "page": str(page)}, written={"Report": page})
    return 0

"""``rmcalib apply``: what rewards mean, row by row."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli.options import Common, InputFile, OutputFile, Reading, Source
from rmcalib.cli.screen import session


def command(
    source: Source,
    /,
    *,
    calibrator: InputFile,
    to: OutputFile = Path("runs/probabilities.csv"),
    accept: Annotated[float | None, Parameter(metavar="P", validator=Number(gte=0, lte=1))] = None,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Write the rows of a file with their probabilities.

    Parameters
    ----------
    calibrator
        The calibrator that `rmcalib calibrate` wrote.
    to
        Where to write the input's rows with their probabilities (.csv, .tsv, .jsonl, .parquet); - prints CSV.
    accept
        Also say which prompts to accept: their first choice has at least this probability (`rmcalib decide`).
    """
    from rmcalib._util.files import csv_bytes, write_bytes
    from rmcalib.repair import apply

    reading.refuse("rows are written back as they are", "columns", "scale")
    with session(common, (source,), to=to) as screen:
        found = apply(source, calibrator, decisions=accept, columns=reading.columns, scale=reading.scale)
        if screen.taken:
            write_bytes(to, csv_bytes(found.table, guarded=False))
        else:
            found.save(to)
        content = {"rows": len(found.table), "prompts": found.n, "accepted": found.accepted}
        screen.finish(
            found,
            {**content, "columns": list(found.added), "file": str(to)},
            written={"Probabilities": to},
            then="" if accept is not None else "rmcalib decide RUN (labelled, to find what to --accept)",
        )
    return 0

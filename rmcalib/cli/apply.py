"""``rmcalib apply``: the probabilities of rewards, row by row."""

from __future__ import annotations

from pathlib import Path

from rmcalib.cli.options import Common, InputFile, OutputFile, Reading, Source
from rmcalib.cli.screen import command_line, session


def command(
    *sources: Source,
    calibrator: InputFile,
    to: OutputFile = Path("runs/probabilities.csv"),
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Write the rows of a file with their probabilities and, by the calibrator's rule, what to accept.

    Parameters
    ----------
    calibrator
        The calibrator that `rmcalib calibrate`, `decide` or `combine` wrote; one of several judges takes several files.
    to
        Where to write the input's rows with their probabilities (.csv, .tsv, .jsonl, .parquet); - prints CSV.
    """
    from rmcalib._util.files import csv_bytes, write_bytes
    from rmcalib.repair import Calibrator, apply
    from rmcalib.report.applied import cautions

    if not sources:
        raise ValueError("RUN: name a file of scores or a run folder")
    reading.refuse("rows are written back as they are", "columns", "scale")
    with session(common, (*sources, str(calibrator)), to=to) as screen:
        used = Calibrator.load(calibrator)
        if len(sources) > 1 and not used.inputs:
            raise ValueError(f"{sources[1]}: the calibrator {calibrator} is of one judge; give one file")
        given = list(sources) if used.inputs else sources[0]
        result = apply(given, used, columns=reading.columns, scale=reading.scale)
        if screen.taken:
            write_bytes(to, csv_bytes(result.table, guarded=False))
            for sentence in cautions(result):
                screen.say(sentence)
        else:
            result.save(to)
        content = {
            "rows": len(result.table),
            "prompts": result.n,
            "accepted": result.accepted,
            "outside": result.n_outside,
            "other_sizes": result.n_other_sizes,
        }
        screen.finish(
            result.document(),
            {**content, "columns": list(result.added), "file": str(to)},
            written={"Probabilities": to},
            then=""
            if used.rule
            else command_line("decide", "LABELLED", "--calibrator", calibrator, "--to", "FILE"),
        )
    return 0

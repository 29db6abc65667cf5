"""``rmcalib apply``: what rewards mean, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from rmcalib.cli.options import MAIN, Common, InputFile, OutputFile, Reading, Source, refuse, writes_stdout
from rmcalib.cli.screen import messages, show


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What is applied, and where the rows go."""

    calibrator: InputFile
    """The calibrator that `rmcalib calibrate` wrote."""
    to: OutputFile = Path("runs/probabilities.csv")
    """Where to write the input's rows with their probabilities (.csv, .tsv, .jsonl, .parquet); - prints CSV."""
    accept: Annotated[float | None, Parameter(metavar="P")] = None
    """Also say which prompts to accept: those whose first choice has at least this probability (`rmcalib decide`)."""


def command(
    source: Source,
    /,
    *,
    wanted: Wanted,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Write the rows of a file with their probabilities."""
    from rmcalib._util.files import write_text
    from rmcalib.repair import apply

    refuse({"--cluster": reading.cluster, "--missing": reading.missing}, "rows are written back as they are")
    if wanted.accept is not None and not 0 <= wanted.accept <= 1:
        raise ValueError(f"--accept: {wanted.accept:g} is not a probability")
    if Path(source).resolve() == wanted.to.resolve():
        raise ValueError(f"--to {wanted.to}: this command reads that file; name another one")
    silent = writes_stdout(common, to=wanted.to)
    with messages(quiet=common.quiet):
        found = apply(
            source, wanted.calibrator, decisions=wanted.accept, columns=reading.columns, scale=reading.scale
        )
        if silent:
            write_text(wanted.to, found.table.to_csv(index=False))
        else:
            found.save(wanted.to)
    rows = len(found.table)
    content = {"rows": rows, "prompts": found.n, "accepted": found.accepted, "columns": list(found.added)}
    follow = "" if wanted.accept is not None else "rmcalib decide RUN (labelled, to find what to --accept)"
    if not silent:
        file = str(wanted.to)
        show(found, common, {**content, "file": file}, written={"Probabilities": wanted.to}, follow=follow)
    return 0

"""``rmcalib combine``: a panel of judges, what it gains, and who is redundant."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from rmcalib.cli.options import MAIN, Common, OutputFile, Reading, Seed, Source, at_least, writes_stdout
from rmcalib.cli.screen import messages, say, show
from rmcalib.cli.sources import open_run


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """Which panel is written."""

    to: OutputFile = Path("runs/panel.parquet")
    """Where to write the scores of the panel; ends in .parquet."""
    method: Literal["weights", "mean"] = "weights"
    """Which panel to write: with fitted weights, or with equal ones."""
    folds: Annotated[int, Parameter(metavar="N", validator=at_least(2))] = 5
    """Number of folds of the cross-validation."""
    seed: Seed = 0


def command(
    *runs: Source,
    wanted: Wanted = Wanted(),
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Combine judges and write the panel's scores."""
    from rmcalib.repair import combine
    from rmcalib.repair.panels import replaces_panel

    silent = writes_stdout(common, to=wanted.to)
    common = replace(common, quiet=common.quiet or silent)
    if wanted.to.suffix != ".parquet" and not silent:
        raise ValueError(f"--to {wanted.to}: the name of a file of scores ends in .parquet")
    if len(runs) < 2:
        raise ValueError(f"a panel has at least two judges: give {'two runs' if not runs else 'another run'}")
    twice = next((run for run in runs if runs.count(run) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice}: given {runs.count(twice)} times; give each judge once")
    replaced = not silent and replaces_panel(wanted.to, runs)
    with messages(quiet=common.quiet):
        found = [open_run(run, reading) for run in runs]
        names = [str(one.manifest["model"]) for one in found]
        if len(set(names)) < len(names):
            names = list(runs)
        panel = combine(found, names=names, folds=wanted.folds, seed=wanted.seed)
        panel.scores(wanted.method).to_parquet(wanted.to)
    if replaced and not common.quiet:
        say(f"replaced {wanted.to}, the scores of an earlier panel")
    content = {"n": panel.n, "panels": panel.panels, "members": panel.members, "best": panel.best}
    show(
        panel,
        common,
        {**content, "file": str(wanted.to)},
        written={"Scores of the panel": wanted.to},
        follow=f"rmcalib eval --scores {wanted.to}",
    )
    return 0

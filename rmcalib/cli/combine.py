"""``rmcalib combine``: a panel of judges, what it gains, and who is redundant."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from rmcalib.cli.options import Common, OutputFile, Reading, Seed, Source
from rmcalib.cli.screen import session


def command(
    *runs: Source,
    to: OutputFile = Path("runs/panel.parquet"),
    method: Literal["weights", "mean"] = "weights",
    seed: Seed = 0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Combine judges and write the panel's scores.

    Parameters
    ----------
    to
        Where to write the scores of the panel; ends in .parquet.
    method
        Which panel to write: with fitted weights, or with equal ones.
    """
    from rmcalib.repair import combine

    if to.suffix != ".parquet" and str(to) != "-":
        raise ValueError(f"--to {to}: the name of a file of scores ends in .parquet")
    if len(set(runs)) < max(2, len(runs)):
        raise ValueError(f"a panel has at least two different judges (given: {', '.join(runs) or 'none'})")
    with session(common, runs, to=to) as screen:
        found = [reading.open(run) for run in runs]
        names = [str(one.manifest["model"]) for one in found]
        panel = combine(found, names=names if len(set(names)) == len(names) else list(runs), seed=seed)
        panel.scores(method).to_parquet(to)
        content = {"n": panel.n, "panels": panel.panels, "members": panel.members, "best": panel.best}
        screen.finish(
            panel,
            {**content, "file": str(to)},
            written={"Scores of the panel": to},
            then=f"rmcalib eval --scores {to}",
        )
    return 0

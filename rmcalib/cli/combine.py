"""``rmcalib combine``: a panel of judges, what it gains, and who is redundant."""

from __future__ import annotations

from dataclasses import asdict
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
    """Combine judges and write the panel's scores, or its calibrator.

    Parameters
    ----------
    to
        What to write: NAME.json is the calibrator of the panel, for `rmcalib apply`; NAME.parquet its scores on these
        prompts, held out, for `rmcalib eval`.
    method
        Which panel to write: with fitted weights, or with equal ones.
    """
    from rmcalib.repair import combine

    if to.suffix not in (".parquet", ".json") and str(to) != "-":
        raise ValueError(f"--to {to}: ends in .json (a calibrator) or .parquet (scores)")
    if len(set(runs)) < max(2, len(runs)):
        raise ValueError(f"a panel has at least two different judges (given: {', '.join(runs) or 'none'})")
    with session(common, runs, to=to) as screen:
        found = [reading.open(run) for run in runs]
        names = [str(one.manifest["model"]) for one in found]
        panel = combine(found, names=names if len(set(names)) == len(names) else list(runs), seed=seed)
        if to.suffix == ".json":
            panel.calibrated(method).save(to)
            written, then = "Calibrator of the panel", f"rmcalib apply {' '.join(runs)} --calibrator {to}"
        else:
            panel.scores(method).to_parquet(to)
            written, then = "Scores of the panel", f"rmcalib eval --scores {to}"
        content = {"n": panel.n, "panels": panel.panels, "members": panel.members, "best": panel.best}
        content["inputs"] = [asdict(one) for one in panel.inputs[method]]
        screen.finish(
            panel,
            {**content, "file": str(to)},
            written={written: to},
            then=then,
        )
    return 0

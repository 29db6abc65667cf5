"""``rmcalib combine``: a panel of judges, what it gains, and who is redundant."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal

from rmcalib.cli.options import Common, OutputFile, Reading, Seed, Source
from rmcalib.cli.screen import command_line, session


def command(
    *runs: Source,
    to: OutputFile = Path("runs/panel.parquet"),
    method: Literal["weights", "mean", "all"] = "weights",
    seed: Seed = 0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Combine judges and write the panel's scores, or its calibrator; or join rewards of different things.

    Parameters
    ----------
    to
        What to write: NAME.json is the calibrator of the panel, for `rmcalib apply`; NAME.parquet its scores on these
        prompts, held out, for `rmcalib eval`.
    method
        What to write: the panel with fitted weights, the one with equal weights, or (all) the calibrator of
        rewards of different things, each with separate labels: the probability that all hold.
    """
    from rmcalib.repair import all_hold, combine

    if to.suffix not in (".parquet", ".json") and str(to) != "-":
        raise ValueError(f"--to {to}: ends in .json (a calibrator) or .parquet (scores)")
    if method == "all" and to.suffix != ".json":
        raise ValueError(f"--to {to}: --method all writes a calibrator; name it, such as --to all.json")
    if len(set(runs)) < max(2, len(runs)):
        raise ValueError(f"a panel has at least two different judges (given: {', '.join(runs) or 'none'})")
    with session(common, (*runs, *reading.files), to=to) as screen:
        judges = [reading.open(run, second=False) for run in runs]
        names = [scores.name for scores in judges]
        names = names if len(set(names)) == len(names) else list(runs)
        apply = command_line("apply", *runs, "--calibrator", to)
        if method == "all":
            joined = all_hold(judges, names=names)
            joined.calibrator.save(to)
            content = {"n": joined.n, "members": joined.members, "disagreements": joined.disagreements}
            screen.finish(
                joined.document(), {**content, "file": str(to)}, written={"Calibrator": to}, then=apply
            )
            return 0
        panel = combine(judges, names=names, seed=seed)
        if to.suffix == ".json":
            panel.calibrated(method).save(to)
            written, then = "Calibrator of the panel", apply
        else:
            panel.scores(method).to_parquet(to)
            written, then = "Scores of the panel", command_line("eval", "--scores", to)
        content = {"n": panel.n, "panels": panel.panels, "members": panel.members, "best": panel.best}
        content |= {"disagreements": panel.disagreements}
        content["inputs"] = [asdict(judge) for judge in panel.inputs[method]]
        screen.finish(
            panel.document(),
            {**content, "file": str(to)},
            written={written: to},
            then=then,
        )
    return 0

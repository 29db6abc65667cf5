"""``rmcalib combine``: a panel of judges, what it gains, and who is redundant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib.cli._shared.options import Common, Seed, with_options
from rmcalib.cli._shared.places import output_file, writes_stdout
from rmcalib.cli._shared.progress import plain_warnings, say

if TYPE_CHECKING:
    from rmcalib.repair import Panel

__all__ = ["combine_judges"]


@with_options()
def combine_judges(
    *,
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Run folders or files of scores, one per judge.")
    ],
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            parser=output_file,
            help="Where to write the scores of the panel; ends in .parquet.",
        ),
    ] = Path("panel.parquet"),
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="Which panel to write: weights (fitted), or mean (equal weights)."),
    ] = "weights",
    folds: Annotated[
        int, typer.Option(min=2, metavar="N", help="Number of folds of the cross-validation.")
    ] = 5,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Combine judges of the same prompts, and report what the panel gains over its best member.

    Every judge has its own temperature. Their log-probabilities are averaged,
    with equal or fitted weights. Everything is fitted on some prompts and
    measured on others. `rmcalib eval --scores panel.parquet` makes a report.
    """
    from rmcalib._util.arrays import check_choice
    from rmcalib.repair import METHODS, combine, replaces_panel
    from rmcalib.report import open_scores

    check_choice(method, "--method", METHODS)
    silent = writes_stdout({"--to": to}, as_json=common.json)
    if to.suffix != ".parquet" and not silent:
        raise ValueError(f"--to {to}: the name of a file of scores ends in .parquet")
    repeated = [run for run in runs if runs.count(run) > 1]
    if repeated:
        raise ValueError(f"{repeated[0]}: given {runs.count(repeated[0])} times; give each judge once")
    replaced = replaces_panel(to, runs)
    with plain_warnings(quiet=common.quiet, verbose=common.verbose):
        found = [open_scores(run) for run in runs]
        names = _different([name for _, name in found], runs)
        panel = combine([scores for scores, _ in found], names=names, folds=folds, seed=seed)
        panel.scores(method).to_parquet(to)  # type: ignore[arg-type]  # checked above
    if replaced and not common.quiet:
        say(f"replaced {to}, the scores of an earlier panel")
    if common.json:
        content = {"n": panel.n, "panels": panel.panels, "members": panel.members, "best": panel.best}
        typer.echo(json.dumps({**content, "file": str(to)}))
    elif not (common.quiet or silent):
        _print(panel, to)


def _different(names: list[str], runs: list[str]) -> list[str]:
    """Return the judges' names, or where their scores are if two have the same."""
    return names if len(set(names)) == len(names) else list(runs)


def _print(panel: Panel, to: Path) -> None:
    from rich.text import Text

    from rmcalib._util.display import number, percent, short_names
    from rmcalib._util.terminal import add_row, clean_line, count, open_console, print_table, table

    console, level = open_console(), f"{panel.level:.0%} interval"
    title = f"On {panel.n:,} prompts; each is held out from the fits that it is measured with"
    rows = table(
        *("panel", "log loss", "right", "gain in log loss", level, "more right", level, "gains"),
        title=title,
        gap=1,
    )
    for row in panel.panels:
        cells = [number(row["log_loss"]), percent(row["accuracy"])]
        if row["gain"] is not None:
            cells += [f"{row['gain']:+.3f}", f"{row['gain_low']:+.3f} to {row['gain_high']:+.3f}"]
            more = [100 * row[f"accuracy_gain{end}"] for end in ("", "_low", "_high")]
            cells += [f"{more[0]:+.1f}", f"{more[1]:+.1f} to {more[2]:+.1f}"]
            cells.append("yes" if row["gains"] else "not shown")
        else:
            cells += ["–"] * 5
        add_row(rows, row["panel"], *cells)
    print_table(console, rows)
    console.print(Text("Gains: better than the best member, and better than a uniform guess."))
    members = table(
        "judge", "T", "weight", "log loss", "right", "lost without it", level, "", title="\nMembers", gap=1
    )
    names = short_names(row["judge"] for row in panel.members)
    for row in panel.members:
        add_row(
            members,
            names[row["judge"]],
            "–" if row["temperature"] is None else f"{row['temperature']:.3g}",
            number(row["weight"], 2),
            number(row["log_loss"]),
            percent(row["accuracy"]),
            f"{row['left_out']:+z.4f}",
            f"{row['low']:+z.4f} to {row['high']:+z.4f}",
            "redundant" if row["redundant"] else "",
        )
    print_table(console, members)
    chosen = ", ".join(f"{clean_line(name)} ({count(n, 'prompt')})" for name, n in panel.best.items())
    console.print(Text(f"\nBest member, chosen on the other folds: {chosen}."))
    console.print(Text(f"Scores of the panel: {clean_line(to)}"), soft_wrap=True)

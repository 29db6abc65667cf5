"""``rmcalib report``: the leaderboard by calibration of all scored models, or of a table."""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from rmcalib.cli import options
from rmcalib.cli.options import MORE, Common, Measuring, refuse
from rmcalib.cli.screen import session


def command(
    *runs: options.Source,
    metric: options.MetricName | None = None,
    benchmark: Annotated[options.Name | None, Parameter(metavar="NAME")] = None,
    table: options.InputFile | None = None,
    leaderboard: Annotated[options.Name | None, Parameter(metavar="FILE")] = None,
    output: options.Place = "runs/report",
    bradley_terry_only: Annotated[bool, Parameter(group=MORE)] = False,
    labels: options.InputFile | None = None,
    cluster: Annotated[str | None, Parameter(metavar="COLUMN", group=MORE)] = None,
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Make the leaderboard of runs, or of a table, and write its page.

    Parameters
    ----------
    metric
        What to sort by, such as overconfidence or ece, or a column of --table; default kept_information.
    benchmark
        Only runs of this benchmark; default all.
    table
        CSV instead of runs: model, leaderboard_score, categories, and ece, ece_score or --metric.
    leaderboard
        Check the scores against official ones: a CSV, or 'hub' (RewardBench 2's results).
    bradley_terry_only
        Leave out models whose rewards are known not to be on a Bradley-Terry scale.
    labels
        File of labels to join with the scores of every model, such as a filled sheet of `rmcalib label`.
    cluster
        Column that says which prompts belong together.
    """
    from rmcalib._util.storage import as_path, is_remote
    from rmcalib.leaderboards import report_from_runs, report_from_table
    from rmcalib.metrics import Settings

    shared: dict[str, Any] = {
        "metric": metric,
        "bradley_terry_only": bradley_terry_only,
        "settings": Settings(resamples=measuring.resamples, seed=measuring.seed),
    }
    folder = as_path(output)
    if not is_remote(folder) and (folder / "scores.parquet").is_file():
        raise ValueError(
            f"--output {folder}: is the folder of a run, which has its own report; name another one"
        )
    with session(common) as screen:
        if table is None:
            with screen.progress("reading runs") as draw:
                report = report_from_runs(
                    runs or ["real"],
                    benchmark=benchmark,
                    official=leaderboard,
                    labels=labels,
                    cluster=cluster,
                    on_model=lambda done, total, _: draw(done, total),
                    **shared,
                )
        else:
            others = {
                "RUN": runs,
                "--leaderboard": leaderboard,
                "--benchmark": benchmark,
                "--labels": labels,
                "--cluster": cluster,
            }
            refuse(others, "the leaderboard is made of --table")
            report = report_from_table(table, **shared)
        page = report.write(folder)
        screen.finish(report.document(), {**report.content(), "page": str(page)}, written={"Report": page})
    return 0

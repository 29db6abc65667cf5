"""``rmcalib report``: the leaderboard by calibration of all scored models, or of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from rmcalib.cli.options import (
    MAIN,
    MORE,
    Common,
    InputFile,
    Measuring,
    MetricName,
    Name,
    Names,
    Place,
    Recipes,
    Source,
    refuse,
)
from rmcalib.cli.screen import messages, progress, show

if TYPE_CHECKING:
    from rmcalib.report import Joint, Leaderboard

_REAL = "real"


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What the leaderboard is made of, and how it is sorted."""

    metric: MetricName | None = None
    """What to sort by, such as overconfidence, ece or brier, or a column of --table; default kept_information."""
    benchmark: Annotated[Name | None, Parameter(metavar="NAME")] = None
    """Only runs of this benchmark; default all."""
    table: InputFile | None = None
    """CSV instead of runs, with the columns model, leaderboard_score, categories, and ece, ece_score or --metric."""
    leaderboard: Annotated[Name | None, Parameter(metavar="FILE")] = None
    """Check the scores against official ones: a CSV, or 'hub' (RewardBench 2's results)."""
    output: Place = "runs/report"
    category: Annotated[Names, Parameter(metavar="NAME", group=MORE)] = ()
    """Category columns of --table; default those of RewardBench 2."""
    bradley_terry_only: Annotated[bool, Parameter(group=MORE)] = False
    """Leave out models whose rewards are known not to be on a Bradley-Terry scale."""
    method: Annotated[tuple[Literal["kendall", "spearman", "pearson"], ...], Parameter(group=MORE)] = (
        "kendall",
    )
    """Coefficient of correlation; several allowed."""
    recipes: Recipes = ()


def command(
    *runs: Source,
    wanted: Wanted = Wanted(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Make the leaderboard of runs, or of a table, and write its page."""
    from rmcalib._util.storage import as_path, is_remote
    from rmcalib.metrics import Settings
    from rmcalib.report import (
        Joint,
        leaderboard_from_table,
        official_from_hub,
        read_official,
        report_from_runs,
        write_joint,
        write_leaderboard,
    )

    shared: dict[str, Any] = {
        "metric": wanted.metric,
        "methods": tuple(dict.fromkeys(wanted.method)),
        "bradley_terry_only": wanted.bradley_terry_only,
        "recipes": wanted.recipes,
        "settings": Settings(resamples=measuring.resamples, seed=measuring.seed),
    }
    folder = as_path(wanted.output)
    if not is_remote(folder) and (folder / "scores.parquet").is_file():
        raise ValueError(
            f"--output {folder}: is the folder of a run, which has its own report; name another one"
        )
    with messages(quiet=common.quiet):
        if wanted.table is None:
            refuse({"--category": wanted.category}, "runs have their own categories; it belongs to --table")
            given = wanted.leaderboard
            official: Any = official_from_hub if given == "hub" else given and read_official(given)
            with progress("reading runs", quiet=common.quiet) as draw:
                board = report_from_runs(
                    runs or [_REAL],
                    benchmark=wanted.benchmark,
                    official=official,
                    on_model=None if draw is None else lambda done, total, _: draw(done, total, 0),
                    **shared,
                )
        else:
            others = {"RUN": runs, "--leaderboard": wanted.leaderboard, "--benchmark": wanted.benchmark}
            refuse(others, "the leaderboard is made of --table")
            board = leaderboard_from_table(wanted.table, categories=wanted.category or None, **shared)
        page = write_joint(board, folder) if isinstance(board, Joint) else write_leaderboard(board, folder)
    show(
        board,
        common,
        {**board.content(), "page": str(page)},
        written={"Report": page},
        follow=_next(board, built_in=not runs and not wanted.table),
    )
    return 0


def _next(board: Leaderboard | Joint, *, built_in: bool) -> str:
    if not built_in:
        return "rmcalib compare RUN RUN (two of the run folders)"
    first, second = [row["model"] for row in board.models][:2]
    return f"rmcalib compare real/{first} real/{second}"

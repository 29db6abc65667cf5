"""``rmcalib card``: publish the result of a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from rmcalib.cli.options import MAIN, Common, Measuring, Name, Place, Reading, Source
from rmcalib.cli.screen import messages, show, working
from rmcalib.cli.sources import open_run


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What is published, and where."""

    output: Place = "runs/card"
    model: Annotated[Name | None, Parameter(alias="-m", metavar="NAME")] = None
    """Name of the model; default the one in the run."""
    push_to_hub: Annotated[Name | None, Parameter(metavar="ID")] = None
    """Open a pull request on this model on the Hub; needs `hf auth login` or HF_TOKEN."""
    source: Annotated[Name | None, Parameter(metavar="URL")] = None
    """A page with details, for the Hub's .eval_results."""


def command(
    run: Source,
    /,
    *,
    wanted: Wanted = Wanted(),
    reading: Reading = Reading(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Write card.md, a figure, and .eval_results if the benchmark is a data set of the Hub."""
    from rmcalib._util.hub import check_repo_id
    from rmcalib._util.storage import as_path
    from rmcalib.report import evaluate, make_card, push_card, write_card

    if wanted.push_to_hub is not None:
        check_repo_id(wanted.push_to_hub)
    folder = as_path(wanted.output)
    with messages(quiet=common.quiet):
        scores = open_run(run, reading)
        name = wanted.model or str(scores.manifest["model"])
        with working(f"evaluating {name}", quiet=common.quiet):
            report = evaluate(scores, model=name, resamples=measuring.resamples, seed=measuring.seed)
        card = make_card(report, source=wanted.source)
        files = write_card(card, folder)
        url = None if wanted.push_to_hub is None else push_card(card, wanted.push_to_hub)
    show(
        report,
        common,
        {"files": [str(file) for file in files], "pull_request": url},
        written={"Card": folder / "card.md", "Pull request": url},
        follow="" if url else f"rmcalib card {run} --push-to-hub {name if '/' in name else 'ID'}",
    )
    return 0

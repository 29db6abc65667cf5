"""``rmcalib card``: publish the result of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from rmcalib.cli.options import Common, Measuring, Name, Place, Reading, Source
from rmcalib.cli.screen import command_line, session


def command(
    run: Source,
    /,
    *,
    output: Place = "runs/card",
    model: Annotated[Name | None, Parameter(alias="-m", metavar="NAME")] = None,
    push_to_hub: Annotated[Name | None, Parameter(metavar="ID")] = None,
    source: Annotated[Name | None, Parameter(metavar="URL")] = None,
    reading: Reading = Reading(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Write card.md, a figure, and .eval_results if the benchmark is a data set of the Hub.

    Parameters
    ----------
    model
        Name of the model; default the one in the run.
    push_to_hub
        Open a pull request on this model on the Hub; needs `hf auth login` or HF_TOKEN.
    source
        A page with details, for the Hub's .eval_results.
    """
    from rmcalib._util.hub import check_repo_id
    from rmcalib._util.secrets import masked
    from rmcalib._util.storage import as_path
    from rmcalib.report import evaluate, make_card

    if push_to_hub is not None:
        check_repo_id(push_to_hub)
    with session(common) as screen:
        scores = reading.open(run)
        name = masked(model or scores.name)
        with screen.progress(f"evaluating {name}"):
            evaluation = evaluate(scores, model=name, resamples=measuring.resamples, seed=measuring.seed)
        card = make_card(evaluation, source=source)
        files = card.write(output)
        url = None if push_to_hub is None else card.push(push_to_hub)
        screen.finish(
            replace(evaluation.document(), steps=()),
            {"files": [str(file) for file in files], "pull_request": url},
            written={"Card": as_path(output) / "card.md", "Pull request": url},
            then="" if url else command_line("card", run, "--push-to-hub", name if "/" in name else "ID"),
        )
    return 0

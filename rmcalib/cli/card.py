"""``rmcalib card``: publish the result of a run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from rmcalib.cli._shared.options import Common, Measuring, with_options
from rmcalib.cli._shared.places import Place, output_folder
from rmcalib.cli._shared.progress import plain_warnings, working

__all__ = ["write_model_card"]


@with_options(without=("ties",))
def write_model_card(
    *,
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run folder or a file of scores.")],
    output: Place = "card",
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the model; default the one in the run.")
    ] = None,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Open a pull request on this model on the Hub; needs `hf auth login` or HF_TOKEN.",
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option(metavar="URL", help="A page with details, for the Hub's .eval_results.")
    ] = None,
    organization: Annotated[
        str, typer.Option(metavar="NAME", help="Who ran the evaluation, for Every Eval Ever.")
    ] = "unknown",
    relationship: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Relation of the evaluator to the model: first_party, third_party, collaborative or other.",
        ),
    ] = "other",
    measuring: Measuring,
    common: Common,
) -> None:
    """Write a model-card section, a badge, and results for the Hub and for Every Eval Ever.

    Writes card.md (Markdown), calibration/badge.svg and reliability.png,
    .eval_results/*.yaml if the benchmark is a data set of the Hub, and
    every_eval_ever.json. With --push-to-hub, they also become a pull request.
    """
    from rmcalib._util.hub import check_repo_id
    from rmcalib._util.storage import shown
    from rmcalib.publish import Evaluator, make_card, push_card, write_card
    from rmcalib.report import evaluate, open_scores

    folder = output_folder(output)
    if model is not None and not model.strip():
        raise ValueError("--model: an empty name")
    if push_to_hub is not None:
        check_repo_id(push_to_hub)
    with plain_warnings(quiet=common.quiet, verbose=common.verbose):
        scores, label = open_scores(run)
        name, how = model or label, measuring.settings()
        with working(f"evaluating {name}", quiet=common.quiet):
            report = evaluate(scores, model=name, resamples=how.resamples, seed=how.seed, n_examples=0)
        evaluator = Evaluator(organization, relationship)
        card = make_card(report, source=source, evaluator=evaluator)
        files = write_card(card, folder)
        url = None if push_to_hub is None else push_card(card, push_to_hub)
    if common.json:
        typer.echo(json.dumps({"files": [str(file) for file in files], "pull_request": url}))
    elif not common.quiet:
        from rich.text import Text

        from rmcalib._util.terminal import clean_line, open_console

        console = open_console()
        console.print(Text(report.summary))
        for file in files:
            console.print(Text(clean_line(shown(file))), soft_wrap=True)
        if url is not None:
            console.print(Text(f"Pull request: {clean_line(url)}"), soft_wrap=True)

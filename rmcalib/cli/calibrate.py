"""``rmcalib calibrate``: fit a temperature, and write it where it helps."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared.options import Common, Seed, named_folder, refuse_options, with_options
from rmcalib.cli._shared.places import output_file, writes_stdout
from rmcalib.cli._shared.progress import plain_warnings, say
from rmcalib.cli._shared.scoring_options import RUNNING_A_MODEL, WHAT, Models, Scoring
from rmcalib.cli._shared.sources import benchmark_for, model_names, run_model

if TYPE_CHECKING:
    from rmcalib.repair import Calibration, Checkpoint
    from rmcalib.scores import Scores

__all__ = ["calibrate_model"]


@with_options()
def calibrate_model(
    *,
    context: typer.Context,
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN", help="A run folder or a file of scores; without it, --model is scored first."
        ),
    ] = None,
    model: Models = None,
    scoring: Scoring,
    to: Annotated[
        Path,
        typer.Option(
            metavar="FILE", parser=output_file, help="Where to write the calibrator.", rich_help_panel=WHAT
        ),
    ] = Path("calibrator.json"),
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=named_folder,
            help="Also write a model whose rewards are divided by the temperature, and check its rewards.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    push_to_hub: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Upload the --checkpoint to this repository on the Hub; needs `hf auth login` or HF_TOKEN.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    seed: Seed = 0,
    common: Common,
) -> None:
    """Fit the temperature of a judge's rewards, and report what it improves on held-out prompts.

    Takes labelled prompts of the kind you will use the judge on: a run folder,
    a file of scores, or --model with --benchmark. Use the calibrator with
    `rmcalib eval --calibrator calibrator.json`, or use the --checkpoint like any
    other model.

    Exit codes: 0 written; 2 bad input, or refused because no temperature helps.
    """
    from rmcalib.repair import calibrate, replaces_calibrator

    with plain_warnings(quiet=common.quiet, verbose=common.verbose):
        if source is not None:
            useful = () if checkpoint is None else _LOADING
            unused = [name for name in ("model", "benchmark", *RUNNING_A_MODEL) if name not in useful]
            refuse_options(context, unused, "scores that exist already")
        silent = writes_stdout({"--to": to}, as_json=common.json)
        replaced = replaces_calibrator(to)
        _check_destination(checkpoint, push_to_hub, scoring)
        scores = _scores(source, model, scoring, quiet=common.quiet)
        result = calibrate(scores, seed=seed)
        result.calibrator.save(to)
        if replaced and not common.quiet:
            say(f"replaced {to}, an earlier calibrator")
        made = None
        if checkpoint is not None:
            made = _write(result, checkpoint, model[0] if model else None, push_to_hub, scoring)
    if common.json:
        typer.echo(json.dumps(_content(result, to, made)))
    elif not (common.quiet or silent):
        _print(result, to)
        _print_checkpoint(made)


_LOADING = ("model", "revision", "device", "dtype", "token_budget", "trust_remote_code", "allow_pickle")
"""Options that a checkpoint needs, even if the scores exist already."""


def _check_destination(folder: Path | None, repo_id: str | None, scoring: Scoring) -> None:
    """Refuse a checkpoint that could not be written, before any scoring."""
    from rmcalib.repair import check_destination

    if folder is None:
        if repo_id is not None:
            raise ValueError("--push-to-hub: give a folder for the model with --checkpoint")
        return
    if scoring.endpoint is not None:
        raise ValueError("--checkpoint: needs the weights, which a served model (--endpoint) does not have")
    if scoring.reference is not None or scoring.reference_free is not None:
        raise ValueError("--checkpoint: a policy's rewards do not come from a linear layer; use --calibrator")
    if scoring.judge is not None:
        raise ValueError("--checkpoint: rewards of --judge do not come from a linear layer; use --calibrator")
    check_destination(folder, repo_id)


def _write(
    result: Calibration, folder: Path, model: str | None, repo_id: str | None, scoring: Scoring
) -> tuple[Checkpoint, str | None]:
    from rmcalib.repair import push_checkpoint, write_checkpoint

    options = scoring.load_options()
    made = write_checkpoint(result, folder, model=model, repo_id=repo_id, options=options)
    return made, None if repo_id is None else push_checkpoint(folder, repo_id)


def _scores(source: str | None, model: list[str] | None, scoring: Scoring, *, quiet: bool) -> Scores:
    if source is not None:
        from rmcalib.report import open_scores

        return open_scores(source)[0]
    names = model_names(model)
    if len(names) > 1:
        raise ValueError("--model: a calibrator belongs to one model, so give one")
    bench = benchmark_for(names, scoring, quiet=quiet)
    assert names[0] is not None and bench is not None  # noqa: PT018 (both follow from having no scores)
    return run_model(names[0], bench, scoring, quiet=quiet)


def _content(result: Calibration, to: Path, made: tuple[Checkpoint, str | None] | None) -> dict[str, Any]:
    content = {
        "calibrator": asdict(result.calibrator),
        "file": str(to),
        "measured": result.rows,
        "gain": dict(zip(("value", "low", "high"), result.gain, strict=True)),
        "categories": result.categories,
        "p_equal": result.p_equal,
        "warnings": result.warnings,
    }
    if made is not None:
        about = {key: str(v) if isinstance(v, Path) else v for key, v in asdict(made[0]).items()}
        content["checkpoint"] = {**about, "url": made[1]}
    return content


def _print(result: Calibration, to: Path) -> None:
    from rich.text import Text

    from rmcalib._util.terminal import add_row, clean_line, open_console, print_table, table
    from rmcalib.repair import METRIC_LABELS

    console, one = open_console(), result.calibrator
    console.print(
        Text(
            f"Temperature {one.temperature:.3g} [{one.low:.3g}, {one.high:.3g}], fitted on "
            f"{one.fitted_on['n']:,} prompts."
        )
    )
    columns = table("", "before", "after, on held-out prompts")
    rows = {(row["stage"], row["metric"]): row for row in result.rows if row["category"] == "overall"}
    for metric, label in METRIC_LABELS.items():
        add_row(columns, label, *(_shown(rows[stage, metric]) for stage in ("before", "after")))
    print_table(console, columns)
    if len(result.categories) > 1:
        columns = table("category", "its own temperature", "prompts")
        for row in result.categories:
            limits = f"{row['temperature']:.3g} [{row['low']:.3g}, {row['high']:.3g}]".replace("inf", "∞")
            add_row(columns, clean_line(str(row["category"])), limits, f"{row['n']:,}")
        print_table(console, columns)
    for warning in result.warnings:
        say(f"warning: {clean_line(warning)}")
    console.print(Text(f"\nCalibrator: {to.resolve()}"), soft_wrap=True)


def _print_checkpoint(made: tuple[Checkpoint, str | None] | None) -> None:
    from rich.text import Text

    from rmcalib._util.terminal import open_console

    if made is None:
        return
    one, address = made
    how = "" if one.recipe_file is None else f" --recipes {one.recipe_file}"
    lines = [
        f"Checkpoint: {one.folder.resolve()}",
        f"  Its rewards are r / {one.temperature:.3g} (checked; largest relative difference "
        f"{one.difference:.1e}).",
        f"  Use it: rmcalib eval --model {one.folder}{how}",
        *([] if address is None else [f"Uploaded: {address}"]),
    ]
    open_console().print(Text("\n".join(lines)), soft_wrap=True)


def _shown(row: dict[str, Any]) -> str:
    from rmcalib._util.display import number, percent, points

    if row["metric"] == "overconfidence":
        return points(row, unit=" points")
    show = percent if row["metric"] in ("mean_confidence", "accuracy") else number
    limits = "" if row["low"] is None else f" [{show(row['low'])}, {show(row['high'])}]"
    return f"{show(row['value'])}{limits}"

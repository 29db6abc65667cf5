"""``rmcalib compare``: two models or checkpoints on the same prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Parameter

from rmcalib.cli.conditions import check_categories, parse_condition
from rmcalib.cli.options import (
    MAIN,
    Common,
    FailIf,
    InputFile,
    Markdown,
    Measuring,
    OutputFile,
    Place,
    Reading,
    Recipes,
    Source,
    writes_stdout,
)
from rmcalib.cli.screen import messages, say, show, working
from rmcalib.cli.sources import open_run, say_whether_it_holds

if TYPE_CHECKING:
    from rmcalib.scores import Scores


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What is written and checked."""

    fail_if: FailIf = ()
    calibrator: tuple[InputFile, ...] = ()
    """Divide the rewards of a model by the temperature that was fitted for it; may be given for both models."""
    to: OutputFile | None = None
    """Write all rows as CSV; - is standard output."""
    markdown: Markdown = None
    output: Place = "runs/compare"
    recipes: Recipes = ()


def command(
    a: Source,
    b: Source,
    /,
    *,
    wanted: Wanted = Wanted(),
    reading: Reading = Reading(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Compare B with A: differences are B − A."""
    from rmcalib._util.files import write_csv, write_text
    from rmcalib._util.storage import as_path
    from rmcalib.metrics import compare
    from rmcalib.report import document_of, markdown_summary, write_page

    conditions = [parse_condition(text) for text in wanted.fail_if]
    silent = writes_stdout(common, to=wanted.to, markdown=wanted.markdown)
    common = replace(common, quiet=common.quiet or silent)
    with messages(quiet=common.quiet):
        pair = _calibrated([open_run(a, reading), open_run(b, reading)], wanted.calibrator, common)
        names = [str(one.manifest["model"]) for one in pair]
        if names[0] == names[1]:
            names = [f"{name} ({place})" for name, place in zip(names, (a, b), strict=True)]
        with working(f"comparing {names[0]} and {names[1]}", quiet=common.quiet):
            found = compare(
                *pair,
                names=(names[0], names[1]),
                recipes=wanted.recipes,
                resamples=measuring.resamples,
                seed=measuring.seed,
            )
        check_categories(conditions, dict.fromkeys(row["category"] for row in found.rows))
        met = [one for one in conditions if one.holds(one.difference(found.rows))]
        holding = [
            f"{one.text} holds: {one.subject} of the difference is {one.difference(found.rows):.4g}"
            for one in met
        ]
        page = write_page(found, as_path(wanted.output) / "report.html")
        if wanted.to is not None:
            write_csv(wanted.to, found.rows)
        if wanted.markdown is not None:
            write_text(wanted.markdown, markdown_summary([document_of(found)], holding))
        if not common.quiet:
            _warn_of_prompts(*pair)
    content = {
        "a": found.a,
        "b": found.b,
        "differences": found.rows,
        "conditions_met": [one.text for one in met],
    }
    show(
        found,
        common,
        {**content, "page": str(page)},
        written={"Report": page},
        follow=f"rmcalib combine {a} {b}",
    )
    for line in holding:
        say(line)
    return int(bool(met))


def _calibrated(pair: list[Scores], files: tuple[Path, ...], common: Common) -> list[Scores]:
    """Apply each calibrator to the scores of the model that it was fitted for, and say whether it holds."""
    from rmcalib.repair import Calibrator

    models = [str(one.manifest["model"]) for one in pair]
    for file in files:
        calibrator = Calibrator.load(file)
        own = [i for i, model in enumerate(models) if calibrator.model in ("", model)]
        if not own:
            raise ValueError(
                f"--calibrator {file}: was fitted for {calibrator.model}, and these are scores of "
                f"{' and '.join(dict.fromkeys(models))}"
            )
        for i in own:
            if not common.quiet:
                say_whether_it_holds(calibrator, pair[i], models[i])
            pair[i] = calibrator.apply(pair[i])
    return pair


def _warn_of_prompts(a: Scores, b: Scores) -> None:
    ids = set(a.item_id.tolist()), set(b.item_id.tolist())
    common = len(ids[0] & ids[1])
    left_out = len(ids[0] ^ ids[1])
    if left_out:
        say(f"warning: compared on {common:,} prompts; {left_out:,} others are in only one of the two")

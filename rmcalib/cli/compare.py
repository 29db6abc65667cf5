"""``rmcalib compare``: two models or checkpoints on the same prompts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rmcalib.cli import options
from rmcalib.cli.screen import Screen, say, session
from rmcalib.cli.sources import say_if_it_holds
from rmcalib.metrics.conditions import check_categories, holding, parse_condition

if TYPE_CHECKING:
    from rmcalib.scores import Scores


def command(
    a: options.Source,
    b: options.Source,
    /,
    *,
    fail_if: options.FailIf = (),
    calibrator: tuple[options.InputFile, ...] = (),
    to: options.OutputFile | None = None,
    markdown: options.Markdown = None,
    output: options.Place = "runs/compare",
    reading: options.Reading = options.Reading(),
    measuring: options.Measuring = options.Measuring(),
    common: options.Common = options.Common(),
) -> int:
    """Compare B with A: differences are B − A.

    Parameters
    ----------
    calibrator
        Divide the rewards of a model by the temperature that was fitted for it; may be given for both models.
    to
        Write all rows as CSV; - is standard output.
    """
    from rmcalib._util.files import write_csv, write_text
    from rmcalib._util.storage import as_path
    from rmcalib.metrics import compare
    from rmcalib.report.card import markdown_summary

    conditions = [parse_condition(text) for text in fail_if]
    with session(common, (a, b, *map(str, calibrator), *reading.files), to=to, markdown=markdown) as screen:
        pair = _calibrated([reading.open(a), reading.open(b)], calibrator, screen)
        names = [scores.name for scores in pair]
        if names[0] == names[1]:
            names = [f"{name} ({place})" for name, place in zip(names, (a, b), strict=True)]
        with screen.progress(f"comparing {names[0]} and {names[1]}"):
            result = compare(
                *pair,
                names=(names[0], names[1]),
                resamples=measuring.resamples,
                seed=measuring.seed,
            )
        if not calibrator and reading == options.Reading():  # only then do other commands read the same
            result = replace(result, sources=(a, b))
        check_categories(conditions, (row["category"] for row in result.rows))
        met = holding({each: each.difference(result.rows, result.view) for each in conditions})
        page = result.to_html(as_path(output) / "report.html")
        if to is not None:
            write_csv(to, result.rows)
        if markdown is not None:
            write_text(markdown, markdown_summary([result.document()], met.values()))
        content = {"a": result.a, "b": result.b, "differences": result.rows, "page": str(page)}
        screen.finish(
            result.document(),
            {**content, "conditions_met": list(met)},
            written={"Report": page},
        )
        for line in met.values():
            say(line)
    return int(bool(met))


def _calibrated(pair: list[Scores], files: tuple[Path, ...], screen: Screen) -> list[Scores]:
    """Apply each calibrator to the scores of the model that it was fitted for, and say whether it holds."""
    from rmcalib.repair import Calibrator

    models = [scores.name for scores in pair]
    for file in files:
        calibrator = Calibrator.load(file)
        fitted = [i for i, model in enumerate(models) if calibrator.model in ("", model)]
        if not fitted:
            raise ValueError(
                f"--calibrator {file}: was fitted for {calibrator.model}, and these are scores of "
                f"{' and '.join(dict.fromkeys(models))}"
            )
        for i in fitted:
            say_if_it_holds(calibrator, pair[i], screen)
            pair[i] = calibrator.apply(pair[i])
    return pair

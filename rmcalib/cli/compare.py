"""``rmcalib compare``: two models or checkpoints on the same prompts."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared import scoring_options as options
from rmcalib.cli._shared.calibrators import apply_to_own
from rmcalib.cli._shared.options import Common, Markdown, Measuring, with_options
from rmcalib.cli._shared.places import input_file, refuse_overwriting
from rmcalib.cli._shared.progress import plain_warnings, say, working

if TYPE_CHECKING:
    from rmcalib.judges import Recipe
    from rmcalib.scores import Scores

__all__ = ["compare"]

_ABOUT = "A run folder, or a file of scores (.parquet, .jsonl, .json); or the URL of one."


@with_options()
def compare(
    *,
    a: Annotated[str, typer.Argument(metavar="A", help=_ABOUT)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same, for the other model.")],
    category: Annotated[
        str, typer.Option(metavar="NAME", help="The category to print, or 'all'. Files always have all.")
    ] = "overall",
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write all rows as CSV to this file or URL."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with code 1 if this holds for a difference B - A, such as 'accuracy.high<0' or "
            "'lost_information.low>0.01'; 'abs(overconfidence).low>0' is about the difference of the gaps' "
            "sizes; several allowed.",
        ),
    ] = None,
    markdown: Markdown = None,
    calibrator: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            parser=input_file,
            help="Divide the rewards by the temperature that `rmcalib calibrate` wrote for this model, and "
            "check that it holds here; may be given for both models.",
        ),
    ] = None,
    recipes: options.Recipes = None,
    measuring: Measuring,
    common: Common,
) -> None:
    """Compare two models on the same prompts: the difference of every metric, with intervals.

    Exit codes: 0 done; 1 a --fail-if holds; 2 bad usage or bad input.
    """
    from rmcalib._util.files import write_csv, write_text
    from rmcalib._util.terminal import clean_line
    from rmcalib.cli._shared.conditions import check_categories, parse_condition
    from rmcalib.judges import recipe_of_run, registry, why_no_calibration
    from rmcalib.metrics import compare_scores
    from rmcalib.publish import comparison_summary
    from rmcalib.report import open_scores

    conditions = [parse_condition(text) for text in fail_if or []]
    for option, target in (("--output", output), ("--markdown", markdown)):
        refuse_overwriting(option, target, (a, b, *(calibrator or ())))
    quiet = common.quiet
    with plain_warnings(quiet=quiet, verbose=common.verbose):
        (first, name_a), (second, name_b) = (open_scores(place) for place in (a, b))
        first, second = apply_to_own((first, second), calibrator or (), quiet=quiet)
        known = registry(recipes or ())
        about = [recipe_of_run(name, s.manifest, known) for name, s in ((name_a, first), (name_b, second))]
        if name_a == name_b:
            name_a, name_b = f"{name_a} ({a})", f"{name_b} ({b})"
        reasons = why_no_calibration(about[0]), why_no_calibration(about[1])
        with working(f"comparing {name_a} and {name_b}", quiet=quiet):
            rows = compare_scores(first, second, no_calibration=reasons, settings=measuring.settings())
        found = list(dict.fromkeys(row["category"] for row in rows))
        if category not in (*found, "all"):
            raise ValueError(f"--category: unknown {category!r} (have: {', '.join(found)}, all)")
        check_categories(conditions, [name for name in found if name != "overall"])
        met = [(one, one.difference(rows)) for one in conditions if one.holds(one.difference(rows))]
        failed = [f"{one.text} holds: the difference of {one.subject} is {value:.4g}" for one, value in met]
        if output is not None:
            write_csv(output, rows)
        if not quiet:
            _warn_of_scales(about)
            _warn_of_prompts(first, second)
    names = clean_line(name_a), clean_line(name_b)
    if markdown is not None:
        write_text(markdown, comparison_summary(names, rows, failed))
    if common.json:
        content = {"a": names[0], "b": names[1], "differences": rows}
        typer.echo(json.dumps({**content, "conditions_met": [one.text for one, _ in met]}))
    elif not quiet:
        _print(rows, names, category, measuring.resamples)
    for line in failed:
        say(line)
    if failed:
        raise typer.Exit(1)


def _warn_of_scales(recipes: Iterable[Recipe]) -> None:
    """Warn of models whose rewards are not on a Bradley-Terry scale."""
    from rmcalib._util.terminal import clean_line
    from rmcalib.judges import scale_note, why_no_calibration

    for recipe in dict.fromkeys(recipes):
        reason = why_no_calibration(recipe)
        note = f"calibration is not compared: {reason}" if reason else scale_note(recipe)
        if note:
            say(clean_line(f"warning: {recipe.model}: {note}"))


def _warn_of_prompts(a: Scores, b: Scores) -> None:
    from rmcalib._util.terminal import count

    ids = set(a.item_id.tolist()), set(b.item_id.tolist())
    common = len(ids[0] & ids[1])
    left_out = len(ids[0]) + len(ids[1]) - 2 * common
    if left_out:
        verb = "is" if left_out == 1 else "are"
        say(f"warning: compared on {count(common, 'prompt')}; {left_out:,} {verb} in only one of the two")


_WIDTH = 100


def _print(rows: list[dict[str, Any]], names: tuple[str, str], category: str, resamples: int) -> None:
    from rich.text import Text

    from rmcalib._util.display import p_value, signed
    from rmcalib._util.terminal import add_row, clean_line, open_console, print_table, table
    from rmcalib.report import HEADLINE

    terminal = open_console()
    terminal.print(Text(f"A: {names[0]}\nB: {names[1]}\n"), soft_wrap=True)
    shown = list(dict.fromkeys(row["category"] for row in rows)) if category == "all" else [category]
    for name in shown:
        mine = {row["metric"]: row for row in rows if row["category"] == name}
        for side in ("a", "b"):
            if sentence := _sentence(mine, side):
                terminal.print(Text(sentence))
        headings = ("metric", "A", "B", "B - A", "95% interval", "p-value", "better")
        columns = table(*headings, title=f"\n{clean_line(name)}", gap=1)  # at 80 columns, most rows fit
        # The headline first, under its own names.
        for metric in dict.fromkeys([*(key for key in HEADLINE if key in mine), *mine]):
            row = mine[metric]
            interval = "" if row["low"] is None else f"{signed(row['low'])} to {signed(row['high'])}"
            values = [_value(row[side]) for side in ("a", "b")]
            p_text = "" if row["p_value"] is None else p_value(row["p_value"], 2 / (resamples + 1))
            label = HEADLINE.get(metric, metric)
            heading = metric if label.replace(" ", "_") == metric else f"{label} ({metric})"
            add_row(
                columns, heading, *values, signed(row["difference"]), interval, p_text, row["better"].upper()
            )
        print_table(terminal, columns, least=_WIDTH)
    for note in dict.fromkeys(row["note"] for row in rows if row["note"]):
        terminal.print(Text(f"\nNo calibration of {clean_line(note)}."), soft_wrap=True)
    if any("length" in row["metric"] for row in rows):
        terminal.print(Text("\nLengths are in tokens; a report uses characters if it has the texts."))
    terminal.print("\n'better' is empty where the interval includes 0. One in twenty leaves 0 out by chance.")
    terminal.print("Of two gaps, the smaller one is better, whatever their signs.")


def _sentence(rows: dict[str, dict[str, Any]], side: str) -> str:
    """Say what A or B says, and how often it is right or people agree; empty without probabilities."""
    from rmcalib._util.display import number, percent, points

    says, agree, gap = (
        rows.get(name, {}).get(side) for name in ("vote_confidence", "vote_agreement", "vote_gap")
    )
    if says is not None and agree is not None and gap is not None:
        people = f"{side.upper()} says {percent(says)}, people agree {percent(agree)} of the time"
        return f"{people}: gap {points({'value': gap}, unit=' points')}."
    says, right, gap = (
        rows.get(name, {}).get(side) for name in ("mean_confidence", "accuracy", "overconfidence")
    )
    if says is None or right is None or gap is None:
        return ""
    lost = rows.get("lost_information", {}).get(side)
    more = "" if lost is None else f"; lost information {number(lost)}"
    start = f"{side.upper()} says {percent(says)} and is right {percent(right)} of the time"
    return f"{start}: gap {points({'value': gap}, unit=' points')}{more}."


def _value(value: float | None) -> str:
    from rmcalib._util.display import number

    return number(value)

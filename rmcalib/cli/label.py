"""``rmcalib label``: draw prompts for people to label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from rmcalib.cli.options import Common, Folder, InputFile, Name, Seed, Source
from rmcalib.cli.screen import session


def command(
    source: Source,
    /,
    *,
    n: Annotated[int, Parameter(metavar="N", validator=Number(gte=1))] = 100,
    output: Annotated[Folder, Parameter(alias="-o")],
    by: Annotated[Name | None, Parameter(metavar="COLUMN")] = None,
    ask: Literal["best", "correct", "chosen"] | None = None,
    last: Annotated[int | None, Parameter(metavar="STEPS", validator=Number(gte=1))] = None,
    labels: InputFile | None = None,
    more: bool = False,
    second: Annotated[Name | None, Parameter(metavar="RUN")] = None,
    benchmark: Annotated[Name | None, Parameter(alias="-b", metavar="NAME")] = None,
    columns: Annotated[str | None, Parameter(metavar="ROLE=COLUMN,...")] = None,
    seed: Seed = 0,
    common: Common = Common(),
) -> int:
    """Draw prompts to label, and write a page and a sheet to label them with.

    Parameters
    ----------
    n
        How many prompts to draw.
    output
        Folder for label.html and sheet.csv.
    by
        Draw in proportion to this column, such as category or step.
    ask
        Which response is the best, whether each is correct, or only the one with the largest reward (chosen); default
        what labels of these scores mean.
    last
        Draw from the last steps of a training run only.
    labels
        Earlier labels, for --more; not needed if the scores have them, such as those of a run folder.
    more
        Draw further prompts, most where the labels so far show errors.
    second
        Scores of a second judge: prompts where it is less confident are drawn more often.
    benchmark
        Where the texts are, if not in the scores.
    columns
        Which column is what, such as prompt=id,reward=score.
    """
    import textwrap

    from rmcalib.cli.screen import command_line, print_json, print_lines
    from rmcalib.scores import label
    from rmcalib.scores._label_page import DOWNLOADED

    with session(common) as screen:
        if labels is not None and not more:
            raise ValueError("--labels: has no effect without --more")
        drawn = label(
            source,
            n,
            seed,
            by,
            ask=ask,
            more=more,
            second=second,
            last=last,
            benchmark=benchmark,
            columns=columns,
            labels=labels,
        )
        _keep_labels(output / "sheet.csv", drawn.rows)
        page, sheet = drawn.to_html(output / "label.html"), drawn.to_csv(output / "sheet.csv")
        if not drawn.has_texts:
            screen.say("warning: the scores have no texts, so the page shows ids; --benchmark NAME has them")
        if common.json:
            print_json(
                {"n": drawn.n, "of": drawn.of, "how": drawn.how, "page": str(page), "sheet": str(sheet)}
            )
        elif not common.quiet:
            options = [] if columns is None else ["--columns", columns]
            opinion = [] if second is None else ["--second", second]
            commands = [command_line("eval", "--scores", source, *options, *opinion)]
            if drawn.ask == "chosen":
                commands.append(command_line("best-of-n", source, *options))
            if drawn.of_rollouts and drawn.ask != "best":
                commands.append(command_line("watch", source, *options))
            print_lines(
                *textwrap.wrap(f"{drawn.n:,} of {drawn.of:,} prompts, drawn {drawn.how}. {drawn.plan}.", 80),
                f'Page: {page} (open it in a browser, label, press "Save labels")',
                f"Sheet: {sheet} (or fill its column `label`, and give it in place of labels.jsonl)",
                *(f"Next: {command} --labels {DOWNLOADED}" for command in commands),
            )
    return 0


def _keep_labels(sheet: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Refuse to replace a sheet with labels that the new rows do not have: somebody filled it in."""
    from rmcalib.scores._files import read_table
    from rmcalib.scores._joining import label_rows, value_of
    from rmcalib.scores._schema import as_number

    if not sheet.is_file():
        return
    kept = {(str(row["prompt"]), str(row["response"])): row["label"] for row in rows}
    for row in label_rows(read_table(sheet)):
        if row.label and as_number(kept.get((row.prompt, str(row.response)), "")) != value_of(row.label):
            raise ValueError(f"{sheet}: has labels, which would be lost; choose another --output folder")

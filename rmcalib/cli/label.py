"""``rmcalib label``: draw prompts for people to label."""

from __future__ import annotations

from typing import Annotated, Literal

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
    ask: Literal["best", "correct"] | None = None,
    labels: InputFile | None = None,
    more: bool = False,
    second: InputFile | None = None,
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
        Draw in proportion to this column, such as category.
    ask
        Which response is the best, or whether each is correct; default what labels of these scores mean.
    labels
        Labels that there are already, for --more.
    more
        Draw further prompts, most where the labels so far show errors.
    second
        Scores of a second judge: prompts where it is unsure are drawn more often.
    benchmark
        Where the texts are, if not in the scores.
    columns
        Which column is what, such as prompt=id,reward=score.
    """
    from rmcalib.cli.screen import print_json, print_lines
    from rmcalib.scores import label

    with session(common) as screen:
        if more and labels is None:
            raise ValueError("--more: needs the labels so far, --labels FILE")
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
            benchmark=benchmark,
            columns=columns,
            labels=labels,
        )
        page, sheet = drawn.to_html(output / "label.html"), drawn.to_csv(output / "sheet.csv")
        if not drawn.has_texts:
            screen.say("warning: the scores have no texts, so the page shows ids; --benchmark NAME has them")
        if common.json:
            print_json(
                {"n": drawn.n, "of": drawn.of, "how": drawn.how, "page": str(page), "sheet": str(sheet)}
            )
        elif not common.quiet:
            print_lines(
                f"{drawn.n:,} of {drawn.of:,} prompts, drawn {drawn.how}. {drawn.plan}.",
                f"Page: {page} (open it, label, save labels.jsonl)",
                f"Sheet: {sheet} (or fill its column `label`)",
                f"Next: rmcalib eval --scores {source} --labels labels.jsonl",
            )
    return 0

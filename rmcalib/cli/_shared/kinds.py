"""Options about scores of other kinds than rewards, for the commands that read files of scores."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from rmcalib.cli._shared.scoring_options import WHAT

__all__ = ["MissingScores", "Steps", "reading_options"]

Steps = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How to combine the step scores of a process reward model: product (default), min, last, mean or "
        "geometric_mean.",
        rich_help_panel=WHAT,
    ),
]
MissingScores = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What to do about responses without a score: refuse (the file; default), lowest (count them "
        "as the lowest; default for RewardMATH's files), or drop (their prompts).",
        rich_help_panel=WHAT,
    ),
]


def reading_options(steps: str | None, missing: str | None) -> dict[str, Any]:
    """Return the options of `load_all_scores`; a ValueError names a value that is not known."""
    from rmcalib.scores import MISSING, STEPS

    for option, value, have in (("steps", steps, STEPS), ("missing", missing, MISSING)):
        if value is not None and value not in have:
            raise ValueError(f"--{option}: unknown {value!r} (have: {', '.join(have)})")
    return {"steps": steps or STEPS[0], "missing": missing}

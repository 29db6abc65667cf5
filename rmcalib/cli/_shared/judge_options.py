"""The options of language models that judge, for ``eval`` and ``score``, and what their use costs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib._util.terminal import count
from rmcalib.cli._shared.places import input_file

if TYPE_CHECKING:
    from rmcalib.benchmarks import Benchmark
    from rmcalib.judges import Cost

__all__ = [
    "JUDGING",
    "DryRun",
    "JudgeKind",
    "JudgePromptFile",
    "JudgeSeed",
    "MaxCharacters",
    "Placements",
    "Votes",
    "show_costs",
]

JUDGING = ("judge_prompt", "votes", "placements", "judge_seed", "max_characters")
"""Options that need --judge."""
_PANEL = "Language models that judge"

JudgeKind = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Let a language model judge: letter, yes-no, rating, votes or rewardbench2. It is loaded, or "
        "asked over the chat API of --endpoint.",
        rich_help_panel=_PANEL,
    ),
]
JudgePromptFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=input_file,
        help="Use the questions of this YAML file instead of the built-in ones.",
        rich_help_panel=_PANEL,
    ),
]
Votes = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Sampled answers per question of --judge votes; default 8.",
        rich_help_panel=_PANEL,
    ),
]
Placements = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Number of orders in which a judge sees the responses that it compares; default the number of "
        "responses.",
        rich_help_panel=_PANEL,
    ),
]
JudgeSeed = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Random seed of the orders and of sampled answers.", rich_help_panel=_PANEL
    ),
]
MaxCharacters = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Cut prompts and responses to this many characters; default no limit.",
        rich_help_panel=_PANEL,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Only count the requests and tokens of --judge.", rich_help_panel=_PANEL),
]


def show_costs(
    names: Sequence[str | None], benchmark: Benchmark, options: dict[str, Any], *, as_json: bool
) -> None:
    """Print what judging a benchmark costs. No server is asked, and no model is loaded."""
    from rmcalib.judges import GenerativeJudge, load_judge

    costs: dict[str, Cost] = {}
    for name in names:
        judge = load_judge(str(name), **options)
        if not isinstance(judge, GenerativeJudge):
            raise ValueError(
                "--dry-run: counts the requests of a language model that judges, so give --judge"
            )
        costs[judge.name] = judge.cost(benchmark.items)
    if as_json:
        typer.echo(json.dumps({name: dataclasses.asdict(cost) for name, cost in costs.items()}))
        return
    for name, cost in costs.items():
        typer.echo(
            f"{name} on {benchmark.name}: {count(cost.prompts, 'prompt')}, "
            f"{count(cost.requests, 'request')}, about {cost.prompt_tokens:,} tokens to read "
            f"(at 4 characters each), at most {cost.answer_tokens:,} to write"
        )

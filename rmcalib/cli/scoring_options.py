"""Options that ``eval`` and ``score`` share: what to score, with what, and how."""

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "AllowPickle",
    "BenchmarkName",
    "BenchmarkRevision",
    "Device",
    "Dtype",
    "Export",
    "Fresh",
    "Limit",
    "MaxLength",
    "Models",
    "Recipes",
    "Revision",
    "TokenBudget",
    "TrustRemoteCode",
]

_WHAT, _HOW = "What to score", "How to score"

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="ID",
        help="A Hub id, a local folder, or 'demo' (the default); may be given several times.",
        rich_help_panel=_WHAT,
    ),
]
BenchmarkName = Annotated[
    str | None,
    typer.Option(
        "--benchmark",
        "-b",
        metavar="NAME",
        help="'reward-bench-2' (default), 'demo' (default for the demo model), a Hub data set, or a .jsonl, "
        ".json or .parquet file.",
        rich_help_panel=_WHAT,
    ),
]
BenchmarkRevision = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Branch, tag or commit of the benchmark.", rich_help_panel=_WHAT),
]
Limit = Annotated[
    int | None,
    typer.Option(min=1, help="Score at most so many prompts, spread evenly.", rich_help_panel=_WHAT),
]
Revision = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Branch, tag or commit of the model.", rich_help_panel=_HOW),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.", rich_help_panel=_HOW)]
Dtype = Annotated[
    str,
    typer.Option(
        help="auto (float32 on a CPU, else the checkpoint's), float32, bfloat16 or float16.",
        rich_help_panel=_HOW,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        help="Cut longer texts; default the model's own limit, at most 4096.",
        rich_help_panel=_HOW,
    ),
]
TokenBudget = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        help="Tokens in one forward pass; default what free memory allows.",
        rich_help_panel=_HOW,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option("--trust-remote-code", help="Let the model's own Python code run.", rich_help_panel=_HOW),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Load pickle weights, which can run code, where there are no safetensors.",
        rich_help_panel=_HOW,
    ),
]
Recipes = Annotated[
    list[Path] | None,
    typer.Option(metavar="FILE", help="YAML file with recipes of your own models.", rich_help_panel=_HOW),
]
Fresh = Annotated[
    bool,
    typer.Option("--fresh", help="Replace what another run left in the output folder.", rich_help_panel=_HOW),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export-rewardbench", metavar="FILE", help="Also write the scores in RewardBench's JSON form."
    ),
]

"""The scoring options of ``eval``, ``score`` and ``batch``: what to score, with what, and how."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rmcalib.cli._shared.judge_options import (
    JUDGING,
    JudgeKind,
    JudgePromptFile,
    JudgeSeed,
    MaxCharacters,
    Placements,
    Votes,
)
from rmcalib.cli._shared.options import REPORT
from rmcalib.cli._shared.places import Place, input_file, output_file

if TYPE_CHECKING:
    from rmcalib.judges import LoadOptions

__all__ = [
    "ONE_JUDGE",
    "RUNNING_A_MODEL",
    "SERVED",
    "SERVING",
    "WHAT",
    "ApiKeyEnv",
    "EndpointKind",
    "Export",
    "Models",
    "Scoring",
    "ServedName",
    "TokenizeHere",
]

SERVING = (
    *("endpoint_kind", "served_name", "tokenize_here", "api_key_env", "concurrency", "timeout"),
    *("reference_endpoint", "reference_served_name"),
)
"""Options that need --endpoint."""
ONE_JUDGE = ("endpoint", *SERVING, "reference", "reference_free", "beta", "judge", *JUDGING)
"""Options of single judges, which the lists of a batch have in their entries."""
_JUDGE_OPTIONS = (
    *("revision", "device", "dtype", "max_length", "token_budget"),
    *("trust_remote_code", "allow_pickle", "base"),
    *ONE_JUDGE,
)
RUNNING_A_MODEL = ("part", "limit", *_JUDGE_OPTIONS)
"""Scoring options that have no effect on scores that exist already."""

WHAT, HOW, SERVED = "What to score", "How to score", "Models that are served"
POLICY = "Policies as reward models"

Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="ID",
        help="A Hub id, a local folder, a registered judge, or 'demo' (the default). eval and score accept "
        "several.",
        rich_help_panel=WHAT,
    ),
]
BenchmarkName = Annotated[
    str | None,
    typer.Option(
        "--benchmark",
        "-b",
        metavar="NAME",
        help="A name that `rmcalib benchmarks` lists ('reward-bench-2' is the default, 'demo' for the demo "
        "model), a Hub data set, or a .jsonl, .json, .parquet or .csv file or a folder of them.",
        rich_help_panel=WHAT,
    ),
]
BenchmarkFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="How the benchmark's file or data set is written: a name that `rmcalib benchmarks` lists, such "
        "as 'rm-bench' or 'trl'. Default: rmcalib's own schema.",
        rich_help_panel=WHAT,
    ),
]
BenchmarkRevision = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Branch, tag or commit of the benchmark.", rich_help_panel=WHAT),
]
Part = Annotated[
    str | None,
    typer.Option(
        metavar="K/N",
        help="Use only part K of N of the prompts: calibrate on 1/2, evaluate on 2/2.",
        rich_help_panel=WHAT,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Score at most this many prompts, taken evenly from the whole benchmark.",
        rich_help_panel=WHAT,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(metavar="REV", help="Branch, tag or commit of the model.", rich_help_panel=HOW),
]
Device = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto (CUDA, else MPS, else the CPU), cpu, cuda, cuda:1 or mps.",
        rich_help_panel=HOW,
    ),
]
Dtype = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto (float32 on a CPU, else the recipe's or the checkpoint's), float32, bfloat16 or float16.",
        rich_help_panel=HOW,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        help="Cut longer texts; default the model's own limit, at most 4096.",
        rich_help_panel=HOW,
    ),
]
TokenBudget = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="TOKENS",
        help="Tokens in one forward pass. Fewer need less memory; default as many as fit.",
        rich_help_panel=HOW,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Allow the model's own Python code to run.", rich_help_panel=HOW
    ),
]
AllowPickle = Annotated[
    bool,
    typer.Option(
        "--allow-pickle",
        help="Load pickle weights, which can run code, where there are no safetensors.",
        rich_help_panel=HOW,
    ),
]
Base = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Base model of a PEFT adapter, if the adapter names a local folder.",
        rich_help_panel=HOW,
    ),
]
Endpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Ask a server for the rewards, such as http://localhost:8000, instead of loading the model.",
        rich_help_panel=SERVED,
    ),
]
EndpointKind = Annotated[
    str, typer.Option(metavar="KIND", help="auto, vllm, sglang or openrlhf.", rich_help_panel=SERVED)
]
ServedName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The model's name on the server; default that of --model.",
        rich_help_panel=SERVED,
    ),
]
TokenizeHere = Annotated[
    bool,
    typer.Option(
        "--tokenize-here",
        help="Send token ids to vLLM instead of messages, as for a loaded model; needs the tokenizer.",
        rich_help_panel=SERVED,
    ),
]
ApiKeyEnv = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Environment variable with the server's key; default RMCALIB_API_KEY.",
        rich_help_panel=SERVED,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(min=1, metavar="N", help="Largest number of requests at a time.", rich_help_panel=SERVED),
]
Timeout = Annotated[
    float,
    typer.Option(
        min=0.1,
        metavar="SECONDS",
        help="How long to wait for an answer before asking again.",
        rich_help_panel=SERVED,
    ),
]
Reference = Annotated[
    str | None,
    typer.Option(
        metavar="ID",
        help="Score a DPO policy against this model, which its training began with. Rewards are "
        "beta * log(policy / reference). Not needed for PEFT adapters with --beta.",
        rich_help_panel=POLICY,
    ),
]
ReferenceFree = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="Score a policy without a reference: 'sum' or 'mean' of the response's token log-probabilities.",
        rich_help_panel=POLICY,
    ),
]
Beta = Annotated[
    float | None,
    typer.Option(
        metavar="X",
        help="The policy's beta in training; default the one in its files, else 0.1 (1 without a reference).",
        rich_help_panel=POLICY,
    ),
]
ReferenceEndpoint = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="The server of the reference; default that of --endpoint.", rich_help_panel=POLICY
    ),
]
ReferenceServedName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The reference's name on the server; default that of --reference.",
        rich_help_panel=POLICY,
    ),
]
Recipes = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        parser=input_file,
        help="YAML file with recipes for your own models (docs/models.md); several allowed.",
        rich_help_panel=HOW,
    ),
]
Fresh = Annotated[
    bool,
    typer.Option(
        "--fresh",
        help="Score again, and replace what an earlier run left in the folder.",
        rich_help_panel=HOW,
    ),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export-rewardbench",
        metavar="FILE",
        parser=output_file,
        help="Also write the scores in RewardBench's JSON format.",
        rich_help_panel=REPORT,
    ),
]


@dataclass(frozen=True)
class Scoring:
    """What the command line says about scoring; every field is an option."""

    benchmark: BenchmarkName = None
    format: BenchmarkFormat = None
    benchmark_revision: BenchmarkRevision = None
    part: Part = None
    limit: Limit = None
    revision: Revision = None
    device: Device = "auto"
    dtype: Dtype = "auto"
    max_length: MaxLength = None
    token_budget: TokenBudget = None
    trust_remote_code: TrustRemoteCode = False
    allow_pickle: AllowPickle = False
    base: Base = None
    recipes: Recipes = None
    endpoint: Endpoint = None
    endpoint_kind: EndpointKind = "auto"
    served_name: ServedName = None
    tokenize_here: TokenizeHere = False
    api_key_env: ApiKeyEnv = None
    concurrency: Concurrency = 16
    timeout: Timeout = 300.0
    reference: Reference = None
    reference_free: ReferenceFree = None
    beta: Beta = None
    reference_endpoint: ReferenceEndpoint = None
    reference_served_name: ReferenceServedName = None
    judge: JudgeKind = None
    judge_prompt: JudgePromptFile = None
    votes: Votes = None
    placements: Placements = None
    judge_seed: JudgeSeed = 0
    max_characters: MaxCharacters = None
    fresh: Fresh = False
    output: Place = "runs"

    def judge_options(self) -> dict[str, Any]:
        """Return the options of :func:`rmcalib.load_judge` that differ from their defaults.

        Which options a judge has depends on its kind: one that was not given is left to the judge.
        """
        for needed, names in {"endpoint": SERVING, "judge": JUDGING}.items():
            for name in names if getattr(self, needed) is None else ():
                if getattr(self, name) != getattr(Scoring, name):
                    raise ValueError(f"--{name.replace('_', '-')}: has no effect without --{needed}")
        given = {name: getattr(self, name) for name in _JUDGE_OPTIONS}
        chosen = {name: value for name, value in given.items() if value != getattr(Scoring, name)}
        if "judge" in chosen:  # in Python `judge` is the judge itself
            chosen["judging"] = chosen.pop("judge")
        return chosen | ({"recipes": tuple(self.recipes)} if self.recipes else {})

    def load_options(self) -> "LoadOptions":
        """Return how to load Hugging Face models."""
        from rmcalib.judges import LoadOptions, checked_settings

        return checked_settings(LoadOptions, self.judge_options())

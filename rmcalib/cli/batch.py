"""``rmcalib batch``: a whole leaderboard, scored overnight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter
from cyclopts.validators import Number

from rmcalib._util.display import open_console, print_table
from rmcalib.cli.options import MORE, Common, InputFile, Measuring, Names, Scoring, refuse
from rmcalib.cli.screen import (
    Screen,
    command_line,
    following,
    print_json,
    print_lines,
    session,
    with_options,
)
from rmcalib.cli.sources import judge_options

if TYPE_CHECKING:
    from pathlib import Path

    from rmcalib.runs._batch import Evaluate, Status
    from rmcalib.runs._plan import PlanEntry

WHERE = Group("Where to run", sort_key=2)
_ENDED = ("done", "failed", "skipped")


def command(
    *,
    models: InputFile | None = None,
    scores: Literal["published"] | None = None,
    include: Annotated[Names, Parameter(metavar="GLOB")] = (),
    exclude: Annotated[Names, Parameter(metavar="GLOB")] = (),
    max_params: Annotated[str | None, Parameter(metavar="SIZE")] = None,
    family: Annotated[Names, Parameter(metavar="NAME")] = (),
    dry_run: bool = False,
    no_metrics: Annotated[bool, Parameter(group=MORE)] = False,
    engine: Annotated[Literal["local", "ray"], Parameter(group=WHERE)] = "local",
    address: Annotated[str | None, Parameter(metavar="WHERE", group=WHERE)] = None,
    shards: Annotated[int | None, Parameter(metavar="N", group=WHERE, validator=Number(gte=1))] = None,
    gpus: Annotated[float | None, Parameter(metavar="X", group=WHERE, validator=Number(gte=0))] = None,
    gpu_memory: Annotated[str | None, Parameter(metavar="SIZE", group=WHERE)] = None,
    free_disk: Annotated[bool, Parameter(group=WHERE)] = False,
    ignore_memory: Annotated[bool, Parameter(group=WHERE)] = False,
    scoring: Scoring = Scoring(),
    measuring: Measuring = Measuring(),
    common: Common = Common(),
) -> int:
    """Run a batch, or print its plan.

    Parameters
    ----------
    models
        YAML file with the models and their recipes; default those of the RewardBench 2 leaderboard.
    scores
        Take the scores that RewardBench has published, instead of scoring.
    include
        Only models whose names match, such as 'Skywork/*'.
    exclude
        Leave out models whose names match.
    max_params
        Leave out larger models, such as 10B.
    family
        Only these families, such as llama.
    dry_run
        Only print the plan.
    no_metrics
        Do not write each model's metrics and page.
    engine
        Run on this machine or on a Ray cluster.
    address
        Ray cluster: 'local' (default) starts one on this machine, 'auto' finds a running one, or HOST:PORT.
    shards
        Ray workers that share a model's prompts; default 1.
    gpus
        GPUs of one Ray worker; default what the model needs.
    gpu_memory
        Memory of one GPU of the cluster; default 80GB.
    free_disk
        Remove a model from the Hub's cache when it is done.
    ignore_memory
        Also try models that seem too large.
    """
    from rmcalib.judges import LoadOptions
    from rmcalib.judges._settings import checked_settings
    from rmcalib.runs import Batch, Cluster, plan_batch, run_batch
    from rmcalib.runs._plan import parse_size

    if len(scoring.benchmark) > 1:
        raise ValueError("--benchmark: a batch has one benchmark; start another batch for the next")
    of_ray = {"--address": address, "--shards": shards, "--gpus": gpus, "--gpu-memory": gpu_memory}
    cluster = None
    if scores:
        given = {"--benchmark": scoring.benchmark, "--limit": scoring.limit, "-J": scoring.judge}
        more = {"--backend": scoring.backend, "--free-disk": free_disk}
        refuse({**given, **more, **of_ray}, "no model is run with --scores published")
    elif engine == "ray":
        memory = parse_size(gpu_memory or "80GB", "--gpu-memory")
        cluster = Cluster(address or "local", shards or 1, gpus, memory)
    else:
        refuse(of_ray, "it needs --engine ray")
    size = None if max_params is None else parse_size(max_params, "--max-params") / 1e9
    batch = Batch(
        models,
        scoring.benchmark[0] if scoring.benchmark else "reward-bench-2",
        scoring.output,
        include=include,
        exclude=exclude,
        max_parameters=size,
        families=family,
        options=checked_settings(LoadOptions, judge_options(scoring.judge, backend=scoring.backend)),
        cluster=cluster,
        published=scores is not None,
        fresh=scoring.fresh,
        format=scoring.format,
        limit=scoring.limit,
        free_disk=free_disk,
        ignore_memory=ignore_memory,
    )
    with session(common) as screen:
        if dry_run:
            return _show_plan(plan_batch(batch), screen)
        evaluate = None if no_metrics else _evaluate(measuring)
        with screen.progress("models") as draw:

            def on_change(status: Status) -> None:
                models = status.models.values()
                draw(
                    sum(each.state in _ENDED for each in models),
                    len(models),
                    sum(each.tokens for each in models),
                )

            status = run_batch(batch, evaluate=evaluate, on_change=on_change)
        if screen.json:
            print_json(status.content())
        elif screen.prints:
            _print_summary(status, str(scoring.output))
    return int("failed" in status.counts())


def _evaluate(measuring: Measuring) -> Evaluate:
    """Return what writes a model's metrics and page, as ``eval`` does."""
    from rmcalib.judges._registry import scaled_by
    from rmcalib.metrics import Settings
    from rmcalib.report.evaluation import evaluate, made_from

    settings = asdict(measuring)

    def of_model(recipe: Any, scores: Any, benchmark: Any) -> tuple[str, Callable[[Path], object]]:
        scaled = scaled_by(scores, recipe)

        def write(folder: Path) -> None:
            evaluate(scaled, benchmark=benchmark, model=recipe.model, **settings).write(folder)

        return made_from(scaled, benchmark, Settings(**settings)), write

    return of_model


def _show_plan(plan: list[PlanEntry], screen: Screen) -> int:
    """Print what would be run, in order, and what would be skipped and why."""
    if screen.json:
        names = ("model", "family", "parameters", "memory", "device", "seconds", "skipped")
        print_json([{name: getattr(entry, name) for name in names} for entry in plan])
    elif screen.prints:
        run = [entry for entry in plan if not entry.skipped]
        rows = []
        for entry in run:
            memory = "?" if entry.memory is None else f"{entry.memory / 1e9:.3g} GB"
            size = "?" if entry.parameters is None else f"{entry.parameters:.3g}B"
            rows.append([entry.model, size, memory, entry.device, _hours(entry.seconds)])
        print_table(open_console(), ("model", "size", "memory", "device", "time"), rows)
        whole = _hours(sum(entry.seconds or 0 for entry in run))
        print_lines("", f"{len(run)} to run, about {whole} (a rough guess from sizes).")
        _print_reasons("skipped", {entry.model: entry.skipped for entry in plan if entry.skipped})
        print_lines("Next: the same command without --dry-run")
    return 0


def _print_summary(status: Status, place: str) -> None:
    """Print what was done, what failed and why, and what was skipped."""
    entries = status.models.values()
    done = [entry for entry in entries if entry.state == "done"]
    new = sum(entry.fresh for entry in done)
    print_lines(f"{len(done)} done ({new} now, {len(done) - new} before)")
    for title, state in (("failed, to be tried again by the next run", "failed"), ("skipped", "skipped")):
        _print_reasons(title, {entry.model: entry.why for entry in entries if entry.state == state})
    following({"Results": place}, command_line("report", place) if done else "")


def _print_reasons(title: str, reasons: dict[str, str]) -> None:
    if reasons:
        print_lines(
            f"{len(reasons)} {title}:", *(f"  {model}: {with_options(why)}" for model, why in reasons.items())
        )


def _hours(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds / 3600:.3g} h"

"""``rmcalib calibrate``: fit a temperature, and write it where it helps."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rmcalib.cli import options
from rmcalib.cli.options import MORE, Common, Judged, Reading
from rmcalib.cli.screen import Screen, command_line, session
from rmcalib.cli.sources import default_benchmark, load_prompts, model_names, run_judge, run_options

if TYPE_CHECKING:
    from rmcalib.repair.calibration import Calibration
    from rmcalib.scores import Scores


def command(
    source: options.Source | None = None,
    /,
    *,
    judged: Judged = Judged(),
    to: options.OutputFile = Path("runs/calibrator.json"),
    checkpoint: options.Folder | None = None,
    push_to_hub: Annotated[options.Name | None, Parameter(metavar="ID", group=MORE)] = None,
    seed: options.Seed = 0,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Fit a calibrator on scores, or on those of a model that is run first.

    Parameters
    ----------
    to
        Where to write the calibrator; - is standard output.
    checkpoint
        Also write a model whose rewards are divided by the temperature, and check its rewards.
    push_to_hub
        Upload the --checkpoint to this repository on the Hub; needs `hf auth login` or HF_TOKEN.
    """
    from rmcalib.repair import calibrate

    with session(common, [*([source] if source else ()), *judged.benchmark, *reading.files], to=to) as screen:
        _check_inputs(source, judged, checkpoint, reading)
        model = judged.model[0] if judged.model else ""
        settings = run_options(judged, model)
        _check_checkpoint(checkpoint, push_to_hub, settings)
        scores = reading.open(source, second=False) if source else _run(judged, screen)
        if source and judged.part:
            scores = scores.part(judged.part)
        result = calibrate(scores, seed=seed)
        result.calibrator.save(to)
        content = {**_content(result), "file": str(to)}
        then = command_line("apply", "FILE", "--calibrator", to)
        if checkpoint is not None:
            made = _write_checkpoint(result, model or None, checkpoint, push_to_hub, settings)
            content["checkpoint"] = made
            recipes = ["-J", f"recipes={made['recipe_file']}"] if made["recipe_file"] else []
            part = {"1/2": "2/2", "2/2": "1/2"}.get(judged.part or "")
            others = ["--part", part] if part else []
            benchmark = judged.benchmark or (scores.manifest.get("benchmark", "BENCHMARK"),)
            then = command_line("eval", "--model", checkpoint, "--benchmark", *benchmark, *others, *recipes)
        screen.finish(
            result.document(), content, written={"Calibrator": to, "Checkpoint": checkpoint}, then=then
        )
    return 0


def _check_inputs(source: str | None, judged: Judged, checkpoint: Path | None, reading: Reading) -> None:
    """Refuse options that would do nothing."""
    if source is None:
        reading.refuse("it reads files of scores")
        return
    why = f"{source} has the scores already"
    options.refuse({"--benchmark": judged.benchmark}, why)
    if checkpoint is None:
        options.refuse({"--model": judged.model}, why)
        judged.refuse_run(why)
    else:
        judged.refuse_run(why, "-J")  # how the model is loaded


def _check_checkpoint(checkpoint: Path | None, push_to_hub: str | None, settings: dict[str, Any]) -> None:
    """Refuse what could not be written, before any scoring."""
    from rmcalib.judges._load import judge_kind
    from rmcalib.repair.checkpoint import check_destination

    if checkpoint is None:
        options.refuse({"--push-to-hub": push_to_hub}, "give a folder for the model with --checkpoint")
        return
    kind = judge_kind(settings.pop("kind", None), settings)
    if kind != "classifier":
        raise ValueError(
            f"--checkpoint: rewards of the kind of judge {kind!r} do not come from a linear layer of weights "
            "that are here; use --calibrator"
        )
    check_destination(checkpoint, push_to_hub)


def _run(judged: Judged, screen: Screen) -> Scores:
    names = model_names(judged)
    if len(names) > 1 or len(judged.benchmark) > 1:
        option = "--model" if len(names) > 1 else "--benchmark"
        raise ValueError(f"{option}: a calibrator belongs to one model and benchmark, so give one")
    (chosen,) = judged.benchmark or default_benchmark(names)
    bench = load_prompts(chosen, judged, screen)
    return run_judge(names[0], bench, judged, screen)


def _write_checkpoint(
    result: Calibration, model: str | None, folder: Path, repository: str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    from rmcalib.judges import LoadOptions
    from rmcalib.repair import push_checkpoint, write_checkpoint

    made = write_checkpoint(result, folder, model=model, repo_id=repository, options=LoadOptions(**settings))
    url = None if repository is None else push_checkpoint(folder, repository)
    return {**asdict(made), "url": url}


def _content(result: Calibration) -> dict[str, Any]:
    return {
        "calibrator": asdict(result.calibrator),
        "view": result.view,
        "measured": result.rows,
        "gain": dict(zip(("value", "low", "high"), result.gain, strict=True)),
        "categories": result.categories,
        "p_equal": result.p_equal,
        "n": result.n,
    }

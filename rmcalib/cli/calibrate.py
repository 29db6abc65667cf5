"""``rmcalib calibrate``: fit a temperature, and write it where it helps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from rmcalib.cli.options import (
    MAIN,
    MORE,
    Common,
    Folder,
    Judged,
    Name,
    OutputFile,
    Reading,
    Scoring,
    Seed,
    Source,
    refuse,
    writes_stdout,
)
from rmcalib.cli.screen import messages, print_lines, say, show
from rmcalib.cli.sources import judge_options, load_prompts, model_names, open_run, run_judge

if TYPE_CHECKING:
    from rmcalib.repair.calibration import Calibration
    from rmcalib.scores import Scores


@Parameter(name="*", group=MAIN)
@dataclass(frozen=True)
class Wanted:
    """What is fitted and written."""

    to: OutputFile = Path("runs/calibrator.json")
    """Where to write the calibrator; - is standard output."""
    checkpoint: Folder | None = None
    """Also write a model whose rewards are divided by the temperature, and check its rewards."""
    push_to_hub: Annotated[Name | None, Parameter(metavar="ID", group=MORE)] = None
    """Upload the --checkpoint to this repository on the Hub; needs `hf auth login` or HF_TOKEN."""
    seed: Seed = 0


def command(
    source: Source | None = None,
    /,
    *,
    judged: Judged = Judged(),
    wanted: Wanted = Wanted(),
    scoring: Scoring = Scoring(),
    reading: Reading = Reading(),
    common: Common = Common(),
) -> int:
    """Fit a calibrator on scores, or on those of a model that is run first."""
    from rmcalib.repair import calibrate
    from rmcalib.repair.calibrator import replaces_calibrator

    common = replace(common, quiet=common.quiet or writes_stdout(common, to=wanted.to))
    with messages(quiet=common.quiet):
        replaced = str(wanted.to) != "-" and replaces_calibrator(wanted.to)
        options = _check(source, judged, wanted, scoring, reading)
        scores = open_run(source, reading) if source else _run(judged, scoring, common)
        if source and judged.part:
            scores = scores.part(judged.part)
        result = calibrate(scores, seed=wanted.seed)
        result.calibrator.save(wanted.to)
        if replaced and not common.quiet:
            say(f"replaced {wanted.to}, an earlier calibrator")
        made = None
        if wanted.checkpoint is not None:
            made = _write_checkpoint(result, judged.model[0] if judged.model else None, wanted, options)
    content = {**_content(result), "file": str(wanted.to), **({} if made is None else {"checkpoint": made})}
    follow = f"rmcalib apply FILE --calibrator {wanted.to}"
    show(
        result,
        common,
        content,
        written={"Calibrator": wanted.to, "Checkpoint": wanted.checkpoint},
        follow=follow,
    )
    if made is not None and not common.quiet and not common.json:
        how = f" -J recipes={made['recipe_file']}" if made["recipe_file"] else ""
        print_lines(
            f"Its rewards are r / {made['temperature']:.3g} (checked: they differ by {made['difference']:.1e})."
        )
        print_lines(f"Use it: rmcalib eval --model {wanted.checkpoint}{how}")
    return 0


def _check(
    source: str | None, judged: Judged, wanted: Wanted, scoring: Scoring, reading: Reading
) -> dict[str, Any]:
    """Refuse what would do nothing or could not be written, before any scoring; return the judge's settings."""
    from rmcalib.judges._load import judge_kind
    from rmcalib.repair.checkpoint import check_destination

    if source is None:
        reading.refuse("it reads files of scores")
    else:
        used = {} if wanted.checkpoint else {"--model": judged.model, "-J": scoring.judge}
        given = {"--endpoint": judged.endpoint, "--backend": scoring.backend, "--limit": scoring.limit}
        refuse({**given, **used, "--benchmark": scoring.benchmark}, f"{source} has the scores already")
    options = judge_options(scoring, judged.endpoint, judged.model[0] if judged.model else "")
    if wanted.checkpoint is None:
        refuse({"--push-to-hub": wanted.push_to_hub}, "give a folder for the model with --checkpoint")
    else:
        kind = judge_kind(None, options)
        if kind != "classifier":
            raise ValueError(
                f"--checkpoint: rewards of the kind of judge {kind!r} do not come from a linear layer of weights "
                "that are here; use --calibrator"
            )
        check_destination(wanted.checkpoint, wanted.push_to_hub)
    return options


def _run(judged: Judged, scoring: Scoring, common: Common) -> Scores:
    names = model_names(judged)
    if len(names) > 1 or len(scoring.benchmark) > 1:
        option = "--model" if len(names) > 1 else "--benchmark"
        raise ValueError(f"{option}: a calibrator belongs to one model and benchmark, so give one")
    chosen = scoring.benchmark[0] if scoring.benchmark else "demo" if names == ["demo"] else "reward-bench-2"
    bench = load_prompts(chosen, scoring, part=judged.part, quiet=common.quiet)
    return run_judge(names[0], bench, scoring, judged.endpoint, quiet=common.quiet)


def _write_checkpoint(
    result: Calibration, model: str | None, wanted: Wanted, options: dict[str, Any]
) -> dict[str, Any]:
    from rmcalib.judges import LoadOptions
    from rmcalib.repair import push_checkpoint, write_checkpoint

    assert wanted.checkpoint is not None
    repository = wanted.push_to_hub
    made = write_checkpoint(
        result, wanted.checkpoint, model=model, repo_id=repository, options=LoadOptions(**options)
    )
    url = None if repository is None else push_checkpoint(wanted.checkpoint, repository)
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

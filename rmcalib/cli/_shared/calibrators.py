"""The option ``--calibrator`` of ``eval``, ``score``, ``compare`` and ``decide``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rmcalib._util.terminal import clean_line
from rmcalib.cli._shared.options import REPORT
from rmcalib.cli._shared.places import input_file
from rmcalib.cli._shared.progress import say

if TYPE_CHECKING:
    from rmcalib.repair import Calibrator
    from rmcalib.scores import Scores

__all__ = ["CalibratorFile", "apply_to_own", "calibrated", "load_calibrator"]

CalibratorFile = Annotated[
    Path | None,
    typer.Option(
        "--calibrator",
        metavar="FILE",
        parser=input_file,
        help="Divide the rewards by the temperature that `rmcalib calibrate` wrote, and check that it holds "
        "here. eval and score write the results to the subfolder calibrated/.",
        rich_help_panel=REPORT,
    ),
]


def load_calibrator(path: Path | None) -> Calibrator | None:
    """Read a calibrator, if one was given."""
    if path is None:
        return None
    from rmcalib.repair import Calibrator

    return Calibrator.load(path)


def calibrated(scores: Scores, calibrator: Calibrator | None, name: str, *, quiet: bool) -> Scores:
    """Apply a calibrator, if there is one, and say whether its temperature holds for these scores."""
    if calibrator is None:
        return scores
    if not quiet:
        say(clean_line(f"{name}: {calibrator.check(scores).sentence}"))
    return calibrator.apply(scores)


def apply_to_own(scores: Sequence[Scores], files: Sequence[Path], *, quiet: bool) -> list[Scores]:
    """Apply each calibrator to the scores of the model that it was fitted for, and say whether it holds."""
    result = list(scores)
    models = [str(one.manifest.get("model") or "") for one in scores]
    for file in files:
        calibrator = load_calibrator(file)
        assert calibrator is not None
        own = [i for i, model in enumerate(models) if calibrator.model in ("", model)]
        if not own:
            raise ValueError(
                f"--calibrator {file}: was fitted for {calibrator.model}, and these are scores of "
                f"{' and '.join(dict.fromkeys(model or 'an unnamed model' for model in models))}"
            )
        for i in own:
            result[i] = calibrated(result[i], calibrator, models[i] or f"run {i + 1}", quiet=quiet)
    return result

"""Watch a training run from the files that its framework writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rmcalib.integrations.alarms.monitor import HORIZON
from rmcalib.integrations.label_function import label_function
from rmcalib.integrations.watcher import Watch, Watcher
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, fit_pointwise, labelled_part
from rmcalib.scores import Scores, load_all_scores
from rmcalib.scores._roles import parse_columns
from rmcalib.scores.rollouts import Labeller, NoSamplesYetError, RolloutReader, steps_of
from rmcalib.scores.scale import Labels

_log = logging.getLogger("rmcalib")
T = TypeVar("T")


def watch(
    folder: Any,
    *,
    columns: str | Mapping[str, Any] | None = None,
    calibrator: Calibrator | Calibration | str | Path | None = None,
    benchmark: Any = None,
    scale: str | None = None,
    labels_are: Labels | None = None,
    labels: str | Path | None = None,
    label_from: Labeller | str | None = None,
    follow: bool = False,
    level: float = 0.95,
    margin: float = 0.03,
    window: int = 10,
    start: int | None = None,
    both_sides: bool = False,
    horizon: int = HORIZON,
    every: float = 10.0,
    on_look: Callable[[Watch], bool | None] | None = None,
) -> Watch:
    """Watch a training run from the files that its framework writes.

    Parameters
    ----------
    folder : path, DataFrame or Scores
        The folder of rollouts of verl, TRL, ms-swift, NeMo-RL, SkyRL, AReaL or LLaMA-Factory, the log of
        ``rmcalib serve``, or a file; see :mod:`rmcalib.scores.rollouts`. Or a table of samples with a column of
        steps.
    columns : mapping or str, optional
        Which column is what: ``"reward=score,label=acc"``; ``"reward=a+b"`` is a sum of rewards. Usual names are
        found without it.
    calibrator : Calibrator, path or "start", optional
        Turns rewards into probabilities; see `Watcher`. Default: the scale of the rewards decides.
    benchmark : Scores, DataFrame or path, optional
        Scores of the reward model for labelled responses, to fit b and T on, instead of a calibrator.
    scale, labels_are
        What the rewards are, and what labels mean; see `Watcher`.
    labels : path, optional
        A file with labels of some samples, which may come later: columns prompt, response, label and,
        optionally, inclusion (the chance that the sample was drawn); or with ``second``, a second judge's scores.
    label_from : function of a row, or "FILE.py:function", optional
        Makes the label of a sample from its row in the file, a dictionary: 1, 0, a share, or None. A file is run.
    follow : bool
        Wait for new steps, until an alarm holds, or the process is interrupted. Files that cannot be read are
        reported once and skipped.
    level, margin, window, start, both_sides, horizon
        Of the alarm; see `Watcher`.
    every : float
        Seconds between two looks at the folder, with ``follow``.
    on_look : function of a Watch, optional
        Called after every look that brought something new. If it returns True, watching ends.

    Returns
    -------
    Watch
        ``steps`` and ``table`` have one row per step; ``alarm`` is None without an alarm.

    Examples
    --------
    >>> import json, tempfile
    >>> rows = [{"input": f"{i}?", "output": "x", "score": 2.0, "acc": j, "step": 1}
    ...         for i in range(100) for j in (0, 1)]
    >>> with tempfile.TemporaryDirectory() as run:
    ...     _ = Path(run, "1.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    ...     result = watch(run, scale="log_odds")
    >>> round(result.steps[0]["gap"], 2), result.alarm["what"]
    (0.38, 'gap')
    """
    if benchmark is not None and calibrator is not None:
        raise ValueError("benchmark: give a calibrator or a benchmark, not both")
    settings: dict[str, Any] = {
        "level": level,
        "margin": margin,
        "window": window,
        "start": start,
        "scale": scale,
        "both_sides": both_sides,
        "horizon": horizon,
    }
    fitted = None if benchmark is None else fit_pointwise(labelled_part(benchmark, "labelled"))
    if not isinstance(folder, str | Path):  # a table, which does not grow
        given = parse_columns(columns, ("second",))
        second = next(iter(given.pop("second", ())), None)
        scores = _single(load_all_scores(folder, given, scale="reward", labels_are=labels_are), "the table")
        settings["scale"] = scale or _stated_scale(scores)
        meaning: Labels = labels_are or ("best" if scores.labels in ("best", "votes") else "correct")
        watcher = _watcher(calibrator, fitted, settings, meaning)
        watcher.update(steps_of(scores, second))
        return watcher.result()
    watcher = _watcher(calibrator, fitted, settings, labels_are or "correct")
    labeller = label_function(label_from, folder) if isinstance(label_from, str) else label_from
    reader = RolloutReader(folder, columns, labeller, labels, labels_are)
    options = {
        "--columns": columns,
        "--labels": labels,
        "--label-from": label_from,
        "--scale": scale,
        "--benchmark": benchmark,
        "--calibrator": calibrator,
    }
    source = [str(folder)]
    for name, value in options.items():
        if isinstance(value, str | Path):
            source += [name, str(value)]
    problems: list[str] = []
    waits = False
    while True:
        try:
            look = reader.look(strict=not follow)
        except NoSamplesYetError as error:
            if not follow:
                raise
            if not waits:
                _log.info("waiting: %s", error)
            waits = True
            time.sleep(every)
            continue
        changed = _single(look.changed, str(folder)) if look.changed else []
        for problem in look.problems:
            _log.info("%s", problem)
        problems += look.problems
        for step in look.removed:
            watcher.remove(step)
        watcher.read_labels_as(reader.meaning)
        bad = watcher.update(changed, strict=not follow)
        for problem in bad:
            _log.info("%s", problem)
        problems += bad
        now = replace(watcher.result(), problems=list(problems), source=tuple(source))
        news = bool(changed or look.removed or look.problems)
        ends = on_look is not None and news and bool(on_look(now))
        if not follow or now.alarm is not None or ends:
            return now
        time.sleep(every)


def _watcher(
    calibrator: Any, fitted: Calibrator | None, settings: Mapping[str, Any], labels_are: Labels
) -> Watcher:
    watcher = Watcher(calibrator, **settings, labels_are=labels_are)
    if fitted is not None:
        watcher.use("benchmark", fitted)
    return watcher


def _stated_scale(scores: Scores) -> str | None:
    """Return what is known of the rewards of scores, as `Watcher` takes it."""
    kind = scores.scale
    if kind.assumed:
        return None
    # Rewards that were probabilities of being correct are log-odds in scores.
    if kind.kind == "probability":
        return "log_odds" if kind.of == "correct" else "utility"
    return "none" if kind.kind == "pairs" else kind.kind


def _single(rewards: Mapping[str, T], source: str) -> T:
    """Return what there is of the one reward that is watched."""
    if len(rewards) > 1:
        raise ValueError(
            f"{source}: several rewards (has {', '.join(rewards)}); say which one is watched, and which column has "
            'the truth: columns="reward=NAME,label=NAME"; reward=A+B is a sum'
        )
    return next(iter(rewards.values()))

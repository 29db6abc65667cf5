"""Watch a training run: is the reward still right about the samples of its own policy?

Also metrics of a reward model that is trained itself, fast enough for every evaluation (`preference_metrics`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, as_floats, check_choice
from rmcalib.calibration.intervals import check_level
from rmcalib.integrations.alarms import CHANGES, ERRORS, Monitor, Observed
from rmcalib.integrations.alarms.monitor import HORIZON, reference_bound
from rmcalib.integrations.stated import Reading, read_numbers
from rmcalib.metrics.catalogue import TRAINING_METRICS, catalogue, chosen_metrics
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, as_calibrator, fit_pointwise, labelled_part
from rmcalib.scores import Scores, load_all_scores
from rmcalib.scores.rollouts import Labeller, NoSamplesYetError, RolloutReader, StepSamples, steps_of
from rmcalib.scores.scale import Labels, Scale

START = "start"
"""As a calibrator: fit b and T on the first prompts of the run."""
FIRST_FIT = 200
"""Labelled prompts before which a reference is not fitted at the start, unless the user says so."""
_FACTS = ("mean_reward", "reward_sd", "ties", "drift", "length_correlation", "right", "gap", "auroc")
_NARROWEST = 0.01  # a reference need not be better than this, however small the margin
_log = logging.getLogger("rmcalib")
T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Watch(Shown):
    """What was seen of a training run.

    Attributes
    ----------
    steps : list of dict
        One row per step, see `Watcher.add`.
    alarm : dict or None
        The first alarm about an error: ``step``, ``what`` ("gap" or "order"), ``direction`` ("above": says more
        than is right), ``over`` ("run", or the last looks), ``value`` (how much more is stated than is right),
        ``limit`` (that it exceeds), ``margin`` (with the error of the reference), ``error``, ``prompts``,
        ``look``, ``reason`` (a sentence).
    alarms : list of dict
        All of them, each once until it is over.
    changes : list of dict
        The same about samples that are not what they were at the start ("length", "repeated", "outside"). They
        need no labels, and are no errors.
    reference : dict
        What probabilities are made of: ``kind`` ("stated", "none", "calibrator", "benchmark" or "start"),
        ``scale`` and ``reason`` (what the rewards are, and how that is known), ``temperature``, ``threshold``,
        ``n`` (prompts of its fit; None if it was not fitted), ``margin`` (the margin with its error).
    labels : dict
        ``samples`` with a label, ``of`` all samples, ``prompts`` with a label, and ``shown_from``: the gap of
        the run that would be shown now; None if there is no test yet.
    misses : tuple of str
        Which columns of ``steps`` could not be measured, because there are no labels or texts.
    level, margin : float
        Of the alarm.
    waiting : int
        Labelled prompts that are still needed for a reference that is fitted at the start.
    problems : list of str
        Files that could not be read, and why.
    """

    steps: list[dict[str, Any]]
    alarm: dict[str, Any] | None
    reference: dict[str, Any]
    misses: tuple[str, ...]
    level: float
    margin: float
    waiting: int = 0
    alarms: list[dict[str, Any]] = field(default_factory=list)
    changes: list[dict[str, Any]] = field(default_factory=list)
    labels: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the steps."""
        return self.steps

    def content(self) -> dict[str, Any]:
        """Return the steps and the alarm as a dictionary that can be written as JSON."""
        rows = [{key: None if value != value else value for key, value in row.items()} for row in self.steps]
        return {**asdict(self), "steps": rows}

    def __repr__(self) -> str:
        """Return the number of steps, and the alarm."""
        if self.alarm is None:
            return f"Watch({len(self.steps)} steps, no alarm)"
        return f"Watch({len(self.steps)} steps, alarm at step {self.alarm['step']:g}: {self.alarm['what']})"


@dataclass
class Watcher:
    """Follows a training run step by step, from any training loop.

    Parameters
    ----------
    calibrator : Calibrator, path, "start" or None
        What turns rewards into probabilities: σ((r − b)/T). None: as ``scale`` says. "start": b and T are
        fitted on the first prompts, for rewards of any scale, such as those of a Bradley-Terry model; the steps
        of the fit are not tested.
    level : float
        1 − the chance of any false alarm over the whole run, for the gap and the order together.
    margin : float
        Gaps up to this size raise no alarm, as a fraction.
    window : int
        How many of the last looks are also tested by themselves, and four times as many. A look is a step, or
        as many steps as bring 20 labelled prompts.
    start : int, optional
        How many labelled prompts the reference is fitted on, with ``calibrator="start"``. By default at least
        200, and as many as make its error at most the margin.
    scale : {"log_odds", "probability", "logprob", "utility", "rating", "logit", "none", "reward"}, optional
        What the rewards are. By default, numbers between 0 and 1 (not only 0 and 1) are probabilities of being
        correct, and others are log-odds. Rewards of a Bradley-Terry model ("utility") state nothing about
        single samples: without a calibrator, there is no alarm.
    labels_are : {"correct", "best"}
        What labels mean: each sample is correct or not, or one sample of a prompt is the best. For "best", the
        order within prompts is tested, not the gap.
    both_sides : bool
        Whether it is an alarm, too, that the reward says less than is right.
    horizon : int
        Looks over which half of the error budget is spent, equally.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> watcher = Watcher()
    >>> for step in range(3):
    ...     reward = rng.normal(size=400)
    ...     correct = rng.random(400) < 1 / (1 + np.exp(2 - reward))  # less often than the rewards say
    ...     row = watcher.add(step, np.arange(400) // 4, reward, correct)
    >>> watcher.result().alarm["what"], row["gap"] > 0.2
    ('gap', True)
    """

    calibrator: Calibrator | Calibration | str | Path | None = None
    level: float = 0.95
    margin: float = 0.03
    window: int = 10
    start: int | None = None
    scale: str | None = None
    labels_are: Labels = "correct"
    both_sides: bool = False
    horizon: int = HORIZON
    kind: str = field(default="stated", init=False)
    reference: Calibrator | None = field(default=None, init=False)
    rows: dict[float, dict[str, Any]] = field(default_factory=dict, init=False, repr=False)
    _samples: dict[float, StepSamples] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[Any, int] = field(default_factory=dict, init=False, repr=False)
    _first: dict[float, Part] = field(default_factory=dict, init=False, repr=False)
    _tried: int = field(default=0, init=False, repr=False)
    _needs: int = field(default=FIRST_FIT, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the settings, and load the calibrator."""
        check_level(self.level)
        check_choice(self.labels_are, "labels_are", ("correct", "best"))
        if not 0 <= self.margin < 1:
            raise ValueError(f"margin: {self.margin} is out of range, expected a fraction such as 0.03")
        if self.start is not None and self.start < FEWEST:
            raise ValueError(f"start: {self.start} prompts are too few, expected at least {FEWEST}")
        if self.window < 1 or self.horizon < 1:
            raise ValueError("window, horizon: expected at least 1")
        self._needs = self.start or FIRST_FIT
        self.reading = Reading.of(self.scale)
        self._monitors = self._new_monitors()
        if self.calibrator == START:
            self.kind = START
        elif self.calibrator is not None:
            self.use("calibrator", as_calibrator(self.calibrator))

    def use(self, kind: str, reference: Calibrator) -> None:
        """State probabilities by this reference from now on; ``kind`` is that of `Watch`."""
        if reference.threshold is None:
            raise ValueError(
                "calibrator: it has no threshold b, so it says nothing about single samples; fit one with "
                "calibrate(..., view='pointwise')"
            )
        self.kind, self.reference = kind, reference
        for monitor in self._monitors:
            monitor.reference = reference

    def states(self) -> bool:
        """Whether the rewards state probabilities: by a reference, or by their scale."""
        return self.reference is not None or (self.kind != START and self.reading.states)

    def add(
        self,
        step: float,
        prompt: Any,
        reward: ArrayLike,
        label: ArrayLike | None = None,
        length: ArrayLike | None = None,
        *,
        text: Any = None,
        weight: ArrayLike | None = None,
    ) -> dict[str, Any]:
        """Add the samples of a step, and return its row. A step that is added again replaces the earlier one.

        Parameters
        ----------
        step : float
            Its number.
        prompt : sequence (N,)
            Which prompt each sample is for: texts, ids or numbers. The same at another step is the same
            prompt.
        reward : float (N,)
            The rewards.
        label : float (N,), optional
            1 for correct samples, 0 for wrong ones, a share, or NaN where it is unknown.
        length : float (N,), optional
            The length of each sample.
        text : sequence (N,), optional
            The samples, or digests of them, to count copies.
        weight : float (N,), optional
            1/P(the sample is labelled), if some samples are labelled more often than others.

        Returns
        -------
        dict
            ``step``, ``n_samples``, ``n_prompts``, ``n_labels``, ``mean_reward``, ``reward_sd``, ``ties``
            (fraction of samples with the same reward as another one of their prompt), ``drift`` (mean reward
            minus that of the first step, in standard deviations of the first step), ``squashed`` (all rewards
            within 0 and 1), ``says`` (mean probability of all samples), ``outside`` (fraction of rewards beyond
            the range of the calibrator's fit), ``mean_length``, ``repeated`` (fraction of samples that are copies),
            ``right`` with limits, ``gap`` (stated − right) with limits, ``auroc`` (how often a correct sample
            has a larger reward than a wrong one of its prompt) with limits, ``length_correlation`` with limits,
            and ``alarm`` (whether there was one so far). NaN where it is unknown. Intervals are clustered by
            prompt.
        """
        samples = _checked(step, prompt, reward, label, length, text, weight)
        self.update([samples])
        return self.rows[samples.step]

    def update(self, steps: Iterable[StepSamples], *, strict: bool = True) -> list[str]:
        """Add steps, or replace them, and test; return what is wrong with some of them unless ``strict``."""
        problems, again = [], False
        for samples in steps:
            try:
                reading = read_numbers(samples.reward, self.reading)
            except ValueError as error:
                if strict:
                    raise
                problems.append(f"step {samples.step:g}: {error} (skipped)")
                continue
            number = [self._numbers.setdefault(name, len(self._numbers)) for name in samples.prompt.tolist()]
            ordered = replace(samples, prompt=np.array(number)).sorted()
            again |= reading != self.reading and bool(self._samples)
            self.reading = reading
            self._samples[samples.step] = ordered
            if not again:
                self._add(samples.step, ordered)
        if again:  # rewards are read in another way than before
            self._again()
        for monitor in self._monitors:
            monitor.settle()
        return problems

    def remove(self, step: float) -> None:
        """Take a step out of the result and of the evidence; the looks that were made stay counted."""
        if self._samples.pop(step, None) is not None:
            del self.rows[step]
            self._first.pop(step, None)
            for monitor in self._monitors:
                monitor.remove(step)

    def result(self) -> Watch:
        """Return what was seen so far."""
        steps = [self.rows[step] for step in sorted(self.rows)]
        known = {name for row in steps for name, value in row.items() if value == value}
        reference, gap = self.reference, self._monitors[0]
        errors = sorted(
            (alarm for monitor in self._monitors[: len(ERRORS)] for alarm in monitor.alarms),
            key=lambda alarm: alarm["look"],
        )
        labelled = [one for one in self._samples.values() if not np.isnan(one.label).all()]
        return Watch(
            steps=steps,
            alarm=errors[0] if errors else None,
            alarms=errors,
            changes=[alarm for monitor in self._monitors[len(ERRORS) :] for alarm in monitor.alarms],
            reference={
                "kind": self.kind if self.states() or self.kind == START else "none",
                "scale": self.reading.kind,
                "reason": self.reading.reason,
                "temperature": reference and reference.temperature,
                "threshold": reference and reference.threshold,
                "n": reference and reference.fitted_on.get("clusters"),
                "margin": self.margin + gap.extra,
            },
            labels={
                "samples": sum(int((~np.isnan(one.label)).sum()) for one in labelled),
                "of": sum(len(one) for one in self._samples.values()),
                "prompts": len(
                    np.unique(np.concatenate([one.labelled_prompts() for one in labelled] or [np.empty(0)]))
                ),
                "shown_from": gap.reach,
            },
            misses=tuple(name for name in _FACTS if name not in known),
            level=self.level,
            margin=self.margin,
            waiting=max(self._needs - self._prompts_of_start(), 1)
            if self.kind == START and reference is None
            else 0,
        )

    def _new_monitors(self) -> list[Monitor]:
        alpha = 1 - self.level
        return [
            Monitor(check, alpha * check.share, self.margin, self.window, self.both_sides, self.horizon)
            for check in (*ERRORS, *CHANGES)
        ]

    def _again(self) -> None:
        """Start again with the samples so far, because their rewards are read in another way."""
        self.rows, self._first, self._tried = {}, {}, 0
        self._monitors = self._new_monitors()
        if self.kind == START:
            self.reference = None
        elif self.reference is not None:
            self.use(self.kind, self.reference)
        for step, samples in sorted(self._samples.items()):
            self._add(step, samples)

    def _add(self, step: float, samples: StepSamples) -> None:
        rewards = self.reading.rewards(samples.reward)
        part = _part(step, samples, samples.reward)
        labelled = part.prompts("labelled")
        log_odds = pair_odds = None
        reference = self.reference  # before this step: it may be fitted on it
        if reference is not None and reference.threshold is not None:
            log_odds = pair_odds = (rewards - reference.threshold) / reference.temperature
        elif self.kind == START:
            if labelled is not None:
                self._add_to_start(step, _part(step, samples, rewards))
        elif self.reading.states:
            log_odds = pair_odds = rewards
        elif self.labels_are == "best" and self.reading.kind == "utility":
            pair_odds = rewards
        outside = None
        if reference is not None and len(reference.reference):
            outside = (rewards < min(reference.reference)) | (rewards > max(reference.reference))
        observed = Observed(
            samples.prompt,
            log_odds if self.labels_are == "correct" else None,
            pair_odds,
            samples.label,
            samples.weight,
            samples.length,
            outside,
            samples.repeated(),
        )
        for monitor in self._monitors:
            monitor.add(step, observed)
        self.rows[step] = self._row(step, part, labelled, observed)

    def _add_to_start(self, step: float, part: Part) -> None:
        """Add the labelled samples of a step to those that the reference is fitted on, and fit it if they suffice."""
        labelled = part.prompts("labelled")
        assert labelled is not None
        before = self._prompts_of_start()
        self._first[step] = labelled
        n = self._prompts_of_start()
        if n <= before and n >= FEWEST:  # the same prompts return: there will be no more
            self._fit_start()
        elif n >= self._needs:
            self._fit_start(None if self.start is not None else max(self.margin, _NARROWEST))

    def _prompts_of_start(self) -> int:
        return len({name for part in self._first.values() for name in part.scores.item_id.tolist()})

    def _fit_start(self, most: float | None = None) -> None:
        """Fit b and T on the samples of the first steps, and use them if their error adds at most ``most``."""
        parts = list(self._first.values())
        steps = np.repeat(np.arange(len(parts)), [len(part.reward) for part in parts])
        ids = np.concatenate([part.scores.item_id for part in parts])
        columns = {
            "item_id": [f"{number}/{name}" for number, name in zip(steps, ids, strict=True)],
            "cluster": ids,
            "response": np.concatenate([part.scores.response for part in parts]),
            "reward": np.concatenate([part.reward for part in parts]),
            "label": np.concatenate([part.label for part in parts]),
        }
        whole = whole_part(Scores.from_columns(columns))
        fitted = fit_pointwise(whole)
        if most is not None:
            known = ~np.isnan(whole.label)
            x = (whole.reward[known] - (fitted.threshold or 0.0)) / fitted.temperature
            spread = 1 / (2 + 2 * np.cosh(x))
            slope = np.array([(spread * x).mean(), spread.mean()])
            bound = reference_bound(fitted, slope, self._monitors[0].alpha)
            if bound > most:
                n = self._prompts_of_start()
                self._needs = max(int(n * min((bound / most) ** 2, 2.0)), n + FEWEST)
                return
        low, high = np.quantile(whole.reward[~np.isnan(whole.label)], [0.0, 1.0]).tolist()
        self.use(START, replace(fitted, reference=(low, high)))
        self._first = {}

    def _row(self, step: float, part: Part, labelled: Part | None, observed: Observed) -> dict[str, Any]:
        settings, reward = Settings(resamples=200), part.reward
        rewards = {"mean_reward": float(reward.mean()), "reward_sd": float(reward.std())}
        first = self.rows[min(self.rows)] if self.rows else rewards
        stated = None
        if labelled is not None and observed.log_odds is not None:
            moved = replace(part.scores, reward=observed.log_odds).with_scale(_LOG_ODDS)
            stated = whole_part(moved).prompts("labelled")
        row: dict[str, Any] = {
            "step": step,
            "n_samples": len(reward),
            "n_prompts": len(part),
            "n_labels": int((~np.isnan(observed.label)).sum()),
            **rewards,
            "ties": _ties(part),
            "squashed": bool((reward >= 0).all() and (reward <= 1).all()),
            "drift": (rewards["mean_reward"] - first["mean_reward"]) / (first["reward_sd"] or np.nan),
            "says": _mean(None if observed.log_odds is None else 1 / (1 + np.exp(-observed.log_odds))),
            "outside": _mean(observed.outside),
            "mean_length": _mean(observed.length),
            "repeated": _mean(observed.repeated),
        }
        for name, metric, measured in (
            ("right", "pointwise_accuracy", labelled),
            ("gap", "pointwise_gap", stated),
            ("auroc", "within_prompt_auroc", labelled),
            ("length_correlation", "reward_length_correlation", part),
        ):
            estimate = None if measured is None else catalogue()[metric].measure(measured, settings)
            limits = None if estimate is None else estimate.interval()
            row[name] = np.nan if estimate is None or estimate.value is None else estimate.value
            row[f"{name}_low"] = np.nan if limits is None else limits.low
            row[f"{name}_high"] = np.nan if limits is None else limits.high
        return row | {"alarm": any(monitor.alarms for monitor in self._monitors[: len(ERRORS)])}


_LOG_ODDS = Scale("log_odds", "stated to the watcher")


def _mean(values: Any) -> float:
    return float("nan") if values is None else float(np.mean(values))


def _checked(
    step: float, prompt: Any, reward: Any, label: Any, length: Any, text: Any, weight: Any
) -> StepSamples:
    """Return the samples of a step as arrays of one length."""
    names = np.array([str(one) for one in prompt], dtype=object)
    r = as_floats(as_array(reward).ravel(), f"reward (step {step:g})", ndim=1)
    label, length = (
        np.full(len(r), np.nan) if values is None else as_array(values).ravel() for values in (label, length)
    )
    weight = np.ones(len(r)) if weight is None else as_array(weight).ravel()
    texts = None if text is None else np.array([str(one) for one in text], dtype=object)
    sizes = [len(names), len(r), len(label), len(length), len(weight), len(r if texts is None else texts)]
    if len({*sizes}) > 1 or not len(r):
        raise ValueError(
            f"prompt, reward, label, length, weight, text: expected one each per sample of step {step:g}, got "
            f"{', '.join(map(str, sizes))}"
        )
    if ((label < 0) | (label > 1)).any():
        raise ValueError(f"label (step {step:g}): {label[(label < 0) | (label > 1)][0]:g} is not from 0 to 1")
    if not (weight > 0).all() or not np.isfinite(weight).all():
        raise ValueError(f"weight (step {step:g}): expected positive numbers, 1/P(the sample is labelled)")
    return StepSamples(float(step), names, r, label, length, texts, weight)


def _part(step: float, samples: StepSamples, reward: FloatArray) -> Part:
    """Return the samples of a step, which are sorted by prompt, as prompts."""
    _, sizes = np.unique(samples.prompt, return_counts=True)
    columns = {
        "item_id": np.char.mod("%d", samples.prompt),
        "response": np.arange(len(reward)) - np.repeat(np.cumsum(sizes) - sizes, sizes),
        "label": samples.label,
        "reward": reward,
    }
    scores = Scores.from_columns(columns, labels="correct", source=f"step {step:g}")
    return whole_part(scores, lengths=samples.length)


def watch(
    folder: Any,
    *,
    columns: str | Mapping[str, Any] | None = None,
    calibrator: Calibrator | Calibration | str | Path | None = None,
    benchmark: Any = None,
    scale: str | None = None,
    labels_are: Labels | None = None,
    labels: str | Path | None = None,
    label_from: Labeller | None = None,
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
        What turns rewards into probabilities; see `Watcher`. Default: what the rewards are says it.
    benchmark : Scores, DataFrame or path, optional
        Scores of the reward model for labelled responses, to fit b and T on, instead of a calibrator.
    scale, labels_are
        What the rewards are, and what labels mean; see `Watcher`.
    labels : path, optional
        A file with labels of some samples, which may come later: columns prompt, response, label and,
        optionally, inclusion (the chance that the sample was drawn).
    label_from : function of a row, optional
        Makes the label of a sample from its row in the file, a dictionary: 1, 0, a share, or None.
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
        ``steps`` and ``table``, one row per step; ``alarm``, None or what it is about.

    Examples
    --------
    >>> import json, tempfile
    >>> rows = [{"input": f"{i}?", "output": "x", "score": 2.0, "acc": j, "step": 1}
    ...         for i in range(100) for j in (0, 1)]
    >>> with tempfile.TemporaryDirectory() as run:
    ...     _ = Path(run, "1.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    ...     found = watch(run)
    >>> round(found.steps[0]["gap"], 2), found.alarm["what"]
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
        scores = _single(load_all_scores(folder, columns, scale="reward", labels_are=labels_are), "the table")
        settings["scale"] = scale or _known_scale(scores)
        meaning: Labels = labels_are or ("best" if scores.labels == "best" else "correct")
        watcher = _watcher(calibrator, fitted, settings, meaning)
        watcher.update(steps_of(scores))
        return watcher.result()
    watcher = _watcher(calibrator, fitted, settings, labels_are or "correct")
    reader = RolloutReader(folder, columns, label_from, labels)
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
        bad = watcher.update(changed, strict=not follow)
        for problem in bad:
            _log.info("%s", problem)
        problems += bad
        found = replace(watcher.result(), problems=list(problems))
        news = bool(changed or look.removed or look.problems)
        ends = on_look is not None and news and bool(on_look(found))
        if not follow or found.alarm is not None or ends:
            return found
        time.sleep(every)


def _watcher(
    calibrator: Any, fitted: Calibrator | None, settings: Mapping[str, Any], labels_are: Labels
) -> Watcher:
    watcher = Watcher(calibrator, **settings, labels_are=labels_are)
    if fitted is not None:
        watcher.use("benchmark", fitted)
    return watcher


def _known_scale(scores: Scores) -> str | None:
    """Return what is known of the rewards of scores, as `Watcher` takes it."""
    kind = scores.scale
    if kind.assumed:
        return None
    # Rewards that were probabilities of being correct are log-odds in scores.
    if kind.kind == "probability":
        return "log_odds" if kind.of == "correct" else "utility"
    return "none" if kind.kind == "pairs" else kind.kind


def _single(found: Mapping[str, T], source: str) -> T:
    """Return what there is of the one reward that is watched."""
    if len(found) > 1:
        raise ValueError(
            f"{source}: which reward is watched? Name it, and the truth if another one is: --columns "
            f"reward=NAME,label=NAME, or reward=A+B for a sum (has {', '.join(found)})"
        )
    return next(iter(found.values()))


def _ties(part: Part) -> float:
    """Return the fraction of samples whose reward another sample of their prompt has, too."""
    pairs = np.column_stack([part.prompt, part.reward])
    _, index, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return float((count[index.ravel()] > 1).mean())


def preference_metrics(
    chosen: Any, rejected: Any, *, metrics: Iterable[str] = TRAINING_METRICS
) -> dict[str, float]:
    """Return calibration metrics of a reward model on pairs of a chosen and a rejected response.

    The probability of the chosen response is sigmoid(chosen − rejected).

    Parameters
    ----------
    chosen, rejected : array (n,) or (n, 1)
        The rewards: arrays, lists or tensors on any device.
    metrics : Iterable[str]
        Names of metrics from the catalogue (docs/metrics.md).

    Returns
    -------
    dict
        One number per metric, in the order of the catalogue; NaN if a metric has no value. The temperature,
        for example, needs 20 pairs, and does not exist if the chosen response always has the larger reward.

    Examples
    --------
    >>> found = preference_metrics([3.0, 2.0, 2.5], [0.0, 0.0, 3.0])
    >>> {name: round(value, 3) for name, value in found.items() if "confidence" in name or name == "accuracy"}
    {'mean_confidence': 0.819, 'accuracy': 0.667, 'overconfidence': 0.152}
    """
    pair = [_rewards("chosen", chosen), _rewards("rejected", rejected)]
    if len(pair[0]) != len(pair[1]):
        raise ValueError(f"chosen, rejected: {len(pair[0])} and {len(pair[1])} rewards; expected pairs")
    return metric_values(Scores.from_arrays(np.stack(pair, axis=1)), metrics)


def metric_values(scores: Scores, metrics: Iterable[str] = TRAINING_METRICS) -> dict[str, float]:
    """Return metrics of the prompts with one correct response, without intervals; NaN if one has no value."""
    part = whole_part(scores).prompts("one")
    if part is None:
        raise ValueError("no prompt has exactly one correct response, which these metrics need")
    settings = Settings(resamples=200)
    found = {one.name: one.measure(part, settings).value for one in chosen_metrics(metrics)}
    return {name: float("nan") if value is None else float(value) for name, value in found.items()}


def _rewards(name: str, values: Any) -> FloatArray:
    """Return rewards as float64 (n,)."""
    array = as_array(values)
    return as_floats(array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array, name, ndim=1)


def as_array(values: Any) -> FloatArray:
    """Return numbers as float64; tensors may be on any device and have any dtype."""
    if hasattr(values, "detach"):
        values = values.detach().float().cpu().numpy()
    return np.asarray(values, dtype=np.float64)

"""Watch a training run: is the reward still right about the samples of the policy?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from rmcalib._util.arrays import as_floats, check_choice
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.intervals import check_level
from rmcalib.integrations.alarms import CHANGES, ERRORS, Check, Monitor, Observed, Sums
from rmcalib.integrations.alarms.monitor import HORIZON, Mean
from rmcalib.integrations.start import DECISIVE, StartFit, is_another_scale
from rmcalib.integrations.stated import OTHER_SCALE, Reading, read_numbers
from rmcalib.integrations.training import as_array
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, as_calibrator
from rmcalib.scores import Scores
from rmcalib.scores.rollouts import StepSamples, forms_of
from rmcalib.scores.scale import Labels, Scale

START = "start"
"""As a calibrator: fit b and T on the first prompts of the run."""
_FACTS = ("mean_reward", "reward_sd", "ties", "drift", "length_correlation", "right", "gap", "auroc")
_QUICK = Settings(resamples=200)
_STATED = {"scale": asdict(Scale("log_odds", "stated to the watcher"))}


@dataclass(frozen=True, repr=False)
class Watch(Shown):
    """The state of a watched training run.

    Attributes
    ----------
    steps : list of dict
        One row per step, see `Watcher.add`.
    alarm : dict or None
        The first alarm about an error: ``step``, ``what`` ("gap" or "order"), ``direction`` ("above": says more
        than is right), ``over`` ("run", or the last looks), ``value`` (how much more is stated than is right),
        ``limit`` (that it exceeds), ``margin`` (with the error of the reference), ``error``, ``prompts``,
        ``look``, ``first_step`` (of what it is over), ``reason`` (a sentence).
    alarms : list of dict
        All of them, each once until it is over.
    changes : list of dict
        The same about samples that are not what they were at the start ("length", "repeated", "outside",
        "markdown", "code", "answer", "agreement"). They need no labels, and are no errors.
    reference : dict
        What probabilities are made of: ``kind`` ("stated", "none", "calibrator", "benchmark" or "start"),
        ``scale`` and ``reason`` (what the rewards are, and how that is known), ``temperature``, ``threshold``,
        ``n`` (prompts of its fit; None if it was not fitted), ``margin`` (the margin with its error).
    labels : dict
        ``samples`` with a label, ``of`` all samples, ``prompts`` with a label, ``shown_from``: the gap of
        the run that would be shown now (None if there is no test yet), and ``are``: what labels mean.
    misses : tuple of str
        Which columns of ``steps`` could not be measured; the page says why.
    level, margin : float
        Of the alarm.
    waiting : int
        Labelled prompts that are still needed for a reference that is fitted at the start; or at most, to know
        whether the error of rewards that were taken as log-odds is one of their scale.
    problems : list of str
        Files that could not be read, and why.
    source : tuple of str
        Where the samples are and how they are read, as words of a command.
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
    source: tuple[str, ...] = ("FOLDER",)

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.integrations.watch_page import watch_document

        return watch_document(self)

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
        return (
            f"Watch({len(self.steps)} steps, alarm at step {self.alarm['step']:.15g}: {self.alarm['what']})"
        )


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
    _measured: set[str] = field(default_factory=set, init=False, repr=False)

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
        self.reading = Reading.of(self.scale)
        self._begin()
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
        for monitor in self._errors:
            monitor.reference = reference

    def read_labels_as(self, labels_are: Labels) -> None:
        """State what labels mean, of the samples so far as well."""
        if labels_are != self.labels_are:
            self.labels_are = labels_are
            self._again()

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
        second: ArrayLike | None = None,
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
            The samples, to count copies and what they contain.
        weight : float (N,), optional
            1/P(the sample is labelled), if some samples are labelled more often than others.
        second : float (N,), optional
            Scores of a second judge on any scale, NaN where it was not asked. Only pairs of samples of a prompt
            with two of them count.

        Returns
        -------
        dict
            ``step``, ``n_samples``, ``n_prompts``, ``n_labels``, ``mean_reward``, ``reward_sd``, ``ties``
            (fraction of samples with the same reward as another one of their prompt), ``drift`` (mean reward
            minus that of the first step, in standard deviations of the first step), ``squashed`` (all rewards
            within 0 and 1), ``says`` (mean probability of all samples), ``outside`` (fraction of rewards beyond
            the range of the calibrator's fit), ``mean_length``, ``repeated`` (fraction of samples that are copies),
            ``markdown``, ``code``, ``answer`` (fractions of samples with headings, lists, tables or bold, with a
            code block, and with a marked final answer), ``right`` with limits, ``gap`` (stated − right) with limits,
            ``auroc`` (how often a correct sample has a larger reward than a wrong one of its prompt) with limits,
            ``length_correlation`` with limits, ``agreement`` (how often a second judge orders two samples of a
            prompt as the reward does) with limits, and ``alarm`` (whether there was one so far). NaN where it is
            unknown. Intervals are clustered by prompt.
        """
        samples = _checked(step, prompt, reward, label, length, text, weight, second)
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
                problems.append(f"step {samples.step:.15g}: {error} (skipped)")
                continue
            number = [self._numbers.setdefault(name, len(self._numbers)) for name in samples.prompt.tolist()]
            ordered = replace(samples, prompt=np.array(number)).take(np.argsort(number, kind="stable"))
            again |= reading != self.reading and bool(self._samples)
            self.reading = reading
            self._samples[samples.step] = ordered
            again = again or self._add(samples.step, ordered)
        if again:  # rewards are read in another way than before
            self._again()
        self._settle()
        if self._is_other_scale():  # late labels show it
            self._again()
            self._settle()
        return problems

    def remove(self, step: float) -> None:
        """Take a step out of the result and of the evidence; the looks that were made stay counted."""
        if self._samples.pop(step, None) is not None:
            del self.rows[step]
            self._start.remove(step)
            for monitor in (*self._errors, *self._changes):
                monitor.remove(step)

    def result(self) -> Watch:
        """Return what was seen so far."""
        reference, gap = self.reference, self._errors[0]
        errors = _alarms(self._errors)
        labelled = [samples for samples in self._samples.values() if samples.n_labels]
        prompts = {number for samples in labelled for number in samples.labelled_prompts.tolist()}
        waiting = max(DECISIVE - len(prompts), 0) if self._is_held else 0
        if self.kind == START and reference is None:
            waiting = self._start.waiting
        return Watch(
            steps=[self.rows[step] for step in sorted(self.rows)],
            alarm=errors[0] if errors else None,
            alarms=errors,
            changes=_alarms(self._changes),
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
                "samples": sum(samples.n_labels for samples in labelled),
                "of": sum(map(len, self._samples.values())),
                "prompts": len(prompts),
                "shown_from": gap.reach,
                "are": self.labels_are,
            },
            misses=tuple(name for name in _FACTS if name not in self._measured),
            level=self.level,
            margin=self.margin,
            waiting=waiting,
        )

    def _is_other_scale(self) -> bool:
        """Return whether labels show that assumed log-odds are none; until that is known, alarms are dropped.

        A dropped alarm is raised again at the next look if it still holds.
        """
        assumed = self.kind == "stated" and self.reading.kind == "log_odds" and not self.reading.asked
        if not assumed or not _alarms(self._errors):
            return False
        other = is_another_scale(self._samples)
        self._is_held = other is None
        if other:
            self.kind, self.reading = START, replace(self.reading, reason=OTHER_SCALE)
        elif self._is_held:
            for monitor in self._errors:
                monitor.drop_alarms()
        else:
            self.reading = replace(self.reading, asked=True)  # once is enough
        return bool(other)

    def _settle(self) -> None:
        for monitor in (*self._errors, *self._changes):
            monitor.settle()

    def _begin(self) -> None:
        """Start without evidence."""

        def monitors(checks: Sequence[Check], both_sides: bool) -> list[Monitor]:
            return [
                Monitor(
                    check,
                    (1 - self.level) / len(checks),
                    self.margin,
                    self.window,
                    both_sides,
                    self.horizon,
                )
                for check in checks
            ]

        self._errors, self._changes = monitors(ERRORS, self.both_sides), monitors(CHANGES, True)
        self._start = StartFit(self.margin, self._errors[0].alpha, self.start)
        self.rows, self._measured, self._is_held = {}, set(), False

    def _again(self) -> None:
        """Start again with the samples so far, because their rewards are read in another way."""
        self._begin()
        if self.kind == START:
            self.reference = None
        elif self.reference is not None:
            self.use(self.kind, self.reference)
        for step, samples in sorted(self._samples.items()):
            if self._add(step, samples):
                self._again()
                return

    def _add(self, step: float, samples: StepSamples) -> bool:
        """Measure and test a step; return whether labels now show that rewards must be read in another way."""
        rewards = self.reading.rewards(samples.reward)
        log_odds = pair_odds = None
        reference = self.reference  # before this step: it may be fitted on it
        if reference is not None and reference.threshold is not None:
            log_odds = pair_odds = (rewards - reference.threshold) / reference.temperature
        elif self.kind == START:
            fitted = self._start.add(replace(samples, reward=rewards)) if samples.n_labels else None
            if fitted is not None:
                self.use(START, fitted)
        elif self.reading.states:
            log_odds = pair_odds = rewards
        elif self.labels_are == "best" and self.reading.kind == "utility":
            pair_odds = rewards
        if self.labels_are != "correct":
            log_odds = None
        observed = Observed(samples, rewards, log_odds, pair_odds, reference)
        for monitor in self._errors:
            monitor.add(step, monitor.check.sums(observed))
        other = self._is_other_scale()
        changes = {change.column: change.sums(observed) for change in CHANGES}
        for monitor, sums in zip(self._changes, changes.values(), strict=True):
            monitor.add(step, sums)
        self.rows[step] = self._row(observed, changes)
        self._measured |= {name for name, value in self.rows[step].items() if value == value}
        return other

    def _row(self, observed: Observed, changes: Mapping[str, Sums | None]) -> dict[str, Any]:
        samples, reward = observed.samples, observed.samples.reward
        mean, spread = float(reward.mean()), float(reward.std())
        first = self.rows[min(self.rows)] if self.rows else {"mean_reward": mean, "reward_sd": spread}
        part = _part(observed)
        labelled = part.prompts("labelled")
        stated = None
        if labelled is not None and observed.log_odds is not None:
            reference = observed.reference
            t, b = (1.0, 0.0) if reference is None else (reference.temperature, reference.threshold or 0.0)
            stated = replace(labelled, calibrator=(t, b))
        row: dict[str, Any] = {
            "step": samples.step,
            "n_samples": len(reward),
            "n_prompts": len(part),
            "n_labels": samples.n_labels,
            "mean_reward": mean,
            "reward_sd": spread,
            "ties": _ties(samples),
            "squashed": bool((reward >= 0).all() and (reward <= 1).all()),
            "drift": (mean - first["mean_reward"]) / (first["reward_sd"] or np.nan),
            "says": np.nan if observed.log_odds is None else float(expit(observed.log_odds).mean()),
        }
        row |= {name: np.nan if sums is None else Mean.over(sums).value for name, sums in changes.items()}
        for name, metric, measured in (
            ("right", "pointwise_accuracy", None if self.labels_are == "best" else labelled),
            ("gap", "pointwise_gap", stated),
            ("auroc", "within_prompt_auroc", labelled),
            ("length_correlation", "reward_length_correlation", part),
        ):
            row |= _cells(name, None if measured is None else catalogue()[metric].measure(measured, _QUICK))
        for change in CHANGES:
            if not change.page_only:
                sums = changes[change.column]
                values = None if sums is None else sums.values[:, 0] / sums.values[:, 1]
                row |= _cells(change.column, None if values is None else Estimate.shares(values))
        return row | {"alarm": any(monitor.alarms for monitor in self._errors)}


def _alarms(monitors: Sequence[Monitor]) -> list[dict[str, Any]]:
    """Return the alarms in the order in which they came."""
    every = (alarm for monitor in monitors for alarm in monitor.alarms)
    return sorted(every, key=lambda alarm: alarm["step"])


def _cells(name: str, estimate: Estimate | None) -> dict[str, float]:
    """Return an estimate and its limits; NaN where it is unknown."""
    limits = None if estimate is None else estimate.interval()
    return {
        name: np.nan if estimate is None or estimate.value is None else estimate.value,
        f"{name}_low": np.nan if limits is None else limits.low,
        f"{name}_high": np.nan if limits is None else limits.high,
    }


def _checked(
    step: float, prompt: Any, reward: Any, label: Any, length: Any, text: Any, weight: Any, second: Any
) -> StepSamples:
    """Return the samples of a step as arrays of one length."""
    names = np.array([str(value) for value in prompt], dtype=object)
    r = as_floats(as_array(reward).ravel(), f"reward (step {step:.15g})", ndim=1)
    label, length, second = (
        np.full(len(r), np.nan) if values is None else as_array(values).ravel()
        for values in (label, length, second)
    )
    weight = np.ones(len(r)) if weight is None else as_array(weight).ravel()
    texts = None if text is None else np.array([str(value) for value in text], dtype=object)
    every = (names, r, label, length, weight, second, r if texts is None else texts)
    sizes = [len(values) for values in every]
    if len({*sizes}) > 1 or not len(r):
        raise ValueError(
            f"prompt, reward, label, length, weight, second, text: expected one each per sample of step "
            f"{step:.15g}, got {', '.join(map(str, sizes))}"
        )
    if ((label < 0) | (label > 1)).any():
        raise ValueError(
            f"label (step {step:.15g}): {label[(label < 0) | (label > 1)][0]:g} is not from 0 to 1"
        )
    if not (weight > 0).all() or not np.isfinite(weight).all():
        raise ValueError(f"weight (step {step:.15g}): expected positive numbers, 1/P(the sample is labelled)")
    form = None if texts is None else forms_of(texts)
    return StepSamples(float(step), names, r, label, length, weight, second, texts, form)


def _part(observed: Observed) -> Part:
    """Return the samples of a step, which are sorted by prompt, as prompts."""
    samples = observed.samples
    _, sizes = np.unique(samples.prompt, return_counts=True)
    columns = {
        "item_id": np.char.mod("%d", samples.prompt),
        "response": np.arange(len(samples)) - np.repeat(np.cumsum(sizes) - sizes, sizes),
        "label": samples.label,
        "reward": observed.rewards,
        "inclusion": 1 / samples.weight,
    }
    scores = Scores.from_columns(columns, _STATED, labels="correct", source=f"step {samples.step:.15g}")
    return whole_part(scores, lengths=samples.length)


def _ties(samples: StepSamples) -> float:
    """Return the fraction of samples whose reward another sample of their prompt has, too."""
    pairs = np.column_stack([samples.prompt, samples.reward])
    _, index, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return float((count[index.ravel()] > 1).mean())

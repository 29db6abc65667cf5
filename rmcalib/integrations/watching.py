"""Watch a training run: is the reward still right about the samples of its own policy?

Also metrics of a reward model that is trained itself, fast enough for every evaluation (`preference_metrics`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats
from rmcalib.calibration.intervals import check_level
from rmcalib.integrations.alarm import Alarm, gap_sums, pair_sums
from rmcalib.metrics.catalogue import TRAINING_METRICS, catalogue, chosen_metrics
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.repair.calibration import Calibration
from rmcalib.repair.calibrator import Calibrator, as_calibrator, fit_pointwise, labelled_part
from rmcalib.scores import Scores, load_all_scores
from rmcalib.scores.rollouts import RolloutReader

Samples = tuple[Any, FloatArray, FloatArray | None, Any]
START = "start"
"""As a calibrator: fit b and T on the first prompts of the run."""
_FACTS = ("mean_reward", "reward_sd", "ties", "drift", "length_correlation", "right", "gap", "auroc")


@dataclass(frozen=True, repr=False)
class Watch(Shown):
    """What was seen of a training run.

    Attributes
    ----------
    steps : list of dict
        One row per step, see `Watcher.add`.
    alarm : dict or None
        The first alarm: ``step``, ``what`` ("gap" or "order"), ``over`` ("run", or the last steps), ``value``
        (how much more is stated than is right), ``limit`` (that it exceeds), ``error``, ``prompts``, ``look``.
    reference : dict
        What probabilities are made of: ``kind`` ("stated", "calibrator", "benchmark" or "start"),
        ``temperature``, ``threshold``, ``n`` (prompts of its fit; None if it was not fitted).
    misses : tuple of str
        Which columns of ``steps`` could not be measured, because there are no labels or texts.
    level, margin : float
        Of the alarm.
    waiting : int
        Labelled prompts that are still needed for a reference that is fitted at the start.
    """

    steps: list[dict[str, Any]]
    alarm: dict[str, Any] | None
    reference: dict[str, Any]
    misses: tuple[str, ...]
    level: float
    margin: float
    waiting: int = 0

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
        What turns rewards into probabilities: σ((r − b)/T). None: the rewards are log-odds as they are (b = 0,
        T = 1), as those of a classifier with a binary loss. "start": b and T are fitted on the first prompts,
        for rewards of any scale, such as those of a Bradley-Terry model; the steps of the fit are not tested.
    level : float
        1 − the chance of any false alarm over the whole run, for the gap and the order together.
    margin : float
        Gaps up to this size raise no alarm, as a fraction.
    window : int
        How many of the last steps are also tested by themselves.
    start : int
        How many labelled prompts the reference is fitted on, with ``calibrator="start"``.

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
    start: int = 200
    kind: str = field(default="stated", init=False)
    rows: dict[float, dict[str, Any]] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[Any, int] = field(default_factory=dict, init=False, repr=False)
    _first: dict[float, Part] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the settings, and load the calibrator."""
        check_level(self.level)
        if not 0 <= self.margin < 1:
            raise ValueError(f"margin: {self.margin} is out of range, expected a fraction such as 0.03")
        if self.start < FEWEST:
            raise ValueError(f"start: {self.start} prompts are too few, expected at least {FEWEST}")
        self._alarm = Alarm(level=self.level, margin=self.margin, window=self.window)
        if self.calibrator == START:
            self.kind = START
        elif self.calibrator is None:
            self.use("stated", Calibrator(1.0, 1.0, 1.0, threshold=0.0))
        else:
            self.use("calibrator", as_calibrator(self.calibrator))

    def use(self, kind: str, reference: Calibrator) -> None:
        """State probabilities by this reference from now on; ``kind`` is that of `Watch`."""
        if reference.threshold is None:
            raise ValueError(
                "calibrator: it has no threshold b, so it says nothing about single samples; fit one with "
                "calibrate(..., view='pointwise')"
            )
        self.kind, self._alarm.reference = kind, reference

    def add(
        self,
        step: float,
        prompt: Any,
        reward: ArrayLike,
        label: ArrayLike | None = None,
        length: ArrayLike | None = None,
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

        Returns
        -------
        dict
            ``step``, ``n_samples``, ``n_prompts``, ``mean_reward``, ``reward_sd``, ``ties`` (fraction of
            samples with the same reward as another one of their prompt), ``drift`` (mean reward minus that of
            the first step, in standard deviations of the first step), ``squashed`` (all rewards within 0 and
            1), ``right`` with limits, ``gap`` (stated − right) with limits, ``auroc`` (how often a correct
            sample has a larger reward than a wrong one of its prompt) with limits, ``length_correlation`` with
            limits, and ``alarm`` (whether it holds). NaN where it is unknown. Intervals are clustered by prompt.
        """
        part = self._part(step, prompt, reward, label, length)
        labelled = part.prompts("labelled")
        moved = None
        if labelled is not None:
            reference = self._alarm.reference  # before this step: it may be fitted on it
            if reference is not None and reference.threshold is not None:
                moved = replace(labelled, calibrator=(reference.temperature, reference.threshold))
                self._test(step, moved)
            else:
                self._add_to_start(step, labelled)
        self.rows[step] = self._row(step, part, labelled, moved)
        return self.rows[step]

    def result(self) -> Watch:
        """Return what was seen so far."""
        steps = [self.rows[step] for step in sorted(self.rows)]
        known = {name for row in steps for name, value in row.items() if value == value}
        found = self._alarm.reference
        return Watch(
            steps=steps,
            alarm=self._alarm.alarm,
            reference={
                "kind": self.kind,
                "temperature": found and found.temperature,
                "threshold": found and found.threshold,
                "n": found and found.fitted_on.get("clusters"),
            },
            misses=tuple(name for name in _FACTS if name not in known),
            level=self.level,
            margin=self.margin,
            waiting=max(self.start - self._prompts_of_start(), 0) if found is None else 0,
        )

    def _part(self, step: float, prompt: Any, reward: ArrayLike, label: Any, length: Any) -> Part:
        """Return the samples of a step as prompts; each one's number stays over the run."""
        names = [str(one) for one in prompt]
        r = as_floats(as_array(reward).ravel(), f"reward (step {step:g})", ndim=1)
        label, length = (
            np.full(len(r), np.nan) if one is None else as_array(one).ravel() for one in (label, length)
        )
        if not len(r) == len(names) == len(label) == len(length):
            raise ValueError(
                f"prompt, reward, label, length: expected one each per sample of step {step:g}, got "
                f"{len(names)}, {len(r)}, {len(label)}, {len(length)}"
            )
        number = np.array([self._numbers.setdefault(name, len(self._numbers)) for name in names])
        order = np.argsort(number, kind="stable")
        _, sizes = np.unique(number, return_counts=True)
        columns = {
            "item_id": np.char.mod("%d", number[order]),
            "response": np.arange(len(r)) - np.repeat(np.cumsum(sizes) - sizes, sizes),
            "label": label[order],
            "reward": r[order],
        }
        return whole_part(Scores.from_columns(columns, source=f"step {step:g}"), lengths=length[order])

    def _add_to_start(self, step: float, part: Part) -> None:
        """Add the labelled samples of a step to those that the reference is fitted on."""
        before = self._prompts_of_start()
        self._first[step] = part
        n = self._prompts_of_start()
        if n >= (self.start if n > before else FEWEST):  # else wait; the same prompts may return
            self.use(START, self._fit_start())
            self._first = {}

    def _prompts_of_start(self) -> int:
        return len({name for one in self._first.values() for name in one.scores.item_id.tolist()})

    def _fit_start(self) -> Calibrator:
        """Fit b and T on the samples of the first steps; a prompt that returns is one cluster."""
        parts = list(self._first.values())
        steps = np.repeat(np.arange(len(parts)), [len(one.reward) for one in parts])
        ids = np.concatenate([one.scores.item_id for one in parts])
        columns = {
            "item_id": [f"{number}/{name}" for number, name in zip(steps, ids, strict=True)],
            "cluster": ids,
            "response": np.concatenate([one.scores.response for one in parts]),
            "reward": np.concatenate([one.reward for one in parts]),
            "label": np.concatenate([one.label for one in parts]),
        }
        return fit_pointwise(whole_part(Scores.from_columns(columns)))

    def _test(self, step: float, part: Part) -> None:
        stated = part.pointwise
        assert stated.logit is not None
        prompt: IntArray = part.scores.item_id[~np.isnan(part.label)].astype(np.int64)
        gap = gap_sums(prompt, stated.p, stated.y, stated.logit)
        self._alarm.add(step, gap, pair_sums(prompt, stated.y, stated.logit))

    def _row(self, step: float, part: Part, labelled: Part | None, moved: Part | None) -> dict[str, Any]:
        settings, reward = Settings(resamples=200), part.reward
        rewards = {"mean_reward": float(reward.mean()), "reward_sd": float(reward.std())}
        first = self.rows[min(self.rows)] if self.rows else rewards
        row: dict[str, Any] = {
            "step": step,
            "n_samples": len(reward),
            "n_prompts": len(part),
            **rewards,
            "ties": _ties(part),
            "squashed": bool((reward >= 0).all() and (reward <= 1).all()),
            "drift": (rewards["mean_reward"] - first["mean_reward"]) / (first["reward_sd"] or np.nan),
        }
        for name, metric, own in (
            ("right", "pointwise_accuracy", labelled),
            ("gap", "pointwise_gap", moved),
            ("auroc", "within_prompt_auroc", labelled),
            ("length_correlation", "reward_length_correlation", part),
        ):
            found = None if own is None else catalogue()[metric].measure(own, settings)
            limits = None if found is None else found.interval()
            row[name] = np.nan if found is None or found.value is None else found.value
            row[f"{name}_low"] = np.nan if limits is None else limits.low
            row[f"{name}_high"] = np.nan if limits is None else limits.high
        return row | {"alarm": self._alarm.alarm is not None}


def watch(
    folder: Any,
    *,
    columns: str | Mapping[str, Any] | None = None,
    calibrator: Calibrator | Calibration | str | Path | None = None,
    benchmark: Any = None,
    follow: bool = False,
    level: float = 0.95,
    margin: float = 0.03,
    window: int = 10,
    start: int = 200,
    every: float = 10.0,
    on_step: Callable[[Watch], None] | None = None,
) -> Watch:
    """Watch a training run from the files that its framework writes.

    Parameters
    ----------
    folder : path, DataFrame or Scores
        The folder of rollouts of verl, TRL, ms-swift, NeMo-RL or LLaMA-Factory, or a file; see
        :mod:`rmcalib.scores.rollouts`. Or a table of samples with a column of steps.
    columns : mapping or str, optional
        Which column is what: ``"reward=score,label=acc"``. Usual names are found without it.
    calibrator : Calibrator, path or "start", optional
        What turns rewards into probabilities; see `Watcher`. Default: rewards are log-odds.
    benchmark : Scores, DataFrame or path, optional
        Scores of the reward model for labelled responses, to fit b and T on, instead of a calibrator.
    follow : bool
        Wait for new steps, until an alarm holds, or the process is interrupted.
    level, margin, window, start
        Of the alarm; see `Watcher`.
    every : float
        Seconds between two looks at the folder, with ``follow``.
    on_step : function of a Watch, optional
        Called after every new step, to show it.

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
    watcher = Watcher(calibrator, level, margin, window, start)
    if benchmark is not None:
        if calibrator is not None:
            raise ValueError("benchmark: give a calibrator or a benchmark, not both")
        watcher.use("benchmark", fit_pointwise(labelled_part(benchmark, "labelled")))
    if not isinstance(folder, str | Path):  # a table, which does not grow
        for step, samples in steps_in(load_all_scores(folder, columns), "the table"):
            watcher.add(step, *samples)
        return watcher.result()
    reader = RolloutReader(folder, columns)
    seen: dict[float, bytes] = {}
    while True:
        for step, samples in _new_steps(reader, seen, may_be_empty=follow):
            watcher.add(step, *samples)
            if on_step is not None:
                on_step(watcher.result())
        found = watcher.result()
        if not follow or found.alarm is not None:
            return found
        time.sleep(every)


def _new_steps(
    reader: RolloutReader, seen: dict[float, bytes], *, may_be_empty: bool
) -> Iterator[tuple[float, Samples]]:
    """Yield the steps that are new or were written again; ``seen`` remembers what was read."""
    try:
        found = [*steps_in(reader.read(), str(reader.source))]
    except ValueError:
        if may_be_empty and not seen:
            return  # the run has not begun
        raise
    for step, samples in found:
        digest = b"".join(np.asarray(one).tobytes() for one in samples[1:3])
        if seen.get(step) != digest:
            seen[step] = digest
            yield step, samples


def steps_in(found: Mapping[str, Scores], source: str) -> Iterator[tuple[float, Samples]]:
    """Yield the steps of samples as `Watcher.add` takes them."""
    if len(found) > 1:
        raise ValueError(
            f"{source}: which reward is watched? Name it, and the truth if another one is: --columns "
            f"reward=NAME,label=NAME (has {', '.join(found)})"
        )
    (scores,) = found.values()
    steps = np.asarray(scores.extra.get("step", np.zeros(len(scores))), dtype=np.float64)
    lengths = scores.extra.get("characters")
    if lengths is None and "response_text" in scores.extra:
        lengths = np.array([len(str(text)) for text in scores.extra["response_text"]])
    for step in np.unique(steps).tolist():
        kept = steps[scores.offsets[:-1]] == step
        own = scores.take(kept)
        prompt = own.item_id if own.cluster is None else own.cluster
        length = None if lengths is None else lengths[np.repeat(kept, np.diff(scores.offsets))]
        yield step, (prompt, own.reward, None if np.isnan(own.label).all() else own.label, length)


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

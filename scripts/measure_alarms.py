"""How often does `rmcalib watch` raise a false alarm, and how soon a true one? Writes results/alarms.md.

`python scripts/measure_alarms.py [--runs 100] [--to results/alarms.md]`

The limits of the looks depend on the variances of the looks alone, which are the same in all runs of a row up to noise.
So the random walks that they come from are followed once per row, beside its first run.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, logit

from rmcalib._util.files import write_text
from rmcalib.integrations import watcher as engine
from rmcalib.integrations.alarms import Monitor
from rmcalib.metrics.views import whole_part
from rmcalib.repair.calibrator import Calibrator, fit_pointwise
from rmcalib.scores import Scores
from rmcalib.scores.rollouts import StepSamples

PROMPTS, SAMPLES, MARGIN, LEVEL = 32, 4, 0.03, 0.95
DIFFICULTY = 1.0  # standard deviation of a prompt's hidden log-odds
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_GRID = np.linspace(-12, 12, 2401)
_STATED = (expit(_GRID[:, None] + DIFFICULTY * _NODES) * _WEIGHTS).sum(axis=1) / _WEIGHTS.sum()


@dataclass(frozen=True)
class World:
    """A kind of training run: what its prompts, rewards and labels are, and what goes wrong when."""

    name: str
    gap: float = 0.0
    after: int = 0
    """The step after which the gap opens."""
    grows: int = 0
    """Steps in which the gap grows to its size; 0 for at once."""
    coin: bool = False
    """Whether the order within prompts becomes a coin toss instead."""
    pool: int = 0
    """Prompts that return; 0 for fresh ones."""
    reference: int = 0
    """Prompts that a given reference was fitted on; 0 without."""
    start: bool = False
    """Whether a reference is fitted on the first prompts of the run: `--calibrator start`."""
    raw: bool = False
    """Whether rewards are no log-odds, without a reference."""
    unsaid: bool = False
    """Whether nobody says what the rewards are: they are assumed to be log-odds."""
    times: int = 1
    """How many times as many runs as other rows."""
    labelled: float = 1.0
    per_prompt: int = SAMPLES
    steps: int = 100
    whitened: bool = False
    """Whether the rewards of a step are shifted and scaled to mean 0 and variance 1."""
    offsets: float = 0.0
    """Standard deviation of a prompt's own offset, which a Bradley-Terry model has."""
    improves: float = 0.0
    """By how much the log-odds of the policy's samples grow until the end."""

    @property
    def is_raw(self) -> bool:
        """Whether the rewards are no log-odds."""
        return self.raw or self.start or bool(self.reference)

    @property
    def has_oracle(self) -> bool:
        """Whether an oracle is measured, too."""
        return bool(self.gap) and not (self.is_raw or self.pool or self.grows)


def samples(
    rng: np.random.Generator, world: World, hidden: np.ndarray, level: np.ndarray, gap: float, coin: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-odds that are stated, and labels: both (prompts, samples).

    A label is drawn from σ(x + hidden difficulty of the prompt), and the mean of that over difficulties is
    stated, so that forecasts are calibrated over prompts. A gap turns correct labels into wrong ones. A coin
    gives the rewards of a prompt to its samples in random order.
    """
    x = level[:, None] + rng.normal(scale=1.2, size=(len(hidden), world.per_prompt))
    q = expit(x + hidden[:, None])
    right = rng.random(q.shape) < q
    lost = min(gap / max(right.mean(), 1e-9), 1.0)
    y = right & (rng.random(q.shape) >= lost)
    stated = logit(np.interp(x, _GRID, _STATED))
    return rng.permuted(stated, axis=1) if coin else stated, y.astype(float)


def rewards_of(rng: np.random.Generator, world: World, x: np.ndarray) -> np.ndarray:
    """Return log-odds, or the rewards that stand for them: 2 x + 1 with offsets of prompts, or whitened."""
    if not world.is_raw:
        return x
    rewards = 2 * x + 1 + rng.normal(scale=world.offsets, size=(len(x), 1))
    return (rewards - rewards.mean()) / rewards.std() if world.whitened else rewards


def reference_of(rng: np.random.Generator, world: World) -> Calibrator | None:
    """Return a calibrator that was fitted on the first prompts, which are not tested."""
    if not world.reference:
        return None
    columns = []
    for first in range(0, world.reference, PROMPTS):
        n = min(PROMPTS, world.reference - first)
        x, y = samples(
            rng, world, rng.normal(scale=DIFFICULTY, size=n), rng.normal(scale=0.8, size=n), 0.0, False
        )
        columns.append((rewards_of(rng, world, x), y))
    rewards, labels = (np.concatenate([column[i] for column in columns]) for i in (0, 1))
    return fit_pointwise(whole_part(Scores.from_arrays(rewards, labels, labels_are="correct")))


@dataclass
class Limits:
    """The limits of a row's looks, found beside the first run."""

    by_alarm: dict[str, list[float]] = field(default_factory=dict)

    def share(self, monitor: Monitor) -> None:
        """Let a monitor take the limits of an earlier run where there are some."""
        boundary, limits = monitor._boundary, self.by_alarm.setdefault(monitor.check.name, [])
        follow = boundary.limit

        def limit(variance: float) -> float:
            if boundary.looks < len(limits):
                boundary.looks += 1
                return limits[boundary.looks - 1]
            limits.append(follow(variance))
            return limits[-1]

        # A later run may have more looks than the first: its walks begin there, with all of the budget spent before.
        boundary.limit = limit  # type: ignore[method-assign]


vars(engine)["CHANGES"] = ()  # not measured here


class Watcher(engine.Watcher):
    """Tests each step, but does not describe it."""

    limits: Limits

    def _begin(self) -> None:
        super()._begin()
        for monitor in self._errors:
            self.limits.share(monitor)

    def _row(self, *_: Any) -> dict[str, Any]:
        return {}


def run(world: World, seed: int, limits: Limits) -> tuple[int | None, str, np.ndarray]:
    """Return the step of the alarm or None, what it was about, and the mean residual of each step."""
    rng = np.random.default_rng(seed)
    Watcher.limits = limits
    scale = None if world.is_raw or world.unsaid else "log_odds"
    watcher = Watcher(engine.START if world.start else None, LEVEL, MARGIN, scale=scale)
    if (reference := reference_of(rng, world)) is not None:
        watcher.use("calibrator", reference)
    pool = rng.normal(scale=DIFFICULTY, size=world.pool), rng.normal(scale=0.8, size=world.pool)
    order, residuals = np.arange(0), np.full(world.steps, np.nan)
    for step in range(1, world.steps + 1):
        if world.pool:
            if len(order) < PROMPTS:
                order = np.concatenate([order, rng.permutation(world.pool)])
            ids, order = order[:PROMPTS], order[PROMPTS:]
            hidden, level = pool[0][ids], pool[1][ids]
        else:
            ids = np.arange(PROMPTS) + step * PROMPTS
            hidden, level = rng.normal(scale=DIFFICULTY, size=PROMPTS), rng.normal(scale=0.8, size=PROMPTS)
        since = step - world.after
        gap = 0.0 if since <= 0 else world.gap * (min(since / world.grows, 1.0) if world.grows else 1.0)
        level = level + world.improves * step / world.steps
        x, y = samples(rng, world, hidden, level, gap, world.coin and since > 0)
        labelled = rng.random(y.shape) < world.labelled
        if labelled.any():
            residuals[step - 1] = (expit(x) - y)[labelled].mean()
        nothing = np.full(x.size, np.nan)
        reward, label = rewards_of(rng, world, x).ravel(), np.where(labelled, y, np.nan).ravel()
        prompt = np.repeat(ids, world.per_prompt)
        watcher.update([StepSamples(step, prompt, reward, label, nothing, np.ones(x.size), nothing)])
        if seed and not world.has_oracle and any(monitor.alarms for monitor in watcher._errors):
            break
    alarm = watcher.result().alarm
    return (None, "", residuals) if alarm is None else (int(alarm["step"]), str(alarm["what"]), residuals)


def oracle(residuals: np.ndarray, edge: np.ndarray, gap: float) -> np.ndarray:
    """Return the steps of the alarms of a CUSUM that knows the size of the gap, and has 5% of false alarms, too.

    ``residuals`` and ``edge`` are (runs, steps): those of a world, and of the same world with a gap of the margin.
    """

    def path(values: np.ndarray) -> np.ndarray:
        spread = np.nanvar(edge)
        gains = np.nan_to_num((gap - MARGIN) * (values - (gap + MARGIN) / 2) / spread)
        total, out = np.zeros(len(values)), np.empty(values.shape)
        for step in range(values.shape[1]):
            total = np.maximum(total + gains[:, step], 0.0)
            out[:, step] = total
        return out

    limit = np.quantile(path(edge).max(axis=1), LEVEL)
    above = path(residuals) > limit
    return np.where(above.any(axis=1), above.argmax(axis=1) + 1.0, np.inf)


def few_labels(name: str, **settings: Any) -> World:
    """Return a world with labels on 2% of 8 samples per prompt."""
    return World(name, labelled=0.02, per_prompt=8, **settings)


HEALTHY = [
    World("fresh prompts"),
    World("fresh prompts, gap on the edge", gap=MARGIN),
    World("300 prompts that return", pool=300),
    World("300 prompts that return, gap on the edge", gap=MARGIN, pool=300),
    few_labels("2% labels"),
    few_labels("2% labels, gap on the edge", gap=MARGIN),
    World("reference of 200 prompts", reference=200),
    World("reference of 800 prompts", reference=800),
    World("batch-whitened rewards", reference=800, whitened=True),
    World("offsets of prompts", reference=800, offsets=2.0),
    World("improving policy", improves=1.5),
    World("improving policy, whitened", improves=1.5, reference=800, whitened=True),
    World("fitted at the start", start=True),
    World("fitted at the start, offsets of prompts", start=True, offsets=2.0),
    World("fitted at the start, gap on the edge after step 50", start=True, gap=MARGIN, after=50),
    World("fitted at the start, 300 prompts that return", start=True, pool=300),
    World("Bradley-Terry model, nobody says so", times=3, raw=True, unsaid=True, offsets=2.0),
    few_labels("Bradley-Terry model, nobody says so, 2% labels", times=3, raw=True, unsaid=True, offsets=2.0),
    World("log-odds, gap on the edge, nobody says so", gap=MARGIN, unsaid=True),
]
DRIFTS = [
    World("5 points from the start", gap=0.05),
    World("10 points from the start", gap=0.1),
    World("20 points from the start", gap=0.2),
    World("6 points after step 50", gap=0.06, after=50),
    World("10 points after step 50", gap=0.1, after=50),
    World("20 points after step 50", gap=0.2, after=50),
    World("10 points after step 50, 300 prompts return", gap=0.1, after=50, pool=300),
    World("20 points after step 50, reference of 200", gap=0.2, after=50, reference=200),
    World("20 points after step 50, reference of 800", gap=0.2, after=50, reference=800),
    World("20 points after step 50, fitted at the start", gap=0.2, after=50, start=True),
    World(
        "20 points after step 50, Bradley-Terry, nobody says so",
        gap=0.2,
        after=50,
        raw=True,
        unsaid=True,
        offsets=2.0,
    ),
    World("2 x + 1 from the start, nobody says so", raw=True, unsaid=True),
    World("20 points from the start, nobody says so", gap=0.2, unsaid=True),
    few_labels("2% labels, grows to 35 points in 120 steps", gap=0.35, grows=120, steps=120),
    few_labels(
        "2% labels, grows to 35 points in 120 steps, nobody says so",
        gap=0.35,
        grows=120,
        steps=120,
        unsaid=True,
    ),
    World("the order is a coin toss after step 50", coin=True, after=50),
]


def quantiles(steps: np.ndarray, after: int) -> list[str]:
    """Return the median delay of alarms after the change, and the delay within which 90% come."""
    late = np.quantile(np.where(steps > after, steps - after, np.inf), [0.5, 0.9], method="higher")
    return [f"{delay:g}" if np.isfinite(delay) else "–" for delay in late]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--to", type=Path, default=Path("results/alarms.md"))
    given = parser.parse_args()
    lines = [
        "# Alarms of `rmcalib watch`",
        "",
        f"{given.runs} simulated runs per row: {PROMPTS} prompts per step with {SAMPLES} samples, 100 steps, level "
        f"{LEVEL:.0%}, margin {100 * MARGIN:g} points,",
        "window 10 looks, one-sided. Every prompt has a hidden difficulty (standard deviation "
        f"{DIFFICULTY:g} in log-odds). 2% labels: of 8 samples per",
        "prompt, so about 5 per step. Rewards are log-odds x (`--scale log_odds`), or 2 x + 1: then a reference was",
        "fitted on 200 or 800 prompts, or is fitted at the start (`--calibrator start`). If nobody says what the",
        "rewards are, they are taken as log-odds until labels show another scale. A Bradley-Terry model adds an offset",
        "(standard deviation 2) to the rewards of each prompt; its rows without a gap have "
        f"{3 * given.runs} runs. Made by",
        "`scripts/measure_alarms.py`.",
        "",
        "## Nothing is wrong",
        "",
        "A gap on the edge is exactly the margin: the largest one that must not alarm.",
        "",
        "| run | false alarms | about the gap | about the order |",
        "|---|---|---|---|",
    ]
    began = time.perf_counter()
    residuals: dict[str, np.ndarray] = {}

    def measured(world: World) -> tuple[np.ndarray, list[str]]:
        limits = Limits()
        steps, about, means = zip(
            *(run(world, seed, limits) for seed in range(world.times * given.runs)), strict=True
        )
        residuals[world.name] = np.array(means)
        return np.array([np.inf if step is None else step for step in steps]), [*about]

    for world in HEALTHY:
        steps, about = measured(world)
        rates = [
            np.isfinite(steps).mean(),
            *(np.mean([alarm == what for alarm in about]) for what in ("gap", "order")),
        ]
        lines.append(f"| {world.name} | {' | '.join(f'{rate:.1%}' for rate in rates)} |")
        print(lines[-1], f"{time.perf_counter() - began:.0f} s", flush=True)
    lines += [
        "",
        f"Two standard errors of a rate of 5% are {2 * (0.05 * 0.95 / given.runs) ** 0.5:.1%} with {given.runs} runs.",
        "",
        "## Something is wrong",
        "",
        "Delays are counted in steps from the change. The oracle is a CUSUM that knows the size of the gap in advance,",
        "and has a false alarm in 5% of the runs on the edge, too.",
        "",
        "| drift | found | before the change | median delay | 90% within | oracle: found | median | 90% |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for world in DRIFTS:
        steps, _ = measured(world)
        cells = [
            f"{(np.isfinite(steps) & (steps > world.after)).mean():.0%}",
            f"{(steps <= world.after).mean():.1%}",
        ]
        cells += quantiles(steps, world.after)
        edge = residuals["fresh prompts, gap on the edge"]
        if world.has_oracle:
            best = oracle(residuals[world.name], edge, world.gap)
            cells += [
                f"{(np.isfinite(best) & (best > world.after)).mean():.0%}",
                *quantiles(best, world.after),
            ]
        else:
            cells += ["", "", ""]
        lines.append(f"| {world.name} | {' | '.join(cells)} |")
        print(lines[-1], f"{time.perf_counter() - began:.0f} s", flush=True)
    write_text(given.to, "\n".join([*lines, ""]))


if __name__ == "__main__":
    main()

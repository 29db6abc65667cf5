"""How often does `rmcalib watch` raise a false alarm, and how soon a true one? Writes results/alarms.md.

`python scripts/measure_alarms.py [--runs 400] [--to results/alarms.md]`
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from scipy.special import expit, logit

from rmcalib._util.files import write_text
from rmcalib.integrations.alarms.gap import gap_sums
from rmcalib.integrations.alarms.order import pair_sums
from rmcalib.metrics.views import whole_part
from rmcalib.repair.calibrator import fit_pointwise
from rmcalib.scores import Scores

STEPS, PROMPTS, SAMPLES = 100, 32, 4
DIFFICULTY = 1.0  # standard deviation of a prompt's hidden log-odds
_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_GRID = np.linspace(-12, 12, 2401)
_STATED = (expit(_GRID[:, None] + DIFFICULTY * _NODES) * _WEIGHTS).sum(axis=1) / _WEIGHTS.sum()


def samples(
    rng: np.random.Generator, hidden: np.ndarray, level: np.ndarray, gap: float = 0.0, coin: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-odds that are stated, and labels: both (prompts, samples).

    A label is drawn from σ(x + hidden difficulty of the prompt), and the mean of that over difficulties is
    stated, so that forecasts are calibrated over prompts. A gap turns correct labels into wrong ones. A coin
    gives the rewards of a prompt to its samples in random order.
    """
    x = level[:, None] + rng.normal(scale=1.2, size=(len(hidden), SAMPLES))
    q = expit(x + hidden[:, None])
    y = (rng.random(q.shape) < q) & (rng.random(q.shape) >= gap / 0.5)
    stated = logit(np.interp(x, _GRID, _STATED))
    return rng.permuted(stated, axis=1) if coin else stated, y.astype(float)


def run(setting: str, seed: int, gap: float, change: int = 0, coin: bool = False) -> tuple[int | None, str]:
    """Return the step of the alarm, counted from the change, or None; and what it was about."""
    rng = np.random.default_rng(seed)
    alarm = Alarm()
    scale, shift = 1.0, 0.0
    n_pool = 300 if setting == "returning" else 200 if setting == "same" else 0
    pool = rng.normal(scale=DIFFICULTY, size=n_pool), rng.normal(scale=0.8, size=n_pool)
    if setting == "reference":
        hidden, level = rng.normal(scale=DIFFICULTY, size=60), rng.normal(scale=0.8, size=60)
        x, y = samples(rng, hidden, level)
        fit = fit_pointwise(whole_part(Scores.from_arrays(2 * x + 1, y)))
        # What is stated by the reference, as a function of the true log-odds.
        assert fit.threshold is not None
        scale, shift = 2 / fit.temperature, (1 - fit.threshold) / fit.temperature
        alarm = Alarm(reference=fit)
    order, size, steps = np.arange(0), PROMPTS, STEPS
    if setting == "same":
        size, steps = 200, 3
    for step in range(1, steps + 1):
        if n_pool:
            if len(order) < size:
                order = np.concatenate([order, rng.permutation(n_pool)])
            ids, order = order[:size], order[size:]
            hidden, level = pool[0][ids], pool[1][ids]
        else:
            ids = np.arange(size) + step * size
            hidden, level = rng.normal(scale=DIFFICULTY, size=size), rng.normal(scale=0.8, size=size)
        on = step > change
        x, y = samples(rng, hidden, level, gap if on else 0.0, coin and on)
        x = scale * x + shift
        prompt, x, y = np.repeat(ids, SAMPLES), x.ravel(), y.ravel()
        alarm.add(step, gap_sums(prompt, expit(x), y, x), pair_sums(prompt, y, x))
        if alarm.alarm is not None:
            return step - change, str(alarm.alarm["what"])
    return None, ""


SETTINGS = ("fresh", "returning", "reference")
CASES = [
    *((setting, gap, 0, False) for setting in SETTINGS for gap in (0.0, 0.03)),
    *((setting, gap, 0, False) for setting in SETTINGS for gap in (0.05, 0.1, 0.2)),
    *(("fresh", gap, 50, False) for gap in (0.05, 0.1, 0.2)),
    ("fresh", 0.0, 0, True),
    ("returning", 0.0, 50, True),
    ("same", 0.0, 0, False),
    ("same", 0.2, 0, False),
]
NAMES = {
    "fresh": "fresh prompts",
    "returning": "300 prompts that return",
    "reference": "reference fitted on 60 prompts",
    "same": "the same 200 prompts, three looks",
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--to", type=Path, default=Path("results/alarms.md"))
    given = parser.parse_args()
    lines = [
        "# Alarms of `rmcalib watch`",
        "",
        f"{given.runs} simulated runs per row, {STEPS} looks of {PROMPTS} prompts with {SAMPLES} samples each "
        "(the last rows: three looks at 200 prompts), level 95%, margin 3 points, window 10 steps. Every prompt has a",
        f"hidden difficulty (standard deviation {DIFFICULTY:g} in log-odds). A gap of 3 points is on the edge of what "
        "must not alarm. Made by",
        "`scripts/measure_alarms.py`.",
        "",
        "| prompts | truth | starts after step | alarms | about the gap | about the order | median delay in steps "
        "| 90% within |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for setting, gap, change, coin in CASES:
        began = time.perf_counter()
        found = [run(setting, seed, gap, change, coin) for seed in range(given.runs)]
        early = sum(delay is not None and delay <= 0 for delay, _ in found)
        delays = np.array([np.inf if delay is None else delay for delay, _ in found])
        about = [sum(what == one for _, what in found) / given.runs for one in ("gap", "order")]
        late = [
            f"{one:g}" if np.isfinite(one) else "–"
            for one in np.quantile(delays, [0.5, 0.9], method="higher")
        ]
        truth = (
            "order is a coin toss" if coin else "calibrated" if gap == 0 else f"gap {100 * gap:.0f} points"
        )
        cells = [NAMES[setting], truth, str(change), f"{np.isfinite(delays).mean():.1%}"]
        cells += [f"{one:.1%}" for one in about]
        cells += late if gap > 0 or coin else ["", ""]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], f"({early} before the change, {time.perf_counter() - began:.0f} s)", flush=True)
    rate = (0.05 * 0.95 / given.runs) ** 0.5
    lines += ["", f"Two standard errors of a rate of 5% are {2 * rate:.1%} with {given.runs} runs.", ""]
    write_text(given.to, "\n".join(lines))


if __name__ == "__main__":
    main()

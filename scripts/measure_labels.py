"""Few labels: coverage and width of intervals where 30, 100 or 400 of 5,000 prompts are drawn and labelled.

Every world is a set of prompts with known labels, which are hidden; prompts are drawn with `rmcalib.label`, and
their labels are revealed. The truth is the value on all prompts. A last column counts how often a threshold of `decide`
breaks its limit on all prompts. Writes results/labels.csv and results/labels.md.

    python scripts/measure_labels.py [--runs 500] [--only NAME]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
from measuring import Row, markdown, measure_all, uncertainty

from rmcalib import load_scores
from rmcalib._util.arrays import FloatArray
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import Part, whole_part
from rmcalib.repair.calibrator import log_odds
from rmcalib.repair.decisions import Threshold, safe_threshold
from rmcalib.scores import LabelSheet, Scores, label
from rmcalib.scores._joining import second_opinion

HOW = Settings(resamples=20)
N, WORLDS_EACH = 5000, 20
MEASURES = ("accuracy", "overconfidence", "temperature", "kept_information")
WRONG_AT_MOST = 0.1
World = Callable[[np.random.Generator], tuple[Scores, Scores | None]]


@dataclass(frozen=True)
class Design:
    """A world, how many labels are drawn, and how."""

    name: str
    n: int
    world: World
    by: str | None = None
    more: bool = False


def softmax_world(
    factor: float = 1.0,
    *,
    easy: float = 0.0,
    margin: float = 0.0,
    category: bool = False,
    second: float | None = None,
) -> World:
    """Return a world of four responses: rewards are ``factor`` times those that make the labels.

    ``easy`` is the fraction of prompts whose best response is better by 6, ``margin`` how much better a response
    is in all prompts. ``second`` is the noise of a second judge, who sees which response is the best.
    """

    def draw(rng: np.random.Generator) -> tuple[Scores, Scores | None]:
        utilities = rng.normal(scale=1.2, size=(N, 4))
        utilities[:, 0] += margin + 6 * (rng.random(N) < easy)
        names: Any = "all"
        if category:
            group = rng.choice(5, size=N, p=[0.6, 0.2, 0.1, 0.05, 0.05])
            names = [f"group {one}" for one in group]
            utilities *= np.array([0.5, 1.0, 2.0, 3.0, 4.0])[group][:, None]
        best = (utilities + rng.gumbel(size=(N, 4))).argmax(axis=1)
        scores = Scores.from_arrays(factor * utilities, best, names)
        if second is None:
            return scores, None
        seen = 3.0 * (np.arange(4) == best[:, None]) + rng.normal(scale=second, size=(N, 4))
        return scores, Scores.from_arrays(seen if second < 100 else rng.normal(size=(N, 4)), best)

    return draw


def policy_world(rng: np.random.Generator) -> tuple[Scores, Scores | None]:
    """Samples of a policy: few differences between rewards, of which half are noise."""
    quality = rng.normal(scale=0.7, size=(N, 4))
    best = (quality + rng.gumbel(size=(N, 4))).argmax(axis=1)
    return Scores.from_arrays(quality + rng.normal(scale=0.7, size=(N, 4)), best), None


def real_world(model: str) -> World:
    """Real scores of RewardBench 2, with their labels hidden."""
    kept = load_scores(f"real/{model}")
    part = whole_part(kept).prompts("one")
    assert part is not None
    return lambda _: (part.scores, None)


WORLDS: dict[str, tuple[World, dict[str, Any]]] = {
    "on scale": (softmax_world(), {}),
    "over-confident by 1.6": (softmax_world(1.6), {}),
    "over-confident by 6": (softmax_world(6.0), {}),
    "80% easy": (softmax_world(1.6, easy=0.8), {}),
    "80% easy, two phases": (softmax_world(1.6, easy=0.8), {"more": True}),
    "unequal categories": (softmax_world(1.6, category=True), {"by": "category"}),
    "samples of a policy": (policy_world, {}),
    "good second judge": (softmax_world(1.6, second=1.0), {}),
    "useless second judge": (softmax_world(1.6, second=100.0), {}),
    "accuracy .95": (softmax_world(1.6, margin=6.2), {}),
    "accuracy .99": (softmax_world(1.6, margin=8.2), {}),
}


def settings() -> dict[tuple[str, int], Design]:
    """Return all worlds with all numbers of labels."""
    from rmcalib import load_board

    found = {
        (name, n): Design(name, n, world, **how)
        for name, (world, how) in WORLDS.items()
        for n in (30, 100, 400)
    }
    for model in sorted(load_board("reward-bench-2"))[:2]:
        found |= {
            (f"real: {model}", n): Design(f"real: {model}", n, real_world(model)) for n in (30, 100, 400)
        }
    return found


def revealed(scores: Scores, sheet: LabelSheet, other: FloatArray | None) -> Scores:
    """Return scores with the labels of the drawn prompts alone, as `load_scores(labels=)` would."""
    place = {name: i for i, name in enumerate(scores.item_id[scores.offsets[:-1]].tolist())}
    inclusion = np.full(scores.n_items, np.nan)
    for row in sheet.rows:
        inclusion[place[row["prompt"]]] = row["inclusion"]
    each = np.repeat(inclusion, np.diff(scores.offsets))
    extra = {**scores.extra, "inclusion": each, **({} if other is None else {"second": other})}
    return replace(scores, label=np.where(np.isnan(each), np.nan, scores.label), extra=extra)


def drawn(design: Design, hidden: Scores, scores: Scores, second: Scores | None, seed: int) -> LabelSheet:
    """Draw the prompts of a design."""
    if not design.more:
        return label(hidden, design.n, seed, design.by, second=second)
    first = round(0.4 * design.n)
    return label(revealed(scores, label(hidden, first, seed), None), design.n - first, seed + 1, more=True)


def threshold_of(part: Part) -> Threshold:
    """Return the threshold that `decide` finds with these labels."""
    labelled = part.prompts("one")
    assert labelled is not None
    first = labelled.first_choice
    odds = log_odds(np.log(first.p)) if first.log_p is None else log_odds(first.log_p)
    return safe_threshold(odds, first.y < 1, alpha=WRONG_AT_MOST, weight=labelled.weight)


def limit_is_broken(choice: float | None, every: Part) -> bool:
    """Whether the choices that a threshold accepts are wrong too often among all prompts."""
    if choice is None:
        return False
    accepted = every.first_choice.p >= choice
    return bool(accepted.any() and 1 - every.first_choice.y[accepted].mean() > WRONG_AT_MOST)


def measure(design: Design, runs: int) -> list[Row]:
    """Return coverage, bias and width of each measure: some draws of each of several worlds."""
    began, number = time.perf_counter(), crc32(design.name.encode())
    held: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in MEASURES}
    decided: list[tuple[bool, float]] = []
    for world in range(min(WORLDS_EACH, runs)):
        scores, second = design.world(np.random.default_rng([world, number]))
        every = whole_part(scores)
        true = {name: estimate_of(catalogue()[name], every, HOW) for name in MEASURES}
        hidden = replace(scores, label=np.full(len(scores), np.nan))
        other = None if second is None else second_opinion(scores, second)
        for run in range(world, runs, WORLDS_EACH):
            sheet = drawn(design, hidden, scores, second, number + 2 * run)
            part = whole_part(revealed(scores, sheet, other))
            choice = threshold_of(part)
            decided.append((limit_is_broken(choice.threshold, every), choice.accepted))
            for name in MEASURES:
                found, truth = estimate_of(catalogue()[name], part, HOW), true[name]
                limits = None if found is None else found.interval()
                if limits is None or truth is None or truth.value is None:
                    continue
                inside = limits.low - 1e-12 <= truth.value <= limits.high + 1e-12
                held[name].append((inside, limits.value - truth.value, limits.high - limits.low))
    seconds = round(time.perf_counter() - began, 1)
    rows = []
    for name, all_runs in held.items():
        covered, bias, width = (np.array(one, dtype=float) for one in zip(*all_runs, strict=True))
        rows.append(
            {
                "setting": design.name,
                "prompts": design.n,
                "measure": name,
                "runs": runs,
                "given": len(all_runs),
                "coverage": round(float(covered.mean()), 3),
                "bias": round(float(np.median(bias) if name == "temperature" else bias.mean()), 4),
                "width": round(float(np.median(width)), 3),
                "seconds": seconds,
            }
        )
    broken, accepted = np.array(decided, dtype=float).mean(axis=0)
    about = {"setting": design.name, "prompts": design.n, "measure": "decide", "runs": runs, "given": runs}
    rows.append(
        about
        | {
            "coverage": round(float(1 - broken), 3),
            "bias": "",
            "width": round(float(accepted), 3),
            "seconds": seconds,
        }
    )
    return rows


def report(rows: list[Row], runs: int) -> str:
    """Return results/labels.md."""
    table: dict[tuple[str, int], Row] = {}
    for row in rows:
        own = table.setdefault(
            (row["setting"], row["prompts"]), {"world": row["setting"], "labels": row["prompts"]}
        )
        cell = f"{float(row['coverage']):.3f} ({float(row['width']):.2f})"
        given = int(row["given"]) / int(row["runs"])
        own[row["measure"]] = cell if given > 0.995 else f"{cell}, given in {given:.0%}"
    return f"""# Few labels

Made by `scripts/measure_labels.py`: {runs} draws per row, from {WORLDS_EACH} sets of prompts. Of {N:,} prompts, or of
all prompts of a real model's scores, 30, 100 or 400 are drawn by `rmcalib.label` and labelled; the truth is the
value on all prompts. Cells are the coverage of the 95% interval, and its median width. A coverage from {runs} draws
is uncertain by about {uncertainty(runs):.3f}.
As everywhere, intervals are about prompts like these, so they have a width above 0 even if all prompts are labelled.
For these prompts themselves, they cover a little more than 95%.

{markdown([{**dict.fromkeys(("world", "labels", *MEASURES, "decide"), ""), **row} for row in table.values()])}

"Two phases" draws 40% of the labels at random and the others where first choices were wrong (`--more`). A "second
judge" draws with unequal probabilities (`--second`), and the estimate uses its probabilities. If choices are hardly
ever wrong, some draws have no wrong choice and therefore no temperature; the coverage is that of the other draws.

`decide`: how often the threshold (at most {WRONG_AT_MOST:.0%} wrong, with 95% confidence) keeps its limit on all
prompts, or there is no threshold; in brackets, the mean fraction of accepted prompts. It may fail in 5% of the draws.
"""


def main() -> None:
    """Measure all worlds."""
    measure_all("labels", __doc__ or "", settings(), measure, report)


if __name__ == "__main__":
    main()

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
from scipy.special import expit

from rmcalib import compare, load_scores
from rmcalib._util.arrays import FloatArray
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, estimate_of
from rmcalib.metrics.views import whole_part
from rmcalib.repair.calibrator import log_odds
from rmcalib.repair.decisions import safe_threshold
from rmcalib.scores import LabelSheet, Scores, label
from rmcalib.scores._joining import chosen_of, second_opinion

HOW = Settings(resamples=20)
N, WORLDS_EACH = 5000, 20
BEST = ("accuracy", "overconfidence", "temperature", "kept_information")
EACH = ("pointwise_accuracy", "pointwise_gap", "pointwise_log_loss")
SINGLE, DIFFERENCE = "single responses: ", "difference: "
WRONG_AT_MOST = 0.1
Values = dict[str, tuple[float, float, float]]
"""Value and limits by measure."""


@dataclass(frozen=True)
class Prompts:
    """All prompts of a world with their labels, scored by a model, perhaps a second judge, perhaps another model."""

    scores: Scores
    second: Scores | None = None
    rival: Scores | None = None


World = Callable[[np.random.Generator], Prompts]


@dataclass(frozen=True)
class Design:
    """A world, how many labels are drawn, and how."""

    name: str
    n: int
    world: World
    by: str | None = None
    more: bool = False
    measures: tuple[str, ...] = BEST


def softmax_world(
    factor: float = 1.0,
    *,
    easy: float = 0.0,
    margin: float = 0.0,
    category: bool = False,
    second: float | None = None,
    rival: float | None = None,
) -> World:
    """Return a world of four responses: rewards are ``factor`` times those that make the labels.

    ``easy`` is the fraction of prompts whose best response is better by 6, ``margin`` how much better a response
    is in all prompts. ``second`` is the noise of a second judge, who sees which response is the best, and ``rival`` is
    that of another model of the same prompts.
    """

    def draw(rng: np.random.Generator) -> Prompts:
        utilities = rng.normal(scale=1.2, size=(N, 4))
        utilities[:, 0] += margin + 6 * (rng.random(N) < easy)
        names: Any = "all"
        if category:
            group = rng.choice(5, size=N, p=[0.6, 0.2, 0.1, 0.05, 0.05])
            names = [f"group {number}" for number in group]
            utilities *= np.array([0.5, 1.0, 2.0, 3.0, 4.0])[group][:, None]
        best = (utilities + rng.gumbel(size=(N, 4))).argmax(axis=1)
        every = Prompts(Scores.from_arrays(factor * utilities, best, names))
        if second is not None:
            seen = 3.0 * (np.arange(4) == best[:, None]) + rng.normal(scale=second, size=(N, 4))
            other = Scores.from_arrays(seen if second < 100 else rng.normal(size=(N, 4)), best)
            every = replace(every, second=other)
        if rival is not None:
            noisy = utilities + rng.normal(scale=rival, size=(N, 4))
            every = replace(every, rival=Scores.from_arrays(noisy, best, names))
        return every

    return draw


def each_world(
    factor: float = 1.0, *, m: int = 4, easy: float = 0.0, second: bool = False, rival: bool = False
) -> World:
    """Return a world where each of ``m`` responses is correct or not, and some prompts are harder than others.

    Rewards are ``factor`` times the log-odds; ``easy`` is added to these. A second judge, and a rival, see other noise.
    """

    def draw(rng: np.random.Generator) -> Prompts:
        odds = easy + rng.normal(size=(N, 1)) + rng.normal(size=(N, m))
        correct = rng.random((N, m)) < expit(odds)

        def scored(rewards: FloatArray) -> Scores:
            return Scores.from_arrays(rewards, correct, scale="log_odds", labels_are="correct")

        return Prompts(
            scored(factor * odds),
            scored(2.0 * correct - 1.0 + rng.normal(size=(N, m))) if second else None,
            scored(odds + rng.normal(size=(N, m))) if rival else None,
        )

    return draw


def policy_world(rng: np.random.Generator) -> Prompts:
    """Samples of a policy: few differences between rewards, of which half are noise."""
    quality = rng.normal(scale=0.7, size=(N, 4))
    best = (quality + rng.gumbel(size=(N, 4))).argmax(axis=1)
    return Prompts(Scores.from_arrays(quality + rng.normal(scale=0.7, size=(N, 4)), best))


def real_world(model: str) -> World:
    """Real scores of RewardBench 2, with their labels hidden."""
    kept = load_scores(f"real/{model}")
    part = whole_part(kept).prompts("one")
    assert part is not None
    return lambda _: Prompts(part.scores)


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
    f"{SINGLE}on scale": (each_world(), {"measures": EACH}),
    f"{SINGLE}over-confident by 1.6": (each_world(1.6), {"measures": EACH}),
    f"{SINGLE}one response per prompt": (each_world(1.6, m=1), {"measures": EACH}),
    f"{SINGLE}95% correct": (each_world(1.6, easy=4.4), {"measures": EACH}),
    f"{SINGLE}second judge": (each_world(1.6, second=True), {"measures": EACH}),
    f"{DIFFERENCE}over-confident by 1.6, and noise": (softmax_world(1.6, rival=1.0), {}),
    f"{DIFFERENCE}the same and a little noise": (softmax_world(rival=0.1), {}),
    f"{DIFFERENCE}second judge": (softmax_world(1.6, second=1.0, rival=1.0), {}),
    f"{DIFFERENCE}single responses": (each_world(1.6, rival=True), {"measures": EACH[1:]}),
}


def settings() -> dict[tuple[str, int], Design]:
    """Return all worlds with all numbers of labels."""
    from rmcalib import load_board

    designs = {
        (name, n): Design(name, n, world, **how)
        for name, (world, how) in WORLDS.items()
        for n in (30, 100, 400)
    }
    for model in sorted(load_board("reward-bench-2"))[:2]:
        designs |= {
            (f"real: {model}", n): Design(f"real: {model}", n, real_world(model)) for n in (30, 100, 400)
        }
    return designs


def revealed(scores: Scores, sheet: LabelSheet, second: Scores | None = None) -> Scores:
    """Return scores with the labels of the drawn prompts alone, as `load_scores(labels=)` would."""
    place = {name: i for i, name in enumerate(scores.item_id[scores.offsets[:-1]].tolist())}
    inclusion = np.full(scores.n_items, np.nan)
    for row in sheet.rows:
        inclusion[place[row["prompt"]]] = row["inclusion"]
    each = np.repeat(inclusion, np.diff(scores.offsets))
    extra = {**scores.extra, "inclusion": each}
    if second is not None:
        extra["second"] = second_opinion(scores, second, singly=scores.view == "pointwise")
    return replace(scores, label=np.where(np.isnan(each), np.nan, scores.label), extra=extra)


def drawn(design: Design, every: Prompts, seed: int) -> LabelSheet:
    """Draw the prompts of a design."""
    hidden = replace(every.scores, label=np.full(len(every.scores), np.nan))
    if not design.more:
        return label(hidden, design.n, seed, design.by, second=every.second)
    first = round(0.4 * design.n)
    labelled = revealed(every.scores, label(hidden, first, seed))
    return label(labelled, design.n - first, seed + 1, more=True)


def values_of(design: Design, scores: Scores, rival: Scores | None) -> Values:
    """Return what is measured: of one model, or the difference of two."""
    if rival is not None:
        rows = compare(scores, rival, metrics=design.measures, resamples=20).rows
        return {
            row["metric"]: (row["difference"], row["low"], row["high"])
            for row in rows
            if row["category"] == OVERALL and row["low"] is not None
        }
    values, part = {}, whole_part(scores)
    for name in design.measures:
        estimate = estimate_of(catalogue()[name], part, HOW)
        limits = None if estimate is None else estimate.interval()
        if limits is not None:
            values[name] = (limits.value, limits.low, limits.high)
    return values


def first_choices(scores: Scores) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return log-odds and labels of the labelled first choices (n,), and their weights."""
    part = whole_part(scores).prompts("labelled" if scores.labels == "correct" else "one")
    assert part is not None
    if scores.labels == "correct":
        rows = chosen_of(part.scores)
        return part.reward[rows], part.label[rows], part.weight
    first = part.first_choice
    return log_odds(np.log(first.p) if first.log_p is None else first.log_p), first.y, part.weight


def limit_is_kept(scores: Scores, every: Scores) -> tuple[bool, float]:
    """Whether the choices that a threshold of `decide` accepts keep its limit on all prompts, and how many they are."""
    odds, y, weight = first_choices(scores)
    choice = safe_threshold(odds, y < 1, alpha=WRONG_AT_MOST, weight=weight)
    if choice.threshold is None:
        return True, choice.accepted
    odds, y, _ = first_choices(every)
    accepted = expit(odds) >= choice.threshold
    return not accepted.any() or bool(1 - y[accepted].mean() <= WRONG_AT_MOST), choice.accepted


def measure(design: Design, runs: int) -> list[Row]:
    """Return coverage, bias and width of each measure: some draws of each of several worlds."""
    began, number = time.perf_counter(), crc32(design.name.encode())
    held: dict[str, list[tuple[bool, float, float]]] = {name: [] for name in design.measures}
    decided: list[tuple[bool, float]] = []
    for world in range(min(WORLDS_EACH, runs)):
        every = design.world(np.random.default_rng([world, number]))
        true = values_of(design, every.scores, every.rival)
        for run in range(world, runs, WORLDS_EACH):
            sheet = drawn(design, every, number + 2 * run)
            scores = revealed(every.scores, sheet, every.second)
            rival = None if every.rival is None else revealed(every.rival, sheet, every.second)
            if rival is None:
                decided.append(limit_is_kept(scores, every.scores))
            for name, (value, low, high) in values_of(design, scores, rival).items():
                if name in true:
                    truth = true[name][0]
                    inside = low - 1e-12 <= truth <= high + 1e-12
                    held[name].append((inside, value - truth, high - low))
    about = {"setting": design.name, "prompts": design.n, "runs": runs}
    seconds = round(time.perf_counter() - began, 1)
    rows = []
    for name, all_runs in held.items():
        covered, bias, width = (np.array(column, dtype=float) for column in zip(*all_runs, strict=True))
        middle = np.median(bias) if name == "temperature" else bias.mean()
        rows.append(
            about
            | {
                "measure": name,
                "given": len(all_runs),
                "coverage": round(float(covered.mean()), 3),
                "bias": round(float(middle), 4),
                "width": round(float(np.median(width)), 3),
                "seconds": seconds,
            }
        )
    if decided:
        kept, accepted = np.array(decided, dtype=float).mean(axis=0)
        cells = {"coverage": round(float(kept), 3), "bias": "", "width": round(float(accepted), 3)}
        rows.append(about | {"measure": "decide", "given": runs, **cells, "seconds": seconds})
    return rows


def table_of(rows: list[Row]) -> str:
    """Return the coverage and the width of each world and number of labels as a table."""
    table: dict[tuple[str, int], Row] = {}
    measures = dict.fromkeys(row["measure"] for row in rows)
    for row in rows:
        cells = table.setdefault(
            (row["setting"], row["prompts"]),
            {"world": row["setting"], "labels": row["prompts"], **dict.fromkeys(measures, "")},
        )
        cell = f"{float(row['coverage']):.3f} ({float(row['width']):.2f})"
        given = int(row["given"]) / int(row["runs"])
        cells[row["measure"]] = cell if given > 0.995 else f"{cell}, given in {given:.0%}"
    return markdown([*table.values()]) if table else ""


def report(rows: list[Row], runs: int) -> str:
    """Return results/labels.md."""
    kinds: dict[str, list[Row]] = {"": [], SINGLE: [], DIFFERENCE: []}
    for row in rows:
        kinds[next((kind for kind in (SINGLE, DIFFERENCE) if row["setting"].startswith(kind)), "")].append(
            row
        )
    tables = {kind: table_of(of_kind) for kind, of_kind in kinds.items()}
    return f"""# Few labels

Made by `scripts/measure_labels.py`: {runs} draws per row, from {WORLDS_EACH} sets of prompts. Of {N:,} prompts, or of
all prompts of a real model's scores, 30, 100 or 400 are drawn by `rmcalib.label` and labelled; the truth is the
value on all prompts. Cells are the coverage of the 95% interval, and its median width. A coverage from {runs} draws
is uncertain by about {uncertainty(runs):.3f}.
As everywhere, intervals are about prompts like these, so they have a width above 0 even if all prompts are labelled.
For these prompts themselves, they cover a little more than 95%.

## The best response

{tables[""]}

"Two phases" draws 40% of the labels at random and the others where first choices were wrong (`--more`). A "second
judge" draws with unequal probabilities (`--second`), and the estimate uses its probabilities. If choices are hardly
ever wrong, some draws have no wrong choice and therefore no temperature; the coverage is that of the other draws.

`decide`: how often the threshold (at most {WRONG_AT_MOST:.0%} wrong, with 95% confidence) keeps its limit on all
prompts, or there is no threshold; in brackets, the mean fraction of accepted prompts. It may fail in 5% of the draws.

## Single responses

Each of four responses (or the only one) is correct or not, and some prompts are harder than others. All responses of
the drawn prompts are labelled.

{tables[SINGLE]}

## The difference of two models

Both are measured with the same labels (`compare`).

{tables[DIFFERENCE]}
"""


def main() -> None:
    """Measure all worlds."""
    measure_all("labels", __doc__ or "", settings(), measure, report)


if __name__ == "__main__":
    main()

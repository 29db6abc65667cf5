"""How often do the 95% intervals of a report contain the truth, and how often do its tests reject?

Draws many data sets from known truths and counts how often each interval contains the value of unlimited data. The
settings differ in more than the scale of the rewards: numbers of responses, label noise, mixtures of over- and
under-confident prompts, heavy tails, saturated and nearly uniform forecasts, ties, and models that are nearly always
right. Writes results/statistics.csv after each setting, and results/statistics.md. An interrupted run continues where
it stopped.

    python scripts/measure_statistics.py [--runs 400] [--only NAME] [--minutes 10] [--fresh]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measuring import markdown, measure_all, uncertainty
from scipy.special import entr, expit
from worlds import ACCURATE, SETTINGS, Setting, drawn_part, truths

from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import whole_part
from rmcalib.report import evaluate
from rmcalib.scores import Scores

HOW = Settings(resamples=199)
SAMPLED = 100  # prompts with samples of a policy
LOW, HIGH = 0.93, 0.97
MOST = 5  # times as many data sets are drawn for intervals that are rarely shown, and for doubtful tests
DOUBTFUL = 0.07  # a test that rejects so many calibrated forecasts may do so by chance
POINTWISE = (
    "pointwise_gap",
    "pointwise_accuracy",
    "pointwise_confidence",
    "pointwise_ece",
    "pointwise_log_loss",
    "fitted_log_loss_excess",
)
ACCUSING = [
    "overconfidence", "accuracy", "kept_information", "confidence_ece", "confidence_ece_p_value",
    "pointwise_gap", "pointwise_ece", "pointwise_ece_p_value", "vote_gap",
]  # fmt: skip


def measure(setting: Setting, runs: int) -> list[dict[str, Any]]:
    """Count over ``runs`` data sets, and more for intervals that not all of them show: one row for each measure."""
    start, true = time.process_time(), truths(setting)
    found: dict[str, list[tuple[float, float, float, bool | None]]] = {name: [] for name in true}
    for run in range(MOST * runs):
        wanted = {
            name: rows
            for name, rows in found.items()
            if run < runs or 0 < len(rows) < runs or is_doubtful(name, true[name], rows[:runs])
        }
        if not wanted:
            break
        part = drawn_part(setting, np.random.default_rng([run, setting.n, SETTINGS.index(setting)]))
        for name, rows in wanted.items():
            estimate = estimate_of(catalogue()[name], part, HOW)
            limits = None if estimate is None else estimate.interval()
            if estimate is None or limits is None or estimate.value is None:
                continue  # the report shows no interval, and says why
            test = estimate.test()
            rejected = None if test is None else test.p_value <= 0.05
            rows.append((estimate.value, limits.low, limits.high, rejected))
    seconds = time.process_time() - start
    return [summary(setting, name, true[name], rows, runs, seconds) for name, rows in found.items() if rows]


def is_doubtful(name: str, truth: float, rows: list[Any]) -> bool:
    """Whether the test of a calibrated forecast rejects more than chance easily explains."""
    tested = [row[3] for row in rows if row[3] is not None]
    return is_null(name, truth) and bool(tested) and float(np.mean(tested)) > DOUBTFUL


def is_null(name: str, truth: float) -> bool:
    """Whether a forecast is calibrated, so that its test should reject 5%."""
    return abs(truth) < 1e-6 and name != "ece_at_temperature"


def summary(
    setting: Setting, name: str, truth: float, rows: list[Any], runs: int, seconds: float
) -> dict[str, Any]:
    """Return the coverage of one interval."""
    value, low, high = np.array([row[:3] for row in rows]).T
    held = (low - 1e-9 <= truth) & (truth <= high + 1e-9)
    tested = [row[3] for row in rows if row[3] is not None]
    contradictions = [rejected != (limit > 0) for (_, limit, _, rejected) in rows if rejected is not None]
    return {
        "setting": setting.name,
        "prompts": setting.n,
        "measure": name,
        "truth": round(truth, 5),
        "mean": round(float(value.mean()), 5),
        "coverage": round(float(held.mean()), 4),
        "interval_above": round(float((truth < low - 1e-9).mean()), 4),
        "interval_below": round(float((truth > high + 1e-9).mean()), 4),
        "width": round(float((high - low)[np.isfinite(high)].mean()), 5) if np.isfinite(high).any() else None,
        "rejected": round(float(np.mean(tested)), 4) if tested else None,
        "contradictions": int(np.sum(contradictions)) if tested else None,
        "shown": len(rows),
        "runs": runs,
        "seconds": round(seconds, 1),
    }


def is_low(row: dict[str, Any]) -> bool:
    """Whether a coverage is more than two standard errors below the lowest one of an exact interval."""
    shown = float(row.get("shown") or row["runs"])
    return float(row["coverage"]) < LOW - 2 * float(np.sqrt(LOW * (1 - LOW) / shown))


def coverage_table(rows: list[dict[str, Any]]) -> str:
    """Settings down, measures across: the coverage, in bold where it is too low."""
    names = list(dict.fromkeys(row["measure"] for row in rows))
    table = []
    for setting, n in dict.fromkeys((row["setting"], row["prompts"]) for row in rows):
        line: dict[str, Any] = {"setting": setting, "prompts": n}
        for row in rows:
            if (row["setting"], row["prompts"]) == (setting, n):
                shown = f"{float(row['coverage']):.3f}"
                line[row["measure"]] = f"**{shown}**" if is_low(row) else shown
        table.append({key: line.get(key, "") for key in ("setting", "prompts", *names)})
    return markdown(table)


def report(rows: list[dict[str, Any]], runs: int) -> str:
    """The text of results/statistics.md."""
    worst = min(rows, key=lambda row: float(row["coverage"]))
    by_measure = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        own = [row for row in rows if row["measure"] == name]
        least = min(own, key=lambda row: float(row["coverage"]))
        by_measure.append(
            {
                "measure": name,
                "lowest coverage": f"{float(least['coverage']):.3f}",
                "where": f"{least['setting']}, {least['prompts']} prompts",
                "mean coverage": f"{np.mean([float(row['coverage']) for row in own]):.3f}",
                "highest": f"{max(float(row['coverage']) for row in own):.3f}",
            }
        )
    tested = [row for row in rows if row["rejected"] not in (None, "")]
    calibrated = [row for row in tested if is_null(row["measure"], float(row["truth"]))]
    rates = [float(row["rejected"]) for row in calibrated] or [float("nan")]
    again = sum(int(row["shown"]) > runs for row in calibrated)
    against = sum(int(float(row["contradictions"])) for row in tested)
    seconds = sum({(row["setting"], row["prompts"]): float(row["seconds"]) for row in rows}.values())
    gaps = [row for row in rows if row["measure"] == "overconfidence" and abs(float(row["truth"])) < 2e-3]
    called = max(1 - float(row["coverage"]) for row in gaps) if gaps else float("nan")
    each_response, accused = markdown(pointwise_rows(runs)), markdown(accusation_rows(runs))
    advantages = ", ".join(f"{name} {accuracy}: {advantage}" for name, _, accuracy, advantage in ACCURATE)
    return f"""# Coverage of the intervals of a report

Made by `scripts/measure_statistics.py`: {runs} simulated data sets per setting, {HOW.resamples} resamples each,
in {seconds / 60:.0f} minutes on one core. All intervals have the level 95%. A coverage from {runs} data sets
is uncertain by about {uncertainty(runs):.3f}, so an exact interval shows {LOW} to {HIGH}.

**Lowest coverage: {float(worst["coverage"]):.3f}, for {worst["measure"]} ({worst["setting"]},
{worst["prompts"]} prompts, shown in {worst["shown"]} data sets).** {sum(map(is_low, rows))} of {len(rows)} coverages
are more than two standard errors below {LOW}. The null tests reject {min(rates):.3f} to {max(rates):.3f} of the
calibrated forecasts at 5%; {again} tests that rejected more than {DOUBTFUL:.1%} of the first {runs} data sets had
{MOST * runs:,} (a rate of 5% is then uncertain by {uncertainty(MOST * runs):.3f}).
Interval and test disagree about 0 in {against} of {sum(int(row["shown"]) for row in tested)} data sets and measures.
A calibrated model is called over- or under-confident in at most {called:.1%} of the data
sets of any setting. Reports without an interval are not counted. "T is at least 0.3, without upper limit" is
an interval, too; its infinite width is left out of the mean width. Rewards with nearly no information have a finite
upper limit in a tenth of the data sets. Those are data sets that look informative by chance, and among them alone the
limit is too low in up to half.

## By measure

{markdown(by_measure)}

## By setting

The fraction of data sets whose interval contains the true value, which is that of unlimited data. Bold: more
than two standard errors below {LOW}. The file `statistics.csv` also has the true values, the mean values and widths,
the side of the misses, and the rejection rates.

{coverage_table(rows)}

## Every response on its own

{SAMPLED} prompts with 2 to 64 responses each (log-uniform), calibrated response by response. Prompts differ in
difficulty.

{each_response}

## Statements against a calibrated model

The fraction of evaluations of a calibrated model in which the page reports any fault: over- or under-confident,
errors that cancel, groups, scale, order, check. One correction covers all of them. "Worse than a guess" needs a wrong
scale, and "right less often than by chance" needs a gap.

{accused}

Settings have four responses unless they say otherwise. The true rewards are normal with standard deviation
1.5, and the correct response is drawn from their softmax. Forecasts multiply these rewards by a factor:

| forecast | factor |
| --- | --- |
| slightly over-confident | 1.2 |
| over-confident | 1.5 |
| very over-confident | 3 |
| saturated | 8 |
| under-confident | 0.7 |
| under-confident pairs | 0.5 |
| nearly uniform | 0.05 |

- Label noise: a fraction of the correct responses is drawn at random.
- Half over-, half under-confident: half of the prompts have twice the scale, and the others half of it.
- Heavy tails: Student's t with 3 degrees of freedom; very heavy ones: with 2.
- Rounded to halves: the model states its rewards in steps of 0.5; the truth is not rounded.
- Accuracy .97 and .995: one response of each prompt has an advantage ({advantages}).
- 10% saturated: the best response of a tenth of the prompts is better by 30.
- 5% surely wrong: the second response of these prompts is the correct one.
- Nearly no information: the true rewards have a standard deviation of 0.1.
- 20% tied: the two best responses of a fifth of the prompts have equal rewards.

Metrics of people's votes are measured in [votes.md](votes.md).
"""


def pointwise_rows(runs: int) -> list[dict[str, Any]]:
    """Measure responses that are each correct or not: from 2 to 64 of a prompt."""
    p = expit(samples(np.random.default_rng(12345), 100_000)[1])
    true = dict.fromkeys(POINTWISE, 0.0)
    true |= {"pointwise_accuracy": float(p.mean()), "pointwise_confidence": float(p.mean())}
    true["pointwise_log_loss"] = float(entr(p).mean() + entr(1 - p).mean())
    true["fitted_log_loss_excess"] = true["pointwise_log_loss"] - float(entr(p.mean()) + entr(1 - p.mean()))
    held: dict[str, list[bool]] = {name: [] for name in true}
    rejected = []
    for run in range(runs):
        part = whole_part(sampled(np.random.default_rng([run, 64])))
        for name in POINTWISE:
            found = estimate_of(catalogue()[name], part, HOW)
            limits = None if found is None else found.interval()
            if found is None or limits is None:
                continue
            held[name].append(limits.low - 1e-9 <= true[name] <= limits.high + 1e-9)
            if name == "pointwise_ece" and (test := found.test()) is not None:
                rejected.append(test.p_value <= 0.05)
    line = {name: f"{np.mean(one):.3f}" for name, one in held.items()}
    return [line | {"pointwise_ece: rejects": f"{np.mean(rejected):.3f}"}]


def samples(rng: np.random.Generator, n: int) -> tuple[Any, Any, Any]:
    """Return the prompt of each response, its log-odds of being correct, and whether it is."""
    sizes = np.exp(rng.uniform(np.log(2), np.log(65), size=n)).astype(int)
    prompt = np.repeat(np.arange(n), sizes)
    odds = rng.normal(scale=1.5, size=n)[prompt] + rng.normal(size=len(prompt))
    return prompt, odds, rng.random(len(prompt)) < expit(odds)


def sampled(rng: np.random.Generator) -> Scores:
    """Draw responses that are calibrated one by one."""
    prompt, odds, correct = samples(rng, SAMPLED)
    columns = {
        "item_id": prompt.astype(str),
        "category": np.full(len(prompt), "all"),
        "response": np.arange(len(prompt)) - np.searchsorted(prompt, prompt),
        "is_correct": correct,
        "reward": odds,
    }
    return Scores.from_columns(columns).labelled_as("correct")


def voted(rng: np.random.Generator, n: int, voters: int) -> Scores:
    """Draw votes on pairs from the forecast fractions."""
    rewards = rng.normal(scale=1.2, size=(n, 2))
    first = rng.binomial(voters, expit(rewards[:, 0] - rewards[:, 1]))
    return Scores.from_arrays(rewards, votes=np.column_stack([first, voters - first]))


def chosen(
    rng: np.random.Generator, n: int, m: int, advantage: float = 0.0, sizes: list[int] | None = None
) -> Scores:
    """Draw n prompts with one best of m responses, perhaps with an advantage, from questions of these sizes."""
    cluster = np.arange(n) if sizes is None else np.repeat(np.arange(len(sizes)), sizes)
    utility = rng.normal(scale=1.0 if advantage else 1.5, size=(int(cluster.max()) + 1, m))[cluster]
    utility += 0.2 * rng.normal(size=(n, m)) * (sizes is not None)
    utility[np.arange(n), rng.integers(m, size=n)] += advantage
    shared = rng.random((n, 1)) < (0.0 if sizes is None else 0.8)
    noise = np.where(shared, rng.gumbel(size=(int(cluster.max()) + 1, m))[cluster], rng.gumbel(size=(n, m)))
    groups = [f"group {i}" for i in rng.integers(5, size=n)]
    names = None if sizes is None else cluster.astype(str).tolist()
    return Scores.from_arrays(utility, (utility + noise).argmax(axis=1), category=groups, cluster=names)


ACCUSED: dict[str, tuple[list[int], Callable[[np.random.Generator], Scores]]] = {
    "pairs, 350 prompts": ([350, 2], partial(chosen, n=350, m=2)),
    "four, 100 prompts": ([100, 4], partial(chosen, n=100, m=4)),
    "four, 1,000 prompts": ([1000, 4], partial(chosen, n=1000, m=4)),
    "accuracy .97, 183 prompts": ([183, 4], partial(chosen, n=183, m=4, advantage=5.55)),
    "80 questions × 5": ([400, 4], partial(chosen, n=400, m=4, sizes=[5] * 80)),
    "20 questions × 15": ([300, 4], partial(chosen, n=300, m=4, sizes=[15] * 20)),
    "one question has a tenth of 300": ([300, 4], partial(chosen, n=300, m=4, sizes=[30] + [1] * 270)),
    "one question has half of 300": ([300, 4], partial(chosen, n=300, m=4, sizes=[150] + [1] * 150)),
    "each response correct or not, 100 prompts": ([64], sampled),
    "300 pairs with 10 votes": ([10], partial(voted, n=300, voters=10)),
    "300 pairs with 1 vote": ([1], partial(voted, n=300, voters=1)),
}
"""Worlds of a calibrated model, with their seeds."""


def accusation_rows(runs: int) -> list[dict[str, Any]]:
    """Return how often a calibrated model is accused of anything, in several worlds."""
    rows = []
    for name, (seed, draw) in ACCUSED.items():
        any_shown, verdict = 0, 0
        for run in range(runs):
            scores = draw(np.random.default_rng([run, *seed]))
            found = evaluate(scores, metrics=ACCUSING, resamples=HOW.resamples)
            any_shown += bool(found.facts["shown"]) or any(row["flagged"] for row in found.group_rows)
            verdict += bool(found.facts["tests"])
        rows.append(
            {
                "world": name,
                "accused": f"{any_shown / runs:.3f}",
                "verdict given": f"{verdict / runs:.2f}",
                "evaluations": runs,
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    settings = {(setting.name, setting.n): setting for setting in SETTINGS}
    measure_all("statistics", __doc__, settings, measure, report)


if __name__ == "__main__":
    main()

"""How often do the 95% intervals of a report contain the truth, and how often do its tests reject?

Draws many data sets from known truths and counts how often each interval contains the value of unlimited data. The
settings differ in more than the scale of the rewards: numbers of responses, label noise, mixtures of over- and
under-confident prompts, heavy tails, saturated and nearly uniform forecasts, ties, and models that are nearly always
right. Writes results/statistics.csv after each setting, and results/statistics.md. An interrupted run continues where
it stopped.

    python scripts/measure_statistics.py [--runs 400] [--only NAME] [--fresh]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from measuring import markdown, measure_all, uncertainty
from worlds import ACCURATE, SETTINGS, Setting, drawn_part, truths

from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of

HOW = Settings(resamples=199)
LOW, HIGH = 0.93, 0.97


def measure(setting: Setting, runs: int) -> list[dict[str, Any]]:
    """Count over ``runs`` data sets: one row for each measure."""
    start, true = time.process_time(), truths(setting)
    found: dict[str, list[tuple[float, float, float, bool | None]]] = {name: [] for name in true}
    for run in range(runs):
        part = drawn_part(setting, np.random.default_rng([run, setting.n, SETTINGS.index(setting)]))
        for name, rows in found.items():
            estimate = estimate_of(catalogue()[name], part, HOW)
            limits = None if estimate is None else estimate.interval()
            if estimate is None or limits is None or estimate.value is None:
                continue  # the report shows no interval, and says why
            test = estimate.test()
            rejected = None if test is None else test.p_value <= 0.05
            rows.append((estimate.value, limits.low, limits.high, rejected))
    seconds = time.process_time() - start
    return [summary(setting, name, true[name], rows, runs, seconds) for name, rows in found.items() if rows]


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


def coverage_table(rows: list[dict[str, Any]]) -> str:
    """Settings down, measures across: the coverage, in bold where it is too low."""
    names = list(dict.fromkeys(row["measure"] for row in rows))
    table = []
    for setting, n in dict.fromkeys((row["setting"], row["prompts"]) for row in rows):
        line: dict[str, Any] = {"setting": setting, "prompts": n}
        for row in rows:
            if (row["setting"], row["prompts"]) == (setting, n):
                shown = f"{float(row['coverage']):.3f}"
                line[row["measure"]] = f"**{shown}**" if float(row["coverage"]) < LOW else shown
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
    calibrated = [
        row for row in tested if float(row["truth"]) == 0 and row["measure"] != "ece_at_temperature"
    ]
    rates = [float(row["rejected"]) for row in calibrated] or [float("nan")]
    against = sum(int(float(row["contradictions"])) for row in tested)
    seconds = sum({(row["setting"], row["prompts"]): float(row["seconds"]) for row in rows}.values())
    gaps = [row for row in rows if row["measure"] == "overconfidence" and abs(float(row["truth"])) < 2e-3]
    called = max(1 - float(row["coverage"]) for row in gaps) if gaps else float("nan")
    advantages = ", ".join(f"{name} {accuracy}: {advantage}" for name, _, accuracy, advantage in ACCURATE)
    return f"""# Coverage of the intervals of a report

Made by `scripts/measure_statistics.py`: {runs} simulated data sets per setting, {HOW.resamples} resamples each,
in {seconds / 60:.0f} minutes on one core. All intervals have the level 95%. A coverage from {runs} data sets
is uncertain by about {uncertainty(runs):.3f}, so an exact interval shows {LOW} to {HIGH}.

**Lowest coverage: {float(worst["coverage"]):.3f}, for {worst["measure"]} ({worst["setting"]},
{worst["prompts"]} prompts).** The null tests reject {min(rates):.3f} to {max(rates):.3f} of the calibrated
forecasts at 5%. Interval and test disagree about 0 in {against} of {sum(int(row["shown"]) for row in tested)}
data sets and measures. A calibrated model is called over- or under-confident in at most {called:.1%} of the data
sets of any setting. Where a report shows no interval, nothing is counted. "T is at least 0.3, without upper limit" is
an interval, too; its infinite width is left out of the mean width. Rewards with nearly no information have a finite
upper limit in a tenth of the data sets. Those are data sets that look informative by chance, and among them alone the
limit is too low in up to half.

## By measure

{markdown(by_measure)}

## By setting

The fraction of data sets whose interval contains the true value, which is that of unlimited data. Bold: below
{LOW}. The file `statistics.csv` also has the true values, the mean values and widths, the side of the misses,
and the rejection rates.

{coverage_table(rows)}

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
- Heavy tails: Student's t with 3 degrees of freedom.
- Accuracy .97 and .995: one response of each prompt has an advantage ({advantages}).
- 10% saturated: the best response of a tenth of the prompts is better by 30.
- 5% surely wrong: the second response of these prompts is the correct one.
- Nearly no information: the true rewards have a standard deviation of 0.1.
- 20% tied: the two best responses of a fifth of the prompts have equal rewards.

Metrics of people's votes are measured in [votes.md](votes.md).
"""


def main() -> None:
    settings = {(setting.name, setting.n): setting for setting in SETTINGS}
    measure_all("statistics", __doc__, settings, measure, report)


if __name__ == "__main__":
    main()

"""Prompts that belong together: coverage of intervals and rejections of calibrated models, with and without clusters.

Every question has near-duplicate prompts: their rewards differ a little, and their correct responses, or the votes
of people, are mostly the same. Forecasts are calibrated. Some worlds have few questions, or one that has a tenth or
half of all prompts. Writes results/clusters.csv and results/clusters.md.

    python scripts/measure_clusters.py [--runs 300]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from measuring import markdown, parser_of, uncertainty
from scipy.special import expit
from scipy.stats import beta

from rmcalib._util.files import write_csv, write_text
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.comparison import smallest_gap
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores

HOW = Settings(resamples=199)
RESPONSES, ALIKE, VOTES = 4, 0.8, 10
SIZES = {
    "80 × 1": [1] * 80,
    "80 × 5": [5] * 80,
    "20 × 15": [15] * 20,
    "5 × 60": [60] * 5,
    "one has a tenth of 300": [30] + [1] * 270,
    "one has half of 300": [150] + [1] * 150,
}
OF_LABELS = (
    "overconfidence", "accuracy", "nll", "kept_information", "lost_information", "usable_information", "temperature",
    "ece", "confidence_ece", "pairwise_accuracy", "pairwise_overconfidence", "margin_median",
)  # fmt: skip
OF_VOTES = ("vote_gap", "vote_agreement", "vote_confidence", "vote_calibration_error")
TESTED = ("ece", "confidence_ece", "vote_calibration_error")


def rewards_of(sizes: list[int], rng: np.random.Generator, width: int) -> tuple[Any, Any, Any]:
    """Return rewards (n, width), the question of each prompt, and whether it shares what decides its outcome."""
    question = np.repeat(np.arange(len(sizes)), sizes)
    shared = rng.normal(scale=1.5, size=(len(sizes), width))[question]
    rewards = shared + rng.normal(scale=0.2, size=shared.shape)
    return rewards, question, rng.random((len(question), 1)) < ALIKE


def labelled(sizes: list[int], rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return rewards, the correct responses, and questions."""
    rewards, question, alike = rewards_of(sizes, rng, RESPONSES)
    of_question, own = (rng.gumbel(size=(n, RESPONSES)) for n in (len(sizes), len(question)))
    return rewards, (rewards + np.where(alike, of_question[question], own)).argmax(axis=1), question


def voted(sizes: list[int], rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return the rewards of pairs, votes on them, and questions: the share of votes of a question is off in common."""
    rewards, question, _ = rewards_of(sizes, rng, 2)
    p = expit(rewards[:, 0] - rewards[:, 1])
    share = beta.ppf(rng.random(len(sizes))[question], 4 * p, 4 * (1 - p))
    first = rng.binomial(VOTES, share)
    return rewards, np.column_stack([first, VOTES - first]), question


def truths(rng: np.random.Generator) -> dict[str, float]:
    """The values of unlimited data: the forecasts are calibrated."""
    rewards = rng.normal(scale=np.hypot(1.5, 0.2), size=(200_000, RESPONSES))
    p = np.exp(rewards - np.logaddexp.reduce(rewards, axis=1, keepdims=True))
    loss, right = float(-(p * np.log(p)).sum(axis=1).mean()), float(p.max(axis=1).mean())
    kept = 1 - loss / float(np.log(RESPONSES))
    winner = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    ahead = rewards[np.arange(len(rewards)), winner][:, None] - rewards
    others = ahead[np.arange(RESPONSES) != winner[:, None]].reshape(-1, RESPONSES - 1)
    wins = float((others > 0).mean())
    agree = float(expit(np.abs(rewards[:, 0] - rewards[:, 1])).mean())
    return dict.fromkeys((*OF_LABELS, *OF_VOTES), 0.0) | {
        "accuracy": right,
        "nll": loss,
        "kept_information": kept,
        "usable_information": kept,
        "temperature": 1.0,
        "pairwise_accuracy": wins,
        "pairwise_overconfidence": float(expit(np.abs(others)).mean()) - wins,
        "margin_median": float(np.median(others.min(axis=1))),
        "vote_agreement": agree,
        "vote_confidence": agree,
    }


def measure(world: str, clustered: bool, runs: int, true: dict[str, float]) -> dict[str, Any]:
    held: dict[str, list[bool]] = {name: [] for name in true}
    rejected: dict[str, list[bool]] = {name: [] for name in TESTED}
    planned, limits_of_gap = [], []
    for run in range(runs):
        for draw, what, names in ((labelled, "correct", OF_LABELS), (voted, "votes", OF_VOTES)):
            rewards, outcome, question = draw(SIZES[world], np.random.default_rng([run, len(world)]))
            cluster = question.astype(str).tolist() if clustered else None
            part = whole_part(Scores.from_arrays(rewards, cluster=cluster, **{what: outcome}))
            for name in names:
                found = estimate_of(catalogue()[name], part, HOW)
                limits = None if found is None else found.interval()
                if found is None or limits is None:
                    continue
                held[name].append(limits.low - 1e-9 <= true[name] <= limits.high + 1e-9)
                test = found.test() if name in TESTED else None
                if test is not None:
                    rejected[name].append(test.p_value <= 0.05)
                if name == "overconfidence":
                    if (least := smallest_gap(part)) is not None:
                        planned.append(least)
                    limits_of_gap.append((limits.low, limits.high))
    line: dict[str, Any] = {"prompts": world, "clusters": "yes" if clustered else "no"}
    line |= {name: round(float(np.mean(one)), 3) if one else None for name, one in held.items()}
    line |= {
        f"{name}: rejects": round(float(np.mean(one)), 3) if one else None for name, one in rejected.items()
    }
    return line | {"power": _power(planned, limits_of_gap)}


def _power(planned: list[Any], limits: list[tuple[float, float]]) -> float | None:
    """How often a gap of the planned size, of either sign, is shown; it is planned for 0.8. None without a plan."""
    if not planned:
        return None
    gap, (low, high) = float(np.median(planned)), np.array(limits).T
    return round(float(np.mean([low + gap > 0, high - gap < 0])), 3)


def report(rows: list[dict[str, Any]], runs: int, seconds: float) -> str:
    def table(names: tuple[str, ...]) -> str:
        return markdown([{name: row[name] for name in ("prompts", "clusters", *names)} for row in rows])

    given = [row for row in rows if row["clusters"] == "yes"]
    shown = {(row["prompts"], name): row[name] for row in given for name in (*OF_LABELS, *OF_VOTES)}
    (world, name), least = min(
        ((key, v) for key, v in shown.items() if v is not None), key=lambda one: one[1]
    )
    most = max(v for row in given for one in TESTED if (v := row[f"{one}: rejects"]) is not None)
    return f"""# Prompts that belong together

Made by `scripts/measure_clusters.py`: {runs} simulated data sets per row, {HOW.resamples} resamples each, in
{seconds / 60:.0f} minutes on one core. Questions have near-duplicate prompts: their rewards differ by noise of standard
deviation 0.2, and {ALIKE:.0%} of them share what decides the correct response. In pairs with {VOTES} votes each, the
fractions of votes of a question have a common error. Forecasts are calibrated. A coverage from {runs} data sets is
uncertain by about {uncertainty(runs):.3f}.

**With clusters, the lowest coverage of a 95% interval is {least:.3f} ({name}, {world}), and tests of calibration
reject at most {most:.3f} at 5%.** "No" counts every prompt as independent; "yes" gives the question as the cluster
(`--cluster`, or the column `cluster`). Cells are empty if there are too few clusters, or if one is too large: if one
question has half of the prompts, no interval can separate its effect from chance.

## Coverage: one correct response

{table(OF_LABELS)}

## Coverage: votes

{table(OF_VOTES)}

## Rejections of calibrated forecasts at 5%, and power

Power: how often the report shows the gap that it calls visible "in 4 of 5 cases".
It names no such gap if a few clusters may decide the gap.

{table((*(f"{name}: rejects" for name in TESTED), "power"))}
"""


def main() -> None:
    options = parser_of(__doc__, runs=300).parse_args()
    true, rows, start = truths(np.random.default_rng(12345)), [], time.process_time()
    for world, clustered in (*((world, True) for world in SIZES), ("80 × 5", False)):
        rows.append(measure(world, clustered, options.runs, true))
        print(rows[-1], flush=True)
        write_csv(options.output / "clusters.csv", rows)
        text = report(rows, options.runs, time.process_time() - start)
        write_text(options.output / "clusters.md", text)


if __name__ == "__main__":
    main()

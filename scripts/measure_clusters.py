"""Prompts that belong together: coverage of intervals and rejections of calibrated models, with and without clusters.

Every question has near-duplicate prompts: their rewards differ a little, and their correct responses, or the votes
of people, are mostly the same. Forecasts are calibrated. Some worlds have few questions, or one that has a tenth or
half of all prompts; in some, one response of each question is so much better that 97% of the choices are right. Writes
results/clusters.csv and results/clusters.md.

    python scripts/measure_clusters.py [--runs 300]
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from measure_statistics import ACCUSING
from measuring import markdown, parser_of, uncertainty
from scipy.optimize import brentq
from scipy.special import expit, softmax
from scipy.stats import beta

from rmcalib._util.arrays import FloatArray
from rmcalib._util.files import write_csv, write_text
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import whole_part
from rmcalib.report import evaluate
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
ACCURATE, ADVANTAGE = "accuracy .97, ", 5.5
WORLDS = (*SIZES, *(ACCURATE + sizes for sizes in ("80 × 5", "20 × 15", "5 × 60")))
OF_LABELS = (
    "overconfidence", "accuracy", "nll", "kept_information", "lost_information", "usable_information", "temperature",
    "ece", "confidence_ece", "pairwise_accuracy", "pairwise_overconfidence", "margin_median",
)  # fmt: skip
OF_VOTES = ("vote_gap", "vote_agreement", "vote_confidence", "vote_calibration_error")
TESTED = ("ece", "confidence_ece", "vote_calibration_error")


def rewards_of(world: str, rng: np.random.Generator, width: int) -> tuple[Any, Any, Any]:
    """Return rewards (n, width), the question of each prompt, and whether it shares what decides its outcome."""
    sizes = SIZES[world.removeprefix(ACCURATE)]
    question = np.repeat(np.arange(len(sizes)), sizes)
    rewards = utilities(world, len(sizes), width, rng)[question]
    rewards += rng.normal(scale=0.2, size=rewards.shape)
    return rewards, question, rng.random((len(question), 1)) < ALIKE


def utilities(world: str, n: int, width: int, rng: np.random.Generator) -> FloatArray:
    """Return what the responses of n questions are worth: (n, width)."""
    if not world.startswith(ACCURATE):
        return rng.normal(scale=1.5, size=(n, width))
    worth = rng.normal(size=(n, width))
    worth[:, 0] += ADVANTAGE
    return worth


def labelled(world: str, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return rewards, the correct responses, and questions."""
    rewards, question, alike = rewards_of(world, rng, RESPONSES)
    sizes = np.bincount(question)
    of_question, own = (rng.gumbel(size=(n, RESPONSES)) for n in (len(sizes), len(question)))
    return rewards, (rewards + np.where(alike, of_question[question], own)).argmax(axis=1), question


def voted(world: str, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Return the rewards of pairs, votes on them, and questions: the share of votes of a question is off in common."""
    rewards, question, _ = rewards_of(world, rng, 2)
    p = expit(rewards[:, 0] - rewards[:, 1])
    share = beta.ppf(rng.random(int(question.max()) + 1)[question], 4 * p, 4 * (1 - p))
    first = rng.binomial(VOTES, share)
    return rewards, np.column_stack([first, VOTES - first]), question


def truths(world: str, rng: np.random.Generator) -> dict[str, float]:
    """The values of unlimited data: the forecasts are calibrated."""
    rewards = utilities(world, 200_000, RESPONSES, rng)
    rewards += rng.normal(scale=0.2, size=rewards.shape)
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


def measure(world: str, clustered: bool, runs: int) -> dict[str, Any]:
    true = truths(world, np.random.default_rng(12345))
    held: dict[str, list[bool]] = {name: [] for name in true}
    rejected: dict[str, list[bool]] = {name: [] for name in TESTED}
    accurate = world.startswith(ACCURATE)
    views = ((labelled, "correct", OF_LABELS), (voted, "votes", OF_VOTES))[: 1 if accurate else 2]
    for run in range(runs):
        for draw, what, names in views:
            rewards, outcome, question = draw(world, np.random.default_rng([run, len(world)]))
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
    line: dict[str, Any] = {"prompts": world, "clusters": "yes" if clustered else "no"}
    line |= {name: round(float(np.mean(one)), 3) if one else None for name, one in held.items()}
    line |= {
        f"{name}: rejects": round(float(np.mean(one)), 3) if one else None for name, one in rejected.items()
    }
    return line | {"power": None if accurate else power(world, clustered, runs)}


def power(world: str, clustered: bool, runs: int) -> float | None:
    """How often pages of models with the planned gap, of either sign, show it; None without a plan.

    The plan is that of pages of the calibrated model. The other models have its rewards at another scale.
    """
    planned = [page(world, clustered, [run, 1])["smallest_gap"] for run in range(min(runs, 30))]
    known = [least for least in planned if least is not None]
    if len(known) < len(planned) / 2:
        return None
    rewards = utilities(world, 100_000, RESPONSES, np.random.default_rng(12345))

    def excess(scale: float, wanted: float) -> float:
        return float(softmax(scale * rewards, axis=1).max(axis=1).mean()) - wanted

    shown, right = [], excess(1.0, 0.0)
    for sign in (1, -1):
        wanted = right + sign * float(np.median(known))
        if excess(0.01, wanted) < 0 < excess(100.0, wanted):  # otherwise no model has such a gap
            scale = float(brentq(excess, 0.01, 100.0, args=(wanted,)))
            pages = [page(world, clustered, [run, 2, sign + 1], scale) for run in range(runs // 2)]
            shown += ["gap" in facts["shown"] for facts in pages]
    return round(float(np.mean(shown)), 3) if shown else None


def page(world: str, clustered: bool, seed: list[int], scale: float = 1.0) -> dict[str, Any]:
    """Return what a page knows of a data set besides its metrics."""
    rewards, outcome, question = labelled(world, np.random.default_rng(seed))
    cluster = question.astype(str).tolist() if clustered else None
    scores = Scores.from_arrays(scale * rewards, outcome, cluster=cluster)
    return evaluate(scores, metrics=ACCUSING, resamples=HOW.resamples).facts


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
fractions of votes of a question have a common error. With accuracy .97, one response of each question has an advantage
of {ADVANTAGE}. Forecasts are calibrated. A coverage from {runs} data sets is
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

Power: how often the page of an over- or under-confident model shows its gap, if that is as large as the page of the
calibrated model calls visible "in 4 of 5 cases". A gap is shown after the correction for all statements of a page. A
page names no such gap if a few clusters may decide the gap.

{table((*(f"{name}: rejects" for name in TESTED), "power"))}
"""


def main() -> None:
    options = parser_of(__doc__, runs=300).parse_args()
    rows: list[dict[str, Any]] = []
    start = time.process_time()
    for world, clustered in (*((world, True) for world in WORLDS), ("80 × 5", False)):
        rows.append(measure(world, clustered, options.runs))
        print(rows[-1], flush=True)
        write_csv(options.output / "clusters.csv", rows)
        text = report(rows, options.runs, time.process_time() - start)
        write_text(options.output / "clusters.md", text)


if __name__ == "__main__":
    main()

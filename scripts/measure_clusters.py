"""Prompts that belong together: coverage of intervals and rejections of calibrated models, with and without clusters.

Every question has several near-duplicate prompts: their rewards differ a little, and their correct responses
are mostly the same. The forecasts are calibrated. Writes results/clusters.csv and results/clusters.md.

    python scripts/measure_clusters.py [--runs 300]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from measuring import markdown, parser_of, uncertainty

from rmcalib._util.files import write_csv, write_text
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import estimate_of
from rmcalib.metrics.views import whole_part
from rmcalib.scores import Scores

HOW = Settings(resamples=199)
QUESTIONS, RESPONSES, ALIKE = 80, 4, 0.8
COPIES = (1, 3, 5, 15)
MEASURES = ("overconfidence", "accuracy", "nll", "kept_information", "temperature", "ece", "confidence_ece")


def draw(copies: int, rng: np.random.Generator) -> tuple[Scores, Scores]:
    """Return the same scores without and with clusters."""
    shared = rng.normal(scale=1.5, size=(QUESTIONS, 1, RESPONSES))
    rewards = shared + rng.normal(scale=0.2, size=(QUESTIONS, copies, RESPONSES))
    noise = rng.gumbel(size=(QUESTIONS, copies, RESPONSES))
    alike = rng.random((QUESTIONS, copies, 1)) < ALIKE
    noise = np.where(alike, noise[:, :1], noise)
    winner = (rewards + noise).argmax(axis=2).reshape(-1)
    flat = rewards.reshape(-1, RESPONSES)
    cluster = np.repeat(np.arange(QUESTIONS), copies).astype(str).tolist()
    return Scores.from_arrays(flat, winner), Scores.from_arrays(flat, winner, cluster=cluster)


def truths(rng: np.random.Generator) -> dict[str, float]:
    """The values of unlimited data: the forecasts are calibrated."""
    rewards = rng.normal(scale=np.hypot(1.5, 0.2), size=(200_000, RESPONSES))
    p = np.exp(rewards - np.logaddexp.reduce(rewards, axis=1, keepdims=True))
    loss = float(-(p * np.log(p)).sum(axis=1).mean())
    right = float(p.max(axis=1).mean())
    kept = 1 - loss / float(np.log(RESPONSES))
    values = {"accuracy": right, "nll": loss, "kept_information": kept, "temperature": 1.0}
    return dict.fromkeys(MEASURES, 0.0) | values


def measure(runs: int) -> list[dict[str, Any]]:
    true, rows = truths(np.random.default_rng(12345)), []
    for copies in COPIES:
        held: dict[tuple[str, bool], list[bool]] = {}
        rejected: dict[bool, list[bool]] = {False: [], True: []}
        for run in range(runs):
            for clustered, scores in zip(
                (False, True), draw(copies, np.random.default_rng([run, copies])), strict=True
            ):
                part = whole_part(scores)
                for name in MEASURES:
                    found = estimate_of(catalogue()[name], part, HOW)
                    limits = None if found is None else found.interval()
                    if found is None or limits is None:
                        continue
                    inside = limits.low - 1e-9 <= true[name] <= limits.high + 1e-9
                    held.setdefault((name, clustered), []).append(inside)
                    test = found.test() if name == "ece" else None
                    if test is not None:
                        rejected[clustered].append(test.p_value <= 0.05)
        for clustered in (False, True):
            line: dict[str, Any] = {
                "prompts": f"{QUESTIONS} × {copies}",
                "clusters": "yes" if clustered else "no",
            }
            line |= {name: round(float(np.mean(held[name, clustered])), 3) for name in MEASURES}
            rows.append(line | {"ECE test rejects": round(float(np.mean(rejected[clustered])), 3)})
            print(line, flush=True)
    return rows


def main() -> None:
    options = parser_of(__doc__, runs=300).parse_args()
    rows = measure(options.runs)
    write_csv(options.output / "clusters.csv", rows)
    text = f"""# Prompts that belong together

Made by `scripts/measure_clusters.py`: {options.runs} simulated data sets per row, {HOW.resamples} resamples each.
Every one of {QUESTIONS} questions has 1, 3, 5 or 15 near-duplicate prompts: their rewards differ by noise of standard
deviation 0.2, and {ALIKE:.0%} of them share what decides the correct response. Forecasts are calibrated. The columns
are the coverage of 95% intervals; the last one is how often the test of the ECE rejects at 5%. A coverage from
{options.runs} data sets is uncertain by about {uncertainty(options.runs):.3f}.

{markdown(rows)}

"No" counts every prompt as independent; "yes" gives the question as the cluster (`--cluster`, or the column `cluster`).
"""
    write_text(options.output / "clusters.md", text)


if __name__ == "__main__":
    main()

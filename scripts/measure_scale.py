"""How much of the correlation between calibration and accuracy is due to the scale of the rewards?

There are two parts. Simulated boards have models whose scale is independent of their skill: the script
measures the correlation of each error with accuracy for several mean scales. For the paper's 48 models
(results/published_reward_models.csv), skill and scale of each follow from its accuracy and its mean margin
under a normal model: the script exchanges their scales, or calibrates them all perfectly, and measures again.

Writes results/scale.csv, results/scale.md and results/scale.png.

    python scripts/measure_scale.py [--boards 6]
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import RESULTS
from scipy.optimize import brentq
from scipy.stats import kendalltau, norm

from rmcalib._util.arrays import FloatArray
from rmcalib._util.display import markdown_table
from rmcalib._util.files import write_csv, write_file, write_text
from rmcalib.calibration import Scale, Softmax, ece

MODELS, PROMPTS, RESPONSES = 30, 1763, 4
SPREAD = 0.8  # standard deviation of the log scale of the models of a board
MEAN_SCALES = (-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
EXCHANGES = 30
ERRORS = {
    "reference": "1 − mean P(chosen)",
    "ece": "ECE",
    "gap": "|gap|",
    "lost_information": "lost information",
    "abs_log_temperature": "|log T|",
}
Row = dict[str, Any]


def model(skill: float, log_scale: float, rng: np.random.Generator) -> dict[str, float]:
    """The errors of a model on simulated prompts.

    Its rewards are normal, and larger by ``skill`` standard deviations for the correct response. Times
    ``skill`` they are log-likelihood ratios, so that their softmax is calibrated; ``log_scale`` adds to that.
    """
    x = rng.normal(size=(PROMPTS, RESPONSES))
    x[:, 0] += skill
    rewards = np.exp(log_scale) * skill * x
    p = np.exp(rewards - rewards.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = np.zeros_like(p)
    y[:, 0] = 1
    right = p.argmax(axis=1) == 0
    found = Scale(Softmax(rewards.ravel(), y.ravel() == 1, np.full(PROMPTS, RESPONSES)))
    return {
        "accuracy": float(right.mean()),
        "reference": float(1 - p[:, 0].mean()),
        "ece": ece(p.ravel(), y.ravel()),
        "gap": abs(float((p.max(axis=1) - right).mean())),
        "lost_information": found.lost,
        "abs_log_temperature": abs(float(np.log(found.fit.optimum))),
    }


def taus(models: Sequence[dict[str, float]]) -> dict[str, float]:
    """Kendall's tau of each error with accuracy; positive if a smaller error means more accuracy."""
    accuracy = [one["accuracy"] for one in models]
    return {name: float(kendalltau([-one[name] for one in models], accuracy).statistic) for name in ERRORS}


def simulated(boards: int) -> list[Row]:
    """Boards whose models have a scale that does not depend on their skill."""
    rows = []
    for mean in MEAN_SCALES:
        found = []
        for board in range(boards):
            rng = np.random.default_rng([board, int(10 * mean + 100)])
            skills = rng.uniform(0.3, 2.5, MODELS)
            scales = rng.normal(mean, SPREAD, MODELS)
            found.append(taus([model(a, s, rng) for a, s in zip(skills, scales, strict=True)]))
        rows += _rows("simulated", f"{mean:g}", found)
        print(f"mean log scale {mean:g} done", flush=True)
    return rows


def of_table(path: Path) -> list[Row]:
    """The models of a table with their scales, with exchanged scales, and all on the right scale."""
    with path.open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    column = {
        name: np.array([float(row[name]) for row in table])
        for name in ("ece_score", "model_accuracy", "margin_to_mean", "leaderboard_score")
    }
    kept = column["margin_to_mean"] > 0
    skill = np.array([skill_of(a) for a in column["model_accuracy"][kept]])
    scale = np.log(column["margin_to_mean"][kept] / skill**2)
    rng = np.random.default_rng(0)
    own = [model(a, s, rng) for a, s in zip(skill, scale, strict=True)]
    exchanged = [
        taus([model(a, s, rng) for a, s in zip(skill, rng.permutation(scale), strict=True)])
        for _ in range(EXCHANGES)
    ]
    right = [taus([model(a, 0.0, rng) for a in skill]) for _ in range(3)]
    predicted = np.array([one["reference"] for one in own])
    facts = {
        "models": len(table),
        "models with a positive margin": int(kept.sum()),
        "tau of ece_score and leaderboard score": _tau(-column["ece_score"], column["leaderboard_score"]),
        "tau of ece_score and accuracy": _tau(-column["ece_score"], column["model_accuracy"]),
        "tau of mean margin and accuracy": _tau(column["margin_to_mean"], column["model_accuracy"]),
        "tau of |log T| and accuracy": _tau(-np.abs(scale), column["model_accuracy"][kept]),
        "tau of ece_score and 1 − mean P(chosen) of the normal model": _tau(
            column["ece_score"][kept], predicted
        ),
        "mean |ece_score − 1 + mean P(chosen) of the normal model|": float(
            np.abs(column["ece_score"][kept] - predicted).mean()
        ),
        "median log scale": float(np.median(scale)),
        "standard deviation of the log scale": float(scale.std()),
    }
    rows = [_row("table", "fact", name, value) for name, value in facts.items()]
    rows += _rows("table", "own scales", [taus(own)])
    rows += _rows("table", "exchanged scales", exchanged)
    return rows + _rows("table", "all calibrated", right)


def skill_of(accuracy: float) -> float:
    """The advantage of the correct response with which it is first of four with this probability."""
    x = np.linspace(-8, 12, 4001)

    def excess(skill: float) -> float:
        first = norm.pdf(x - skill) * norm.cdf(x) ** (RESPONSES - 1)
        return float(np.trapezoid(first, x)) - accuracy

    return float(brentq(excess, 1e-3, 6))


def _tau(x: FloatArray, y: FloatArray) -> float:
    return float(kendalltau(x, y).statistic)


def _row(part: str, board: str, name: str, value: float, error: float | None = None) -> Row:
    return {"part": part, "board": board, "measure": name, "value": round(value, 4),
            "standard_error": None if error is None else round(error, 4)}  # fmt: skip


def _rows(part: str, board: str, found: Sequence[dict[str, float]]) -> list[Row]:
    rows = []
    for name in ERRORS:
        values = np.array([one[name] for one in found])
        error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
        rows.append(_row(part, board, name, float(values.mean()), error))
    return rows


def wide(rows: Sequence[Row], part: str, first: str) -> str:
    """One line per board, one column per error."""
    boards = list(
        dict.fromkeys(row["board"] for row in rows if row["part"] == part and row["board"] != "fact")
    )
    lines = []
    for board in boards:
        own = {row["measure"]: row for row in rows if (row["part"], row["board"]) == (part, board)}
        lines.append([board, *(f"{float(own[name]['value']):+.2f}" for name in ERRORS)])
    return "\n".join(markdown_table([first, *ERRORS.values()], lines))


def report(rows: Sequence[Row], boards: int) -> str:
    sweep = {
        name: [float(r["value"]) for r in rows if r["part"] == "simulated" and r["measure"] == name]
        for name in ERRORS
    }
    facts = {row["measure"]: float(row["value"]) for row in rows if row["board"] == "fact"}

    spread = [float(r["standard_error"]) for r in rows if r["part"] == "simulated"]

    def span(name: str) -> str:
        return f"{min(sweep[name]):+.2f} to {max(sweep[name]):+.2f}"

    own, exchanged = (
        next(float(r["value"]) for r in rows if (r["board"], r["measure"]) == (board, "reference"))
        for board in ("own scales", "exchanged scales")
    )

    return f"""# How much of the correlation between calibration and accuracy is due to scale

Made by `scripts/measure_scale.py`. The tables show Kendall's tau between an error and accuracy, over models.
It is positive if models with a smaller error are more accurate.

## Simulated boards

{boards} boards of {MODELS} models for each line, {PROMPTS:,} prompts with four responses. The log scale of
a model's rewards (0 is right) is normal with standard deviation {SPREAD} around the mean of the board,
**independent of its skill**. So the true answer is 0. Each number is uncertain by about
{1.96 * float(np.mean(spread)):.2f}.

{wide(rows, "simulated", "mean log scale")}

![Kendall's tau of each error with accuracy, by the mean log scale of the board](scale.png)

- **ECE**: tau is {span("ece")}. If rewards are much too large, the ECE is little more than the rate
  of wrong answers, and accurate models have fewer of them.
- **1 − mean P(chosen)**, which the paper's public code calls ECE, correlates with accuracy on every board.
- **|log T|**: tau is {span("abs_log_temperature")}.
- **Lost information**: tau is {span("lost_information")}. If rewards are too small, the same wrong
  scale costs a skilled model more.

## The paper's {facts["models"]:.0f} models

The table has the accuracy, the mean margin and `ece_score` = 1 − mean P(chosen) of each model. Tau of
`ece_score` with the leaderboard score is {facts["tau of ece_score and leaderboard score"]:.2f}, and with
accuracy {facts["tau of ece_score and accuracy"]:.2f}. How much of it is calibration?

Assume normal rewards. Skill then follows from accuracy, and scale from the mean margin, which is positive for
{facts["models with a positive margin"]:.0f} of the models. The resulting models are close to the real ones:

| comparison | value |
| --- | --- |
| tau of their 1 − mean P(chosen) with `ece_score` | \
{facts["tau of ece_score and 1 − mean P(chosen) of the normal model"]:.2f} |
| mean absolute difference of the two | \
{facts["mean |ece_score − 1 + mean P(chosen) of the normal model|"]:.3f} |
| median of the log scales | {facts["median log scale"]:+.2f} |
| standard deviation of the log scales | {facts["standard deviation of the log scale"]:.2f} |

Tau of each error with accuracy:

{wide(rows, "table", "scales")}

- **Exchanged scales**: the scales of the models are exchanged at random, so that scale is independent of
  skill (mean of {EXCHANGES} exchanges). Tau of 1 − mean P(chosen) changes from {own:.2f} to {exchanged:.2f}.
  Only this difference comes from calibration.
- **All calibrated**: if every model were perfectly calibrated, 1 − mean P(chosen) would correlate with
  accuracy even more. The other errors would be noise.
- By the ECE, lost information or |log T|, the accurate models among these are hardly better calibrated.
"""


def figure(rows: Sequence[Row]) -> Any:
    import seaborn
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7.2, 4.2), dpi=130, layout="constrained")
    axes = drawn.subplots()
    own = [row for row in rows if row["part"] == "simulated"]
    table = {
        "x": [float(row["board"]) for row in own],
        "tau": [float(row["value"]) for row in own],
        "error": [ERRORS[row["measure"]] for row in own],
    }
    seaborn.lineplot(table, x="x", y="tau", hue="error", style="error", markers=True, dashes=True, ax=axes)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xlabel("mean log scale of the rewards (0 is right)")
    axes.set_ylabel("Kendall's tau of the error with accuracy")
    axes.legend(frameon=False)
    return drawn


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--boards", type=int, default=6, help="simulated boards for each mean scale")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    rows = simulated(args.boards) + of_table(RESULTS / "published_reward_models.csv")
    write_csv(args.output / "scale.csv", rows)
    write_text(args.output / "scale.md", report(rows, args.boards))
    save = partial(figure(rows).savefig, format="png", metadata={"Software": None})
    write_file(args.output / "scale.png", save)


if __name__ == "__main__":
    main()

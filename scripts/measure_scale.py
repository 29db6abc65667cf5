"""How much of "better calibrated models are more accurate" is the scale of the rewards?

Two answers. First, simulated boards: the scale of the models is independent of their skill, and the
correlation of each error with accuracy is measured as the mean scale of the board grows. Second, a table of
published models (the paper's 48): skill and scale of each model are computed from its accuracy and its mean
margin under a normal model. The correlations are then computed again with exchanged scales, and with perfect
calibration.

Writes results/scale.csv, results/scale.md and results/scale.png.

    python scripts/measure_scale.py [--table paper_reward_models.csv] [--boards 8]
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import kendalltau, norm

from rmcalib._util.arrays import FloatArray
from rmcalib._util.files import write_csv, write_file, write_text
from rmcalib._util.markdown import markdown_table
from rmcalib.calibration import ece, scale_loss

RESULTS = Path(__file__).resolve().parents[1] / "results"
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
    found = scale_loss(rewards.ravel(), y.ravel(), np.repeat(np.arange(PROMPTS), RESPONSES))
    return {
        "accuracy": float(right.mean()),
        "reference": float(1 - p[:, 0].mean()),
        "ece": ece(p.ravel(), y.ravel()),
        "gap": abs(float((p.max(axis=1) - right).mean())),
        "lost_information": found.lost.value,
        "abs_log_temperature": abs(float(np.log(found.temperature.value))),
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

    text = f"""# How much of "calibration goes with accuracy" is scale

Made by `scripts/measure_scale.py`. Kendall's tau over models of an error with accuracy: positive if models
with a smaller error are more accurate.

## Simulated boards

{boards} boards of {MODELS} models for each line, {PROMPTS:,} prompts with four responses. The log scale of
a model's rewards (0 is right) is normal with standard deviation {SPREAD} about the mean of the board,
**independent of its skill**. So the right answer is 0. A number is uncertain by about
{1.96 * float(np.mean(spread)):.2f}.

{wide(rows, "simulated", "mean log scale")}

![Kendall's tau of each error with accuracy, by the mean log scale of the board](scale.png)

Tau of the ECE runs from {span("ece")}. Where rewards are much too large, the ECE is
little more than the rate of wrong answers, and accurate models have fewer of them. 1 − mean P(chosen), which
the paper's public code calls ECE, correlates with accuracy on every board. |log T| runs from
{span("abs_log_temperature")}, and lost information from {span("lost_information")}:
the same wrong scale costs a skilled model more where rewards are too small.
"""
    if not facts:
        return text
    own, exchanged = (
        next(float(r["value"]) for r in rows if (r["board"], r["measure"]) == (board, "reference"))
        for board in ("own scales", "exchanged scales")
    )
    return (
        text
        + f"""
## The paper's {facts["models"]:.0f} models

The table has the accuracy, the mean margin and `ece_score` = 1 − mean P(chosen) of each model. Tau of
`ece_score` with the leaderboard score is {facts["tau of ece_score and leaderboard score"]:.2f}, and with
accuracy {facts["tau of ece_score and accuracy"]:.2f}. How much of it is calibration?

Take normal rewards. Skill then follows from accuracy, and scale from the mean margin, which is positive for
{facts["models with a positive margin"]:.0f} of the models. These models are close to the real ones: tau of
their 1 − mean P(chosen) with `ece_score` is
{facts["tau of ece_score and 1 − mean P(chosen) of the normal model"]:.2f}, the mean absolute difference
{facts["mean |ece_score − 1 + mean P(chosen) of the normal model|"]:.3f}. Their log scales have the median
{facts["median log scale"]:+.2f} and the standard deviation
{facts["standard deviation of the log scale"]:.2f}. Tau of each error with accuracy:

{wide(rows, "table", "scales")}

- **Exchanged scales**: the scales of the models are exchanged at random, so that scale has nothing to do with
  skill (mean of {EXCHANGES} exchanges). Tau of 1 − mean P(chosen) goes from {own:.2f} to {exchanged:.2f}: the
  difference is all that calibration contributes.
- **All calibrated**: if every model were perfectly calibrated, 1 − mean P(chosen) would correlate with
  accuracy even more. The other errors are then noise.
- By the ECE, lost information or |log T|, the accurate models among these are hardly better calibrated.
"""
    )


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
    parser.add_argument("--table", type=Path, help="CSV with ece_score, model_accuracy and margin_to_mean")
    parser.add_argument("--boards", type=int, default=8, help="simulated boards for each mean scale")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    path, kept = args.output / "scale.csv", []
    if args.table is None and path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            kept = [row for row in csv.DictReader(file) if row["part"] == "table"]
    rows = simulated(args.boards) + (kept if args.table is None else of_table(args.table))
    write_csv(path, rows)
    write_text(args.output / "scale.md", report(rows, args.boards))
    save = partial(figure(rows).savefig, format="png", metadata={"Software": None})
    write_file(args.output / "scale.png", save)


if __name__ == "__main__":
    main()

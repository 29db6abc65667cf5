"""The paper's two figures of reward models, from its own table of 48 models and from real scores of three.

    python scripts/paper_reward_models.py   # writes results/reward_bench_2*.csv and reward_bench_2.png

The table is results/published_reward_models.csv; the scores come with the package.
"""

from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import kendalltau

from rmcalib import evaluate, load_board
from rmcalib._util.display import short_names
from rmcalib._util.files import write_bytes, write_text
from rmcalib.report.figures import figure_bytes
from rmcalib.tabular._results import tidy

RESULTS = Path(__file__).parents[1] / "results"
TARGETS = {
    "leaderboard_score": "leaderboard",
    "focus": "Focus",
    "safety": "Safety",
    "factuality": "Factuality",
    "precise_if": "Precise IF",
    "math": "Math",
}
MEASURED = {"reference_top_1": "column_measured", "ece": "ece", "accuracy": "accuracy_measured"}
BLUE, RED, GREY = "#2463a6", "#c23b4b", "#b9bec6"


def models() -> pd.DataFrame:
    """Return the paper's models, the smallest value first, with what is measured where there are scores.

    ``column`` is what the public code calls ECE, ``column_measured`` is 1 − mean P(chosen), and ``ece`` is the
    error of the definition, with its interval.
    """
    published = pd.read_csv(RESULTS / "published_reward_models.csv").rename(columns={"ece_score": "column"})
    rows = []
    for model, scores in load_board("reward-bench-2").items():
        table = evaluate(scores, metrics=list(MEASURED)).table
        found = table[table["category"] == "overall"].set_index("metric")
        row: dict[str, Any] = {name: found.at[metric, "value"] for metric, name in MEASURED.items()}
        rows.append({"model": model} | row | {f"ece_{end}": found.at["ece", end] for end in ("low", "high")})
    kept = published.drop(columns="margin_to_mean").sort_values("column")
    return kept.merge(pd.DataFrame(rows).round(6), how="left", on="model")


def correlations(table: pd.DataFrame) -> pd.DataFrame:
    """Return Kendall's tau of the published column with each score, the largest first."""
    rows = []
    for column, name in TARGETS.items():
        tau = kendalltau(-table["column"], table[column])
        rows.append({"score": name, "tau": round(tau.statistic, 4), "p_value": float(f"{tau.pvalue:.2g}")})
    return pd.DataFrame(rows).sort_values("tau", ascending=False, ignore_index=True)


def figure(table: pd.DataFrame, taus: pd.DataFrame) -> Any:
    """Draw the paper's two panels, and for the models with scores the same column beside the ECE."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(14, 4.8), layout="constrained", dpi=130)
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1.2, 0.9, 1.1))
    names = short_names(list(table["model"]))
    first = table.head(10)
    left.barh(first.index, first["column"], color=GREY, label="as published")
    measured = first.dropna(subset="column_measured")
    left.plot(measured["column_measured"], measured.index, "D", color=BLUE, label="from real scores")
    left.set_yticks(first.index, [names[model] for model in first["model"]], fontsize=8)
    left.set_xlabel("what the public code calls ECE: 1 − mean P(chosen)")
    left.set_title("Ten smallest of 48 models", loc="left", fontsize=11)
    left.legend(frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.12))
    middle.bar_label(middle.barh(taus.index, taus["tau"], color=GREY), fmt="%.2f", padding=3)
    middle.set_yticks(taus.index, taus["score"])
    middle.set(xlim=(0, 1), xlabel="Kendall's tau of the column with the score")
    middle.set_title("Correlation over 48 models", loc="left", fontsize=11)
    real = table.dropna(subset="ece").sort_values("accuracy_measured")
    accuracy = real["accuracy_measured"]
    right.plot(accuracy, real["column_measured"], "D-", color=BLUE, label="1 − mean P(chosen)")
    spread = [real["ece"] - real["ece_low"], real["ece_high"] - real["ece"]]
    right.errorbar(
        accuracy, real["ece"], spread, fmt="o-", color=RED, capsize=3, label="ECE by the definition"
    )
    for row in real.to_dict("records"):
        place = (row["accuracy_measured"], row["column_measured"])
        right.annotate(names[row["model"]], place, (6, 6), textcoords="offset points", fontsize=8)
    right.set(xlim=(0.79, 0.94), ylim=(0, 0.32), xlabel="accuracy on prompts with one right answer")
    right.set_title("Three models, from their scores", loc="left", fontsize=11)
    right.legend(frameon=False, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.12))
    for axes in (left, middle, right):
        tidy(axes)
    for axes in (left, middle):
        axes.invert_yaxis()
        axes.grid(visible=False)
    return drawn


def main(folder: Path = RESULTS) -> None:
    table = models()
    taus = correlations(table)
    write_text(folder / "reward_bench_2.csv", table.to_csv(index=False))
    write_text(folder / "reward_bench_2_correlations.csv", taus.to_csv(index=False))
    write_bytes(folder / "reward_bench_2.png", figure_bytes(figure(table, taus), "png"))


if __name__ == "__main__":
    main()

"""The paper's two figures of reward models, from its own table of 48 models and from real scores of three.

    python scripts/paper_reward_models.py   # writes results/reward_bench_2*.csv and reward_bench_2.png

The table is results/published_reward_models.csv; the scores come with the package.
"""

from pathlib import Path
from typing import Any

import pandas as pd

from rmcalib import evaluate, load_board
from rmcalib._util.display import short_names
from rmcalib._util.files import write_bytes, write_text
from rmcalib.leaderboards import report_from_table
from rmcalib.leaderboards.figures import correlated_rows, draw_correlations, draw_top_10, top_10_rows
from rmcalib.leaderboards.measure import Board
from rmcalib.report.figures import BLUE, INK, figure_bytes
from rmcalib.tabular._results import tidy

RESULTS = Path(__file__).parents[1] / "results"
PUBLISHED = RESULTS / "published_reward_models.csv"
MEASURED = {"reference_top_1": "column_measured", "ece": "ece", "accuracy": "accuracy_measured"}
RED = "#c23b4b"
SMALL = 8  # points, as in the two other panels


def models() -> pd.DataFrame:
    """Return the paper's models, the smallest value first, with what is measured where there are scores.

    ``column`` is what the public code calls ECE, ``column_measured`` is 1 − mean P(chosen), and ``ece`` is the
    error of the definition, with its interval.
    """
    published = pd.read_csv(PUBLISHED).rename(columns={"ece_score": "column"})
    rows = []
    for model, scores in load_board("reward-bench-2").items():
        table = evaluate(scores, metrics=list(MEASURED)).table
        found = table[table["category"] == "overall"].set_index("metric")
        row: dict[str, Any] = {name: found.at[metric, "value"] for metric, name in MEASURED.items()}
        rows.append({"model": model} | row | {f"ece_{end}": found.at["ece", end] for end in ("low", "high")})
    kept = published.drop(columns="margin_to_mean").sort_values("column")
    return kept.merge(pd.DataFrame(rows).round(6), how="left", on="model")


def correlations(board: Board) -> pd.DataFrame:
    """Return Kendall's tau of the published column with each score, and its interval, the largest first."""
    rows = pd.DataFrame(correlated_rows(board)).rename(columns={"target": "score", "value": "tau"})
    rows["p_value"] = [float(f"{value:.2g}") for value in rows["p_value"]]
    return rows[["score", "tau", "low", "high", "p_value", "source"]].round({"tau": 4, "low": 4, "high": 4})


def figure(board: Board, table: pd.DataFrame) -> Any:
    """Draw the paper's two panels, and for the models with scores the same column beside the ECE."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(11.5, 3.9), layout="constrained", dpi=160)
    left, middle, right = drawn.subplots(1, 3, width_ratios=(1.2, 0.9, 1.1))
    names = short_names(list(table["model"]))
    best = top_10_rows(board)
    draw_top_10(left, best, error=board.metric, n_models=len(board.models))
    places = {row["model"]: place for place, row in enumerate(best)}
    measured = table.dropna(subset="column_measured")
    rows = [places[names[model]] for model in measured["model"]]
    left.plot(measured["column_measured"], rows, "D", color=INK, label="from real scores")
    left.legend(frameon=False, fontsize=SMALL, loc="upper left", bbox_to_anchor=(0, -0.12))
    draw_correlations(middle, correlated_rows(board), error=board.metric)
    middle.set_xlim(0, 1)
    real = table.dropna(subset="ece").sort_values("accuracy_measured")
    accuracy = real["accuracy_measured"]
    right.plot(accuracy, real["column_measured"], "D-", color=BLUE, label="1 − mean P(chosen)")
    spread = [real["ece"] - real["ece_low"], real["ece_high"] - real["ece"]]
    right.errorbar(
        accuracy, real["ece"], spread, fmt="o-", color=RED, capsize=3, label="ECE by the definition"
    )
    for row in real.to_dict("records"):
        place = (row["accuracy_measured"], row["column_measured"])
        right.annotate(names[row["model"]], place, (6, 6), textcoords="offset points", fontsize=SMALL)
    right.set(xlim=(0.79, 0.94), ylim=(0, 0.32), xlabel="accuracy on prompts with one right answer")
    right.set_title("Three models, from their scores", loc="left", fontsize=SMALL + 1)
    right.legend(frameon=False, fontsize=SMALL, ncols=2, loc="upper left", bbox_to_anchor=(0, -0.12))
    tidy(right)
    right.tick_params(labelsize=SMALL)
    right.xaxis.label.set_size(SMALL)
    return drawn


def main(folder: Path = RESULTS) -> None:
    table = models()
    board = report_from_table(PUBLISHED).boards[PUBLISHED.name]
    write_text(folder / "reward_bench_2.csv", table.to_csv(index=False))
    write_text(folder / "reward_bench_2_correlations.csv", correlations(board).to_csv(index=False))
    write_bytes(folder / "reward_bench_2.png", figure_bytes(figure(board, table), "png"))


if __name__ == "__main__":
    main()

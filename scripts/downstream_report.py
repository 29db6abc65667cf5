"""Write results/downstream.md and its three figures from the tables of the other downstream scripts.

python scripts/downstream_worlds.py && python scripts/downstream_scores.py && python scripts/downstream_grpo.py
python scripts/downstream_report.py
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pandas as pd
from measuring import RESULTS, markdown

from rmcalib._util.files import write_bytes, write_text
from rmcalib.report.figures import BAD, BLUE, GOOD, INK, LINE, figure_bytes

Frame = Any  # the types of pandas know no index of several columns
COLOURS = {"on scale": BLUE, "raw": BAD, "probability": GOOD}
STYLES = {"on scale": "-", "raw": "--", "probability": "-."}
BOARDS = {"rewardmath": "RewardMATH", "reward-bench-2": "RewardBench 2"}
RULES = {"stated p ≥ .9": BAD, "calibrated p ≥ .9": BLUE, "the rule of decide": GOOD}


def costs_figure(worlds: Frame) -> Any:
    """Costs of each error for each use, as given and after one temperature and offset."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.4, 4.4), dpi=130, layout="constrained")
    uses, errors = list(dict.fromkeys(worlds["use"])), list(dict.fromkeys(worlds["error"]))
    for axes, repaired in zip(figure.subplots(1, 2, sharey=True), (False, True), strict=True):
        rows = worlds[worlds["repaired"] == repaired].set_index(["use", "error"])["cost"]
        values = [[rows[use, error] for error in errors] for use in uses]
        axes.imshow(values, cmap="Reds", vmin=0, vmax=20, aspect="auto")
        for i, row in enumerate(values):
            for j, value in enumerate(row):
                text = "0" if abs(value) < 0.005 else f"{value:.1f}"
                axes.text(
                    j, i, text, ha="center", va="center", fontsize=8, color="white" if value > 12 else INK
                )
        axes.set_xticks(range(len(errors)), errors, rotation=35, ha="right", fontsize=8, color=INK)
        axes.set_yticks(range(len(uses)), uses, fontsize=8.5, color=INK)
        axes.set_title(
            "after one temperature and one offset" if repaired else "as given", fontsize=10, color=INK
        )
        axes.tick_params(length=0)
        for side in axes.spines.values():
            side.set_visible(False)
    return figure


def promises_figure(scores: Frame) -> Any:
    """How often accepted first choices are wrong, where at most 10% were promised."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import PercentFormatter

    rows = scores[scores["task"] == "accept"].pivot_table(
        index=["board", "model", "rule"], columns="measure", values=["value", "standard_error"]
    )
    shown = [name for name in rows.index.droplevel("rule").unique() if is_used(rows, name)]
    figure = Figure(figsize=(7.6, 0.9 + 0.42 * len(shown)), dpi=130, layout="constrained")
    axes = figure.subplots()
    axes.axvline(0.1, color=INK, linewidth=0.9, linestyle=":")
    axes.text(1.16, -0.62, "accepts", ha="center", fontsize=8, color=INK)
    for place, name in enumerate(shown):
        for i, (rule, colour) in enumerate(RULES.items()):
            row, height = rows.loc[(*name, rule)], place + 0.22 * (i - 1)
            accepted, wrong = row["value", "accepted"], row["value", "wrong"]
            axes.text(
                1.04 + 0.12 * i, place, f"{accepted:.0%}", ha="center", va="center", fontsize=8, color=colour
            )
            if accepted > 0:
                error = 1.96 * row["standard_error", "wrong"]
                axes.errorbar(wrong, height, xerr=error, fmt="o", color=colour, markersize=5, linewidth=1.2)
    for rule, colour in RULES.items():
        axes.plot([], [], "o", color=colour, label=rule)
    names = [f"{model}\n{BOARDS[board]}" for board, model in shown]
    axes.set_yticks(range(len(shown)), names, fontsize=8, color=INK)
    axes.set_ylim(len(shown) - 0.5, -0.9)
    axes.set_xlim(-0.02, 1.34)
    axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1])
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("wrong among the accepted first choices (promised: at most 10%)", fontsize=9, color=INK)
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8, labelcolor=INK)
    return figure


def is_used(rows: Frame, name: tuple[str, str]) -> bool:
    """Whether some rule accepts more than 1% of the prompts."""
    return bool(rows.loc[name]["value", "accepted"].max() > 0.01)


def training_figure(grpo: Frame) -> Any:
    """Gold against steps: advantages normalised or a KL penalty, with and without the flaw."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 5.2), dpi=130, layout="constrained")
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for (i, normalised), (j, flawed) in (
        (a, b) for a in enumerate((True, False)) for b in enumerate((False, True))
    ):
        axes = panels[i, j]
        part = grpo[(grpo["normalised"] == normalised) & (grpo["flawed"] == flawed)]
        for form, colour in COLOURS.items():
            runs = part[part["form"] == form].pivot_table(index="step", columns="seed", values="gold")
            mean, error = runs.mean(axis=1), runs.sem(axis=1)
            axes.plot(mean.index, mean, color=colour, linestyle=STYLES[form], label=form)
            axes.fill_between(mean.index, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
            first = part[part["form"] == form].groupby("seed").first()
            alarms = first["alarm"][first["alarm_gap"] > 0]
            axes.plot(alarms, [0.02] * len(alarms), "|", color=colour, markersize=9)
        how = "normalised advantages" if normalised else "no normalisation, KL with β = 1"
        axes.set_title(f"{how}, {'flaw' if flawed else 'no flaw'}", fontsize=9, color=INK)
        axes.set_ylim(0, 1)
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        if i == 1:
            axes.set_xlabel("step", fontsize=9, color=INK)
        if j == 0:
            axes.set_ylabel("gold: right answers", fontsize=9, color=INK)
    panels[0, 0].legend(frameon=False, fontsize=8, labelcolor=INK)
    return figure


# Numbers of the page.


def measured(scores: Frame, *, board: str, model: str, rule: str, measure: str) -> str:
    row = scores[
        (scores["board"] == board)
        & (scores["model"] == model)
        & (scores["rule"] == rule)
        & (scores["measure"] == measure)
    ].iloc[0]
    return f"{100 * row['value']:.1f} ± {100 * row['standard_error']:.1f}"


def stopping_rows(scores: Frame) -> list[dict[str, Any]]:
    rows = scores[(scores["task"] == "stop") & (scores["board"] == "reward-bench-2")]
    found = []
    for (model, rule), own in rows.groupby(["model", "rule"], sort=False):
        shown = {
            row["measure"]: f"{100 * row['value']:.1f} ± {100 * row['standard_error']:.1f}"
            for row in own.to_dict("records")
        }
        found.append(
            {
                "model": model,
                "stop if": rule,
                "samples": f"{own.set_index('measure')['value']['samples']:.2f}",
                "stopped, %": shown["stopped"],
                "right if stopped, %": shown["right if stopped"],
                "right, %": shown["right"],
                "best of as many, %": shown["best of as many"],
            }
        )
    return found


def training_rows(grpo: Frame) -> list[dict[str, Any]]:
    found = []
    for key, part in grpo.groupby(["normalised", "flawed", "form"], sort=False):
        normalised, flawed, form = key
        runs = part.pivot_table(index="step", columns="seed", values="gold")
        found.append(
            {
                "training": "normalised" if normalised else "KL, β = 1",
                "flaw": "yes" if flawed else "no",
                "reward": form,
                "gold, start": f"{runs.iloc[0].mean():.2f}",
                "peak": spread(runs.max()),
                "end": spread(runs.iloc[-1]),
                "alarm, one prompt in eight labelled": alarm(runs, part, "alarm"),
                "alarm, all labelled": alarm(runs, part, "alarm_all"),
            }
        )
    return sorted(found, key=lambda row: (row["training"] != "normalised", row["flaw"] == "yes"))


def alarm(runs: Frame, part: Frame, name: str) -> str:
    """How many runs have an alarm that the reward says more than is right, and their gold at that step."""
    first = part.groupby("seed").first()
    steps = first[name][first[f"{name}_gap"] > 0]
    then = f", gold {spread(at_alarm(runs, steps))}" if len(steps) else ""
    return f"{len(steps)} of {len(first)}{then}"


def at_alarm(runs: Frame, alarms: Frame) -> Frame:
    """Gold of each run at the last measured step before its alarm."""
    return pd.Series(
        {seed: runs.loc[runs.index <= step, seed].iloc[-1] for seed, step in alarms.dropna().items()},
        dtype=float,
    )


def spread(values: Frame) -> str:
    """Mean ± standard error over seeds."""
    if not len(values):
        return "–"
    error = f" ± {values.sem():.2f}" if len(values) > 1 else ""
    return f"{values.mean():.2f}{error}"


def page(worlds: Frame, scores: Frame, grpo: Frame) -> str:
    sums = {
        board: {
            rule: measured(scores, board=board, model="all pairs", rule=rule, measure="right")
            for rule in (
                *("raw", "standardised", "calibrated", "the better one alone"),
                *("calibrated − raw", "calibrated − the better one alone"),
            )
        }
        for board in ("rewardmath", "reward-bench-2")
    }
    math, rb2 = sums["rewardmath"], sums["reward-bench-2"]
    eurus = measured(scores, board="rewardmath", model="Eurus-RM-7b", rule="stated p ≥ .9", measure="wrong")
    skywork = measured(
        scores, board="rewardmath", model="Skywork-Reward-Llama-3.1-8B", rule="stated p ≥ .9", measure="wrong"
    )
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
    return environment.get_template("downstream.md.jinja").render(
        worlds=int(worlds["worlds"].iloc[0]),
        splits=int(scores["splits"].iloc[0]),
        seeds=grpo["seed"].nunique(),
        steps=int(grpo["step"].max()),
        c=named_costs(worlds),
        math=math,
        rb2=rb2,
        eurus=eurus,
        skywork=skywork,
        stopping=markdown(stopping_rows(scores)),
        training=markdown(training_rows(grpo)),
    )


COSTS = {
    "beta_large": ("KL-regularised RL, fixed β", "scale × 4", False),
    "beta_small": ("KL-regularised RL, fixed β", "scale × ¼", False),
    "sum_small": ("sum of two rewards", "scale × ¼", False),
    "filter_offset": ("keep samples with p ≥ .8", "offset + 2", False),
    "accept_large": ("accept if p ≥ .9, else ask", "scale × 4", False),
    "budget_category": ("KL-regularised RL, KL budget", "scale × 4, × ¼ by category", False),
    "third_category": ("keep the best third of samples", "offset ± 2 by category", False),
    "tricks_best": ("best of 16", "3% tricks", False),
    "tricks_best_after": ("best of 16", "3% tricks", True),
    "filter_tricks": ("keep samples with p ≥ .8", "3% tricks", False),
    "filter_tricks_after": ("keep samples with p ≥ .8", "3% tricks", True),
    "noise_best": ("best of 16", "noise", False),
    "beta_category": ("KL-regularised RL, fixed β", "offset ± 2 by category", False),
    "beta_category_after": ("KL-regularised RL, fixed β", "offset ± 2 by category", True),
}
"""Costs that the page names: use, error, and whether the reward was repaired."""


def named_costs(worlds: Frame) -> dict[str, str]:
    table = worlds.set_index(["use", "error", "repaired"])
    rows = {name: table.loc[key] for name, key in COSTS.items()}
    return {name: f"{row['cost']:.1f} ± {row['standard_error']:.1f}" for name, row in rows.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="the folder of the tables")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    worlds, scores, grpo = (
        pd.read_csv(options.results / f"downstream_{name}.csv") for name in ("worlds", "scores", "grpo")
    )
    for name, figure in (
        ("worlds", costs_figure(worlds)),
        ("scores", promises_figure(scores)),
        ("grpo", training_figure(grpo)),
    ):
        write_bytes(options.output / f"downstream_{name}.png", figure_bytes(figure, "png"))
    write_text(options.output / "downstream.md", page(worlds, scores, grpo))
    print(f"{options.output / 'downstream.md'} and three figures")


if __name__ == "__main__":
    main()

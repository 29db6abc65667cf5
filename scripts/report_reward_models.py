"""Write results/reward_models: what real reward models and judges show, in numbers, a figure and words.

Everything is measured from the scores that come with the package (`rmcalib.load_board`).

    python scripts/report_reward_models.py [--resamples 1000] [--output DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from verdicts import VerdictAnalysis, analyse_verdicts, load_verdicts

from rmcalib import load_board
from rmcalib._util.display import bracketed, number, percent, points, short_names
from rmcalib._util.files import read_csv_table, write_bytes, write_csv, write_text
from rmcalib.calibration.estimates import difference_of
from rmcalib.calibration.intervals import difference, proportion_interval
from rmcalib.metrics import Settings
from rmcalib.metrics.catalogue import chosen_metrics
from rmcalib.metrics.table import OVERALL, estimate_of, metric_rows, tidy_row
from rmcalib.metrics.views import Part, whole_part
from rmcalib.repair import decide
from rmcalib.report import says_right_figure
from rmcalib.report.figures import figure_bytes
from rmcalib.scores import Scores

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results/reward_models"
PAPER = ROOT / "results/published_reward_models.csv"
Row = dict[str, Any]
Cells = dict[str, Row]
REWARDS = (
    *("mean_confidence", "accuracy", "overconfidence", "lost_information", "usable_information"),
    *("temperature", "ece", "ece_at_temperature", "nll", "nll_at_temperature", "reference_top_1"),
)
VOTES = (
    *("vote_tie_share", "voter_disagreement", "vote_agreement", "vote_agreement_ceiling"),
    "vote_disagreement_excess",
)
SURE = 0.9
AFTER = "overconfidence_after"
"""The gap with each prompt at a temperature that was fitted on other prompts."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--resamples", type=int, default=1000, help="of simulated errors")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    settings = Settings(resamples=options.resamples)
    boards = {name: load_board(name) for name in ("rewardmath", "reward-bench-2", "pandalm")}
    tables = {
        name: [
            {"model": model, "benchmark": name, **row}
            for model, scores in board.items()
            for row in (vote_rows if name == "pandalm" else reward_rows)(scores, settings)
        ]
        for name, board in boards.items()
    }
    judges = analyse_verdicts(load_verdicts())
    write_csv(options.output / "metrics.csv", [row for rows in tables.values() for row in rows])
    write_csv(options.output / "letters.csv", [row for one in judges.values() for row in letter_rows(one)])
    math = math_models(boards["rewardmath"], tables["rewardmath"])
    order = [row["model"] for row in math]
    figure = says_right_figure(sorted(tables["rewardmath"], key=lambda row: order.index(row["model"])))
    assert figure is not None
    write_bytes(options.output / "says_right.png", figure_bytes(figure, "png"))
    content = {
        "math": math,
        "bench": bench_models(tables["reward-bench-2"]),
        "judges": judge_summaries(judges),
        "votes": vote_summary(boards["pandalm"], tables["pandalm"]),
    }
    write_text(options.output / "README.md", words(content))
    print(options.output / "README.md")


# Measuring.


def reward_rows(scores: Scores, settings: Settings) -> list[Row]:
    """Return the metrics of a reward model by category, and its gaps at temperatures of other prompts."""
    whole = whole_part(scores)
    after = one_answer(whole).at_temperature
    parts = [after, *(after.take(after.category == name, name) for name in _names(after.category))]
    (gap,) = chosen_metrics(["overconfidence"])
    rows = [tidy_row(gap, part, settings) or {} for part in parts]
    return [
        *metric_rows(whole, chosen_metrics(REWARDS), settings),
        *(row | {"metric": AFTER} for row in rows if row),
    ]


def vote_rows(scores: Scores, settings: Settings) -> list[Row]:
    """Return how a judge agrees with people's votes."""
    rows = metric_rows(whole_part(scores), chosen_metrics(VOTES), settings)
    return [row for row in rows if row["category"] == OVERALL]


def letter_rows(judge: VerdictAnalysis) -> list[Row]:
    """Return how often a judge is right by the place of the correct response, and over all places."""
    rates = {**judge.right_at, "any place": judge.right}
    return [{"judge": judge.judge, "correct_at": at, **asdict(rate)} for at, rate in rates.items()]


def one_answer(whole: Part) -> Part:
    part = whole.prompts("one")
    assert part is not None
    return part


def _names(values: Any) -> list[str]:
    return list(dict.fromkeys(values.tolist()))


# What the page says.


def by_model(rows: Sequence[Row], category: str = OVERALL) -> dict[str, Cells]:
    """Return the rows of a category by model and metric."""
    found: dict[str, Cells] = {}
    for row in rows:
        if row["category"] == category:
            found.setdefault(row["model"], {})[row["metric"]] = row
    return found


def math_models(board: Mapping[str, Scores], rows: Sequence[Row]) -> list[Row]:
    """Return what the page shows of each model on RewardMATH, those that lose least information first."""
    short = short_names(board)
    models = [
        {"name": short[model], "model": model, **cells, **sure(board[model]), **two_responses(board[model])}
        for model, cells in by_model(rows).items()
    ]
    return sorted(models, key=lambda row: float(row["lost_information"]["value"]))


def sure(scores: Scores) -> Row:
    """Return how many first choices are stated as sure, how many of these are right, and what that costs."""
    events = one_answer(whole_part(scores)).first_choice
    accepted = events.p >= SURE
    right: Row | None = None
    if accepted.any():
        low, high = proportion_interval(events.y[accepted])
        right = {"value": float(events.y[accepted].mean()), "low": low, "high": high}
    regret = decide(scores, wrong_at_most=1 - SURE).regret
    assert regret is not None
    return {"sure": int(accepted.sum()), "sure_right": right, "regret": asdict(regret)}


def two_responses(scores: Scores) -> Row:
    """Return the temperatures of pairs of responses: all pairs, and those with the first wrong one listed."""
    every = one_answer(whole_part(scores))
    listed = one_answer(whole_part(Scores.from_arrays(scores.reward.reshape(len(every), -1)[:, :2])))
    ten = every.scale.temperature_interval()
    found: Row = {}
    for name, scale in (("pairs", every.pair_scale), ("listed", listed.pair_scale)):
        two, moved, ratio = scale.temperature_interval(), None, None
        if np.isfinite([ten.high, two.high]).all():
            influences = every.scale.temperature_influence(), scale.temperature_influence()
            change = difference(ten, two, *influences)
            moved, ratio = not change.low <= 0 <= change.high, two.value / ten.value
        shown = {key: None if np.isinf(x := getattr(two, key)) else x for key in ("value", "low", "high")}
        found |= {f"t_{name}": shown, f"moved_{name}": moved, f"ratio_{name}": ratio}
    return found


def bench_models(rows: Sequence[Row]) -> Row:
    """Return what the page shows of each model on RewardBench 2."""
    models, short = by_model(rows), short_names({row["model"] for row in rows})
    categories = [name for name in _names(np.array([row["category"] for row in rows])) if name != OVERALL]
    paper = read_csv_table(PAPER)
    column = paper.header.index("ece_score")
    stated = {row[0]: float(row[column]) for row in paper.rows}
    found: list[Row] = [
        {"name": short[model], "model": model, "paper": stated[model], **cells}
        for model, cells in models.items()
    ]
    found.sort(key=lambda row: -float(row["accuracy"]["value"]))
    parts = {name: by_model(rows, name) for name in categories}
    single = [name for name in categories if all(AFTER in cells for cells in parts[name].values())]
    ratios = [row["reference_top_1"]["value"] / row["ece"]["value"] for row in found]
    errors = [row["ece"]["value"] for row in found]
    return {
        "models": found,
        "categories": [
            {"category": name, "name": short[row["model"]], **parts[name][row["model"]]}
            for name in single
            for row in found
        ],
        "least_ratio": min(ratios),
        "largest_ratio": max(ratios),
        "largest_difference": max(abs(row["reference_top_1"]["value"] - row["paper"]) for row in found),
        "rises": errors == sorted(errors, reverse=True),
    }


def judge_summaries(judges: Mapping[str, VerdictAnalysis]) -> list[Row]:
    """Return what the page shows of each judge that names a place, the one with the largest spread first."""
    short = short_names(judges)
    found = []
    for one in judges.values():
        at = {place: asdict(rate) for place, rate in one.right_at.items()}
        wrong = one.disagreement
        averaged = {"value": 1 - wrong.value, "low": 1 - wrong.high, "high": 1 - wrong.low}
        values = [rate["value"] for rate in at.values()]
        found.append(
            {
                "name": short[one.judge],
                "at": at,
                "right": asdict(one.right),
                "averaged": averaged,
                "gain": averaged["value"] - one.right.value,
                "differ": asdict(one.across_orders) if one.across_orders else None,
                "same": one.agreement_by_orders[1],
                "unread": one.n_unread,
                "right_if_read": one.right.value * one.n_verdicts / (one.n_verdicts - one.n_unread),
                "spread": max(values) - min(values),
            }
        )
    return sorted(found, key=lambda row: -float(row["spread"]))


def vote_summary(board: Mapping[str, Scores], rows: Sequence[Row]) -> Row:
    """Return people's agreement, that of each judge with them, and whether the judges differ."""
    models, short = by_model(rows), short_names(board)
    best, other = sorted(models, key=lambda name: -float(models[name]["vote_agreement"]["value"]))
    (agreement,) = chosen_metrics(["vote_agreement"])
    worse, better = (estimate_of(agreement, whole_part(board[name]), Settings()) for name in (other, best))
    apart = None if worse is None or better is None else difference_of(worse, better)
    assert apart is not None
    return {
        "people": models[best],
        "judges": [
            {"name": short[name], "unclear": board[name].manifest["verdicts"]["unclear"], **models[name]}
            for name in (best, other)
        ],
        "difference": asdict(apart),
    }


def words(content: Row) -> str:
    """Fill in the template. Which models a sentence names follows from the numbers."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown from our own numbers
    )
    environment.filters |= {
        "share": lambda row: bracketed(row, percent),
        "tenths": lambda row: bracketed(row, lambda value: f"{value:.1%}"),
        "value": bracketed,
        "temperature": temperature,
        "gap": points,
        "number": number,
        "percent": percent,
        "joined": joined,
    }
    return environment.get_template("reward_models.md.jinja").render(**content)


def temperature(row: Row) -> str:
    """Return a temperature with its interval; without a value, no temperature helps."""
    if row["value"] is None:
        return "none helps"
    limited = None not in (row["low"], row["high"])
    return bracketed(row) if limited else f"{number(row['value'])} (no upper limit)"


def joined(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    names = list(names)
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none of them"


if __name__ == "__main__":
    main()

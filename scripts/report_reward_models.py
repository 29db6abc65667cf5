"""Write results/reward_models: what real reward models show on RewardMATH, in numbers, figures and words.

The nine reward models come with the package. With --rewardmath, the process reward models and the judges that
rate are measured again, too: give the public files of results/RewardMATH of
github.com/kimsh0507/RewardMATH_official (one JSON file per judge), or one Parquet table of all judges.
Without it, their tables (steps.csv, step_differences.csv, ratings.csv) stay as they are.

    python scripts/report_reward_models.py [--rewardmath FILE...] [--resamples 400] [--output DIR]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import rmcalib
from rmcalib._util.display import number, percent, points, short_names, temperature_text
from rmcalib._util.files import read_csv_table, write_bytes, write_csv, write_text
from rmcalib.report import figure_png, says_right_figure
from rmcalib.scores import STEPS, Scores, load_all_scores

sys.path.insert(0, str(Path(__file__).parent))
import reward_model_figures as figures
import reward_model_numbers as numbers

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results/reward_models"
TEMPLATE = "reward_models.md.jinja"
Row = dict[str, Any]
Tables = dict[str, list[Row]]
HEADLINE = {
    "says": "mean_confidence",
    "right": "accuracy",
    "gap": "overconfidence",
    "lost": "lost_information",
    "usable": "usable_information",
    "temperature": "temperature",
    "ece": "ece",
}
REPAIR = {"gap": "overconfidence", "lost": "lost_information", "usable": "usable_information", "nll": "nll"}
SIZED = ("overconfidence", "lost_information", "ece")
FROM_FILES = ("steps", "step_differences", "ratings")


def all_ways(file: Path) -> dict[str, Scores]:
    """Return the scores of a file by model; each process reward model once per way to combine its steps."""
    ways = {how: load_all_scores(file, steps=how) for how in STEPS}
    plain = ways[STEPS[0]]
    of_steps = [name for name, scores in plain.items() if scores.manifest.get("score_kind") == "steps"]
    combined = {f"{name} ({how})": ways[how][name] for name in of_steps for how in STEPS}
    return {name: scores for name, scores in plain.items() if name not in of_steps} | combined


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rewardmath", nargs="+", type=Path, default=[], metavar="FILE")
    parser.add_argument("--resamples", type=int, default=400, help="for what has no other interval")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    tables = board_tables(rmcalib.load_board(), options.resamples)
    judges: dict[str, Scores] = {}
    for file in options.rewardmath:
        judges |= all_ways(file)
    if judges:
        tables |= judge_tables(judges)
    tables |= {name: read_rows(RESULTS / f"{name}.csv") for name in FROM_FILES if name not in tables}
    for name, rows in tables.items():
        write_csv(options.output / f"{name}.csv", rows)
    for name, figure in drawings(tables).items():
        write_bytes(options.output / f"{name}.png", figure_png(figure))
    write_text(options.output / "README.md", words(tables))
    print(options.output / "README.md")


def board_tables(board: Mapping[str, Scores], resamples: int) -> Tables:
    """Measure the reward models. A number with an interval is three columns: name, name_low, name_high."""
    halved = {name: numbers.held_out(scores) for name, scores in board.items()}
    headline, repair, sizes, temperatures, thresholds, decisions = [], [], [], [], [], []
    for name, scores in board.items():
        before, after = numbers.measure(scores), numbers.measure(halved[name])
        headline.append({"model": name, **cells(before, HEADLINE)})
        row: Row = {"model": name}
        for when, found in (("before", before), ("after", after)):
            row |= cells(found, {f"{key}_{when}": metric for key, metric in REPAIR.items()})
            row[f"p_{when}"] = found["confidence_ece_p_value"]["value"]
        repair.append(row)
        for k in numbers.SIZES:
            found = numbers.measure(numbers.with_responses(scores, k))
            for metric in SIZED:
                about = {"model": name, "responses": k, "metric": metric}
                sizes.append({**about, **cells(found, {"value": metric})})
        decisions.append({"model": name, **numbers.decision_row(scores)})
        temperatures.append({"model": name, **numbers.temperature_row(scores, resamples)})
        for when, one in (("before", scores), ("after", halved[name])):
            thresholds += [{"when": when, **row} for row in numbers.threshold_rows(name, one)]
    headline.sort(key=lambda row: float(row["lost"]))
    repair.sort(key=lambda row: float(row["lost_before"]))
    return {
        "headline": headline,
        "repair": repair,
        "sizes": sizes,
        "temperatures": temperatures,
        "order": numbers.order_agreement(board, resamples),
        "best_of_k": numbers.curve_rows(board),
        "thresholds": thresholds,
        "decisions": decisions,
    }


def judge_tables(judges: Mapping[str, Scores]) -> Tables:
    """Measure process reward models and judges that rate; tables of kinds that are not there are left out."""
    ending = f" ({STEPS[0]})"
    models = [name.removesuffix(ending) for name in judges if name.endswith(ending)]
    steps = [
        {"model": name, "steps": how, **cells(numbers.measure(judges[f"{name} ({how})"]), HEADLINE)}
        for name in models
        for how in STEPS
    ]
    ratings = [
        {"model": name, **numbers.shared_top(scores), **cells(numbers.measure(scores), HEADLINE)}
        for name, scores in judges.items()
        if scores.manifest.get("score_kind") == "ratings"
    ]
    tables = {
        "steps": steps,
        "step_differences": [row for name in models for row in numbers.step_differences(judges, name)],
        "ratings": sorted(ratings, key=lambda row: -float(row["right"])),
    }
    return {name: rows for name, rows in tables.items() if rows}


def cells(found: Mapping[str, Mapping[str, Any]], names: Mapping[str, str]) -> Row:
    """Return three columns for each metric: value, low and high."""
    row: Row = {}
    for column, metric in names.items():
        one = found[metric]
        row |= {column: one["value"], f"{column}_low": one["low"], f"{column}_high": one["high"]}
    return row


def read_rows(path: Path) -> list[Row]:
    """Read a table that an earlier run has written."""
    table = read_csv_table(path)
    return [dict(zip(table.header, map(_cell, row), strict=True)) for row in table.rows]


def _cell(text: str) -> Any:
    try:
        return float(text) if text else None
    except ValueError:
        return text


def drawings(tables: Tables) -> dict[str, Any]:
    """Draw all figures, by the names of their files."""
    tidy = [
        {"model": row["model"], "category": "overall", "metric": metric, **part(row, key)}
        for row in tables["headline"]
        for key, metric in list(HEADLINE.items())[:3]
    ]
    return {
        "says_right": says_right_figure(tidy),
        "repair": figures.repair_figure(tables["repair"]),
        "sizes": figures.sizes_figure(tables["sizes"]),
        "best_of_k": figures.curves_figure(tables["best_of_k"]),
        "steps": figures.steps_figure(tables["steps"]),
        "ratings": figures.ratings_figure(tables["ratings"]),
    }


def words(tables: Tables) -> str:
    """Fill in the template: which models a sentence names follows from the numbers."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    short = short_names([row["model"] for row in tables["headline"]])
    named = {
        name: [{**row, "name": short.get(row["model"], row["model"])} for row in rows]
        for name, rows in tables.items()
        if name != "order"
    }
    first, repair, temperatures = (named[name] for name in ("headline", "repair", "temperatures"))
    last = sorted(
        (row for row in named["best_of_k"] if row["k"] == numbers.RESPONSES), key=_right, reverse=True
    )
    sure = {(row["model"], row["when"], row["limit"]): row for row in named["thresholds"]}
    sky = next(name for name in short if name.endswith("Skywork-Reward-Llama-3.1-8B"))
    differences = named["step_differences"]
    better = [row for row in differences if row["difference_low"] > 0]
    worse = [row for row in differences if row["difference_high"] < 0]
    gaps: dict[str, dict[str, float]] = {}
    for row in named["steps"]:
        gaps.setdefault(row["model"], {})[row["steps"]] = row["gap"]
    content: Row = {
        "over": [row for row in first if row["gap_low"] > 0],
        "under": [row for row in first if row["gap_high"] < 0],
        "empty": [row["name"] for row in first if row["usable_high"] < 0.001],
        "largest_after": max(row["lost_after_high"] for row in repair),
        "gap_left": [r["name"] for r in repair if r["gap_after_low"] > 0 or r["gap_after_high"] < 0],
        "still_off": [row["name"] for row in repair if row["p_after"] < 0.05],
        "tau": {row["metric"]: row for row in tables["order"]},
        "comparable": [row for row in temperatures if row["ratio_2"] is not None],
        "moved_by_number": [row["name"] for row in temperatures if _leaves_out_one(row, "ratio_2")],
        "moved_by_kind": [row["name"] for row in temperatures if _leaves_out_one(row, "ratio_first")],
        "four": {
            row["metric"]: row
            for row in named["sizes"]
            if row["model"].endswith("ArmoRM-Llama3-8B-v0.1") and row["responses"] == 4
        },
        "last": last,
        "worse_than_random": [row for row in last if row["right_high"] < 1 / numbers.RESPONSES],
        "sure": sure[sky, "before", 0.9],
        "sure_after": sure[sky, "after", 0.9],
        "sure_limits": numbers.SURE,
        "wrong_limits": [f"{alpha:.0%}".removesuffix("%") for alpha in numbers.WRONG],
        "allowed": {
            limit: [row["name"] for row in named["decisions"] if row[f"accepted_{limit}"] is not None]
            for limit in ("10", "30")
        },
        "costly": max(named["decisions"], key=lambda row: float(row["regret"])),
        "asking": f"{numbers.ASKING:g}",
        "steps_better": better,
        "steps_worse": worse,
        "steps_same": len(differences) - len(better) - len(worse),
        "step_models": len(gaps),
        "product_worst": sum(max(own, key=lambda how: own[how]) == "product" for own in gaps.values()),
        "most_shared": max(named["ratings"], key=lambda row: float(row["shared"])),
    }
    thresholds = [
        {"name": short[m], "cells": [sure[m, when, x] for x in numbers.SURE for when in ("before", "after")]}
        for m in short
    ]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown from our own numbers
    )
    environment.globals["accepted"] = accepted
    environment.filters |= {
        "share": share,
        "value": value,
        "limits": limits,
        "gap": lambda row, key: points(part(row, key)),
        "number": number,
        "percent": percent,
        "joined": joined,
        "plain": lambda text: text.replace("_", " "),
    }
    return environment.get_template(TEMPLATE).render(**named | content | {"thresholds": thresholds})


def part(row: Row, key: str) -> Row:
    """Return one number with its limits as value, low and high."""
    return {"value": row[key], "low": row[f"{key}_low"], "high": row[f"{key}_high"]}


def share(row: Row, key: str) -> str:
    """Return a fraction with its interval as percentages."""
    shown = [percent(one) for one in part(row, key).values()]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def value(row: Row, key: str) -> str:
    """Return a number with its interval; a missing one is a temperature that does not exist."""
    one = part(row, key)
    if one["value"] is None:
        return "none helps"
    if one["low"] is None:
        return f"{number(one['value'])} (no upper limit)"
    return f"{number(one['value'])} [{number(one['low'])}, {number(one['high'])}]"


def accepted(row: Row, name: str) -> str:
    """Return what a rule with a guarantee accepts: how many, how many of them are wrong, and its bound."""
    if row[f"accepted_{name}"] is None:
        return "nothing"
    wrong, high = percent(row[f"wrong_{name}"]), percent(row[f"wrong_{name}_high"])
    return f"{row[f'accepted_{name}']:.0f}: {wrong} wrong, at most {high}"


def limits(row: Row, key: str) -> str:
    """Return a temperature or a ratio of temperatures with its interval."""
    if row[key] is None:
        return "–"
    shown = [temperature_text(one) for one in part(row, key).values()]
    return f"{shown[0]} [{shown[1]}, {shown[2]}]"


def joined(names: Sequence[str]) -> str:
    """Return names as a list in a sentence."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none of them"


def _right(row: Row) -> float:
    return float(row["right"])


def _leaves_out_one(row: Row, key: str) -> bool:
    return row[key] is not None and not row[f"{key}_low"] <= 1 <= row[f"{key}_high"]


if __name__ == "__main__":
    main()

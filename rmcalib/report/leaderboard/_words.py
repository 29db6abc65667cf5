"""What a leaderboard says, in sentences, and as Markdown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib.metrics import catalogue
from rmcalib.report.evaluation._words import is_sure
from rmcalib.report.leaderboard._tables import Official

if TYPE_CHECKING:
    from rmcalib.report.leaderboard._board import Leaderboard

__all__ = ["check_notes", "metric_name", "summary_words", "target_name", "to_markdown", "unseen_notes"]

Row = Mapping[str, Any]
_REFERENCE = {"ece_score": "ECE (ece_score)"}  # a column of the paper's tables


def metric_name(metric: str) -> str:
    """Return how people call a metric.

    >>> metric_name("ece_at_temperature"), metric_name("my_error")
    ('ECE after temperature', 'my_error')
    """
    if metric in catalogue():
        return catalogue()[metric].label
    return _REFERENCE.get(metric, metric)


def target_name(board: Leaderboard, target: str) -> str:
    """Return how people call what calibration is compared with: the score over all, or a category."""
    return board.score_name if target == "leaderboard" else target


def summary_words(
    models: Sequence[Row],
    correlations: Sequence[Row],
    metric: str,
    methods: Mapping[str, str],
    score_name: str,
) -> str:
    """Say which model is best calibrated, and what calibration goes with.

    >>> summary_words([{"model": "m", "rank": None}], [], "ece", {}, "score")
    '1 model, none with a calibration error.'
    """
    ranked = [row for row in models if row["rank"] is not None]
    count = f"{len(models)} model{'s' if len(models) > 1 else ''}"
    if not ranked:
        return f"{count}, none with a calibration error."
    best = ranked[0]
    equal = [row for row in ranked if row["rank"] == best["rank"]]
    value = best["values"][metric]["value"]
    if len(equal) == len(ranked) > 1:
        sentences = [f"{count}; all have the same {metric_name(metric)}, {value:.3f}."]
    else:
        sentences = [f"{count}. Best calibrated: {best['model']}, with {metric_name(metric)} {value:.3f}."]
    found = next((r for r in correlations if r["target"] == "leaderboard" and r["value"] is not None), None)
    if found is not None:
        low, high = found["low"], found["high"]
        if low > 0:
            told = "better calibrated models have better scores"
        elif high < 0:
            told = "better calibrated models have worse scores"
        else:
            told = "the interval holds zero: no telling whether calibration goes with the score"
        sentences.append(
            f"{methods[found['method']]} between {metric_name(metric)} and the rank by {score_name} is "
            f"{found['value']:.2f} ({low:.2f} to {high:.2f}) over {found['n']} models: {told}."
        )
    tempered = [row for row in ranked if "ece_at_temperature" in row["values"] and "ece" in row["values"]]
    if tempered:
        better = sum(
            row["values"]["ece_at_temperature"]["value"] < row["values"]["ece"]["value"] for row in tempered
        )
        sentences.append(f"One fitted temperature lowers the ECE of {better} of {len(tempered)}.")
    return " ".join(sentences)


def check_notes(models: Sequence[str], official: Official) -> list[str]:
    """Say which of our models the official figures do not have; the others of ours are no misspellings.

    >>> check_notes(["org/rm"], Official("official.csv", {"org/RM": {"overall": 80.0}}))
    ['official.csv has no figures of org/rm (did you mean org/RM?).']
    >>> check_notes(["org/rm-1B", "org/rm-8B"], Official("official.csv", {"org/rm-8B": {"overall": 80.0}}))
    ['official.csv has no figures of org/rm-1B.']
    """
    missing = [name for name in dict.fromkeys(models) if name not in official.figures]
    others = {name.lower(): name for name in official.figures if name not in models}
    notes = []
    for name in missing[:5]:
        near = difflib.get_close_matches(name.lower(), others, n=1, cutoff=0.8)
        told = f" (did you mean {others[near[0]]}?)" if near else ""
        notes.append(f"{official.path} has no figures of {name}{told}.")
    if len(missing) > 5:
        notes.append(f"{official.path} has no figures of {len(missing) - 5} more models.")
    return notes


def unseen_notes(metrics: Sequence[Row]) -> list[str]:
    """Name the models whose first choice is too sure, or not sure enough, although their ECE shows nothing.

    >>> row = {"model": "org/rm", "category": "overall", "low": None, "high": None}
    >>> unseen_notes([row | {"metric": "ece_p_value", "value": 0.9},
    ...               row | {"metric": "overconfidence", "value": 0.1, "low": 0.05, "high": 0.15}])
    ['The ECE, which pools all responses, does not show that the first choice of org/rm is over-confident.']
    """
    overall = [row for row in metrics if row["category"] == "overall"]
    p_values = {row["model"]: row["value"] for row in overall if row["metric"] == "ece_p_value"}
    told: dict[str, list[str]] = {"over-confident": [], "under-confident": []}
    for row in overall:
        if row["metric"] == "overconfidence" and is_sure(row) and (p_values.get(row["model"]) or 0) >= 0.05:
            told["over-confident" if row["value"] > 0 else "under-confident"].append(row["model"])
    return [
        "The ECE, which pools all responses, does not show that the first choice of "
        f"{', '.join(names)} is {how}."
        for how, names in told.items()
        if names
    ]


def to_markdown(board: Leaderboard) -> str:
    """Return the summary as Markdown: the ten best calibrated, correlations, the check, notes."""
    main = board.metric
    lines = [f"# Models by calibration: {_cell(board.benchmark)}", "", _cell(board.summary), ""]
    lines += ["## Best calibrated", ""]
    lines += _table(
        ["#", "model", metric_name(main), "interval", board.score_name, f"rank by {board.other}"],
        [
            [
                str(row["rank"]),
                row["model"] + (" *" if row["scale"] == "no" else ""),
                f"{row['values'][main]['value']:.4f}",
                _interval(row["values"][main]),
                _number(row["score"], 3),
                str(row["ranks"].get(board.other) or "–"),
            ]
            for row in board.ranked[:10]
        ],
    )
    if any(row["scale"] == "no" for row in board.ranked[:10]):
        lines += ["", "\\* not trained on a Bradley-Terry scale: its probabilities mean little."]
    lines += ["", "## What calibration goes with", ""]
    lines += _table(
        ["error", "against", "coefficient", "value", "interval", "p", "models"],
        [
            [
                metric_name(row["metric"]),
                target_name(board, row["target"]),
                row["method"],
                _number(row["value"], 4) if row["value"] is not None else row["note"],
                _interval(row),
                "–" if row["p_value"] is None else f"{row['p_value']:.2g}",
                str(row["n"]),
            ]
            for row in board.correlations
        ],
    )
    lines += ["", "Positive: better calibrated goes with better score. Scores are from 0 to 1.", ""]
    if board.check:
        worst = max(board.check, key=lambda row: abs(row["difference"]))
        lines += [
            "## Check against official scores",
            "",
            f"{len(board.check)} scores compared; the largest difference is {worst['difference']:+.4f} "
            f"({_cell(worst['model'])}, {_cell(worst['category'])}).",
            "",
        ]
    without = [row for row in board.models if row["rank"] is None]
    notes = [f"{row['model']} has no calibration error: {row['why']}." for row in without] + board.notes
    if notes:
        lines += ["## Notes", "", *(f"- {_cell(note)}" for note in notes), ""]
    lines.append(f"Protocol: {_cell(board.protocol)}. Seed {board.settings.seed}.")
    return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines]


def _cell(text: str) -> str:
    """Escape what Markdown or HTML would read as markup."""
    plain = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return plain.replace("|", "\\|").replace("`", "\\`").replace("[", "\\[")


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _interval(row: Row) -> str:
    return "–" if row.get("low") is None else f"{row['low']:.3f} to {row['high']:.3f}"

"""A leaderboard in sentences and as Markdown."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import bracketed, interval, number, p_value, percent, points
from rmcalib._util.markdown import markdown_table, markdown_text
from rmcalib._util.terminal import count
from rmcalib.metrics import catalogue
from rmcalib.report._headline import direction, headline_keys, leaves_out_zero
from rmcalib.report.leaderboard._tables import Official

if TYPE_CHECKING:
    from rmcalib.report.leaderboard._board import Leaderboard

__all__ = [
    "check_notes",
    "metric_name",
    "summary_words",
    "target_name",
    "to_markdown",
    "too_few_words",
    "unseen_notes",
]

Row = Mapping[str, Any]
_NAMES = {
    "ece_score": "ECE (ece_score)",  # a column of the paper's tables
    "abs_log_temperature": "|log T|",
}


def metric_name(metric: str) -> str:
    """Return the usual name of a metric.

    Parameters
    ----------
    metric : str
        Its name in files.

    Returns
    -------
    str
        The label in the catalogue. Names that are not in it are returned unchanged.

    Examples
    --------
    >>> metric_name("nll"), metric_name("my_error")
    ('log loss', 'my_error')
    """
    if metric in catalogue():
        return catalogue()[metric].label
    return _NAMES.get(metric, metric)


def target_name(board: Leaderboard, target: str) -> str:
    """Return the name of a target of correlations: the score over all categories, or a category."""
    return board.score_name if target == "leaderboard" else target


def summary_words(
    models: Sequence[Row],
    correlations: Sequence[Row],
    metric: str,
    methods: Mapping[str, str],
    score_name: str,
    split: Sequence[Row] = (),
) -> str:
    """Return the best model and the correlation of the metric with the scores, in sentences.

    >>> summary_words([{"model": "m", "rank": None, "values": {}}], [], "ece", {}, "score")
    '1 model, none with a value for ECE.'
    """
    ranked = [row for row in models if row["rank"] is not None]
    total = count(len(models), "model")
    if not ranked:
        return f"{total}, none with a value for {metric_name(metric)}."
    sentences = [_best_words(ranked, metric, total), _gap_words(ranked, metric)]
    # Kept information contains the accuracy, so its correlation with it says little.
    error = "lost_information" if metric == "kept_information" else metric
    own = next((r for r in split if (r["metric"], r["target"]) == (error, "accuracy")), None)
    found = next((r for r in correlations if r["target"] == "leaderboard" and r["value"] is not None), None)
    if own is not None and own["note"]:
        sentences.append(too_few_words([own]))
    elif own is not None and own["value"] is not None:
        what = f"{metric_name(error)} and accuracy, from different halves of the prompts,"
        sentences.append(_tau_words(own, what, error, methods))
    elif found is not None:
        what = f"{metric_name(metric)} and the rank by {score_name}"
        sentences.append(_tau_words(found, what, metric, methods))
    tempered = [row for row in ranked if "ece_at_temperature" in row["values"] and "ece" in row["values"]]
    if tempered:
        better = sum(
            row["values"]["ece_at_temperature"]["value"] < row["values"]["ece"]["value"] for row in tempered
        )
        sentences.append(
            f"At its best temperature, the ECE is smaller for {better} of {count(len(tempered), 'model')}."
        )
    return " ".join(filter(None, sentences))


def too_few_words(split: Sequence[Row]) -> str:
    """Return a sentence if there are too few models for correlations; else empty.

    >>> too_few_words([{"note": "too few models (4; at least 10 are needed)"}])
    'Correlations over models mean little here: too few models (4; at least 10 are needed).'
    """
    note = next((row["note"] for row in split if row["note"]), "")
    return f"Correlations over models mean little here: {note}." if note else ""


def _tau_words(found: Row, what: str, metric: str, methods: Mapping[str, str]) -> str:
    low, high = found["low"], found["high"]
    if low > 0:
        meaning = f"models that are better by {metric_name(metric)} have better scores"
    elif high < 0:
        meaning = f"models that are better by {metric_name(metric)} have worse scores"
    else:
        meaning = "the interval includes zero, so these models do not show a correlation"
    return (
        f"{methods[found['method']]} between {what} is {found['value']:.2f} [{low:.2f}, {high:.2f}] over "
        f"{found['n']} models: {meaning}."
    )


def _best_words(ranked: Sequence[Row], metric: str, total: str) -> str:
    best = ranked[0]
    found = best["values"][metric]
    if len(ranked) > 1 and all(row["rank"] == best["rank"] for row in ranked):
        return f"{total}; all have the same {metric_name(metric)}, {number(found['value'])}."
    shown = points(found, unit=" points") if metric.endswith("overconfidence") else bracketed(found)
    says, right = (best["values"].get(key) for key in [*headline_keys(metric)][:2])
    more = ""
    if says is not None and right is not None:
        unit = "pairs" if metric.startswith("pairwise") else "time"
        more = f": it says {percent(says['value'])} and is right {percent(right['value'])} of the {unit}"
    return f"{total}. Best by {metric_name(metric)}: {best['model']}, {shown}{more}."


def _gap_words(ranked: Sequence[Row], by: str) -> str:
    voted = any("vote_gap" in row["values"] for row in ranked)
    *_, own = headline_keys(by)
    metric, start = ("vote_gap", "Against people's votes, ") if voted else (own, "")
    gaps = [gap for row in ranked if (gap := row["values"].get(metric)) is not None]
    if not gaps:
        return ""
    sure = [direction(gap["value"]) for gap in gaps if leaves_out_zero(gap)]
    over, under = sure.count("over-confident"), sure.count("under-confident")
    return (
        f"{start}{over} of {count(len(gaps), 'model')} {'is' if over == 1 else 'are'} over-confident, "
        f"{under} under-confident, and {len(gaps) - over - under} neither, as far as these prompts can show."
    )


def check_notes(models: Sequence[str], official: Official) -> list[str]:
    """Return notes on the models without official scores, with similar names that have some.

    >>> check_notes(["org/rm"], Official("official.csv", {"org/RM": {"overall": 80.0}}))
    ['official.csv has no scores of org/rm (did you mean org/RM?).']
    >>> check_notes(["org/rm-1B", "org/rm-8B"], Official("official.csv", {"org/rm-8B": {"overall": 80.0}}))
    ['official.csv has no scores of org/rm-1B.']
    """
    missing = [name for name in dict.fromkeys(models) if name not in official.figures]
    others = {name.lower(): name for name in official.figures if name not in models}
    notes = []
    for name in missing[:5]:
        near = difflib.get_close_matches(name.lower(), others, n=1, cutoff=0.8)
        hint = f" (did you mean {others[near[0]]}?)" if near else ""
        notes.append(f"{official.path} has no scores of {name}{hint}.")
    if len(missing) > 5:
        notes.append(f"{official.path} has no scores of {len(missing) - 5} more models.")
    return notes


def unseen_notes(metrics: Sequence[Row]) -> list[str]:
    """Return notes on models that are over- or under-confident although chance explains their ECE.

    >>> row = {"model": "org/rm", "category": "overall", "low": None, "high": None}
    >>> unseen_notes([row | {"metric": "ece_p_value", "value": 0.9},
    ...               row | {"metric": "overconfidence", "value": 0.1, "low": 0.05, "high": 0.15}])
    ['The ECE does not show that org/rm is over-confident, because it pools all responses.']
    """
    overall = [row for row in metrics if row["category"] == "overall"]
    p_values = {row["model"]: row["value"] for row in overall if row["metric"] == "ece_p_value"}
    unseen: dict[str, list[str]] = {"over-confident": [], "under-confident": []}
    for row in overall:
        hidden = (p_values.get(row["model"]) or 0) >= 0.05
        if row["metric"] == "overconfidence" and leaves_out_zero(row) and hidden:
            unseen[direction(row["value"])].append(row["model"])
    return [
        f"The ECE does not show that {', '.join(names)} {'is' if len(names) == 1 else 'are'} {how}, because "
        "it pools all responses."
        for how, names in unseen.items()
        if names
    ]


def to_markdown(board: Leaderboard) -> str:
    """Return the summary as Markdown: the ten best models, correlations, the check, notes."""
    title = f"# Models by calibration: {markdown_text(board.benchmark)}"
    lines = [title, "", markdown_text(board.summary), ""]
    lines += [*_best_lines(board), *_split_lines(board), *_correlation_lines(board)]
    if board.check:
        worst = max(board.check, key=lambda row: abs(row["difference"]))
        lines += [
            "## Check against official scores",
            "",
            f"{len(board.check)} scores compared; the largest difference is {worst['difference']:+.4f} "
            f"({markdown_text(worst['model'])}, {markdown_text(worst['category'])}).",
            "",
        ]
    without = [row for row in board.models if row["rank"] is None]
    error = metric_name(board.metric)
    notes = [f"{row['model']} is not ranked by {error}: {row['why']}." for row in without] + board.notes
    if notes:
        lines += ["## Notes", "", *(f"- {markdown_text(note)}" for note in notes), ""]
    lines.append(f"Protocol: {markdown_text(board.protocol)}. Seed {board.settings.seed}.")
    return "\n".join(lines) + "\n"


def _best_lines(board: Leaderboard) -> list[str]:
    main, best = board.metric, board.ranked[:10]
    names = headline_keys(main)
    others = (
        ("pairwise_lost_information",)
        if "pairwise_accuracy" in names
        else ("kept_information", "lost_information", "ece")
    )
    known = [
        key for key in (*names, *others) if key != main and any(key in row["values"] for row in board.models)
    ]
    head = [
        *("#", "model", metric_name(main), "interval"),
        *(names.get(key) or metric_name(key) for key in known),
        *(board.score_name, f"rank by {board.other}"),
    ]
    rows = [
        [
            str(row["rank"]),
            row["model"] + _stars(row),
            number(row["values"][main]["value"], 4),
            interval(row["values"][main]),
            *(_value(row["values"].get(key), key) for key in known),
            number(row["score"]),
            str(row["ranks"].get(board.other) or "–"),
        ]
        for row in best
    ]
    lines = [f"## Best by {metric_name(main)}", "", *markdown_table(head, rows)]
    if any(row["scale"] == "no" for row in best):
        lines += ["", "\\* not trained on a Bradley-Terry scale: its probabilities have little meaning."]
    if any(row["better_than_guess"] is False for row in best):
        lines += ["", "† not shown to be better than a uniform guess."]
    return lines


def _stars(row: Row) -> str:
    guess = " †" if row["better_than_guess"] is False else ""
    return (" *" if row["scale"] == "no" else "") + guess


def _correlation_lines(board: Leaderboard) -> list[str]:
    rows = [
        [
            metric_name(row["metric"]),
            target_name(board, row["target"]),
            row["method"],
            number(row["value"], 4) if row["value"] is not None else row["note"],
            interval(row),
            p_value(row["p_value"]),
            str(row["n"]),
        ]
        for row in board.correlations
    ]
    head = ["error", "score", "coefficient", "value", "interval", "p-value", "models"]
    words = "Positive: models with a smaller error have better scores. Scores are from 0 to 1."
    return ["", "## Correlation with benchmark scores", "", *markdown_table(head, rows), "", words, ""]


def _split_lines(board: Leaderboard) -> list[str]:
    if not board.split_correlations:
        return []
    rows = [
        [
            metric_name(row["metric"]),
            row["target"],
            number(row["value"]),
            interval(row),
            p_value(row["p_value"], 2 / (board.settings.resamples + 1)),
            str(row["n"]),
            str(row["families"]),
        ]
        for row in board.split_correlations
    ]
    head = ["error", "accuracy of", "Kendall's tau", "interval", "p-value", "models", "families"]
    words = "The error comes from one half of the prompts and the accuracy from the other. "
    words += too_few_words(board.split_correlations)
    return ["", "## Correlation with accuracy", "", words.strip(), "", *markdown_table(head, rows)]


def _value(row: Row | None, metric: str) -> str:
    if row is None:
        return "–"
    if metric.endswith("overconfidence"):
        return points(row)
    fractions = [*headline_keys(metric)][:2]
    return percent(row["value"]) if metric in fractions else number(row["value"])

"""The end of ``rmcalib eval`` on a terminal: headline, table by category, and notes, in 80 columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmcalib._util.display import interval, number, p_value, percent, points, short_names
from rmcalib._util.terminal import add_row, clean_line, open_console, print_table, table
from rmcalib.metrics import OVERALL, catalogue, find_value

if TYPE_CHECKING:
    from rich.console import Console

    from rmcalib.report import Evaluation

__all__ = ["print_evaluations"]

WIDTH = 80
_MEANINGS = {
    "vote_confidence": "says, where people voted",
    "vote_agreement": "people agree: how many prefer its first choice",
    "vote_gap": "gap to people, in points",
    "vote_agreement_ceiling": "noise ceiling of people agree",
    "vote_log_loss": "log loss against votes",
    "vote_log_loss_ceiling": "its noise ceiling",
    "mean_confidence": "says: mean probability of its first choice",
    "accuracy": "right: how often that choice is correct",
    "overconfidence": "gap: says minus right, in points",
    "lost_information": "lost information: cost of the wrong scale",
    "usable_information": "usable information: worth at the best scale",
}
_PAIR_MEANINGS = {
    "pairwise_confidence": "says in pairs: mean probability of its preference",
    "pairwise_accuracy": "right in pairs: how often that is the correct one",
    "pairwise_overconfidence": "gap in pairs: says less right, in points",
    "pairwise_lost_information": "lost information in pairs",
}


_PERCENT = (
    *("mean_confidence", "accuracy", "vote_confidence", "vote_agreement", "vote_agreement_ceiling"),
    *("pairwise_confidence", "pairwise_accuracy"),
)


def print_evaluations(done: list[tuple[Evaluation, str]], *, together: bool = True) -> None:
    """Print each evaluation, and a table of all models if there are several and they belong ``together``."""
    terminal = open_console(widest=WIDTH)
    for result, folder in done:
        _print_one(terminal, result, folder)
    if together and len(done) > 1:
        _print_all(terminal, [result for result, _ in done])


def _print_one(terminal: Console, result: Evaluation, folder: str) -> None:
    from rich.text import Text

    terminal.print(Text(f"\n{clean_line(result.model)} on {clean_line(result.benchmark)}", style="bold"))
    _print_headline(terminal, result)
    _print_categories(terminal, result)
    terminal.print(Text(f"\n{result.summary}"))
    for note in result.notes:
        terminal.print(Text(f"* {note}", style="dim"))
    # One line however long it is, so that it can be copied.
    terminal.print(Text(f"\nReport: {clean_line(folder)}/report.html"), soft_wrap=True)


def _print_headline(terminal: Console, result: Evaluation) -> None:
    """Print the metrics of all prompts together, each with its interval; then the ECE with its null."""
    rows = result.metrics
    shown = table("", "value", f"{result.settings.level:.0%} interval")
    only_pairs = _known(result, "pairwise_confidence", OVERALL) and not _known(
        result, "mean_confidence", OVERALL
    )
    for metric, meaning in {**(_PAIR_MEANINGS if only_pairs else {}), **_MEANINGS}.items():
        row = find_value(rows, metric)
        if row is None or row["value"] is None:
            continue
        if metric in ("overconfidence", "vote_gap", "pairwise_overconfidence"):
            value, _, around = points(row).partition(" ")
            add_row(shown, meaning, value, around.strip("[]").replace(", ", " to "))
        elif metric in _PERCENT:
            around = "" if row["low"] is None else f"{percent(row['low'])} to {percent(row['high'])}"
            add_row(shown, meaning, percent(row["value"]), around)
        else:
            add_row(shown, meaning, number(row["value"]), interval(row))
    ece, null, p = (find_value(rows, name) for name in ("ece", "ece_null_mean", "ece_p_value"))
    if ece is not None and ece["value"] is not None:
        add_row(shown, "ECE, the paper's measure", number(ece["value"]), interval(ece))
    if null is not None and null["value"] is not None:
        p_text = p_value(p["value"], 1 / (result.settings.resamples + 1)) if p is not None else ""
        p_text = p_text.replace("<", "p < ") if p_text.startswith("<") else f"p = {p_text}"
        add_row(shown, "ECE of a calibrated model", number(null["value"]), p_text)
    if shown.row_count:
        print_table(terminal, shown)


def _print_categories(terminal: Console, result: Evaluation) -> None:
    rows = result.metrics
    names = [name for name in dict.fromkeys(row["category"] for row in rows) if name != OVERALL]
    lost = any(_known(result, "lost_information", name) for name in names)
    headings = ["prompts", "says", "right", "gap in points"]
    shown = table(
        "\ncategory", *headings, *(["lost\ninformation"] if lost else []), "ECE (if\ncalibrated)", gap=1
    )
    for name in names:
        right, gap = find_value(rows, "accuracy", name), find_value(rows, "overconfidence", name)
        if right is None or not right["n"]:
            continue
        cells = [
            f"{right['n']:,}",
            _percent(result, "mean_confidence", name),
            _percent(result, "accuracy", name),
        ]
        cells.append(points(gap))
        cells += [_number(result, "lost_information", name)] if lost else []
        cells.append(f"{_number(result, 'ece', name)} ({_number(result, 'ece_null_mean', name)})")
        add_row(shown, name, *cells)
    if shown.row_count:
        print_table(terminal, shown)


def _print_all(terminal: Console, results: list[Evaluation]) -> None:
    lost = any(_known(result, "lost_information") for result in results)
    metrics = ["kept_information", "lost_information", "usable_information"] if lost else []
    headings = [
        "says",
        "right",
        "gap in points",
        *(["kept\ninformation", "lost\ninformation", "usable\ninformation"] if lost else []),
    ]
    shown = table("\nmodel", *headings, "ECE", title="\nAll models", gap=1)
    sort_by = catalogue()["kept_information" if lost else "ece"]

    def order(result: Evaluation) -> tuple[bool, float]:
        row = find_value(result.metrics, sort_by.name)
        value = None if row is None else row["value"]
        return value is None, 0.0 if value is None else sort_by.badness(value)

    names = short_names(result.model for result in results)
    for result in sorted(results, key=order):
        cells = [_percent(result, name, OVERALL) for name in ("mean_confidence", "accuracy")]
        cells.append(points(find_value(result.metrics, "overconfidence")))
        cells += [_number(result, name, OVERALL) for name in (*metrics, "ece")]
        add_row(shown, names[result.model], *cells)
    print_table(terminal, shown)


def _known(result: Evaluation, metric: str, category: str = OVERALL) -> bool:
    row = find_value(result.metrics, metric, category)
    return row is not None and row["value"] is not None


def _percent(result: Evaluation, metric: str, category: str) -> str:
    row = find_value(result.metrics, metric, category)
    return percent(None if row is None else row["value"])


def _number(result: Evaluation, metric: str, category: str) -> str:
    row = find_value(result.metrics, metric, category)
    return number(None if row is None else row["value"])

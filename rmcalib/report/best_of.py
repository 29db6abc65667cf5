"""The document of `best_of_n`, and its sentences."""

from __future__ import annotations

import shlex
from functools import partial

from rmcalib._util.display import bracketed, clean_line, count, percent, points
from rmcalib.metrics.best_of import TOLERANCE, BestOfN
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.sentences import Row

_MADE = (
    "One response of each prompt is the best, and the others were made for the benchmark: the numbers say how well the "
    "judge finds it among n of these. To see what your policy gains, label samples of your policy."
)


def best_of_n_document(result: BestOfN) -> doc.Document:
    """Return the document of `best_of_n`: three sentences, one figure, one table."""
    compared = {1, result.rows[-1]["n"], *(row["more"] for row in result.gains)}
    shown = [row for row in result.rows if row["n"] in compared]
    columns: doc.Columns = {
        "n": lambda row: doc.Cell(str(row["n"]), row["n"]),
        doc.Column("right", "The sample with the largest reward of n is correct"): doc.ranged(
            "right", partial(bracketed, form=percent)
        ),
        doc.Column("says", "Mean stated probability of the chosen sample"): doc.entry("says", percent),
        doc.Column("pass@n", "At least one of n samples is correct"): doc.entry("pass_at_n", percent),
    }
    if result.second is not None:
        columns[doc.Column("second right", clean_line(result.second))] = doc.entry("second_right", percent)
        columns["second − first, in points"] = _difference
    caption = f"Brackets are {result.level:.0%} intervals, which hold for all n at once."
    size = count(result.n_prompts, "prompt")
    if result.n_clusters < result.n_prompts:
        size = f"{count(result.n_clusters, 'question')}, {size}"
    against = "" if result.second is None else f" against {clean_line(result.second)}"
    label = ", ".join(f"best of {row['n']} is right {percent(row['right'])}" for row in shown)
    notes = [*result.notes, *([f"No stated probability: {result.no_says}."] if result.no_says else [])]
    return doc.Document(
        title=f"Best of n by {clean_line(result.name)}{against}",
        subtitle=f"{size}, up to {count(result.rows[-1]['n'], 'sample')}",
        sentences=best_of_n_sentences(result),
        first=[
            doc.Drawing("best-of-n", partial(figures.best_of_n_figure, result), f"Over all prompts, {label}"),
            doc.table_of("Best of n", shown, columns, caption),
        ],
        steps=_steps(result),
        notes=[_MADE, *notes] if result.labels == "best" else notes,
    )


def _steps(result: BestOfN) -> list[doc.Step]:
    """Return what to do with samples, for scores as they are."""
    source = shlex.quote(result.source)
    if not result.source or result.labels == "chosen":
        return []
    if result.useful_up_to == 1:
        second = f"rmcalib best-of-n {source} --second OTHER_SCORES"
        return [doc.Step("Draw one sample, or try another judge of the same samples.", second)]
    n = result.enough_at or result.useful_up_to
    words = f"Draw {count(n, 'sample')} per prompt, and take the one with the largest reward."
    accept = "Find when that response can be accepted without asking a person."
    return [doc.Step(words), doc.Step(accept, f"rmcalib decide {source} --to rule.json")]


def _difference(row: Row) -> doc.Cell:
    both = {"value": row["difference"], "low": row["difference_low"], "high": row["difference_high"]}
    return doc.Cell(points(both), row["difference"])


def best_of_n_sentences(result: BestOfN) -> list[str]:
    """Return how many samples help, how many are enough, and whether more do harm."""
    if result.labels == "chosen":
        return [_of_chosen(result)]
    sentences = [_useful(result), _enough(result), _over_optimised(result)]
    if result.second is not None:
        sentences.append(_second(result))
    return sentences


def _of_chosen(result: BestOfN) -> str:
    (row,) = result.rows
    says = "" if row["says"] is None else f" It says {percent(row['says'])}."
    right = bracketed({**row, "value": row["right"]}, percent)
    return f"The best of {row['n']} is right {right} of the time.{says}"


def _useful(result: BestOfN) -> str:
    alone, last = result.row(1), result.rows[-1]["n"]
    if result.useful_up_to == 1:
        best = result.rows[-1]
        return (
            f"More samples do not clearly help: one sample is right {percent(alone['right'])} of the time, the best of "
            f"{last} {percent(best['right'])}."
        )
    best = result.row(result.useful_up_to)
    return (
        f"More samples help up to {result.useful_up_to}: the best of {result.useful_up_to} is right "
        f"{percent(best['right'])} of the time, one sample {percent(alone['right'])}, and a perfect judge would reach "
        f"{percent(best['pass_at_n'])}."
    )


def _enough(result: BestOfN) -> str:
    last = result.rows[-1]["n"]
    if last == 1:
        return "There is one sample per prompt: more of them show whether they are worth it."
    what = f"{100 * TOLERANCE:g} point" if result.cost is None else "its samples cost"
    if result.enough_at is None:
        return (
            f"Up to {last}, more samples may still gain more than {what}, so it is open how many are enough."
        )
    enough = "One sample is" if result.enough_at == 1 else f"{result.enough_at} samples are"
    return f"{enough} enough: no larger number up to {last} gains more than {what}."


def _over_optimised(result: BestOfN) -> str:
    last = result.rows[-1]
    says = ""
    if last["says"] is not None:
        says = f" For the best of {last['n']} it says {percent(last['says'])}, and is right {percent(last['right'])}."
    if result.over_optimised_from is None:
        return f"No harm from more samples was found.{says}"
    worst = min(result.gains, key=lambda row: (row["more"] != result.over_optimised_from, row["high"]))
    loss = points(
        {"value": worst["gain"], "low": worst["low"], "high": worst["high"]}, sign=False, unit=" points"
    )
    return (
        f"From {result.over_optimised_from} samples on, the reward is over-optimised: the best of {worst['more']} is "
        f"right less often than the best of {worst['fewer']}, by {loss}.{says}"
    )


def _second(result: BestOfN) -> str:
    with_limits = [row for row in result.rows if row["difference_low"] is not None]
    better = [row["n"] for row in with_limits if row["difference_low"] > 0]
    worse = [row["n"] for row in with_limits if row["difference_high"] < 0]
    last, second = result.rows[-1], clean_line(result.second or "")
    if better and worse:
        return f"{second} is better for some numbers of samples and worse for others; see the table."
    if not better and not worse:
        return f"No clear difference to {second}: at {last['n']} samples {_difference(last).text} points."
    verdict, shown = ("better", better) if better else ("worse", worse)
    row = result.row(shown[-1])
    both = {"value": row["difference"], "low": row["difference_low"], "high": row["difference_high"]}
    return f"{second} is {verdict}: at {shown[-1]} samples by {points(both, sign=False, unit=' points')}."

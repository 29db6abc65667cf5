"""Every sentence about a result, written once. A sentence claims only what a test or an interval shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.display import number, p_value, percent, points, short_names, temperature_text
from rmcalib._util.terminal import clean_line, count
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.table import OVERALL, find_value
from rmcalib.metrics.views import FEWEST
from rmcalib.report.notes import meaning_sentence

if TYPE_CHECKING:
    from rmcalib.metrics import Comparison
    from rmcalib.report.evaluation import Evaluation
    from rmcalib.report.leaderboards import Leaderboard

Row = Mapping[str, Any]
Rows = Sequence[Row]
_OTHERS = ("lost_information", "usable_information", "pairwise_accuracy", "pairwise_overconfidence")
_REVERSED = "its order looks reversed: are the labels or the sign of the rewards swapped?"
_NAMES = {"ece_score": "ECE (ece_score)", "abs_log_temperature": "|log T|"}


def metric_name(metric: str) -> str:
    """Return the label of a metric in the catalogue; other names unchanged."""
    found = catalogue().get(metric)
    return _NAMES.get(metric, metric) if found is None else found.label


def direction(gap: float) -> str:
    """Name the sign of a gap."""
    return "over-confident" if gap > 0 else "under-confident"


def outside_zero(row: Row | None) -> bool:
    """Return whether the interval of a row leaves out zero."""
    return row is not None and row["low"] is not None and bool(row["low"] > 0 or row["high"] < 0)


# Evaluations.


def evaluation_sentences(evaluation: Evaluation) -> list[str]:
    """Return the result of an evaluation: the verdict first, then information, repair, groups, the check."""
    rows, facts = evaluation.rows, evaluation.facts
    found = [meaning_sentence(evaluation.manifest)]
    n = facts["one_answer"]
    if facts["view"] == "pointwise":
        found += _pointwise_sentences(rows)
        return [sentence for sentence in found if sentence] or [_values_sentence(rows)]
    found += _vote_sentences(rows)
    reversed_order = _reversed_sentence(rows, facts)
    if n == 1:
        found.append("One prompt shows nothing about calibration.")
    elif _known(rows, "overconfidence"):
        found += [reversed_order, _gap_sentence(rows, facts)]
        if n >= FEWEST:
            found += [_information_sentence(rows), _temperature_sentence(rows, facts)]
            found += [_groups_sentence(evaluation.groups), check_sentence(evaluation)]
    elif n:
        found.append(reversed_order)
        found += _uncalibrated_sentences(rows, facts)
    elif not any(found):
        found.append(_nothing_sentence(facts))
    found = [sentence for sentence in found if sentence]
    return found or [_values_sentence(rows)]


def _nothing_sentence(facts: Row) -> str:
    """Say why there is nothing to measure, and what to give."""
    if facts["prompts"] == facts["responses"]:
        return (
            "Every prompt has one response, and their labels are all the same, so there is nothing to compare: give "
            "two or more responses per prompt, or labels of correct and of wrong ones."
        )
    return (
        "No prompt has exactly one correct response, so it cannot be measured how often its choice is right: label "
        "one response per prompt as the best one."
    )


def _gap_sentence(rows: Rows, facts: Row) -> str:
    says, right, gap = (_known(rows, name) for name in ("mean_confidence", "accuracy", "overconfidence"))
    if gap is None or says is None or right is None:
        return "" if gap is None else f"Its gap is {points(gap, unit=' points')}."
    clusters = facts["clusters"]
    of = f" of {clusters:,} questions" if clusters else ""
    start = f"It says {percent(says['value'])} and is right {percent(right['value'])} of the time"
    if gap["n"] < FEWEST:
        return f"{start}, but {count(gap['n'], 'prompt')}{of} are too few for a verdict."
    if outside_zero(gap):
        return f"{start}: {direction(gap['value'])} by {points(gap, sign=False, unit=' points')}."
    if facts["cancels"] is not None and facts["cancels"] < 0.05:
        return (
            f"{start}, but errors of both signs cancel in this gap of {points(gap, unit=' points')}: it is "
            "over-confident on some prompts and under-confident on others."
        )
    least = facts["smallest_gap"]
    seen = (
        f"; {count(gap['n'], 'prompt')} would show a gap of {100 * least:.1f} points in 4 of 5 cases"
        if least
        else ""
    )
    return f"{start}: not shown to be over- or under-confident (gap {points(gap, unit=' points')}{seen})."


def _reversed_sentence(rows: Rows, facts: Row) -> str:
    """Say that a model is right less often than a random choice, and ask about the labels if pairs are, too."""
    right, pairs, chance = _known(rows, "accuracy"), _known(rows, "pairwise_accuracy"), facts["chance"]
    if right is None or right["high"] is None or chance is None or right["n"] < 5 or right["high"] >= chance:
        return ""
    start = f"It is right {percent(right['value'])} of the time, less often than a random choice ({percent(chance)})"
    if pairs is not None and (pairs["high"] is None or pairs["high"] >= 0.5):
        return f"{start}."
    return f"{start}: {_REVERSED}"


def _information_sentence(rows: Rows) -> str:
    kept, lost, usable = (_known(rows, f"{name}_information") for name in ("kept", "lost", "usable"))
    if kept is None or lost is None or usable is None:
        return ""
    start = f"Its probabilities keep {_share(kept)} of the information that decides a prompt"
    if kept["high"] is not None and kept["high"] < 0:
        start = f"Its probabilities are worse than a uniform guess (kept information {_share(kept)})"
    elif kept["low"] is not None and kept["low"] <= 0:
        start = f"Its probabilities are not shown to be better than a uniform guess (kept information {_share(kept)})"
    if lost["low"] is not None and lost["low"] <= 0:
        return f"{start}; their scale is not shown to be off."
    if usable["low"] is not None and usable["low"] <= 0:
        return f"{start}; its rewards are not shown to say anything at any scale."
    return f"{start}; its rewards would give {_share(usable)} at their best scale."


def temperature_helps(rows: Rows, facts: Row) -> bool:
    """Return whether a temperature is shown to lower the log loss on other prompts."""
    gain = facts["gain"]
    return _known(rows, "temperature") is not None and gain is not None and bool(gain["low"] > 0)


def _temperature_sentence(rows: Rows, facts: Row) -> str:
    best, gain = _known(rows, "temperature"), facts["gain"]
    if best is None:
        return ""
    if not temperature_helps(rows, facts):
        return "A temperature is not shown to help."
    around = (
        "" if best["low"] is None else f" [{temperature_text(best['low'])}, {temperature_text(best['high'])}]"
    )
    return (
        f"Dividing its rewards by T = {temperature_text(best['value'])}{around} is estimated to lower the log "
        f"loss on other prompts by {number(gain['value'])} [{number(gain['low'])}, {number(gain['high'])}]."
    )


def _groups_sentence(groups: Rows) -> str:
    """Name the groups whose gap differs from 0 after the correction for looking at many."""
    flagged = [row for row in groups if row["flagged"]]
    if len(groups) < 2:
        return ""
    looked = f"corrected for looking at {count(len(groups), 'group')}"
    if not flagged:
        return f"No group is shown to be over- or under-confident ({looked})."
    ordered = sorted(flagged, key=lambda row: -abs(row["pooled"] or row["gap"]))
    named = [
        f"{clean_line(row['group'])} ({100 * (row['pooled'] or row['gap']):+.0f})" for row in ordered[:3]
    ]
    more = f" and {len(flagged) - 3} more" if len(flagged) > 3 else ""
    return f"Gaps beyond chance, {looked}: {', '.join(named)}{more}."


def check_sentence(evaluation: Evaluation) -> str:
    """Return the check that does not cancel: the ECE of the first choice, and what a calibrated model shows."""
    rows = evaluation.rows
    error, null, p = (_known(rows, f"confidence_ece{end}") for end in ("", "_null_mean", "_p_value"))
    if error is None or null is None or p is None:
        return ""
    floor = 1 / (evaluation.settings.resamples + 1)
    shown = p_value(p["value"], floor)
    shown = f"p < {shown[1:]}" if shown.startswith("<") else f"p = {shown}"
    return (
        f"Check: its confidence ECE is {number(error['value'])}; a calibrated model would show about "
        f"{number(null['value'])} ({shown})."
    )


def _uncalibrated_sentences(rows: Rows, facts: Row) -> list[str]:
    says, right, gap = (
        _known(rows, f"pairwise_{name}") for name in ("confidence", "accuracy", "overconfidence")
    )
    whole = _known(rows, "accuracy")
    found = []
    if says is not None and right is not None and gap is not None:
        start = (
            f"In pairs it says {percent(says['value'])} and is right {percent(right['value'])} of the time"
        )
        verdict = "not shown to be over- or under-confident"
        if gap["n"] < FEWEST:
            verdict = f"{count(gap['n'], 'prompt')} are too few for a verdict"
        elif outside_zero(gap):
            verdict = f"{direction(gap['value'])} by {points(gap, sign=False, unit=' points')}"
        found.append(f"{start}: {verdict}.")
    if whole is not None:
        found.append(f"Its first choice is right {percent(whole['value'])} of the time.")
    if facts["no_calibration"] and not found[:1]:
        found.append(f"Its calibration is not measured: {facts['no_calibration']}.")
    return found


def _pointwise_sentences(rows: Rows) -> list[str]:
    says, right, gap = (_known(rows, f"pointwise_{name}") for name in ("confidence", "accuracy", "gap"))
    order, best, chance = (
        _known(rows, name) for name in ("within_prompt_auroc", "best_of_n", "best_of_n_chance")
    )
    found = []
    if says is not None and right is not None and gap is not None:
        verdict = f"not shown to be over- or under-confident (gap {points(gap, unit=' points')})"
        if gap["n"] < FEWEST:
            verdict = f"{count(gap['n'], 'response')} are too few for a verdict"
        elif outside_zero(gap):
            verdict = f"{direction(gap['value'])} by {points(gap, sign=False, unit=' points')}"
        found.append(
            f"Response by response it says {percent(says['value'])} and {percent(right['value'])} are correct: "
            f"{verdict}."
        )
        fitted = _known(rows, "gap_fitted")
        if fitted is not None:
            found.append(
                "A model that was trained on pairs states nothing about single responses; with b and T fitted on "
                f"other prompts the gap is {points(fitted, unit=' points')}."
            )
    if order is not None:
        beats = f"Within a prompt, a correct response beats a wrong one {percent(order['value'])} of the time"
        if order["n"] >= 5 and order["high"] is not None and order["high"] < 0.5:
            found.insert(0, f"{beats}: {_REVERSED}")
        else:
            found.append(f"{beats}.")
    if order is not None and best is not None and chance is not None:  # else all choices are equally good
        found.append(
            f"The response with the largest reward is correct {percent(best['value'])} of the time; a random "
            f"one {percent(chance['value'])}."
        )
    return found


def _vote_sentences(rows: Rows) -> list[str]:
    says, agree, gap = (_known(rows, f"vote_{name}") for name in ("confidence", "agreement", "gap"))
    if says is None or agree is None or gap is None:
        return []
    start = (
        f"It says {percent(says['value'])}, and {percent(agree['value'])} of people prefer its first choice"
    )
    if gap["n"] < FEWEST:
        return [f"{start}; {count(gap['n'], 'prompt')} are too few for a verdict."]
    verdict = f"not shown to be over- or under-confident (gap {points(gap, unit=' points')})"
    if outside_zero(gap):
        verdict = f"{direction(gap['value'])} by {points(gap, sign=False, unit=' points')}"
    found = [f"{start}: {verdict}."]
    best = _known(rows, "vote_agreement_ceiling")
    if best is not None:
        found.append(f"With the best choices, about {percent(best['value'])} would agree (estimated).")
    found.append("Counting the most preferred response as the correct one:")
    return found


def _values_sentence(rows: Rows) -> str:
    values = [
        f"{metric_name(row['metric'])} {number(row['value'])}"
        for row in rows
        if row["category"] == OVERALL and row["value"] is not None
    ]
    return f"{', '.join(values) or 'No values'}."


# Comparisons.


def comparison_sentences(found: Comparison) -> list[str]:
    """Return the verdict of a comparison: whose gap is smaller, who is more often right, who keeps more."""
    gap = found.row("overconfidence") or found.row("pairwise_overconfidence")
    pair = "pairwise_" if gap is not None and gap["metric"].startswith("pairwise_") else ""
    right = found.row(f"{pair}accuracy")
    accuracy = "" if right is None else _accuracy_words(found, right)
    if gap is None or gap["size_difference"] is None:
        return [f"Calibration cannot be compared; {accuracy or 'the two have no metric in common'}."]
    if gap["n"] < FEWEST:
        return [f"{count(gap['n'], 'prompt')} in common are too few for a verdict."]
    more = _kept_words(found)
    if gap["better"]:
        by = _size({"value": gap["size_difference"], "low": gap["size_low"], "high": gap["size_high"]})
        smaller = points(by, sign=False, unit=" points")
        winner = _winner(found, gap)
        first = f"{winner} is better calibrated: its gap is smaller by {smaller}"
        accuracy = accuracy.replace(f"{winner} is", "it is also", 1)
        return [f"{first}; {accuracy}." if accuracy else f"{first}.", *more]
    if more or (right is not None and right["better"]):
        return [f"No difference between the gaps is shown; {accuracy}.", *more]
    others = [row for name in _OTHERS if (row := found.row(name)) is not None and row["better"]]
    if others:
        names = {
            who: [metric_name(row["metric"]) for row in others if _winner(found, row) == who]
            for who in _called(found).values()
        }
        said = [f"{who} is better by {' and '.join(own)}" for who, own in names.items() if own]
        return [f"No difference between the gaps is shown; accuracy does not differ; {'; '.join(said)}."]
    enough = found.needed is None or found.needed <= gap["n"]
    need = "" if enough else f"; {found.needed:,} prompts would show one of 3 points"
    return [f"No difference shown{need}."]


def _accuracy_words(found: Comparison, row: Row) -> str:
    if row["low"] is None:
        return f"accuracy is {percent(row['a'])} and {percent(row['b'])}"
    if not row["better"]:
        return "accuracy does not differ"
    by = _size({"value": row["difference"], "low": row["low"], "high": row["high"]})
    return f"{_winner(found, row)} is more often right, by {points(by, sign=False, unit=' points')}"


def _kept_words(found: Comparison) -> list[str]:
    row = found.row("kept_information")
    if row is None or not row["better"]:
        return []
    by = _size({"value": row["difference"], "low": row["low"], "high": row["high"]})
    more = f"by {points(by, sign=False, unit=' points')}"
    if abs(by["value"]) > 1:
        more = f"{number(max(row['a'], row['b']))} against {number(min(row['a'], row['b']))}"
    return [f"The probabilities of {_winner(found, row)} keep more information, {more}."]


def _winner(found: Comparison, row: Row) -> str:
    return _called(found)[row["better"]]


def _called(found: Comparison) -> dict[str, str]:
    """Return what sentences call the two: names without their organisations, where that tells them apart."""
    short = short_names([found.a, found.b])
    return {"a": clean_line(short[found.a]), "b": clean_line(short[found.b])}


def _size(row: Row) -> Row:
    """Return a difference without its sign, and its limits."""
    if row["value"] >= 0:
        return row
    return {"value": -row["value"], "low": -row["high"], "high": -row["low"]}


# Leaderboards.


def board_sentences(board: Leaderboard) -> list[str]:
    """Return the best model, which others may be as good, how many are over-confident, and the correlation."""
    ranked = [row for row in board.models if row["rank"] is not None]
    total = count(len(board.models), "model")
    if not ranked:
        return [f"{total}, none with a value for {metric_name(board.metric)}."]
    found = [_best_sentence(board, ranked, total), _gaps_sentence(ranked, board.metric)]
    guesses = [row for row in ranked if row["better_than_guess"] is False]
    if guesses:
        found.append(
            f"Ranked last: {count(len(guesses), 'model')} worse than a uniform guess, or not shown to be right more "
            "often than by chance."
        )
    return [sentence for sentence in [*found, _correlation_sentence(board)] if sentence]


def _best_sentence(board: Leaderboard, ranked: Rows, total: str) -> str:
    best, metric = ranked[0], board.metric
    value = best["values"][metric]
    if len(ranked) > 1 and all(row["rank"] == best["rank"] for row in ranked):
        return f"{total}; all have the same {metric_name(metric)}, {number(value['value'])}."
    shown = points(value, unit=" points") if metric.endswith("overconfidence") else _bracket(value)
    pair = "pairwise_" if metric.startswith("pairwise_") else ""
    names = (f"{pair}confidence", "pairwise_accuracy") if pair else ("mean_confidence", "accuracy")
    says, right = (best["values"].get(name) for name in names)
    more = (
        ""
        if says is None or right is None
        else f"; it says {percent(says['value'])} and is right {percent(right['value'])} of the time"
    )
    first = f"{total}. Best by {metric_name(metric)}: {clean_line(best['model'])}, {shown}{more}."
    rivals = [row for row in ranked[1:] if row.get("rank_low") == 1]
    if rivals:
        first += f" {count(len(rivals), 'other')} may be as good."
    return first


def _gaps_sentence(ranked: Rows, by: str) -> str:
    name = "pairwise_overconfidence" if by.startswith("pairwise_") else "overconfidence"
    gaps = [gap for row in ranked if (gap := row["values"].get(name)) is not None]
    if not gaps:
        return ""
    sure = [direction(gap["value"]) for gap in gaps if outside_zero(gap)]
    over, under = sure.count("over-confident"), sure.count("under-confident")
    return (
        f"{over} of {count(len(gaps), 'model')} over-confident, {under} under-confident, "
        f"{len(gaps) - over - under} not shown to be either."
    )


def _correlation_sentence(board: Leaderboard) -> str:
    error = "lost_information" if board.metric == "kept_information" else board.metric
    split = next(
        (row for row in board.split_correlations if (row["metric"], row["target"]) == (error, "accuracy")),
        None,
    )
    found = split or next((row for row in board.correlations if row["target"] == "leaderboard"), None)
    if found is None or found["value"] is None or found["note"] or found["n"] < 10:
        return ""
    meaning = "the interval includes zero, so these models do not show a correlation"
    if found["low"] > 0:
        meaning = f"models that are better by {metric_name(found['metric'])} have better scores"
    elif found["high"] < 0:
        meaning = f"models that are better by {metric_name(found['metric'])} have worse scores"
    what = "accuracy, from different halves of the prompts," if split else "the score"
    return (
        f"The rank correlation of {metric_name(found['metric'])} and {what} is {found['value']:.2f} "
        f"[{found['low']:.2f}, {found['high']:.2f}] over {found['n']} models: {meaning}."
    )


# Shared.


def _known(rows: Rows, metric: str, category: str = OVERALL) -> Row | None:
    row = find_value(rows, metric, category)
    return None if row is None or row["value"] is None else row


def _bracket(row: Row) -> str:
    return number(row["value"]) + (
        "" if row["low"] is None else f" [{number(row['low'])}, {number(row['high'])}]"
    )


def _share(row: Row) -> str:
    """Return a fraction with its interval as a percentage."""
    digits = 0 if abs(row["value"]) >= 0.0995 else 1
    value, low, high = (
        None if (found := row.get(name)) is None else f"{100 * found:,.{digits}f}"
        for name in ("value", "low", "high")
    )
    return f"{value}%" if low is None else f"{value}% [{low}, {high}]"

"""The document of `decide`, and its sentences."""

from __future__ import annotations

from functools import partial

from rmcalib._util.display import count, number, percent
from rmcalib.repair.decisions import Decisions
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.document import Cell, Columns, Document, Drawing, Tile, entry, table_of


def decision_sentences(result: Decisions) -> list[str]:
    """Return when to accept the first choice, what acting on its probabilities costs, and when to stop drawing."""
    choice, sure, limit = result.choice, f"{result.level:.0%} confidence", f"{result.wrong_at_most:.0%}"
    in_fit = _in_fit(result)
    if choice.threshold is None and choice.wrong is None:
        first = (
            f"Too few prompts for a threshold: even without an error, {choice.fewest} accepted responses are "
            f"needed to show that at most {limit} are wrong with {sure}."
        )
    elif choice.threshold is None:
        first = (
            f"No threshold keeps at most {limit} of the accepted responses wrong with {sure}: of its {choice.n:,} "
            f"most confident choices (of {count(result.n, 'prompt')}), {percent(choice.wrong)} are wrong."
        )
    else:
        p = "calibrated probability" if result.calibrator.fitted_on else "probability"
        what = " of being correct" if result.calibrator.view == "pointwise" else ""
        when = "always" if choice.threshold == 0 else f"if its {p}{what} is at least {choice.threshold:.10g}"
        rest = "" if result.asked == 0 else f" A person decides the other {result.asked:.0%}."
        promise = (
            f"At most {limit} of these are wrong on prompts like yours, with {sure} "
            f"({percent(choice.wrong)} here)."
        )
        if in_fit:
            promise = (
                f"{percent(choice.wrong)} of these are wrong here. This is no guarantee for others: the calibrator was "
                f"fitted on {in_fit:,} of these prompts. Fit it with --part 1/2, and test with --part 2/2."
            )
        first = f"Accept its first choice {when}: that accepts {choice.accepted:.0%} of the prompts. {promise}{rest}"
    sentences = [first]
    if result.left_out:
        why = (
            "without a label of their first choice"
            if result.calibrator.view == "pointwise"
            else "without a label, or without exactly one correct response,"
        )
        sentences.append(f"{count(result.left_out, 'prompt')} {why} are left out.")
    regret = result.regret
    if regret is not None:
        chance = ", which may be chance" if regret.low <= 0 <= regret.high else ""
        sentences.append(
            f"If you act on its own probabilities, you accept above {regret.threshold:.3g} "
            f"({regret.accepted:.0%} of the prompts) and expect a cost of {regret.believed:.3f} per prompt, where "
            f"a wrong response costs 1 and asking {result.ask_cost:.2g}. The estimated cost is {regret.cost:.3f}; "
            f"with calibrated probabilities it is {regret.calibrated_cost:.3f}. The difference is "
            f"{regret.value:z.3f} [{regret.low:z.3f}, {regret.high:z.3f}]{chance}."
        )
    if result.drawing and not in_fit:
        sentences.append(_drawing_sentence(result))
    return sentences


def _in_fit(result: Decisions) -> int:
    """Return how many prompts the calibrator was fitted on, which leave no guarantee."""
    return 0 if result.calibrator.rule is None else result.calibrator.rule.in_fit


def _drawing_sentence(result: Decisions) -> str:
    """Return the cheapest way to draw samples and accept one."""
    costs = (
        f"a wrong response costs 1, asking {result.ask_cost:.2g}, a sample {result.sample_cost:.2g} "
        f"({result.level:.0%} confidence for all rules together)"
    )
    best = min(result.drawing, key=lambda row: float(row["cost"]))
    if best["threshold"] is None:
        return f"Drawing samples is not clearly cheaper than asking a person at once: {costs}."
    condition = "" if best["threshold"] == 0 else f" if P(correct) is at least {best['threshold']:.3g}"
    how = f"Draw {count(best['n'], 'sample')}, and accept the best one{condition}"
    if best["rule"] == "first":
        how = f"Draw at most {count(best['n'], 'sample')}, and stop at the first one{condition}"
    return (
        f"{how}: that takes {best['samples']:.1f} samples per prompt and accepts {best['accepted']:.0%} of the "
        f"prompts; at most {result.wrong_at_most:.0%} of these are wrong ({percent(best['wrong'])} here). It costs "
        f"{best['cost']:.3f} per prompt: {costs}."
    )


def _drawing_table(result: Decisions) -> doc.Table:
    """Return the rules for drawing samples: their thresholds and costs."""
    columns: Columns = {
        "at most": lambda row: Cell(count(row["n"], "sample"), row["n"]),
        "accept": lambda row: "the best of them" if row["rule"] == "best" else "the first one, and stop",
        "if P(correct) ≥": entry("threshold", number),
        "accepts": entry("accepted", percent),
        "wrong": entry("wrong", percent),
        "samples per prompt": entry("samples", number),
        "cost": entry("cost", number),
    }
    caption = "Prompts that are not accepted go to a person. The limit of wrong responses holds for all rows at once."
    return table_of("If you draw samples", result.drawing, columns, caption)


def decisions_document(result: Decisions) -> Document:
    """Return the document of decisions: the threshold, and accuracy by how sure the model is."""
    choice, in_fit = result.choice, _in_fit(result)
    sure = "no guarantee" if in_fit else f"of those, with {result.level:.0%} confidence"
    above = "–" if choice.threshold is None else f"{choice.threshold:.3g}"
    return Document(
        title="When to accept its choice",
        subtitle=count(result.n, "prompt"),
        sentences=decision_sentences(result),
        tiles=[
            Tile("accept above", above, meaning="probability of its first choice"),
            Tile("accepts", percent(choice.accepted), meaning="of the prompts"),
            Tile("wrong, at most", "–" if in_fit else percent(choice.high), meaning=sure),
        ],
        first=[
            decisions_drawing(result),
            *([_drawing_table(result)] if result.drawing and not in_fit else []),
            doc.Words(
                ["How many responses to choose from, and whether more of them do harm: rmcalib best-of-n."]
            ),
        ],
    )


def decisions_drawing(result: Decisions) -> Drawing:
    """Return the figure of decisions."""
    label = "Accuracy of the most confident choices"
    return Drawing("decisions-figure", partial(figures.decisions_figure, result), label)

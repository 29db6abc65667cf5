"""The document of `combine`, and its sentences."""

from __future__ import annotations

from functools import partial

from rmcalib._util import display
from rmcalib._util.display import bracketed, clean_line, count, number, percent, temperature_text
from rmcalib.repair.joining import Joined
from rmcalib.repair.panels import Panel
from rmcalib.report import document as doc
from rmcalib.report import figures
from rmcalib.report.document import Columns, Document, Drawing, Table, entry, ranged, table_of


def panel_sentences(result: Panel) -> list[str]:
    """Return what the panel gains over its best member and a guess, and who is redundant."""
    sentences, guess = [], result.panels[0]["panel"]
    for row in result.panels:
        if row.get("gain_low") is None or row["panel"] in ("best member", guess):
            continue
        verdict = "is not clearly better than its best member"
        if row["gains"]:
            verdict = "is better than its best member"
        elif row["gain_high"] < 0:
            verdict = "is worse than its best member"
        elif row["information_low"] is None or row["information_low"] <= 0:
            verdict += f" and {'the' if guess == 'base rate' else 'a'} {guess}"
        change = {"value": -row["gain"], "low": -row["gain_high"], "high": -row["gain_low"]}
        sentences.append(
            f"The panel ({row['panel']}) {verdict}: its log loss differs by {bracketed(change, display.signed)} nats."
        )
    redundant = [clean_line(row["judge"]) for row in result.members if row["redundant"]]
    if redundant:
        sentences.append(f"No clear contribution: {', '.join(redundant)}.")
    return sentences or ["No panel could be fitted."]


def joined_document(result: Joined) -> Document:
    """Return the document of rewards of different things that are joined."""
    members: Columns = {
        "reward": entry("judge"),
        "prompts": entry("n", "{:,}".format),
        "T": ranged("temperature"),
        "b": lambda row: bracketed({"value": row["threshold"], "low": row["b_low"], "high": row["b_high"]}),
        "share of the spread": entry("share", percent),
    }
    return Document(
        title=f"All of {count(len(result.members), 'reward')}",
        subtitle=f"{count(result.n, 'prompt')} in common",
        sentences=[
            "P(all hold) is the product of the probabilities if the rewards are independent: check it on samples that "
            "are labelled for all of them."
        ],
        first=[table_of("Rewards", result.members, members), _disagreements(result)],
    )


def _disagreements(result: Panel | Joined) -> Table:
    columns: Columns = {
        "judge": entry("judge"),
        "other judge": entry("other"),
        "opposite order": lambda row: bracketed({**row, "value": row["disagree"]}, percent),
    }
    return table_of("Pairs of responses in opposite orders", result.disagreements, columns)


def panel_document(result: Panel) -> Document:
    """Return the document of a panel: which judges add something."""
    members: Columns = {
        "judge": entry("judge"),
        "T": entry("temperature", temperature_text),
        "weight": entry("weight", number),
        "log loss": entry("log_loss", number),
        "right": entry("accuracy", percent),
        "log loss rises without it": ranged("left_out"),
        "share of the spread": entry("share", percent),
        "in a plain sum": entry("share_of_sum", percent),
    }
    panels: Columns = {
        "panel": entry("panel"),
        "log loss": entry("log_loss", number),
        "right": entry("accuracy", percent),
    }
    drawn = [
        {**row, "label": row["judge"], "value": row["left_out"], "marked": not row["redundant"]}
        for row in result.members
    ]
    return Document(
        title=f"Panel of {count(len(result.members), 'judge')}",
        subtitle=count(result.n, "prompt"),
        sentences=panel_sentences(result),
        first=[
            table_of("Panels", result.panels, panels),
            table_of("Members", result.members, members),
            _disagreements(result),
            Drawing(
                "members",
                partial(figures.interval_figure, drawn, "log loss rises without this judge, in nats"),
                "What each judge adds, with its interval",
            ),
            doc.Words(["All numbers are of prompts that temperatures and weights were not fitted on."]),
        ],
    )

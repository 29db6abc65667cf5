"""The leaderboard as a document: the tables of a ranked board, with names, marks and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmcalib.judges import Recipe, scale_note
from rmcalib.metrics import METHODS, Board, Settings
from rmcalib.report.leaderboard._words import summary_words

__all__ = ["Leaderboard", "Row", "assemble"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Leaderboard:
    """Models by calibration, as tidy tables; figures and page are drawn from them.

    Attributes
    ----------
    metric : the metric that models are sorted by.
    score_name : the name of the score over all categories. Scores are from 0 to 1.
    models : one row per model, the best first; those without a value come last, and ``why`` gives the reason.
    metrics : one row per model, category and metric.
    correlations : one row per metric, target and method, from the same prompts.
    split_correlations : one row per error and target, from different halves of the prompts; a table has none.
    ranks : one row per model and way of ranking.
    reliability, rejection : the curves of each model.
    check : our scores against official ones.
    training : one row per step, if the runs are steps of one training.
    """

    benchmark: str
    metric: str
    protocol: str
    score_name: str
    categories: list[str]
    models: list[Row]
    metrics: list[Row]
    correlations: list[Row]
    split_correlations: list[Row]
    ranks: list[Row]
    reliability: list[Row]
    rejection: list[Row]
    check: list[Row]
    notes: list[str]
    summary: str
    settings: Settings
    training: list[Row] = field(default_factory=list)

    @property
    def ranked(self) -> list[Row]:
        """The models that have a value of the metric, the best first."""
        return [row for row in self.models if row["rank"] is not None]

    @property
    def other(self) -> str:
        """The other way of ranking: accuracy if it was measured, else the score."""
        return "accuracy" if any("accuracy" in row["ranks"] for row in self.models) else "score"


def assemble(
    board: Board,
    *,
    benchmark: str,
    protocol: str,
    marks: Mapping[str, Recipe],
    score_name: str,
    check: list[Row],
    notes: Sequence[str],
) -> Leaderboard:
    """Turn a ranked board into a report: names, what is known about each model, and words.

    ``marks`` is what is known about each model, ``notes`` come before those of the board.
    """
    if board.score == "accuracy" or (len(board.categories) == 1 and _same_as_accuracy(board)):
        score_name = "accuracy"
    models = [
        row | {"scale": marks[row["model"]].bradley_terry, "mark": scale_note(marks[row["model"]])}
        for row in board.models
    ]
    return Leaderboard(
        benchmark=benchmark,
        metric=board.metric,
        protocol=protocol,
        score_name=score_name,
        categories=board.categories,
        models=models,
        metrics=[{"model": r["model"], "benchmark": benchmark, **r} for r in board.metrics],
        correlations=board.correlations,
        split_correlations=board.split_correlations,
        ranks=board.ranks,
        reliability=board.reliability,
        rejection=board.rejection,
        check=check,
        notes=[*notes, *board.notes],
        summary=summary_words(
            models, board.correlations, board.metric, METHODS, score_name, board.split_correlations
        ),
        settings=board.settings,
    )


def _same_as_accuracy(board: Board) -> bool:
    """Return whether the score of every model is its accuracy, as where one category asks for one answer."""
    return all((row["values"].get("accuracy") or {}).get("value") == row["score"] for row in board.models)

"""The leaderboard as a document: a ranked board with names, what is known about each model, and words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rmcalib.judges import Recipe, scale_note
from rmcalib.metrics import METHODS, Board
from rmcalib.report.leaderboard._words import summary_words

__all__ = ["Leaderboard", "Row", "assemble"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Leaderboard(Board):
    """Models by calibration: a ranked board with names and words, from which figures and page are drawn.

    It also has the attributes of :class:`rmcalib.metrics.Board`.

    Attributes
    ----------
    benchmark, protocol : str
        What models were measured on, and how.
    score_name : str
        The name of the score over all categories. Scores are from 0 to 1.
    check : list[Row]
        Our scores against official ones.
    summary : str
        The result in a few sentences.
    training : list[Row]
        One row per step, if the runs are steps of one training run.

    Examples
    --------
    >>> from rmcalib.metrics import Settings
    >>> from rmcalib.report import leaderboard_from_runs
    >>> board = leaderboard_from_runs(["real"], settings=Settings(resamples=20))
    >>> board.benchmark, board.ranked[0]["model"]
    ('rewardmath', 'internlm/internlm2-20b-reward')
    """

    benchmark: str
    protocol: str
    score_name: str
    check: list[Row]
    summary: str
    training: list[Row] = field(default_factory=list)

    @property
    def ranked(self) -> list[Row]:
        """The models that have a rank, the best first."""
        return [row for row in self.models if row["rank"] is not None]

    @property
    def other(self) -> str:
        """The other way of ranking: accuracy if it was measured, else the score."""
        return "accuracy" if any("accuracy" in row["ranks"] for row in self.models) else "score"

    def wide_rows(self) -> list[Row]:
        """Return one flat row per model, for leaderboard.csv."""
        return [
            flat | {"bradley_terry": row["scale"], "note": row["why"] or row["mark"]}
            for flat, row in zip(super().wide_rows(), self.models, strict=True)
        ]

    def content(self) -> dict[str, Any]:
        """Return the numbers and words, ready for JSON."""
        return {
            "benchmark": self.benchmark,
            "metric": self.metric,
            "protocol": self.protocol,
            "summary": self.summary,
            "models": self.wide_rows(),
            "correlations": self.correlations,
            "split_correlations": self.split_correlations,
            "check": self.check,
            "training": self.training,
            "notes": self.notes,
        }


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
    """Make the document of a ranked board.

    ``marks`` has the recipe of each model; ``notes`` come before those of the board.
    """
    if board.score == "accuracy" or (len(board.categories) == 1 and _same_as_accuracy(board)):
        score_name = "accuracy"
    models = [
        row | {"scale": marks[row["model"]].bradley_terry, "mark": scale_note(marks[row["model"]])}
        for row in board.models
    ]
    summary = summary_words(
        models, board.correlations, board.metric, METHODS, score_name, board.split_correlations
    )
    changed = {
        "models": models,
        "metrics": [{"model": row["model"], "benchmark": benchmark, **row} for row in board.metrics],
        "notes": [*notes, *board.notes],
    }
    return Leaderboard(
        **{**vars(board), **changed},
        benchmark=benchmark,
        protocol=protocol,
        score_name=score_name,
        check=check,
        summary=summary,
    )


def _same_as_accuracy(board: Board) -> bool:
    """Return whether the score of every model equals its accuracy."""
    return all((row["values"].get("accuracy") or {}).get("value") == row["score"] for row in board.models)

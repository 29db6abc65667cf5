"""Texts whose rewards are known: a server scores them at its start and again and again, to notice a change."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from rmcalib.benchmarks import Item
from rmcalib.judges import Judge
from rmcalib.judges._causes import HEALTHY, Cause, canaries, explain
from rmcalib.judges._generative import GenerativeJudge
from rmcalib.judges._judge import scored_chunks
from rmcalib.live.scoring import compares, is_away

log = logging.getLogger("rmcalib.serve")


class Canaries:
    """The rewards of canary texts at the start, and whether they are still the same.

    Parameters
    ----------
    judge : Judge
        What is checked. A judge that compares responses has no canaries, nor has a language model that is asked:
        each question costs.
    """

    def __init__(self, judge: Judge) -> None:
        """Choose the texts; nothing is scored yet."""
        self.judge = judge
        self.items: tuple[Item, ...] = ()
        self.expected: list[float] = []
        self.lengths: list[int] = []
        self.change: Cause | None = None
        """What is different now; None if the rewards are those of the start."""
        self.checked = 0.0

    def begin(self) -> None:
        """Score the canaries twice, and remember the rewards; a judge with noise has no canaries."""
        if compares(self.judge) or isinstance(self.judge, GenerativeJudge):
            return
        items = canaries(_limit(self.judge))
        first, self.lengths = self._rewards(items)
        again, _ = self._rewards(items)
        if explain(first, again).name not in HEALTHY:
            log.info(
                "%s: the same texts get other rewards each time; changes cannot be noticed", self.judge.name
            )
            return
        self.items, self.expected = items, first
        self.checked = time.monotonic()

    def check(self) -> Cause | None:
        """Score the canaries again. Returns what is different, or None; a model that is away is no change."""
        if not self.items:
            return None
        try:
            given, _ = self._rewards(self.items)
        except ValueError as error:
            if is_away(error):
                return self.change
            self.change = Cause("failed", " ".join(str(error).split())[:200])
            return self.change
        self.checked = time.monotonic()
        cause = explain(self.expected, given, self.lengths)
        self.change = None if cause.name == "equal" else cause
        return self.change

    def check_short(self) -> Cause | None:
        """Score one short canary, between two batches; if it has moved, score all."""
        if not self.items:
            return None
        try:
            given, _ = self._rewards(self.items[:1])
        except ValueError as error:
            return self.change if is_away(error) else self.check()
        same = explain(self.expected[: len(given)], given).name == "equal"
        return self.change if same and self.change is None else self.check()

    def _rewards(self, items: Sequence[Item]) -> tuple[list[float], list[int]]:
        scored = [one for chunk in scored_chunks(self.judge, items) for one in chunk]
        return [r for one in scored for r in one.rewards], [n for one in scored for n in one.n_tokens]


def _limit(judge: Any) -> int | None:
    """Return the longest text of a judge in tokens; None if that is not known."""
    limit = getattr(judge, "limit", None) or getattr(getattr(judge, "model", None), "max_length", None)
    return limit if isinstance(limit, int) else None

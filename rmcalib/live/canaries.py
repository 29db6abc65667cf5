"""Texts whose rewards are known: a server scores them at its start and again and again, to notice a change."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from rmcalib.benchmarks import Item
from rmcalib.judges import Judge
from rmcalib.judges._causes import Cause, canaries, explain
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
        self._rounds = False  # whether the rewards vary with the batch, as in narrow dtypes

    def begin(self) -> None:
        """Score the canaries one by one and together, and remember the rewards; a judge with noise has no canaries."""
        if compares(self.judge) or isinstance(self.judge, GenerativeJudge):
            return
        items, alone = self._readable(canaries(_limit(self.judge)))
        together, self.lengths = self._rewards(items)
        cause = explain(together, alone)
        if not cause.healthy:
            log.warning(
                "%s: the same texts get other rewards each time; changes cannot be noticed", self.judge.name
            )
            return
        self._rounds = cause.name != "equal"
        self.items, self.expected = items, together

    def _readable(self, items: Sequence[Item]) -> tuple[tuple[Item, ...], list[float]]:
        """Return the texts that the judge can read, and their rewards; templates may refuse two turns, for example."""
        readable: list[Item] = []
        rewards: list[float] = []
        for item in items:
            try:
                rewards += self._rewards([item])[0]
            except Exception as error:
                if is_away(error) or (item is items[-1] and not readable):
                    raise
                log.warning("%s: canary %r is left out: %s", self.judge.name, item.id, error)
            else:
                readable.append(item)
        return tuple(readable), rewards

    def check(self) -> Cause | None:
        """Score the canaries again. Returns what is different, or None; an unreachable model is not a change."""
        if not self.items:
            return None
        try:
            given, _ = self._rewards(self.items)
            cause = explain(self.expected, given, self.lengths)
            if cause.healthy and cause.name != "equal" and not self._rounds:
                # A narrower dtype gives the same rewards again; one whose sums depend on the batch does not.
                self._rounds = explain(given, self._rewards(self.items)[0]).name != "equal"
        except Exception as error:
            if not is_away(error):
                self.change = Cause("failed", " ".join(str(error).split())[:200])
            return self.change
        self.change = None if self._same(cause) else cause
        return self.change

    def check_short(self) -> Cause | None:
        """Score one short canary, between two batches; if it has moved, score all."""
        if not self.items:
            return None
        try:
            given, _ = self._rewards(self.items[:1])
        except Exception as error:
            return self.change if is_away(error) else self.check()
        same = self._same(explain(self.expected[: len(given)], given))
        return self.change if same and self.change is None else self.check()

    def _same(self, cause: Cause) -> bool:
        return cause.name == "equal" or (self._rounds and cause.healthy)

    def _rewards(self, items: Sequence[Item]) -> tuple[list[float], list[int]]:
        scored = [item for chunk in scored_chunks(self.judge, items) for item in chunk]
        return [r for item in scored for r in item.rewards], [n for item in scored for n in item.n_tokens]


def _limit(judge: Any) -> int | None:
    """Return the longest text of a judge in tokens; None if that is not known."""
    limit = getattr(judge, "limit", None) or getattr(getattr(judge, "model", None), "max_length", None)
    return limit if isinstance(limit, int) else None

"""Official scores: what a benchmark's authors compute from rewards, and the pieces they are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.benchmarks._entry import BenchmarkEntry, OfficialScore, ScoredItems
from rmcalib.benchmarks._items import Benchmark
from rmcalib.benchmarks._registry import entry_for

__all__ = ["official_score", "scored_items"]


class HasRewards(Protocol):
    """What `official_score` needs of scores."""

    @property
    def item_id(self) -> npt.NDArray[np.str_]:
        """The prompt of each response."""

    @property
    def category(self) -> npt.NDArray[np.str_]:
        """The category of each response."""

    @property
    def offsets(self) -> IntArray:
        """Where each prompt starts."""

    @property
    def reward(self) -> FloatArray:
        """The rewards."""

    @property
    def is_correct(self) -> BoolArray:
        """Which responses are correct."""

    @property
    def votes(self) -> IntArray | None:
        """People's votes."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """How the scores were made."""


def official_score(
    scores: HasRewards, benchmark: Benchmark | BenchmarkEntry | str | None = None
) -> list[OfficialScore]:
    """Compute what the benchmark's authors report, as they do, from rewards.

    Parameters
    ----------
    scores : `rmcalib.scores.Scores`.
    benchmark : the benchmark, its entry or its name; default what the scores' manifest says. Some scores need
        columns that only the benchmark itself has, and fall back to what the rewards alone show.

    Returns
    -------
    list of OfficialScore
        The headline first; empty if the authors define no score, or the benchmark is not known.

    Examples
    --------
    >>> from rmcalib.scores import Scores
    >>> scores = Scores.from_arrays([[2.0, 1.0], [0.0, 1.0]], category=["mmlu-pro", "livebench"])
    >>> [(row.metric, row.category, row.value) for row in official_score(scores, "judgebench")]
    [('accuracy', 'all', 0.5), ('accuracy', 'mmlu-pro', 1.0), ('accuracy', 'livebench', 0.0)]
    """
    if benchmark is None:
        benchmark = str(scores.manifest.get("benchmark_format") or scores.manifest.get("benchmark") or "")
    entry = benchmark if isinstance(benchmark, BenchmarkEntry) else entry_for(benchmark)
    if entry is None or entry.official is None:
        return []
    return entry.official(scored_items(scores, benchmark if isinstance(benchmark, Benchmark) else None))


def scored_items(scores: HasRewards, benchmark: Benchmark | None = None) -> ScoredItems:
    """Return scores as the plain arrays that official scores are computed from.

    With the benchmark, they have its further columns too.

    >>> from rmcalib.scores import Scores
    >>> scored_items(Scores.from_arrays([[2.0, 1.0]])).sizes.tolist()
    [2]
    """
    starts = scores.offsets[:-1]
    ids = scores.item_id[starts]
    columns: tuple[Mapping[str, str], ...] = ()
    if benchmark is not None:
        known = {item.id: item.columns for item in benchmark.items}
        columns = tuple(known.get(identifier, {}) for identifier in ids.tolist())
    category, truth = scores.category[starts], scores.is_correct
    return ScoredItems(ids, category, scores.offsets, scores.reward, truth, scores.votes, columns)

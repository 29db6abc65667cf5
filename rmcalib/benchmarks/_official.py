"""Official scores: the numbers that a benchmark's authors report, computed from rewards."""

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
    """The part of `rmcalib.scores.Scores` that `official_score` uses."""

    @property
    def item_id(self) -> npt.NDArray[np.str_]:
        """Id of the prompt of each response."""

    @property
    def category(self) -> npt.NDArray[np.str_]:
        """Category of each response."""

    @property
    def offsets(self) -> IntArray:
        """Index of the first response of each prompt, and the end."""

    @property
    def reward(self) -> FloatArray:
        """Reward of each response."""

    @property
    def is_correct(self) -> BoolArray:
        """Which responses are correct."""

    @property
    def votes(self) -> IntArray | None:
        """Votes for each response, if people voted."""

    @property
    def manifest(self) -> Mapping[str, Any]:
        """How the scores were made."""


def official_score(
    scores: HasRewards, benchmark: Benchmark | BenchmarkEntry | str | None = None
) -> list[OfficialScore]:
    """Compute the scores that the benchmark's authors report, as they do.

    Parameters
    ----------
    scores : HasRewards
        `rmcalib.scores.Scores`.
    benchmark : Benchmark | BenchmarkEntry | str, optional
        The benchmark, its entry or its name; default the one in the manifest of the scores. Some official
        scores use columns of the benchmark; without them, they use the rewards alone.

    Returns
    -------
    list of OfficialScore
        The headline comes first. The list is empty if the authors define no score, or if the benchmark is
        unknown.

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
    """Return scores as the flat arrays from which official scores are computed.

    Parameters
    ----------
    scores : HasRewards
        `rmcalib.scores.Scores`.
    benchmark : Benchmark, optional
        Adds the other columns of its prompts.

    Returns
    -------
    ScoredItems

    Examples
    --------
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

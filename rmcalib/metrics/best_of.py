"""How many samples are worth it: the best of n by reward, for every n up to the number of samples per prompt."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_integer
from rmcalib._util.display import count
from rmcalib.calibration.best_of import (
    Gains,
    best_of_values,
    curve_limits,
    difference_limits,
    doubled,
    gains_of,
    largest_disagreements,
    numbers_of_samples,
)
from rmcalib.calibration.clusters import too_few_clusters
from rmcalib.calibration.intervals import check_level
from rmcalib.metrics.comparison import on_common_prompts
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import Part, whole_part
from rmcalib.scores import load_scores
from rmcalib.scores._joining import BEST_OF

TOLERANCE = 0.01
"""A number of samples is enough if no larger one can be right more often by more than this."""
_USUAL = 0.9  # by default, the largest n that at least this fraction of prompts has samples for


@dataclass(frozen=True, repr=False)
class BestOfN(Shown):
    """The result of `best_of_n`.

    Attributes
    ----------
    name : str
        The judge.
    n_prompts, n_clusters : int
        How many prompts were used, and how many clusters of them.
    rows : list of dict
        One row per number of samples; see `best_of_n`.
    gains : list of dict
        One row per pair of 1, 2, 4, ... samples (fewer, more, gain, low, high); the limits hold for all at once.
    useful_up_to : int
        The largest number of samples that is significantly better than all smaller ones; 1 if there is none.
    enough_at : int or None
        The smallest number after which no larger one can gain more than a point, or more than its samples cost.
        None if the data do not show it.
    over_optimised_from : int or None
        The smallest number that is significantly worse than a smaller one; None if there is none.
    labels : str
        "correct": any number of a prompt's samples is correct. "best": one response of each prompt is. "chosen": only
        the chosen samples are labelled, so there is one row, and no gains.
    level : float
        Level of the intervals.
    cost : float, optional
        The cost of a sample.
    no_says : str
        Why there is no "says"; empty if there is.
    notes : list of str
        What was left out.
    second : str, optional
        The second judge.
    source : str
        Where its scores are, for commands; empty if they cannot be read again as they are.
    """

    name: str
    n_prompts: int
    n_clusters: int
    rows: list[dict[str, Any]]
    gains: list[dict[str, Any]]
    useful_up_to: int
    enough_at: int | None
    over_optimised_from: int | None
    labels: str
    level: float
    cost: float | None
    no_says: str
    notes: list[str]
    second: str | None = None
    source: str = ""

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.best_of import best_of_n_document

        return best_of_n_document(self)

    def row(self, n: int) -> dict[str, Any]:
        """Return the row of a number of samples.

        >>> from rmcalib import Scores
        >>> scores = Scores.from_arrays([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 0]])
        >>> best_of_n(scores).row(2)["right"]
        0.5
        """
        return next(row for row in self.rows if row["n"] == n)

    def content(self) -> dict[str, Any]:
        """Return all results as a dictionary that can be written as JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        """Return the numbers of samples that matter."""
        return (
            f"BestOfN(useful up to {self.useful_up_to}, enough at {self.enough_at}, over-optimised from "
            f"{self.over_optimised_from}; {self.n_prompts} prompts)"
        )


def best_of_n(
    scores: Any,
    second: Any = None,
    *,
    up_to: int | None = None,
    cost: float | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> BestOfN:
    r"""Report how often the best of n samples by reward is right, for every n, and how many samples are worth it.

    With m labelled samples per prompt and n ≤ m, the chosen sample's label is averaged over all subsets of n:
    :math:`b_n = \sum_r \binom{m-1-r}{n-1} y_{(r)} / \binom{m}{n}`, where :math:`y_{(r)}` is the label of the sample
    of rank r (0 has the largest reward; ties are averaged). The mean over prompts is unbiased for every n ≤ m.

    All pairs of 1, 2, 4, ... and the largest n are compared. The limits of their differences hold for all of them
    at once: their level comes from a multiplier bootstrap of the largest deviation.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards and labels of each prompt's samples; see `load_scores`. Prompts with a sample without a label
        are left out.
    second : Scores, DataFrame or path, optional
        A second judge of the same samples, to compare.
    up_to : int, optional
        The largest n. Prompts with fewer samples are left out. Default: the largest that nine of ten prompts have.
    cost : float, optional
        The cost of a sample, as a fraction of the worth of a right answer. "Enough" then means that no larger
        number gains more than its samples cost. Default: enough if no larger number gains more than one point.
    level : float
        Level of the intervals.
    seed : int
        Seed of the bootstrap.

    Returns
    -------
    BestOfN
        Its ``table`` has one row per n:

        - ``right``: how often the best of n is correct, with ``low`` and ``high``, which hold for all n at once,
        - ``says``: the mean stated probability of the chosen sample; empty if the rewards state none,
        - ``pass_at_n``: how often at least one of n samples is correct, which no judge can exceed,
        - ``second_right``, ``difference`` (second − first), ``difference_low`` and ``difference_high``, with
          ``second``.

        Its ``useful_up_to``, ``enough_at`` and ``over_optimised_from`` are numbers of samples.

    References
    ----------
    Chen et al. (2021), Evaluating large language models trained on code (pass@k). Gao, Schulman and Hilton (2023),
    Scaling laws for reward model overoptimization.

    Examples
    --------
    >>> from rmcalib import Scores
    >>> rng = np.random.default_rng(0)
    >>> correct = rng.random((200, 8)) < 0.4
    >>> found = best_of_n(Scores.from_arrays(2.0 * correct + rng.normal(size=(200, 8)), correct))
    >>> found.table.columns.tolist()
    ['n', 'right', 'low', 'high', 'says', 'pass_at_n']
    >>> found.useful_up_to, found.over_optimised_from
    (8, None)
    """
    check_level(level)
    if cost is not None and not 0 <= cost < 1:
        raise ValueError(f"cost: {cost} is not a fraction of the worth of a right answer, such as 0.01")
    given = [load_scores(each) for each in ((scores,) if second is None else (scores, second))]
    for each in given:
        if each.labels is None:
            raise ValueError(f"{each.name}: {each.refusal()}")
    of_chosen = [BEST_OF in each.extra for each in given]
    if any(of_chosen):
        if second is not None or up_to is not None:
            what = "up_to" if second is None else "second"
            raise ValueError(
                f'{what}: only the chosen samples are labelled; label all samples of each prompt (ask="correct")'
            )
        return _best_of_chosen(whole_part(given[0]), level, seed)
    parts = [whole_part(each) for each in (given if second is None else on_common_prompts(given))]
    kept, most, notes = with_enough_samples(parts[0], up_to)
    part, *others = (each if kept.all() else each.take(kept) for each in parts)
    n = numbers_of_samples(most)
    right = _best_values(part, part.label, n)
    stated, no_says = _stated(part)
    rows = _rows(part, n, right, stated, level, seed)
    for other in others:
        _add_second(rows, n, right, other, part.cluster, level, seed)
    compared = doubled(most)
    gains = gains_of(
        right[:, np.isin(n, compared)], compared, part.sizes, part.cluster, level=level, seed=seed
    )
    names = [each.name for each in given]
    return BestOfN(
        name=names[0],
        n_prompts=len(part),
        n_clusters=part.n_clusters,
        rows=rows,
        gains=_gain_rows(gains),
        useful_up_to=gains.useful_up_to(),
        enough_at=gains.enough_at(TOLERANCE) if cost is None else gains.enough_at(0.0, cost),
        over_optimised_from=gains.over_optimised_from(),
        labels="correct" if part.scores.view == "pointwise" else "best",
        level=level,
        cost=cost,
        no_says=no_says,
        notes=notes,
        second=names[1] if len(names) > 1 else None,
    )


def _best_of_chosen(whole: Part, level: float, seed: int) -> BestOfN:
    """Return how often the best of all samples is right, where only the chosen ones are labelled."""
    size = whole.scores.extra[BEST_OF][whole.starts].astype(np.int64)
    labelled = ~np.isnan(whole.label)
    if not labelled.any():
        raise ValueError("no chosen sample has a label")
    most = int(np.bincount(size[labelled]).argmax())
    kept = labelled & (size == most)
    part = whole.take(kept)
    stated, no_says = _stated(part)
    single = np.ones(1, dtype=np.int64)
    (row,) = _rows(part, single, _best_values(part, part.label, single), stated, level, seed)
    notes = ["Only the chosen sample of each prompt is labelled, so nothing is known about fewer samples."]
    if other := int((labelled & ~kept).sum()):
        notes.append(
            f"{count(other, 'labelled prompt')} with another number of samples than {most}: left out."
        )
    return BestOfN(
        name=whole.scores.name,
        n_prompts=len(part),
        n_clusters=part.n_clusters,
        rows=[row | {"n": most, "pass_at_n": None}],
        gains=[],
        useful_up_to=1,
        enough_at=None,
        over_optimised_from=None,
        labels="chosen",
        level=level,
        cost=None,
        no_says=no_says,
        notes=notes,
    )


def _best_values(part: Part, values: FloatArray, n: IntArray, order: FloatArray | None = None) -> FloatArray:
    """Return the values of the best of n by reward, or by another ``order`` (N,): (prompts, K).

    Where prompts were drawn with unequal probabilities, c + w (x − c) takes the place of each number x, where c is the
    weighted mean, so that means and their deviations are those of weighted means.
    """
    best = best_of_values(part.reward if order is None else order, values, part.sizes, n)
    if part.weight is None:
        return best
    weight = part.weight[:, None]
    centre = (weight * best).mean(axis=0)
    return np.asarray(centre + weight * (best - centre))


def with_enough_samples(part: Part, up_to: int | None) -> tuple[Any, int, list[str]]:
    """Return which prompts are used (n,), the largest number of samples, and what was left out."""
    labelled = np.logical_and.reduceat(~np.isnan(part.label), part.starts)
    if not labelled.any():
        raise ValueError("no prompt has a label for each of its samples; give scores of labelled samples")
    sizes = part.sizes[labelled]
    largest = int(sizes.max())
    if up_to is not None:
        most = check_integer(up_to, "up_to", 1)
        if most > largest:
            raise ValueError(
                f"up_to: {most} is more than the {largest} samples per prompt; nothing is known beyond them"
            )
    else:
        most = int(np.sort(sizes)[int(np.floor((1 - _USUAL) * len(sizes)))])
    kept = labelled & (part.sizes >= most)
    notes = []
    if not labelled.all():
        notes.append(f"{count(int((~labelled).sum()), 'prompt')} with samples without a label: left out.")
    few = int((labelled & ~kept).sum())
    if few:
        notes.append(f"{count(few, 'prompt')} with fewer than {most} samples: left out.")
    if too_few_clusters(part.cluster if kept.all() else part.take(kept).cluster):
        notes.append("There are too few clusters, or one is too large, for intervals.")
    return kept, most, notes


def _stated(part: Part) -> tuple[FloatArray | None, str]:
    """Return the stated probability of each sample (N,), or None and the reason why there is none."""
    reason = part.scores.refusal()
    if reason is not None:
        return None, reason
    return (np.exp(part.log_p) if part.scores.view == "top_1" else part.pointwise.p), ""


def _gain_rows(gains: Gains) -> list[dict[str, Any]]:
    """Return one row per pair of numbers of samples."""
    return [
        {
            "fewer": int(gains.fewer[i]),
            "more": int(gains.more[i]),
            "gain": float(gains.value[i]),
            "low": _known(gains.low[i]),
            "high": _known(gains.high[i]),
        }
        for i in range(len(gains.value))
    ]


def _known(limit: float) -> float | None:
    return float(limit) if np.isfinite(limit) else None


def _rows(
    part: Part, n: IntArray, right: FloatArray, stated: FloatArray | None, level: float, seed: int
) -> list[dict[str, Any]]:
    """Return one row per number of samples."""
    says = None if stated is None else _best_values(part, stated, n).mean(axis=0)
    ceiling = _best_values(part, part.label, n, part.label).mean(axis=0)
    limits = curve_limits(right, part.cluster, level=level, seed=seed)
    return [
        {
            "n": int(number),
            "right": float(right[:, i].mean()),
            "low": _known(limits[i][0]),
            "high": _known(limits[i][1]),
            "says": None if says is None else float(says[i]),
            "pass_at_n": float(ceiling[i]),
        }
        for i, number in enumerate(n)
    ]


def _add_second(
    rows: list[dict[str, Any]],
    n: IntArray,
    right: FloatArray,
    other: Part,
    cluster: IntArray | None,
    level: float,
    seed: int,
) -> None:
    """Add what the second judge reaches, and the difference with limits that hold for all n at once."""
    second = _best_values(other, other.label, n)
    moved, possible = second - right, largest_disagreements(n, other.sizes)
    low, high = difference_limits(moved, possible, cluster, level=level, seed=seed)
    for i, row in enumerate(rows):
        row |= {
            "second_right": float(second[:, i].mean()),
            "difference": float(moved[:, i].mean()),
            "difference_low": _known(low[i]),
            "difference_high": _known(high[i]),
        }

"""Rewards of different things, joined: the probability that all hold; and how much rewards disagree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
from scipy.special import log_expit

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration import mean_interval
from rmcalib.calibration.intervals import check_level
from rmcalib.metrics.comparison import named_scores, on_common_prompts
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import whole_part
from rmcalib.repair.calibration import documented
from rmcalib.repair.calibrator import Calibrator, Input, fit_pointwise, labelled_part, says_nothing
from rmcalib.scores import Scores

_MOST_PAIRS = 5_000_000  # that are compared at a time


@dataclass(frozen=True, repr=False)
class Joined(Shown):
    """The result of `all_hold`: one calibrator for rewards of different things.

    Attributes
    ----------
    members : list[dict[str, Any]]
        One row per reward: judge, n (labelled prompts), temperature, low, high, threshold, b_low, b_high, and its
        share of the spread of Σ log p_k within prompts, None if the rewards have no prompts in common.
    disagreements : list[dict[str, Any]]
        One row per two rewards; see `disagreements`. Empty if they have no prompts in common.
    n : int
        Number of prompts that all rewards have.
    calibrator : Calibrator
        It takes all rewards: P(all hold) = Π_k σ((r_k − b_k)/T_k).
    """

    members: list[dict[str, Any]]
    disagreements: list[dict[str, Any]]
    n: int
    calibrator: Calibrator

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the members."""
        return self.members

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.panels import joined_document

        return joined_document(self)

    def __repr__(self) -> str:
        """Return the calibrator's lines."""
        return repr(self.calibrator)


def all_hold(
    scores: Sequence[Any] | Mapping[str, Any], *, names: Sequence[str] | None = None, level: float = 0.95
) -> Joined:
    """Join rewards of different things, such as helpful, safe and short: P(all hold) = Π_k σ((r_k − b_k)/T_k).

    Each reward gets its own T and b, fitted on its own labels, which say of each response whether this one thing
    holds. The product is the probability that all hold if they are independent given their rewards. Its
    logarithm Σ_k log p_k as a reward (``output="log_p"`` of `Reward`) cannot be raised without limit by one
    reward: one that is certain adds nothing more [1]_.

    Parameters
    ----------
    scores : sequence, or mapping from names
        The scores of two or more judges, labelled response by response; as for `combine`. They may be of different
        prompts.
    names : Sequence[str], optional
        The names of the judges; default those in the manifests.
    level : float
        Confidence level of the intervals.

    Returns
    -------
    Joined
        ``.calibrator`` takes the rewards of all judges, and ``.disagreements`` shows how often they disagree.

    References
    ----------
    .. [1] Wang et al. (2024), Transforming and Combining Rewards for Aligning Large Language Models.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rewards = {name: rng.normal(size=(300, 2)) for name in ("helpful", "safe")}
    >>> scores = {name: Scores.from_arrays(x, rng.random((300, 2)) < 1 / (1 + np.exp(-2 * x))).labelled_as("correct")
    ...           for name, x in rewards.items()}
    >>> joined = all_hold(scores)
    >>> joined.calibrator.p_correct([[3.0, 3.0], [3.0, -3.0]]).round(1).tolist()
    [1.0, 0.0]
    >>> [round(row["disagree"], 1) for row in joined.disagreements]
    [0.5]
    """
    check_level(level)
    judges = named_scores(scores, names, least=2)
    fits = {name: _fitted(name, each, level) for name, each in judges.items()}
    common = _on_common_responses(list(judges.values()))
    shares: list[float | None] = [None] * len(judges)
    disagree: list[dict[str, Any]] = []
    if common:
        terms = [log_expit(fit.logit(each.reward)) for fit, each in zip(fits.values(), common, strict=True)]
        shares = [*spread_shares(np.stack(terms), np.diff(common[0].offsets))]
        disagree = disagreements(common, list(judges), level)
    members = [
        {
            "judge": name,
            "n": fit.fitted_on["n"],
            "share": share,
            "temperature": fit.temperature,
            "low": fit.low,
            "high": fit.high,
            "threshold": fit.threshold,
            "b_low": fit.threshold_low,
            "b_high": fit.threshold_high,
        }
        for (name, fit), share in zip(fits.items(), shares, strict=True)
    ]
    inputs = [
        Input(name, 1.0, None, None, fit.reference[0], fit.reference[-1], fit.temperature, fit.threshold)
        for name, fit in fits.items()
    ]
    calibrator = Calibrator(
        1.0,
        1.0,
        1.0,
        level,
        threshold=0.0,
        model=f"all of {len(judges)} rewards",
        fitted_on={
            "n": min(row["n"] for row in members),
            "inputs": [dict(fit.fitted_on) for fit in fits.values()],
        },
        versions=next(iter(fits.values())).versions,
        inputs=tuple(inputs),
    )
    return Joined(members, disagree, common[0].n_items if common else 0, calibrator)


def _fitted(name: str, scores: Scores, level: float) -> Calibrator:
    """Return the calibrator of one reward, or a ValueError that names it."""
    if (reason := scores.refusal("fit")) is not None:
        raise ValueError(f"{name}: cannot be joined: {reason}")
    if scores.view != "pointwise":
        raise ValueError(
            f"{name}: its labels name the best response of a prompt; to join rewards of different things, they must "
            'say of each response whether it is correct (a column correct, or labels_are="correct")'
        )
    part = labelled_part(whole_part(scores), "labelled")
    fit = documented(fit_pointwise(part, level), scores, part)
    if says_nothing(fit.temperature, part.reward):
        raise ValueError(
            f"{name}: its rewards do not clearly rise with its labels, so they give no probability"
        )
    return fit


def _on_common_responses(every: Sequence[Scores]) -> list[Scores]:
    """Return the scores of the prompts that all have, whatever their labels; empty if there are none."""
    try:
        return on_common_prompts([replace(each, label=np.full(len(each), np.nan)) for each in every])
    except ValueError:  # other prompts, or other responses to them
        return []


def disagreements(
    common: Sequence[Scores], names: Sequence[str], level: float = 0.95
) -> list[dict[str, Any]]:
    """Return how often each two rewards put two responses to a prompt into opposite orders.

    Parameters
    ----------
    common : sequence of Scores
        The rewards of the same responses.
    names : sequence of str
        Their names.
    level : float
        Confidence level of the intervals, with prompts (or their clusters) as the sampling unit.

    Returns
    -------
    list of dict
        Rows of judge, other, disagree (the fraction of a prompt's pairs, averaged over prompts with two responses
        or more), low, high.
    """
    sizes = np.diff(common[0].offsets)
    several = sizes > 1
    cluster = whole_part(common[0]).cluster
    rows = []
    for a, b in combinations(range(len(common)), 2):
        share = opposite_pairs(common[a].reward, common[b].reward, sizes)[several]
        interval = mean_interval(share, clusters=None if cluster is None else cluster[several], level=level)
        row = {"judge": names[a], "other": names[b], "disagree": interval.value}
        rows.append({**row, "low": interval.low, "high": interval.high})
    return rows


def opposite_pairs(first: FloatArray, second: FloatArray, sizes: IntArray) -> FloatArray:
    """Return the fraction of each prompt's pairs (n,) that two rewards (N,) order oppositely; ties are not opposite.

    >>> opposite_pairs(np.array([1.0, 2, 3, 1, 1]), np.array([1.0, 3, 2, 0, 1]), np.array([3, 2])).round(2).tolist()
    [0.33, 0.0]
    """
    starts, result = np.cumsum(sizes) - sizes, np.full(len(sizes), np.nan)
    for m in np.unique(sizes[sizes > 1]).tolist():
        prompts = np.flatnonzero(sizes == m)
        for chunk in np.array_split(prompts, 1 + len(prompts) * m * m // _MOST_PAIRS):
            rows = starts[chunk, None] + np.arange(m)
            x, y = first[rows], second[rows]
            opposite = (x[:, :, None] - x[:, None, :]) * (y[:, :, None] - y[:, None, :]) < 0
            result[chunk] = opposite.sum(axis=(1, 2)) / (m * (m - 1))
    return result


def spread_shares(terms: FloatArray, sizes: IntArray) -> FloatArray:
    """Return each term's share (J,) of the variance of a sum of terms (J, N) within prompts; they add up to 1.

    >>> spread_shares(np.array([[1.0, -1.0, 0.0, 0.0], [0.0, 0.0, 3.0, -3.0]]), np.array([2, 2])).tolist()
    [0.1, 0.9]
    """
    means = np.add.reduceat(terms, np.cumsum(sizes) - sizes, axis=1) / sizes
    inner = terms - np.repeat(means, sizes, axis=1)
    total = inner.sum(axis=0)
    spread = float(total @ total)
    return np.asarray(inner @ total / spread if spread else np.full(len(terms), np.nan))

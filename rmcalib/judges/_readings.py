"""Readings of answers: the labels that a language model chose, or their log-probabilities, become rewards.

A question is about all responses at once (the best one, by its place in an order) or about one response
(correct or not, a grade). Its answers are log-probabilities of the labels, or sampled votes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.scores import Scores


@dataclass(frozen=True)
class Reading:
    """The rewards of a prompt's responses (k,), and details by name, each (k,)."""

    rewards: FloatArray
    details: Mapping[str, FloatArray]


def placements(n_responses: int, count: int | None, *, seed: int, item_id: str) -> IntArray:
    """Return the orders in which responses are shown: one shuffled order, and cyclic shifts of it.

    The first order is shuffled, because benchmarks list correct responses first. With `n_responses` shifts,
    every response is in every place once.

    Parameters
    ----------
    n_responses : int
        Number of responses, k.
    count : int, optional
        Number of orders. Default: k. A smaller number is spread evenly over the shifts.
    seed, item_id
        Seed and prompt id, which determine the first order.

    Returns
    -------
    int array (count, k)
        The response in each place.

    Examples
    --------
    >>> orders = placements(3, None, seed=0, item_id="a")
    >>> np.sort(orders, axis=0).tolist()
    [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    """
    digest = hashlib.sha256(f"{seed}\0{item_id}".encode("utf-8", "surrogatepass")).digest()
    first = np.random.default_rng(int.from_bytes(digest[:8], "big")).permutation(n_responses)
    rows = n_responses if count is None else min(count, n_responses)
    shifts = np.arange(rows) * n_responses // rows
    return np.stack([np.roll(first, -shift) for shift in shifts]).astype(np.int64)


def best_by_tokens(orders: IntArray, logprobs: FloatArray, floored: BoolArray) -> Reading:
    """Return the log of the probability that each response is the best, averaged over placements.

    In each placement, the probabilities of the letters are divided by their sum. The forecast of a response
    is the mean of its probabilities over the placements.

    Parameters
    ----------
    orders : int (s, k)
        The response in each place.
    logprobs : float array (s, k)
        The log-probability of each place's letter.
    floored : bool (s, k)
        Whether that is only an upper bound.

    Returns
    -------
    Reading
        `place[i]` is the mean probability of place i. `firsts` counts the placements in which the response is
        the first choice. `floor` is the part of the forecast that is only an upper bound. `mass` is the
        probability of all letters together.

    Examples
    --------
    >>> orders = np.array([[0, 1], [1, 0]])
    >>> reading = best_by_tokens(orders, np.log([[0.6, 0.2], [0.3, 0.3]]), np.zeros((2, 2), bool))
    >>> np.exp(reading.rewards).round(3).tolist(), reading.details["place"].round(3).tolist()
    ([0.625, 0.375], [0.625, 0.375])
    """
    s, k = orders.shape
    p = _normalised(logprobs)
    total, floor, firsts = np.zeros(k), np.zeros(k), np.zeros(k)
    np.add.at(total, orders, p / s)
    np.add.at(floor, orders, p * floored / s)
    np.add.at(firsts, orders[np.arange(s), p.argmax(axis=1)], 1.0)
    mass = np.full(k, np.exp(logprobs).sum(axis=1).mean())
    details = {"place": p.mean(axis=0), "firsts": firsts, "floor": floor, "mass": mass}
    return Reading(np.log(np.maximum(total, 1e-300)), details)


def best_by_votes(orders: IntArray, votes: Sequence[int | None], smoothing: float) -> Reading:
    """Return the log of the smoothed fraction of votes, (v + a) / (n + k a), for each response.

    n is the number of votes that could be read.

    Parameters
    ----------
    orders : int (s, k)
        The response in each place. Vote j was asked for in order j mod s.
    votes : Sequence[int | None]
        The place that each answer chose; None if the answer could not be read.
    smoothing : float
        The a in the formula.

    Returns
    -------
    Reading
        `votes` is the number of votes for the response, `vote_count` that of all votes that were read, and
        `place` the fraction of votes for the place. `low` and `high` are the 95% interval of the fraction
        that infinitely many votes would give, from a Dirichlet distribution with parameters v + a.

    Examples
    --------
    >>> reading = best_by_votes(np.array([[0, 1], [1, 0]]), [0, 0, None, 1], 0.5)
    >>> reading.details["votes"].tolist(), np.exp(reading.rewards).round(3).tolist()
    ([2.0, 1.0], [0.625, 0.375])
    """
    k = orders.shape[1]
    counts, places = np.zeros(k), np.zeros(k)
    for number, place in enumerate(votes):
        if place is not None:
            counts[orders[number % len(orders), place]] += 1
            places[place] += 1
    n = counts.sum()
    share = places / n if n else np.full(k, math.nan)
    forecast = (counts + smoothing) / (n + k * smoothing)
    low, high = _share_interval(counts + smoothing, n - counts + (k - 1) * smoothing)
    details = {"votes": counts, "place": share, "vote_count": np.full(k, n), "low": low, "high": high}
    return Reading(np.log(forecast), details)


def correct_by_tokens(logprobs: FloatArray, floored: BoolArray) -> Reading:
    """Return the logit of P(yes) = p(yes) / (p(yes) + p(no)) for each response.

    Parameters
    ----------
    logprobs : float array (k, 2)
        log p(yes) and log p(no) of each response.
    floored : bool array (k, 2)
        Whether each of them is only an upper bound.

    Examples
    --------
    >>> reading = correct_by_tokens(np.log([[0.6, 0.2], [0.1, 0.1]]), np.zeros((2, 2), bool))
    >>> reading.details["p_yes"].tolist(), reading.rewards.round(3).tolist()
    ([0.75, 0.5], [1.099, 0.0])
    """
    p = _normalised(logprobs)
    details = {"p_yes": p[:, 0], "floor": (p * floored).sum(axis=1), "mass": np.exp(logprobs).sum(axis=1)}
    return Reading(logprobs[:, 0] - logprobs[:, 1], details)


def correct_by_votes(votes: Sequence[Sequence[int | None]], smoothing: float) -> Reading:
    """Return the logit of the smoothed fraction of yes, (v + a) / (n + 2 a), for each response.

    >>> correct_by_votes([[0, 0, 1, None], [None, None]], 0.5).details["p_yes"].tolist()
    [0.625, 0.5]
    """
    yes = np.array([sum(vote == 0 for vote in own) for own in votes], dtype=np.float64)
    n = np.array([sum(vote is not None for vote in own) for own in votes], dtype=np.float64)
    p = (yes + smoothing) / (n + 2 * smoothing)
    low, high = _share_interval(yes + smoothing, n - yes + smoothing)
    details = {"p_yes": p, "votes": yes, "vote_count": n, "low": low, "high": high}
    return Reading(np.log(p) - np.log1p(-p), details)


def rating_by_tokens(logprobs: FloatArray, floored: BoolArray, grades: FloatArray) -> Reading:
    """Return the expected grade, Σ g p(g) / Σ p(g), for each response.

    >>> rating_by_tokens(np.log([[0.2, 0.6]]), np.zeros((1, 2), bool), np.array([1.0, 2.0])).rewards.tolist()
    [1.75]
    """
    p = _normalised(logprobs)
    details = {"floor": (p * floored).sum(axis=1), "mass": np.exp(logprobs).sum(axis=1)}
    return Reading(p @ grades, details)


def rating_by_votes(votes: Sequence[Sequence[int | None]], grades: FloatArray) -> Reading:
    """Return the mean of the grades that could be read, for each response; the middle grade if there is none.

    >>> rating_by_votes([[0, 1, None], [None]], np.array([1.0, 2.0, 5.0])).rewards.tolist()
    [1.5, 3.0]
    """
    middle = (grades.min() + grades.max()) / 2
    read = [[grades[vote] for vote in own if vote is not None] for own in votes]
    rewards = np.array([np.mean(own) if own else middle for own in read])
    return Reading(rewards, {"vote_count": np.array([len(own) for own in read], dtype=np.float64)})


def answers_summary(scores: Scores) -> dict[str, Any]:
    """Summarise the answers of a language model that judged, for the manifest.

    Parameters
    ----------
    scores : Scores
        Scores of a `GenerativeJudge`.

    Returns
    -------
    dict
        Empty for other judges. Otherwise:

        - `answers`, `unread`, `floored`, `tokens`: totals.
        - `label_mass`: mean probability of all labels together.
        - `votes`: the smallest, mean and largest number of votes that were read per question.
        - `largest_floor`: how much a probability can change, at most, because labels have only upper bounds.
        - `places`: for prompts with the most frequent number k of responses, the mean probability of each
          place with its standard error (1/k without position bias), the largest difference from 1/k (`bias`),
          and the fraction of prompts whose answers do not all choose the same response (`choice_moves`).

    Examples
    --------
    >>> scores = Scores.from_arrays([[0.0, 1.0]])
    >>> answers_summary(scores)
    {}
    """
    details = scores.details
    if "answers" not in details:
        return {}
    summary: dict[str, Any] = {
        name: int(np.nansum(details[name])) for name in ("answers", "unread", "floored", "tokens")
    }
    if "mass" in details and np.isfinite(details["mass"]).any():
        summary["label_mass"] = float(np.nanmean(details["mass"]))
    if "floor" in details and summary["floored"]:
        summary["largest_floor"] = _largest_floor(scores)
    if "vote_count" in details and np.isfinite(details["vote_count"]).any():
        counts = details["vote_count"]
        summary["votes"] = [int(np.nanmin(counts)), float(np.nanmean(counts)), int(np.nanmax(counts))]
    places = _places(scores)
    return {**summary, **({"places": places} if places else {})}


def _share_interval(ours: FloatArray, others: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the 95% limits of Beta(ours, others)."""
    from scipy.special import betaincinv

    low, high = (betaincinv(ours, others, level).astype(np.float64) for level in (0.025, 0.975))
    return low, high


def _normalised(logprobs: FloatArray) -> FloatArray:
    """Return probabilities that sum to 1 in each row."""
    from scipy.special import softmax

    return np.asarray(softmax(logprobs, axis=-1))


def _largest_floor(scores: Scores) -> float:
    """Return the largest probability of labels with only an upper bound, over all questions."""
    floor, starts = np.nan_to_num(scores.details["floor"]), scores.offsets[:-1]
    together = np.isfinite(np.add.reduceat(scores.details.get("place", np.full(len(floor), np.nan)), starts))
    each = np.maximum.reduceat(floor, starts)
    return float(np.where(together, np.add.reduceat(floor, starts), each).max())


def _places(scores: Scores) -> dict[str, Any]:
    """Describe position bias on the prompts with the most frequent number of responses."""
    place = scores.details.get("place")
    if place is None:
        return {}
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    known = np.isfinite(np.add.reduceat(place, starts))
    if not known.any():
        return {}
    k = int(np.bincount(sizes[known]).argmax())
    chosen = starts[known & (sizes == k)]
    table = place[chosen[:, None] + np.arange(k)]
    n = len(table)
    means = table.mean(axis=0)
    errors = table.std(axis=0, ddof=1) / np.sqrt(n) if n > 1 else np.full(k, np.nan)
    described: dict[str, Any] = {
        "prompts": n,
        "mean_probability": means.round(6).tolist(),
        "standard_error": [None if np.isnan(error) else round(float(error), 6) for error in errors],
        "bias": float(np.abs(means - 1 / k).max()),
    }
    votes = scores.details.get("firsts", scores.details.get("votes"))
    if votes is not None:
        counts = votes[chosen[:, None] + np.arange(k)]
        described["choice_moves"] = float((counts.max(axis=1) < counts.sum(axis=1)).mean())
    return described

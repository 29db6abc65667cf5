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
from rmcalib.judges._questions import Question


@dataclass(frozen=True)
class Reading:
    """The rewards of a prompt's responses (k,), and details by name, each (k,)."""

    rewards: FloatArray
    details: Mapping[str, FloatArray]


def placements(n_responses: int, count: int | None, *, seed: int, item_id: str) -> IntArray:
    """Return the orders in which responses are shown, (count, k): one shuffled order, and cyclic shifts of it.

    The first order is shuffled, because benchmarks list correct responses first. With k shifts, the default,
    every response is in every place once. Fewer are spread evenly over the shifts.

    >>> orders = placements(3, None, seed=0, item_id="a")
    >>> np.sort(orders, axis=0).tolist()
    [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
    """
    digest = hashlib.sha256(f"{seed}\0{item_id}".encode("utf-8", "surrogatepass")).digest()
    first = np.random.default_rng(int.from_bytes(digest[:8], "big")).permutation(n_responses)
    rows = n_responses if count is None else min(count, n_responses)
    shifts = np.arange(rows) * n_responses // rows
    return np.stack([np.roll(first, -shift) for shift in shifts]).astype(np.int64)


def read_tokens(
    question: Question, logprobs: FloatArray, floored: BoolArray, orders: IntArray | None = None
) -> Reading:
    """Return rewards from the log-probabilities of labels, which are divided by their sum in each answer.

    - `best`: the log of the probability that a response is the best, averaged over the orders.
    - `correct`: the logit of P(yes) = p(yes) / (p(yes) + p(no)).
    - `rating`: the expected grade, Σ g p(g) / Σ p(g).

    Parameters
    ----------
    question : Question
        The question.
    logprobs : float array (answers, labels)
        The log-probability of each label. For `best`, an answer is about an order; otherwise about a response.
    floored : bool array (answers, labels)
        Whether it is only an upper bound.
    orders : int array (answers, k)
        For `best`, the response in each place.

    Returns
    -------
    Reading
        `place[i]` is the mean probability of place i, `floor` the part of a forecast that is only an upper
        bound, and `mass` the probability of all labels together.

    Examples
    --------
    >>> from rmcalib.judges._questions import BUILT_IN, read_prompt
    >>> (question,) = read_prompt(BUILT_IN / "letter.yaml").questions
    >>> orders = np.array([[0, 1], [1, 0]])
    >>> reading = read_tokens(question, np.log([[0.6, 0.2], [0.3, 0.3]]), np.zeros((2, 2), bool), orders)
    >>> np.exp(reading.rewards).round(3).tolist(), reading.details["place"].round(3).tolist()
    ([0.625, 0.375], [0.625, 0.375])
    """
    from scipy.special import softmax

    p = np.asarray(softmax(logprobs, axis=1))
    floor, mass = p * floored, np.exp(logprobs).sum(axis=1)
    if orders is not None:
        place_of = np.argsort(orders, axis=1)
        forecast, bound = (np.take_along_axis(each, place_of, axis=1).mean(axis=0) for each in (p, floor))
        details = {"place": p.mean(axis=0), "floor": bound, "mass": np.full(len(forecast), mass.mean())}
        return Reading(np.log(np.maximum(forecast, 1e-300)), details)
    details = {"floor": floor.sum(axis=1), "mass": mass}
    if question.asks == "correct":
        return Reading(logprobs[:, 0] - logprobs[:, 1], {"p_yes": p[:, 0], **details})
    return Reading(p @ np.array(question.labels, dtype=np.float64), details)


def read_votes(
    question: Question, votes: Sequence[int | None], n_responses: int, orders: IntArray | None = None
) -> Reading:
    """Return rewards from sampled votes; n is the number of those that could be read.

    - `best`: the log of the smoothed fraction of votes, (v + a) / (n + k a).
    - `correct`: the logit of the smoothed fraction of yes, (v + a) / (n + 2 a).
    - `rating`: the mean grade, or the middle one if no grade could be read.

    Parameters
    ----------
    question : Question
        The question, with `smoothing` a.
    votes : Sequence[int | None]
        The label that each answer chose; None if it could not be read. For `best`, vote j was asked for in
        order j mod s; otherwise all votes about a response follow each other.
    n_responses : int
        Number of responses, k.
    orders : int array (s, k)
        For `best`, the response in each place.

    Returns
    -------
    Reading
        `votes` is the number of votes for the response, `vote_count` that of all votes that were read, and
        `place` the fraction of votes for the place. `low` and `high` are the 95% interval of the fraction
        that infinitely many votes would give, from a Dirichlet distribution with parameters v + a.

    Examples
    --------
    >>> from rmcalib.judges._questions import BUILT_IN, read_prompt
    >>> (question,) = read_prompt(BUILT_IN / "votes.yaml").questions
    >>> reading = read_votes(question, [0, 0, None, 1], 2, np.array([[0, 1], [1, 0]]))
    >>> reading.details["votes"].tolist(), np.exp(reading.rewards).round(3).tolist()
    ([2.0, 1.0], [0.625, 0.375])
    """
    if orders is not None:
        counts, places = np.zeros(n_responses), np.zeros(n_responses)
        for number, place in enumerate(votes):
            if place is not None:
                counts[orders[number % len(orders), place]] += 1
                places[place] += 1
        n = np.full(n_responses, counts.sum())
        p, details = _smoothed(counts, n, n_responses, question.smoothing)
        share = places / n if counts.any() else np.full(n_responses, math.nan)
        return Reading(np.log(p), {"place": share, **details})
    table = np.array(votes, dtype=np.float64).reshape(n_responses, -1)  # NaN: not read
    n = np.isfinite(table).sum(axis=1).astype(np.float64)
    if question.asks == "correct":
        p, details = _smoothed((table == 0).sum(axis=1), n, 2, question.smoothing)
        return Reading(np.log(p) - np.log1p(-p), {"p_yes": p, **details})
    grades = np.array(question.labels, dtype=np.float64)
    middle = (grades.min() + grades.max()) / 2
    given = [grades[row[np.isfinite(row)].astype(int)] for row in table]
    return Reading(np.array([each.mean() if len(each) else middle for each in given]), {"vote_count": n})


def _smoothed(votes: Any, n: FloatArray, choices: int, smoothing: float) -> tuple[FloatArray, dict[str, Any]]:
    """Return the smoothed fraction (v + a) / (n + choices a) of votes, and details with its 95% interval."""
    from scipy.special import betaincinv

    ours, all_of_them = votes + smoothing, n + choices * smoothing
    low, high = (betaincinv(ours, all_of_them - ours, level) for level in (0.025, 0.975))
    return ours / all_of_them, {"votes": votes, "vote_count": n, "low": low, "high": high}

"""Summarise the answers of a language model: how many could be read, and whether places matter."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.scores import Scores

__all__ = ["answers_summary"]


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

"""What a language model that judges answered: totals, position bias, and answers that could not be read."""

from __future__ import annotations

from typing import Any

import numpy as np

from rmcalib.scores._scores import Scores


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
        - `largest_floor`: how much a probability can change, at most, because labels have only upper bounds.
        - `places`: the mean probability of each place, over the prompts with the most frequent number k of
          responses. Without position bias, it is 1/k.

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
    if summary["floored"]:
        floor = np.nan_to_num(details["floor"])
        together = "place" in details  # then the forecasts of a prompt's responses sum to 1
        summary["largest_floor"] = float(
            (np.add.reduceat(floor, scores.offsets[:-1]) if together else floor).max()
        )
    if "place" in details:
        starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
        placed = np.isfinite(np.add.reduceat(details["place"], starts))
        if placed.any():
            k = int(np.bincount(sizes[placed]).argmax())
            first = starts[placed & (sizes == k)]
            means = details["place"][first[:, None] + np.arange(k)].mean(axis=0)
            summary["places"] = {"prompts": len(first), "mean_probability": means.round(6).tolist()}
    return summary

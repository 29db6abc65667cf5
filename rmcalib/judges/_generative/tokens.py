"""Read the log-probabilities of labels from the answer of a chat API."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rmcalib.judges._generative.prompts import spellings

__all__ = ["completed", "floor_of", "log_sum", "possible", "shown_tokens", "sum_of", "used_tokens"]

_LEAST = -9999.0  # vLLM's value for a token that a grammar forbids
_IMPOSSIBLE = -1000.0


def shown_tokens(answer: Any) -> dict[str, float]:
    """Return the log-probabilities of an answer's first token; empty if there are none."""
    try:
        rows = answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
        found = {str(row["token"]): float(row["logprob"]) for row in rows}
    except (KeyError, IndexError, TypeError, ValueError):
        return {}
    return {token: max(min(value, 0.0), _LEAST) for token, value in found.items() if not math.isnan(value)}


def possible(shown: Mapping[str, float]) -> dict[str, float]:
    """Leave out tokens that a grammar forbids."""
    return {token: value for token, value in shown.items() if value > _IMPOSSIBLE}


def sum_of(shown: Mapping[str, float], label: str) -> float | None:
    """Return log p of a label, summed over its spellings; None if none of them is shown."""
    known = {spelling.strip() for spelling in spellings(label)}
    values = [value for token, value in shown.items() if token.strip(" \u2581\n") in known]
    return log_sum(values) if values else None


def completed(
    shown: Mapping[str, float],
    labels: Sequence[str],
    values: Sequence[float | None],
    choice: Mapping[str, float],
) -> list[float | None]:
    """Fill in missing labels from `choice`, the log-probabilities of an answer that had to be a label.

    `choice` gives the odds between labels. A label that both answers show gives the scale. If no label is
    shown, the likeliest gets its upper bound (`floor_of`).

    >>> shown, choice = {"A": -1.0, "x": -2.0}, {"A": -0.1, "B": -2.4}
    >>> completed(shown, ["A", "B"], [-1.0, None], choice)
    [-1.0, -3.3]
    """
    anchor = next((label for label in labels if label in shown and label in choice), None)
    if anchor is not None:
        offset = shown[anchor] - choice[anchor]
    elif choice and not any(value is not None for value in values):
        offset = floor_of(shown) - max(choice.values())
    else:
        return list(values)
    return [
        choice[label] + offset if value is None and label in choice else value
        for label, value in zip(labels, values, strict=True)
    ]


def log_sum(values: Sequence[float]) -> float:
    """Return the log of a sum of probabilities, from their logs."""
    top = max(values)
    return top + math.log(sum(math.exp(value - top) for value in values))


def used_tokens(answer: Any) -> int:
    """Return the number of tokens of request and answer; 0 if the server does not report it."""
    usage = answer.get("usage") if isinstance(answer, Mapping) else None
    total = usage.get("total_tokens") if isinstance(usage, Mapping) else None
    return total if isinstance(total, int) and 0 <= total < 2**53 else 0


def floor_of(shown: Mapping[str, float]) -> float:
    """Return the log of the largest probability that a token outside the list can have.

    It is at most the probability of the least likely token in the list, and at most 1 minus the sum of the
    list.

    >>> round(math.exp(floor_of({"A": math.log(0.7), "B": math.log(0.2)})), 3)
    0.1
    """
    least = min(shown.values())
    left = 1 - sum(math.exp(value) for value in shown.values())
    # If rounding leaves nothing, the bound is still finite.
    return max(min(least, math.log(left) if left > 0 else -math.inf), least - 10)

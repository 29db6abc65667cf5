"""Slow reference implementations in plain Python. Nothing here calls the package."""

import math
from collections.abc import Callable, Sequence
from itertools import permutations

Ranking = tuple[int, ...]
Density = Callable[[Ranking], float]


def plackett_luce(utilities: Sequence[float]) -> Density:
    def density(order: Ranking) -> float:
        result = 1.0
        for place in range(len(order)):
            rest = [math.exp(utilities[item] - utilities[order[place]]) for item in order[place:]]
            result /= sum(rest)
        return result

    return density


def kendall(order: Ranking, center: Sequence[int]) -> int:
    place = {item: position for position, item in enumerate(center)}
    m = len(order)
    return sum(place[order[i]] > place[order[j]] for i in range(m) for j in range(i + 1, m))


def mallows(center: Sequence[int], dispersion: float) -> Density:
    total = sum(math.exp(-dispersion * kendall(order, center)) for order in permutations(range(len(center))))
    return lambda order: math.exp(-dispersion * kendall(order, center)) / total


def rank_classifier(listed: Sequence[Sequence[int]], logits: Sequence[float], unseen: float) -> Density:
    known = {tuple(order): logit for order, logit in zip(listed, logits, strict=True)}
    m = len(listed[0])
    total = sum(math.exp(known.get(order, unseen)) for order in permutations(range(m)))
    return lambda order: math.exp(known.get(order, unseen)) / total


def happens(order: Ranking, event: Sequence[int], family: str) -> bool:
    if family == "top":
        return tuple(order[: len(event)]) == tuple(event)
    places = [order.index(item) for item in event]
    return places == sorted(places)


def marginal(density: Density, m: int, event: Sequence[int], family: str) -> float:
    return math.fsum(density(order) for order in permutations(range(m)) if happens(order, event, family))


def ece(probabilities: Sequence[float], outcomes: Sequence[float], bins: int = 10) -> float:
    total = 0.0
    for b in range(bins):
        low, high = b / bins, (b + 1) / bins
        rows = [
            (p, y)
            for p, y in zip(probabilities, outcomes, strict=True)
            if low <= p < high or (b == bins - 1 and p == 1)
        ]
        if rows:
            confidence = sum(p for p, _ in rows) / len(rows)
            frequency = sum(y for _, y in rows) / len(rows)
            total += len(rows) / len(probabilities) * abs(frequency - confidence)
    return total

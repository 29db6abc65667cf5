"""The metrics of a report by plain loops over prompts and responses. Nothing here calls the package."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Prompt(NamedTuple):
    """One prompt: rewards, which responses are correct, lengths."""

    category: str
    rewards: list[float]
    correct: list[bool]
    lengths: list[float]


def probabilities(rewards: Sequence[float], temperature: float = 1.0) -> list[float]:
    top = max(rewards)
    weights = [math.exp((reward - top) / temperature) for reward in rewards]
    return [weight / sum(weights) for weight in weights]


def pooled(prompts: Sequence[Prompt], temperature: float = 1.0) -> list[tuple[float, bool]]:
    rows = []
    for prompt in prompts:
        rows += list(zip(probabilities(prompt.rewards, temperature), prompt.correct, strict=True))
    return rows


def bins_of(rows: Sequence[tuple[float, bool]]) -> list[list[tuple[float, bool]]]:
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(10)]
    for p, happened in rows:
        number = next((b for b in range(9) if p < (b + 1) / 10), 9)
        bins[number].append((p, happened))
    return [content for content in bins if content]


def ece(rows: Sequence[tuple[float, bool]]) -> float:
    total = 0.0
    for content in bins_of(rows):
        confidence = sum(p for p, _ in content) / len(content)
        frequency = sum(happened for _, happened in content) / len(content)
        total += len(content) / len(rows) * abs(frequency - confidence)
    return total


def debiased_ece(rows: Sequence[tuple[float, bool]]) -> float:
    total = 0.0
    for content in bins_of(rows):
        n = len(content)
        if n == 1:
            continue
        confidence = sum(p for p, _ in content) / n
        frequency = sum(happened for _, happened in content) / n
        total += n / len(rows) * ((frequency - confidence) ** 2 - frequency * (1 - frequency) / (n - 1))
    return math.sqrt(max(total, 0.0))


def accuracy(prompts: Sequence[Prompt]) -> float:
    total = 0.0
    for prompt in prompts:
        best = [i for i, reward in enumerate(prompt.rewards) if reward == max(prompt.rewards)]
        total += sum(prompt.correct[i] for i in best) / len(best)
    return total / len(prompts)


def by_length(prompts: Sequence[Prompt], sign: int) -> float:
    return accuracy([p._replace(rewards=[sign * length for length in p.lengths]) for p in prompts])


def confidence_rows(prompts: Sequence[Prompt]) -> list[tuple[float, bool]]:
    rows = []
    for prompt in prompts:
        p = probabilities(prompt.rewards)
        best = max(range(len(p)), key=lambda i: prompt.rewards[i])
        rows.append((p[best], prompt.correct[best]))
    return rows


def brier(prompts: Sequence[Prompt]) -> float:
    rows = pooled(prompts)
    return sum((p - happened) ** 2 for p, happened in rows) / len(prompts)


def nll(prompts: Sequence[Prompt], temperature: float = 1.0) -> float:
    total = 0.0
    for prompt in prompts:
        p = probabilities(prompt.rewards, temperature)
        total -= math.log(p[prompt.correct.index(True)])
    return total / len(prompts)


def best_temperature(prompts: Sequence[Prompt]) -> float:
    """Golden-section search in log T."""
    low, high = -6.0, 6.0
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(90):
        a, b = high - ratio * (high - low), low + ratio * (high - low)
        if nll(prompts, math.exp(a)) < nll(prompts, math.exp(b)):
            high = b
        else:
            low = a
    return math.exp((low + high) / 2)


def pairs(prompts: Sequence[Prompt]) -> list[tuple[float, bool]]:
    rows = []
    for prompt in prompts:
        for i, one in enumerate(prompt.rewards):
            for j, other in enumerate(prompt.rewards):
                if prompt.correct[i] != prompt.correct[j]:
                    rows.append((1 / (1 + math.exp(other - one)), prompt.correct[i]))
    return rows


def sets(prompts: Sequence[Prompt]) -> list[tuple[float, bool]]:
    rows = []
    for prompt in prompts:
        p = probabilities(prompt.rewards)
        rows += [
            (sum(x for x, c in zip(p, prompt.correct, strict=True) if c is kind), kind)
            for kind in (True, False)
        ]
    return rows


def reference(prompts: Sequence[Prompt]) -> float:
    chosen = [probabilities(p.rewards)[p.correct.index(True)] for p in prompts]
    return 1 - sum(chosen) / len(chosen)


def margins(prompts: Sequence[Prompt]) -> list[float]:
    result = []
    for prompt in prompts:
        good = [r for r, c in zip(prompt.rewards, prompt.correct, strict=True) if c]
        bad = [r for r, c in zip(prompt.rewards, prompt.correct, strict=True) if not c]
        result.append(min(good) - max(bad))
    return result


def spearman(x: Sequence[float], y: Sequence[float]) -> float:
    def ranks(values: Sequence[float]) -> list[float]:
        return [
            sum(v < value for v in values) + (sum(v == value for v in values) + 1) / 2 for value in values
        ]

    a, b = ranks(x), ranks(y)
    ma, mb = sum(a) / len(a), sum(b) / len(b)
    top = sum((u - ma) * (v - mb) for u, v in zip(a, b, strict=True))
    return top / math.sqrt(sum((u - ma) ** 2 for u in a) * sum((v - mb) ** 2 for v in b))


def centred(rows: Sequence[Sequence[float]]) -> list[float]:
    return [value - sum(row) / len(row) for row in rows for value in row]

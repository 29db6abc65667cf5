"""When to accept the best of n, and when to stop drawing: against brute force over all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.repair.stopping import RULES, Rule, drawn


def brute_force(odds: list[float], label: list[float], n: int, t: float, rule: Rule) -> tuple[float, ...]:
    """Average over all orders, and over samples with equal odds."""
    found = []
    for order in permutations(range(len(odds))):
        first = order[:n]
        good = [place for place, i in enumerate(first) if odds[i] >= t]
        samples, chosen = n, [max(first, key=lambda i: odds[i])]
        if rule == "first" and good:
            samples, chosen = good[0] + 1, [first[good[0]]]
        elif rule == "best":
            chosen = [i for i in first if odds[i] == odds[chosen[0]]]
        wrong = float(np.mean([1 - label[i] for i in chosen])) if good else 0.0
        found.append((float(bool(good)), wrong, float(samples)))
    return tuple(np.mean(found, axis=0).tolist())


@given(st.data(), st.sampled_from(RULES))
@settings(max_examples=40, deadline=None)
def test_rules_are_averages_over_all_orders(data: st.DataObject, rule: Rule) -> None:
    sizes = data.draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    odds = [
        data.draw(st.lists(st.sampled_from([-1.0, 0.0, 1.0, 2.0]), min_size=m, max_size=m)) for m in sizes
    ]
    label = [data.draw(st.lists(st.sampled_from([0.0, 1.0]), min_size=m, max_size=m)) for m in sizes]
    n = data.draw(st.integers(1, min(sizes)))
    thresholds = np.array([2.5, 1.0, 0.5, -np.inf])
    found = drawn(np.concatenate(odds), np.concatenate(label), np.array(sizes), n, thresholds, rule)
    for g, (own, right) in enumerate(zip(odds, label, strict=True)):
        for i, t in enumerate(thresholds):
            expected = brute_force(own, right, n, float(t), rule)
            got = found.accepted[g, i], found.wrong[g, i], found.samples[g, i]
            assert got == pytest.approx(expected, abs=1e-12)

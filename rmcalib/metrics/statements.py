"""Which statements against a model a page may make: one gate for all of them together.

A page looks at a model in several ways: its gap, errors that cancel in it, groups of prompts, the scale of the
rewards, the order of responses, the check by the ECE. If each of them had its own 5%, 10 to 18% of the pages of
calibrated models would report a fault. So their p-values are corrected together by Holm's method: the probability that
any statement is wrong is at most 1 − level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.intervals import Interval
from rmcalib.metrics.audit import cancelling, holm
from rmcalib.metrics.catalogue import catalogue
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, Row, estimate_of, find_value
from rmcalib.metrics.views import FEWEST, Part

GAPS = {
    "gap": "overconfidence",
    "pairs": "pairwise_overconfidence",
    "pointwise": "pointwise_gap",
    "votes": "vote_gap",
}
"""Statements about gaps, with their metrics."""
_MOST = 6  # statements of a page
_FEWEST_MIXED = 5  # prompts with correct and wrong responses


def statement_tests(
    whole: Part, single: Part | None, rows: list[Row], groups: list[Row], settings: Settings
) -> dict[str, float]:
    """Return the p-value of each statement that a page may make about a model.

    ``single`` are the prompts with one best response, if they have probabilities; ``rows`` are the metrics that were
    computed, ``groups`` the rows of `audit`. p-values of intervals are no smaller than any correction needs.
    """
    if whole.scores.view == "pointwise":
        tests = _gap_test(whole, "pointwise", settings) | _order_test(whole, settings)
        return tests | (_check_test(rows, "pointwise_ece") if "pointwise" in tests else {})
    tests = _gap_test(whole, "votes", settings)
    if whole.by_majority:
        return tests
    if single is None:
        return tests | _gap_test(whole, "pairs", settings)
    if len(single) < FEWEST:
        return tests
    tests |= _gap_test(whole, "gap", settings)
    if not tests:  # too few clusters for any statement
        return tests
    tests |= _check_test(rows, "confidence_ece")
    if "check" in tests:
        p = cancelling(
            single.first_choice, bins=settings.bins, resamples=settings.resamples, seed=settings.seed
        )
        # Errors of both signs are errors: the check must see them, too.
        tests["cancels"] = max(p, tests["check"])
    tested = [row["p_adjusted"] for row in groups if row["p_adjusted"] is not None]
    if tested:
        tests["groups"] = min(tested)
    tests["scale"] = p_of_interval(single.scale.temperature_interval, 1.0, settings.level)
    return tests


def corrected(tests: Mapping[str, float]) -> dict[str, float]:
    """Return p-values that are corrected for the number of statements."""
    return dict(zip(tests, holm(list(tests.values())), strict=True)) if tests else {}


def shown_statements(tests: Mapping[str, float], level: float) -> list[str]:
    """Return the statements that may be made, after the correction for all of them."""
    return [name for name, p in corrected(tests).items() if p <= 1 - level + 1e-9]


def p_of_interval(interval: Callable[[float], Interval | None], value: float, level: float) -> float:
    """Return the smallest (1 − level)/k, k = 6, ..., 1, at which an interval excludes a value; 1 if none does."""

    def excluded(k: int) -> bool:
        at_level = interval(1 - (1 - level) / k)
        return at_level is not None and not at_level.low <= value <= at_level.high

    if not excluded(1):
        return 1.0
    return (1 - level) / next(k for k in range(_MOST, 0, -1) if k == 1 or excluded(k))


def _gap_test(whole: Part, name: str, settings: Settings) -> dict[str, float]:
    """Return the p-value of a gap by its statement; empty if there is none, or too little data."""
    gap = estimate_of(catalogue()[GAPS[name]], whole, settings)
    if gap is None or gap.n < FEWEST:
        return {}
    return _interval_test(gap, name, 0.0, settings)


def _order_test(whole: Part, settings: Settings) -> dict[str, float]:
    """Return the p-value of correct responses that beat wrong ones less often than by chance."""
    order = estimate_of(catalogue()["within_prompt_auroc"], whole, settings)
    if order is None or order.value is None or order.n < _FEWEST_MIXED:
        return {}
    return _interval_test(order, "order", 0.5, settings) if order.value < 0.5 else {"order": 1.0}


def _interval_test(estimate: Estimate, name: str, value: float, settings: Settings) -> dict[str, float]:
    """Return the p-value of a value by the interval of an estimate; empty if there is none."""
    if estimate.value is None or estimate.why_no_interval:
        return {}
    return {name: p_of_interval(estimate.interval, value, settings.level)}


def _check_test(rows: list[Row], error: str) -> dict[str, float]:
    """Return the p-value of a calibration error; empty if it was not computed."""
    check = find_value(rows, f"{error}_p_value", OVERALL)
    return {} if check is None or check["value"] is None else {"check": float(check["value"])}

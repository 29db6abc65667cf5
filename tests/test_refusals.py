"""What `evaluate` refuses, everything else refuses: every scale of rewards with every meaning of labels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.repair import Calibrator
from rmcalib.scores import Scores
from rmcalib.scores.scale import KINDS, Kind, Scale

N, M = 80, 4
SCALES = [Scale(kind, "stated") for kind in KINDS] + [Scale(), Scale("probability", "stated", of="correct")]
STATED = ("overconfidence", "pointwise_gap")
FITTED = ("usable_information", "fitted_log_loss_excess")


def scored(scale: Scale, labels: str | None, seed: int = 0) -> Scores:
    """Return rewards that say much about which responses are right, twice too sure, with labels of one kind."""
    rng = np.random.default_rng(seed)
    x = np.random.default_rng(7).normal(size=(N, M))
    rewards = 4 * (x + 0.2 * rng.normal(size=(N, M)))
    best = (2 * x + np.random.default_rng(8).gumbel(size=(N, M))).argmax(axis=1)
    chosen = np.arange(M) == best[:, None]
    correct = np.random.default_rng(9).random((N, M)) < 1 / (1 + np.exp(-2 * x))
    if labels == "votes":
        made = Scores.from_arrays(rewards, votes=7 * chosen + 1)
    elif labels == "correct":
        made = Scores.from_arrays(rewards, correct, labels_are="correct")
    else:
        made = Scores.from_arrays(rewards, best if labels else np.full((N, M), np.nan))
    made = replace(made, manifest={**made.manifest, "model": f"judge {seed}"}).with_scale(scale)
    assert made.labels == labels
    return made


def refuses(call: Callable[..., Any], *inputs: Any, **options: Any) -> bool:
    """Return whether a call raises a ValueError, in one line."""
    try:
        call(*inputs, **options)
        return False
    except ValueError as error:
        return "\n" not in str(error)


def measured(scores: Scores) -> set[str]:
    """Return what `evaluate` says about stated and fitted probabilities."""
    if scores.labels is None:
        assert refuses(rmcalib.evaluate, scores)
        return set()
    rows = rmcalib.evaluate(scores, metrics=[*STATED, *FITTED], resamples=20).rows
    return {row["metric"] for row in rows if row["category"] == "overall" and row["value"] is not None}


@pytest.mark.parametrize("labels", ["best", "correct", "votes", None])
@pytest.mark.parametrize("scale", SCALES, ids=lambda one: f"{one.kind}-{one.of}{'-assumed' * one.assumed}")
def test_what_evaluate_refuses_is_refused_everywhere(scale: Scale, labels: str | None) -> None:
    one, other = scored(scale, labels), scored(scale, labels, seed=1)
    shown = measured(one)
    stated, fitted = not shown.isdisjoint(STATED), not shown.isdisjoint(FITTED)
    assert stated == (one.refusal() is None)
    assert fitted == (one.refusal("fit") is None)
    assert refuses(rmcalib.calibrate, one) == (not fitted)
    assert refuses(rmcalib.combine, [one, other]) == (not fitted)
    assert refuses(rmcalib.decide, one) == (not stated)
    best = Calibrator(2.0, 1.8, 2.3)
    calibrators = [best, replace(best, threshold=0.0, threshold_low=0.0, threshold_high=0.0)]
    for calibrator in calibrators:
        assert refuses(rmcalib.apply, one, calibrator) == (one.refusal("apply") is not None)
        assert refuses(calibrator.apply, one) == (one.refusal("apply") is not None)
    if not fitted:
        for calibrator in calibrators:
            assert refuses(rmcalib.decide, one, calibrator=calibrator)
            assert measured_after(one, calibrator) == set()
    if labels is not None:
        assert refuses(compared, one, other) == (not stated)
        assert refuses(ranked, one, other) == (not stated)


def measured_after(scores: Scores, calibrator: Calibrator) -> set[str]:
    try:
        return measured(calibrator.apply(scores))
    except ValueError:
        return set()


def compared(one: Scores, other: Scores) -> None:
    """Raise a ValueError if `compare` has no difference of stated gaps."""
    table = rmcalib.compare(one, other, resamples=20).table
    rows = table[table["metric"].isin(STATED)]
    if rows["difference"].isna().all():
        raise ValueError("no difference")


def ranked(one: Scores, other: Scores) -> None:
    """Raise a ValueError if no model of the leaderboard has a stated gap."""
    table = rmcalib.leaderboard([one, other]).table
    names = [name for name in STATED if name in table]
    if not names or table[names].isna().all(axis=None):
        raise ValueError("no gap")


def test_every_scale_is_tried() -> None:
    kinds: set[Kind] = {scale.kind for scale in SCALES}
    assert kinds == set(KINDS)

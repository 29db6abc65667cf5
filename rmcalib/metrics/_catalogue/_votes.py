"""Forecasts against people's votes, and the best scores that are possible with so few votes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib.calibration import (
    Inference,
    VoteForecasts,
    effective_votes,
    majority_agreements,
    vote_agreement_ceilings,
    vote_brier_ceilings,
    vote_briers,
    vote_inference,
    vote_log_loss_ceilings,
    vote_log_losses,
    voter_disagreements,
    with_tie_outcome,
)
from rmcalib.metrics._catalogue._metric import Measure, Metric
from rmcalib.metrics._catalogue._nulls import null_metrics
from rmcalib.metrics._events import first_shares
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._statistic import Settings, Statistic, Ties

__all__ = ["VOTES"]

_NO_CEILING = "every prompt has a single vote, which does not show how much people differ"
_NO_VOTES = "nobody prefers a response: all votes are ties"
_IMPOSSIBLE = "what some people chose has probability 0"


@dataclass(frozen=True)
class _Ballots:
    """Forecasts and votes of n prompts.

    ``votes``: the forecasts of all outcomes. ``says``, ``agree``: (n,) the probability of the first choice,
    and the fraction of votes for it.
    """

    votes: VoteForecasts
    says: FloatArray
    agree: FloatArray

    def take(self, kept: BoolArray) -> _Ballots:
        return _Ballots(self.votes.take(kept), self.says[kept], self.agree[kept])


@once
def _all_ballots(whole: Forecasts, ties: Ties, seed: int) -> tuple[_Ballots, BoolArray]:
    """The ballots of all prompts that have votes, and which of the prompts these are."""
    scores = whole.scores
    assert scores.votes is not None
    assert scores.ties is not None
    level = scores.ties[whole.starts]
    counted = np.add.reduceat(scores.votes, whole.starts) > 0 if ties == "drop" else np.full(len(whole), True)
    votes = VoteForecasts(
        whole.log_probability,
        scores.votes,
        whole.sizes,
        np.zeros_like(level) if ties == "drop" else level,
        np.zeros(len(scores), dtype=bool),
    ).take(counted)
    if ties in ("davidson", "rao-kupper") and level.any():
        votes = with_tie_outcome(votes, ties, rng=seed)
    # A tie is one more row of a prompt, after its responses.
    kept, sizes = np.repeat(counted, whole.sizes), whole.sizes[counted]
    starts = np.cumsum(sizes) - sizes
    rows = np.arange(sizes.sum()) + np.repeat(votes.starts - starts, sizes)
    first = first_shares(whole)[kept]
    says, shares = (np.add.reduceat(first * one[rows], starts) for one in (votes.probability, votes.shares))
    return _Ballots(votes, says, shares), counted


@once
def _ballots(forecasts: Forecasts, settings: Settings) -> _Ballots | None:
    """The ballots of these prompts; None if there are none.

    A model of ties is fitted on all categories together.
    """
    found, counted = _all_ballots(forecasts.whole or forecasts, settings.ties, settings.seed)
    mine = np.zeros(len(counted), dtype=bool)
    mine[forecasts.source] = True
    kept = mine[counted]
    return found.take(kept) if kept.any() else None


def _of(
    values: Callable[[_Ballots], FloatArray], *, ceiling: bool = False, proportion: bool = False
) -> Measure:
    """Return the mean of one number per prompt; with ``ceiling``, of the prompts with several votes."""

    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:
        ballots = _ballots(forecasts, settings)
        if ballots is None:
            return Statistic.missing(0, _NO_VOTES)
        if ceiling:
            several = ballots.votes.n_votes > 1
            if not several.any():
                return Statistic.missing(len(ballots.says), _NO_CEILING)
            ballots = ballots.take(several)
        found = values(ballots)
        if not np.isfinite(found).all():
            return Statistic.missing(len(found), _IMPOSSIBLE)
        return Statistic.proportion(np.clip(found, 0.0, 1.0)) if proportion else Statistic.mean(found)

    return statistic


@once
def _inference(forecasts: Forecasts, settings: Settings) -> Inference | None:
    ballots = _ballots(forecasts, settings)
    if ballots is None:
        return None
    return vote_inference(
        ballots.says,
        ballots.agree,
        effective_votes(ballots.votes, ballots.says),
        bins=settings.bins,
        resamples=settings.resamples,
        rng=settings.seed,
    )


def vote_calibration_error(forecasts: Forecasts, settings: Settings) -> Statistic:
    """Binned error of the first choice's probability against its fraction of the votes."""
    found = _inference(forecasts, settings)
    if found is None:
        return Statistic.missing(0, _NO_VOTES)
    return Statistic.inferred(found.value, lambda: found, len(found.influence))


def vote_tie_share(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Fraction of people who find the responses equally good."""
    scores = forecasts.scores
    assert scores.ties is not None
    ties, voters = scores.ties[scores.offsets[:-1]], scores.n_votes
    return Statistic.proportion((ties / voters)[forecasts.source])


def votes_per_prompt(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
    """Mean number of people who voted on a prompt, ties included."""
    return Statistic.constant(float(forecasts.scores.n_votes[forecasts.source].mean()), len(forecasts))


def _above(
    score: Callable[[VoteForecasts], FloatArray], ceiling: Callable[[VoteForecasts], FloatArray]
) -> Measure:
    """Return a score minus its noise ceiling."""
    return _of(lambda ballots: score(ballots.votes) - ceiling(ballots.votes), ceiling=True)


def _metric(name: str, meaning: str, statistic: Measure, **more: Any) -> Metric:
    return Metric(name, meaning, statistic, prompts="votes", group="votes", **{"heading": "", **more})


# Metrics of the votes alone, which do not depend on the model.
_ANY: dict[str, Any] = {"needs": frozenset(), "compared": "nowhere", "ranked": "nowhere"}
_ERROR = _metric(
    "vote_calibration_error",
    "calibration error of the first choice: its probability against its fraction of people's votes",
    vote_calibration_error,
    better="low",
    unit="probability",
    label="calibration error against votes",
)


VOTES = (
    _metric(
        "votes_per_prompt",
        "mean number of people who voted on a prompt, ties included",
        votes_per_prompt,
        unit="votes",
        label="votes per prompt",
        digits=1,
        **_ANY,
    ),
    _metric(
        "vote_tie_share",
        "fraction of people who find the responses equally good",
        vote_tie_share,
        unit="fraction of votes",
        label="ties",
        **_ANY,
    ),
    _metric(
        "vote_confidence",
        "mean probability of the first choice, on prompts that people voted on",
        _of(lambda ballots: ballots.says),
        unit="probability",
        label="says",
        depends_on_m=True,
    ),
    _metric(
        "vote_agreement",
        "mean fraction of people who prefer the model's first choice",
        _of(lambda ballots: ballots.agree, proportion=True),
        better="high",
        unit="fraction of votes",
        needs=frozenset(),
        label="people agree",
        depends_on_m=True,
    ),
    _metric(
        "vote_gap",
        "vote_confidence minus vote_agreement; positive is over-confident",
        _of(lambda ballots: ballots.says - ballots.agree),
        better="zero",
        unit="probability",
        label="gap to people",
    ),
    _metric(
        "vote_agreement_ceiling",
        "noise ceiling of vote_agreement: agreement with the response that most people would prefer",
        _of(lambda ballots: vote_agreement_ceilings(ballots.votes), ceiling=True),
        unit="fraction of votes",
        label="people agree with the best choice",
        **_ANY,
        depends_on_m=True,
    ),
    _metric(
        "vote_majority_agreement",
        "how often a voter agrees with the majority of the other voters",
        _of(lambda ballots: majority_agreements(ballots.votes), ceiling=True, proportion=True),
        unit="fraction of votes",
        label="a voter agrees with the others' majority",
        **_ANY,
        depends_on_m=True,
    ),
    _metric(
        "voter_disagreement",
        "how often two voters on the same prompt disagree",
        _of(lambda ballots: voter_disagreements(ballots.votes), ceiling=True, proportion=True),
        unit="fraction of votes",
        label="two voters disagree",
        **_ANY,
        depends_on_m=True,
    ),
    _metric(
        "vote_disagreement_excess",
        "how often a voter disagrees with the model's first choice, minus how often two voters disagree",
        _of(lambda ballots: 1 - ballots.agree - voter_disagreements(ballots.votes), ceiling=True),
        better="low",
        unit="fraction of votes",
        needs=frozenset(),
        label="disagreement beyond that of voters",
    ),
    _ERROR,
    *null_metrics(_ERROR, _inference, "calibration error against votes"),
    _metric(
        "vote_log_loss",
        "log loss: mean over votes of −log P, then mean over prompts",
        _of(lambda ballots: vote_log_losses(ballots.votes)),
        better="low",
        unit="nats",
        label="log loss against votes",
        depends_on_m=True,
    ),
    _metric(
        "vote_log_loss_ceiling",
        "noise ceiling of vote_log_loss: log loss of the true fractions of votes",
        _of(lambda ballots: vote_log_loss_ceilings(ballots.votes), ceiling=True),
        unit="nats",
        label="log loss of the true fractions",
        **_ANY,
        depends_on_m=True,
    ),
    _metric(
        "vote_log_loss_excess",
        "vote_log_loss minus its noise ceiling: divergence of the forecast from the true fractions of votes",
        _above(vote_log_losses, vote_log_loss_ceilings),
        better="low",
        unit="nats",
        label="log loss above the noise ceiling",
        depends_on_m=True,
    ),
    _metric(
        "vote_brier",
        "Brier score: mean squared error over votes, then mean over prompts",
        _of(lambda ballots: vote_briers(ballots.votes)),
        better="low",
        label="Brier score against votes",
        depends_on_m=True,
    ),
    _metric(
        "vote_brier_ceiling",
        "noise ceiling of vote_brier: Brier score of the true fractions of votes",
        _of(lambda ballots: vote_brier_ceilings(ballots.votes), ceiling=True),
        label="Brier score of the true fractions",
        **_ANY,
        depends_on_m=True,
    ),
    _metric(
        "vote_brier_excess",
        "vote_brier minus its noise ceiling: squared error of the forecast fractions of votes",
        _above(vote_briers, vote_brier_ceilings),
        better="low",
        label="Brier score above the noise ceiling",
        depends_on_m=True,
    ),
)

"""Measures: functions from some prompts, settings, and perhaps a view of the prompts, to an `Estimate`.

The catalogue names them. A measure that has no value on these prompts raises `Missing`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, as_groups
from rmcalib.benchmarks import _official as official
from rmcalib.benchmarks._official import OfficialScore
from rmcalib.calibration import votes as votes_of
from rmcalib.calibration.binning import ErrorOptions, bin_edges, bin_index
from rmcalib.calibration.errors import binned, event_error
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.events import Events, Independent
from rmcalib.calibration.intervals import (
    Interval,
    Limits,
    check_level,
    skew_interval,
)
from rmcalib.calibration.maps import corp
from rmcalib.calibration.smoothing import smooth_error
from rmcalib.calibration.temperature import Scale
from rmcalib.metrics.views import (
    ALL_TIED,
    MOST_CATEGORIES,
    Missing,
    Part,
    ViewName,
    enough,
    shares_of_largest,
)

_NO_LENGTHS = "lengths are unknown: the scores have no token counts, and the texts are not available"
_LIMITS = {
    "hot": "a uniform guess does as well as these rewards at any temperature",
    "cold": "every forecast is right, so larger rewards are always better",
}


@dataclass(frozen=True)
class Settings:
    """How metrics are computed: bins of errors, number of simulated data sets, level of intervals, random seed."""

    bins: int = 10
    resamples: int = 1000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the level and the number of resamples."""
        check_level(self.level)
        if self.resamples < 1:
            raise ValueError(f"resamples: {self.resamples} is less than 1")


def says(part: Part, _: Settings, view: ViewName) -> Estimate:
    """Mean stated probability."""
    if (every := part.says_of_all(view)) is not None:
        return every
    events = _events(part, view)
    return Estimate.stated(events.per_prompt(events.p), cluster=events.cluster, weight=events.weight)


def right(part: Part, _: Settings, view: ViewName) -> Estimate:
    """How often the events happened."""
    events, moved = _events(part, view), part.shift(view)
    weight = events.weight
    exact = Estimate.proportion(
        events.per_prompt(events.y) + moved, cluster=events.cluster, weight=weight
    ).limits
    estimate = _jumping(part, view, lambda outcomes: outcomes.y + moved, (0.0, 1.0), counts=True)
    if part.population is None and weight is None:
        return replace(estimate, limits=exact)

    def limits(level: float) -> Limits:
        # There are no whole counts, so rare errors may be missed by either.
        ends = np.array([outcomes(level) for outcomes in (exact, estimate.limits) if outcomes is not None])
        return float(ends[:, 0].min()), float(ends[:, 1].max())

    return replace(estimate, limits=limits)


def right_in_pairs(part: Part, _: Settings) -> Estimate:
    """How often the preferred response of a pair is the correct one."""
    estimate = _jumping(part, "preferred", lambda outcomes: outcomes.y, (0.0, 1.0), counts=True)
    if estimate.if_right is None or estimate.values is None:
        return estimate
    # A wrong first choice loses to 1, 2, ... of the others: half of them, and the correct one, on average.
    pairs = np.bincount(part.preferred.prompt)
    typical = np.maximum(estimate.if_right - (pairs + 1) / (2 * pairs), 0.0)
    wider = Estimate.mean(
        estimate.values, estimate.if_right, typical, within=(0.0, 1.0), cluster=estimate.cluster
    )
    return replace(wider, ranks=estimate.ranks, step=estimate.step)


def gap(part: Part, _: Settings, view: ViewName) -> Estimate:
    """Mean stated probability minus how often it happened."""
    every = part.says_of_all(view)
    if every is not None and every.value is not None:  # only how often it is right is estimated
        says_all, moved = every.value, part.shift(view)
        return _jumping(part, view, lambda events: says_all - events.y - moved, (-1.0, 1.0), counts=True)
    return _jumping(part, view, lambda events: events.p - events.y, (-1.0, 1.0), counts=True)


def brier(part: Part, _: Settings, view: ViewName) -> Estimate:
    """Mean squared error."""
    return _jumping(part, view, lambda at: at.y * (1 - at.p) ** 2 + (1 - at.y) * at.p**2, (0.0, 1.0))


def log_loss(part: Part, _: Settings, view: ViewName) -> Estimate:
    """Mean negative log-likelihood of what happened."""
    return _jumping(part, view, log_losses, (0.0, np.inf))


def top_1_brier(part: Part, _: Settings) -> Estimate:
    """Squared error, summed over the responses of a prompt."""
    return _top_1_mean(part, lambda at: np.add.reduceat((at.top_1.p - at.top_1.y) ** 2, at.starts), 2.0)


def top_1_log_loss(part: Part, _: Settings) -> Estimate:
    """Negative log-likelihood of the correct response."""
    return _top_1_mean(part, lambda at: -at.log_p[at.is_correct], np.inf)


def log_losses(events: Events) -> FloatArray:
    """Return the log loss of each event (N,)."""
    odds = events.logit if events.logit is not None else events.log_p - np.log1p(-events.p)
    return np.asarray(np.logaddexp(0.0, odds) - events.y * odds)


def error(part: Part, settings: Settings, view: ViewName, **options: Any) -> Estimate:
    """Binned calibration error, with options of `ErrorOptions`."""

    def simulated() -> Estimate:
        how = ErrorOptions(bins=settings.bins, **options)
        return binned(_events(part, view), how, resamples=settings.resamples, rng=settings.seed)

    return part.once((view, tuple(sorted(options.items())), settings), simulated)


def error_of_pairs(part: Part, settings: Settings) -> Estimate:
    """Binned calibration error of pairs. Those that are stated one by one, or too many, are not simulated."""
    events = part.pairs
    if not isinstance(events.joint, Independent):
        return error(part, settings, "pairs")
    return Estimate.constant(event_error(events, ErrorOptions(bins=settings.bins)), events.n_prompts)


def smooth_ece(part: Part, _: Settings) -> Estimate:
    """Smooth ECE of all responses pooled, without an interval: noise increases it as it does the ECE."""
    return Estimate.constant(smooth_error(part.top_1.p, part.top_1.y), len(part))


def decomposition(part: Part, _: Settings, score: Literal["brier", "log"], which: str) -> Estimate:
    """Miscalibration, discrimination or uncertainty of the first choice."""
    events = part.first_choice
    parts = part.once(("corp", score), lambda: corp(events.p, events.y, score=score))
    return Estimate.constant(getattr(parts, which), len(part), note="a wrong first choice has probability 1")


def ece_bound(part: Part, _: Settings) -> Estimate:
    """Return the largest possible ECE with m responses: 2/m."""
    return Estimate.constant(2 * len(part) / len(part.reward), len(part))


def ece_fullest_bin(part: Part, settings: Settings) -> Estimate:
    """Return the fraction of probabilities that lie in the fullest bin of the ECE."""
    p = part.top_1.p
    count = np.bincount(bin_index(p, bin_edges(p, ErrorOptions(bins=settings.bins))))
    return Estimate.constant(float(count.max() / count.sum()), len(part))


# Information and temperature.


def kept_information(part: Part, settings: Settings) -> Estimate:
    """Information of the probabilities as stated: 1 − NLL(1)/u."""
    loss, scale = top_1_log_loss(part, settings).limits, part.scale
    worth = scale.worth(scale.kept, scale.model.losses(1.0))

    def limits(level: float) -> Limits:
        below, above = skew_interval(worth, level, part.cluster)
        of_loss = loss(level) if loss is not None else None  # it allows for wrong choices that were not seen
        assert of_loss is not None
        low, high = 1 - of_loss[1] / scale.unit, 1 - of_loss[0] / scale.unit
        return min(scale.kept + below, low), min(max(scale.kept + above, high), 1.0)

    return Estimate(
        scale.kept, len(part), limits=limits, influence=lambda: worth / len(worth), cluster=part.cluster
    )


def lost_information(part: Part, settings: Settings) -> Estimate:
    """Information lost by the wrong scale: (NLL(1) − NLL(T))/u."""
    scale = part.scale
    estimate = _of_scale(scale, scale.lost, scale.lost_interval, scale.lost_influence)
    return replace(estimate, centre=lambda: scale.lost_centre(settings.level))


def lost_information_in_pairs(part: Part, _: Settings) -> Estimate:
    """Information of pairs that is lost by the wrong scale."""
    if np.isinf(part.pair_log_odds[0]).any():
        raise Missing("a wrong verdict with probability 1 has an infinite loss")
    scale = part.pair_scale
    return _of_scale(scale, scale.lost, scale.lost_interval, scale.lost_influence)


def usable_information(part: Part, _: Settings) -> Estimate:
    """Information of the rewards at their best scale: 1 − NLL(T)/u."""
    scale = part.scale
    return _of_scale(scale, scale.usable, scale.usable_interval, scale.usable_influence)


def temperature(part: Part, settings: Settings) -> Estimate:
    """Temperature that maximises the likelihood on all prompts."""
    scale = enough(part).scale
    if scale.fit.at_limit is not None:
        raise Missing(_LIMITS[scale.fit.at_limit])
    limits = scale.temperature_interval(settings.level)
    # With little data every temperature above some value may fit.
    note = "" if np.isfinite(limits.high) else f"T is at least {limits.low:.3g}, without upper limit"
    influence = scale.temperature_influence
    return replace(_of_scale(scale, limits.value, scale.temperature_interval, influence), note=note)


# Pointwise, within a prompt.


def base_log_loss(part: Part, _: Settings) -> Estimate:
    """Log loss of forecasting the share of correct responses for every response."""
    return Estimate.mean(_base_losses(part.pointwise), cluster=part.pointwise.cluster)


def fitted_log_loss_excess(part: Part, _: Settings) -> Estimate:
    """Log loss with b and T fitted on other prompts, minus that of the base rate: what the rewards are worth."""
    events = _events(part, "pointwise_fitted")
    return Estimate.mean(log_losses(events) - _base_losses(events), cluster=events.cluster)


def _base_losses(events: Events) -> FloatArray:
    rate = float(np.clip(events.y.mean(), 1e-12, 1 - 1e-12))
    return np.asarray(-(events.y * np.log(rate) + (1 - events.y) * np.log1p(-rate)))


def pointwise_kept_information(part: Part, _: Settings) -> Estimate:
    """Information of P(response is correct) as stated: 1 − log loss / log loss of the base rate."""
    events = part.pointwise
    return Estimate.mean(pointwise_worth(events), within=(-np.inf, 1.0), cluster=events.cluster)


def pointwise_worth(events: Events) -> FloatArray:
    """Return what each response contributes to the kept information (N,); their mean is its value.

    With the mean log loss L, the base rate q and its entropy H, the value is 1 − L/H. Its linear part in the
    responses has −(loss − L)/H + L/H² · log((1 − q)/q) · (y − q).
    """
    loss = log_losses(events)
    rate = float(events.y.mean())
    if not 0 < rate < 1:
        raise Missing("all responses have the same label")
    entropy = -(rate * np.log(rate) + (1 - rate) * np.log1p(-rate))
    mean = float(loss.mean())
    of_base_rate = mean / entropy**2 * (np.log1p(-rate) - np.log(rate)) * (events.y - rate)
    return np.asarray(1 - loss / entropy + of_base_rate)


def within_prompt_auroc(part: Part, _: Settings) -> Estimate:
    """How often a correct response has a larger reward than a wrong one of the same prompt (a tie counts 1/2)."""
    better, other = part.decided_pairs
    if not len(better):
        raise Missing("no prompt has both a correct and a wrong response")
    wins = np.heaviside(part.reward[better] - part.reward[other], 0.5)
    mixed, index = np.unique(part.prompt[better], return_inverse=True)
    share = np.bincount(index, wins) / np.bincount(index)
    cluster = None if part.cluster is None else np.unique(part.cluster[mixed], return_inverse=True)[1]
    return Estimate.shares(share, cluster=cluster)


def correct_share(part: Part, _: Settings) -> Estimate:
    """How often a random response is correct."""
    return Estimate.proportion(part.n_correct / part.sizes, cluster=part.cluster)


# Several correct responses, the reference protocol, margins and lengths.


def correct_first(part: Part, _: Settings, which: Literal["says", "right"]) -> Estimate:
    """P(a correct response is first), and how often one is. Who is correct is the outcome, so there is no error."""
    if which == "right":
        values = part.of_first_choice(part.is_correct.astype(np.float64))
        return Estimate.proportion(np.clip(values, 0.0, 1.0), cluster=part.cluster)
    p = np.add.reduceat(np.where(part.is_correct, np.exp(part.log_p), 0.0), part.starts)
    return Estimate.stated(np.minimum(p, 1.0), cluster=part.cluster)


def reference_top_1(part: Part, _: Settings) -> Estimate:
    """1 − mean P(first correct response), over all prompts: the number of the paper's public code."""

    def wrong(forecasts: Part) -> FloatArray:
        correct = np.flatnonzero(forecasts.is_correct)
        return 1 - np.exp(forecasts.log_p[correct[np.searchsorted(correct, forecasts.starts)]])

    return _top_1_mean(part, wrong, 1.0)


def margin(part: Part, _: Settings, which: Literal["mean", "median"]) -> Estimate:
    """The worst correct reward minus the best wrong one; positive if all correct ones win."""
    correct = np.minimum.reduceat(np.where(part.is_correct, part.reward, np.inf), part.starts)
    wrong = np.maximum.reduceat(np.where(part.is_correct, -np.inf, part.reward), part.starts)
    if which == "median":
        return Estimate.median(correct - wrong, cluster=part.cluster)
    return Estimate.mean(correct - wrong, cluster=part.cluster)


def length_correlation(part: Part, settings: Settings, of: Literal["reward", "confidence"]) -> Estimate:
    """Spearman correlation of rewards and lengths within prompts, or of confidence and length over prompts."""
    length = _lengths(part)
    if of == "reward":
        # Each minus the prompt's mean, because prompts differ.
        sums = spearman_sums(part.centred(part.reward), part.centred(length), part.prompt)
    else:
        x, y = part.of_first_choice(part.log_p), part.of_first_choice(length)
        sums = spearman_sums(x, y, np.arange(len(part)))
    if sums is None:
        raise Missing("all rewards or all lengths are equal")
    return Estimate.of_sums(*sums, resamples=settings.resamples, seed=settings.seed, cluster=part.cluster)


def length_baseline(part: Part, _: Settings, sign: int) -> Estimate:
    """Accuracy of picking the longest (+1) or the shortest (−1) response."""
    picked = shares_of_largest(sign * _lengths(part), part.sizes)
    right = np.add.reduceat(np.where(part.is_correct, picked, 0.0), part.starts)
    return Estimate.proportion(right, cluster=part.cluster)


def spearman_sums(
    x: FloatArray, y: FloatArray, groups: IntArray
) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]] | None:
    """Return the sums of each group for Spearman's correlation (G, 6), and its function of totals (R, 6)."""
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    a, b = a - a.mean(), b - b.mean()
    if len(a) < 3 or not a.any() or not b.any():
        return None
    terms = [np.ones_like(a), a, b, a * a, b * b, a * b]
    sums = np.column_stack([np.bincount(groups, term) for term in terms]).astype(np.float64)

    def correlation(rows: FloatArray) -> FloatArray:
        n, sa, sb, saa, sbb, sab = rows.T
        spread = np.maximum(saa - sa**2 / n, 0) * np.maximum(sbb - sb**2 / n, 0)
        return np.where(spread > 0, sab - sa * sb / n, 0) / np.sqrt(np.where(spread > 0, spread, 1))

    return sums, correlation


# Votes.


_OF_MODEL: dict[str, Callable[[votes_of.VoteForecasts, FloatArray, FloatArray], FloatArray]] = {
    "says": lambda _, p, __: p,
    "agreement": lambda _, __, agree: agree,
    "disagreement": lambda _, __, agree: 1 - agree,
    "gap": lambda _, p, agree: p - agree,
    "log_loss": lambda votes, _, __: votes_of.vote_log_losses(votes),
    "brier": lambda votes, _, __: votes_of.vote_briers(votes),
}
"""One number per prompt from the votes, what the first choice says, and the fraction of people who agree."""
_OF_PEOPLE = {
    "agreement": votes_of.vote_agreement_ceilings,
    "disagreement": votes_of.voter_disagreements,
    "log_loss": votes_of.vote_log_loss_ceilings,
    "brier": votes_of.voter_disagreements,
}
"""The same of forecasts that state the true fractions of votes; disagreement is that of two voters."""
_WITHIN = {"gap": (-1.0, 1.0), "log_loss": (0.0, np.inf), "brier": (0.0, 2.0)}


def ballots(
    part: Part, _: Settings, what: str, of: Literal["model", "people", "excess"] = "model"
) -> Estimate:
    """Mean of one number per prompt that people voted on: of the model, of people, or the difference."""
    if part.ballots is None:
        raise Missing(ALL_TIED)
    votes, p, agree = part.ballots
    cluster = part.ballot_cluster
    if of != "model":
        kept = votes.n_votes > 1
        if not kept.any():
            raise Missing("every prompt has a single vote, which does not show how people differ")
        votes, p, agree = votes.take(kept), p[kept], agree[kept]
        cluster = None if cluster is None else as_groups(cluster[kept], int(kept.sum()))
    if of == "people":
        each = _OF_PEOPLE[what](votes)
    else:
        each = _OF_MODEL[what](votes, p, agree)
        each = each - _OF_PEOPLE[what](votes) if of == "excess" else each
    if not np.isfinite(each).all():
        raise Missing("what some people chose has probability 0")
    if what == "says":
        return Estimate.stated(each, cluster=cluster)
    if (what, of) in (("agreement", "model"), ("disagreement", "people")):
        return Estimate.proportion(np.clip(each, 0.0, 1.0), cluster=cluster)
    within = _WITHIN.get(what) if of == "model" else None
    return Estimate.mean(each, within=within or (-np.inf, np.inf), cluster=cluster)


def tie_share(part: Part, _: Settings) -> Estimate:
    """Fraction of people who find the responses equally good."""
    assert part.scores.ties is not None
    return Estimate.proportion(part.scores.ties[part.starts] / part.scores.n_votes, cluster=part.cluster)


def votes_per_prompt(part: Part, _: Settings) -> Estimate:
    """Mean number of people who voted on a prompt, ties included."""
    return Estimate.constant(float(part.scores.n_votes.mean()), len(part))


# Scores that benchmarks define.


def rewardbench_score(part: Part, settings: Settings) -> Estimate:
    """RewardBench 2's score of a category, or the mean of all categories: accuracy, and in Ties their own score."""
    whole = part.whole or part
    decided = whole.prompts("all") or whole
    scores = decided.scores
    if len(np.unique(decided.category)) > MOST_CATEGORIES:
        raise Missing(f"a mean of more than {MOST_CATEGORIES} categories")
    tied, category = official.tied_categories(scores), scores.category[scores.offsets[:-1]]
    accuracy = official.shared_first_place(scores)
    by_category: dict[str, Estimate] = {}
    for name in dict.fromkeys((category if part.name == whole.name else part.category).tolist()):
        if name not in tied:
            members = np.flatnonzero(category == name)
            by_category[name] = Estimate.proportion(accuracy[members], cluster=decided.clusters_of(members))
            continue
        sums = official.ties_sums(scores, name)
        if not sums[:, -1].any():
            raise Missing(f"{name} has no ids ref:N and tied:N, which RewardBench's score needs")
        by_category[name] = Estimate.of_sums(
            sums, official.ties_scores, resamples=settings.resamples, seed=settings.seed
        )
    value = float(np.mean([estimate.value or 0.0 for estimate in by_category.values()]))

    has_ties = not tied.isdisjoint(by_category)  # metrics of Ties do not count prompts
    measured = np.flatnonzero(np.isin(category, list(by_category)))
    cluster = None if has_ties else decided.clusters_of(measured)

    def limits(level: float) -> Limits | None:
        if cluster is not None and len(by_category) > 1:  # it may have prompts of several categories
            below, above = skew_interval(influence() * len(measured), level, cluster)
            return max(value + below, 0.0), min(value + above, 1.0)
        each = [estimate.interval(level) for estimate in by_category.values()]
        distances = [
            (estimate.low - estimate.value, estimate.high - estimate.value)
            for estimate in each
            if estimate and estimate.low < estimate.high
        ]
        if len(distances) < len(each):
            return None
        # Categories are independent, so the squares of the distances add up.
        below, above = np.sqrt((np.array(distances) ** 2).sum(axis=0)) / len(each)
        return value - float(below), value + float(above)

    def influence() -> FloatArray:
        values = np.zeros(len(accuracy))
        for name, estimate in by_category.items():
            assert estimate.influence is not None
            values[category == name] = estimate.influence() / len(by_category)
        return values[measured]

    return Estimate(
        value, len(part), limits=limits, influence=None if has_ties else influence, cluster=cluster
    )


def official_score(part: Part, _: Settings) -> Estimate:
    """Return the score that the benchmark's authors define, overall or of a category."""
    score = official_of(part)
    if score is None:
        raise Missing("the benchmark has no official score")
    return Estimate(score.value, score.n, note=f"{score.metric}, as the benchmark's authors compute it")


def official_of(part: Part) -> OfficialScore | None:
    """Return the official score of all prompts, or of the category of these; None if there is none."""
    whole = part.whole or part
    category = "all" if part.name == whole.name else str(part.category[0])
    for score in whole.official:
        if (score.metric, score.category) == (whole.official[0].metric, category) and np.isfinite(
            score.value
        ):
            return score
    return None


# Shared parts.


def _events(part: Part, view: ViewName) -> Events:
    events: Events | None = getattr(part, view)
    if events is None:
        raise Missing(ALL_TIED)
    return events


def _of_scale(
    scale: Scale, value: float, interval: Callable[[float], Interval], influence: Callable[[], FloatArray]
) -> Estimate:
    def limits(level: float) -> Limits:
        interval_at = interval(level)
        return interval_at.low, interval_at.high

    return Estimate(value, scale.n, limits=limits, influence=influence, cluster=scale.cluster)


def _lengths(part: Part) -> FloatArray:
    if np.isnan(part.length).any():
        raise Missing(_NO_LENGTHS)
    return part.length


def _jumping(
    part: Part,
    view: ViewName,
    value: Callable[[Events], FloatArray],
    within: Limits,
    *,
    counts: bool = False,
) -> Estimate:
    """Return the mean of one number per event. It jumps with the outcome, even if that was never seen.

    If it ``counts`` outcomes, it jumps by 1 where one of two models is right and the other is wrong.
    """
    events, (others, ranks) = _events(part, view), part.alternatives(view)
    each = [outcomes.per_prompt(value(outcomes)) for outcomes in (events, *others)]
    estimate = Estimate.mean(*each, within=within, cluster=events.cluster, weight=events.weight)
    if ranks is None or not counts:
        return estimate
    weight = 1.0 if events.weight is None else events.weight
    return replace(estimate, ranks=ranks, step=weight / np.bincount(events.prompt))


def _top_1_mean(part: Part, loss: Callable[[Part], FloatArray], most: float) -> Estimate:
    """Return the mean of a loss of each prompt (n,) between 0 and ``most``."""
    losses, right, wrong = loss(part), loss(part.if_right), loss(part.if_wrong)
    if losses.shape != (len(part),):
        raise ValueError(f"expected one loss per prompt ({len(part)}), got {losses.shape}")
    return Estimate.mean(losses, right, wrong, within=(0.0, most), cluster=part.cluster, weight=part.weight)

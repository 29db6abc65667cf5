"""Measures: functions from the views of some prompts to an `Estimate`. The catalogue names them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice
from rmcalib.calibration import votes as votes_of
from rmcalib.calibration.binning import ErrorOptions, bin_edges, bin_index
from rmcalib.calibration.errors import binned, event_error, smooth
from rmcalib.calibration.estimates import Estimate, limits_of
from rmcalib.calibration.events import Events, Independent
from rmcalib.calibration.intervals import check_level, skew_interval
from rmcalib.calibration.maps import corp
from rmcalib.metrics.views import FEWEST, Part, ViewName

SMOOTH_DRAWS = 200
"""Simulated data sets for the smooth ECE, which takes longer."""
_NO_LENGTHS = "lengths are unknown: the scores have no token counts, and the texts are not available"
_LIMITS = {
    "hot": "a uniform guess does as well as these rewards at any temperature",
    "cold": "every forecast is right, so larger rewards are always better",
}


@dataclass(frozen=True)
class Settings:
    """How metrics are computed: bins of errors, simulated data sets, level of intervals, random seed."""

    bins: int = 10
    resamples: int = 1000
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the level and the number of resamples."""
        check_level(self.level)
        if self.resamples < 1:
            raise ValueError(f"resamples: {self.resamples} is less than 1")


Measure = Callable[[Part, Settings], Estimate]
NullField = Literal["mean", "high", "p_value"]


def says(view: ViewName) -> Measure:
    """Mean stated probability."""

    def measure(part: Part, _: Settings) -> Estimate:
        events = _events(part, view)
        return Estimate.stated(events.per_prompt(events.p), cluster=events.cluster)

    return _known(view, measure)


def right(view: ViewName) -> Measure:
    """How often the events happened."""

    def measure(part: Part, _: Settings) -> Estimate:
        events = _events(part, view)
        if view == "preferred":
            return _jumping(part, view, lambda one: one.y, (0.0, 1.0))
        found = Estimate.proportion(events.per_prompt(events.y), cluster=events.cluster)
        if view != "first_choice":
            return found
        return replace(
            found,
            if_right=part.if_right.first_choice.y,
            if_wrong=part.if_wrong.first_choice.y,
            ranks=part.ranks,
        )

    return _known(view, measure)


def gap(view: ViewName) -> Measure:
    """Mean stated probability minus how often it happened."""
    return _known(view, lambda part, _: _jumping(part, view, lambda one: one.p - one.y, (-1.0, 1.0)))


def brier(view: ViewName) -> Measure:
    """Squared error: summed over the responses of a prompt, or the mean over its events."""

    def measure(part: Part, _: Settings) -> Estimate:
        if view == "top_1":
            return _top_1_mean(
                part, lambda one: np.add.reduceat((one.top_1.p - one.top_1.y) ** 2, one.starts), 2.0
            )
        return _jumping(part, view, lambda one: one.y * (1 - one.p) ** 2 + (1 - one.y) * one.p**2, (0.0, 1.0))

    return _known(view, measure)


def log_loss(view: ViewName) -> Measure:
    """Negative log-likelihood of what happened."""

    def measure(part: Part, _: Settings) -> Estimate:
        if view == "top_1":
            return _top_1_mean(part, lambda one: -one.log_p[one.is_correct], np.inf)

        def loss(events: Events) -> FloatArray:
            odds = events.logit if events.logit is not None else events.log_p - np.log1p(-events.p)
            return np.logaddexp(0.0, odds) - events.y * odds

        return _jumping(part, view, loss, (0.0, np.inf))

    return _known(view, measure)


def error(view: ViewName, **options: Any) -> Measure:
    """Binned calibration error, with options of `ErrorOptions`."""

    def measure(part: Part, settings: Settings) -> Estimate:
        events, how = _events(part, view), ErrorOptions(bins=settings.bins, **options)
        if view == "pairs" and isinstance(events.joint, Independent):
            # Pairs that are stated one by one, or are too many, have no joint worlds.
            return Estimate.constant(event_error(events, how), events.n_prompts)
        return binned(events, how, resamples=settings.resamples, rng=settings.seed)

    def once(part: Part, settings: Settings) -> Estimate:
        key = (view, tuple(sorted(options.items())), settings)
        return part.once(key, lambda: measure(part, settings))

    return _known(view, once)


def smooth_ece(part: Part, settings: Settings) -> Estimate:
    """Smooth ECE of all responses pooled."""
    return smooth(part.top_1, resamples=min(SMOOTH_DRAWS, settings.resamples), rng=settings.seed)


def null(measure: Measure, field: NullField) -> Measure:
    """The null test of an error: what a calibrated model would show."""

    def of_null(part: Part, settings: Settings) -> Estimate:
        found = measure(part, settings)
        test = found.test()
        if test is None:
            return Estimate.missing(
                found.n, found.note or "there is no null test: these pairs have no joint worlds"
            )
        return Estimate.constant(getattr(test, field), found.n)

    return of_null


def decomposition(score: Literal["brier", "log"], which: str) -> Measure:
    """Miscalibration, discrimination or uncertainty of the first choice."""

    def measure(part: Part, _: Settings) -> Estimate:
        events = part.first_choice
        value = getattr(corp(events.p, events.y, score=score), which)
        return Estimate.constant(value, len(part), note="a wrong first choice has probability 1")

    return measure


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
    loss, scale = log_loss("top_1")(part, settings), part.scale
    worth = scale.worth(scale.kept, -part.log_p[part.is_correct])

    def limits(level: float) -> tuple[float, float]:
        assert loss.limits is not None
        below, above = skew_interval(worth, level, part.cluster)
        found = loss.limits(level)  # these allow for wrong choices that were not seen
        low, high = (
            (scale.kept, scale.kept)
            if found is None
            else (1 - found[1] / scale.unit, 1 - found[0] / scale.unit)
        )
        return min(scale.kept + below, low), min(max(scale.kept + above, high), 1.0)

    return Estimate(
        scale.kept, len(part), limits=limits, influence=lambda: worth / len(worth), cluster=part.cluster
    )


def lost_information(view: Literal["top_1", "pairs"] = "top_1") -> Measure:
    """Information lost by the wrong scale: (NLL(1) − NLL(T))/u."""

    def measure(part: Part, settings: Settings) -> Estimate:
        if view == "pairs":
            odds, _ = part.pair_log_odds
            if not len(odds):
                return Estimate.missing(len(part), "no pair is known")
            if np.isinf(odds).any():
                return Estimate.missing(len(part), "a wrong verdict with probability 1 has an infinite loss")
        scale = part.scale if view == "top_1" else part.pair_scale

        return Estimate(
            scale.lost,
            scale.n,
            limits=limits_of(scale.lost_interval),
            influence=scale.lost_influence,
            centre=(lambda: scale.lost_centre(settings.level)) if view == "top_1" else None,
            cluster=scale.cluster,
        )

    return measure


def usable_information(part: Part, _: Settings) -> Estimate:
    """Information of the rewards at their best scale: 1 − NLL(T)/u."""
    scale = part.scale
    return Estimate(
        scale.usable,
        len(part),
        limits=limits_of(scale.usable_interval),
        influence=scale.usable_influence,
        cluster=part.cluster,
    )


def temperature(part: Part, settings: Settings) -> Estimate:
    """Temperature that maximises the likelihood on all prompts."""
    if len(part) < FEWEST:
        return Estimate.missing(len(part), f"needs at least {FEWEST} prompts")
    scale = part.scale
    if scale.fit.at_limit is not None:
        return Estimate.missing(len(part), _LIMITS[scale.fit.at_limit])

    found = scale.temperature_interval(settings.level)
    return Estimate(
        scale.fit.temperature,
        len(part),
        # With little data every temperature above some value may fit.
        note="" if np.isfinite(found.high) else f"T is at least {found.low:.3g}, without upper limit",
        limits=limits_of(scale.temperature_interval),
        influence=scale.temperature_influence,
        cluster=part.cluster,
    )


def at_temperature(measure: Measure) -> Measure:
    """A measure of the forecasts at temperatures that were fitted on other prompts."""

    def measured(part: Part, settings: Settings) -> Estimate:
        if len(part) < FEWEST:
            return Estimate.missing(len(part), f"needs at least {FEWEST} prompts")
        return measure(part.at_temperature, settings)

    return measured


# Pointwise, within a prompt.


def base_log_loss(part: Part, _: Settings) -> Estimate:
    """Log loss of forecasting the share of correct responses for every response."""
    events = part.pointwise
    rate = float(np.clip(events.y.mean(), 1e-12, 1 - 1e-12))
    loss = -(events.y * np.log(rate) + (1 - events.y) * np.log1p(-rate))
    return Estimate.mean(loss, cluster=events.cluster)


def within_prompt_auroc(part: Part, _: Settings) -> Estimate:
    """How often a correct response has a larger reward than a wrong one of the same prompt (a tie counts 1/2)."""
    one, other = part.decided_pairs
    if not len(one):
        return Estimate.missing(len(part), "no prompt has both a correct and a wrong response")
    prompt = part.prompt[one]
    wins = np.heaviside(part.reward[one] - part.reward[other], 0.5)
    mixed, index = np.unique(prompt, return_inverse=True)
    share = np.bincount(index, wins) / np.bincount(index)
    cluster = None if part.cluster is None else np.unique(part.cluster[mixed], return_inverse=True)[1]
    return Estimate.mean(share, within=(0.0, 1.0), cluster=cluster)


def best_of(over: Literal["reward", "chance"]) -> Measure:
    """How often the response with the largest reward is correct, or a random one is."""

    def measure(part: Part, _: Settings) -> Estimate:
        label = np.nan_to_num(part.label)
        chance = np.add.reduceat(label, part.starts) / part.sizes
        values = part.of_first_choice(label) if over == "reward" else chance
        return Estimate.proportion(np.clip(values, 0.0, 1.0), cluster=part.cluster)

    return measure


# Several correct responses, the reference protocol, margins and lengths.


def correct_first(which: Literal["says", "right"]) -> Measure:
    """P(a correct response is first), and how often one is. Who is correct is the outcome, so there is no error."""

    def measure(part: Part, _: Settings) -> Estimate:
        if which == "right":
            return Estimate.proportion(
                part.of_first_choice(part.is_correct.astype(np.float64)), cluster=part.cluster
            )
        p = np.add.reduceat(np.where(part.is_correct, np.exp(part.log_p), 0.0), part.starts)
        return Estimate.stated(np.minimum(p, 1.0), cluster=part.cluster)

    return measure


def reference_top_1(part: Part, _: Settings) -> Estimate:
    """1 − mean P(first correct response), over all prompts: the number of the paper's public code."""
    return _top_1_mean(part, lambda one: 1 - _first_correct(one), 1.0)


def _first_correct(part: Part) -> FloatArray:
    correct = np.flatnonzero(part.is_correct)
    return np.exp(part.log_p[correct[np.searchsorted(correct, part.starts)]])


def margins(part: Part) -> FloatArray:
    """Return the worst correct reward minus the best wrong one: (n,); positive if all correct ones win."""
    correct = np.where(part.is_correct, part.reward, np.inf)
    wrong = np.where(part.is_correct, -np.inf, part.reward)
    return np.minimum.reduceat(correct, part.starts) - np.maximum.reduceat(wrong, part.starts)


def margin_mean(part: Part, _: Settings) -> Estimate:
    """Mean of the correct reward minus the best wrong one."""
    return Estimate.mean(margins(part), cluster=part.cluster)


def margin_median(part: Part, _: Settings) -> Estimate:
    """Median of the correct reward minus the best wrong one."""
    return Estimate.median(margins(part))


def length_correlation(of: Literal["reward", "confidence"]) -> Measure:
    """Spearman correlation of rewards and lengths within prompts, or of confidence and length over prompts."""

    def measure(part: Part, settings: Settings) -> Estimate:
        if np.isnan(part.length).any():
            return Estimate.missing(len(part), _NO_LENGTHS)
        if of == "reward":
            # Each minus the prompt's mean, because prompts differ.
            sums = spearman_sums(_centred(part, part.reward), _centred(part, part.length), part.prompt)
        else:
            x, y = part.of_first_choice(part.log_p), part.of_first_choice(part.length)
            sums = spearman_sums(x, y, np.arange(len(part)))
        if sums is None:
            return Estimate.missing(len(part), "all rewards or all lengths are equal")
        return Estimate.of_sums(*sums, resamples=settings.resamples, seed=settings.seed, cluster=part.cluster)

    return measure


def length_baseline(sign: int) -> Measure:
    """Accuracy of picking the longest (+1) or the shortest (−1) response."""

    def measure(part: Part, _: Settings) -> Estimate:
        if np.isnan(part.length).any():
            return Estimate.missing(len(part), _NO_LENGTHS)
        key = sign * part.length
        largest = key == np.repeat(np.maximum.reduceat(key, part.starts), part.sizes)
        hits = np.add.reduceat(largest & part.is_correct, part.starts, dtype=np.int64)
        share = hits / np.add.reduceat(largest, part.starts, dtype=np.int64)
        return Estimate.proportion(share, cluster=part.cluster)

    return measure


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


Ballots = Callable[[votes_of.VoteForecasts, FloatArray, FloatArray], FloatArray]
_BALLOTS: dict[str, Ballots] = {
    "says": lambda _, p, __: p,
    "agreement": lambda _, __, agree: agree,
    "gap": lambda _, p, agree: p - agree,
    "log_loss": lambda votes, _, __: votes_of.vote_log_losses(votes),
    "brier": lambda votes, _, __: votes_of.vote_briers(votes),
}
"""One number per prompt from the votes, what the first choice says, and the fraction of people who agree."""
_BALLOTS_OF_SEVERAL: dict[str, Ballots] = {
    "agreement_ceiling": lambda votes, _, __: votes_of.vote_agreement_ceilings(votes),
    "majority_agreement": lambda votes, _, __: votes_of.majority_agreements(votes),
    "voter_disagreement": lambda votes, _, __: votes_of.voter_disagreements(votes),
    "disagreement_excess": lambda votes, _, agree: 1 - agree - votes_of.voter_disagreements(votes),
    "log_loss_ceiling": lambda votes, _, __: votes_of.vote_log_loss_ceilings(votes),
    "log_loss_excess": lambda votes, _, __: (
        votes_of.vote_log_losses(votes) - votes_of.vote_log_loss_ceilings(votes)
    ),
    "brier_ceiling": lambda votes, _, __: votes_of.voter_disagreements(votes),
    "brier_excess": lambda votes, _, __: votes_of.vote_briers(votes) - votes_of.voter_disagreements(votes),
}
"""The same for prompts with several votes, which show how people differ."""
_SHARES = ("agreement", "majority_agreement", "voter_disagreement")
_WITHIN = {"gap": (-1.0, 1.0), "log_loss": (0.0, np.inf), "brier": (0.0, 2.0)}


def ballots(which: str) -> Measure:
    """Mean of one number per prompt that people voted on; see ``_BALLOTS``."""
    several = which in _BALLOTS_OF_SEVERAL
    values = (_BALLOTS_OF_SEVERAL if several else _BALLOTS)[which]

    def measure(part: Part, _: Settings) -> Estimate:
        if part.ballots is None:
            return Estimate.missing(0, "nobody prefers a response: all votes are ties")
        found, p, agree = part.ballots
        if several:
            kept = found.n_votes > 1
            if not kept.any():
                return Estimate.missing(
                    len(p), "every prompt has a single vote, which does not show how people differ"
                )
            found, p, agree = found.take(kept), p[kept], agree[kept]
        each = values(found, p, agree)
        if not np.isfinite(each).all():
            return Estimate.missing(len(each), "what some people chose has probability 0")
        if which == "says":
            return Estimate.stated(each)
        if which in _SHARES:
            return Estimate.proportion(np.clip(each, 0.0, 1.0))
        return Estimate.mean(each, within=_WITHIN.get(which, (-np.inf, np.inf)))

    return measure


def tie_share(part: Part, _: Settings) -> Estimate:
    """Fraction of people who find the responses equally good."""
    assert part.scores.ties is not None
    return Estimate.proportion(part.scores.ties[part.starts] / part.scores.n_votes)


def votes_per_prompt(part: Part, _: Settings) -> Estimate:
    """Mean number of people who voted on a prompt, ties included."""
    return Estimate.constant(float(part.scores.n_votes.mean()), len(part))


# Shared parts.


def _events(part: Part, view: ViewName) -> Events:
    events: Events = getattr(part, view)
    return events


def _known(view: ViewName, measure: Measure) -> Measure:
    """Return the measure, missing where the view has no events; an unknown view is a `ValueError`."""
    check_choice(view, "view", get_args(ViewName))

    def known(part: Part, settings: Settings) -> Estimate:
        if view in ("pairs", "preferred") and not len(part.pair_log_odds[0]):
            return Estimate.missing(len(part), "no pair is known")
        if view == "votes" and part.votes is None:
            return Estimate.missing(0, "nobody prefers a response: all votes are ties")
        if view == "pointwise_fitted" and len(part) < FEWEST:
            return Estimate.missing(len(part), f"needs at least {FEWEST} prompts")
        return measure(part, settings)

    return known


def _jumping(
    part: Part, view: ViewName, value: Callable[[Events], FloatArray], within: tuple[float, float]
) -> Estimate:
    """Return the mean of one number per event. It jumps with the outcome, even if that was never seen."""
    events = _events(part, view)
    values = events.per_prompt(value(events))
    if view in ("first_choice", "preferred"):
        others = [_events(one, view) for one in (part.if_right, part.if_wrong)]
        right, wrong = (one.per_prompt(value(one)) for one in others)
        ranks = part.ranks if view == "first_choice" else None
        if len(values) == len(right) == len(wrong):  # the pairs of some prompts may be unknown
            found = Estimate.mean(values, right, wrong, within=within, cluster=events.cluster)
            return replace(found, ranks=ranks)
        return Estimate.mean(values, within=within, cluster=events.cluster)
    joint = events.joint
    if isinstance(joint, Independent) and len(events) == events.n_prompts:  # one event per prompt
        likely, share = (events.p >= 0.5).astype(np.float64), 1.0 if joint.share is None else joint.share
        right, wrong = (value(replace(events, y=y * share)) for y in (likely, 1 - likely))
        return Estimate.mean(values, right, wrong, within=within, cluster=events.cluster)
    return Estimate.mean(values, within=within, cluster=events.cluster)


def _top_1_mean(part: Part, loss: Callable[[Part], FloatArray], most: float) -> Estimate:
    """Return the mean of a loss of each prompt (n,) between 0 and ``most``."""
    right, wrong = loss(part.if_right), loss(part.if_wrong)
    return Estimate.mean(loss(part), right, wrong, within=(0.0, most), cluster=part.cluster)


def _centred(part: Part, values: FloatArray) -> FloatArray:
    """Return values (N,) minus the mean of their prompt."""
    means = np.add.reduceat(values, part.starts) / part.sizes
    return values - np.repeat(means, part.sizes)

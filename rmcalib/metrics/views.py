"""Views of rewards: functions from scores to event tables.

| view | event | probability |
|---|---|---|
| top_1 | response j is the best of its prompt | Plackett-Luce top-1 marginal |
| first_choice | the response with the largest reward is the best | the largest top-1 marginal |
| pairs | i is better than j | Plackett-Luce sub-2 marginal, or as the judge states it |
| preferred | the preferred response of a pair is better | the larger one of the two |
| pointwise | response j is correct, on its own | σ((r_j − b)/T) |
| votes | a person chooses the first choice | its top-1 marginal |

An event is fixed before its outcome is known. "A correct response is first" is not, so it has no table.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from scipy.special import expit, log_expit, logit

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_groups, group_max, group_sums
from rmcalib.benchmarks._official import OfficialScore, tied_categories
from rmcalib.calibration.binning import ErrorOptions, bin_edges, bin_index, bin_sums
from rmcalib.calibration.estimates import Estimate
from rmcalib.calibration.events import Events, Independent, OneOf, Voters, Winners
from rmcalib.calibration.intervals import first_and_next
from rmcalib.calibration.maps import fit_sigmoid
from rmcalib.calibration.temperature import Scale, Softmax, cross_fit
from rmcalib.calibration.votes import VoteForecasts, vote_correlation, with_tie_outcome
from rmcalib.ranking import PlackettLuce
from rmcalib.ranking._plackett_luce import RaggedPlackettLuce
from rmcalib.scores import Scores

ALL_TIED = "all votes are ties"
"""Why there are no events of votes."""
ViewName = Literal["top_1", "first_choice", "pairs", "preferred", "pointwise", "pointwise_fitted", "votes"]
"""The views that measures take: properties of `Part`."""
Shared = TypeVar("Shared")
Ties = Literal["drop", "davidson"]
"""How people's "equally good" counts: left out, or forecast by Davidson's model."""
TIES: tuple[Ties, ...] = ("drop", "davidson")
FEWEST = 20
"""The smallest number of prompts for a temperature, a verdict or an alarm."""
MANY_PAIRS = 20_000_000
"""With more ordered pairs than this, pairs are measured without simulated worlds."""

MOST_CATEGORIES = 100
"""Categories that are measured on their own. More would say little, one by one, and take minutes."""


class Missing(Exception):
    """Some prompts have no value, or no events, for this reason."""


class Alternatives(NamedTuple):
    """What else could have happened to the events of a view, and what decides it.

    ``outcomes`` are the events if each choice were right, and if the runner-up were; none if that is unknown. ``ranks``
    are those of the rewards if these decide what is chosen; see `Estimate`.
    """

    outcomes: tuple[Events, ...] = ()
    ranks: FloatArray | None = None


@dataclass(frozen=True, eq=False)
class Part:
    """Some prompts of a model's scores, and the views of them.

    Attributes
    ----------
    scores : Scores
        The scores of these prompts.
    pl : RaggedPlackettLuce
        The forecasts: the rewards as log-utilities, at a temperature.
    label : float (N,)
        1 for correct responses, 0 for wrong ones, NaN where it is unknown.
    length : float (N,)
        Length of each response; NaN where it is unknown.
    one_answer : bool (n,)
        Whether the prompt has a single right answer; those of RewardBench 2's Ties have none.
    whole : Part, optional
        All prompts, if these are some of them.
    population : Part, optional
        If these prompts were drawn with known probabilities and labelled: all that they were drawn from.
    official : tuple of OfficialScore
        Scores as the benchmark's authors compute them.
    """

    scores: Scores
    pl: RaggedPlackettLuce
    label: FloatArray
    length: FloatArray
    one_answer: BoolArray
    whole: Part | None = None
    population: Part | None = None
    official: tuple[OfficialScore, ...] = ()
    name: str = "overall"
    calibrator: tuple[float, float] = (1.0, 0.0)
    ties: Ties = "drop"
    seed: int = 0
    # What was computed already; `replace` starts again.
    _made: dict[str, Part] = field(default_factory=dict, init=False, repr=False)
    _shared: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        """Return the number of prompts."""
        return self.scores.n_items

    @property
    def reward(self) -> FloatArray:
        """The rewards: (N,)."""
        return self.scores.reward

    @property
    def starts(self) -> IntArray:
        """Where each prompt's rows start: (n,)."""
        return self.scores.offsets[:-1]

    @cached_property
    def sizes(self) -> IntArray:
        """How many responses each prompt has: (n,)."""
        return np.diff(self.scores.offsets)

    @cached_property
    def prompt(self) -> IntArray:
        """Which prompt each row belongs to: (N,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @cached_property
    def category(self) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
        """The category of each prompt: (n,)."""
        return self.scores.category[self.starts]

    @cached_property
    def categories(self) -> list[str]:
        """The categories that are measured on their own, in the order of the prompts: the largest ones."""
        names, first, counts = np.unique(self.category, return_index=True, return_counts=True)
        largest = np.lexsort((first, -counts))[:MOST_CATEGORIES]
        return names[largest[np.argsort(first[largest])]].tolist()

    @cached_property
    def cluster(self) -> IntArray | None:
        """Which prompts belong together: (n,); None if every prompt stands alone."""
        if self.scores.cluster is None:
            return None
        groups = as_groups(self.scores.cluster[self.starts], len(self))
        return None if int(groups.max()) + 1 == len(self) else groups

    @property
    def n_clusters(self) -> int:
        """The number of clusters of prompts; that of prompts if every prompt stands alone."""
        return len(self) if self.cluster is None else int(self.cluster.max()) + 1

    @cached_property
    def weight(self) -> FloatArray | None:
        """What each prompt counts (n,), with mean 1: 1/its probability of being drawn; None if all count the same."""
        inclusion = self.scores.extra.get("inclusion")
        return None if inclusion is None else _weights(inclusion[self.starts])

    @cached_property
    def log_p(self) -> FloatArray:
        """Log P(i is the best of its prompt): (N,)."""
        return self.pl.log_top_1()

    @cached_property
    def is_correct(self) -> BoolArray:
        """Which responses are correct: (N,)."""
        return self.label == 1

    def take(self, prompts: BoolArray, name: str | None = None) -> Part:
        """Return some of the prompts (n,)."""
        rows = np.repeat(prompts, self.sizes)
        offsets = np.concatenate([[0], np.cumsum(self.sizes[prompts])])
        t = self.pl.temperature
        return replace(
            self,
            scores=self.scores.take(prompts),
            pl=RaggedPlackettLuce(self.pl.utilities[rows], offsets, t if len(t) == 1 else t[prompts]),
            label=self.label[rows],
            length=self.length[rows],
            one_answer=self.one_answer[prompts],
            whole=self.whole or self,
            population=None,
            name=self.name if name is None else name,
        )

    @cached_property
    def n_correct(self) -> IntArray:
        """The number of correct responses of each prompt (n,)."""
        return np.add.reduceat(self.is_correct, self.starts, dtype=np.int64)

    @cached_property
    def by_majority(self) -> bool:
        """Whether the correct response is what most of several people prefer: more often than any single person."""
        return self.scores.labels == "votes" and bool((self.scores.n_votes > 1).any())

    @cached_property
    def has_pointwise(self) -> bool:
        """Whether responses are measured one by one: by their labels, or because a judge states P(yes)."""
        return self.scores.view == "pointwise" or bool(
            np.isfinite(self.scores.details.get("p_yes", np.nan)).any()
        )

    @cached_property
    def n_tied(self) -> int:
        """The number of prompts whose first place is shared: ties of winners and of ranks."""
        if self.scores.labels != "best":
            return 0
        largest = np.fmax.reduceat(self.label, self.starts)
        return int(((self.n_correct == 0) & (largest > 0)).sum())

    def prompts(self, which: str) -> Part | None:
        """Return the prompts that a metric uses, or None if there are none.

        "one" has exactly one correct response and a single right answer; "several" are decided but have
        another number of right answers; "all" are decided; "votes" were voted on; "labelled" have a label.
        Where labels say of each response whether it is correct, how many are is an outcome: prompts are not
        selected by it, so there are none of the first three.
        """
        mask = self._masks[which]
        if mask.all():
            return self
        if mask.any() and which not in self._made:
            self._made[which] = replace(self.take(mask), population=self._drawn_from(mask, which))
        return self._made.get(which)

    def _drawn_from(self, mask: BoolArray, which: str) -> Part | None:
        """Return all prompts that those of a mask were drawn from, if the outcome does not decide who is one."""
        singly = self.scores.view == "pointwise"
        if which != ("labelled" if singly else "one") or "inclusion" not in self.scores.extra:
            return None
        drawn = np.isfinite(self.scores.extra["inclusion"][self.starts])
        if singly:
            complete = not np.isnan(self.label[np.repeat(mask, self.sizes)]).any()
            return self if complete and drawn[mask].all() else None
        labelled = self._masks["labelled"] & self.one_answer
        if not drawn[labelled].all() or not mask[labelled].all():
            return None
        return self if self.one_answer.all() else self.take(self.one_answer)

    def says_of_all(self, view: ViewName) -> Estimate | None:
        """Return what is stated for all that these prompts were drawn from; None if that is not known."""
        every = self.population
        if every is None or view not in ("first_choice", "pointwise"):
            return None
        if view == "first_choice":
            stated = Estimate.stated(every.first_choice.p, cluster=every.cluster)
        else:
            clusters = as_groups(every._own_clusters()[every.prompt], len(every.reward))
            stated = Estimate.stated(self._stated_singly(every), cluster=clusters)
        return replace(stated, n=len(getattr(self, view)))

    def shift(self, view: ViewName) -> FloatArray:
        """What to add to each outcome of a view, with expectation 0, for a narrower interval.

        λ(F − f): f is a number that is known of all prompts of the population, with mean F, and the smallest
        variance decides λ between 0 and 1 (difference estimator). It is a second judge's probability of the first
        choice or of each response; or the model's own, of the first choice at the best temperature, which does not
        depend on the scale of the rewards.
        """
        events: Events = getattr(self, view)
        if self.population is None or len(self) < FEWEST or view not in ("first_choice", "pointwise"):
            return np.zeros(len(events))
        predict = self._predicted if view == "first_choice" else self._predicted_singly
        y, w = events.y, np.ones(len(events)) if events.weight is None else events.weight
        of_labelled, every = predict(self), predict(self.population)
        f, right = of_labelled - (w * of_labelled).mean(), y - (w * y).mean()
        spread = float((w**2 * f**2).sum())
        slope = float(np.clip((w**2 * right * f).sum() / spread, 0.0, 1.0)) if spread > 1e-12 else 0.0
        moved: FloatArray = slope * (every.mean() - of_labelled)
        return moved if 0 < float((w * (y + moved)).mean()) < 1 else np.zeros(len(events))

    def _predicted(self, part: Part) -> FloatArray:
        """Return a prediction (n,) that the first choice of each prompt of another part is right; see `shift`."""
        if "second" in part.scores.extra:
            return np.asarray(part.scores.extra["second"][part.starts], dtype=np.float64)
        if self.scale.fit.at_limit is not None:
            return np.zeros(len(part))
        return np.exp(
            np.maximum.reduceat(part.pl.at_temperature(self.scale.fit.temperature).log_top_1(), part.starts)
        )

    def _predicted_singly(self, part: Part) -> FloatArray:
        """Return a prediction (N,) that each response of another part is correct; see `shift`."""
        second = part.scores.extra.get("second")
        return self._stated_singly(part) if second is None else np.asarray(second, dtype=np.float64)

    def _stated_singly(self, part: Part) -> FloatArray:
        """Return P(correct) of each response of another part (N,) as these prompts' calibrator states it."""
        t, b = self.calibrator
        return np.asarray(expit((part.reward - b) / t))

    @cached_property
    def _masks(self) -> dict[str, BoolArray]:
        """Which prompts (n,) `prompts` returns."""
        correct = self.n_correct
        labels = np.add.reduceat(~np.isnan(self.label), self.starts, dtype=np.int64)
        decided = (correct > 0) & (correct < self.sizes) & (labels == self.sizes)
        decided &= self.scores.view == "top_1"
        single = decided & (correct == 1) & self.one_answer
        return {
            "one": single,
            "several": decided & ~single,
            "all": decided,
            "votes": self.scores.n_votes > 0,
            "labelled": labels > 0,
        }

    def once(self, key: Hashable, make: Callable[[], Shared]) -> Shared:
        """Return a result that several metrics in a row share. Only the last one is kept: some are large."""
        if key not in self._shared:
            self._shared.clear()
            self._shared[key] = make()
        return self._shared[key]

    # Alternative outcomes, for intervals that allow for errors which were not seen.

    @cached_property
    def if_right(self) -> Part:
        """The same forecasts if every first choice were the correct response."""
        return self._with_winner(0)

    @cached_property
    def if_wrong(self) -> Part:
        """The same forecasts if the runner-up were the correct response."""
        return self._with_winner(1)

    def alternatives(self, view: ViewName) -> Alternatives:
        """Return what means over the events of a view need, to allow for outcomes that were not seen."""
        events: Events = getattr(self, view)
        if view in ("first_choice", "preferred"):
            others = tuple(getattr(part, view) for part in (self.if_right, self.if_wrong))
            same = all(other.n_prompts == events.n_prompts for other in others)  # some pairs may be unknown
            return Alternatives(others if same else (), self.ranks)
        if isinstance(events.joint, Independent) and len(events) == events.n_prompts:
            likely = (events.p >= 0.5).astype(np.float64)
            share = 1.0 if events.joint.share is None else events.joint.share
            return Alternatives(tuple(replace(events, y=y * share) for y in (likely, 1 - likely)))
        return Alternatives()

    def _with_winner(self, place: int) -> Part:
        label = np.zeros(len(self.label))
        label[first_and_next(self.reward, self.sizes)[place]] = 1.0
        return replace(self, label=label)

    # What the views are made of.

    @cached_property
    def first_shares(self) -> FloatArray:
        """Each response's share of the first place (N,): 1/t for t responses with the largest reward."""
        return shares_of_largest(self.reward, self.sizes)

    def of_first_choice(self, values: FloatArray) -> FloatArray:
        """Return the value of each prompt's first choice (n,): the mean of ``values`` (N,) over tied responses."""
        share = self.first_shares
        return group_sums(np.where(share > 0, values, 0.0) * share, self.sizes)

    def centred(self, values: FloatArray) -> FloatArray:
        """Return values (N,) minus the mean of their prompt."""
        return values - np.repeat(group_sums(values, self.sizes) / self.sizes, self.sizes)

    @cached_property
    def ranks(self) -> FloatArray:
        """The rewards minus the largest of their prompt, divided by the largest such distance: (N,)."""
        distance = self.reward - np.repeat(group_max(self.reward, self.sizes), self.sizes)
        return np.asarray(distance / (np.abs(distance).max() or 1.0))

    @cached_property
    def decided_pairs(self) -> tuple[IntArray, IntArray]:
        """Rows of the correct and the wrong response of each pair: (P,) each."""
        return decided_pairs(self.prompt, self.label)

    @property
    def pair_log_odds(self) -> tuple[FloatArray, IntArray]:
        """Log-odds that the correct response of each pair wins, and its prompt among those with a known pair."""
        odds, prompt = self._known_pairs
        if not len(odds):
            raise Missing("no pair is known")
        return odds, np.cumsum(np.diff(prompt, prepend=prompt[:1]) > 0)  # prompts are in their order

    @property
    def pair_cluster(self) -> IntArray | None:
        """Which prompts with a known pair belong together."""
        return None if self.cluster is None else self.clusters_of(np.unique(self._known_pairs[1]))

    def clusters_of(self, prompts: IntArray) -> IntArray | None:
        """Return which of some prompts (k,), given by their numbers, belong together."""
        return None if self.cluster is None else as_groups(self.cluster[prompts], len(prompts))

    @cached_property
    def _known_pairs(self) -> tuple[FloatArray, IntArray]:
        """Log-odds that the correct response of each known pair wins, and its prompt."""
        better, other = self.decided_pairs
        prompt, stated = self.prompt[better], self.scores.pair_probabilities
        if stated is None:
            return self.pl.pair_log_odds(better, other), prompt
        squares = self.sizes * self.sizes
        base = (np.cumsum(squares) - squares)[prompt]
        start, width = self.starts[prompt], self.sizes[prompt]
        p = stated[base + (better - start) * width + (other - start)]
        stated_pairs = ~np.isnan(p)
        return np.asarray(logit(p[stated_pairs])), prompt[stated_pairs]

    # The views.

    @cached_property
    def top_1(self) -> Events:
        """Which response is the best: one of each prompt is."""
        p = np.exp(self.log_p)
        joint = OneOf(p, self.sizes)
        y = self.is_correct.astype(np.float64)
        return Events(
            p,
            y,
            self.prompt,
            joint,
            log_p=self.log_p,
            logit=self.reward,
            cluster=self.cluster,
            weight=self.weight,
        )

    @cached_property
    def first_choice(self) -> Events:
        """Whether the first choice is the best; of t tied responses, each is the choice with a share of 1/t."""
        log_p = group_max(self.log_p, self.sizes)
        share = group_max(self.first_shares, self.sizes)
        # Rounding must not make the probability that one of t tied responses is the best larger than 1.
        p = np.minimum(np.exp(log_p), share)
        y = self.of_first_choice(self.is_correct.astype(np.float64))
        joint = Independent(p, share)
        prompt = np.arange(len(self))
        return Events(p, y, prompt, joint, log_p=log_p, cluster=self.cluster, weight=self.weight)

    @property
    def pairs(self) -> Events:
        """Which response of a pair is better, in both orders: the winner of a prompt decides its pairs.

        It is the largest view, and made anew for every use.
        """
        odds, prompt = self.pair_log_odds
        if self.scores.beats is not None or int((self.sizes * (self.sizes - 1)).sum()) > MANY_PAIRS:
            # Pairs cannot be simulated together: observed ones only.
            p, y = expit(np.concatenate([odds, -odds])), np.repeat([1.0, 0.0], len(odds))
            cluster = None if self.pair_cluster is None else np.tile(self.pair_cluster[prompt], 2)
            return Events.from_arrays(p, y, groups=np.tile(prompt, 2), draw="independent", clusters=cluster)
        first, second = _ordered_pairs(self.sizes)
        odds = self.pl.pair_log_odds(first, second)
        p, log_p = np.asarray(expit(odds)), np.asarray(log_expit(odds))
        y = np.where(self.label[first] == 1, 1.0, np.where(self.label[second] == 1, 0.0, np.nan))
        joint = Winners(self.log_p, self.sizes, first, second, p)
        return Events(p, y, self.prompt[first], joint, log_p=log_p, cluster=self.cluster)

    @cached_property
    def preferred(self) -> Events:
        """Whether the preferred response of a decided pair is the correct one (a tie counts 1/2)."""
        odds, prompt = self.pair_log_odds
        p, log_p = np.asarray(expit(np.abs(odds))), np.asarray(log_expit(np.abs(odds)))
        y = np.heaviside(odds, 0.5)
        return Events(p, y, prompt, Independent(p), log_p=log_p, logit=odds, cluster=self.pair_cluster)

    @cached_property
    def pointwise(self) -> Events:
        """Whether each labelled response is correct on its own: σ((r − b)/T), prompts as clusters."""
        t, b = self.calibrator
        return self._pointwise((self.reward - b) / t)

    @cached_property
    def pointwise_fitted(self) -> Events:
        """The same with b and T fitted on other prompts."""
        enough(self)
        labelled = ~np.isnan(self.label)
        r, y, groups = (
            self.reward[labelled],
            self.label[labelled],
            self._own_clusters()[self.prompt[labelled]],
        )
        fitted = np.full(len(self.reward), np.nan)
        fitted[labelled] = cross_fit(
            len(r),
            lambda train: fit_sigmoid(r[train], y[train]),
            lambda fit, test: fit.log_odds(r[test]),
            groups=groups,
            rng=self.seed,
        )
        return self._pointwise(fitted)

    def _pointwise(self, log_odds: FloatArray) -> Events:
        labelled = ~np.isnan(self.label)
        y, odds = self.label[labelled], log_odds[labelled]
        p, log_p = np.asarray(expit(odds)), np.asarray(log_expit(odds))
        prompt = np.arange(len(odds))  # every response is an observation; its prompt is its cluster
        cluster = as_groups(self._own_clusters()[self.prompt[labelled]], len(odds))
        inclusion = self.scores.extra.get("inclusion")
        weight = None if inclusion is None else _weights(inclusion[labelled])
        return Events(p, y, prompt, Independent(p), log_p=log_p, logit=odds, cluster=cluster, weight=weight)

    def _own_clusters(self) -> IntArray:
        return np.arange(len(self)) if self.cluster is None else self.cluster

    @cached_property
    def ballots(self) -> tuple[VoteForecasts, FloatArray, FloatArray] | None:
        """People's votes with their forecasts, what the first choice says, and who agrees; None without votes."""
        if self.scores.votes is None or self.scores.ties is None:
            return None
        davidson = self.ties == "davidson"
        every = None if self.whole is None else self.whole.prompts("votes")
        if davidson and every is not None and len(every) > len(self) and every.ballots is not None:
            # The model of ties is fitted on all prompts, so that a category is measured in the same way.
            mine = np.isin(every.scores.item_id[every.starts], self.scores.item_id[self.starts])
            votes, says, agree = every.ballots
            return votes.take(mine), says[mine], agree[mine]
        counted = self._counted
        if not counted.any():
            return None
        kept, sizes = np.repeat(counted, self.sizes), self.sizes[counted]
        votes = VoteForecasts(
            self.log_p[kept], self.scores.votes[kept], sizes, np.zeros(int(sizes.sum()), dtype=bool)
        )
        ties = self.scores.ties[self.starts][counted]
        if davidson and ties.any():
            votes = with_tie_outcome(votes, ties, rng=self.seed)
        # A tie is one more row of a prompt, after its responses.
        starts = np.cumsum(sizes) - sizes
        rows = np.arange(int(sizes.sum())) + np.repeat(votes.starts - starts, sizes)
        first = self.first_shares[kept]
        says, agree = (
            np.add.reduceat(first * values[rows], starts) for values in (votes.probability, votes.shares)
        )
        return votes, says, agree

    @property
    def _counted(self) -> BoolArray:
        """Which prompts (n,) have votes that count: not only ties, unless a tie is forecast, too."""
        assert self.scores.votes is not None
        return (self.ties == "davidson") | (np.add.reduceat(self.scores.votes, self.starts) > 0)

    @property
    def ballot_cluster(self) -> IntArray | None:
        """Which prompts of `ballots` belong together."""
        return self.clusters_of(np.flatnonzero(self._counted))

    @cached_property
    def votes(self) -> Events | None:
        """Whether a person prefers the first choice: the outcome is the share of votes."""
        if self.ballots is None:
            return None
        votes, p, share = self.ballots
        p, n = np.clip(p, 0.0, 1.0), votes.n_votes
        index = bin_index(p, bin_edges(p, ErrorOptions()))
        sums = bin_sums(index, p, share, 10)
        mean = (sums.outcome / np.maximum(sums.count, 1))[index]
        correlation = vote_correlation(share, np.clip(mean, 0.0, 1.0), n, sums.count[index])
        with np.errstate(divide="ignore"):
            return Events(
                p,
                share,
                np.arange(len(p)),
                Voters(p, n, correlation),
                log_p=np.log(p),
                cluster=self.ballot_cluster,
            )

    # Scales.

    @cached_property
    def scale(self) -> Scale:
        """The scale of the rewards as top-1 forecasts."""
        model = Softmax(self.pl.utilities, self.is_correct, self.sizes, weight=self.weight)
        return Scale(model, self.cluster)

    @cached_property
    def pair_scale(self) -> Scale:
        """The scale of the pairs."""
        return Scale(Softmax.of_pairs(*self.pair_log_odds), self.pair_cluster)

    @cached_property
    def at_temperature(self) -> Part:
        """The forecasts with each prompt at a temperature that was fitted on other prompts: five folds."""
        reward, correct, sizes = self.pl.utilities, self.is_correct, self.sizes
        spread = float(np.std(self.centred(reward))) or 1.0
        limits = spread / 100, spread * 100  # beyond, forecasts are one-hot or uniform

        near = self.scale.fit.temperature

        def fit(train: IntArray) -> float:
            kept = np.zeros(len(self), dtype=bool)
            kept[train] = True
            rows, weight = np.repeat(kept, sizes), None if self.weight is None else self.weight[kept]
            model = Softmax(reward[rows], correct[rows], sizes[kept], weight=weight)
            return float(np.clip(model.fit(near).temperature, *limits))

        fitted = cross_fit(
            len(self),
            fit,
            lambda temperature, test: np.full(len(test), temperature),
            groups=self.cluster,
            rng=self.seed,
        )
        return replace(self, pl=self.pl.at_temperature(fitted))


def _weights(inclusion: FloatArray) -> FloatArray | None:
    """Return 1/inclusion with mean 1; None if they are unknown, or all the same."""
    if not len(inclusion) or not np.isfinite(inclusion).all() or np.ptp(inclusion) < 1e-9:
        return None
    return np.asarray(1 / inclusion / (1 / inclusion).mean())


def whole_part(
    scores: Scores,
    *,
    lengths: FloatArray | None = None,
    official: tuple[OfficialScore, ...] = (),
    ties: Ties = "drop",
    seed: int = 0,
) -> Part:
    """Return all prompts of scores. ``lengths`` (N,) are those of the responses; default their tokens."""
    if ties == "davidson" and scores.labels == "best":
        scores = _with_ballots(scores)
    if lengths is None:
        lengths = np.where(scores.n_tokens >= 0, scores.n_tokens, np.nan)
    return Part(
        scores=scores,
        pl=PlackettLuce.ragged(scores.reward, scores.offsets),
        label=scores.label,
        length=lengths,
        one_answer=~np.isin(scores.category[scores.offsets[:-1]], sorted(tied_categories(scores))),
        official=official,
        ties=ties,
        seed=seed,
    )


def _with_ballots(scores: Scores) -> Scores:
    """Return scores whose winners are votes, one per prompt, so that Davidson's model can forecast ties.

    A prompt is tied if all its responses share first place.
    """
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    won = scores.is_correct.astype(np.int64)
    single = np.add.reduceat(won, starts) == 1
    tied = (np.maximum.reduceat(won, starts) == 0) & (np.minimum.reduceat(scores.label, starts) > 0)
    votes = np.where(np.repeat(single, sizes), won, 0)
    return replace(scores, votes=votes, ties=np.repeat(tied.astype(np.int64), sizes))


def enough(part: Part) -> Part:
    """Return the part if it has enough prompts to fit a temperature."""
    if len(part) < FEWEST:
        raise Missing(f"needs at least {FEWEST} prompts")
    if part.cluster is not None and len(np.unique(part.cluster)) < 2:
        raise Missing("needs at least two clusters of prompts")
    return part


def shares_of_largest(values: FloatArray, sizes: IntArray) -> FloatArray:
    """Return 1/t for the t responses with the largest value of their prompt, and 0 for the others: (N,)."""
    largest = (values == np.repeat(group_max(values, sizes), sizes)).astype(np.float64)
    return largest / np.repeat(group_sums(largest, sizes), sizes)


def decided_pairs(prompt: IntArray, label: FloatArray) -> tuple[IntArray, IntArray]:
    """Return rows of the correct and the wrong response of each pair, for rows (N,) in the order of prompt numbers."""
    correct, wrong = np.flatnonzero(label == 1), np.flatnonzero(label == 0)
    n_wrong = np.bincount(prompt[wrong], minlength=int(prompt[-1]) + 1)
    first_wrong = np.cumsum(n_wrong) - n_wrong
    owner = prompt[correct]
    repeats = n_wrong[owner]
    # The position of each pair among those of its correct response.
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return np.repeat(correct, repeats), wrong[np.repeat(first_wrong[owner], repeats) + within]


def _ordered_pairs(sizes: IntArray) -> tuple[IntArray, IntArray]:
    """Rows of all ordered pairs of different rows of a prompt."""
    repeats = np.repeat(sizes - 1, sizes)  # how many others the prompt of each row has
    start = np.repeat(np.cumsum(sizes) - sizes, sizes)
    first = np.repeat(np.arange(len(repeats)), repeats)
    second = np.arange(len(first))
    second += np.repeat(start - np.cumsum(repeats) + repeats, repeats)
    second += second >= first
    return first, second

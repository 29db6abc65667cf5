"""Decide with probabilities: when to accept a judge's choice, and what it costs.

The threshold has a guarantee: accept everything, or fixed-sequence testing, with exact binomial bounds.

Given t, the number of errors among the N prompts with p ≥ t is binomial with the error rate R(t) = P(wrong |
p ≥ t). The hypothesis R(t) > α is rejected if the Clopper-Pearson upper bound for R(t) is at most α. The
thresholds are fixed in advance and tested from the highest down until one is not rejected. So the chance that
any threshold with R(t) > α passes is at most the level of one test, whatever the number of thresholds.

The sequence stops early if the most confident choices are not the best ones. So accepting everything is tested before
it, with a small share of 1 − level (`ALL_SHARE`). The sequence has the rest, so that judges whose
probabilities are sharp lose little. The chance that any wrong threshold passes is at most the sum, 1 − level.

Very high thresholds accept too few prompts for any test to pass. The sequence starts at the first threshold
that accepts enough of them (`_first_size`). That depends on the probabilities only, not on which responses
are correct. The guarantee is exact if the error rate falls as the threshold rises. `results/decisions.md`
includes a case where it does not fall.

If prompts were drawn with unequal probabilities π, each counts w = 1/π, in units of the largest weight of those with
p ≥ t: N and the number of errors are sums of v = w/max w ≤ 1. The function v ↦ log E exp(−λvX) is convex and 0 at 0,
so it is at most v log E exp(−λX), and the sum of errors has at most the exponential moments E exp(−λ·) of a binomial
number with Σv trials. So we use the bound of that number. Without any error it is proven, because Π(1 − r_i) ≤
(1 − α)^Σv if Σ v_i r_i ≥ α Σ v_i; with errors, the tests enumerate and simulate it. With equal weights nothing changes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib.calibration import mean_interval
from rmcalib.calibration.best_of import doubled
from rmcalib.calibration.clusters import prompts_per_observation, size_of_cluster
from rmcalib.calibration.intervals import check_level, clopper_pearson
from rmcalib.metrics.best_of import with_enough_samples
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import FEWEST, Part
from rmcalib.repair.calibrator import (
    AcceptRule,
    Calibrator,
    as_calibrator,
    labelled_part,
    log_odds_of,
    quantiles,
    seen_prompts,
)
from rmcalib.repair.stopping import RULES, Drawn, drawn
from rmcalib.scores import Scores, load_scores

if TYPE_CHECKING:
    from rmcalib.repair.calibration import Calibration

THRESHOLDS = (*(1 - float(f"{1 / (1 + np.exp(x)):.3g}") for x in np.arange(16.0, -4.05, -0.1)), 0.0)
"""The thresholds in descending order: steps of 0.1 in log-odds, rounded. The last, 0, accepts everything."""
ALL_SHARE = 0.2
"""The share of 1 − level with which accepting everything is tested first."""
FRACTIONS = tuple(round(0.05 * i, 2) for i in range(1, 21))
"""The fractions of prompts for which the accuracy-rejection curve is computed."""


@dataclass(frozen=True)
class Threshold:
    """A threshold for the probability of a judge's first choice, and the prompts that it accepts.

    Attributes
    ----------
    threshold : float, optional
        Accept if the probability is at least this; 0 accepts everything, None accepts nothing.
    accepted : float
        Fraction of prompts that are accepted.
    n : int
        Number of accepted prompts; if none are accepted, the number in the first test.
    wrong, high : float, optional
        Fraction of wrong choices among these n, and its one-sided exact upper bound; None if no test was
        possible.
    fewest : int
        The smallest number of accepted prompts for which a test can pass.

    Examples
    --------
    >>> from rmcalib.repair import decide
    >>> from rmcalib.scores import Scores
    >>> decide(Scores.from_arrays([[9.0, 0.0]] * 100)).choice.threshold
    0.0
    """

    threshold: float | None
    accepted: float
    n: int
    wrong: float | None
    high: float | None
    fewest: int


@dataclass(frozen=True)
class Regret:
    """The cost of acting on the stated probabilities, compared with calibrated ones.

    A wrong response costs 1, asking a person costs `ask_cost`.

    Attributes
    ----------
    threshold : float
        1 − ask_cost. Accepting costs less than asking if the probability is at least this.
    accepted : float
        Fraction of prompts that are accepted by the stated probabilities.
    believed : float
        Mean cost per prompt that the stated probabilities predict.
    cost : float
        Mean cost per prompt that was measured.
    calibrated_cost : float
        The same with calibrated probabilities: the temperature of each prompt was fitted on other prompts.
    value, low, high : float
        The regret, cost − calibrated_cost, with its interval.
    """

    threshold: float
    accepted: float
    believed: float
    cost: float
    calibrated_cost: float
    value: float
    low: float
    high: float


@dataclass(frozen=True, repr=False)
class Decisions(Shown):
    """The result of `decide`.

    Attributes
    ----------
    calibrator : Calibrator
        What to act with: the calibrator that was given, or the rewards as stated, with the accept rule.
    n, left_out : int
        Number of prompts that were used, and of those that were not: without exactly one correct response or,
        if responses are labelled one by one, without a label of the first choice.
    wrong_at_most, level : float
        Accepted responses are wrong at most `wrong_at_most` of the time, with confidence `level`.
    ask_cost : float
        The cost of asking a person, as a fraction of the cost of a wrong response.
    choice : Threshold
        The threshold, and the prompts that it accepts.
    curve : list of dict
        The accuracy-rejection curve: one row per fraction of prompts, the most confident ones first
        (fraction, n, threshold, says, right, low, high). The limits are exact for each point alone.
    regret : Regret, optional
        The cost of acting on the stated probabilities; None with fewer than 20 prompts.
    drawing : list of dict
        If samples are labelled one by one: one row per number of samples n = 1, 2, 4, ... and rule, "best" (accept
        the best of n) or "first" (stop at the first one, after at most n). ``threshold`` of P(correct), None if
        nothing can be accepted; ``accepted``, ``wrong`` among these, its bound ``high``, ``samples`` drawn per
        prompt, and ``cost`` per prompt. The guarantee holds for all rows at once.
    sample_cost : float
        The cost of a sample in these rows, as a fraction of the cost of a wrong response.
    """

    calibrator: Calibrator
    n: int
    left_out: int
    wrong_at_most: float
    level: float
    ask_cost: float
    choice: Threshold
    curve: list[dict[str, Any]]
    regret: Regret | None
    drawing: list[dict[str, Any]]
    sample_cost: float

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.decisions import decisions_document

        return decisions_document(self)

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the accuracy-rejection curve."""
        return self.curve

    @property
    def asked(self) -> float:
        """The fraction of prompts that a person has to decide."""
        return 1 - self.choice.accepted

    def content(self) -> dict[str, Any]:
        """Return all results as a dictionary that can be written as JSON."""
        values = asdict(self)
        return {**values, "asked": self.asked, "rule": values.pop("calibrator")["rule"]}

    def __repr__(self) -> str:
        """Return the threshold, and how many prompts it accepts."""
        choice = self.choice
        return f"Decisions(threshold = {choice.threshold}, accepts {choice.accepted:.0%} of {self.n} prompts)"


def decide(
    scores: Any,
    *,
    wrong_at_most: float = 0.1,
    level: float = 0.95,
    ask_cost: float | None = None,
    sample_cost: float | None = None,
    calibrator: Calibrator | Calibration | str | Path | None = None,
    seed: int = 0,
) -> Decisions:
    """Find when a judge's first choice can be accepted without asking a person, and what that costs.

    Accepting everything is tested first, with a fifth of 1 − level. If that fails, thresholds that were fixed
    in advance are tested with the rest from the highest down, each with an exact binomial bound, until one
    fails. Accept a response if its probability is at least the last threshold that passed. Accepted responses
    are then wrong at most `wrong_at_most` of the time, with confidence `level`, on prompts like these.

    The probability is that of the first choice, the response with the largest reward: that it is the best of
    its prompt, or that it is correct where labels say so of each response (`Scores.labels`). A prompt whose
    first place is shared counts as wrong unless all of the tied responses are right.

    Parameters
    ----------
    scores : Scores, DataFrame or path
        The rewards; see `load_scores`. Only prompts with exactly one correct response are used or, if responses
        are labelled one by one, those whose first choice has a label. The prompts of a cluster count as fewer,
        by their design effect; those that were drawn with unequal probabilities (`label`) count by their weights.
    wrong_at_most : float
        The largest fraction of wrong responses among the accepted ones.
    level : float
        Confidence of the guarantee, and of all intervals.
    ask_cost : float, optional
        The cost of asking a person, as a fraction of the cost of a wrong response; default `wrong_at_most`.
    sample_cost : float, optional
        The cost of drawing one more sample, as a fraction of the cost of a wrong response; default a hundredth of
        `ask_cost`. Used where samples are labelled one by one, to say when to stop drawing.
    calibrator : Calibrator, Calibration or path, optional
        Turns the rewards into probabilities; default the rewards as stated. Fit it on other prompts: otherwise there
        is no guarantee (``rule.in_fit``).
    seed : int
        Seed of the folds of the regret.

    Returns
    -------
    Decisions
        Its ``calibrator`` has the rule: save it, and `apply` it to other prompts.

    Raises
    ------
    ValueError
        If there are no probabilities to act on (`Scores.refusal`).

    Examples
    --------
    >>> from rmcalib.scores import Scores
    >>> rng = np.random.default_rng(0)
    >>> utilities = 4 * rng.normal(size=(600, 3))
    >>> correct = (utilities + rng.gumbel(size=(600, 3))).argmax(axis=1)
    >>> found = decide(Scores.from_arrays(utilities, correct), wrong_at_most=0.1)
    >>> found.choice.wrong < 0.1, found.choice.accepted > 0.5
    (True, True)
    >>> found.calibrator.accept([9.0, 0.0, 0.1, 0.0], ["a", "a", "b", "b"]).tolist()
    [True, False, False, False]
    """
    check_level(level)
    for name, value in (("wrong_at_most", wrong_at_most), ("ask_cost", ask_cost)):
        if value is not None and not 0 < value < 1:
            raise ValueError(f"{name}: {value} is not between 0 and 1")
    if sample_cost is not None and not 0 <= sample_cost < 1:
        raise ValueError(f"sample_cost: {sample_cost} is not a fraction of the cost of a wrong response")
    given = scores.scores if isinstance(scores, Part) else load_scores(scores)
    used = stated(given) if calibrator is None else as_calibrator(calibrator)
    part = _measured(scores if isinstance(scores, Part) else given, used, calibrator is None)
    asking = wrong_at_most if ask_cost is None else ask_cost
    per_sample = asking / 100 if sample_cost is None else sample_cost
    drawing = _drawing(part, wrong_at_most, level, asking, per_sample)
    first = _first_choices(part, seed)
    labelled = ~np.isnan(first.right)
    if not labelled.any():
        raise ValueError(f"{given.name}: no response with the largest reward has a label; label those")
    if not labelled.all():
        part = part.take(labelled)
        first = FirstChoices(*(values[labelled] for values in vars(first).values()))
    inside = ~np.isin(part.scores.item_id[part.starts], given.item_id[used.outside(given.reward)])
    if not inside.any():
        raise ValueError(f"{given.name}: every prompt has a reward beyond the range of the calibrator's fit")
    tested = part if inside.all() else part.take(inside)  # the others are never accepted
    choice = safe_threshold(
        first.odds[inside],
        first.right[inside] < 1,  # of several tied first choices, any may be taken
        alpha=wrong_at_most,
        level=level,
        cluster=tested.cluster,
        weight=tested.weight,
    )
    choice = replace(choice, accepted=choice.accepted * float(np.average(inside, weights=part.weight)))
    rule = AcceptRule(
        of="best" if part.scores.view == "top_1" else "correct",
        threshold=choice.threshold,
        wrong_at_most=wrong_at_most,
        confidence=level,
        n=len(part),
        accepted=choice.accepted,
        wrong=None if choice.threshold is None else choice.wrong,
        responses=(int(part.sizes.min()), int(part.sizes.max())),
        in_fit=0 if calibrator is None else _in_fit(used, given),
    )
    return Decisions(
        calibrator=replace(used, rule=rule),
        n=len(part),
        left_out=given.n_items - len(part),
        wrong_at_most=wrong_at_most,
        level=level,
        ask_cost=asking,
        choice=choice,
        curve=_curve(first, level, part),
        regret=_regret(first, part, asking, level) if len(part) >= FEWEST else None,
        drawing=drawing,
        sample_cost=per_sample,
    )


def stated(scores: Scores) -> Calibrator:
    """Return the calibrator that takes rewards as they are stated: T = 1 and, for single responses, b = 0."""
    b = 0.0 if scores.view == "pointwise" else None
    reference = quantiles(scores.reward)
    return Calibrator(
        1.0,
        1.0,
        1.0,
        threshold=b,
        threshold_low=b,
        threshold_high=b,
        model=scores.name,
        reference=reference,
    )


def _in_fit(used: Calibrator, given: Scores) -> int:
    """Return on how many of these prompts a calibrator was fitted."""
    return seen_prompts(used, labelled_part(given, "one" if used.view == "top_1" else "labelled"))[0]


def _measured(source: Scores | Part, used: Calibrator, as_stated: bool) -> Part:
    """Return the labelled prompts, calibrated, or raise a ValueError if there are no probabilities to act on."""
    given = source.scores if isinstance(source, Part) else source
    if given.view == "pointwise" and used.view == "top_1":
        raise ValueError(
            f"{given.name}: these labels are correct or not, response by response, and the calibrator was fitted on "
            "which response is the best; fit one on such labels (`rmcalib calibrate`)"
        )
    moved = given if as_stated else used.apply(given)
    if (reason := moved.refusal()) is not None:
        remedy = "; then give the calibrator to `decide`" if moved.refusal("fit") is None else ""
        raise ValueError(f"{given.name}: there are no probabilities to act on: {reason}{remedy}")
    return labelled_part(source if as_stated else moved, "one" if moved.view == "top_1" else "labelled")


@dataclass(frozen=True)
class FirstChoices:
    """What is stated about each prompt's first choice, and whether it is right: (n,) each.

    ``odds`` and ``p`` are what is stated, ``calibrated`` is the probability on a scale that was fitted on other
    prompts, ``right`` is 1, 0, or between if the first place is shared, NaN if that is unknown.
    """

    odds: FloatArray
    p: FloatArray
    right: FloatArray
    calibrated: FloatArray


def _first_choices(part: Part, seed: int) -> FirstChoices:
    identity = stated(part.scores)
    folds = replace(part, seed=seed)
    if part.scores.view == "top_1":
        events = part.first_choice
        _, odds = identity.first_choices(part.reward, part.sizes, "best")
        calibrated = folds.at_temperature.first_choice.p if len(part) >= FEWEST else events.p
        return FirstChoices(odds, events.p, events.y, calibrated)
    from scipy.special import expit

    rows, odds = identity.first_choices(part.reward, part.sizes, "correct")
    p = np.asarray(expit(odds))
    tied = np.where(part.first_shares > 0, part.label, 0.0)  # NaN if one of the tied ones has no label
    right = np.add.reduceat(tied * part.first_shares, part.starts)
    fitted = np.full(len(part.reward), np.nan)
    fitted[~np.isnan(part.label)] = folds.pointwise_fitted.p if len(part) >= FEWEST else np.nan
    return FirstChoices(odds, p, right, fitted[rows])


def safe_threshold(
    odds: FloatArray,
    wrong: BoolArray,
    *,
    alpha: float = 0.1,
    level: float = 0.95,
    cluster: IntArray | None = None,
    weight: FloatArray | None = None,
) -> Threshold:
    """Return 0 if everything can be accepted, or the lowest threshold that passes the sequence of tests.

    ``odds`` (n,) are the log-odds of the probability of each prompt's first choice, ``wrong`` (n,) whether that
    choice is wrong. With ``cluster`` (n,), prompts that belong together count as fewer observations, and no test
    passes with fewer clusters than prompts are needed: those that are wrong together may all have been missed.
    With ``weight`` (n,), prompts count in units of the largest one among those that a threshold accepts.

    >>> odds = np.repeat([4.0, 1.0], 200)
    >>> wrong = np.repeat([False, True, False], [200, 100, 100])
    >>> found = safe_threshold(odds, wrong, alpha=0.05)
    >>> round(found.threshold, 3), found.n, found.wrong, round(found.high, 4)
    (0.75, 200, 0.0, 0.016)
    """
    v = np.ones(len(odds)) if weight is None else weight / weight.max()
    total, all_wrong = float(v.sum()), float(v @ wrong)
    for_all = 1 - ALL_SHARE * (1 - level)
    alike = _alike(wrong, v, for_all, cluster)
    everything = float(_upper(all_wrong / alike, total / alike, for_all))
    level = 1 - (1 - ALL_SHARE) * (1 - level)  # of the sequence
    fewest = int(np.ceil(_fewest(alpha, level) * size_of_cluster(cluster) * len(odds) / total - 1e-9))
    if everything <= alpha and len(odds) >= fewest:
        return Threshold(0.0, 1.0, len(odds), all_wrong / total, everything, fewest)
    if len(odds) < fewest:
        return Threshold(None, 0.0, 0, None, None, fewest)
    order = np.argsort(-odds, kind="stable")
    counts = np.searchsorted(-odds[order], -log_odds_of(THRESHOLDS), side="right")
    v, wrong = v[order], wrong[order]
    accepted, errors = (np.concatenate([[0.0], np.cumsum(sums)])[counts] for sums in (v, v * wrong))
    together, enough = _prefixes(wrong, v, counts, alpha, level, None if cluster is None else cluster[order])
    together *= np.maximum.accumulate(v)[np.maximum(counts, 1) - 1]
    start, last, high = _sequence(accepted, errors, together, enough, total, alpha, level)
    shown = max(last, start)
    return Threshold(
        threshold=None if last < start else THRESHOLDS[last],
        accepted=0.0 if last < start else float(accepted[shown] / total),
        n=int(counts[shown]),
        wrong=float(errors[shown] / accepted[shown]),
        high=float(high[shown]),
        fewest=fewest,
    )


def _sequence(
    accepted: ArrayLike,
    wrong: ArrayLike,
    together: FloatArray,
    enough: BoolArray,
    n: float,
    alpha: float,
    level: float,
) -> tuple[int, int, FloatArray]:
    """Test thresholds from the highest down; return the first tested, the last that passed, and all bounds.

    For each threshold (T,): how many of the n prompts it accepts, how many of those are wrong (weighted), how many
    count as one, and whether it accepts enough for a test. If none passes, the last one is before the first.
    """
    counts, errors = np.asarray(accepted) / together, np.asarray(wrong) / together
    high = np.where(enough, _upper(errors, counts, level), 1.0)
    first = _first_size(int(n / together[-1]), alpha, level)
    start = int(np.argmax(enough & (np.asarray(accepted) >= first * together[-1] * (1 - 1e-9))))
    failed = np.flatnonzero(high[start:] > alpha)
    return start, start + (int(failed[0]) if len(failed) else len(high) - start) - 1, high


def _upper(k: ArrayLike, n: ArrayLike, level: float) -> FloatArray:
    """Return the one-sided Clopper-Pearson upper bound of the proportions k / n; 1 where all succeed."""
    from scipy.special import betaincinv

    successes, total = np.asarray(k, dtype=float), np.asarray(n, dtype=float)
    rest = total - successes
    bound = betaincinv(successes + 1, np.where(rest > 0, rest, 1.0), level)
    return np.where(rest > 0, bound, 1.0)


def _first_size(n: int, alpha: float, level: float) -> int:
    """Return how many of n prompts the first tested threshold must accept.

    With too few of them, one error ends the sequence; with too many, less confident choices are included.

    >>> [_first_size(n, 0.1, 0.95) for n in (30, 150, 300, 2000)]
    [30, 58, 100, 200]
    """
    small = min(_enough(alpha, level), max(2 * _fewest(alpha, level), n // 3))
    return min(n, max(small, n // 10))


def _fewest(alpha: float, level: float) -> int:
    """Return the smallest number of accepted prompts that passes a test if none of them is wrong.

    >>> _fewest(0.05, 0.95)
    59
    """
    return int(np.ceil(np.log1p(-level) / np.log1p(-alpha)))


@cache
def _enough(alpha: float, level: float) -> int:
    """Return the number of accepted prompts that passes a test if half of the allowed errors occur.

    >>> _enough(0.1, 0.95)
    103
    """
    n = np.arange(_fewest(alpha, level), int(50 / alpha))
    passed = _upper(np.floor(n * alpha / 2), n, level) <= alpha
    # The smallest size such that it and all larger ones pass.
    return int(n[np.flatnonzero(~passed)[-1] + 1] if not passed.all() else n[0])


def _alike(wrong: BoolArray, v: FloatArray, level: float, cluster: IntArray | None) -> float:
    """Return how many prompts count as one in a one-sided bound: the prompts of a cluster are wrong together."""
    rate = float(v @ wrong) / max(float(v.sum()), 1e-300)
    return prompts_per_observation(v * (wrong - rate), cluster, 2 * level - 1)


def _prefixes(
    wrong: BoolArray,
    v: FloatArray,
    counts: IntArray,
    alpha: float,
    level: float,
    cluster: IntArray | None,
) -> tuple[FloatArray, BoolArray]:
    """Return `_alike` of the first ``counts`` prompts (at least that of all), and whether they have enough clusters."""
    alike, enough = np.full(len(counts), _alike(wrong, v, level, cluster)), np.ones(len(counts), dtype=bool)
    if cluster is not None:
        for n in np.unique(counts[counts > 0]):
            members = np.unique(cluster[:n], return_inverse=True)[1]
            alike[counts == n] = max(alike[-1], _alike(wrong[:n], v[:n], level, members))
            enough[counts == n] = n >= _fewest(alpha, level) * size_of_cluster(members)
    return alike, enough


def _drawing(
    part: Part, alpha: float, level: float, asking: float, per_sample: float
) -> list[dict[str, Any]]:
    """Return when the best of n samples can be accepted, and when to stop drawing; see `Decisions.drawing`."""
    whole = np.logical_and.reduceat(~np.isnan(part.label), part.starts)
    if part.scores.view != "pointwise" or not whole.any():
        return []
    kept, most, _ = with_enough_samples(part, None)
    if most < 2:
        return []
    part = part if kept.all() else part.take(kept)
    v = np.ones(len(part)) if part.weight is None else part.weight / part.weight.max()
    thresholds = log_odds_of(THRESHOLDS)
    rules = [(n, rule) for n in doubled(most).tolist() for rule in (RULES if n > 1 else RULES[:1])]
    each = 1 - (1 - level) / len(rules)  # so that the guarantee holds for all of them, and one may be chosen
    rows = []
    for n, rule in rules:
        outcome = drawn(part.reward, part.label, part.sizes, n, thresholds, rule)
        place, high = _safe_stop(outcome, v, alpha, each, part.cluster)
        row = {"n": n, "rule": rule, "threshold": None, "accepted": 0.0, "wrong": None, "high": None}
        if place is None:  # a person is asked at once
            rows.append({**row, "samples": 0.0, "cost": asking})
            continue
        accepted, wrong, samples = (
            float(v @ values[:, place] / v.sum())
            for values in (outcome.accepted, outcome.wrong, outcome.samples)
        )
        row |= {"threshold": THRESHOLDS[place], "accepted": accepted, "wrong": wrong / accepted, "high": high}
        cost = wrong + asking * (1 - accepted) + per_sample * samples
        rows.append({**row, "samples": samples, "cost": cost})
    return rows


def _safe_stop(
    outcome: Drawn, v: FloatArray, alpha: float, level: float, cluster: IntArray | None = None
) -> tuple[int | None, float]:
    """Return the place of the lowest threshold that passes the tests of `safe_threshold` (None: none), and its bound.

    Averages over orders vary less than the outcome of one order, so the binomial bounds hold.
    """
    accepted, wrong, n = v @ outcome.accepted, v @ outcome.wrong, float(v.sum())
    rate = np.divide(wrong, accepted, out=np.zeros(len(accepted)), where=accepted > 0)
    together = np.full(len(accepted), size_of_cluster(cluster))
    if cluster is not None:
        residual = (v[:, None] * (outcome.wrong - rate * outcome.accepted)).T
        alike = [prompts_per_observation(column, cluster, 2 * level - 1) for column in residual]
        together = np.maximum(together, alike)
    for_all, level = 1 - ALL_SHARE * (1 - level), 1 - (1 - ALL_SHARE) * (1 - level)
    everything = float(_upper(wrong[-1] / together[-1], n / together[-1], for_all))
    if everything <= alpha:
        return len(accepted) - 1, everything
    enough = accepted >= _fewest(alpha, level) * together
    start, last, high = _sequence(accepted, wrong, together, enough, n, alpha, level)
    return (None, 1.0) if last < start else (last, float(high[last]))


def _curve(first: FirstChoices, level: float, part: Part) -> list[dict[str, Any]]:
    """Return the accuracy on the most confident fraction of the prompts, for each fraction."""
    order = np.argsort(-first.odds, kind="stable")
    p, right = first.p[order], first.right[order]
    v = np.ones(len(order)) if part.weight is None else part.weight[order]
    mean = float(v @ right / v.sum())
    cluster = None if part.cluster is None else part.cluster[order]
    alike = prompts_per_observation(v * (right - mean), cluster, level)
    total, says, rights = np.cumsum(v), np.cumsum(v * p), np.cumsum(v * right)
    rows = []
    for n in np.unique(np.maximum(np.ceil(np.array(FRACTIONS) * len(p) - 1e-9).astype(int), 1)).tolist():
        unit = alike * float(v[:n].max())
        low, high = clopper_pearson(rights[n - 1] / unit, total[n - 1] / unit, level)
        rows.append(
            {
                "fraction": float(total[n - 1] / total[-1]),
                "n": n,
                "threshold": float(p[n - 1]),
                "says": float(says[n - 1] / total[n - 1]),
                "right": float(rights[n - 1] / total[n - 1]),
                "low": low,
                "high": high,
            }
        )
    return rows


def _regret(first: FirstChoices, part: Part, asking: float, level: float) -> Regret:
    v = np.ones(len(first.p)) if part.weight is None else part.weight
    wrong = 1 - first.right
    accepted, accepted_then = first.p >= 1 - asking, first.calibrated >= 1 - asking
    cost, cost_then = (np.where(each, wrong, asking) for each in (accepted, accepted_then))
    believed = np.where(accepted, 1 - first.p, asking)
    gained = v @ (cost - cost_then) / v.sum()
    interval = mean_interval(gained + v * (cost - cost_then - gained), clusters=part.cluster, level=level)

    def mean(values: ArrayLike) -> float:
        return float(v @ np.asarray(values) / v.sum())

    return Regret(
        threshold=1 - asking,
        accepted=mean(accepted),
        believed=mean(believed),
        cost=mean(cost),
        calibrated_cost=mean(cost_then),
        value=interval.value,
        low=interval.low,
        high=interval.high,
    )

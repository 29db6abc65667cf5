"""A calibrator: how rewards become probabilities, the data of its fit, and when to accept a response."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from annotated_types import Ge, Gt, Le, Lt
from numpy.typing import ArrayLike
from scipy.special import expit, log_expit

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_floats, as_groups, segment_log_softmax
from rmcalib._util.display import bracketed, clean_line, count
from rmcalib._util.files import json_hash, write_json
from rmcalib._util.storage import read_input
from rmcalib._util.texts import parse_json, typed
from rmcalib.calibration.clusters import mean_error
from rmcalib.calibration.intervals import first_and_next
from rmcalib.calibration.maps import fit_sigmoid
from rmcalib.metrics.views import FEWEST, Part, whole_part
from rmcalib.scores import Scores, load_scores
from rmcalib.scores.scale import Scale, View

_LARGEST = 1e101  # beyond it, probabilities of the largest rewards would overflow
Positive = Annotated[float, Ge(1 / _LARGEST), Le(_LARGEST)]
Fraction = Annotated[float, Ge(0), Le(1)]
Number = Annotated[float, Ge(-_LARGEST), Le(_LARGEST)]
_HOT = 1e9  # spreads of the rewards
FORMAT = 1
"""The version of the file format."""
N_QUANTILES = 101
"""The number of quantiles of the rewards that a calibrator keeps."""
MOST_MARKS = 10_000
"""The number of prompts of the fit that a calibrator remembers; of more, those with the smallest digests."""
MARK_BYTES = 6


@dataclass(frozen=True)
class AcceptRule:
    """When to accept a prompt's first choice, the response with the largest reward; made by `decide`.

    Attributes
    ----------
    of : {"best", "correct"}
        Which probability the threshold is about: that the first choice is the best of its prompt, or that it is
        correct on its own. It is the calibrator's probability, not that of the raw reward.
    threshold : float, optional
        Accept if that probability is at least this. 0 accepts every prompt; None accepts none.
    wrong_at_most, confidence : float
        The guarantee: at most this fraction of the accepted responses is wrong, with this confidence, on
        prompts like those that it was tested on.
    n : int
        Number of prompts that it was tested on.
    accepted : float
        The fraction of them that it accepts.
    wrong : float, optional
        The fraction of the accepted ones that is wrong; None if none are accepted.
    responses : tuple of int
        The smallest and the largest number of responses to one of these prompts. With `of` = "correct", the rule
        is about the best of so many.
    in_fit : int
        How many of these prompts the calibrator was fitted on. With any of them, there is no guarantee.

    Examples
    --------
    >>> print(AcceptRule("best", 0.7, 0.1, 0.95, n=400, accepted=0.54, wrong=0.05, responses=(4, 4)))
    accept the first choice of a prompt if P(best) is at least 0.7: at most 10% wrong with 95% confidence \
    (54% of 400 prompts accepted, 5% of them wrong)
    """

    of: Literal["best", "correct"]
    threshold: Fraction | None
    wrong_at_most: Annotated[float, Gt(0), Lt(1)]
    confidence: Annotated[float, Gt(0), Lt(1)]
    n: Annotated[int, Ge(0)]
    accepted: Fraction
    wrong: Fraction | None
    responses: tuple[int, int]
    in_fit: Annotated[int, Ge(0)] = 0

    def __str__(self) -> str:
        """Return the rule and its guarantee as a phrase."""
        promise = (
            f"at most {100 * self.wrong_at_most:.3g}% wrong with {100 * self.confidence:.3g}% confidence"
        )
        if self.in_fit and self.threshold is not None:
            promise = "no guarantee, since it was tested on prompts of the calibrator's fit"
        tested = count(self.n, "prompt")
        if self.threshold is None:
            return f"accept no response: no threshold keeps {promise} ({tested})"
        when = "" if self.threshold == 0 else f" if P({self.of}) is at least {self.threshold:.10g}"
        seen = f"{self.accepted:.0%} of {tested} accepted, {self.wrong or 0:.0%} of them wrong"
        return f"accept the first choice of a prompt{when or ' always'}: {promise} ({seen})"


@dataclass(frozen=True)
class Input:
    """One of several rewards that a calibrator takes; made by `combine` or `all_hold`.

    Attributes
    ----------
    name : str
        The judge.
    weight : float
        What its reward is multiplied by, before the rewards are added up.
    low, high : float, optional
        Limits of the weight's interval; None if the weight was not fitted.
    smallest, largest : float
        The range of its rewards in the fit.
    temperature, threshold : float, optional
        Its own T and b, if the calibrator joins rewards of different things.
    """

    name: str
    weight: Number
    low: Number | None
    high: Number | None
    smallest: Number
    largest: Number
    temperature: Positive | None = None
    threshold: Number | None = None


@dataclass(frozen=True)
class CalibratorCheck:
    """Whether a calibrator holds on other scores: the result of `Calibrator.check`.

    Attributes
    ----------
    temperature, low, high : float
        The best temperature for the other scores, with its interval.
    n : int
        Number of prompts that this was fitted on. Those that the calibrator was fitted on are left out if enough
        others are there.
    holds : bool or None
        Whether chance can explain the difference to the calibrator; None if fewer than 20 prompts are others than
        those that it was fitted on, which cannot show that.
    used : int
        How many of the prompts the calibrator was fitted on; estimated if it was fitted on more than 10,000.
    threshold : float, optional
        The best b of a calibrator of single responses.
    """

    temperature: float
    low: float
    high: float
    n: int
    holds: bool | None
    used: int = 0
    threshold: float | None = None


@dataclass(frozen=True, repr=False)
class Calibrator:
    """Turns rewards into probabilities: a temperature T that was fitted on labelled prompts, and when to accept.

    P(response j is the best of its prompt) = softmax(r/T)_j. With a threshold b, fitted on responses that are
    labelled one by one, also P(response j is correct) = σ((r_j − b)/T). Both are only valid for prompts like
    those of the fit. Use `check` before you use it on others.

    Parameters
    ----------
    temperature : float
        The number that rewards are divided by.
    low, high : float
        Limits of its interval.
    level : float
        Confidence level of the interval.
    threshold, threshold_low, threshold_high : float, optional
        The reward b at which a response is as likely correct as not, with its interval.
    covariance : 2 × 2 floats, optional
        Of the slope s and the intercept c in the log-odds s·(r − b)/T + c, if there is a threshold.
    model : str
        Name of the judge.
    fitted_on : mapping
        The data of the fit: benchmark, revision, n (prompts), clusters, categories, a hash of the scores,
        the model's revision, the kind of judge. Empty if nothing was fitted: the rewards are taken as stated.
    reference : tuple of float
        Quantiles of the rewards that it was fitted on, from the smallest to the largest.
    prompts : str
        The prompts that it was fitted on: a digest of 12 hexadecimal digits each, of its id and rewards. Of more
        than 10,000, those with the smallest digests.
    versions : mapping
        Versions of rmcalib, numpy and scipy.
    rule : AcceptRule, optional
        When to accept a prompt's first choice, with its guarantee; `decide` adds it.
    inputs : tuple of Input
        Several rewards. Of one thing (`combine`), r is their sum, each times its weight. Of different things
        (`all_hold`), r is the log-odds that all hold: P = Π_k σ((r_k − b_k)/T_k). Empty for one reward.

    Examples
    --------
    >>> calibrator = Calibrator(2.0, 1.8, 2.3, model="org/rm", reference=(-1.0, 0.0, 1.0))
    >>> calibrator
    Calibrator of org/rm: P(best of its prompt) = softmax(reward / T), T = 2 [1.8, 2.3]
      not fitted: T is as given; rewards from -1 to 1
      no accept rule (`decide` finds one)
    >>> calibrator.p_best([4.0, 4 - 2 * np.log(3), 1.0], ["a", "a", "b"]).round(4).tolist()
    [0.75, 0.25, 1.0]
    >>> calibrator.outside([0.5, 7.0]).tolist(), calibrator.percentile([0.5, 7.0]).tolist()
    ([False, True], [75.0, 100.0])
    """

    temperature: Positive
    low: float
    high: float
    level: Annotated[float, Gt(0), Lt(1)] = 0.95
    threshold: Number | None = None
    threshold_low: float | None = None
    threshold_high: float | None = None
    covariance: tuple[tuple[Number, Number], tuple[Number, Number]] | None = None
    model: str = ""
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    reference: tuple[Number, ...] = ()
    prompts: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    rule: AcceptRule | None = None
    inputs: tuple[Input, ...] = ()

    @property
    def view(self) -> View:
        """What its labels were: "top_1", the best response of a prompt, or "pointwise", each response alone."""
        return "top_1" if self.threshold is None else "pointwise"

    @property
    def joins(self) -> bool:
        """Whether it joins rewards of different things, each with its own T and b."""
        return bool(self.inputs) and all(judge.threshold is not None for judge in self.inputs)

    def __repr__(self) -> str:
        """Return three lines: what a reward means, what it was fitted on, and when to accept."""
        form = "{:.3g}".format
        t = bracketed({"value": self.temperature, "low": self.low, "high": self.high}, form)
        meaning = f"P(best of its prompt) = softmax(reward / T), T = {t}"
        if self.threshold is not None:
            b = {"value": self.threshold, "low": self.threshold_low, "high": self.threshold_high}
            meaning = f"P(correct) = σ((reward − b) / T), T = {t}, b = {bracketed(b, form)}"
        if self.joins:
            each = (
                f"σ(({clean_line(judge.name)} − {judge.threshold:.3g}) / {judge.temperature:.3g})"
                for judge in self.inputs
            )
            meaning = f"P(all hold) = {' · '.join(each)}"
        elif self.inputs:
            weighted = " + ".join(f"{judge.weight:.3g} × {clean_line(judge.name)}" for judge in self.inputs)
            meaning += f", reward = {weighted}"
        where, n = clean_line(self.fitted_on.get("benchmark") or "one file"), self.fitted_on.get("n")
        fit = f"fitted on {count(n, 'prompt')} of {where}" if n else "not fitted: T is as given"
        seen = (
            f"; rewards from {form(self.reference[0])} to {form(self.reference[-1])}"
            if self.reference
            else ""
        )
        rule = self.rule or "no accept rule (`decide` finds one)"
        return f"Calibrator of {clean_line(self.model or 'a judge')}: {meaning}\n  {fit}{seen}\n  {rule}"

    def one_reward(self, rewards: ArrayLike) -> FloatArray:
        """Return the reward r of each response: the rewards themselves, or one of several (..., J).

        Rewards of one thing are added up with their weights; those of different things become the log-odds that
        all hold.

        >>> panel = Calibrator(1.0, 1.0, 1.0, inputs=(Input("a", 2.0, 1, 3, 0, 1), Input("b", 1.0, 0, 2, 0, 1)))
        >>> panel.one_reward([[1.0, 0.5], [0.0, 1.0]]).tolist()
        [2.5, 1.0]
        """
        given = np.asarray(rewards, dtype=np.float64)
        if not self.inputs:
            return given
        if given.ndim == 0 or given.shape[-1] != len(self.inputs):
            names = ", ".join(clean_line(judge.name) for judge in self.inputs)
            raise ValueError(
                f"rewards: expected {len(self.inputs)} of each response ({names}), got shape {given.shape}"
            )
        if not self.joins:
            return np.asarray(given @ np.array([judge.weight for judge in self.inputs]))
        temperature, threshold = np.array([(judge.temperature, judge.threshold) for judge in self.inputs]).T
        return log_odds(log_expit((given - threshold) / temperature).sum(axis=-1))

    def within(self, rewards: ArrayLike) -> FloatArray:
        """Return rewards, moved into the range of the fit if they are beyond it; of a panel each into its own.

        >>> Calibrator(1.0, 1.0, 1.0, reference=(0.0, 2.0)).within([-1.0, 1.0, 3.0]).tolist()
        [0.0, 1.0, 2.0]
        """
        return np.clip(np.asarray(rewards, dtype=np.float64), *self._range())

    def _range(self) -> FloatArray:
        """Return the smallest and the largest reward of the fit; of a panel (2, J)."""
        if self.inputs:
            return np.array([(judge.smallest, judge.largest) for judge in self.inputs]).T
        return np.array((self.reference[0], self.reference[-1]) if self.reference else (-np.inf, np.inf))

    def logit(self, rewards: ArrayLike) -> FloatArray:
        """Return (r − b)/T of each response, the log-odds of P(correct); without b r/T, log-utilities.

        Parameters
        ----------
        rewards : float, any shape
            Rewards; of a panel of J judges (..., J).
        """
        return self._scaled(self.one_reward(rewards))

    def p_correct(self, rewards: ArrayLike) -> FloatArray:
        """Return P(correct) = σ((r − b)/T) of each response.

        Parameters
        ----------
        rewards : float, any shape
            Rewards; of a panel of J judges (..., J).

        Returns
        -------
        float, of that shape

        Raises
        ------
        ValueError
            If the calibrator was fitted on which response is the best of its prompt.

        Examples
        --------
        >>> Calibrator(2.0, 1.8, 2.3, threshold=1.0).p_correct([1.0, 1 + 2 * np.log(3)]).round(4).tolist()
        [0.5, 0.75]
        """
        return np.asarray(expit(self._log_odds_correct(self.one_reward(rewards))))

    def p_best(self, rewards: ArrayLike, prompt: ArrayLike) -> FloatArray:
        """Return P(best of its prompt) = softmax(r/T) of each response.

        With a threshold, it is the probability that this response is the correct one if exactly one of its
        prompt's responses is.

        Parameters
        ----------
        rewards : float (N,)
            Rewards; of a panel of J judges (N, J).
        prompt : (N,)
            Which prompt each response belongs to, in any order: ids, texts or numbers.

        Returns
        -------
        float (N,)

        Examples
        --------
        >>> Calibrator(1.0, 1.0, 1.0).p_best([0.0, 5.0, np.log(3)], [7, 8, 7]).round(4).tolist()
        [0.25, 1.0, 0.75]
        """
        reward, sizes, order = self._by_prompt(rewards, prompt)
        p = np.empty(len(reward))
        p[order] = np.exp(self._log_p_best(reward, sizes))
        return p

    def outside(self, rewards: ArrayLike) -> BoolArray:
        """Return which rewards are beyond the range of the fit, where the probabilities are extrapolated.

        Of a panel (..., J): if one of its rewards is. Without a known range, none are.
        """
        given = np.asarray(rewards, dtype=np.float64)
        self.one_reward(given)  # checks the shape
        low, high = self._range()
        beyond = ~((given >= low) & (given <= high))
        return np.asarray(beyond.any(axis=-1) if self.inputs else beyond)

    def accept(self, rewards: ArrayLike, prompt: ArrayLike) -> BoolArray:
        """Return which responses are accepted by the rule: at most one of each prompt, its first choice.

        Of several responses that share the largest reward, the first one is the choice. The test of the rule
        counted such a prompt as wrong unless all of them are right. A rule about the best of several responses
        says nothing about a prompt with only one, so none is accepted, nor is one of a prompt with a reward beyond
        the range of the fit (`outside`).

        Parameters
        ----------
        rewards, prompt
            As for `p_best`.

        Returns
        -------
        bool (N,)

        Examples
        --------
        >>> rule = AcceptRule("best", 0.7, 0.1, 0.95, n=400, accepted=0.5, wrong=0.05, responses=(2, 2))
        >>> Calibrator(1.0, 1.0, 1.0, rule=rule).accept([3.0, 0.0, 1.0, 1.1], ["a", "a", "b", "b"]).tolist()
        [True, False, False, False]
        """
        if self.rule is None:
            raise ValueError("the calibrator has no accept rule; `decide` finds one")
        reward, sizes, order = self._by_prompt(rewards, prompt)
        rows, odds = self.first_choices(reward, sizes, self.rule.of)
        accepted = np.zeros(len(reward), dtype=bool)
        if self.rule.threshold is not None:
            beyond = np.logical_or.reduceat(self.outside(rewards)[order], np.cumsum(sizes) - sizes)
            enough = (odds >= log_odds_of(self.rule.threshold)) & ~beyond
            accepted[order[rows]] = enough & ((sizes > 1) | (self.rule.of == "correct"))
        return accepted

    def first_choices(
        self, reward: FloatArray, sizes: IntArray, of: Literal["best", "correct"]
    ) -> tuple[IntArray, FloatArray]:
        """Return the row of each prompt's first choice and the log-odds that a rule is about: (n,) each.

        ``reward`` (N,) is in the order of the prompts, which have ``sizes`` (n,) responses.
        """
        rows, _ = first_and_next(reward, sizes)
        if of == "correct":
            return rows, self._log_odds_correct(reward[rows])
        return rows, log_odds(self._log_p_best(reward, sizes)[rows])

    def _by_prompt(self, rewards: ArrayLike, prompt: ArrayLike) -> tuple[FloatArray, IntArray, IntArray]:
        """Return the rewards in the order of their prompts, prompts' sizes, and the rows that they are from."""
        reward = as_floats(self.one_reward(rewards), "rewards", ndim=1)
        group = as_groups(prompt, len(reward), "prompt")
        order = np.argsort(group, kind="stable")
        return reward[order], np.bincount(group), order

    def _log_p_best(self, reward: FloatArray, sizes: IntArray) -> FloatArray:
        return segment_log_softmax(self._scaled(reward), sizes)

    def _scaled(self, reward: FloatArray) -> FloatArray:
        return np.asarray((reward - (self.threshold or 0.0)) / self.temperature)

    def _log_odds_correct(self, reward: FloatArray) -> FloatArray:
        if self.threshold is None:
            raise ValueError(
                "the calibrator was fitted on which response is the best of its prompt, so it says nothing about a "
                "single response; fit one on labels that are correct or not (`rmcalib calibrate`)"
            )
        return self._scaled(reward)

    def apply(self, scores: Scores | Sequence[Scores]) -> Scores:
        """Return the scores with rewards divided by the temperature; the manifest names the calibrator.

        With a threshold, (r − b)/T: their sigmoid is the probability that a response is correct. A panel takes
        the scores of all its judges, for the same responses, in the order of its `inputs`.
        """
        single = self.one_table([scores] if isinstance(scores, Scores) else list(scores))
        moved = single if self.threshold is None else replace(single, reward=single.reward - self.threshold)
        calibrated = moved.at_temperature(self.temperature)
        about = {
            "temperature": self.temperature,
            "threshold": self.threshold,
            "fitted_on": dict(self.fitted_on),
        }
        calibrated = replace(calibrated, manifest={**calibrated.manifest, "calibrator": about})
        if self.threshold is None:
            return calibrated
        return calibrated.with_scale(Scale("log_odds", "calibrated, response by response"))

    def one_table(self, every: Sequence[Scores]) -> Scores:
        """Return scores with the reward r of this calibrator; refuse those that cannot become probabilities."""
        if len(every) != max(len(self.inputs), 1):
            needs = ", ".join(clean_line(scores.name) for scores in self.inputs) or "one judge"
            raise ValueError(f"the calibrator takes the scores of {needs}; given: {len(every)}")
        for scores in every:
            if (reason := scores.refusal("apply")) is not None:
                raise ValueError(f"{scores.name}: rewards cannot become probabilities: {reason}")
        first = every[0]
        for other in every[1:]:
            same = len(first) == len(other) and (first.item_id == other.item_id).all()
            if not same or (first.response != other.response).any():
                raise ValueError(f"{first.name} and {other.name}: their rows are not of the same responses")
        if not self.inputs:
            return first
        return replace(first, reward=self.one_reward(np.stack([scores.reward for scores in every], axis=-1)))

    def check(self, scores: Scores | Sequence[Scores]) -> CalibratorCheck:
        """Fit other scores, which are not calibrated yet, and compare the result with this calibrator.

        >>> rewards = np.tile([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], (40, 1))
        >>> check = Calibrator(1.0, 0.9, 1.1).check(Scores.from_arrays(rewards))
        >>> check.holds, round(check.temperature, 2)
        (False, 2.89)
        """
        single = self.one_table([scores] if isinstance(scores, Scores) else list(scores))
        part = labelled_part(single, "one" if self.view == "top_1" else "labelled")
        used, unseen = seen_prompts(self, part)
        enough = int(unseen.sum()) >= FEWEST
        if used and enough:
            part = part.take(unseen)
        if self.view == "top_1":
            best = part.scale.temperature_interval(self.level)
            other = Calibrator(best.value, best.low, best.high)
        else:
            other = fit_pointwise(part, self.level)
        holds = None if used and not enough else _agree(self, other)
        return CalibratorCheck(
            other.temperature, other.low, other.high, len(part), holds, used, other.threshold
        )

    def percentile(self, rewards: Any) -> FloatArray:
        """Return the percentage of reference rewards below each reward (N,), half of equal ones included."""
        quantiles = np.asarray(self.reference, dtype=np.float64)
        rewards = np.asarray(rewards, dtype=np.float64)
        if not len(quantiles):
            return np.full(len(rewards), np.nan)
        values, index = np.unique(quantiles, return_inverse=True)
        levels = np.bincount(index, np.linspace(0, 100, len(quantiles))) / np.bincount(index)
        return np.interp(rewards, values, levels, left=0.0, right=100.0)

    def save(self, path: str | Path) -> Path:
        """Write the calibrator as JSON, with a digest of its content."""
        content = {"rmcalib_calibrator": FORMAT, **asdict(self)}
        return write_json(path, {**content, "sha256": json_hash(content)})

    @classmethod
    def load(cls, path: str | Path) -> Calibrator:
        """Read a file that `save` wrote; a ValueError says what is wrong with another one."""
        content = parse_json(read_input(path), str(path))
        if not isinstance(content, dict) or content.get("rmcalib_calibrator") != FORMAT:
            raise ValueError(
                f"{path}: not a calibrator; make one with `rmcalib calibrate` or `rmcalib decide --to`"
            )
        if content.pop("sha256", None) != json_hash(content):
            raise ValueError(f"{path}: damaged, or changed by hand; make it again")
        calibrator = typed(cls, content, str(path))
        counts = {name: calibrator.fitted_on.get(name) for name in ("n", "clusters")}
        typed(dict[str, int | None], counts, f"{path}: fitted_on")
        return calibrator


def log_odds(log_p: FloatArray) -> FloatArray:
    """Return log(p / (1 − p)) for log-probabilities (n,); exact even if p rounds to 1.

    >>> log_odds(np.log([0.5, 0.75])).round(3)
    array([0.   , 1.099])
    """
    with np.errstate(divide="ignore"):
        return log_p - np.log(-np.expm1(log_p))


def log_odds_of(p: ArrayLike) -> FloatArray:
    """Return log(p / (1 − p)) of probabilities from 0 to 1, in the way of `log_odds`."""
    with np.errstate(divide="ignore"):
        return log_odds(np.log(np.asarray(p, dtype=np.float64)))


def quantiles(rewards: FloatArray) -> tuple[float, ...]:
    """Return the quantiles of the rewards (N,) that a calibrator keeps."""
    return tuple(np.quantile(rewards, np.linspace(0, 1, N_QUANTILES)).tolist())


def seen_prompts(calibrator: Calibrator, part: Part) -> tuple[int, BoolArray]:
    """Return how many prompts of a part it was fitted on, and which of them (n,) are surely others."""
    fitted = np.array(
        [
            calibrator.prompts[i : i + 2 * MARK_BYTES]
            for i in range(0, len(calibrator.prompts), 2 * MARK_BYTES)
        ]
    )
    if not len(fitted):
        return 0, np.ones(len(part), dtype=bool)
    marks = np.array(prompt_marks(part))
    # Of a large fit, only the smallest marks are here: they are a random sample of its prompts.
    comparable = marks <= fitted[-1] if len(fitted) >= MOST_MARKS else np.ones(len(part), dtype=bool)
    same = np.isin(marks, fitted)
    used = round(float(same.sum() / max(comparable.sum(), 1)) * len(part))
    return used, comparable & ~same


def prompt_marks(part: Part) -> list[str]:
    """Return a digest of each prompt (n,): of its id and rewards, in any order and to the precision of float32."""
    order = np.lexsort((part.reward, part.prompt))
    with np.errstate(over="ignore"):
        rewards = (part.reward[order] + 0.0).astype("<f4")
    ids = part.scores.item_id[part.starts].tolist()
    return [
        hashlib.blake2b(
            name.encode("utf-8", "surrogatepass") + rewards[start : start + size].tobytes(),
            digest_size=MARK_BYTES,
        ).hexdigest()
        for name, start, size in zip(ids, part.starts.tolist(), part.sizes.tolist(), strict=True)
    ]


def as_calibrator(given: Any, *, panel: bool = False) -> Calibrator:
    """Return a calibrator from a calibrator, the result of `calibrate` or `decide`, or a file.

    One that takes the rewards of several judges is refused unless ``panel``: its T and b are of their sum.
    """
    inner = getattr(given, "calibrator", given)
    calibrator = inner if isinstance(inner, Calibrator) else Calibrator.load(inner)
    if calibrator.inputs and not panel:
        names = ", ".join(clean_line(judge.name) for judge in calibrator.inputs)
        raise ValueError(
            f"calibrator: it takes the rewards of several judges ({names}); use it with `rmcalib apply`"
        )
    return calibrator


def fit_pointwise(part: Part, level: float = 0.95) -> Calibrator:
    """Fit T and b of P(correct) = σ((r − b)/T) on the labelled responses of a part, with prompts as clusters."""
    labelled = ~np.isnan(part.label)
    r, y, cluster = part.reward[labelled], part.label[labelled], part.pointwise.cluster
    fit = fit_sigmoid(r, y)
    # In x = (r − b)/T at the fit, the log-odds are s·x + c with s = 1 and c = 0.
    x = fit.log_odds(r)
    p = np.asarray(expit(x))
    features = np.column_stack([x, np.ones(len(x))])
    curvature = (features * (p * (1 - p))[:, None]).T @ features
    moves = len(x) * (features * (y - p)[:, None]) @ np.linalg.pinv(curvature)
    # log T = −log s and b = b̂ − T·c, to the first order.
    of_scale, of_shift, of_both = (mean_error(values, cluster) for values in (*moves.T, moves.sum(axis=1)))
    scale, shift = of_scale.margin(level), of_shift.margin(level)
    together = (of_both.se**2 - of_scale.se**2 - of_shift.se**2) / 2
    t, b = fit.temperature, fit.threshold
    return Calibrator(
        temperature=t,
        low=float(t * np.exp(-scale)),
        high=float(t * np.exp(scale)),
        level=level,
        threshold=b,
        threshold_low=float(b - shift * t),
        threshold_high=float(b + shift * t),
        covariance=((of_scale.se**2, together), (together, of_shift.se**2)),
        fitted_on={"n": len(part), "clusters": len(x) if cluster is None else int(cluster.max()) + 1},
    )


def says_nothing(temperature: float, rewards: FloatArray) -> bool:
    """Return whether a temperature is so high, relative to the rewards, that they do not rise with the labels."""
    return not temperature < _HOT * (float(rewards.std()) or 1.0)


def labelled_part(scores: Any, which: str = "one") -> Part:
    """Return the prompts with exactly one correct response ("one") or any label, or raise if there are none."""
    part = scores if isinstance(scores, Part) else whole_part(load_scores(scores))
    labelled = part.prompts(which)
    if labelled is None:
        what = "exactly one correct response" if which == "one" else "a label"
        raise ValueError(f"no prompt has {what}; give scores of labelled prompts")
    return labelled


def _agree(first: Calibrator, second: Calibrator) -> bool:
    """Return whether chance can explain the differences of two temperatures, and of two thresholds.

    The limits of the difference d of two logarithms of T are d ± √(a² + b²), where a and b are the distances of
    the two from their limits on the side that faces the other.

    >>> _agree(Calibrator(2.0, 1.7, 2.4), Calibrator(2.5, 2.1, 3.0))
    True
    >>> _agree(Calibrator(2.0, 1.9, 2.1), Calibrator(2.5, 2.3, 2.8))
    False
    """
    lower, upper = sorted((first, second), key=lambda each: each.temperature)
    if lower.temperature <= 0 or not np.isfinite(upper.temperature) or upper.low <= 0:
        agree = lower.high >= upper.low  # there is no distance in logarithms
    else:
        apart = np.log(upper.temperature / lower.temperature)
        room = np.log(lower.high / lower.temperature), np.log(upper.temperature / upper.low)
        agree = bool(apart <= math.hypot(*room))
    if first.threshold is None or second.threshold is None:
        return agree
    widths = [(each.threshold_high or 0.0) - (each.threshold_low or 0.0) for each in (first, second)]
    return agree and bool(abs(first.threshold - second.threshold) <= math.hypot(*widths) / 2)

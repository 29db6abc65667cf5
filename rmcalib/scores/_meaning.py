"""What the numbers of a file mean: probabilities, log-probabilities, ratings, squashed rewards, steps.

Everything here turns numbers into rewards, whose softmax within a prompt is P(the response is the best).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice
from rmcalib.scores._scores import Scores
from rmcalib.scores.scale import Kind, Scale

SCALES = ("reward", "utility", "log_odds", "probability", "logprob", "rating", "logit", "none")
"""What numbers can be; see `to_rewards`."""
Missing = Literal["refuse", "lowest", "drop"]
"""What to do about responses without a score; see `load_scores`."""
MISSING: tuple[Missing, ...] = get_args(Missing)
_EDGE = 1e-8  # smallest distance of a probability from 0 and 1; float32 rounds 1 - 1e-8 to 1
_FEW = 20  # with fewer numbers, only exact signs count


@dataclass(frozen=True)
class Meaning:
    """What the numbers of a file look like, and how they were measured.

    Attributes
    ----------
    looks_like : str
        One of `SCALES`.
    certain : bool
        Whether no other reading is plausible. Only then are numbers converted without being asked.
    evidence : str
        The sign: ``"sum to 1"``, ``"sum to 100"``, ``"exponentials sum to 1"``, ``"all from 0 to 1"``,
        ``"grades from 0 to 10"``, ``"grades from 0 to 100"``, ``"none above 0"``, or empty.
    measured_as : str
        The scale that was used, one of `SCALES`.
    asked : bool
        Whether the user named the scale.
    reversed : float, optional
        The fraction of pairs of a correct and a wrong response in which the wrong one has the larger reward,
        if that is clearly more than half of them; None otherwise. Labels may be swapped, or lower may be
        better.
    """

    looks_like: str
    certain: bool
    evidence: str = ""
    measured_as: str = "reward"
    asked: bool = False
    reversed: float | None = None


def look(scores: Scores) -> Meaning:
    """Look at the numbers of scores and say what they seem to be. Nothing is changed.

    Probabilities that sum to one in every prompt, percentages that sum to 100, and log-probabilities whose
    exponentials sum to one are certain. Other signs are not: a reward model may well lie in (0, 1).

    Parameters
    ----------
    scores : Scores
        The scores, with the numbers as they were given.

    Returns
    -------
    Meaning

    Examples
    --------
    >>> look(Scores.from_arrays([[0.75, 0.25], [0.1, 0.9]]))
    Meaning(looks_like='probability', certain=True, evidence='sum to 1', measured_as='reward', asked=False,
            reversed=None)
    """
    kind, certain, evidence = _signs(scores.reward, scores.offsets)
    return Meaning(kind, certain, evidence, reversed=_reversed(scores))


def _signs(values: FloatArray, offsets: IntArray) -> tuple[str, bool, str]:
    sizes = np.diff(offsets)
    low, high = values.min(), values.max()
    whole = bool((values == np.round(values)).all())
    # A single prompt may sum to one by chance, and 0/1 rewards do so if one response is right.
    several = len(sizes) > 1 and bool((sizes > 1).all()) and not (whole and low >= 0 and high <= 1)

    if several and low >= 0 and high <= 1 and _sum_to_one(values, offsets):
        return "probability", True, "sum to 1"
    if several and low >= 0 and 1 < high <= 100 and _sum_to_one(values / 100, offsets):
        return "probability", True, "sum to 100"
    if several and high <= 0 and _sum_to_one(np.exp(values), offsets):
        return "logprob", True, "exponentials sum to 1"
    if len(values) < _FEW or (whole and low >= 0 and high <= 1):
        return "reward", False, ""
    if low >= 0 and high <= 1:
        return "logit", False, "all from 0 to 1"
    if low >= 0 and high <= 100 and (2 * values == np.round(2 * values)).all():
        return "rating", False, f"grades from 0 to {10 if high <= 10 else 100}"
    if high <= 0 and high > -0.1:
        return "logprob", False, "none above 0"
    return "reward", False, ""


def _reversed(scores: Scores) -> float | None:
    """Return the mean fraction of wrongly ordered pairs of the prompts, if it is clearly above a half."""
    try:
        scores = scores.decided()
    except ValueError:  # no labels
        return None
    wrong = []
    for start, end in pairwise(scores.offsets[:5001].tolist()):
        reward, correct = scores.reward[start:end], scores.is_correct[start:end]
        right, others = reward[correct][:, None], reward[~correct]
        wrong.append(((others > right) + 0.5 * (others == right)).mean())
    mean, n = float(np.mean(wrong)), len(wrong)
    clearly = n >= 10 and mean - 0.5 > 4 * max(float(np.std(wrong)), 0.1) / np.sqrt(n)
    return mean if clearly and mean > 0.6 else None


def to_rewards(values: FloatArray, offsets: IntArray, scale: str) -> FloatArray:
    """Turn numbers of a known scale into rewards (N,).

    ========== ========================================================================================
    reward     as they are; what they mean is not known
    utility    as they are: those of a Bradley-Terry model
    log_odds   as they are: the sigmoid of each is P(the response is correct)
    none       as they are; they order responses and state no probabilities
    probability log p if a prompt's numbers sum to one: they are P(the response is the best). Otherwise
               log p − log(1 − p): each is P(the response is correct), on its own; if exactly one response
               is correct, the softmax of these rewards is the probability that it is this one.
               Percentages (up to 100) are divided by 100.
    logprob    the same of p = exp(value)
    logit      log v − log(1 − v): rewards that went through a sigmoid
    rating     as they are; ratings are not log-utilities, so a softmax of them is marked as doubtful
    ========== ========================================================================================

    A stated 0 (or 1) becomes half of the smallest distance from 0 (or 1) that occurs, since its logarithm
    would be infinite.

    >>> to_rewards(np.array([0.75, 0.25]), np.array([0, 2]), "probability").round(4)
    array([-0.2877, -1.3863])
    """
    check_choice(scale, "scale", SCALES)
    if scale in ("reward", "utility", "log_odds", "rating", "none"):
        return values
    if scale == "logprob":
        if values.max() > 1e-6:
            raise ValueError(
                f"scale: {values.max():g} is above 0, so it cannot be a log-probability; use scale='reward'"
            )
        if _signs(values, offsets)[2] == "exponentials sum to 1":
            return values  # kept exact, since exp may underflow
        values = np.minimum(values, -_EDGE)
        log_odds: FloatArray = values - np.log(-np.expm1(values))
        return log_odds
    if scale == "probability" and values.max() > 1:
        values = values / 100
    if values.min() < 0 or values.max() > 1:
        worst = values.min() if values.min() < 0 else values.max()
        remedy = "already logits" if scale == "logit" else "rewards"
        raise ValueError(f"scale: {scale} needs numbers from 0 to 1, but one is {worst:g}: if these are "
                         f"{remedy}, say scale='reward'")  # fmt: skip
    p = np.maximum(values, _half_of_least(values))
    if scale == "probability" and _sum_to_one(values, offsets):
        return np.log(p)
    q = np.maximum(1 - values, _half_of_least(1 - values))
    return np.log(p) - np.log(q)


def _sum_to_one(numbers: FloatArray, offsets: IntArray) -> bool:
    """Whether the numbers of each prompt sum to one: they are P(the response is the best)."""
    sums = np.add.reduceat(numbers, offsets[:-1])
    return bool((np.abs(sums - 1) <= 0.005 * np.diff(offsets)).all())


def _half_of_least(values: FloatArray) -> float:
    positive = values[values > 0]
    return float(positive.min()) / 2 if len(positive) else _EDGE


def measured(scores: Scores, scale: str | None, *, guess: bool) -> Scores:
    """Return scores whose numbers are rewards, and that know what they are; the manifest says what was done.

    ``scale`` is what the user says. Otherwise, if ``guess``, numbers are read as what they certainly look like.
    Numbers from 0 to 1 beside labels of single responses are read as probabilities: if they are rewards that
    went through a sigmoid, the probability that they state is the same.
    """
    if scale is not None:
        check_choice(scale, "scale", SCALES)
    if scale is None and (not guess or "score_kind" in scores.manifest):
        return scores
    meaning = look(scores)
    used = scale or (meaning.looks_like if meaning.certain else "reward")
    if scale is None and meaning.looks_like == "logit" and scores.labels in ("correct", None):
        used = "probability"
    meaning = replace(meaning, measured_as=used, asked=scale is not None)
    if meaning.looks_like == used == "reward" and not meaning.asked and meaning.reversed is None:
        return scores  # there is nothing to say
    about = {**scores.manifest, "meaning": asdict(meaning)}
    converted = replace(scores, reward=to_rewards(scores.reward, scores.offsets, used), manifest=about)
    return converted if used == "reward" else converted.with_scale(_scale(used, scores, meaning))


def _scale(used: str, scores: Scores, meaning: Meaning) -> Scale:
    """Return the scale of numbers that were read as ``used``, one of `SCALES`."""
    reason = "as you said" if meaning.asked else f"its numbers are {meaning.evidence}"
    if used not in ("probability", "logprob"):
        kind: Kind = "utility" if used == "logit" else used  # type: ignore[assignment]
        return Scale(kind, reason)
    values = scores.reward / 100 if used == "probability" and scores.reward.max() > 1 else scores.reward
    p = np.exp(values) if used == "logprob" else values
    of: Literal["best", "correct"] = "best" if _sum_to_one(p, scores.offsets) else "correct"
    return Scale("probability", reason, of=of)


_COMBINED: dict[str, Callable[[FloatArray], Any]] = {
    "product": np.sum,  # of logarithms
    "min": np.min,
    "last": lambda row: row[-1],
    "mean": np.mean,
    "geometric_mean": np.mean,  # of logarithms
}
STEPS = tuple(_COMBINED)
"""Ways to combine the step scores of a response: the values of ``steps``."""


def step_rewards(values: Sequence[Any], steps: str = "product") -> tuple[FloatArray, bool]:
    """Return one reward per response from the scores of its steps, and whether these were probabilities.

    The reward is NaN for a response without steps, or if they are not finite. If all step scores are
    from 0 to 1, they are probabilities that a step is correct. They are combined into a probability p that the
    response is correct, and the reward is its log-odds, log p − log(1 − p). If exactly one response of a prompt
    is correct, and the responses are independent, the softmax of these rewards is the probability that it is
    this one. Other step scores are combined without a transformation.

    >>> rewards, _ = step_rewards([[0.5, 0.5], [0.25], None], "product")
    >>> rewards.round(4)  # both are 0.25
    array([-1.0986, -1.0986,     nan])
    """
    lists = [_finite(value) for value in values]
    every = np.concatenate(lists)
    if not len(every):
        raise ValueError("no response has steps with scores")
    combine, in_logs = _COMBINED[steps], steps in ("product", "geometric_mean")
    outside = every[(every < 0) | (every > 1)]
    if len(outside) and in_logs:
        raise ValueError(
            f"steps: {steps} needs scores from 0 to 1, but one is {outside[0]:g}: use min, last, mean"
        )
    if len(outside):
        return np.array([combine(row) if len(row) else np.nan for row in lists]), False
    p = [np.clip(row, _EDGE, 1 - _EDGE) if len(row) else np.array([np.nan]) for row in lists]
    logs = np.array([combine(np.log(row)) if in_logs else np.log(combine(row)) for row in p])
    return logs - np.log(-np.expm1(logs)), True


def _finite(value: Any) -> FloatArray:
    """Return a list of finite numbers as an array; an empty one for anything else."""
    try:
        row = np.array([] if value is None else value, dtype=np.float64).ravel()
    except (TypeError, ValueError, OverflowError):
        return np.empty(0)
    return row if np.isfinite(row).all() else np.empty(0)

"""The catalogue of metrics: a view, a measure, and how it is shown. Everything else follows from an entry here."""

from __future__ import annotations

import difflib
import keyword
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

import numpy as np

from rmcalib._util.arrays import check_choice
from rmcalib.calibration import votes as votes_of
from rmcalib.calibration.estimates import Estimate
from rmcalib.metrics import measures as of
from rmcalib.metrics.measures import Measure, Settings
from rmcalib.metrics.official import official_score, rewardbench_score
from rmcalib.metrics.views import Part

__all__ = ["ENTRY_POINTS", "GROUPS", "TRAINING_METRICS", "Metric", "catalogue", "chosen_metrics", "metric"]

ENTRY_POINTS = "rmcalib.metrics"
"""The entry point group by which other packages add metrics."""
GROUPS: dict[str, str] = {
    "headline": "Headline",
    "pairs": "Pairs of a correct and a wrong response",
    "pointwise": "Every response on its own",
    "calibration": "Calibration",
    "scores": "Proper scores",
    "decomposition": "Decomposition of the score of the first choice",
    "temperature": "At the best temperature",
    "reference": "Reference protocol",
    "several": "Several correct responses",
    "votes": "People's votes",
    "rewards": "Benchmark score and rewards",
    "length": "Length",
    "other": "Other",
}
"""The groups of metrics, in the order of pages and documents, with their headings."""
TRAINING_METRICS = (
    "mean_confidence",
    "accuracy",
    "overconfidence",
    "kept_information",
    "lost_information",
    "temperature",
    "ece",
    "ece_null_mean",
    "ece_p_value",
)
"""The metrics that are logged during training, and shown in the table of training steps."""
Need = Literal["probabilities", "pairs"]
Better = Literal["low", "high", "zero"]
Prompts = Literal["one", "several", "all", "votes", "labelled"]


@dataclass(frozen=True)
class Metric:
    """One metric.

    Attributes
    ----------
    name, meaning : str
        Its name in tables, and what it is in one sentence.
    measure : function
        From a `Part` (some prompts of a model's scores, with their views) and `Settings` to an `Estimate`.
    better : {"low", "high", "zero"}, optional
        Which values are better. Numbers that are not proper scores have no better side.
    unit, label, digits
        How it is shown.
    group : str
        Where it is shown; see `GROUPS`.
    prompts : {"one", "several", "all", "votes", "labelled"}
        Which prompts it uses; see `Part.prompts`.
    needs : {"probabilities", "pairs"}, optional
        What rewards must stand for: a model that is not on a Bradley-Terry scale has neither.
    compared : bool
        Whether `compare` shows it.
    ranked : {"everywhere", "overall", "nowhere"}
        Whether a leaderboard computes it: by category, for all prompts, or not.
    depends_on_m : bool
        Whether models with other numbers of responses cannot be compared by it.
    heading : str
        The column's heading on the leaderboard's page; empty for no column.
    """

    name: str
    meaning: str
    measure: Measure
    better: Better | None = None
    unit: str = ""
    label: str = ""
    digits: int = 3
    group: str = "other"
    prompts: Prompts = "one"
    needs: Need | None = "probabilities"
    compared: bool = True
    ranked: Literal["everywhere", "overall", "nowhere"] = "nowhere"
    depends_on_m: bool = False
    heading: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        """Check the entry, and set the label if it is not given."""
        if not isinstance(self.name, str) or not self.name.isidentifier() or keyword.iskeyword(self.name):
            raise ValueError(f"metric {self.name!r}: expected a name of letters, digits and underscores")
        if not callable(self.measure):
            raise ValueError(f"metric {self.name}: measure: expected a function of a part and settings")
        check_choice(self.better, f"metric {self.name}: better", ("low", "high", "zero", None))
        check_choice(self.group, f"metric {self.name}: group", tuple(GROUPS))
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))

    def badness(self, value: float) -> float:
        """Return a number that is smaller for better values."""
        return {"high": -value, "low": value, "zero": abs(value)}[self.better or "low"]


def metric(name: str, meaning: str, **shown: Any) -> Callable[[Callable[..., Any]], Metric]:
    """Make a metric of a function: a decorator.

    The function takes a `Part` and returns one number per prompt (n,), whose mean is the value, or one
    number, or an `Estimate`.

    Parameters
    ----------
    name, meaning : str
        Its name, and what it is in one sentence.
    **shown
        Other fields of `Metric`.

    Returns
    -------
    function

    Examples
    --------
    >>> @metric("bold", "how often the first choice has a probability above 0.9", unit="fraction of prompts")
    ... def bold(part):
    ...     return (part.first_choice.p > 0.9).astype(float)
    >>> bold.label
    'bold'
    """

    def make(function: Callable[..., Any]) -> Metric:
        def measure(part: Part, _: Settings) -> Estimate:
            found = function(part)
            if isinstance(found, Estimate):
                return found
            values = np.asarray(found, dtype=np.float64)
            if values.ndim == 0:
                return Estimate.constant(float(values), len(part))
            if values.shape != (len(part),):
                raise ValueError(
                    f"metric {name}: {values.shape} numbers for {len(part)} prompts; expected one each"
                )
            return Estimate.mean(values, cluster=part.cluster)

        return Metric(name, meaning, measure, **shown)

    return make


def catalogue() -> dict[str, Metric]:
    """Return all metrics by name: those of rmcalib, then those of other installed packages."""
    return _with_plugins()


def chosen_metrics(wanted: Iterable[str | Metric] | None = None) -> tuple[Metric, ...]:
    """Return the metrics with some names, in the order of the catalogue, and given ones as they are."""
    have = catalogue()
    if wanted is None:
        return tuple(have.values())
    given = [wanted] if isinstance(wanted, str | Metric) else list(wanted)
    for name in given:
        if not isinstance(name, Metric) and name not in have:
            near = difflib.get_close_matches(str(name), have, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"have: {', '.join(have)}"
            raise ValueError(f"metrics: unknown {name!r} ({hint})")
    named = tuple(one for name, one in have.items() if name in given)
    return (*named, *(one for one in given if isinstance(one, Metric)))


def _with_null(error: Metric, what: str) -> tuple[Metric, ...]:
    """Return an error followed by the mean, the 95% point and the p-value of its null test."""
    ranked: Any = error.ranked if error.ranked == "nowhere" else "overall"
    parts = {
        "null_mean": ("mean", f"mean {what} of a calibrated model on as many prompts", ""),
        "null_95": ("high", f"95th percentile of the {what} of a calibrated model", ""),
        "p_value": (
            "p_value",
            f"probability that the {what} of a calibrated model is at least as large",
            f"p-value of {error.label}",
        ),
    }
    nulls = [
        replace(
            error,
            name=f"{error.name}_{suffix}",
            meaning=meaning,
            measure=of.null(error.measure, field),  # type: ignore[arg-type]
            better=None,
            label=label or f"{error.name}_{suffix}",
            compared=False,
            ranked=ranked,
            heading="",
        )
        for suffix, (field, meaning, label) in parts.items()
    ]
    return (error, *nulls)


_HEADLINE = (
    Metric(
        "mean_confidence",
        "mean probability of the most probable response",
        of.says("first_choice"),
        unit="probability",
        label="mean confidence",
        group="headline",
        ranked="overall",
        depends_on_m=True,
        heading="says",
    ),
    Metric(
        "accuracy",
        "how often the correct response has the largest reward (a tie of t responses counts 1/t)",
        of.right("first_choice"),
        better="high",
        unit="fraction of prompts",
        group="headline",
        needs=None,
        ranked="everywhere",
        depends_on_m=True,
        heading="right",
    ),
    Metric(
        "overconfidence",
        "mean confidence minus accuracy; positive is over-confident",
        of.gap("first_choice"),
        better="zero",
        unit="probability",
        label="gap",
        group="headline",
        ranked="overall",
        heading="gap",
    ),
    Metric(
        "kept_information",
        "fraction of a uniform guess's uncertainty that the stated probabilities remove: usable minus lost; negative "
        "if they are worse than a uniform guess",
        of.kept_information,
        better="high",
        unit="fraction",
        group="headline",
        ranked="overall",
        heading="kept",
    ),
    Metric(
        "lost_information",
        "fraction of a uniform guess's uncertainty that is lost because the rewards have the wrong scale",
        of.lost_information(),
        better="low",
        unit="fraction",
        group="headline",
        ranked="overall",
        heading="lost",
    ),
    Metric(
        "usable_information",
        "fraction of a uniform guess's uncertainty that the rewards remove at their best scale",
        of.usable_information,
        better="high",
        unit="fraction",
        group="headline",
        ranked="overall",
        heading="usable",
    ),
)

_PAIRS = (
    Metric(
        "pairwise_confidence",
        "mean probability of the preferred response of a pair",
        of.says("preferred"),
        unit="probability",
        label="confidence in pairs",
        group="pairs",
        needs="pairs",
        ranked="overall",
    ),
    Metric(
        "pairwise_accuracy",
        "how often the correct response of a pair is preferred (a tie counts 1/2)",
        of.right("preferred"),
        better="high",
        unit="fraction of pairs",
        label="accuracy in pairs",
        group="pairs",
        needs=None,
        ranked="overall",
    ),
    Metric(
        "pairwise_overconfidence",
        "confidence minus accuracy in pairs; positive is over-confident",
        of.gap("preferred"),
        better="zero",
        unit="probability",
        label="gap in pairs",
        group="pairs",
        needs="pairs",
        ranked="overall",
    ),
    Metric(
        "pairwise_lost_information",
        "fraction of the uncertainty of a coin toss that is lost because the scale is wrong",
        of.lost_information("pairs"),
        better="low",
        unit="fraction",
        label="lost information in pairs",
        group="pairs",
        needs="pairs",
        ranked="overall",
    ),
    Metric(
        "pairwise_brier",
        "squared error of the probability that the correct response of a pair wins",
        of.brier("preferred"),
        better="low",
        label="Brier score in pairs",
        group="pairs",
        needs="pairs",
    ),
)

_CALIBRATION = (
    *_with_null(
        Metric(
            "ece",
            "top-1 ECE: expected calibration error of the probabilities of all responses, in equal-width bins",
            of.error("top_1"),
            better="low",
            unit="probability",
            label="ECE",
            group="calibration",
            ranked="everywhere",
            depends_on_m=True,
            heading="ECE",
        ),
        "ECE",
    ),
    Metric(
        "ece_bound",
        "largest possible ECE with this number of responses m: 2/m",
        of.ece_bound,
        unit="probability",
        label="largest possible ECE",
        group="calibration",
        compared=False,
        depends_on_m=True,
    ),
    Metric(
        "ece_fullest_bin",
        "fraction of probabilities in the fullest bin of the ECE; near 1, the ECE hides errors",
        of.ece_fullest_bin,
        unit="fraction of responses",
        label="fraction in the fullest bin",
        group="calibration",
        compared=False,
        depends_on_m=True,
    ),
    *_with_null(
        Metric(
            "confidence_ece",
            "ECE of the most probable response alone",
            of.error("first_choice"),
            better="low",
            unit="probability",
            label="confidence ECE",
            group="calibration",
        ),
        "confidence ECE",
    ),
    Metric(
        "debiased_ece",
        "square root of the binned squared error minus its sampling variance",
        of.error("top_1", norm=2, debias=True),
        better="low",
        unit="probability",
        label="debiased ECE",
        group="calibration",
        depends_on_m=True,
    ),
    Metric(
        "equal_mass_ece",
        "ECE with equally many probabilities in each bin",
        of.error("top_1", spacing="mass"),
        better="low",
        unit="probability",
        label="equal-mass ECE",
        group="calibration",
        depends_on_m=True,
    ),
    Metric(
        "smooth_ece",
        "smooth ECE, which needs no bins",
        of.smooth_ece,
        better="low",
        unit="probability",
        label="smooth ECE",
        group="calibration",
        depends_on_m=True,
    ),
    *_with_null(
        Metric(
            "pairwise_ece",
            "sub-2 ECE: pairs of a correct and a wrong response, in both orders",
            of.error("pairs"),
            better="low",
            unit="probability",
            label="pairwise ECE",
            group="calibration",
            needs="pairs",
        ),
        "pairwise ECE",
    ),
)

_SCORES = (
    Metric(
        "brier",
        "Brier score: squared error summed over a prompt's responses",
        of.brier("top_1"),
        better="low",
        label="Brier score",
        group="scores",
        depends_on_m=True,
        ranked="overall",
    ),
    Metric(
        "nll",
        "negative log-likelihood of the correct response",
        of.log_loss("top_1"),
        better="low",
        unit="nats",
        label="log loss",
        group="scores",
        depends_on_m=True,
        ranked="overall",
    ),
)

_NAMES = {"brier": ("Brier score", "squared probability"), "log": ("log loss", "nats")}
_DECOMPOSED: dict[str, tuple[Better | None, str]] = {
    "miscalibration": (
        "low",
        "how much isotonic recalibration on the same prompts lowers the {} of the first choice",
    ),
    "discrimination": (
        "high",
        "recalibrated {} of the first choice: how much lower than with a constant probability",
    ),
    "uncertainty": (None, "{} of the first choice with a constant probability"),
}
_DECOMPOSITION = tuple(
    Metric(
        f"{score}_{part}",
        meaning.format(name),
        of.decomposition(score, part),  # type: ignore[arg-type]
        better=better,
        unit=unit,
        label=f"{part} ({name})",
        digits=4,
        group="decomposition",
        compared=False,
    )
    for score, (name, unit) in _NAMES.items()
    for part, (better, meaning) in _DECOMPOSED.items()
)

_TEMPERATURE = (
    Metric(
        "temperature",
        "best temperature T: dividing the rewards by T maximises the likelihood",
        of.temperature,
        label="best temperature",
        digits=2,
        group="temperature",
        ranked="overall",
        heading="T",
    ),
    Metric(
        "ece_at_temperature",
        "ECE after dividing by T, cross-fitted",
        of.at_temperature(of.error("top_1")),
        better="low",
        unit="probability",
        label="ECE at the best temperature",
        group="temperature",
        ranked="overall",
        depends_on_m=True,
    ),
    Metric(
        "brier_at_temperature",
        "Brier score after dividing by T, cross-fitted",
        of.at_temperature(of.brier("top_1")),
        better="low",
        label="Brier score at the best temperature",
        group="temperature",
        depends_on_m=True,
    ),
    Metric(
        "nll_at_temperature",
        "negative log-likelihood after dividing by T, cross-fitted",
        of.at_temperature(of.log_loss("top_1")),
        better="low",
        unit="nats",
        label="log loss at the best temperature",
        group="temperature",
        depends_on_m=True,
    ),
)

_POINTWISE = (
    Metric(
        "pointwise_confidence",
        "mean P(response is correct) as stated: the sigmoid of its reward",
        of.says("pointwise"),
        unit="probability",
        label="says, per response",
        group="pointwise",
        prompts="labelled",
    ),
    Metric(
        "pointwise_accuracy",
        "fraction of responses that are correct",
        of.right("pointwise"),
        unit="fraction of responses",
        label="right, per response",
        group="pointwise",
        prompts="labelled",
        needs=None,
        compared=False,
    ),
    Metric(
        "pointwise_gap",
        "mean P(response is correct) minus the fraction of correct responses",
        of.gap("pointwise"),
        better="zero",
        unit="probability",
        label="gap per response",
        group="pointwise",
        ranked="overall",
        prompts="labelled",
    ),
    *_with_null(
        Metric(
            "pointwise_ece",
            "ECE of P(response is correct)",
            of.error("pointwise"),
            better="low",
            unit="probability",
            label="ECE per response",
            group="pointwise",
            prompts="labelled",
        ),
        "ECE per response",
    ),
    Metric(
        "pointwise_log_loss",
        "log loss of P(response is correct)",
        of.log_loss("pointwise"),
        better="low",
        unit="nats",
        label="log loss per response",
        group="pointwise",
        prompts="labelled",
    ),
    Metric(
        "base_log_loss",
        "log loss of stating the fraction of correct responses for every response",
        of.base_log_loss,
        unit="nats",
        label="log loss of the base rate",
        group="pointwise",
        prompts="labelled",
        needs=None,
        compared=False,
    ),
    Metric(
        "gap_fitted",
        "gap per response with P = σ((r − b)/T), b and T fitted on other prompts",
        of.gap("pointwise_fitted"),
        better="zero",
        unit="probability",
        label="gap per response, fitted",
        group="pointwise",
        ranked="overall",
        prompts="labelled",
        needs=None,
    ),
    Metric(
        "pointwise_ece_fitted",
        "ECE per response with b and T fitted on other prompts",
        of.error("pointwise_fitted"),
        better="low",
        unit="probability",
        label="ECE per response, fitted",
        group="pointwise",
        prompts="labelled",
        needs=None,
    ),
    Metric(
        "pointwise_log_loss_fitted",
        "log loss per response with b and T fitted on other prompts",
        of.log_loss("pointwise_fitted"),
        better="low",
        unit="nats",
        label="log loss per response, fitted",
        group="pointwise",
        prompts="labelled",
        needs=None,
    ),
    Metric(
        "within_prompt_auroc",
        "how often a correct response has a larger reward than a wrong one of the same prompt",
        of.within_prompt_auroc,
        better="high",
        unit="fraction of pairs",
        label="order within prompts",
        group="pointwise",
        ranked="overall",
        prompts="labelled",
        needs=None,
    ),
    Metric(
        "best_of_n",
        "how often the response with the largest reward is correct",
        of.best_of("reward"),
        better="high",
        unit="fraction of prompts",
        label="best of n",
        group="pointwise",
        prompts="labelled",
        needs=None,
    ),
    Metric(
        "best_of_n_chance",
        "how often a random response is correct",
        of.best_of("chance"),
        unit="fraction of prompts",
        label="best of n, by chance",
        group="pointwise",
        prompts="labelled",
        needs=None,
        compared=False,
    ),
)

_OTHERS = (
    Metric(
        "reference_top_1",
        "1 − mean P(first correct response), which the paper's public code calls ECE; it is an error rate",
        of.reference_top_1,
        unit="probability",
        label="1 − mean P(chosen) (reference)",
        group="reference",
        prompts="all",
        ranked="overall",
        depends_on_m=True,
    ),
    Metric(
        "correct_first_probability",
        "mean P(a correct response is first), where several are correct and in Ties",
        of.correct_first("says"),
        unit="probability",
        label="P(a correct one is first)",
        group="several",
        prompts="several",
        depends_on_m=True,
    ),
    Metric(
        "correct_first",
        "how often a correct response has the largest reward, where several are correct and in Ties",
        of.correct_first("right"),
        better="high",
        unit="fraction of prompts",
        label="a correct one is first",
        group="several",
        prompts="several",
        needs=None,
        depends_on_m=True,
    ),
    Metric(
        "rewardbench_score",
        "RewardBench 2's score: accuracy, or the Ties score; overall the mean over categories",
        rewardbench_score,
        better="high",
        unit="score",
        label="score",
        group="rewards",
        prompts="all",
        needs=None,
        ranked="everywhere",
        depends_on_m=True,
    ),
    Metric(
        "official_score",
        "score defined by the benchmark's authors, computed in their way; the note has its name",
        official_score,
        better="high",
        unit="score",
        label="official score",
        group="rewards",
        prompts="all",
        needs=None,
        compared=False,
        depends_on_m=True,
    ),
    Metric(
        "margin_mean",
        "mean of the correct reward minus the best wrong one",
        of.margin_mean,
        unit="reward",
        label="mean margin",
        group="rewards",
        needs=None,
    ),
    Metric(
        "margin_median",
        "median of the correct reward minus the best wrong one",
        of.margin_median,
        unit="reward",
        label="median margin",
        group="rewards",
        needs=None,
    ),
    Metric(
        "reward_length_correlation",
        "Spearman correlation of reward and length within prompts",
        of.length_correlation("reward"),
        unit="correlation",
        label="correlation of reward and length",
        group="length",
        needs=None,
    ),
    Metric(
        "confidence_length_correlation",
        "Spearman correlation of confidence and the picked response's length",
        of.length_correlation("confidence"),
        unit="correlation",
        label="correlation of confidence and length",
        group="length",
    ),
    # The baselines do not depend on the model, so there is nothing to compare.
    Metric(
        "shortest_baseline",
        "accuracy of picking the shortest response",
        of.length_baseline(-1),
        unit="fraction of prompts",
        label="accuracy of the shortest response",
        group="length",
        needs=None,
        compared=False,
        depends_on_m=True,
    ),
    Metric(
        "longest_baseline",
        "accuracy of picking the longest response",
        of.length_baseline(+1),
        unit="fraction of prompts",
        label="accuracy of the longest response",
        group="length",
        needs=None,
        compared=False,
        depends_on_m=True,
    ),
)


def _vote(name: str, meaning: str, measure: Measure, label: str, **more: Any) -> Metric:
    return Metric(name, meaning, measure, label=label, prompts="votes", group="votes", **more)


# Metrics of the votes alone, which do not depend on the model.
_ALONE: dict[str, Any] = {"needs": None, "compared": False}
_VOTES = (
    _vote(
        "votes_per_prompt",
        "mean number of people who voted on a prompt, ties included",
        of.votes_per_prompt,
        "votes per prompt",
        unit="votes",
        digits=1,
        **_ALONE,
    ),
    _vote(
        "vote_tie_share",
        "fraction of people who find the responses equally good",
        of.tie_share,
        "ties",
        unit="fraction of votes",
        **_ALONE,
    ),
    _vote(
        "vote_confidence",
        "mean probability of the first choice, on prompts that people voted on",
        of.ballots(lambda _, p, __: p),
        "says",
        unit="probability",
        depends_on_m=True,
        ranked="overall",
    ),
    _vote(
        "vote_agreement",
        "mean fraction of people who prefer the model's first choice",
        of.ballots(lambda _, __, agree: agree, proportion=True),
        "people agree",
        better="high",
        unit="fraction of votes",
        needs=None,
        depends_on_m=True,
        ranked="overall",
    ),
    _vote(
        "vote_gap",
        "vote_confidence minus vote_agreement; positive is over-confident",
        of.ballots(lambda _, p, agree: p - agree),
        "gap to people",
        better="zero",
        unit="probability",
        ranked="overall",
    ),
    _vote(
        "vote_agreement_ceiling",
        "noise ceiling of vote_agreement: agreement with the response that most people would prefer",
        of.ballots(lambda votes, _, __: votes_of.vote_agreement_ceilings(votes), several=True),
        "people agree with the best choice",
        unit="fraction of votes",
        depends_on_m=True,
        **_ALONE,
    ),
    _vote(
        "vote_majority_agreement",
        "how often a voter agrees with the majority of the other voters",
        of.ballots(lambda votes, _, __: votes_of.majority_agreements(votes), several=True, proportion=True),
        "a voter agrees with the others' majority",
        unit="fraction of votes",
        depends_on_m=True,
        **_ALONE,
    ),
    _vote(
        "voter_disagreement",
        "how often two voters on the same prompt disagree",
        of.ballots(lambda votes, _, __: votes_of.voter_disagreements(votes), several=True, proportion=True),
        "two voters disagree",
        unit="fraction of votes",
        depends_on_m=True,
        **_ALONE,
    ),
    _vote(
        "vote_disagreement_excess",
        "how often a voter disagrees with the model's first choice, minus how often two voters disagree",
        of.ballots(lambda votes, _, agree: 1 - agree - votes_of.voter_disagreements(votes), several=True),
        "disagreement beyond that of voters",
        better="low",
        unit="fraction of votes",
        needs=None,
        ranked="overall",
    ),
    *_with_null(
        _vote(
            "vote_calibration_error",
            "calibration error of the first choice: its probability against its fraction of people's votes",
            of.error("votes"),
            "calibration error against votes",
            better="low",
            unit="probability",
            ranked="overall",
        ),
        "calibration error against votes",
    ),
    _vote(
        "vote_log_loss",
        "log loss: mean over votes of −log P, then mean over prompts",
        of.ballots(lambda votes, _, __: votes_of.vote_log_losses(votes)),
        "log loss against votes",
        better="low",
        unit="nats",
        depends_on_m=True,
        ranked="overall",
    ),
    _vote(
        "vote_log_loss_ceiling",
        "noise ceiling of vote_log_loss: log loss of the true fractions of votes",
        of.ballots(lambda votes, _, __: votes_of.vote_log_loss_ceilings(votes), several=True),
        "log loss of the true fractions",
        unit="nats",
        depends_on_m=True,
        **_ALONE,
    ),
    _vote(
        "vote_log_loss_excess",
        "vote_log_loss minus its noise ceiling: divergence of the forecast from the true fractions of votes",
        of.ballots(
            lambda votes, _, __: votes_of.vote_log_losses(votes) - votes_of.vote_log_loss_ceilings(votes),
            several=True,
        ),
        "log loss above the noise ceiling",
        better="low",
        unit="nats",
        depends_on_m=True,
        ranked="overall",
    ),
    _vote(
        "vote_brier",
        "Brier score: mean squared error over votes, then mean over prompts",
        of.ballots(lambda votes, _, __: votes_of.vote_briers(votes)),
        "Brier score against votes",
        better="low",
        depends_on_m=True,
        ranked="overall",
    ),
    _vote(
        "vote_brier_ceiling",
        "noise ceiling of vote_brier: Brier score of the true fractions of votes",
        of.ballots(lambda votes, _, __: votes_of.vote_brier_ceilings(votes), several=True),
        "Brier score of the true fractions",
        depends_on_m=True,
        **_ALONE,
    ),
    _vote(
        "vote_brier_excess",
        "vote_brier minus its noise ceiling: squared error of the forecast fractions of votes",
        of.ballots(
            lambda votes, _, __: votes_of.vote_briers(votes) - votes_of.vote_brier_ceilings(votes),
            several=True,
        ),
        "Brier score above the noise ceiling",
        better="low",
        depends_on_m=True,
        ranked="overall",
    ),
)

_OWN = (
    *_HEADLINE,
    *_PAIRS,
    *_CALIBRATION,
    *_SCORES,
    *_DECOMPOSITION,
    *_TEMPERATURE,
    *_OTHERS[:3],
    *_VOTES,
    *_POINTWISE,
    *_OTHERS[3:],
)


@lru_cache(maxsize=1)
def _with_plugins() -> dict[str, Metric]:
    found = {one.name: one for one in _OWN}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda one: (_home(one), one.name)):
        for one in _load(point):
            if one.name in found:
                other = found[one.name].source or "rmcalib"
                raise ValueError(
                    f"{_place(point)}: there is a metric {one.name!r} already, of {other}; rename yours"
                )
            found[one.name] = one
    return found


def _load(point: EntryPoint) -> list[Metric]:
    """Load the metrics of an entry point; raise a ValueError with one line if it is broken."""
    try:
        found: Any = point.load()
    except Exception as error:
        raise ValueError(f"{_place(point)}: cannot load {point.value}: {_one_line(error)}") from error
    metrics = [found] if isinstance(found, Metric) else found
    if not isinstance(metrics, list | tuple) or not all(isinstance(one, Metric) for one in metrics):
        raise ValueError(
            f"{_place(point)}: {point.value} is a {type(found).__name__}, expected an rmcalib.metrics.Metric "
            "or a list of them"
        )
    home = _home(point)
    return [
        replace(one, source=home, measure=_guarded(one, f"metric {one.name} of {home}")) for one in metrics
    ]


def _guarded(one: Metric, place: str) -> Measure:
    """Turn errors in another package's metric into a ValueError with one line that names it."""

    def measure(part: Part, settings: Settings) -> Estimate:
        try:
            found = one.measure(part, settings)
        except Exception as error:
            raise ValueError(f"{place}: {_one_line(error)}") from error
        if not isinstance(found, Estimate):
            raise ValueError(f"{place}: returned a {type(found).__name__}, expected an Estimate")
        if found.value is not None and not np.isfinite(found.value):
            return Estimate.missing(found.n, found.note or "the value is not finite")
        return found

    return measure


def _home(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown distribution"


def _place(point: EntryPoint) -> str:
    return f"entry point {point.name!r} ({ENTRY_POINTS}) of {_home(point)}"


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())

"""Combine judges of the same prompts into a panel, and measure what the panel gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, segment_log_softmax
from rmcalib._util.display import count
from rmcalib.calibration import mean_interval
from rmcalib.calibration.clusters import mean_error
from rmcalib.calibration.intervals import Interval, check_level
from rmcalib.metrics.comparison import named_scores, on_common_prompts
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import Part, whole_part
from rmcalib.repair.calibration import documented
from rmcalib.repair.calibrator import Calibrator, Input, fit_pointwise, labelled_part
from rmcalib.repair.joining import disagreements, spread_shares
from rmcalib.repair.panel_fits import (
    BEST,
    BestResponses,
    PanelData,
    PanelFit,
    SingleResponses,
    fit_panel,
    held_out,
)
from rmcalib.scores import Scores
from rmcalib.scores.scale import Scale

Method = Literal["mean", "weights"]
METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to combine judges; see `combine`."""
FEWEST = 50
"""The smallest number of prompts that a panel is fitted on."""
_NOTHING = 1e-4  # nats; copies of a judge differ by rounding
_Mean = Callable[[FloatArray], Interval]
_BENCHMARK_KEYS = ("benchmark", "benchmark_revision", "benchmark_format", "n_items", "items_sha256")


@dataclass(frozen=True, repr=False)
class Panel(Shown):
    """The result of :func:`combine`: a panel of judges, measured on held-out prompts.

    Attributes
    ----------
    members : list[dict[str, Any]]
        One row per judge: judge, temperature (None if a uniform guess is as good), weight, log_loss,
        accuracy, left_out (how much the panel's log loss rises without this judge), low, high, redundant
        (True if the interval of left_out includes 0, up to 0.0001 nats), and its share of the spread within prompts
        of the panel with fitted weights (share), and of the plain sum of rewards (share_of_sum).
    disagreements : list[dict[str, Any]]
        One row per two judges: how often they order two responses oppositely; see `joining.disagreements`.
    panels : list[dict[str, Any]]
        One row for a guess (uniform, or the base rate), one for the best member, and one per method: panel,
        log_loss, accuracy (of first choices), gain (how much lower the log loss is than the best member's),
        gain_low, gain_high, information (how much lower the log loss is than the guess's) with its limits, and
        gains (True if the lower limits of gain and of information are both above 0).
    best : dict[str, int]
        For each judge that was the best member in a fold, the number of prompts in these folds.
    n : int
        Number of prompts that the panel was fitted and measured on.
    level : float
        Confidence level of the intervals.
    rewards : Mapping[str, FloatArray]
        The panel's log-probabilities of the responses by method, fitted on the other folds.
    about : Scores
        The scores, with a manifest, to which ``rewards`` belong.
    inputs : Mapping[str, tuple of Input]
        What each method multiplies the judges' rewards by, with intervals for "weights".
    combined : Mapping[str, FloatArray]
        The sums of the judges' rewards, each times its weight, by method.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(100, 3)); correct = truth.argmax(axis=1)
    >>> judges = {name: Scores.from_arrays(truth + rng.normal(size=(100, 3)), correct) for name in "ab"}
    >>> panel = combine(judges)
    >>> panel.table["judge"].tolist(), panel.n, panel.scores("mean").manifest["model"]
    (['a', 'b'], 100, 'panel of 2 judges (mean)')
    """

    members: list[dict[str, Any]]
    disagreements: list[dict[str, Any]]
    panels: list[dict[str, Any]]
    best: dict[str, int]
    n: int
    level: float
    rewards: Mapping[str, FloatArray]
    about: Scores
    inputs: Mapping[str, tuple[Input, ...]]
    combined: Mapping[str, FloatArray]

    def document(self) -> Any:
        """Return the document of the page."""
        from rmcalib.report.panels import panel_document

        return panel_document(self)

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the members."""
        return self.members

    def __repr__(self) -> str:
        """Return the judges, and what the fitted panel gains."""
        row = self.panels[-1]
        gain = f"gain {row['gain']:.3f} [{row['gain_low']:.3f}, {row['gain_high']:.3f}] nats"
        return f"Panel({len(self.members)} judges, {self.n} prompts, {gain})"

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator of the panel with fitted weights; it takes the rewards of all judges."""
        return self.calibrated()

    def calibrated(self, method: Method = "weights") -> Calibrator:
        """Return the calibrator of a panel: the weight of each judge, and what their weighted sum means.

        It is fitted on all prompts, so use it on others. `apply` takes it with the scores of all judges.
        """
        check_choice(method, "method", METHODS)
        scores = replace(self.about, reward=self.combined[method], manifest=self._manifest(method))
        part = labelled_part(scores, "one" if scores.view == "top_1" else "labelled")
        if scores.view == "pointwise":
            fit = fit_pointwise(part, self.level)
        else:
            best = part.scale.temperature_interval(self.level)
            fit = Calibrator(best.value or np.inf, best.low, best.high, self.level)
        if np.ptp(part.reward) == 0 or not np.isfinite([fit.temperature, fit.low, fit.high]).all():
            raise ValueError(
                f"panel ({method}): its rewards are not significantly better than a guess, so no temperature is fitted"
            )
        return replace(documented(fit, scores, part), inputs=self.inputs[method])

    def scores(self, method: Method = "weights") -> Scores:
        """Return the panel's scores, which can be evaluated like those of any judge.

        The rewards of each prompt use temperatures and weights that were fitted on other prompts, so an
        evaluation is not biased by the fit. Prompts with several correct responses are not part of the fit;
        their rewards use the fit on all the others.
        """
        check_choice(method, "method", METHODS)
        return replace(self.about, reward=self.rewards[method], manifest=self._manifest(method))

    def _manifest(self, method: Method) -> dict[str, Any]:
        fitted = ("temperature", "weight") if method == "weights" else ("temperature",)
        members = [{"model": row["judge"], **{key: row[key] for key in fitted}} for row in self.members]
        kept = {key: self.about.manifest[key] for key in _BENCHMARK_KEYS if key in self.about.manifest}
        single = self.about.view == "pointwise"
        scale = (
            Scale("log_odds", "log-odds of a panel")
            if single
            else Scale("probability", "log-probabilities of a panel")
        )
        return {
            "model": f"panel of {len(members)} judges ({method})",
            "score_kind": "panel",
            "scale": asdict(scale),
            "labels": self.about.manifest["labels"],
            "panel": {"method": method, "members": members},
            **kept,
        }


def combine(
    scores: Sequence[Any] | Mapping[str, Any],
    *,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Panel:
    """Combine judges of the same prompts, and measure what the panel gains over its best member.

    A panel of useless judges can be better than each of them, because it is closer to a uniform guess. So a
    panel gains only if it also beats a uniform guess.

    Each judge j has its own temperature T_j, and log p_j = log softmax(rewards / T_j). The panel's
    probabilities are softmax(Σ_j w_j log p_j): with w_j = 1/J ("mean"), or with fitted w_j ≥ 0 ("weights").
    Where labels say of each response whether it is correct, x_j = (r_j − b_j)/T_j are the log-odds of each judge,
    and the panel's P(correct) is σ(Σ_j w_j x_j + c), with w and c by logistic regression ("weights"), or the mean
    of the x_j. A judge whose rewards do not rise with the labels has weight 0.

    Temperatures, weights and the choice of the best member are fitted on some folds and measured on another.

    Parameters
    ----------
    scores : sequence, or mapping from names
        The scores of two or more judges: `Scores`, DataFrames or paths; see `load_scores`. Only prompts that
        all judges have scored are used. Prompts of a cluster (of the first judge) stay in one fold.
    names : Sequence[str], optional
        The names of the judges; default those in the manifests.
    level : float
        Confidence level of the intervals. They are paired, with prompts as the sampling unit.
    seed : int
        Seed of the split into five folds.

    Returns
    -------
    Panel

    Raises
    ------
    ValueError
        If there are fewer than two judges; if fewer than 50 labelled prompts (with one correct response, or with
        correct and wrong responses) have scores of all judges; if labels mean different things; or if the judges
        differ in the responses of a prompt.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.normal(size=(300, 4)); correct = truth.argmax(axis=1)
    >>> judges = {name: Scores.from_arrays(truth + rng.normal(size=(300, 4)), correct) for name in "ab"}
    >>> panel = combine(judges)
    >>> [(row["panel"], row["gains"]) for row in panel.panels]
    [('uniform guess', False), ('best member', False), ('mean', True), ('weights', True)]
    >>> panel.scores("weights").n_items
    300
    """
    check_level(level)
    judges = named_scores(scores, names, least=2)
    for name, judge in judges.items():
        if (reason := judge.refusal("fit")) is not None:
            raise ValueError(f"{name}: cannot be part of a panel: {reason}")
    views = {judge.view for judge in judges.values()}
    if len(views) > 1:
        raise ValueError(
            "labels: they name the best response in one file, and say of each response whether it is correct in "
            'another; say which: labels_are="best" or labels_are="correct"'
        )
    pointwise = views == {"pointwise"}
    common = on_common_prompts([each if pointwise else each.decided() for each in judges.values()])
    part = _fitted_part(common[0], pointwise)
    rewards, sizes = np.stack([each.reward for each in common]), np.diff(common[0].offsets)
    starts = common[0].offsets[:-1]
    kept = np.repeat(np.isin(common[0].item_id[starts], part.scores.item_id[part.starts]), sizes)
    if pointwise:
        data: PanelData = SingleResponses(rewards[:, kept], part.label, part.sizes, part.cluster)
    else:
        centred = rewards - np.repeat(np.add.reduceat(rewards, starts, axis=1) / sizes, sizes, axis=1)
        data = BestResponses(centred[:, kept], part.label, part.sizes, part.cluster)
    cluster = part.pointwise.cluster if pointwise else part.cluster
    mean = partial(mean_interval, clusters=cluster, level=level)
    fit = fit_panel(data)
    logits, best = held_out(data, seed)
    losses = {name: data.losses(values) for name, values in logits.items()}
    of_panels = {}
    for method in METHODS:
        reward = fit.logits(method, rewards)
        reward[kept] = logits[method]
        of_panels[str(method)] = reward if pointwise else segment_log_softmax(reward, sizes)
    members = _member_rows(list(judges), data, fit, losses, mean)
    share = spread_shares(fit.coefficients("weights")[:, None] * rewards, sizes)
    for row, *shares in zip(members, share, spread_shares(rewards, sizes), strict=True):
        row["share"], row["share_of_sum"] = shares
    margins = _margins(data, fit, cluster, level)
    inputs: dict[str, tuple[Input, ...]] = {}
    for method in METHODS:
        rows = zip(judges, fit.coefficients(method).tolist(), margins.tolist(), rewards, strict=True)
        inputs[method] = tuple(
            Input(
                name,
                weight,
                weight - margin if method == "weights" else None,
                weight + margin if method == "weights" else None,
                float(reward.min()),
                float(reward.max()),
            )
            for name, weight, margin, reward in rows
        )
    return Panel(
        members=members,
        disagreements=disagreements(common, list(judges), level),
        panels=_panel_rows(data, logits, losses, mean),
        best={name: best.count(j) for j, name in enumerate(judges) if j in best},
        n=len(part),
        level=level,
        rewards=of_panels,
        about=common[0],
        inputs=inputs,
        combined={method: fit.coefficients(method) @ rewards for method in METHODS},
    )


def _fitted_part(scores: Scores, pointwise: bool) -> Part:
    """Return the prompts that a panel is fitted on, or raise a ValueError if there are too few."""
    part = whole_part(scores).prompts("labelled" if pointwise else "one")
    n = 0 if part is None else len(part)
    if part is None or n < FEWEST or np.ptp(part.label[~np.isnan(part.label)]) == 0:
        what = "correct and wrong responses" if pointwise else "one correct response"
        raise ValueError(
            f"only {count(n, 'prompt')} with {what} and scores of all judges; a panel needs {FEWEST} or more"
        )
    return part


def _member_rows(
    names: Sequence[str], data: PanelData, fit: PanelFit, losses: Mapping[str, FloatArray], mean: _Mean
) -> list[dict[str, Any]]:
    """Return one row per judge, without its shares of the spread."""
    rows = []
    for j, name in enumerate(names):
        lost = mean(losses[f"without {j}"] - losses["weights"])
        rows.append(
            {
                "judge": name,
                "temperature": float(1 / fit.slope[j]) if fit.slope[j] > 0 else None,
                "weight": float(fit.panels["weights"][j]),
                "log_loss": float(losses[f"member {j}"].mean()),
                "accuracy": float(np.nanmean(data.first_right(data.rewards[j]))),
                "left_out": lost.value,
                "low": lost.low,
                "high": lost.high,
                "redundant": bool(lost.low <= _NOTHING),
            }
        )
    return rows


def _panel_rows(
    data: PanelData, logits: Mapping[str, FloatArray], losses: Mapping[str, FloatArray], mean: _Mean
) -> list[dict[str, Any]]:
    """Return one row for a guess, one for the best member, and one per method."""
    rows = []
    for name in (data.guess, BEST, *METHODS):
        row: dict[str, Any] = {"panel": name, "log_loss": float(losses[name].mean())}
        row["accuracy"] = float(np.nanmean(data.first_right(logits[name])))
        for key, baseline in (("gain", BEST), ("information", data.guess)):
            gained = mean(losses[baseline] - losses[name])
            row |= {key: gained.value, f"{key}_low": gained.low, f"{key}_high": gained.high}
        rows.append(row | {"gains": bool(row["gain_low"] > 0 and row["information_low"] > 0)})
    return rows


def _margins(data: PanelData, fit: PanelFit, cluster: IntArray | None, level: float) -> FloatArray:
    """Return how far the limits of the fitted coefficients (J,) are from them; 0 if a judge is not used."""
    used = fit.slope > 0
    slopes, curvature = data.slopes(fit, used)
    moves = len(slopes) * slopes @ np.linalg.pinv(curvature)
    margins = np.zeros(len(used))
    margins[used] = [mean_error(values, cluster).margin(level) for values in moves.T[: int(used.sum())]]
    return margins

"""Combine judges of the same prompts into a panel, and measure what the panel gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_choice, segment_log_softmax
from rmcalib._util.display import count
from rmcalib.calibration import Softmax, mean_interval
from rmcalib.calibration.clusters import mean_error
from rmcalib.calibration.intervals import Interval, check_level
from rmcalib.calibration.temperature import cross_fit
from rmcalib.metrics.comparison import named_scores, on_common_prompts
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import Part, shares_of_largest, whole_part
from rmcalib.repair.calibration import documented
from rmcalib.repair.calibrator import Calibrator, Input, fit_pointwise, labelled_part
from rmcalib.repair.joining import disagreements, spread_shares
from rmcalib.repair.response_panels import (
    BASE_RATE,
    BEST,
    first_right,
    fit_responses,
    held_out_responses,
    response_losses,
)
from rmcalib.scores import Scores
from rmcalib.scores.scale import Scale

Method = Literal["mean", "weights"]
METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to combine judges; see `combine`."""
GUESS = "uniform guess"
FEWEST = 50
"""The smallest number of prompts that a panel is fitted on."""
MOST_WEIGHT = 10.0
"""The largest weight of a judge."""
_COLDEST = 100.0  # the largest inverse temperature, relative to the spread of the rewards
_NOTHING = 1e-4  # nats; copies of a judge differ by rounding
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
    for name, one in judges.items():
        if (reason := one.refusal("fit")) is not None:
            raise ValueError(f"{name}: cannot be part of a panel: {reason}")
    views = {one.view for one in judges.values()}
    if len(views) > 1:
        raise ValueError(
            "labels: they name the best response in one file, and say of each response whether it is correct in "
            'another; say which: labels_are="best" or labels_are="correct"'
        )
    pointwise = views == {"pointwise"}
    common = on_common_prompts([one if pointwise else one.decided() for one in judges.values()])
    fit = (_single_responses if pointwise else _best_responses)(common, level, seed)
    mean = partial(mean_interval, clusters=fit.cluster, level=level)
    rewards, sizes = np.stack([each.reward for each in common]), np.diff(common[0].offsets)
    share_of_sum = spread_shares(rewards, sizes)
    share = spread_shares(fit.coefficients["weights"][:, None] * rewards, sizes)
    members = []
    for j, judge in enumerate(judges):
        lost = mean(fit.losses[f"without {j}"] - fit.losses["weights"])
        row = {
            "judge": judge,
            "temperature": fit.temperature[j],
            "weight": float(fit.weights[j]),
            "log_loss": float(fit.losses[f"member {j}"].mean()),
            "accuracy": float(np.nanmean(fit.right[f"member {j}"])),
        }
        limits = {"left_out": lost.value, "low": lost.low, "high": lost.high}
        limits |= {
            "redundant": bool(lost.low <= _NOTHING),
            "share": share[j],
            "share_of_sum": share_of_sum[j],
        }
        members.append({**row, **limits})
    inputs = [_inputs(fit, list(judges), common, method) for method in METHODS]
    return Panel(
        members=members,
        disagreements=disagreements(common, list(judges), level),
        panels=_panel_rows(fit, mean),
        best={name: fit.chosen.count(j) for j, name in enumerate(judges) if j in fit.chosen},
        n=len(fit.part),
        level=level,
        rewards={str(name): rewards for name, rewards in fit.rewards.items()},
        about=common[0],
        inputs=dict(zip(METHODS, inputs, strict=True)),
        combined={
            method: np.stack([each.reward for each in common], axis=-1)
            @ np.array([one.weight for one in used])
            for method, used in zip(METHODS, inputs, strict=True)
        },
    )


@dataclass(frozen=True)
class Measured:
    """What was fitted on all prompts and what held-out ones show, for both kinds of labels.

    ``part`` are the prompts that were used. ``temperature`` and ``weights`` (J,) are those of the judges,
    ``coefficients`` (J,) what their rewards are multiplied by in each panel, ``margin`` (J,) the distance of the
    limits of the fitted ones. ``losses`` and ``right`` are by panel; ``losses`` have the clusters ``cluster``.
    ``chosen`` (n,) is the best member when a prompt was held out, ``rewards`` (N,) are the panels' own.
    """

    part: Part
    guess: str
    temperature: list[float | None]
    weights: FloatArray
    coefficients: dict[Method, FloatArray]
    margin: FloatArray
    losses: dict[str, FloatArray]
    right: dict[str, FloatArray]
    cluster: IntArray | None
    chosen: list[int]
    rewards: dict[Method, FloatArray]


def _best_responses(common: Sequence[Scores], level: float, seed: int) -> Measured:
    """Fit and measure panels of P(the response is the best of its prompt)."""
    everything = whole_part(common[0])
    single = everything.prompts("one")
    if single is None or len(single) < FEWEST:
        raise ValueError(
            f"only {count(0 if single is None else len(single), 'prompt')} with one correct response and scores of "
            f"all judges; a panel needs {FEWEST} or more"
        )
    kept = np.isin(common[0].item_id[everything.starts], single.scores.item_id[single.starts])
    stacked = PanelData(
        np.stack([inverse.reward for inverse in common]), common[0].is_correct, everything.sizes
    )
    data = stacked.take(np.flatnonzero(kept))
    whole, fits = fit_panel(data), _cross_fitted(data, seed, single.cluster)
    logs = data.logs(np.stack([fit.inverse for fit in fits], axis=1))
    logits = {}  # of held-out prompts, by panel
    for name in whole.weights:
        weights = np.stack([fit.weights[name] for fit in fits])
        logits[name] = np.einsum("jr,rj->r", logs, np.repeat(weights, data.sizes, axis=0))
    weights = whole.weights["weights"]
    logits |= {f"member {j}": row for j, row in enumerate(logs)}
    shown = {name: right(values, data) for name, values in logits.items()}
    shown |= {f"member {j}": right(row, data) for j, row in enumerate(data.rewards)}
    return Measured(
        part=single,
        guess=GUESS,
        temperature=[float(1 / inverse) if inverse > 0 else None for inverse in whole.inverse],
        weights=weights,
        coefficients={method: whole.weights[method] * whole.inverse for method in METHODS},
        margin=_margin(data, weights * whole.inverse, whole.inverse > 0, single.cluster, level),
        losses={name: losses(values, data) for name, values in logits.items()},
        right=shown,
        cluster=single.cluster,
        chosen=[int(np.argmax(fit.weights[BEST])) for fit in fits],
        rewards={method: _rewards(method, stacked, kept, whole, logits[method]) for method in METHODS},
    )


def _margin(
    data: PanelData, coefficients: FloatArray, used: BoolArray, cluster: IntArray | None, level: float
) -> FloatArray:
    """Return how far the limits of the coefficients (J,) of the rewards are from them; 0 if not used."""
    starts = np.cumsum(data.sizes) - data.sizes
    p = np.exp(segment_log_softmax(coefficients @ data.rewards, data.sizes))
    expected = np.add.reduceat(p * data.rewards, starts, axis=1)
    centred = (data.rewards - np.repeat(expected, data.sizes, axis=1))[used]
    curvature = (centred * p) @ centred.T
    return _margins(centred[:, data.correct].T, curvature, used, cluster, level)


def _margins(
    slopes: FloatArray, curvature: FloatArray, used: BoolArray, cluster: IntArray | None, level: float
) -> FloatArray:
    """Return the margins (J,) of a maximum-likelihood fit from its slopes (n, J) and its curvature (J, J)."""
    moves = len(slopes) * slopes @ np.linalg.pinv(curvature)
    margins = np.zeros(len(used))
    margins[used] = [mean_error(values, cluster).margin(level) for values in moves.T[: int(used.sum())]]
    return margins


def _single_responses(common: Sequence[Scores], level: float, seed: int) -> Measured:
    """Fit and measure panels of P(the response is correct)."""
    from scipy.special import expit

    part = whole_part(common[0]).prompts("labelled")
    labelled = np.zeros(0, dtype=bool) if part is None else ~np.isnan(part.label)
    if part is None or len(part) < FEWEST or np.ptp(part.label[labelled]) == 0:
        raise ValueError(
            f"only {count(0 if part is None else len(part), 'prompt')} with correct and wrong responses and scores of "
            f"all judges; a panel needs {FEWEST} or more"
        )
    ids = set(part.scores.item_id.tolist())
    kept = np.array([name in ids for name in common[0].item_id.tolist()])
    every = np.stack([slope.reward for slope in common])
    rewards, labels = every[:, kept], part.label
    whole = fit_responses(rewards[:, labelled], labels[labelled])
    fits, number = held_out_responses(rewards, labels, part.sizes, part.cluster, seed)
    members = [f"member {j}" for j in range(len(rewards))]
    logits = {name: np.empty(len(labels)) for name in [*whole.panels, *members]}
    for which, fit in enumerate(fits):
        rows = np.repeat(number == which, part.sizes)
        for name in whole.panels:
            logits[name][rows] = fit.logits(name, rewards[:, rows])
        for name, row in zip(members, fit.alone(rewards[:, rows]), strict=True):
            logits[name][rows] = row
    weights = whole.panels["weights"]
    of_panels = {method: whole.logits(method, every) for method in METHODS}
    for method in METHODS:
        of_panels[method][kept] = logits[method]
    used = whole.slope > 0
    p = np.asarray(expit(whole.logits("weights", rewards[:, labelled])))
    features = np.column_stack([rewards[:, labelled][used].T, np.ones(len(p))])
    curvature = (features * (p * (1 - p))[:, None]).T @ features
    cluster = part.pointwise.cluster
    return Measured(
        part=part,
        guess=BASE_RATE,
        temperature=[float(1 / slope) if slope > 0 else None for slope in whole.slope],
        weights=weights[:-1],
        coefficients={method: whole.panels[method][:-1] * whole.slope for method in METHODS},
        margin=_margins(features * (labels[labelled] - p)[:, None], curvature, used, cluster, level),
        losses={name: response_losses(values[labelled], labels[labelled]) for name, values in logits.items()},
        right={name: first_right(values, labels, part.sizes) for name, values in logits.items()},
        cluster=cluster,
        chosen=[int(np.argmax(fits[which].panels[BEST][:-1])) for which in number],
        rewards=of_panels,
    )


def _inputs(
    fit: Measured, names: Sequence[str], common: Sequence[Scores], method: Method
) -> tuple[Input, ...]:
    """Return what a panel multiplies each judge's rewards by, with intervals where that was fitted."""
    made = []
    for j, (name, scores) in enumerate(zip(names, common, strict=True)):
        weight, margin = float(fit.coefficients[method][j]), float(fit.margin[j])
        fitted = method == "weights"
        low, high = (weight - margin, weight + margin) if fitted else (None, None)
        made.append(Input(name, weight, low, high, float(scores.reward.min()), float(scores.reward.max())))
    return tuple(made)


def _panel_rows(fit: Measured, mean: Callable[[FloatArray], Interval]) -> list[dict[str, Any]]:
    """Return one row for a guess, one for the best member, and one per method."""
    rows = []
    for name in (fit.guess, BEST, *METHODS):
        loss = fit.losses[name]
        row: dict[str, Any] = {"panel": name, "log_loss": float(loss.mean())}
        row["accuracy"] = float(np.nanmean(fit.right[name]))
        for key, baseline in (("gain", fit.losses[BEST]), ("information", fit.losses[fit.guess])):
            gained = mean(baseline - loss)
            row |= {key: gained.value, f"{key}_low": gained.low, f"{key}_high": gained.high}
        rows.append(row | {"gains": bool(row["gain_low"] > 0 and row["information_low"] > 0)})
    return rows


def _rewards(
    method: Method, data: PanelData, kept: BoolArray, whole: PanelFit, held_out: FloatArray
) -> FloatArray:
    """Return the panel's log-probabilities of all responses (N,); prompts of the fit get held-out ones."""
    logits = whole.weights[method] @ data.logs(whole.inverse)
    logits[np.repeat(kept, data.sizes)] = held_out
    return segment_log_softmax(logits, data.sizes)


# The fit, on arrays. Rows are the responses of all prompts, in the order of the prompts.


@dataclass(frozen=True)
class PanelData:
    """The rewards (J, N) of J judges for the same N responses, the correct one of each prompt, prompts' sizes (n,)."""

    rewards: FloatArray
    correct: BoolArray
    sizes: IntArray

    def take(self, prompts: IntArray) -> PanelData:
        """Return the data of some prompts, given by number."""
        kept = np.zeros(len(self.sizes), dtype=bool)
        kept[prompts] = True
        rows = np.repeat(kept, self.sizes)
        return PanelData(self.rewards[:, rows], self.correct[rows], self.sizes[kept])

    def logs(self, inverse: FloatArray) -> FloatArray:
        """Return each judge's log-probabilities (J, N) at inverse temperatures (J,) or (J, n)."""
        each = inverse[:, None] if inverse.ndim == 1 else np.repeat(inverse, self.sizes, axis=1)
        return np.stack([segment_log_softmax(row, self.sizes) for row in self.rewards * each])


@dataclass(frozen=True)
class PanelFit:
    """Parameters that were fitted on the prompts of some folds, or on all prompts.

    ``inverse`` (J,) is 1/T of each judge; 0 if a uniform guess is as good as its rewards. ``weights`` has those
    of the judges' log-probabilities (J,) in each panel: "uniform guess" (all 0), "best member", "mean", "weights",
    and "without j" for the one without judge number j.
    """

    inverse: FloatArray
    weights: dict[str, FloatArray]


def fit_panel(data: PanelData) -> PanelFit:
    """Fit the temperatures, then the weights of the whole panel and of each panel without one judge."""
    inverse = np.array([_inverse_temperature(row, data) for row in data.rewards])
    logs, informed, judges = data.logs(inverse), inverse > 0, np.arange(len(inverse))
    best = int(np.argmin([losses(row, data).mean() for row in logs]))
    weights = {
        GUESS: np.zeros(len(judges)),
        BEST: np.eye(len(judges))[best],
        "mean": np.full(len(judges), 1 / len(judges)),
        "weights": fit_weights(logs, data, informed),
    }
    for j in judges:
        weights[f"without {j}"] = fit_weights(logs, data, informed & (judges != j))
    return PanelFit(inverse, weights)


def fit_weights(logs: FloatArray, data: PanelData, used: BoolArray) -> FloatArray:
    """Return the weights w ≥ 0 (J,) for which softmax(Σ_j w_j log p_j) has the smallest log loss.

    ``logs`` (J, N) are log-probabilities; judges that are not ``used`` (J,) have weight 0. The problem is
    convex.

    >>> rewards, correct = np.array([[2.0, 0.0, 2.0, 0.0, 0.0, 2.0]]), np.array([True, False] * 3)
    >>> data = PanelData(rewards, correct, np.array([2, 2, 2]))
    >>> fit_weights(data.logs(np.ones(1)), data, np.ones(1, dtype=bool)).round(3)
    array([0.347])
    """
    from scipy.optimize import minimize

    won = logs[:, data.correct].sum(axis=1)

    def loss(w: FloatArray) -> tuple[float, FloatArray]:
        log_p = segment_log_softmax(w @ logs, data.sizes)
        expected = (np.exp(log_p) * logs).sum(axis=1)
        return float(-log_p[data.correct].mean()), (expected - won) / len(data.sizes)

    solution = minimize(
        loss,
        used / max(int(used.sum()), 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, MOST_WEIGHT * is_used) for is_used in used],
        options={"ftol": 1e-12, "gtol": 1e-8},
    )
    weights: FloatArray = solution.x
    return weights


def _cross_fitted(data: PanelData, seed: int, cluster: IntArray | None) -> list[PanelFit]:
    """Return one fit per prompt (n,), each fitted on the prompts of the other folds."""
    fits: list[PanelFit] = []

    def fit(train: IntArray) -> float:
        fits.append(fit_panel(data.take(train)))
        return len(fits) - 1.0

    n = len(data.sizes)
    number = cross_fit(n, fit, lambda which, _: np.array(which), groups=cluster, rng=seed)
    return [fits[int(which)] for which in number]


def losses(logs: FloatArray, data: PanelData) -> FloatArray:
    """Return −log P(correct) of each prompt (n,) for log-probabilities or logits (N,)."""
    return -segment_log_softmax(logs, data.sizes)[data.correct]


def right(logits: FloatArray, data: PanelData) -> FloatArray:
    """Return 1 if the correct response has the largest logit, 1/t if t responses share it, else 0: (n,)."""
    return shares_of_largest(logits, data.sizes)[data.correct]


def _inverse_temperature(rewards: FloatArray, data: PanelData) -> float:
    fit = Softmax(rewards, data.correct, data.sizes).fit()
    if fit.at_limit == "hot":
        return 0.0
    means = np.add.reduceat(rewards, np.cumsum(data.sizes) - data.sizes) / data.sizes
    spread = float(np.std(rewards - np.repeat(means, data.sizes))) or 1.0
    return min(1 / fit.temperature, _COLDEST / spread)

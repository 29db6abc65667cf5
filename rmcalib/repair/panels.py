"""Combine judges of the same prompts into a panel, and measure what the panel gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_choice, segment_log_softmax
from rmcalib._util.display import count
from rmcalib.calibration import Softmax, mean_interval
from rmcalib.calibration.intervals import Interval, check_level
from rmcalib.calibration.temperature import cross_fit
from rmcalib.metrics.comparison import named_scores, on_common_prompts
from rmcalib.metrics.results import Shown
from rmcalib.metrics.views import shares_of_largest, whole_part
from rmcalib.scores import Scores
from rmcalib.scores.scale import Scale, as_record

Method = Literal["mean", "weights"]
METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to combine judges; see `combine`."""
GUESS, BEST = "uniform guess", "best member"
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
        (True if the interval of left_out includes 0, up to 0.0001 nats).
    panels : list[dict[str, Any]]
        One row for a uniform guess, one for the best member, and one per method: panel, log_loss, accuracy,
        gain (how much lower the log loss is than the best member's), gain_low, gain_high, information (how much
        lower the log loss is than a uniform guess's) with its limits, and gains (True if the lower limits of gain
        and of information are both above 0).
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
    panels: list[dict[str, Any]]
    best: dict[str, int]
    n: int
    level: float
    rewards: Mapping[str, FloatArray]
    about: Scores

    def table_rows(self) -> list[dict[str, Any]]:
        """Return the members."""
        return self.members

    def __repr__(self) -> str:
        """Return the judges, and what the fitted panel gains."""
        row = self.panels[-1]
        gain = f"gain {row['gain']:.3f} [{row['gain_low']:.3f}, {row['gain_high']:.3f}] nats"
        return f"Panel({len(self.members)} judges, {self.n} prompts, {gain})"

    def scores(self, method: Method = "weights") -> Scores:
        """Return the panel's scores, which can be evaluated like those of any judge.

        The rewards of each prompt use temperatures and weights that were fitted on other prompts, so an
        evaluation is not biased by the fit. Prompts with several correct responses are not part of the fit;
        their rewards use the fit on all the others.
        """
        check_choice(method, "method", METHODS)
        fitted = ("temperature", "weight") if method == "weights" else ("temperature",)
        members = [{"model": row["judge"], **{key: row[key] for key in fitted}} for row in self.members]
        kept = {key: self.about.manifest[key] for key in _BENCHMARK_KEYS if key in self.about.manifest}
        manifest = {
            "model": f"panel of {len(members)} judges ({method})",
            "score_kind": "panel",
            "scale": as_record(Scale("probability", "log-probabilities of a panel")),
            "labels": self.about.manifest["labels"],
            "panel": {"method": method, "members": members},
            **kept,
        }
        return replace(self.about, reward=self.rewards[method], manifest=manifest)


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
        If there are fewer than two judges; if fewer than 50 prompts with one correct response have scores of
        all judges; or if the judges differ in the responses of a prompt.

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
    common = on_common_prompts([one.decided() for one in judges.values()])
    everything = whole_part(common[0])
    single = everything.prompts("one")
    n = 0 if single is None else len(single)
    if single is None or n < FEWEST:
        raise ValueError(
            f"only {count(n, 'prompt')} with one correct response and scores of all judges; a panel "
            f"needs {FEWEST} or more"
        )
    kept = np.isin(common[0].item_id[everything.starts], single.scores.item_id[single.starts])
    stacked = PanelData(np.stack([one.reward for one in common]), common[0].is_correct, everything.sizes)
    data = stacked.take(np.flatnonzero(kept))
    whole, fits = fit_panel(data), _cross_fitted(data, seed, single.cluster)
    logs = data.logs(np.stack([fit.inverse for fit in fits], axis=1))
    logits = {}  # of held-out prompts, by panel
    for name in whole.weights:
        weights = np.stack([fit.weights[name] for fit in fits])
        logits[name] = np.einsum("jr,rj->r", logs, np.repeat(weights, data.sizes, axis=0))
    mean = partial(mean_interval, clusters=single.cluster, level=level)
    members = []
    for j, judge in enumerate(judges):
        lost = mean(losses(logits[f"without {j}"], data) - losses(logits["weights"], data))
        row = {
            "judge": judge,
            "temperature": float(1 / whole.inverse[j]) if whole.inverse[j] > 0 else None,
            "weight": float(whole.weights["weights"][j]),
            "log_loss": float(losses(logs[j], data).mean()),
            "accuracy": float(right(data.rewards[j], data).mean()),
        }
        limits = {"left_out": lost.value, "low": lost.low, "high": lost.high}
        members.append({**row, **limits, "redundant": bool(lost.low <= _NOTHING)})
    chosen = [int(np.argmax(fit.weights[BEST])) for fit in fits]
    return Panel(
        members=members,
        panels=_panel_rows(logits, data, mean),
        best={name: chosen.count(j) for j, name in enumerate(judges) if j in chosen},
        n=n,
        level=level,
        rewards={method: _rewards(method, stacked, kept, whole, logits[method]) for method in METHODS},
        about=common[0],
    )


def _panel_rows(
    logits: Mapping[str, FloatArray], data: PanelData, mean: Callable[[FloatArray], Interval]
) -> list[dict[str, Any]]:
    """Return one row for a uniform guess, one for the best member, and one per method."""
    loss = {name: losses(logits[name], data) for name in (GUESS, BEST, *METHODS)}
    rows = []
    for name, own in loss.items():
        row: dict[str, Any] = {"panel": name, "log_loss": float(own.mean())}
        row["accuracy"] = float(right(logits[name], data).mean())
        for key, baseline in (("gain", loss[BEST]), ("information", loss[GUESS])):
            gained = mean(baseline - own)
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

    found = minimize(
        loss,
        used / max(int(used.sum()), 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, MOST_WEIGHT * one) for one in used],
        options={"ftol": 1e-12, "gtol": 1e-8},
    )
    weights: FloatArray = found.x
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
    found = Softmax(rewards, data.correct, data.sizes).fit()
    if found.at_limit == "hot":
        return 0.0
    means = np.add.reduceat(rewards, np.cumsum(data.sizes) - data.sizes) / data.sizes
    spread = float(np.std(rewards - np.repeat(means, data.sizes))) or 1.0
    return min(1 / found.temperature, _COLDEST / spread)

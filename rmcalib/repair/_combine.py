"""Combine judges of the same prompts into a panel, and measure what the panel gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_choice, segment_log_softmax
from rmcalib._util.terminal import count
from rmcalib.calibration import check_level, mean_interval
from rmcalib.metrics import forecast, named_scores, on_common_prompts, top_1_prompts
from rmcalib.repair._panel import PanelData, PanelFit, cross_fitted, fit_panel, losses, right
from rmcalib.scores import Scores

if TYPE_CHECKING:
    import pandas

__all__ = ["METHODS", "Panel", "combine"]

Method = Literal["mean", "weights"]
METHODS: tuple[Method, ...] = get_args(Method)
"""The ways to combine judges; see `combine`."""
FEWEST = 50
"""The smallest number of prompts that a panel is fitted on."""
_NOTHING = 1e-4  # nats; copies of a judge differ by rounding
_BENCHMARK_KEYS = ("benchmark", "benchmark_revision", "benchmark_format", "n_items", "items_sha256")


@dataclass(frozen=True)
class Panel:
    """The result of :func:`combine`: a panel of judges, measured on held-out prompts.

    Attributes
    ----------
    members : list[dict[str, Any]]
        One row per judge: judge, temperature (None if a uniform guess is as good), weight, log_loss,
        accuracy, left_out (how much the panel's log loss rises without this judge), low, high, redundant
        (True if the interval of left_out includes 0, up to 0.0001 nats).
    panels : list[dict[str, Any]]
        One row for a uniform guess, one for the best member, and one per method: panel, log_loss, accuracy,
        gain (how much lower the log loss is than the best member's), gain_low, gain_high, accuracy_gain with
        its limits, information (how much lower the log loss is than a uniform guess's) with its limits, and
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

    @property
    def table(self) -> pandas.DataFrame:
        """The members as a pandas table."""
        import pandas

        return pandas.DataFrame(self.members)

    def scores(self, method: Method = "weights") -> Scores:
        """Return the panel's scores, which can be evaluated like those of any judge.

        The rewards of each prompt use temperatures and weights that were fitted on other prompts, so an
        evaluation is not biased by the fit. Prompts with several correct responses are not part of the fit;
        their rewards use the fit on all the others.
        """
        check_choice(method, "method", METHODS)
        names = [row["judge"] for row in self.members]
        panel = {
            "method": method,
            "members": [
                {"model": row["judge"], "temperature": row["temperature"], "weight": row["weight"]}
                if method == "weights"
                else {"model": row["judge"], "temperature": row["temperature"]}
                for row in self.members
            ],
        }
        kept = {key: self.about.manifest[key] for key in _BENCHMARK_KEYS if key in self.about.manifest}
        manifest = {
            "model": f"panel of {len(names)} judges ({method})",
            "scale": "log-probabilities",
            "panel": panel,
            **kept,
        }
        return replace(self.about, reward=self.rewards[method], manifest=manifest)


def combine(
    scores: Sequence[Scores] | Mapping[str, Scores],
    *,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    folds: int = 5,
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
    scores : Sequence[Scores] | Mapping[str, Scores]
        The scores of two or more judges, or a mapping from names to scores. Only prompts that all judges have
        scored are used.
    names : Sequence[str], optional
        The names of the judges; default those in the manifests.
    level : float
        Confidence level of the intervals. They are paired, with prompts as the sampling unit.
    folds : int
        Number of folds of the cross-fitting.
    seed : int
        Seed of the split into folds.

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
    [('uniform guess', None), ('best member', None), ('mean', True), ('weights', True)]
    >>> panel.scores("weights").n_items
    300
    """
    check_level(level)
    judges = named_scores(scores, names, least=2, caller="combine")
    common = on_common_prompts([one.decided() for one in judges.values()])
    everything = forecast(common[0])
    kept = top_1_prompts(everything)
    n = int(kept.sum())
    if n < FEWEST:
        raise ValueError(
            f"only {count(n, 'prompt')} with one correct response and scores of all judges; a panel "
            f"needs {FEWEST} or more"
        )
    stacked = PanelData(np.stack([one.reward for one in common]), common[0].is_correct, everything.sizes)
    data = stacked.take(np.flatnonzero(kept))
    whole, fits = fit_panel(data), cross_fitted(data, folds=folds, seed=seed)
    found = _measure(data, fits)
    chosen = np.array([fit.best for fit in fits])
    return Panel(
        members=_member_rows(list(judges), whole, found, level),
        panels=_panel_rows(found, data.sizes, level),
        best={name: int((chosen == j).sum()) for j, name in enumerate(judges) if (chosen == j).any()},
        n=n,
        level=level,
        rewards={method: _rewards(method, stacked, kept, whole, found) for method in METHODS},
        about=common[0],
    )


@dataclass(frozen=True)
class _Measured:
    """Held-out log losses and hits (n,) of each prompt; logits (N,) of the panels."""

    loss: dict[str, FloatArray]
    hit: dict[str, FloatArray]
    logits: dict[str, FloatArray]
    members: list[tuple[FloatArray, FloatArray]]
    without: list[FloatArray]


def _measure(data: PanelData, fits: Sequence[PanelFit]) -> _Measured:
    """Measure the members and the panels, each prompt with the parameters of its fold."""
    n_judges = len(data.rewards)
    logs = data.logs(np.stack([fit.inverse for fit in fits], axis=1))

    def joined(weights: FloatArray) -> FloatArray:
        """Return Σ_j w_j log p_j (N,) with weights (n, J)."""
        return np.einsum("jr,rj->r", logs, np.repeat(weights, data.sizes, axis=0))

    best = np.eye(n_judges)[[fit.best for fit in fits]]
    logits = {
        "best member": joined(best),
        "mean": logs.mean(axis=0),
        "weights": joined(np.stack([fit.weights for fit in fits])),
    }
    return _Measured(
        loss={name: losses(values, data) for name, values in logits.items()},
        hit={name: right(values, data) for name, values in logits.items()},
        logits=logits,
        members=[(losses(row, data), right(own, data)) for row, own in zip(logs, data.rewards, strict=True)],
        without=[losses(joined(np.stack([fit.without[j] for fit in fits])), data) for j in range(n_judges)],
    )


def _rewards(
    method: Method, data: PanelData, kept: BoolArray, whole: PanelFit, found: _Measured
) -> FloatArray:
    """Return the panel's log-probabilities of all responses (N,); prompts of the fit get held-out ones."""
    n_judges = len(whole.weights)
    weights = whole.weights if method == "weights" else np.full(n_judges, 1 / n_judges)
    logits: FloatArray = weights @ data.logs(whole.inverse)
    logits[np.repeat(kept, data.sizes)] = found.logits[method]
    return segment_log_softmax(logits, data.sizes)


def _member_rows(
    names: Sequence[str], whole: PanelFit, found: _Measured, level: float
) -> list[dict[str, Any]]:
    rows = []
    for j, name in enumerate(names):
        lost = mean_interval(found.without[j] - found.loss["weights"], level=level)
        loss, hit = found.members[j]
        rows.append(
            {
                "judge": name,
                "temperature": float(1 / whole.inverse[j]) if whole.inverse[j] > 0 else None,
                "weight": float(whole.weights[j]),
                "log_loss": float(loss.mean()),
                "accuracy": float(hit.mean()),
                "left_out": lost.value,
                "low": lost.low,
                "high": lost.high,
                "redundant": bool(lost.low <= _NOTHING),
            }
        )
    return rows


def _panel_rows(found: _Measured, sizes: IntArray, level: float) -> list[dict[str, Any]]:
    uniform = np.log(sizes)
    guess = {
        "panel": "uniform guess",
        "log_loss": float(uniform.mean()),
        "accuracy": float((1 / sizes).mean()),
    }
    rows: list[dict[str, Any]] = [guess]
    for name in ("best member", *METHODS):
        row: dict[str, Any] = {
            "panel": name,
            "log_loss": float(found.loss[name].mean()),
            "accuracy": float(found.hit[name].mean()),
        }
        differences = {"information": uniform - found.loss[name]}
        if name != "best member":
            differences["gain"] = found.loss["best member"] - found.loss[name]
            differences["accuracy_gain"] = found.hit[name] - found.hit["best member"]
        for key, difference in differences.items():
            gained = mean_interval(difference, level=level)
            row |= {key: gained.value, f"{key}_low": gained.low, f"{key}_high": gained.high}
        if name != "best member":
            row["gains"] = bool(row["gain_low"] > 0 and row["information_low"] > 0)
        rows.append(row)
    keys = list(dict.fromkeys(key for row in reversed(rows) for key in row))
    return [{key: row.get(key) for key in keys} for row in rows]

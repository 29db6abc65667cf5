"""The probability that people find responses equally good: models of Davidson and of Rao and Kupper."""

from __future__ import annotations

from typing import Literal

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice
from rmcalib.calibration._temperature import cross_fit
from rmcalib.calibration._votes._forecasts import VoteForecasts, segment_sums

__all__ = ["TieModel", "fit_ties", "with_tie_outcome"]

TieModel = Literal["davidson", "rao-kupper"]
_MODELS: tuple[TieModel, ...] = ("davidson", "rao-kupper")
_LOG_RANGE = (-20.0, 20.0)  # of Davidson's parameter
_FOLDS = 5


def fit_ties(forecasts: VoteForecasts, model: TieModel = "davidson") -> float:
    """Fit the parameter of a model of ties by maximum likelihood, with equal weight for every prompt.

    With forecasts p_i of m responses:

    - Davidson (1970): P(i) ∝ p_i and P(tie) ∝ ν (Π p_i)^(1/m). Among the people who choose a response, the
      probabilities are still p_i. For two responses (Π p_i)^(1/m) = √(p₁ p₂).
    - Rao and Kupper (1967), two responses only: P(1) = p₁ / (p₁ + θ p₂), P(2) = p₂ / (p₂ + θ p₁).

    In both models, ties are likely where the forecasts are about equal, and rare where they are not.

    Parameters
    ----------
    forecasts : VoteForecasts
        Forecasts and votes of n prompts, in which ties are not an outcome yet.
    model : {"davidson", "rao-kupper"}
        The model.

    Returns
    -------
    float
        The parameter: ν ≥ 0 (0 without ties), or θ ≥ 1 (1 without ties).

    Examples
    --------
    >>> half = VoteForecasts.from_arrays([[0.5, 0.5]], [[1, 1]], ties=[2])  # half of the votes are ties
    >>> round(fit_ties(half), 3), round(fit_ties(half, "rao-kupper"), 3)
    (2.0, 3.0)
    """
    check_choice(model, "model", _MODELS)
    _check_kind(forecasts, model)
    tied = forecasts.ties / forecasts.n_votes
    if not tied.any():
        return 0.0 if model == "davidson" else 1.0
    return _fit_davidson(forecasts, tied) if model == "davidson" else _fit_rao_kupper(forecasts, tied)


def with_tie_outcome(
    forecasts: VoteForecasts, model: TieModel = "davidson", *, rng: np.random.Generator | int = 0
) -> VoteForecasts:
    """Return forecasts with one more outcome per prompt, "equally good", whose votes are the ties.

    The parameter is cross-fitted: the ties of a prompt are forecast with a parameter fitted on other prompts
    (five folds).

    Parameters
    ----------
    forecasts : VoteForecasts
        Forecasts and votes of n ≥ 2 prompts, in which ties are not an outcome yet.
    model : {"davidson", "rao-kupper"}
        The model of ties; see `fit_ties`.
    rng : numpy Generator or int
        Source of randomness of the folds, or its seed.

    Returns
    -------
    VoteForecasts
        The forecasts; the tie is the last outcome of each prompt.

    Examples
    --------
    >>> found = VoteForecasts.from_arrays([[0.5, 0.5]] * 4, [[1, 1]] * 4, ties=[2] * 4)
    >>> with_tie_outcome(found).probability[:3].round(3)
    array([0.25, 0.25, 0.5 ])
    """
    check_choice(model, "model", _MODELS)
    _check_kind(forecasts, model)
    n = len(forecasts)
    if n < 2:
        raise ValueError("ties: at least two prompts are needed to cross-fit a model of ties")

    def fit(train: IntArray) -> float:
        kept = np.zeros(n, dtype=bool)
        kept[train] = True
        return fit_ties(forecasts.take(kept), model)

    parameter = cross_fit(
        n, fit, lambda found, test: np.full(len(test), found), folds=min(_FOLDS, n), rng=rng
    )
    chosen, tie = _log_forecasts(forecasts, model, parameter)
    ends = np.cumsum(forecasts.sizes)
    return VoteForecasts(
        np.insert(chosen, ends, tie),
        np.insert(forecasts.votes, ends, forecasts.ties),
        forecasts.sizes + 1,
        np.zeros(n, dtype=np.int64),
        np.insert(np.zeros(len(chosen), dtype=bool), ends, True),
    )


def _log_forecasts(
    forecasts: VoteForecasts, model: TieModel, parameter: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Log-probabilities of the responses (N,) and of a tie (n,), for parameters (n,)."""
    from scipy.special import log_expit

    with np.errstate(divide="ignore"):
        if model == "davidson":
            odds = np.log(parameter) + _log_mean(forecasts)
            chosen = forecasts.log_probability + np.repeat(log_expit(-odds), forecasts.sizes)
            return chosen, np.asarray(log_expit(odds))
        log_theta = np.log(parameter)
        logs = forecasts.log_probability.reshape(-1, 2)
        lead = logs[:, 0] - logs[:, 1]
        first, second = log_expit(lead - log_theta), log_expit(-lead - log_theta)
        tie = np.log(np.expm1(2 * log_theta)) + first + second
    return np.column_stack([first, second]).reshape(-1), tie


def _fit_davidson(forecasts: VoteForecasts, tied: FloatArray) -> float:
    from scipy.optimize import brentq
    from scipy.special import expit

    # The derivative of the log-likelihood with respect to log ν: observed minus expected ties.
    level = _log_mean(forecasts)
    low, high = _LOG_RANGE[0], _LOG_RANGE[1] - float(level.min())

    def excess(log_nu: float) -> float:
        return float((expit(log_nu + level) - tied).mean())

    if excess(high) <= 0:
        return float(np.exp(min(high, 700.0)))
    return 0.0 if excess(low) >= 0 else float(np.exp(brentq(excess, low, high, xtol=1e-12)))


def _fit_rao_kupper(forecasts: VoteForecasts, tied: FloatArray) -> float:
    from scipy.optimize import minimize_scalar

    n = len(forecasts)
    share = forecasts.votes.reshape(-1, 2) / forecasts.n_votes[:, None]
    logs = forecasts.log_probability.reshape(-1, 2)
    most = min(50.0 + float(np.abs(logs[:, 0] - logs[:, 1]).max()), 600.0)

    def loss(log_theta: float) -> float:
        chosen, tie = _log_forecasts(forecasts, "rao-kupper", np.full(n, np.exp(log_theta)))
        each = np.where(share > 0, share * chosen.reshape(-1, 2), 0.0).sum(axis=1)
        return -float((each + np.where(tied > 0, tied * tie, 0.0)).mean())

    found = minimize_scalar(loss, bounds=(0.0, most), method="bounded", options={"xatol": 1e-9})
    return float(np.exp(found.x))


def _log_mean(forecasts: VoteForecasts) -> FloatArray:
    """Log of the geometric mean of each prompt's forecasts: (n,)."""
    return segment_sums(forecasts.log_probability, forecasts) / forecasts.sizes


def _check_kind(forecasts: VoteForecasts, model: TieModel) -> None:
    if forecasts.is_tie.any():
        raise ValueError("forecasts: ties are already an outcome of these forecasts")
    if model == "rao-kupper" and (forecasts.sizes != 2).any():
        most = int(forecasts.sizes.max())
        raise ValueError(f"ties: rao-kupper is for two responses, not {most}; use davidson or split")

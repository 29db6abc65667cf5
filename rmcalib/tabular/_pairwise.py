"""Ranking by pairwise comparison: a calibrated tree per pair of labels, and Plackett-Luce from pairs."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_floats, check_integer
from rmcalib.ranking import PairwiseProbabilities, PlackettLuce
from rmcalib.tabular._learners import check_training_data, fitted

__all__ = ["PairwiseLearner", "PlackettLuceFromPairs", "newman_utilities"]

_SMALLEST = 1e-9


@dataclass(eq=False)
class PairwiseLearner:
    """A decision tree per pair of labels, with Platt scaling on held-out folds.

    If fewer than two rows have the rarer order of a pair, no tree is fitted. The probability is then the
    smoothed frequency (count + 1)/(n + 2) for every row.

    Parameters
    ----------
    seed : int
        Seed of the trees and of the folds.
    folds : int
        Number of folds of the Platt scaling.
    shuffle : bool
        Whether the rows are shuffled before they are split into folds.

    Examples
    --------
    >>> from rmcalib.tabular import synthetic_dataset
    >>> data, _ = synthetic_dataset(60, 3)
    >>> PairwiseLearner().fit(data.numeric, data.orders).predict(data.numeric).matrix.shape
    (60, 3, 3)
    """

    seed: int = 0
    folds: int = 5
    shuffle: bool = True
    models_: list[Any] | None = field(default=None, init=False, repr=False)
    n_items_: int = field(default=0, init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "PairwiseLearner":
        """Fit one classifier of "i before j" per pair i < j."""
        x, ranked = check_training_data(X, orders)
        check_integer(self.folds, "folds", 2)
        positions = np.argsort(ranked, axis=1)
        first, second = _pairs(ranked.shape[1])
        before = positions[:, first] < positions[:, second]
        self.n_items_ = ranked.shape[1]
        self.models_ = [self._fit_pair(x, outcome) for outcome in before.T]
        return self

    def predict(self, X: ArrayLike) -> PairwiseProbabilities:
        """Return P(i before j) for all pairs: pair marginals without a distribution over rankings."""
        x = as_floats(X, "X", ndim=2)
        matrix = np.full((len(x), self.n_items_, self.n_items_), 0.5)
        for model, i, j in zip(fitted(self.models_, self), *_pairs(self.n_items_), strict=True):
            p = np.full(len(x), model) if isinstance(model, float) else model.predict_proba(x)[:, 1]
            matrix[:, i, j], matrix[:, j, i] = p, 1 - p
        return PairwiseProbabilities(matrix)

    def _fit_pair(self, x: FloatArray, before: BoolArray) -> Any:
        from sklearn.calibration import CalibratedClassifierCV
        from sklearn.model_selection import StratifiedKFold
        from sklearn.tree import DecisionTreeClassifier

        rarer = min(int(before.sum()), int((~before).sum()))
        if rarer < 2:
            return float((before.sum() + 1) / (len(before) + 2))
        seed = self.seed if self.shuffle else None
        splits = StratifiedKFold(min(self.folds, rarer), shuffle=self.shuffle, random_state=seed)
        tree = DecisionTreeClassifier(random_state=self.seed)
        return CalibratedClassifierCV(tree, method="sigmoid", cv=splits).fit(x, before)


@dataclass(eq=False)
class PlackettLuceFromPairs:
    """Plackett-Luce with utilities that are fitted to the probabilities of a :class:`PairwiseLearner`.

    Parameters
    ----------
    seed, folds, shuffle
        As for :class:`PairwiseLearner`.
    iterations : int
        Number of Newman's iterations.

    Examples
    --------
    >>> from rmcalib.tabular import synthetic_dataset
    >>> data, _ = synthetic_dataset(60, 3)
    >>> len(PlackettLuceFromPairs().fit(data.numeric, data.orders).predict(data.numeric))
    60
    """

    seed: int = 0
    folds: int = 5
    shuffle: bool = True
    iterations: int = 100
    pairs_: PairwiseLearner | None = field(default=None, init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "PlackettLuceFromPairs":
        """Fit the classifiers of all pairs."""
        self.pairs_ = PairwiseLearner(self.seed, self.folds, self.shuffle).fit(X, orders)
        return self

    def predict(self, X: ArrayLike) -> PlackettLuce:
        """Return the Plackett-Luce distributions that fit the pairs best."""
        matrix = fitted(self.pairs_, self).predict(X).matrix
        return PlackettLuce(newman_utilities(matrix, iterations=self.iterations))


def newman_utilities(matrix: ArrayLike, *, iterations: int = 100) -> FloatArray:
    """Return log-utilities (n, m) whose Bradley-Terry model fits P(i before j) of ``matrix`` (n, m, m).

    Newman's iteration (2023): θ_i ← Σ_j p_ij θ_j/(θ_i + θ_j) / Σ_j p_ji/(θ_i + θ_j), then normalised.
    (The paper prints θ_i in the numerator, which diverges.) Probabilities are clipped to [1e-9, 1 − 1e-9].

    >>> theta = np.array([0.5, 0.3, 0.15, 0.05])
    >>> pairs = theta[:, None] / (theta[:, None] + theta)
    >>> np.exp(newman_utilities(pairs[None])).round(4)
    array([[0.5 , 0.3 , 0.15, 0.05]])
    """
    p = np.clip(as_floats(matrix, "matrix", ndim=3), _SMALLEST, 1 - _SMALLEST)
    m = p.shape[1]
    p[:, np.arange(m), np.arange(m)] = 0
    theta = np.full(p.shape[:2], 1 / m)
    for _ in range(check_integer(iterations, "iterations", 1)):
        sums = theta[:, :, None] + theta[:, None, :]
        won = (p * theta[:, None, :] / sums).sum(axis=2)
        lost = (p.transpose(0, 2, 1) / sums).sum(axis=2)
        theta = won / lost
        theta /= theta.sum(axis=1, keepdims=True)
    return np.log(np.maximum(theta, 1e-300))


def _pairs(m: int) -> tuple[IntArray, IntArray]:
    first, second = np.triu_indices(m, 1)
    return first, second

"""Learners for probabilistic label ranking, with an interface like scikit-learn's.

They have ``fit(X, orders)`` and ``predict(X)``, which returns a distribution over rankings for every row.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, check_choice
from rmcalib.ranking import (
    Mallows,
    PairMarginals,
    PlackettLuce,
    SparseRankings,
    as_orders,
    index_of_orders,
    log_integer,
)
from rmcalib.tabular._networks import Network, Training, train

__all__ = [
    "LEARNERS",
    "Learner",
    "LearnerFactory",
    "MallowsLearner",
    "PlackettLuceLearner",
    "RankClassifier",
    "make_learner",
]

_LARGEST_DISPERSION = 20.0

Part = TypeVar("Part")


class Learner(Protocol):
    """The interface of a learner: ``fit`` and ``predict``."""

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "Learner":
        """Learn from features (n, d) and rankings (n, m), best label first; return the learner itself."""
        ...

    def predict(self, X: ArrayLike) -> PairMarginals:
        """Return a forecast for each row of features: a distribution over rankings, or pair marginals."""
        ...


LearnerFactory = Callable[[int], Learner]
"""A function that takes a seed and returns a learner."""


@dataclass(eq=False)
class PlackettLuceLearner:
    """Plackett-Luce with log-utilities from a network, by maximum likelihood (Cheng et al. 2010).

    Parameters
    ----------
    training : Training
        The network and its optimiser.

    Examples
    --------
    >>> from rmcalib.tabular import synthetic_dataset
    >>> data, _ = synthetic_dataset(60, 3)
    >>> len(PlackettLuceLearner(Training(epochs=1)).fit(data.numeric, data.orders).predict(data.numeric))
    60
    """

    training: Training = field(default_factory=Training)
    network_: Network | None = field(default=None, init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "PlackettLuceLearner":
        """Minimise −Σ_i (u_π(i) − log Σ_{j≥i} exp u_π(j)), averaged over rows."""
        import torch

        x, ranked = check_training_data(X, orders)
        rankings = torch.tensor(ranked)

        def loss(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            utilities = outputs.gather(1, rankings[rows])
            left = utilities.flip(1).logcumsumexp(dim=1).flip(1)
            return (left - utilities).sum(dim=1).mean()

        self.network_ = train(x, ranked.shape[1], loss, self.training)
        return self

    def predict(self, X: ArrayLike) -> PlackettLuce:
        """Return Plackett-Luce distributions."""
        return PlackettLuce(fitted(self.network_, self)(as_floats(X, "X", ndim=2)))


@dataclass(eq=False)
class RankClassifier:
    """A network with one class per known ranking; the m! − N other rankings share one logit c.

    Parameters
    ----------
    training : Training
        The network and its optimiser.
    classes : int array (N, m), optional
        The known rankings; by default those of the training data.
    unseen_logit : float, optional
        The logit c. By default it is fixed before training: with all other logits at zero, the unseen
        rankings together have the Good-Turing probability of a new ranking, (rankings seen once) / n. A
        learned c would go to −∞, because unseen rankings never occur in training.
    modified : bool
        Train with the paper's softmax, which includes the unseen rankings. Otherwise, with the plain
        cross-entropy over the classes, as the paper's public code does.

    Examples
    --------
    >>> orders = [[0, 1, 2], [0, 1, 2], [2, 1, 0]]
    >>> model = RankClassifier(Training(epochs=1)).fit([[0.0], [1.0], [2.0]], orders)
    >>> len(model.predict([[0.5]]).orders), model.predict([[0.5]]).n_unseen
    (2, 4)
    """

    training: Training = field(default_factory=Training)
    classes: IntArray | None = None
    unseen_logit: float | None = None
    modified: bool = True
    network_: Network | None = field(default=None, init=False, repr=False)
    classes_: IntArray | None = field(default=None, init=False, repr=False)
    unseen_logit_: float = field(default=-math.inf, init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "RankClassifier":
        """Minimise the cross-entropy of the observed rankings."""
        import torch

        x, ranked = check_training_data(X, orders)
        classes = np.unique(ranked, axis=0) if self.classes is None else as_orders(self.classes, "classes")
        index = index_of_orders(classes, ranked)
        if (index == len(classes)).any():
            row = int(np.argmax(index == len(classes)))
            raise ValueError(f"classes: ranking {ranked[row].tolist()} of row {row} is not among them")
        n_unseen = math.factorial(ranked.shape[1]) - len(classes)
        c = (
            _good_turing_logit(index, len(classes), n_unseen)
            if self.unseen_logit is None
            else self.unseen_logit
        )
        target = torch.tensor(index)
        others = torch.tensor(c + log_integer(n_unseen) if self.modified else -math.inf)

        def loss(outputs: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            total = torch.logaddexp(outputs.logsumexp(dim=1), others)
            return (total - outputs.gather(1, target[rows, None])[:, 0]).mean()

        self.network_ = train(x, len(classes), loss, self.training)
        self.classes_, self.unseen_logit_ = classes, c
        return self

    def predict(self, X: ArrayLike) -> SparseRankings:
        """Return the known rankings with their logits, and c for all others."""
        logits = fitted(self.network_, self)(as_floats(X, "X", ndim=2))
        return SparseRankings(fitted(self.classes_, self), logits, self.unseen_logit_)


@dataclass(eq=False)
class MallowsLearner:
    """One Mallows distribution for all rows; the features are not used.

    The centre is found by local search: it starts from the labels' mean positions, and the best exchange of
    two labels is made as long as that lowers the total Kendall distance. The dispersion is then fitted by
    maximum likelihood. It is at most 20, which is reached if all rankings agree.

    Attributes
    ----------
    center_ : int array (m,), optional
        The central ranking.
    dispersion_ : float
        The dispersion.

    Examples
    --------
    >>> MallowsLearner().fit(np.zeros((3, 1)), [[0, 1, 2], [0, 1, 2], [0, 2, 1]]).center_
    array([0, 1, 2])
    """

    center_: IntArray | None = field(default=None, init=False, repr=False)
    dispersion_: float = field(default=0.0, init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "MallowsLearner":
        """Find the centre by local search and the dispersion by maximum likelihood."""
        _, ranked = check_training_data(X, orders)
        positions = np.argsort(ranked, axis=1)
        # beats[i, j]: the number of rankings with j before i, which is the cost of placing i before j.
        beats = (positions[:, :, None] > positions[:, None, :]).sum(axis=0)
        center, distance = _descend_distance(np.argsort(positions.mean(axis=0), kind="stable"), beats)
        self.center_ = center
        self.dispersion_ = _best_dispersion(distance / len(ranked), ranked.shape[1])
        return self

    def predict(self, X: ArrayLike) -> Mallows:
        """Return the same Mallows distribution for every row."""
        n = len(as_floats(X, "X", ndim=2))
        return Mallows(fitted(self.center_, self), np.full(n, self.dispersion_))


def make_learner(name: str, *, seed: int = 0) -> Learner:
    """Return a learner with the paper's settings.

    Parameters
    ----------
    name : str
        Short name: "pl", "mallows", "rc", "rpc" or "pl-rpc".
    seed : int
        Seed of everything random in it.

    Returns
    -------
    Learner

    Examples
    --------
    >>> make_learner("mallows")
    MallowsLearner()
    """
    check_choice(name, "learner", tuple(LEARNERS))
    return LEARNERS[name](seed)


def check_training_data(X: ArrayLike, orders: ArrayLike) -> tuple[FloatArray, IntArray]:
    """Return checked features (n, d) and rankings (n, m) of the same rows.

    >>> check_training_data([[0.0]], [[0, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    ValueError: orders: 2 rankings for 1 rows of features
    """
    x, ranked = as_floats(X, "X", ndim=2), as_orders(orders)
    if len(x) != len(ranked):
        raise ValueError(f"orders: {len(ranked)} rankings for {len(x)} rows of features")
    if ranked.shape[1] < 2:
        raise ValueError("orders: a ranking needs at least two labels")
    return x, ranked


def fitted(part: Part | None, learner: object) -> Part:
    """Return a fitted part, or raise if ``fit`` was not called.

    >>> fitted(None, MallowsLearner())
    Traceback (most recent call last):
    ...
    ValueError: MallowsLearner: not fitted yet; call fit(X, orders) first
    """
    if part is None:
        raise ValueError(f"{type(learner).__name__}: not fitted yet; call fit(X, orders) first")
    return part


def _good_turing_logit(index: IntArray, n_classes: int, n_unseen: int) -> float:
    if n_unseen == 0:
        return -math.inf
    once = int((np.bincount(index, minlength=n_classes) == 1).sum())
    # Half a case is added on each side, so that the fraction is neither 0 nor 1.
    fraction = (once + 0.5) / (len(index) + 1)
    return math.log(fraction / (1 - fraction)) + math.log(n_classes) - log_integer(n_unseen)


def _descend_distance(center: IntArray, beats: IntArray) -> tuple[IntArray, float]:
    m = len(center)
    first, second = np.triu_indices(m, 1)

    def total(candidates: IntArray) -> IntArray:
        return beats[candidates[:, first], candidates[:, second]].sum(axis=1)

    best = int(total(center[None])[0])
    while True:
        candidates = np.tile(center, (len(first), 1))
        rows = np.arange(len(first))
        candidates[rows, first], candidates[rows, second] = center[second], center[first]
        costs = total(candidates)
        if costs.min() >= best:
            return center, float(best)
        best, center = int(costs.min()), candidates[int(costs.argmin())]


def _best_dispersion(mean_distance: float, m: int) -> float:
    """Find the dispersion at which the expected Kendall distance equals the observed one, by bisection."""
    exponents = np.arange(m)

    def expected(dispersion: float) -> float:
        powers = np.exp(-dispersion * exponents)
        return float((np.cumsum(powers * exponents) / np.cumsum(powers)).sum())

    low, high = 0.0, _LARGEST_DISPERSION
    if mean_distance >= expected(low):
        return low
    if mean_distance <= expected(high):
        return high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if expected(middle) > mean_distance else (low, middle)
    return (low + high) / 2


def _make_rpc(seed: int) -> Learner:
    from rmcalib.tabular._pairwise import PairwiseLearner

    return PairwiseLearner(seed=seed)


def _make_pl_rpc(seed: int) -> Learner:
    from rmcalib.tabular._pairwise import PlackettLuceFromPairs

    return PlackettLuceFromPairs(seed=seed)


LEARNERS: dict[str, LearnerFactory] = {
    "pl": lambda seed: PlackettLuceLearner(Training(seed=seed)),
    "mallows": lambda seed: MallowsLearner(),  # noqa: ARG005 (nothing in it is random)
    "rc": lambda seed: RankClassifier(Training(seed=seed)),
    "rpc": _make_rpc,
    "pl-rpc": _make_pl_rpc,
}
"""The built-in learners by short name: functions that take a seed and return a learner."""

"""Learners for probabilistic label ranking, with an interface like scikit-learn's, and their small networks.

They have ``fit(X, orders)`` and ``predict(X)``, which returns a distribution over rankings for every row.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, as_floats, find_root
from rmcalib.ranking import Mallows, PairMarginals, PairwiseProbabilities, PlackettLuce, SparseRankings
from rmcalib.ranking._listed import log_integer
from rmcalib.ranking.events import as_orders, index_of_rows

if TYPE_CHECKING:
    import torch

_LARGEST_DISPERSION = 20.0
_SMALLEST = 1e-9

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


class Learner(Protocol):
    """The interface of a learner: ``fit`` and ``predict``."""

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "Learner":
        """Learn from features (n, d) and rankings (n, m), best label first; return the learner itself."""

    def predict(self, X: ArrayLike) -> PairMarginals:
        """Return a forecast for each row of features: a distribution over rankings, or pair marginals."""


LearnerFactory = Callable[[int], Learner]
"""A function that takes a seed and returns a learner."""


@dataclass(frozen=True)
class Training:
    """The architecture of a network and how it is trained, with Adam. The defaults are the paper's.

    Parameters
    ----------
    hidden : tuple[int, ...]
        Widths of the hidden layers, which use ReLU.
    epochs : int
        Number of passes over the data.
    batch_size : int
        Number of rows per step.
    learning_rate : float
        Learning rate of Adam.
    seed : int
        Seed of the initial weights and of the order of the batches.
    earlier : tuple[tuple[int, ...], ...]
        Layer widths of networks that draw their initial weights from the same random numbers before this one.
        The paper's public code creates several networks from one seed.

    Examples
    --------
    >>> Training(hidden=(20,), epochs=5).batch_size
    64
    """

    hidden: tuple[int, ...] = (100, 100)
    epochs: int = 50
    batch_size: int = 64
    learning_rate: float = 1e-3
    seed: int = 0
    earlier: tuple[tuple[int, ...], ...] = ()


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
    network_: "Network" = field(init=False, repr=False)

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
        return PlackettLuce(self.network_(as_floats(X, "X", ndim=2)))


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
    network_: "Network" = field(init=False, repr=False)
    classes_: IntArray = field(init=False, repr=False)
    unseen_logit_: float = field(init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "RankClassifier":
        """Minimise the cross-entropy of the observed rankings."""
        import torch

        x, ranked = check_training_data(X, orders)
        classes = np.unique(ranked, axis=0) if self.classes is None else as_orders(self.classes, "classes")
        index = index_of_rows(classes, ranked)
        if (index == len(classes)).any():
            raise ValueError("classes: a ranking of the data is not among them")
        n_unseen = math.factorial(ranked.shape[1]) - len(classes)
        c = self.unseen_logit
        if c is None:
            c = _good_turing_logit(index, len(classes), n_unseen)
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
        logits = self.network_(as_floats(X, "X", ndim=2))
        return SparseRankings(self.classes_, logits, self.unseen_logit_)


@dataclass(eq=False)
class MallowsLearner:
    """One Mallows distribution for all rows; the features are not used.

    The centre is found by local search: it starts from the labels' mean positions, and the best exchange of
    two labels is made as long as that lowers the total Kendall distance. The dispersion is then fitted by
    maximum likelihood. It is at most 20, which is reached if all rankings agree.

    Attributes
    ----------
    center_ : int array (m,)
        The central ranking.
    dispersion_ : float
        The dispersion.

    Examples
    --------
    >>> MallowsLearner().fit(np.zeros((3, 1)), [[0, 1, 2], [0, 1, 2], [0, 2, 1]]).center_
    array([0, 1, 2])
    """

    center_: IntArray = field(init=False, repr=False)
    dispersion_: float = field(init=False, repr=False)

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
        return Mallows(self.center_, np.full(n, self.dispersion_))


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
    models_: list[Any] = field(init=False, repr=False)
    n_items_: int = field(init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "PairwiseLearner":
        """Fit one classifier of "i before j" per pair i < j."""
        x, ranked = check_training_data(X, orders)
        positions = np.argsort(ranked, axis=1)
        first, second = np.triu_indices(ranked.shape[1], 1)
        before = positions[:, first] < positions[:, second]
        self.n_items_ = ranked.shape[1]
        self.models_ = [self._fit_pair(x, outcome) for outcome in before.T]
        return self

    def predict(self, X: ArrayLike) -> PairwiseProbabilities:
        """Return P(i before j) for all pairs: pair marginals without a distribution over rankings."""
        x = as_floats(X, "X", ndim=2)
        matrix = np.full((len(x), self.n_items_, self.n_items_), 0.5)
        for model, i, j in zip(self.models_, *np.triu_indices(self.n_items_, 1), strict=True):
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
    seed : int
        Seed of the trees and of their folds.

    Examples
    --------
    >>> from rmcalib.tabular import synthetic_dataset
    >>> data, _ = synthetic_dataset(60, 3)
    >>> len(PlackettLuceFromPairs().fit(data.numeric, data.orders).predict(data.numeric))
    60
    """

    seed: int = 0
    pairs_: PairwiseLearner = field(init=False, repr=False)

    def fit(self, X: ArrayLike, orders: ArrayLike) -> "PlackettLuceFromPairs":
        """Fit the classifiers of all pairs."""
        self.pairs_ = PairwiseLearner(self.seed).fit(X, orders)
        return self

    def predict(self, X: ArrayLike) -> PlackettLuce:
        """Return the Plackett-Luce distributions that fit the pairs best."""
        return PlackettLuce(newman_utilities(self.pairs_.predict(X).matrix))


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
    for _ in range(iterations):
        sums = theta[:, :, None] + theta[:, None, :]
        won = (p * theta[:, None, :] / sums).sum(axis=2)
        lost = (p.transpose(0, 2, 1) / sums).sum(axis=2)
        theta = won / lost
        theta /= theta.sum(axis=1, keepdims=True)
    return np.log(np.maximum(theta, 1e-300))


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


def _good_turing_logit(index: IntArray, n_classes: int, n_unseen: int) -> float:
    if n_unseen == 0:
        return -math.inf
    once = int((np.bincount(index, minlength=n_classes) == 1).sum())
    # Half a case is added on each side, so that the fraction is neither 0 nor 1.
    fraction = (once + 0.5) / (len(index) + 1)
    return math.log(fraction / (1 - fraction)) + math.log(n_classes) - log_integer(n_unseen)


def _descend_distance(center: IntArray, beats: IntArray) -> tuple[IntArray, float]:
    """Exchange two labels of the centre as long as that lowers the total distance to the rankings."""
    first, second = np.triu_indices(len(center), 1)

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
    """Find the dispersion at which the expected Kendall distance equals the observed one."""
    exponents = np.arange(m)

    def excess(dispersion: float) -> float:
        powers = np.exp(-dispersion * exponents)
        expected = np.cumsum(powers * exponents) / np.cumsum(powers)
        return float(expected.sum()) - mean_distance

    if excess(0.0) <= 0:
        return 0.0
    if excess(_LARGEST_DISPERSION) >= 0:
        return _LARGEST_DISPERSION
    return find_root(excess, 0.0, _LARGEST_DISPERSION, tolerance=1e-15)


@dataclass(frozen=True)
class Network:
    """Weights and biases of the layers; ReLU between them."""

    weights: tuple[NDArray[np.float32], ...]
    biases: tuple[NDArray[np.float32], ...]

    def __call__(self, features: FloatArray) -> FloatArray:
        """Return the outputs (n, o) for features (n, d)."""
        x = features.astype(np.float32)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = np.maximum(x @ weight.T + bias, 0)
        return (x @ self.weights[-1].T + self.biases[-1]).astype(np.float64)


def train(features: FloatArray, n_outputs: int, loss: Loss, options: Training) -> Network:
    """Train a network on ``features`` (n, d); ``loss(outputs, rows)`` is the mean loss of a batch of rows.

    The same options give the same weights; torch's global random state is neither used nor changed.

    >>> square = lambda outputs, rows: (outputs ** 2).mean()
    >>> network = train(np.ones((8, 2)), 1, square, Training(hidden=(4,), epochs=2))
    >>> network(np.ones((3, 2))).shape
    (3, 1)
    """
    import torch

    widths = (features.shape[1], *options.hidden, n_outputs)
    threads = torch.get_num_threads()
    # The networks are tiny: more threads would be slower, and results would depend on their number.
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(options.seed)
            for other in options.earlier:
                _layers(other)
            network = _layers(widths)
        x = torch.tensor(features, dtype=torch.float32)
        generator = torch.Generator().manual_seed(options.seed)
        optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)
        for _ in range(options.epochs):
            for rows in torch.split(torch.randperm(len(x), generator=generator), options.batch_size):
                optimizer.zero_grad()
                loss(network(x[rows]), rows).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    finally:
        torch.set_num_threads(threads)
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    return Network(
        tuple(layer.weight.detach().numpy() for layer in linear),
        tuple(layer.bias.detach().numpy() for layer in linear),
    )


def _layers(widths: tuple[int, ...]) -> "torch.nn.Sequential":
    from torch import nn

    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


LEARNERS: dict[str, LearnerFactory] = {
    "pl": lambda seed: PlackettLuceLearner(Training(seed=seed)),
    "mallows": lambda seed: MallowsLearner(),  # noqa: ARG005 (nothing in it is random)
    "rc": lambda seed: RankClassifier(Training(seed=seed)),
    "rpc": lambda seed: PairwiseLearner(seed=seed),
    "pl-rpc": lambda seed: PlackettLuceFromPairs(seed=seed),
}
"""The built-in learners by short name: functions that take a seed and return a learner."""

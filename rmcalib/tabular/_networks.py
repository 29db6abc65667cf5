"""Small feed-forward networks, trained with torch and stored as numpy arrays."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rmcalib._util.arrays import FloatArray

if TYPE_CHECKING:
    import torch

__all__ = ["Network", "Training", "train"]

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


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
        Seed of the initial weights.
    shuffle_seed : int, optional
        Seed of the order of the batches; default ``seed``.
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
    shuffle_seed: int | None = None
    earlier: tuple[tuple[int, ...], ...] = ()


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
        _descend(network, features, loss, options)
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


def _descend(network: "torch.nn.Sequential", features: FloatArray, loss: Loss, options: Training) -> None:
    import torch

    x = torch.tensor(features, dtype=torch.float32)
    seed = options.seed if options.shuffle_seed is None else options.shuffle_seed
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(network.parameters(), lr=options.learning_rate)
    for _ in range(options.epochs):
        shuffled = torch.randperm(len(x), generator=generator)
        for start in range(0, len(x), options.batch_size):
            rows = shuffled[start : start + options.batch_size]
            optimizer.zero_grad()
            loss(network(x[rows]), rows).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

"""How the paper's public code trains its models, to reproduce its published figures.

It differs from the paper:

- The hidden layers have widths 64 and 32.
- Features are used as they are in the file.
- Only the first 80% of each training fold, in file order, are used for training, although files are sorted
  by class.
- The classes of the rank classifier include the rankings of the test fold. Its temperature is fitted on the
  last 20% by an optimiser that stops early.
- The two folds of the Platt scaling of RPC are not shuffled, so each has other classes than the other. One
  random row is added to the training fold. The public code does not seed its trees; here the seed of the plan
  does, so that runs with several seeds show how much of a difference is chance.

One difference from the public code is left: it starts Newman's iterations of PL-RPC at random. With seven labels
(segment), what 100 iterations reach depends on the start. Here all utilities are equal at first.
"""

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.ranking import PairMarginals, PlackettLuce, SparseRankings, ranks_from_orders
from rmcalib.ranking.events import index_of_rows
from rmcalib.tabular import _learners as learners
from rmcalib.tabular._datasets import Dataset, fit_encoder

FOLDS = 5
_SEED = 42
_HIDDEN = (64, 32)
_UNSEEN_LOGIT = -20.0
_SMALLEST_UTILITY = 1e-6


def reference_split(n: int, fold: int) -> tuple[IntArray, IntArray, IntArray]:
    """Return the rows of one of the five folds for training (in file order, split at 80%), calibration and test.

    >>> [len(rows) for rows in reference_split(100, 0)]
    [64, 16, 20]
    """
    from sklearn.model_selection import KFold

    splits = KFold(FOLDS, shuffle=True, random_state=_SEED).split(np.empty(n))
    train, test = list(splits)[fold]
    cut = int(0.8 * len(train))
    return train[:cut], train[cut:], test


def reference_forecast(name: str, data: Dataset, fold: int, *, seed: int = _SEED) -> PairMarginals:
    """Train learner ``name`` on one fold as the public code does, and forecast the fold's test rows.

    ``seed`` is for the trees of rpc and pl-rpc, which the public code does not seed.
    """
    train, calibration, test = reference_split(len(data), fold)
    features = _features(data)
    x, orders = features[train], data.orders[train]
    if name == "mallows":
        return learners.MallowsLearner().fit(x, orders).predict(features[test])
    if name in ("rpc", "pl-rpc"):
        # The added row ranks the labels from the last to the first, so that every pair has both orders.
        noise = np.random.default_rng([seed, fold]).normal(0, 0.1, (1, x.shape[1]))
        x, orders = np.concatenate([x, noise]), np.concatenate([orders, [np.arange(data.n_items)[::-1]]])
        pairs = learners.PairwiseLearner(seed, folds=2, shuffle=False).fit(x, orders).predict(features[test])
        if name == "rpc":
            return pairs
        return PlackettLuce(np.maximum(learners.newman_utilities(pairs.matrix), np.log(_SMALLEST_UTILITY)))
    # The public code draws the weights of RC, of PL and of one that is never used in every fold, from one seed.
    classes = np.argsort(np.unique(ranks_from_orders(data.orders), axis=0), axis=1)
    utilities, logits = ((features.shape[1], *_HIDDEN, width) for width in (data.n_items, len(classes)))
    earlier = (logits, utilities, utilities) * fold
    if name == "pl":
        training = learners.Training(_HIDDEN, seed=_SEED, earlier=(*earlier, logits))
        return learners.PlackettLuceLearner(training).fit(x, orders).predict(features[test])
    training = learners.Training(_HIDDEN, seed=_SEED, earlier=earlier)
    model = learners.RankClassifier(training, classes=classes, unseen_logit=_UNSEEN_LOGIT, modified=False)
    model.fit(x, orders)
    target = index_of_rows(classes, data.orders[calibration])
    temperature = _early_temperature(model.predict(features[calibration]).logits, target)
    # The logit of the unseen rankings is not divided.
    return SparseRankings(classes, model.predict(features[test]).logits / temperature, _UNSEEN_LOGIT)


def _features(data: Dataset) -> FloatArray:
    everything = np.arange(len(data))
    if data.texts.shape[1] == 0 and not np.isnan(data.numeric).any():
        return data.numeric
    # The political survey is encoded with all rows, including the test fold, and with the case numbers.
    return fit_encoder(data, everything, identifiers=True)(everything)


def _early_temperature(logits: FloatArray, target: IntArray) -> float:
    """Take 50 steps of L-BFGS without a line search from T = 1, converged or not."""
    import torch

    z, y = torch.tensor(logits, dtype=torch.float32), torch.tensor(target)
    temperature = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.LBFGS([temperature], lr=0.01, max_iter=50)

    def closure() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(z / temperature, y)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return float(temperature.item())

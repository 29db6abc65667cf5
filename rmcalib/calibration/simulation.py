"""Simulated data sets: of each prompt's alternatives exactly one happens, and sums over prompts follow.

A prompt has several alternatives, such as "response 3 is the best". Exactly one happens, and adds its
features to sums such as the outcomes in each bin. Every error here is a function of these sums. With up to
10,000 prompts an alternative of each one is drawn; with more, the sums are drawn from the normal distribution
with their exact mean and covariance, and only prompts that add to rare sums are drawn one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray, check_integer, chunks, group_sums

SmallInts = NDArray[np.int32]
# Data sets for each size, at most; fewer of errors that take longer to compute.
_DRAWS, _FEWER_DRAWS = 400, 200
_SIZES = (1.0, 3.0, 8.0)  # of miscalibration, as multiples of the observed one
_STEPS, _FEWER_STEPS = (8, 4, 2), (4, 2, 1)  # from 0 to the first size, from there to the next, ...
_DRAWN_ONE_BY_ONE = 10_000  # prompts
_FEW = 200  # a sum that fewer alternatives add to is never drawn as normal
_PART_ALTERNATIVES = 100_000  # whose features are in memory at a time
_NARROW = 64  # sums; what adds to one of more is a sparse array


@dataclass(frozen=True, eq=False)
class Cells:
    """Alternatives that each add a weight to one of q = ``n_sums`` sums, or, in cell q, to none.

    ``sizes`` (n,) are the numbers of alternatives of each prompt; ``cell`` and ``weight`` (A,) are those of
    all alternatives, prompt after prompt.
    """

    sizes: IntArray
    cell: IntArray
    n_sums: int
    weight: FloatArray | None = None

    def features(self, prompts: slice) -> _Added:
        """Return what each alternative of these prompts adds."""
        rows = rows_of(self.sizes, prompts)
        weight = np.ones(rows.stop - rows.start) if self.weight is None else self.weight[rows]
        added = _Single(self.sizes[prompts], self.cell[rows], weight, self.n_sums)
        return added if self.n_sums <= _NARROW else _Several(added.sizes, added.rows(slice(None)))

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        """Return sums (R, n_steps, q) over the alternatives (R, n) that happened, by ``step`` (R, n)."""
        width = self.n_sums + 1
        size = len(rows) * n_steps * width
        small: Any = np.int32 if size < 2**31 else np.int64  # small integers are faster
        cells = self.cell.astype(small).take(rows) + np.multiply(step, width, dtype=small)
        cells += np.multiply(np.arange(len(rows)), width * n_steps, dtype=small)[:, None]
        weight = None if self.weight is None else self.weight.take(rows).reshape(-1)
        sums = np.bincount(cells.reshape(-1), weight, size)
        return sums.reshape(len(rows), n_steps, width)[..., :-1].astype(np.float64)


@dataclass(frozen=True, eq=False)
class Features:
    """Alternatives that add any numbers: ``make(prompts)`` returns an array (A', q) for a slice of prompts.

    The other names are those of `Cells`.
    """

    sizes: IntArray
    n_sums: int
    make: Callable[[slice], Any]

    @cached_property
    def _whole(self) -> Any:
        return self.make(slice(0, len(self.sizes)))

    def features(self, prompts: slice) -> _Added:
        """Return what each alternative of these prompts adds."""
        return _Several(self.sizes[prompts], self.make(prompts))

    def counts(self, rows: SmallInts, step: SmallInts, n_steps: int) -> FloatArray:
        """Return sums (R, n_steps, q) over the alternatives (R, n) that happened, by ``step`` (R, n)."""
        from scipy.sparse import coo_array

        line = step + n_steps * np.arange(len(rows), dtype=np.int32)[:, None]
        places = np.broadcast_to(line, rows.shape).reshape(-1), rows.reshape(-1)
        shape = (len(rows) * n_steps, self._whole.shape[0])
        happened = coo_array((np.ones(rows.size), places), shape).tocsr()  # one entry per prompt and line
        sums: Any = happened @ self._whole
        return _dense(sums).reshape(len(rows), n_steps, -1)


@dataclass(frozen=True, eq=False)
class _Single:
    """What A alternatives of some prompts add: each one a weight to one of q sums, or to none."""

    sizes: IntArray
    cell: IntArray
    weight: FloatArray
    n_sums: int

    def total(self, q: FloatArray) -> FloatArray:
        """Return the sums (q,) of what they add, times ``q`` (A,)."""
        return self._counted(self.cell, q * self.weight, 1)[0]

    def by_prompt(self, q: FloatArray) -> FloatArray:
        """Return the same sums over the alternatives of each prompt: (n, q)."""
        n = len(self.sizes)
        place = np.repeat((self.n_sums + 1) * np.arange(n), self.sizes) + self.cell
        return self._counted(place, q * self.weight, n)

    def square(self, q: FloatArray) -> FloatArray:
        """Return the sums (q, q) of the outer products of what each adds, times ``q`` (A,)."""
        return np.diag(self.total(q * self.weight))

    def adds_to(self, sums: BoolArray) -> BoolArray:
        """Return which alternatives (A,) add to some of the sums (q,)."""
        return np.append(sums, False)[self.cell] & (self.weight != 0)

    def entries(self) -> FloatArray:
        """Return how many alternatives add to each sum: (q,)."""
        return self._counted(self.cell, self.weight != 0, 1)[0]

    def _counted(self, place: IntArray, values: FloatArray | BoolArray, n: int) -> FloatArray:
        width = self.n_sums + 1
        sums = np.bincount(place, values, n * width).astype(np.float64, copy=False)
        return sums.reshape(n, width)[:, :-1]

    def rows(self, which: BoolArray | slice) -> Any:
        """Return what some alternatives add, as a sparse array of compressed rows."""
        from scipy.sparse import csr_array

        cell, weight = self.cell[which], self.weight[which]
        counted = cell < self.n_sums
        starts = np.concatenate([[0], np.cumsum(counted)])
        return csr_array((weight[counted], cell[counted], starts), shape=(len(cell), self.n_sums))


@dataclass(frozen=True, eq=False)
class _Several:
    """What A alternatives add to any of q sums: an array (A, q), dense or of sparse rows; see `_Single`."""

    sizes: IntArray
    added: Any

    def total(self, q: FloatArray) -> FloatArray:
        return np.asarray(q @ self.added)

    def by_prompt(self, q: FloatArray) -> Any:
        from scipy.sparse import csr_array

        starts = np.concatenate([[0], np.cumsum(self.sizes)])
        return csr_array((q, np.arange(len(q)), starts), shape=(len(self.sizes), len(q))) @ self.added

    def square(self, q: FloatArray) -> FloatArray:
        from scipy.sparse import diags_array

        return _dense(self.added.T @ (diags_array(q) @ self.added))

    def adds_to(self, sums: BoolArray) -> BoolArray:
        return np.asarray(self.added @ sums.astype(np.float64) != 0)

    def entries(self) -> FloatArray:
        return np.asarray((self.added != 0).sum(axis=0))

    def rows(self, which: BoolArray) -> Any:
        from scipy.sparse import csr_array

        return csr_array(self.added[which])


_Added = _Single | _Several
Alternatives = Cells | Features
"""The alternatives of prompts. One of each prompt happens and adds its features to the sums."""


@dataclass(frozen=True, eq=False)
class Simulation:
    """Errors of simulated data sets: under calibration (R,), and for growing miscalibration (S, D) with their
    true errors (S,)."""

    null: FloatArray
    draws: FloatArray
    truths: FloatArray


def simulate(
    alternatives: Alternatives,
    probabilities: Callable[[float], FloatArray],
    errors: Callable[[FloatArray], FloatArray],
    true_error: Callable[[FloatArray], FloatArray],
    *,
    resamples: int,
    rng: np.random.Generator | int,
    fewer: bool = False,
    design_effect: tuple[float, float] = (1.0, np.inf),
) -> Simulation:
    """Draw data sets under calibration and along a path of growing miscalibration.

    ``probabilities(size)`` are those of the alternatives (A,) if the miscalibration is ``size`` times the
    observed one. ``fewer`` steps and draws are for errors that take longer to compute. ``design_effect``
    multiplies the variance of the sums, because prompts that belong together go together. Its second number are
    its degrees of freedom: as far as it is not known, it differs between data sets.
    """
    sizes, n_steps = _SIZES, _FEWER_STEPS if fewer else _STEPS
    ends = [probabilities(size) for size in (0.0, *sizes)]
    most, rng = _FEWER_DRAWS if fewer else _DRAWS, np.random.default_rng(rng)
    null, drawn = draw_sums(alternatives, ends, n_steps, resamples=resamples, most=most, rng=rng)
    expected = expected_sums(alternatives, ends)
    mixed = [expected[0][None]]
    for n, before, after in zip(n_steps, expected[:-1], expected[1:], strict=True):
        mixed.append(before + np.arange(1, n + 1)[:, None] / n * (after - before))
    path = np.concatenate(mixed)
    wider = widening(design_effect, len(null), rng)
    if wider is not None:
        null = np.maximum(path[0] + wider[:, None] * (null - path[0]), 0.0)
        drawn = np.maximum(path + wider[: len(drawn), None, None] * (drawn - path), 0.0)
    truths = np.maximum.accumulate(true_error(path))
    return Simulation(errors(null), errors(drawn).T, truths - truths[0])


def widening(
    design_effect: tuple[float, float], resamples: int, rng: np.random.Generator
) -> FloatArray | None:
    """Draw the factors (R,) of the deviations of sums for a design effect and its degrees of freedom; None for 1."""
    effect, freedom = design_effect
    return np.sqrt(effect * freedom / rng.chisquare(freedom, resamples)) if np.isfinite(freedom) else None


def invert(value: float, quantiles: FloatArray, truths: FloatArray) -> float:
    """Return the true error under which ``value`` is this quantile (S,) of the errors drawn along the path (S,)."""
    # Quantiles grow with the miscalibration; running maxima remove the noise of the simulation.
    return float(np.interp(value, np.maximum.accumulate(quantiles), truths))


def expected_sums(alternatives: Alternatives, ends: Sequence[FloatArray]) -> FloatArray:
    """Return the expected sums (E, q) of alternatives that happen with the probabilities ``ends`` (A,) each."""
    expected = np.zeros((len(ends), alternatives.n_sums))
    for part in _parts(alternatives):
        rows, added = rows_of(alternatives.sizes, part), alternatives.features(part)
        expected += [added.total(q[rows]) for q in ends]
    return expected


def draw_sums(
    alternatives: Alternatives,
    ends: Sequence[FloatArray],
    steps: Sequence[int],
    *,
    resamples: int,
    most: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Return sums under the first of ``ends`` (R, q), and on the way from end to end (D, 1 + Σ steps, q)."""
    check_integer(resamples, "resamples", 1)
    if len(alternatives.sizes) <= _DRAWN_ONE_BY_ONE:
        return _draw_each(alternatives, ends, steps, resamples, most, rng)
    moments, alone, features = _moments(alternatives, ends)
    null, drawn = moments.draw(steps, resamples, most, rng)
    if alone.any():
        rows = np.repeat(alone, alternatives.sizes)
        rest = Features(alternatives.sizes[alone], alternatives.n_sums, lambda _: features)
        more = _draw_each(rest, [q[rows] for q in ends], steps, resamples, most, rng)
        null, drawn = null + more[0], drawn + more[1]
    return null, drawn


def choose(uniform: NDArray[np.floating[Any]], q: FloatArray, sizes: IntArray) -> SmallInts:
    """Choose an alternative of each prompt with probabilities ``q`` (A,) from uniform numbers (R, n): rows (R, n)."""
    first = np.cumsum(sizes) - sizes
    total = np.cumsum(q)
    within = (total - np.repeat(total[first] - q[first], sizes)).astype(np.float32)
    chosen = np.zeros(uniform.shape, dtype=np.int32)
    for place in range(int(sizes.max()) - 1):
        longer = np.flatnonzero(sizes > place + 1)
        limit = within[first[longer] + place]
        if len(longer) == len(sizes):
            chosen += uniform >= limit
        else:
            chosen[:, longer] += uniform[:, longer] >= limit
    return chosen + first.astype(np.int32)


def rows_of(sizes: IntArray, prompts: slice) -> slice:
    """Return the rows of a slice of prompts with ``sizes`` (n,) rows each."""
    before = int(sizes[: prompts.start].sum())
    return slice(before, before + int(sizes[prompts].sum()))


def _parts(alternatives: Alternatives) -> Iterator[slice]:
    """Cut the prompts into slices whose features fit into memory."""
    return chunks(len(alternatives.sizes), int(alternatives.sizes.max()), _PART_ALTERNATIVES)


def _dense(values: Any) -> FloatArray:
    return values if isinstance(values, np.ndarray) else np.asarray(values.toarray())


def _draw_each(
    alternatives: Alternatives,
    ends: Sequence[FloatArray],
    steps: Sequence[int],
    resamples: int,
    most: int,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Draw an alternative of every prompt. The same uniform numbers serve all sizes of miscalibration."""
    mixer = rng.spawn(1)[0] if most else rng
    n, once = len(alternatives.sizes), np.zeros((1, 1), dtype=np.int32)
    null, parts = [], []
    for part in chunks(resamples, n):
        uniform = rng.random((part.stop - part.start, n), dtype=np.float32)
        rows = choose(uniform, ends[0], alternatives.sizes)
        null.append(alternatives.counts(rows, once, 1)[:, 0])
        kept = min(part.stop, most) - part.start
        if kept <= 0:
            continue
        mixing = mixer.random((kept, n), dtype=np.float32)
        drawn, after = [null[-1][:kept, None]], None
        for n_steps, q in zip(steps, ends[1:], strict=True):
            # A prompt changes from one end to the next at a random step: sums change little by little.
            step = (mixing * n_steps).astype(np.int32)
            if after is None:
                before = alternatives.counts(rows[:kept], step, n_steps)
            else:  # numbers of steps are powers of 2: a step here is several of those before
                before = after.reshape(kept, n_steps, -1, after.shape[-1]).sum(axis=2)
            rows = choose(uniform[:kept], q, alternatives.sizes)
            after = alternatives.counts(rows, step, n_steps)
            drawn.append(before.sum(axis=1, keepdims=True) + np.cumsum(after - before, axis=1))
        parts.append(np.concatenate(drawn, axis=1))
    nothing = np.empty((0, 1 + sum(steps), null[0].shape[-1]))
    return np.concatenate(null), np.concatenate([nothing, *parts])


@dataclass(frozen=True, eq=False)
class _Moments:
    """Moments of what prompts add to the sums, added up over prompts, for E ends."""

    mean: FloatArray
    square: FloatArray
    product: FloatArray
    largest: FloatArray

    def draw(
        self, steps: Sequence[int], resamples: int, most: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        """Draw normal sums with these moments; the same normal numbers serve all sizes."""
        normal = rng.standard_normal((resamples, len(self.largest)))
        null = self._normal(normal, self.mean[0], self.square[0] - self.product[0, 0])
        path = [null[:most]]
        for a, n_steps in enumerate(steps):
            b = a + 1
            for w in np.arange(1, n_steps + 1) / n_steps:
                product = (1 - w) ** 2 * self.product[a, a] + w**2 * self.product[b, b]
                product += w * (1 - w) * (self.product[a, b] + self.product[a, b].T)
                mean, square = ((1 - w) * x[a] + w * x[b] for x in (self.mean, self.square))
                path.append(self._normal(normal[:most], mean, square - product))
        return null, np.stack(path, axis=1)

    def _normal(self, normal: FloatArray, mean: FloatArray, covariance: FloatArray) -> FloatArray:
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        return np.clip(mean + normal @ root, 0.0, self.largest)


def _moments(alternatives: Alternatives, ends: Sequence[FloatArray]) -> tuple[_Moments, BoolArray, Any]:
    """Return the moments of most prompts, which prompts (n,) are drawn one by one, and the features of those."""
    from scipy.sparse import vstack

    width, sizes = alternatives.n_sums, alternatives.sizes
    entries = np.zeros(width)
    for part in _parts(alternatives):
        entries += alternatives.features(part).entries()
    mean, square = np.zeros((len(ends), width)), np.zeros((len(ends), width, width))
    product = np.zeros((len(ends), len(ends), width, width))
    largest, alone, rest = np.zeros(width), np.zeros(len(sizes), dtype=bool), []
    for part in _parts(alternatives):
        rows, added = rows_of(sizes, part), alternatives.features(part)
        alone[part] = group_sums(added.adds_to(entries < _FEW).astype(np.float64), added.sizes) > 0
        is_alone = np.repeat(alone[part], added.sizes)
        rest.append(added.rows(is_alone))
        largest += added.total((~is_alone).astype(np.float64))
        before = None
        for end, probabilities in enumerate(ends):
            q = np.where(is_alone, 0.0, probabilities[rows])
            square[end] += added.square(q)
            means = added.by_prompt(q)
            mean[end] += means.sum(axis=0)
            product[end, end] += _dense(means.T @ means)
            if before is not None:
                product[end - 1, end] += _dense(before.T @ means)
            before = means
    return _Moments(mean, square, product, largest), alone, vstack(rest, format="csr")

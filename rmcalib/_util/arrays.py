"""Array types and checks of arguments. Error messages name what was given and what is allowed."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.texts import brief

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

CHUNK_ELEMENTS = 4_000_000
"""Most numbers in a temporary array (32 MB of float64). Larger computations are done in chunks."""
_SMALL_GROUP = 8


def _first_bad(bad: BoolArray) -> str:
    return f"at index {', '.join(map(str, np.argwhere(bad)[0]))}"


def as_floats(values: ArrayLike, name: str, ndim: int, *, allow: str = "finite") -> FloatArray:
    """Return ``values`` as a non-empty float64 array of ``ndim`` axes with no NaN (nor infinity).

    ``allow="-inf"`` also accepts minus infinity, the logarithm of zero.

    >>> as_floats([[0, 1]], "scores", ndim=2)
    array([[0., 1.]])
    """
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name}: expected numbers, got {brief(values)}") from error
    if array.ndim != ndim:
        raise ValueError(f"{name}: expected an array of {ndim} axes, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name}: is empty (shape {array.shape}); at least one entry is needed")
    bad = ~np.isfinite(array)
    if allow == "-inf":
        bad &= ~np.isneginf(array)
    if bad.any():
        raise ValueError(f"{name}: {array[bad][0]} {_first_bad(bad)}; every entry must be a finite number")
    return array


def as_integers(values: ArrayLike, name: str, ndim: int) -> IntArray:
    """Return ``values`` as a non-empty int64 array of ``ndim`` axes; 2.0 becomes 2, and 2.5 is refused.

    >>> as_integers([2.0, 1.0], "ranks", ndim=1)
    array([2, 1])
    """
    floats = as_floats(values, name, ndim)
    bad = floats != np.round(floats)
    if bad.any():
        raise ValueError(f"{name}: {floats[bad][0]} {_first_bad(bad)} is not a whole number")
    return floats.astype(np.int64)


def as_probabilities(values: ArrayLike, name: str = "probabilities", ndim: int = 1) -> FloatArray:
    """Return ``values`` as floats in [0, 1]; rounding errors of up to 1e-9 are clipped.

    >>> as_probabilities([0.25, 1 + 1e-12])
    array([0.25, 1.  ])
    """
    array = as_floats(values, name, ndim)
    bad = (array < -1e-9) | (array > 1 + 1e-9)
    if bad.any():
        raise ValueError(f"{name}: {array[bad][0]} {_first_bad(bad)} is outside [0, 1]")
    return np.clip(array, 0.0, 1.0)


def as_outcomes(values: ArrayLike, name: str = "outcomes", ndim: int = 1) -> FloatArray:
    """Return 0/1 (or bool) ``values`` as floats.

    >>> as_outcomes([True, False])
    array([1., 0.])
    """
    array = as_floats(values, name, ndim)
    bad = (array != 0) & (array != 1)
    if bad.any():
        raise ValueError(f"{name}: {array[bad][0]} {_first_bad(bad)} is neither 0 nor 1")
    return array


def as_groups(groups: ArrayLike | None, n: int, name: str = "groups") -> IntArray:
    """Return group numbers 0..G-1 for ``n`` rows; ``None`` makes every row its own group.

    >>> as_groups(["b", "a", "b"], 3)
    array([1, 0, 1])
    """
    if groups is None:
        return np.arange(n, dtype=np.int64)
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"{name}: expected one label for each of the {n} rows, got shape {labels.shape}")
    return np.unique(labels, return_inverse=True)[1].astype(np.int64)


def check_choice(value: Any, name: str, choices: tuple[Any, ...]) -> None:
    """Raise a ValueError that lists the choices unless ``value`` is one of them.

    >>> check_choice("mean", "norm", (1, 2, "max"))
    Traceback (most recent call last):
    ...
    ValueError: norm: unknown 'mean' (have: 1, 2, 'max')
    """
    if value not in choices:
        raise ValueError(f"{name}: unknown {value!r} (have: {', '.join(map(repr, choices))})")


def check_integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int within [low, high], or raise a ValueError with the allowed range.

    >>> check_integer(7, "k", 1, 4)
    Traceback (most recent call last):
    ...
    ValueError: k: 7 is out of range, expected a whole number from 1 to 4
    """
    limits = f"of at least {low}" if high is None else f"from {low} to {high}"
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: {value!r} is not a whole number {limits}")
    if value < low or (high is not None and value > high):
        raise ValueError(f"{name}: {value} is out of range, expected a whole number {limits}")
    return int(value)


def chunks(total: int, width: int, budget: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Split ``total`` rows of ``width`` numbers into slices of at most ``budget`` numbers.

    >>> list(chunks(5, width=10, budget=25))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, budget // max(1, width))
    for start in range(0, total, step):
        yield slice(start, min(start + step, total))


# Values (N,) of G groups of ``sizes`` (G,), one group after the other. Groups of equal sizes are a matrix, which is
# several times as fast.


def group_sums(values: FloatArray, sizes: IntArray) -> FloatArray:
    """Return the sum of each group: (G,).

    >>> group_sums(np.array([1.0, 2.0, 4.0]), np.array([2, 1]))
    array([3., 4.])
    """
    width = _common_size(values, sizes)
    if width is None:
        return np.add.reduceat(values, np.cumsum(sizes) - sizes, dtype=np.float64)
    return np.asarray(values.reshape(-1, width) @ np.ones(width))  # a matrix product is the fastest sum


def group_max(values: FloatArray, sizes: IntArray) -> FloatArray:
    """Return the largest value of each group: (G,).

    >>> group_max(np.array([1.0, 2.0, 4.0]), np.array([1, 2]))
    array([1., 4.])
    """
    width = _common_size(values, sizes)
    if width is None:
        return np.maximum.reduceat(values, np.cumsum(sizes) - sizes)
    return np.asarray(np.ascontiguousarray(values.reshape(-1, width).T).max(axis=0))


def _common_size(values: FloatArray, sizes: IntArray) -> int | None:
    """Return the number of values of each group if it is the same and small; numpy is fast with large groups."""
    width = int(sizes[0])
    return (
        width
        if width <= _SMALL_GROUP and width * len(sizes) == len(values) and (sizes == width).all()
        else None
    )


def segment_log_softmax(logits: FloatArray, sizes: IntArray) -> FloatArray:
    """Return x_i − log Σ_j exp(x_j) within groups: (N,).

    >>> np.exp(segment_log_softmax(np.array([1e6, 1e6, 0.0]), np.array([2, 1])))
    array([0.5, 0.5, 1. ])
    """
    centred = logits - np.repeat(group_max(logits, sizes), sizes)
    return centred - np.repeat(np.log(group_sums(np.exp(centred), sizes)), sizes)


def find_root(
    function: Callable[[float], float], low: float, high: float, *, tolerance: float = 2e-12
) -> float:
    """Return a zero of a function between two points where its signs must differ, by Brent's method.

    It evaluates the same points as `scipy.optimize.brentq`. Importing that takes longer than most searches.

    >>> round(find_root(lambda x: x * x - 2, 0.0, 2.0), 9)
    1.414213562
    """
    before, now, opposite = low, high, low
    at_before, at_now = function(before), function(now)
    at_opposite = at_before
    if at_before == 0:
        return before
    if at_now != 0 and (at_before < 0) == (at_now < 0):
        raise ValueError(f"the function has the same sign at {low:g} and at {high:g}")
    step = step_before = now - before
    while True:
        if (at_before < 0) != (at_now < 0):
            opposite, at_opposite = before, at_before
            step = step_before = now - before
        if abs(at_opposite) < abs(at_now):
            before, now, opposite = now, opposite, now
            at_before, at_now, at_opposite = at_now, at_opposite, at_now
        least = (tolerance + 4 * float(np.finfo(float).eps) * abs(now)) / 2
        half = (opposite - now) / 2
        if at_now == 0 or abs(half) < least:
            return now
        trial = np.inf
        if abs(step_before) > least and abs(at_now) < abs(at_before):
            if before == opposite:  # a secant
                trial = -at_now * (now - before) / (at_now - at_before)
            else:  # an inverse parabola
                a, b = (at_before - at_now) / (before - now), (at_opposite - at_now) / (opposite - now)
                with np.errstate(over="ignore", invalid="ignore"):  # of huge values: then it is halved
                    trial = -at_now * (at_opposite * b - at_before * a) / (b * a * (at_opposite - at_before))
        if 2 * abs(trial) < min(abs(step_before), 3 * abs(half) - least):
            step_before, step = step, trial
        else:  # half the interval
            step_before = step = half
        before, at_before = now, at_now
        now += step if abs(step) > least else np.copysign(least, half)
        at_now = function(now)

"""Why a server's rewards are not the model's: canary texts, and rules on expected and given rewards."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray
from rmcalib.benchmarks import Item, load_benchmark

EQUAL = 2e-4  # largest difference of equal rewards, relative to the scale of the expected ones
_CURVE = 0.005  # largest difference from a sigmoid or tanh
_NARROW = 0.03  # of the scale: a narrower dtype
_LINE = 0.06  # largest residual of a line, relative to the spread
_CLIPPED = 3  # rewards at a limit that are clipped, not extreme by chance
_SHORT = 4  # texts that must be right if only long ones are wrong
_LONG = 3.0  # characters per token of long canaries: enough tokens in any usual tokenizer


@dataclass(frozen=True)
class Cause:
    """Why rewards differ: a name, and a sentence with the numbers.

    The names are `equal`, `not finite`, `constant`, `sigmoid`, `tanh`, `negated`, `rounded`, `clipped`, `affine`,
    `truncated` and `unknown`; the doctor adds those of texts that differ. Rewards are `healthy` if they are right
    up to the rounding of a narrower dtype, which changes no decision.
    """

    name: str
    text: str
    healthy: bool = False


@functools.cache
def canaries(limit: int | None = None) -> tuple[Item, ...]:
    """Return texts that show what a server computes: short, unusual, of two turns, and long.

    Parameters
    ----------
    limit : int, optional
        The longest text in tokens. Default: no long texts.
    """
    demo = load_benchmark("demo").items
    items = [
        Item(f"short {n}", "short", item.prompt, item.responses[:2], 0) for n, item in enumerate(demo[:60:10])
    ]
    turns = (
        {"role": "user", "content": "Name a prime number."},
        {"role": "assistant", "content": "Seven."},
        {"role": "user", "content": "And a larger one, please."},
    )
    items.append(Item("turns", "turns", turns, ("Eleven is larger, and prime.", "Four."), 0))
    odd = ("Größe: 3 µm → ½; 数学 🙂\t\u200b\n\n  ", "<b>&amp;</b> {{ x }} \\n %s \u202e")
    items.append(Item("unusual", "unusual", "Schreibe  „Ω ≠ 0“\r\n🙂 (ja)?", odd, 0))
    prose = " ".join(text for item in demo for text in (str(item.prompt), *item.responses))
    while limit is not None and len(prose) < _LONG * limit:
        prose += f" {prose}"
    for share in () if limit is None else (1 / 8, 1 / 4, 1 / 2, 1):
        n = int(share * limit * _LONG)  # type: ignore[operator]
        items.append(Item(f"long {share}", "long", "Continue.", (prose[:n], prose[-n:]), 0))
    return tuple(items)


def explain(expected: ArrayLike, given: ArrayLike, lengths: ArrayLike | None = None) -> Cause:
    """Explain why given rewards differ from the expected ones, as far as the numbers allow.

    Parameters
    ----------
    expected, given : sequence of n floats
        Rewards of the same texts.
    lengths : sequence of n ints, optional
        Lengths of the texts: if only the long ones differ, texts are truncated.

    Returns
    -------
    Cause
        `unknown` if no rule fits: then it is another text or other weights.

    Examples
    --------
    >>> expected = np.linspace(-3, 3, 12)
    >>> explain(expected, 1 / (1 + np.exp(-expected))).name
    'sigmoid'
    >>> explain(expected, 2 * expected + 1).text
    'the rewards are 2 times the expected ones + 1'
    """
    want, have = np.asarray(expected, dtype=np.float64), np.asarray(given, dtype=np.float64)
    scale = max(1.0, float(np.abs(want).max()))
    off = np.abs(have - want)
    if not np.isfinite(have).all():
        return Cause("not finite", f"{int((~np.isfinite(have)).sum())} of {len(have)} rewards are not finite")
    if off.max() <= EQUAL * scale:
        return Cause("equal", f"the rewards differ by at most {off.max():.2g}", healthy=True)
    if np.ptp(have) <= EQUAL and np.ptp(want) > EQUAL * scale:
        return Cause("constant", f"different texts all have the reward {have[0]:.4g}")
    curves = {"sigmoid": 1 / (1 + np.exp(-np.clip(want, -500, 500))), "tanh": np.tanh(want)}
    for name, curve in curves.items():
        if np.abs(have - curve).max() <= _CURVE:
            return Cause(name, f"the server applies a {name} to the rewards")
    if np.abs(have + want).max() <= EQUAL * scale:
        return Cause("negated", "the rewards have the opposite sign")
    for rule in (_clipped, _truncated, _rounded, _affine):
        cause = rule(want, have, scale, None if lengths is None else np.asarray(lengths, dtype=np.float64))
        if cause is not None:
            return cause
    return Cause("unknown", f"the rewards differ by up to {off.max():.3g}: other weights, or another text")


def _truncated(want: FloatArray, have: FloatArray, scale: float, lengths: FloatArray | None) -> Cause | None:
    """Short texts are equal, and longer ones are not."""
    off = np.abs(have - want)
    differs = off > EQUAL * scale
    if lengths is None or (~differs).sum() < _SHORT:
        return None
    shortest = lengths[differs].min()
    if (~differs & (lengths < shortest)).sum() < _SHORT or (lengths >= shortest).sum() > 1.5 * differs.sum():
        return None
    return Cause(
        "truncated", f"short texts have the right rewards, long ones are off by up to {off.max():.3g}"
    )


def _rounded(want: FloatArray, have: FloatArray, scale: float, _: FloatArray | None) -> Cause | None:
    most = float(np.abs(have - want).max())
    healthy = most <= _NARROW * scale
    for digits in (0, 1, 2, 3):
        if np.abs(have - np.round(want, digits)).max() <= 1.01 * 10.0**-digits * 0.5 and np.allclose(
            have, np.round(have, digits), rtol=0, atol=1e-9
        ):
            return Cause("rounded", f"the rewards are rounded to {digits} decimals", healthy=healthy)
    if healthy:
        return Cause(
            "rounded", f"the rewards differ by up to {most:.2g}, as with a narrower dtype", healthy=True
        )
    return None


def _clipped(want: FloatArray, have: FloatArray, scale: float, _: FloatArray | None) -> Cause | None:
    low, high = have.min(), have.max()
    ends = int((have == low).sum() >= _CLIPPED) + int((have == high).sum() >= _CLIPPED)
    if ends and np.abs(have - np.clip(want, low, high)).max() <= EQUAL * scale:
        return Cause("clipped", f"the rewards are clipped to {low:.4g} … {high:.4g}")
    return None


def _affine(want: FloatArray, have: FloatArray, _: float, __: FloatArray | None) -> Cause | None:
    slope, offset = np.polyfit(want, have, 1)
    spread = float(np.std(have))
    if spread == 0 or np.abs(slope * want + offset - have).max() > _LINE * np.ptp(have):
        return None
    shift = "" if abs(offset) < EQUAL else f" {'+' if offset > 0 else '−'} {abs(offset):.3g}"
    return Cause("affine", f"the rewards are {slope:.3g} times the expected ones{shift}")

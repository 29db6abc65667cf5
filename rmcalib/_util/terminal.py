"""Clean text from data, models and file names before it reaches a terminal or a page."""

from __future__ import annotations

import re

__all__ = ["clean", "clean_line", "count"]

REPLACEMENT = "�"
# C0 and C1 controls (ESC and OSC start escape sequences), halves of surrogate pairs, and the characters that
# change the direction of the text around them or start a new line.
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def clean(text: str) -> str:
    r"""Replace control characters, bidirectional overrides and lone surrogates by `�`; keep `\n` and `\t`.

    >>> clean("a\x1b[31mb\u202ec\nd")
    'a�[31mb�c\nd'
    """
    return _UNSAFE.sub(REPLACEMENT, text.replace("\r\n", "\n"))


def clean_line(text: object) -> str:
    r"""Return `clean` text on one line, with single spaces.

    >>> clean_line("two\n  lines\x9b")
    'two lines�'
    """
    return clean(" ".join(str(text).split()))


def count(n: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one.

    >>> count(1, "worker"), count(1200, "worker")
    ('1 worker', '1,200 workers')
    """
    return f"{n:,} {noun}{'' if n == 1 else 's'}"

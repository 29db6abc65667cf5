"""Sizes as people write them, such as 10B parameters or 80GB."""

from __future__ import annotations

import re
from collections.abc import Mapping

__all__ = ["parse_bytes", "parse_parameters"]


def parse_parameters(text: str) -> float:
    """Turn `10B`, `600M` or `7` (billions) into billions.

    >>> parse_parameters("10B"), parse_parameters("600M")
    (10.0, 0.6)
    """
    return _parse(text, {"": 1, "b": 1, "m": 1e-3}, "--max-params", "10B or 600M")


def parse_bytes(text: str) -> float:
    """Turn `80GB` or `80` (gigabytes) into bytes.

    >>> parse_bytes("80GB")
    80000000000.0
    """
    return _parse(text, {"": 1e9, "gb": 1e9, "g": 1e9, "tb": 1e12, "mb": 1e6}, "--gpu-memory", "80GB")


def _parse(text: str, units: Mapping[str, float], option: str, example: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text.lower())
    unit = units.get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) == 0:
        raise ValueError(f"{option}: {text!r} is not a size (write it like {example})")
    return float(match[1]) * unit

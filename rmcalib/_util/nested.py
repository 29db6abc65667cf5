"""Flatten nested mappings, such as manifests, so that they can be compared key by key."""

from collections.abc import Mapping
from typing import Any

__all__ = ["flattened"]


def flattened(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the innermost values by their full names, joined by dots.

    >>> flattened({"model": "m", "recipe": {"sign": 1.0, "head": {"bias": False}}})
    {'model': 'm', 'recipe.sign': 1.0, 'recipe.head.bias': False}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{prefix}{key}"
        flat |= flattened(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat

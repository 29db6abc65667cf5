"""Find the beta of a policy's training in the files beside its weights.

Only JSON and YAML are read. TRL's `training_args.bin` is a pickle file, which can run code, and is never
opened.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["trained_beta"]

_NAMES = ("dpo_config", "training_args", "training_config", "train_config", "trainer_config", "trainer_state")
_FILES = (
    *(f"{name}.{ending}" for name in _NAMES for ending in ("json", "yaml", "yml")),
    *("adapter_config.json", "README.md"),
)
_KEYS = ("dpo_beta", "pref_beta", "rl_beta", "beta")  # of TRL, LLaMA-Factory, axolotl
_SECTIONS = ("dpo", "dpo_config", "trainer", "training", "training_args", "args")
_LARGEST = 2**20  # bytes; larger files are not settings


def trained_beta(folder: Path) -> tuple[float, str] | None:
    """Return the beta that a model was trained with, and the file that has it; None if no file has it.

    The files are `dpo_config`, `training_args`, `training_config`, `train_config`, `trainer_config` and
    `trainer_state` (.json, .yaml, .yml), `adapter_config.json`, and the front matter of `README.md`. The key
    is `beta`, `dpo_beta`, `pref_beta` or `rl_beta`, at the top level or in a section such as `dpo`. Files
    that contradict each other are an error.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as name:
    ...     _ = Path(name, "dpo_config.json").write_text('{"beta": 0.05}')
    ...     trained_beta(Path(name))
    (0.05, 'dpo_config.json')
    """
    found: dict[str, float] = {}
    for name in _FILES:
        path = folder / name
        if path.is_file() and path.stat().st_size <= _LARGEST:
            beta = _beta_in(_content(path))
            if beta is not None:
                found[name] = beta
    if len({*found.values()}) > 1:
        said = ", ".join(f"{name} {beta:g}" for name, beta in found.items())
        raise ValueError(f"beta: the files in {folder} contradict each other ({said}): give --beta")
    return next(((beta, name) for name, beta in found.items()), None)


def _content(path: Path) -> Any:
    """Return the content of a file; None if it cannot be parsed."""
    import yaml

    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".json":
            return json.loads(text)
        if path.suffix == ".md":
            parts = text.split("---", 2)
            text = parts[1] if len(parts) == 3 and not parts[0].strip() else ""
        return yaml.safe_load(text)
    except (OSError, ValueError, RecursionError, yaml.YAMLError):
        return None


def _beta_in(content: Any) -> float | None:
    for part in _parts(content):
        for key in _KEYS:
            value = part.get(key)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            if math.isfinite(value) and value > 0:
                return float(value)
    return None


def _parts(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, Mapping):
        yield content
        yield from (content[name] for name in _SECTIONS if isinstance(content.get(name), Mapping))

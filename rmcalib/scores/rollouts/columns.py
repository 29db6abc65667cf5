"""Which columns of samples are rewards and labels, and samples as arrays."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.texts import brief, digest_of
from rmcalib.scores._roles import KNOWN, unknown_names
from rmcalib.scores._schema import as_number, raise_if_any
from rmcalib.scores.rollouts.frameworks import Flush, Sample
from rmcalib.scores.rollouts.samples import StepSamples, forms_of

LABEL_FROM = "label_from"
"""The column of labels that a function of the user made."""
NUMBERS = (int, float, bool)
Labeller = Callable[[dict[str, Any]], Any]
_LABELS = re.compile(r"(^|_)(acc|accuracy|correct|correctness|is_correct|exact|exact_match|label|truth)(_|$)")
_LARGEST = 1e300  # larger rewards have no mean
_WORDS: dict[str, float] = {word: value for value, words in KNOWN["words"].items() for word in words}


@dataclass(frozen=True)
class Roles:
    """Which columns are the rewards, the label and a second judge's scores. A reward is a sum of signed columns."""

    rewards: dict[str, dict[str, float]]
    label: str | None
    second: str | None = None


def roles_of(
    given: Mapping[str, list[str]], names: list[str], numeric: set[str], labelled: bool, source: str
) -> Roles:
    """Return the role of each column, or raise an error that lists the columns of the files."""
    signed = {name: (name[1:], -1.0) if name.startswith("-") and name not in names else (name, 1.0)
              for name in given.get("reward", ())}  # fmt: skip
    asked = {**given, "reward": [name for name, _ in signed.values()]}
    problems = unknown_names(asked, names)
    second = next(iter(given.get("second", ())), None)
    label = next(iter(given.get("label", ())), LABEL_FROM if LABEL_FROM in names else None)
    if label is None and not labelled:
        candidates = [name for name in names if name in numeric and _LABELS.search(name.lower())]
        if len(candidates) > 1:
            either = " or ".join(candidates)
            problems.append(f'label: could be {either}; say which: columns="label={candidates[0]}"')
        label = candidates[0] if candidates else None
    if signed:
        rewards = {"+".join(asked["reward"]): dict(signed.values())}
    else:
        rewards = {name: {name: 1.0} for name in _rewards_of(names, numeric, {label, second})}
    if not rewards:
        problems.append(f'no column of rewards (has {", ".join(names)}); name it: columns="reward=NAME"')
    raise_if_any(problems, source)
    return Roles(rewards, label, second)


def _rewards_of(names: list[str], numeric: set[str], used: set[str | None]) -> list[str]:
    for usual in ("score", "reward"):
        if usual in numeric - used:
            return [usual]
    probabilities = {f"{name}_probability" for name in names}  # `Reward.trl` writes them beside its rewards
    others = numeric - used - probabilities - {*KNOWN["not_rewards"]}
    return [name for name in names if name in others and not _LABELS.search(name.lower())]


def steps_of_flush(flush: Flush, roles: Roles, name: str, path: Path) -> list[StepSamples]:
    """Return the samples of a flush by step; those without a finite reward are left out."""
    by_step: dict[float, list[tuple[float | None, Sample]]] = {}
    for sample in flush:
        reward = _reward(sample, roles.rewards[name], path)
        by_step.setdefault(_step(sample, path), []).append((reward, sample))
    steps = []
    for step, every in by_step.items():
        rows = [(reward, sample) for reward, sample in every if reward is not None]
        if not rows:
            continue
        samples = [sample for _, sample in rows]
        texts = [sample.text for sample in samples]
        steps.append(
            StepSamples(
                step,
                np.array([digest_of(sample.prompt) for sample in samples], dtype=object),
                np.array([reward for reward, _ in rows]),
                np.array([_label(sample, roles.label, path) for sample in samples]),
                np.array([float(len(text)) for text in texts]),
                np.ones(len(rows)),
                np.array([_second(sample, roles.second, path) for sample in samples]),
                np.array([digest_of(text) for text in texts], dtype=object),
                forms_of(texts),
                len(every) - len(rows),
            )
        )
    return steps


def _number(sample: Sample, column: str, path: Path) -> float | None:
    """Return a finite number; None if there is none."""
    value = sample.values.get(column)
    number = as_number(value)
    if number is None and value is not None:
        raise ValueError(f"{path}: {sample.line}: {column} is {brief(value)}: expected a number")
    if number is None or not math.isfinite(number):
        return None
    if abs(number) > _LARGEST:
        raise ValueError(f"{path}: {sample.line}: {column} is {number:g}: too large for a reward")
    return number


def _reward(sample: Sample, columns: Mapping[str, float], path: Path) -> float | None:
    """Return the sum of signed columns; None if one is missing or not finite."""
    numbers = [_number(sample, column, path) for column in columns]
    if any(number is None for number in numbers):
        return None
    return sum(
        sign * number for sign, number in zip(columns.values(), numbers, strict=True) if number is not None
    )


def _second(sample: Sample, column: str | None, path: Path) -> float:
    number = None if column is None else _number(sample, column, path)
    return math.nan if number is None else number


def _step(sample: Sample, path: Path) -> float:
    number = as_number(sample.step)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{path}: {sample.line}: step is {brief(sample.step)}: expected a number")
    return float(number)


def _label(sample: Sample, column: str | None, path: Path) -> float:
    """Return a label from 0 to 1; NaN if there is none."""
    value = None if column is None else sample.values.get(column)
    if value is None or value == "":
        return math.nan
    number = _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    number = as_number(value) if number is None else number
    if number is not None and math.isnan(number):
        return math.nan
    if number is None or not 0 <= number <= 1:
        raise ValueError(
            f"{path}: {sample.line}: {column} is {brief(value)}: no label: give true or false, 0 or 1, or a share from "
            '0 to 1, or name another column, columns="label=NAME"'
        )
    return number

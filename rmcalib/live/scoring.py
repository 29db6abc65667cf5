"""Raw rewards of samples from any judge: equal prompts together, failures apart from the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rmcalib.benchmarks import Item
from rmcalib.judges import Judge
from rmcalib.judges._http import ServerError
from rmcalib.judges._judge import RewardError, scored_chunks
from rmcalib.judges._templates import well_formed
from rmcalib.live.samples import Sample
from rmcalib.scores.scale import Scale

Raw = float | Exception


class UnreadableError(ValueError):
    """A text that this judge cannot read, whenever it is sent."""


def is_away(error: object) -> bool:
    """Return whether the model behind did not answer, so that the same request may succeed later."""
    return isinstance(error, ServerError) and error.temporary


def compares(judge: Judge) -> bool:
    """Return whether a judge rewards the responses of a prompt by comparing them."""
    scale = judge.scale
    return isinstance(scale, Scale) and (
        scale.kind == "pairs" or (scale.kind, scale.of) == ("probability", "best")
    )


def raw_rewards(judge: Judge, samples: Sequence[Sample]) -> list[Raw]:
    """Return the judge's reward of each sample, or the error that its own text causes.

    If a batch fails, its halves are scored, until the error is that of one sample. If the model behind does
    not answer at all, all samples have that error.
    """
    rewards: list[Raw] = [RuntimeError("not scored")] * len(samples)
    groups: dict[str, list[int]] = {}
    texts: list[list[int]] = []
    for index, sample in enumerate(samples):
        if sample.prompt is None:
            texts.append([index])
        else:
            groups.setdefault(sample.key, []).append(index)
    _fill(judge, samples, list(groups.values()), rewards)
    _fill(judge, samples, texts, rewards)
    return rewards


def _fill(judge: Judge, samples: Sequence[Sample], groups: list[list[int]], rewards: list[Raw]) -> None:
    """Score groups of samples with the same prompt, or whole texts; write into `rewards`."""
    if not groups:
        return
    try:
        found = _score(judge, [[samples[index] for index in group] for group in groups])
    except Exception as error:
        if not is_away(error) and len(groups) > 1:
            half = len(groups) // 2
            _fill(judge, samples, groups[:half], rewards)
            _fill(judge, samples, groups[half:], rewards)
        elif not is_away(error) and len(groups[0]) > 1 and not compares(judge):
            _fill(judge, samples, [[index] for index in groups[0]], rewards)
        else:
            for group in groups:
                for index in group:
                    rewards[index] = error
        return
    for group, values in zip(groups, found, strict=True):
        for index, value in zip(group, values, strict=True):
            rewards[index] = value


def _score(judge: Any, groups: list[list[Sample]]) -> list[Sequence[float]]:
    """Return the rewards of groups of samples; those of a group have the same prompt."""
    if groups[0][0].prompt is None:
        score_texts = getattr(judge, "score_texts", None)
        if score_texts is None:
            raise UnreadableError(
                f"{judge.name}: this kind of judge reads prompts and responses, not whole texts"
            )
        texts = [
            well_formed(one) if isinstance(one, str) else one
            for one in (group[0].response for group in groups)
        ]
        values = score_texts(texts)
        wrong = [value for value in values if not math.isfinite(value)]
        if wrong:
            raise RewardError(f"{judge.name}: the reward of a text is {wrong[0]}")
        return [[value] for value in values]
    items = [
        Item(str(number), "live", group[0].prompt, tuple(str(one.response) for one in group), 0)  # type: ignore[arg-type]
        for number, group in enumerate(groups)
    ]
    return [scored.rewards for chunk in scored_chunks(judge, items) for scored in chunk]

"""Raw rewards of samples from any judge: equal prompts together, failures apart from the rest."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from rmcalib.benchmarks import Item
from rmcalib.judges import Judge
from rmcalib.judges._http import ServerError
from rmcalib.judges._judge import RewardError, scored_chunks
from rmcalib.judges._templates import well_formed
from rmcalib.judges.apis.samples import Sample
from rmcalib.scores.scale import Scale

Raw = tuple[float, ...] | Exception
"""The numbers of each judge."""


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


def raw_rewards(judges: Sequence[Judge], samples: Sequence[Sample]) -> list[Raw]:
    """Return the reward of each sample by each judge, or the error of the first that has none."""
    by_judge = [_raw_rewards(judge, samples) for judge in judges]
    errors = [[each for each in row if isinstance(each, Exception)] for row in zip(*by_judge, strict=True)]
    return [
        error[0] if error else row for error, row in zip(errors, zip(*by_judge, strict=True), strict=True)
    ]


def _raw_rewards(judge: Judge, samples: Sequence[Sample]) -> list[float | Exception]:
    """Return the judge's reward of each sample, or the error that its own text causes.

    If a batch fails, its halves are scored, until the error is that of one sample. If the model behind does
    not answer at all, all samples have that error.
    """
    rewards: list[float | Exception] = [RuntimeError("not scored")] * len(samples)
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


def _fill(
    judge: Judge, samples: Sequence[Sample], groups: list[list[int]], rewards: list[float | Exception]
) -> None:
    """Score groups of samples with the same prompt, or whole texts; write into `rewards`."""
    if not groups:
        return
    try:
        scored = _score(judge, [[samples[index] for index in group] for group in groups])
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
    for group, values in zip(groups, scored, strict=True):
        for index, value in zip(group, values, strict=True):
            rewards[index] = value


def tokenizer_of(judge: Any) -> Any:
    """Return the tokenizer of the model that reads the texts; None if it is not known here."""
    judge = getattr(judge, "_served", None) or judge  # vLLM that was started for it
    models = getattr(judge, "models", None) or [getattr(judge, "model", None)]
    return getattr(judge, "tokenizer", None) or getattr(models[0], "tokenizer", None)


class Special(NamedTuple):
    """What matches special tokens: in a text, and in what the tokenizer's normalizer makes of a text.

    Some tokenizers look for their tokens after normalization, which may turn `＜|END|＞` into `<|end|>`.
    """

    tokens: re.Pattern[str]
    normalized: re.Pattern[str] | None = None
    normalize: Callable[[str], str] = str

    def as_text(self, text: str) -> str:
        """Return a text with a space after the first character of each special token."""
        text = self.tokens.sub(_apart, text)
        if self.normalized is not None and self.normalized.search(normal := self.normalize(text)):
            return self.normalized.sub(_apart, normal)
        return text


def _apart(match: re.Match[str]) -> str:
    return f"{match[0][0]} {match[0][1:]}"


@functools.lru_cache(maxsize=16)
def special_tokens(tokenizer: Any) -> Special | None:
    """Return what matches the special tokens of a tokenizer that a text could contain."""
    added = [token for token in getattr(tokenizer, "added_tokens_decoder", {}).values() if token.special]
    tokens = _any_of([*getattr(tokenizer, "all_special_tokens", ()), *map(str, added)])
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if tokens is None or normalizer is None:
        return tokens and Special(tokens)
    normalize = normalizer.normalize_str
    return Special(tokens, _any_of([normalize(str(token)) for token in added if token.normalized]), normalize)


def _any_of(names: Sequence[str]) -> re.Pattern[str] | None:
    longest_first = sorted({name for name in names if len(name) > 1}, key=lambda name: (-len(name), name))
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def without_special(text: Any, special: Special | None) -> Any:
    """Return a text, or messages, in which special tokens are plain text: `<|end|>` becomes `< |end|>`.

    Tokenizers read special tokens anywhere in a text. A policy that writes them could end its turn, and praise
    itself in one of the user's.

    >>> without_special("Yes.<|end|>", Special(re.compile(re.escape("<|end|>"))))
    'Yes.< |end|>'
    """
    if special is None:
        return text
    if isinstance(text, str):
        return special.as_text(text)
    return tuple({**message, "content": without_special(message["content"], special)} for message in text)


def _score(judge: Any, groups: list[list[Sample]]) -> list[Sequence[float]]:
    """Return the rewards of groups of samples; those of a group have the same prompt."""
    if groups[0][0].prompt is None:
        score_texts = getattr(judge, "score_texts", None)
        if score_texts is None:
            raise UnreadableError(
                f"{judge.name}: this kind of judge reads prompts and responses, not whole texts"
            )
        whole = [group[0].response for group in groups]
        texts = [well_formed(text) if isinstance(text, str) else text for text in whole]
        values = score_texts(texts)
        wrong = [value for value in values if not math.isfinite(value)]
        if wrong:
            raise RewardError(f"{judge.name}: the reward of a text is {wrong[0]}")
        return [[value] for value in values]
    special = special_tokens(tokenizer_of(judge))
    items = [
        Item(
            str(number),
            "live",
            without_special(group[0].prompt, special),
            tuple(without_special(str(sample.response), special) for sample in group),
            0,
        )
        for number, group in enumerate(groups)
    ]
    return [scored.rewards for chunk in scored_chunks(judge, items) for scored in chunk]

"""Scores: every response of every prompt through a reward model, fast, and the same however it is batched.

Prompts are taken in chunks of a fixed size. A chunk is tokenised while the one before it is on the device,
packed (see `packing`), scored, and yielded. A response's reward does not depend on what it
was packed with, up to rounding: about 1e-6 in float32. As the chunks are fixed runs of the items, a job that
resumes at a chunk's beginning repeats the same rewards to the last bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt

from rmcalib.judges._inference import devices, forward
from rmcalib.judges._inference.architectures import (
    attention_crossover,
    can_share,
    needs_same_length,
    running_config,
)
from rmcalib.judges._inference.packing import Row, Text, plain_batches, shared_batches
from rmcalib.judges._inference.pooling import checkpoint_pad, pooled_position
from rmcalib.judges._inference.templates import Encoded, encode
from rmcalib.judges._judge import Progress, ScoredItem

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._reward_model import RewardModel

T = TypeVar("T")
FloatArray = npt.NDArray[np.float64]

CHUNK = 32  # prompts in a chunk: enough for full rows, few enough that little is lost when a job is killed

# How far a reward may move, relative to the largest of its batch (or to 1), before sharing counts as wrong.
_TOLERANCE = {"float32": 1e-4, "float64": 1e-6, "float16": 2e-2, "bfloat16": 1e-1}

INDIFFERENT = (
    "all responses of a prompt have the same reward, for every prompt. The reward is probably read before "
    "the response begins: try `pooling: last_token` in the model's recipe"
)


def score_items(
    model: RewardModel,
    items: Sequence[Item],
    *,
    max_length: int | None = None,
    token_budget: int | None = None,
    share: bool = True,
    progress: Progress | None = None,
) -> Iterator[list[ScoredItem]]:
    """Score all responses of `items`, yielding chunks of 32 prompts as they are finished, in order.

    Parameters
    ----------
    model : a loaded model (`rmcalib.judges.load_model`).
    items : prompts with their responses.
    max_length : longest text in tokens; longer ones lose their end and are flagged. Default: the model's.
    token_budget : tokens in one forward pass, padding included; a longer text goes alone. Default: what free
        memory allows. Running out of memory halves it, and the job goes on.
    share : compute a prompt once for all its responses, where the architecture allows it. A few prompts are
        scored the plain way too, again whenever a chunk has a text longer than all that were checked. If
        rewards disagree there is a warning, and nothing is shared from then on.
    progress : called after each forward pass with the numbers of responses and of tokens it has scored.

    Raises
    ------
    ValueError : if a reward is not a finite number (the message names the item and the response).
    MemoryError : if a single response does not fit.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> from rmcalib.judges import load_model
    >>> chunks = score_items(load_model("demo", device="cpu"), load_benchmark("demo").items[:3])
    >>> [len(item.rewards) for chunk in chunks for item in chunk]
    [4, 4, 4]
    """
    scorer = ItemScorer(model, max_length, token_budget, share=share, progress=progress)
    return _judged(model.name, scorer.chunks(items))


def _judged(name: str, chunks: Iterator[list[ScoredItem]]) -> Iterator[list[ScoredItem]]:
    told_apart: set[bool | None] = set()
    for chunk in chunks:
        told_apart |= {item.told_apart for item in chunk}
        yield chunk
    if is_indifferent(told_apart):
        warnings.warn(f"{name}: {INDIFFERENT}", stacklevel=2)


def is_indifferent(told_apart: set[bool | None]) -> bool:
    """Tell whether no prompt's responses were told apart, of `ScoredItem.told_apart` of all prompts.

    >>> is_indifferent({None, False}), is_indifferent({True, False}), is_indifferent({None})
    (True, False, False)
    """
    return False in told_apart and True not in told_apart


def shard(items: Sequence[T], rank: int, world: int) -> list[T]:
    """Return the items that process `rank` of `world` scores: every item belongs to exactly one process.

    >>> shard("abcde", 0, 2), shard("abcde", 1, 2)
    (['a', 'c', 'e'], ['b', 'd'])
    """
    if not 0 <= rank < world:
        raise ValueError(f"rank: must be from 0 to {world - 1}, got {rank}")
    return list(items[rank::world])


def _finish(
    items: Sequence[Item],
    encoded: Sequence[tuple[Encoded, ...]],
    rewards: FloatArray,
    tolerance: float,
) -> list[ScoredItem]:
    scored, start = [], 0
    for item, texts in zip(items, encoded, strict=True):
        own = rewards[start : start + len(texts)]
        start += len(texts)
        for number, reward in enumerate(own):
            if not np.isfinite(reward):
                raise ValueError(
                    f"item {item.id!r}, response {number}: the model's reward is {reward}. Its weights may "
                    "be damaged, or its dtype too narrow: try --dtype float32 or bfloat16"
                )
        differ = len({text.input_ids for text in texts}) > 1
        least = tolerance / 10 * max(1.0, abs(own[0])) if differ else 0.0
        scored.append(
            ScoredItem(
                id=item.id,
                rewards=tuple(float(reward) for reward in own),
                n_tokens=tuple(len(text) for text in texts),
                truncated=tuple(text.truncated for text in texts),
                told_apart=bool(own.max() - own.min() > least) if differ else None,
            )
        )
    return scored


def _sample(texts: Sequence[Text]) -> list[Text]:
    """Choose the texts to check sharing on, from up to four prompts.

    These are the two shortest prompts, which share a row, a longer prompt, and the prompt with the longest
    text, which may be the only text longer than an attention window. Of each prompt's responses, the shortest
    and the longest are enough.
    """
    prompts: dict[int, list[Text]] = {}
    for text in texts:
        prompts.setdefault(text.prompt, []).append(text)
    groups = sorted(prompts.values(), key=lambda group: sum(map(len, group)))
    chosen = [*groups[:2], *groups[2:][len(groups) // 4 :][:1]]
    longest = max(groups, key=lambda group: max(map(len, group)))
    if not any(group is longest for group in chosen):
        chosen.append(longest)
    ends = [(min(group, key=len), max(group[::-1], key=len)) for group in chosen]
    return [text for pair in ends for text in dict.fromkeys(pair)]


class ItemScorer:
    """Scores items, and keeps what it learns on the way: how many tokens fit, and whether sharing is right.

    The parameters are those of `score_items`, which is all that most need.
    """

    def __init__(
        self,
        model: RewardModel,
        max_length: int | None = None,
        token_budget: int | None = None,
        *,
        share: bool = True,
        progress: Progress | None = None,
    ) -> None:
        """Settle how to score; nothing is scored yet."""
        self.limit = max_length if max_length is not None else model.max_length
        if self.limit < 1:
            raise ValueError(f"max_length: must be at least 1, got {self.limit}")
        if token_budget is None:
            config = running_config(model)
            token_budget = devices.token_budget(config, model.device, model.dtype.itemsize, self.limit)
        if token_budget < 1:
            raise ValueError(f"token_budget: must be at least 1, got {token_budget}")
        model.backbone.eval()
        self.model = model
        self.budget = token_budget
        self.share = share and can_share(model)
        self.checked = 0  # sharing is known to be right for texts of up to this many tokens
        self.progress = progress
        self.pad = checkpoint_pad(model.config)
        self.tolerance = _TOLERANCE.get(str(model.dtype).removeprefix("torch."), 1e-1)
        self.usual = devices.usual_tokens(model.device)
        self.kappa = attention_crossover(model) if self.share else 1.0

    def chunks(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score all responses of `items`, yielding chunks of 32 prompts as they are finished, in order."""
        recipe, tokenizer = self.model.recipe, self.model.tokenizer
        template, append = recipe.template, recipe.append_token_id

        def tokenise(chunk: Sequence[Item]) -> list[tuple[Encoded, ...]]:
            return encode(chunk, tokenizer, max_length=self.limit, template=template, append=append)

        chunks = [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]
        with ThreadPoolExecutor(max_workers=1) as ahead:
            waiting = ahead.submit(tokenise, chunks[0]) if chunks else None
            for number, chunk in enumerate(chunks):
                assert waiting is not None
                encoded = waiting.result()
                if number + 1 < len(chunks):
                    waiting = ahead.submit(tokenise, chunks[number + 1])
                yield _finish(chunk, encoded, self.rewards(encoded), self.tolerance)

    def rewards(self, encoded: Sequence[tuple[Encoded, ...]]) -> FloatArray:
        """Score one chunk; a flat array, prompt after prompt."""
        recipe = self.model.recipe
        texts: list[Text] = []
        for prompt, responses in enumerate(encoded):
            for text in responses:
                pooled = pooled_position(text.input_ids, pooling=recipe.pooling, pad=self.pad)
                texts.append(Text(len(texts), prompt, text, pooled))
        while self.share and max(map(len, texts), default=0) > self.checked:
            self._check(texts)
        rewards = np.full(len(texts), np.nan)
        pending = {text.index: text for text in texts}
        while pending:
            self._work_off(pending, rewards)
        return rewards

    def _plan(self, texts: Sequence[Text]) -> list[tuple[list[Text], list[Row]]]:
        """Return the batches: their texts, and their rows when prompts are shared."""
        if self.share:
            batches = self._shared_batches(texts)
            return [([text for row in rows for tree in row for text in tree.texts], rows) for rows in batches]
        budget = min(self.budget, self.usual)
        same_length = needs_same_length(self.model)
        return [(batch, []) for batch in plain_batches(texts, budget=budget, same_length=same_length)]

    def _shared_batches(self, texts: Sequence[Text]) -> list[list[Row]]:
        return shared_batches(texts, budget=self.budget, kappa=self.kappa, usual=self.usual)

    def _work_off(self, pending: dict[int, Text], rewards: FloatArray) -> None:
        """Score what is `pending` until it is done, or until memory runs out and the plan must change."""
        for texts, rows in self._plan(list(pending.values())):
            try:
                if rows:
                    order, values = forward.shared_rewards(self.model, rows)
                else:
                    order, values = forward.plain_rewards(self.model, texts)
            except Exception as error:
                if not devices.is_out_of_memory(error):
                    raise
                if len(texts) == 1:
                    raise MemoryError(
                        f"a response of {len(texts[0])} tokens does not fit into the memory of "
                        f"{self.model.device}: lower --max-length, or take a narrower --dtype"
                    ) from error
                break
            rewards[order] = values.numpy()
            if rows and not np.isfinite(rewards[order]).all():
                # One text's NaN spreads through its row. Alone, every text answers for itself.
                for text in texts:
                    rewards[text.index] = float(forward.plain_rewards(self.model, [text])[1])
            for index in order:
                del pending[index]
            if self.progress is not None:
                self.progress(len(texts), sum(len(text) for text in texts))
        else:
            return
        self._halve()  # here, and not above, where the error still holds the failed pass's tensors

    def _check(self, texts: Sequence[Text]) -> None:
        """Score a few prompts both ways, and stop sharing if the rewards differ."""
        sample = _sample(texts)
        shared: dict[int, float] = {}
        try:
            for rows in self._shared_batches(sample):
                order, values = forward.shared_rewards(self.model, rows)
                shared.update(zip(order, values.tolist(), strict=True))
            plain = np.array([float(forward.plain_rewards(self.model, [text])[1]) for text in sample])
        except Exception as error:
            if not devices.is_out_of_memory(error):
                self._stop_sharing(f"{type(error).__name__}: {error}")
                return
            # Try again with less, down to single texts; what does not fit even then fails when it is scored.
            self.share = self.budget > 1
            short_of_memory = True
        else:
            short_of_memory = False
            self.checked = max(map(len, sample))
        if short_of_memory:
            self._halve()
            return
        difference = np.abs(np.array([shared[text.index] for text in sample]) - plain).max()
        if not difference <= self.tolerance * max(1.0, np.abs(plain).max()) and np.isfinite(plain).all():
            self._stop_sharing(f"rewards differ by up to {difference:.2g}")

    def _halve(self) -> None:
        devices.release_memory(self.model.device)
        self.budget = max(1, self.budget // 2)

    def _stop_sharing(self, reason: str) -> None:
        self.share = False
        warnings.warn(
            f"{self.model.name}: computing a prompt once for all its responses does not work for this model "
            f"({reason}). Every response is scored with its own copy of the prompt: right, but slower",
            stacklevel=2,
        )

"""Score the responses of prompts with a reward model.

Prompts are processed in windows: 32 prompts on a CPU, 128 on other devices, where a larger choice of texts
means less padding. A window is tokenised while the previous one is on the device, then packed (see
`packing`), scored, and yielded in chunks of 32 prompts. A reward does not depend on the other texts in its
batch, up to rounding: about 1e-6 in float32. On a CPU, where a window is a chunk, a resumed run gives exactly
the same rewards.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.judges._inference import devices, forward
from rmcalib.judges._inference.architectures import (
    CannotShare,
    Sharing,
    attention_crossover,
    how_to_share,
    needs_same_length,
)
from rmcalib.judges._inference.budget import Budget, longest_row, pass_cost, usual_tokens
from rmcalib.judges._inference.budget import token_budget as budget_for
from rmcalib.judges._inference.flex import BLOCK
from rmcalib.judges._inference.packing import (
    Row,
    Text,
    Work,
    plain_batches,
    rounded_up,
    row_length,
    shared_batches,
)
from rmcalib.judges._inference.pooling import checkpoint_pad, pooled_position
from rmcalib.judges._inference.templates import Encoded, encode
from rmcalib.judges._inference.verifying import Verifier, rounding
from rmcalib.judges._judge import Progress, ScoredItem

if TYPE_CHECKING:
    import torch

    from rmcalib.benchmarks import Item
    from rmcalib.judges._reward_model import RewardModel

CHUNK = 32
"""Number of prompts in a chunk: enough to fill rows, few enough that a killed run loses little."""

PACKING_WINDOW = 128  # prompts that are packed together on an accelerator

_INDIFFERENT = (
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
    """Score all responses of `items`; yield chunks of 32 prompts, in order, as they are finished.

    Parameters
    ----------
    model : RewardModel
        A loaded model.
    items : Sequence[Item]
        Prompts with their responses.
    max_length : int, optional
        The longest text in tokens; longer ones are truncated and flagged. Default: the model's.
    token_budget : int, optional
        The most tokens in one forward pass, padding included; a longer text is scored alone. Default: what
        free memory allows. It is halved if memory runs out, and grows again later.
    share : bool
        Compute a prompt once for all its responses if the architecture allows it. Some texts are also scored
        alone (`verifying`). If their rewards differ, there is a warning and nothing is shared any more.
    progress : Progress, optional
        Called after each forward pass with the numbers of responses and tokens it has scored.

    Raises
    ------
    ValueError
        If a reward is not finite. The message names the item and the response.
    MemoryError
        If a single response does not fit into memory.

    Examples
    --------
    >>> from rmcalib.benchmarks import load_benchmark
    >>> from rmcalib.judges import load_model
    >>> chunks = score_items(load_model("demo", device="cpu"), load_benchmark("demo").items[:3])
    >>> [len(item.rewards) for chunk in chunks for item in chunk]
    [4, 4, 4]
    """
    scorer = ItemScorer(model, max_length, token_budget, share=share, progress=progress)
    return _warn_if_indifferent(model.name, scorer.chunks(items))


def _warn_if_indifferent(name: str, chunks: Iterator[list[ScoredItem]]) -> Iterator[list[ScoredItem]]:
    distinct: set[bool | None] = set()
    for chunk in chunks:
        distinct |= {item.distinct for item in chunk}
        yield chunk
    if note := indifference_note(distinct):
        warnings.warn(f"{name}: {note}", stacklevel=2)


def indifference_note(distinct: set[bool | None]) -> str:
    """Return a warning if a judge gave all responses of every prompt the same reward.

    Parameters
    ----------
    distinct : set[bool | None]
        The values of `ScoredItem.distinct` of all prompts.

    Returns
    -------
    str
        The warning with its remedy. Empty if some prompt has distinct rewards, or if none can have them.

    Examples
    --------
    >>> indifference_note({None, False})[:54]
    'all responses of a prompt have the same reward, for ev'
    >>> indifference_note({True, False}), indifference_note({None})
    ('', '')
    """
    return _INDIFFERENT if False in distinct and True not in distinct else ""


def _finish(
    items: Sequence[Item],
    encoded: Sequence[tuple[Encoded, ...]],
    rewards: FloatArray,
    dtype: torch.dtype,
) -> list[ScoredItem]:
    scored, start = [], 0
    for item, texts in zip(items, encoded, strict=True):
        own = rewards[start : start + len(texts)]
        start += len(texts)
        for number, reward in enumerate(own):
            if not np.isfinite(reward):
                raise ValueError(
                    f"item {item.id!r}, response {number}: the model's reward is {reward}. The weights may "
                    "be damaged, or the dtype too narrow: try --dtype float32 or bfloat16"
                )
        differ = len({text.input_ids for text in texts}) > 1
        least = rounding(dtype, own[:1]) / 10 * max(1.0, abs(own[0])) if differ else 0.0
        scored.append(
            ScoredItem(
                id=item.id,
                rewards=tuple(float(reward) for reward in own),
                n_tokens=tuple(len(text) for text in texts),
                truncated=tuple(text.truncated for text in texts),
                distinct=bool(own.max() - own.min() > least) if differ else None,
            )
        )
    return scored


def _joined(parts: Sequence[torch.Tensor]) -> FloatArray:
    import torch

    rewards: FloatArray = torch.cat(list(parts)).cpu().numpy()
    return rewards


class ItemScorer:
    """Scores items, and remembers how many tokens fit and how prompts can be shared.

    The parameters are those of `score_items`.
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
        """Decide how to score; nothing is scored yet."""
        self.limit = max_length if max_length is not None else model.max_length
        if self.limit < 1:
            raise ValueError(f"max_length: must be at least 1, got {self.limit}")
        if token_budget is not None:
            Budget(token_budget)  # raises if it is below 1, before the model runs
        model.backbone.eval()
        self.model = model
        self.sharing: Sharing | None = None
        if share and model.kind == "causal":
            try:
                self.sharing = how_to_share(model)
            except CannotShare as error:
                self._warn_plain(str(error))
        self.budget = Budget(token_budget or budget_for(model, self.sharing, self.limit))
        self.verifier = Verifier(model)
        self.work = Work()
        self.progress = progress
        self.pad = checkpoint_pad(model.config)
        self.usual = usual_tokens(model.device)
        self.window = CHUNK if model.device.type == "cpu" else PACKING_WINDOW

    def chunks(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        """Score all responses of `items`; yield chunks of 32 prompts, in order, as they are finished."""
        recipe, tokenizer = self.model.recipe, self.model.tokenizer
        template, append = recipe.template, recipe.append_token_id

        def tokenise(some: Sequence[Item]) -> list[tuple[Encoded, ...]]:
            return encode(some, tokenizer, max_length=self.limit, template=template, append=append)

        # The first window is small, because it is scored again if sharing does not work.
        starts = [0, *range(CHUNK if self.sharing else self.window, len(items), self.window)]
        windows = [items[a:b] for a, b in zip(starts, [*starts[1:], len(items)], strict=True) if a < b]
        with ThreadPoolExecutor(max_workers=1) as ahead:
            waiting = ahead.submit(tokenise, windows[0]) if windows else None
            for number, window in enumerate(windows):
                assert waiting is not None
                encoded = waiting.result()
                if number + 1 < len(windows):
                    waiting = ahead.submit(tokenise, windows[number + 1])
                scored = _finish(window, encoded, self.rewards(encoded), self.model.dtype)
                for start in range(0, len(scored), CHUNK):
                    yield scored[start : start + CHUNK]

    def rewards(self, encoded: Sequence[tuple[Encoded, ...]]) -> FloatArray:
        """Return the rewards of the responses of some prompts as a flat array, prompt after prompt."""
        recipe = self.model.recipe
        texts: list[Text] = []
        for prompt, responses in enumerate(encoded):
            for text in responses:
                pooled = pooled_position(text.input_ids, pooling=recipe.pooling, pad=self.pad)
                texts.append(Text(len(texts), prompt, text, pooled))
        rewards = self._computed(texts)
        while self.sharing is not None and (sample := self.verifier.sample(texts)):
            difference = self._disagreement(sample, rewards)
            if not difference:
                break
            self._share_less(f"rewards differ by up to {difference:.2g}")
            rewards = self._computed(texts, again=True)
        self.budget.grow()
        return rewards

    def _computed(self, texts: Sequence[Text], *, again: bool = False) -> FloatArray:
        """Return the rewards of `texts`. With `again`, progress has been reported for them already."""
        rewards = np.full(len(texts), np.nan)
        pending = {text.index: text for text in texts}
        while pending:
            done, failed = self._passes(list(pending.values()), again)
            # The only place where the CPU waits for the device.
            if done:
                order = [index for indices, _ in done for index in indices]
                rewards[order] = _joined([values for _, values in done])
                for index in order:
                    del pending[index]
            if failed:  # not where the error is caught: it still holds the tensors of the failed pass
                devices.release_memory(self.model.device)
                self.budget.shrink(failed)
        if self.sharing is not None:
            # A NaN of one text spreads through its row, so the texts of the row are scored alone.
            for index in np.flatnonzero(~np.isfinite(rewards)).tolist():
                rewards[index] = float(forward.plain_rewards(self.model, [texts[index]])[1])
        return rewards

    def _plan(self, texts: Sequence[Text]) -> list[tuple[list[Text], list[Row]]]:
        """Return batches: their texts, and if prompts are shared, their rows."""
        tokens, cost = self.budget.tokens, pass_cost(self.model.device)
        if self.sharing is not None:
            kappa = attention_crossover(self.model, self.sharing)
            dense = self.sharing.attention == "mask"
            batches = shared_batches(
                texts,
                budget=tokens,
                kappa=kappa,
                usual=self.usual,
                pass_cost=cost,
                longest_row=longest_row(self.limit) if dense else None,
            )
            return [([text for row in rows for tree in row for text in tree.texts], rows) for rows in batches]
        same = needs_same_length(self.model)
        budget = min(tokens, self.usual)
        return [(b, []) for b in plain_batches(texts, budget=budget, pass_cost=cost, same_length=same)]

    def _passes(self, texts: Sequence[Text], again: bool) -> tuple[list[tuple[list[int], torch.Tensor]], int]:
        """Run passes until all `texts` are done, or one fails.

        Returns the results of the passes, and the tokens of the pass that did not fit into memory, or 0.
        """
        done: list[tuple[list[int], torch.Tensor]] = []
        bucket = self.bucket
        for batch, rows in self._plan(texts):
            try:
                if rows:
                    assert self.sharing is not None
                    part = forward.shared_rewards(self.model, rows, self.sharing, bucket=bucket)
                else:
                    part = forward.plain_rewards(self.model, batch)
            except Exception as error:
                if not devices.is_out_of_memory(error):
                    # If sharing is known to work, this is a real error, except that FlexAttention may fail
                    # for a new shape.
                    unproven = self.sharing is not None and self.sharing.attention == "flex"
                    if rows and (unproven or not self.verifier.longest):
                        self._share_less(f"{type(error).__name__}: {error}")
                        return done, 0
                    raise
                if len(batch) == 1:
                    raise MemoryError(
                        f"a response of {len(batch[0])} tokens does not fit into the memory of "
                        f"{self.model.device}: lower --max-length, or use a narrower --dtype"
                    ) from error
                return done, sum(row_length(row) for row in rows) or sum(map(len, batch))
            done.append(part)
            self.work.add(batch, rows, bucket if rows else 1)
            if self.progress is not None and not again:
                self.progress(len(batch), sum(len(text) for text in batch))
        return done, 0

    @property
    def bucket(self) -> int:
        """The number of tokens in a pass is rounded up to a multiple of this.

        Only FlexAttention needs it: with few different lengths, few kernels are compiled.
        """
        if self.sharing is None or self.sharing.attention != "flex":
            return 1
        return rounded_up(max(1, self.budget.tokens // 8), BLOCK)

    def _disagreement(self, sample: list[Text], rewards: FloatArray) -> float:
        """Compare the rewards of `sample` with those of each text alone; leave out texts that do not fit."""
        while sample:
            try:
                difference = self.verifier.disagreement(sample, rewards[[text.index for text in sample]])
            except Exception as error:
                if not devices.is_out_of_memory(error):
                    raise
                sample = sample[:-1]  # the longest is the last
                continue
            if not difference:
                self.verifier.passed(sample)
            return difference
        return 0.0

    def _share_less(self, reason: str) -> None:
        """Use dense masks from now on; if these were used already, share nothing."""
        assert self.sharing is not None
        if self.sharing.attention == "mask":
            self.sharing = None
            self._warn_plain(reason)
            return
        warnings.warn(
            f"{self.model.name}: {self.sharing.attention!r} attention does not work for this model "
            f"({reason}). Dense masks are used instead. This is slower and gives the same rewards",
            stacklevel=2,
        )
        self.sharing = self.sharing.with_masks()

    def _warn_plain(self, reason: str) -> None:
        warnings.warn(
            f"{self.model.name}: computing a prompt once for all its responses does not work for this model "
            f"({reason}). Every response is scored with its own copy of the prompt. This is slower and gives "
            "the same rewards",
            stacklevel=2,
        )

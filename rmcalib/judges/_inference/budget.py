"""Decide how many tokens one forward pass may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmcalib.judges._inference.architectures import running_config
from rmcalib.judges._inference.devices import free_memory

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._inference.architectures import Sharing
    from rmcalib.judges._reward_model import RewardModel

# Fraction of the free memory for one forward pass. The estimate is rough; running out of memory is handled.
_SHARE_OF_FREE_MEMORY = 0.5
_MOST_TOKENS_ACCELERATOR = 32_768
_MOST_TOKENS_CPU = 8_192
_USUAL_TOKENS_CPU = 1_024
_PASS_COST_ACCELERATOR = 1_024
_PASS_COST_CPU = 16
_CHUNKS_BEFORE_MORE = 4

# Bytes per pair of tokens while a dense mask is built: an int32 distance and some booleans.
_BYTES_PER_PAIR = 12


class Budget:
    """The most tokens of one forward pass: reduced if memory runs out, and increased again later.

    Parameters
    ----------
    most : int
        The initial and largest number.

    Examples
    --------
    >>> budget = Budget(1_024)
    >>> budget.shrink(failed=900)
    >>> budget.tokens
    450
    >>> for _ in range(4):
    ...     budget.grow()
    >>> budget.tokens
    900
    """

    def __init__(self, most: int) -> None:
        """Start with `most` tokens."""
        if most < 1:
            raise ValueError(f"token_budget: must be at least 1, got {most}")
        self.tokens = self.most = most
        self._patience = _CHUNKS_BEFORE_MORE
        self._good = 0
        self._has_grown = False

    def shrink(self, failed: int) -> None:
        """Halve the budget after a pass of `failed` tokens did not fit.

        If the budget had been increased before, wait twice as long before the next increase.
        """
        self.tokens = max(1, min(self.tokens, failed) // 2)
        self._patience *= 2 if self._has_grown else 1
        self._good, self._has_grown = 0, False

    def grow(self) -> None:
        """Count a chunk that fit; after some of them, double the budget."""
        if self.tokens == self.most:
            return
        self._good += 1
        if self._good >= self._patience:
            self.tokens = min(self.most, 2 * self.tokens)
            self._good, self._has_grown = 0, True


def token_budget(model: RewardModel, sharing: Sharing | None, longest: int) -> int:
    """Estimate how many tokens of one forward pass fit into the free memory.

    The device with the least free memory decides. The result is a power of two, so that small changes of the
    free memory do not change the batches.
    """
    least = min(free_memory(device) for device in devices_of(model))
    return tokens_that_fit(
        running_config(model),
        least,
        itemsize=model.dtype.itemsize,
        longest=longest_row(longest) if sharing is not None and sharing.attention == "mask" else longest,
        masks=masks_at_once(sharing),
        most=_MOST_TOKENS_CPU if model.device.type == "cpu" else _MOST_TOKENS_ACCELERATOR,
    )


def tokens_that_fit(
    config: Any, free: float, *, itemsize: int, longest: int, masks: int, most: int = _MOST_TOKENS_ACCELERATOR
) -> int:
    """Return the largest power of two, at most `most`, such that a pass of that many tokens fits into `free`.

    The estimate has two parts. Per token: the activations of one layer. Per pair of tokens, in rows of at
    most `longest` tokens: `masks` dense masks and what is needed to build one, and for `eager` attention the
    attention weights of all heads.

    >>> from types import SimpleNamespace as Config
    >>> config = Config(hidden_size=4096, intermediate_size=14336, num_attention_heads=32)
    >>> config._attn_implementation = "sdpa"
    >>> tokens_that_fit(config, 60e9, itemsize=2, longest=8192, masks=1)
    32768
    """
    tokens = most
    while tokens > 1:
        if pass_bytes(config, tokens, itemsize=itemsize, longest=longest, masks=masks) <= (
            _SHARE_OF_FREE_MEMORY * free
        ):
            return tokens
        tokens //= 2
    return 1


def pass_bytes(config: Any, tokens: int, *, itemsize: int, longest: int, masks: int) -> float:
    """Estimate the memory in bytes of a pass of `tokens` tokens, without the weights (`tokens_that_fit`)."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    hidden = int(getattr(text, "hidden_size", 4096))
    inner = int(getattr(text, "intermediate_size", None) or 4 * hidden)
    heads = int(getattr(text, "num_attention_heads", 32))
    per_token = itemsize * (8 * hidden + 3 * inner)
    per_pair = masks * itemsize + _BYTES_PER_PAIR if masks else 0
    if masks and getattr(text, "_attn_implementation", "eager") == "eager":
        per_pair += heads * (2 * itemsize + 4)
    return float(tokens * (per_token + per_pair * min(longest, tokens)))


def longest_row(longest_text: int) -> int:
    """Return the longest row with a dense mask, whose memory grows with the square of the length."""
    return 2 * longest_text


def devices_of(model: RewardModel) -> list[torch.device]:
    """Return the devices that hold the weights of a model."""
    found = {parameter.device for parameter in model.backbone.parameters() if not parameter.is_meta}
    return sorted(found | {model.device}, key=str)


def usual_tokens(device: torch.device) -> int:
    """Return how many tokens a forward pass on `device` should have, if they fit.

    An accelerator is faster with more tokens. A CPU needs enough for all its cores, but the activations of a
    layer should fit into its caches.
    """
    import torch

    if device.type != "cpu":
        return _MOST_TOKENS_ACCELERATOR
    return _USUAL_TOKENS_CPU * max(1, torch.get_num_threads() // 4)


def pass_cost(device: torch.device) -> int:
    """Return the cost of starting a forward pass, as a number of tokens that take the same time."""
    return _PASS_COST_CPU if device.type == "cpu" else _PASS_COST_ACCELERATOR


def masks_at_once(sharing: Sharing | None) -> int:
    """Return the number of dense masks in a pass. Plain batches have one, which transformers makes."""
    if sharing is None:
        return 1
    return len(sharing.windows) if sharing.attention == "mask" else 0

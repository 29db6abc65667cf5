"""How many tokens one forward pass may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rmcalib.judges._inference.devices import free_memory

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._inference.architectures import Sharing
    from rmcalib.judges._reward_model import RewardModel

# How much of the free memory one forward pass may use. The estimate is rough, and running out is caught.
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
    """The tokens of one forward pass: fewer after running out of memory, and more again when all goes well.

    Parameters
    ----------
    most : the number to start with, and never to exceed.

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
        """Take half of what did not fit, a pass of `failed` tokens.

        If that had been tried before, wait twice as long before trying it again.
        """
        self.tokens = max(1, min(self.tokens, failed) // 2)
        self._patience *= 2 if self._has_grown else 1
        self._good, self._has_grown = 0, False

    def grow(self) -> None:
        """Note that a chunk went well; after some of them, double the budget."""
        if self.tokens == self.most:
            return
        self._good += 1
        if self._good >= self._patience:
            self.tokens = min(self.most, 2 * self.tokens)
            self._good, self._has_grown = 0, True


def token_budget(model: RewardModel, sharing: Sharing | None, longest: int) -> int:
    """Estimate how many tokens one forward pass can hold in the free memory: a power of two.

    The device with the least free memory counts. A power of two, so that small changes of the free memory do
    not change the batches.
    """
    least = min(free_memory(device) for device in devices_of(model))
    return tokens_that_fit(
        getattr(model.backbone, "config", model.config),
        least,
        itemsize=model.dtype.itemsize,
        longest=longest_row(longest) if sharing is not None and sharing.attention == "mask" else longest,
        masks=masks_at_once(sharing),
        most=_MOST_TOKENS_CPU if model.device.type == "cpu" else _MOST_TOKENS_ACCELERATOR,
    )


def tokens_that_fit(
    config: Any, free: float, *, itemsize: int, longest: int, masks: int, most: int = _MOST_TOKENS_ACCELERATOR
) -> int:
    """Return the largest power of two up to `most` such that a pass of so many tokens fits into `free` bytes.

    Counted per token: the activations that live at once within a layer. Counted per pair of tokens in rows of
    at most `longest` tokens: `masks` dense masks and what is needed to build one, and where attention is
    `eager`, the attention weights of all heads.

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
    """Estimate the memory of a pass of `tokens` tokens beyond the weights; see `tokens_that_fit`."""
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
    """Return how long a row may be where its mask is dense: memory grows with the square of the length."""
    return 2 * longest_text


def devices_of(model: RewardModel) -> list[torch.device]:
    """Return the devices that hold the weights of a model."""
    found = {parameter.device for parameter in model.backbone.parameters() if not parameter.is_meta}
    return sorted(found | {model.device}, key=str)


def usual_tokens(device: torch.device) -> int:
    """Return how many tokens a forward pass on `device` should have, where there is a choice.

    An accelerator is faster the more there are. A processor needs enough for all its cores, and little enough
    for what a layer computes to stay in its caches.
    """
    import torch

    if device.type != "cpu":
        return _MOST_TOKENS_ACCELERATOR
    return _USUAL_TOKENS_CPU * max(1, torch.get_num_threads() // 4)


def pass_cost(device: torch.device) -> int:
    """Return what starting a forward pass costs, as the number of tokens that take the same time."""
    return _PASS_COST_CPU if device.type == "cpu" else _PASS_COST_ACCELERATOR


def masks_at_once(sharing: Sharing | None) -> int:
    """Return how many dense masks a pass holds: plain batches have one too, made by transformers."""
    if sharing is None:
        return 1
    return len(sharing.windows) if sharing.attention == "mask" else 0

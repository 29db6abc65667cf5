"""Find the token of a text whose hidden state gives the reward.

The stock head reads the last token that differs from the checkpoint's `pad_token_id`, or the last token if
there is no `pad_token_id`. The checkpoint was trained and published this way, so the same rule is used here,
even if the padding token is the end-of-text token and the text ends with it. Padding that a batch adds has no
effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

POOLINGS = ("checkpoint", "last_token", "before_first_pad")


def pooled_position(ids: Sequence[int], *, pooling: str = "checkpoint", pad: int | None = None) -> int:
    """Return the position in `ids` (without padding) whose hidden state is the input of the head.

    `checkpoint`: the last id that is not `pad`, or the last one if `pad` is None. `last_token`: the last one.
    `before_first_pad`: the one before the first `pad`, as in some older heads; without a `pad`, the last one.

    >>> pooled_position([5, 6, 7, 2], pad=2), pooled_position([5, 6, 7, 2], pad=None)
    (2, 3)
    >>> pooled_position([5, 2, 7, 2], pooling="before_first_pad", pad=2)
    0
    """
    if pooling not in POOLINGS:
        raise ValueError(f"pooling: unknown {pooling!r} (have: {', '.join(POOLINGS)})")
    last = len(ids) - 1
    if pooling == "last_token" or pad is None:
        return last
    if pooling == "before_first_pad":
        # If the first token is a pad, the index -1 of those heads is the last token.
        first = next((position for position, token in enumerate(ids) if token == pad), last + 1)
        return first - 1 if first else last
    return next((position for position in range(last, -1, -1) if ids[position] != pad), 0)


def checkpoint_pad(config: Any) -> int | None:
    """Return the `pad_token_id` of a checkpoint's configuration (of its text part, if it has several)."""
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    pad: int | None = getattr(text_config, "pad_token_id", None)
    return pad

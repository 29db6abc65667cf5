"""slime imports this: `--custom-rm-path rmcalib.live.slime.rm`, settings in `RMCALIB_REWARD`."""

from __future__ import annotations

import asyncio
from typing import Any

from rmcalib.live.reward import configured_reward


async def rm(args: Any, sample: Any, **more: Any) -> Any:
    """Return the reward of a sample, or those of a list of samples (`--group-rm`)."""
    reward = await asyncio.to_thread(configured_reward)
    return await reward.slime()(args, sample, **more)

"""verl imports this: `pkg://rmcalib.live.verl`. The environment variable `RMCALIB_REWARD` names the settings.

As a manager, which gets the prompt::

    reward.reward_manager.source=importlib reward.reward_manager.name=RewardManager
    reward.reward_manager.module.path=pkg://rmcalib.live.verl

As a function, if the data set has the prompt in `extra_info`::

    reward.custom_reward_function.path=pkg://rmcalib.live.verl reward.custom_reward_function.name=compute_score
"""

from __future__ import annotations

import asyncio
from typing import Any

from rmcalib.judges.apis.samples import as_sample
from rmcalib.live import adapters
from rmcalib.live.reward import configured_reward


async def compute_score(
    data_source: str, solution_str: str, ground_truth: Any = None, extra_info: Any = None, **more: Any
) -> dict[str, Any]:
    """Return verl's dict with `score` for a response whose prompt is in `extra_info`."""
    reward = await asyncio.to_thread(configured_reward)
    score = adapters.verl(reward)
    result: dict[str, Any] = await score(data_source, solution_str, ground_truth, extra_info, **more)
    return result


def _manager() -> type:
    """Return the class of managers; verl is imported for its base."""
    from verl.experimental.reward_loop.reward_manager.base import RewardManagerBase

    class RewardManager(RewardManagerBase):  # type: ignore[misc]
        """Rewards each sample by the judge in `RMCALIB_REWARD`, with the prompt's own messages."""

        def __init__(self, config: Any, tokenizer: Any, compute_score: Any, **_: Any) -> None:
            """Check the reward's settings."""
            super().__init__(config, tokenizer, compute_score)
            self.reward = configured_reward()
            adapters.verl(self.reward)

        async def run_single(self, data: Any) -> dict[str, Any]:
            """Return the reward of the last sequence of a sample."""
            item = data[-1:][0]
            ids = item.batch["responses"]
            ids = ids[: int(item.batch["attention_mask"][-ids.shape[-1] :].sum())]
            text = await asyncio.to_thread(self.tokenizer.decode, ids, skip_special_tokens=True)
            truth = (item.non_tensor_batch.get("reward_model") or {}).get("ground_truth")
            prompt = list(item.non_tensor_batch["raw_prompt"])
            scored = await adapters.verl_score(
                self.reward, as_sample(prompt, text, "raw_prompt", label=truth)
            )
            return {"reward_score": scored["score"], "reward_extra_info": scored}

    return RewardManager


def __getattr__(name: str) -> Any:
    """Make the manager when it is asked for: it needs verl, and the function does not."""
    if name != "RewardManager":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = _manager()
    return globals()[name]

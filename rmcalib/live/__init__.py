"""Rewards inside a training loop: `Reward` for frameworks that call a function, `serve` for those that call a URL."""

from rmcalib.live.reward import Reward

__all__ = ["Reward"]

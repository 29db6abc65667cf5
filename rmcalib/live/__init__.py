"""Rewards inside a training loop: `Reward` for frameworks that call a function, `serve` for those that ask a URL."""

from rmcalib.live.reward import Reward
from rmcalib.live.server import Limits, serve

__all__ = ["Limits", "Reward", "serve"]

"""Reward models by name: what is loaded, and the recipe by which it is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Recipe:
    """How to read one model: what its files alone do not say. The defaults fit any one-label classifier.

    `status` is `plain` (works by name), `recipe` (needs some of the fields below), `adapter` (its head is
    rebuilt here from the checkpoint's tensors), `remote` (its own code, behind `trust_remote_code`) or
    `unsupported` (`reason` says why).
    """

    model: str
    status: str = "plain"
    reason: str = ""  # why it is not supported
    template: str | None = None  # name of a built-in template; None: the tokenizer's own chat template
    dtype: str | None = None  # None: the checkpoint's own
    attention: str | None = None  # None: what transformers picks for the architecture
    max_length: int | None = None
    trust_remote_code: bool = False
    column: int | None = None  # which output, where there are several
    sign: float = 1.0  # -1 for cost models
    head: str = "auto"  # "auto": the stock one-label head; "remote": the model's own code; else tensor prefix
    head_file: str | None = None  # a file of the repository that holds the head's tensors
    output: str = "logits"  # attribute of a remote model's output that holds the rewards
    pooling: str = "checkpoint"  # "checkpoint": by the config's pad token; "last_token"; "mean"
    append_token_id: int | None = None  # a token put after the rendered text, and pooled
    tokenizer: str | None = None  # another repository's tokenizer
    loss: str = "unknown"
    evidence: str = ""  # where the loss is said
    bradley_terry: str = "unknown"  # "yes", "no", "modified", "unknown": is a softmax of the rewards meant?
    parameters: float | None = None  # billions


@dataclass
class RewardModel:
    """A loaded reward model.

    `kind` says how a reward is had:

    - `causal`: `backbone(input_ids=, attention_mask=, position_ids=).last_hidden_state` (n, length, hidden)
      is taken after the final norm; one token's state a response goes through `head` (float32):
      (n, hidden) -> (n,).
    - `encoder`: `score(input_ids, attention_mask)` gives the rewards (n,); responses cannot share a prompt.
    - `opaque`: the same, by the model's own code.

    Sign and column of the recipe are already applied in all three.
    """

    name: str
    revision: str
    recipe: Recipe
    tokenizer: Any
    backbone: torch.nn.Module
    head: torch.nn.Module
    kind: str
    config: Any
    device: torch.device
    dtype: torch.dtype
    max_length: int
    base: str | None = None  # "org/name@commit" of the model under a PEFT adapter

    def score(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Reward right-padded texts (n, length) -> (n,) float32, for the kinds `encoder` and `opaque`."""
        outputs = self.backbone(input_ids=input_ids, attention_mask=attention_mask)
        rewards: torch.Tensor = self.head(outputs)
        return rewards

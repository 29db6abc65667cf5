"""Log-probabilities of responses under a language model, computed without storing all logits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges._inference.templates import Encoded

__all__ = ["LanguageModel", "check_logits", "next_token_logprobs", "response_logprobs", "token_logprobs"]

_LOGITS_AT_ONCE = 2**24  # numbers in one block of logits: 64 MiB in float32
_TOKENS_AT_ONCE = 8192  # padded tokens in one forward pass, unless the caller says otherwise


@dataclass(frozen=True)
class LanguageModel:
    """A causal language model on its device."""

    name: str
    revision: str
    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype
    max_length: int
    base: tuple[str, str] | None = None  # name and commit of a PEFT adapter's base
    switch: Callable[[], AbstractContextManager[Any]] | None = None  # a context without the adapter
    is_base: bool = False

    def without_adapter(self) -> LanguageModel:
        """Return the base model of a PEFT adapter: the same weights, with the adapter switched off."""
        if self.base is None:
            raise ValueError(f"{self.name}: has no adapter")
        name, commit = self.base
        return replace(self, name=name, revision=commit, base=None, is_base=True)

    def running(self) -> AbstractContextManager[Any]:
        """Return a context for running the model; it switches the adapter off for the base model."""
        return self.switch() if self.is_base and self.switch is not None else nullcontext()

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the float32 logits (n, vocabulary) of hidden states (n, width), as the model computes them.

        Some architectures scale the logits (Cohere, Granite) or cap them (Gemma 2) after the last layer.
        """
        config = self.model.config.get_text_config()
        head: nn.Module = self.model.get_output_embeddings()
        logits: torch.Tensor = head(hidden)
        logits = logits * (getattr(config, "logit_scale", None) or 1.0)
        logits = logits / (getattr(config, "logits_scaling", None) or 1.0)
        cap = getattr(config, "final_logit_softcapping", None)
        return (torch.tanh(logits / cap) * cap if cap else logits).float()


def token_logprobs(model: LanguageModel, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return `log p(target)` at each position, with a block of positions at a time.

    Parameters
    ----------
    model : LanguageModel
        The language model.
    hidden : array (n, width)
        The last hidden states.
    targets : array (n,)
        The token that follows each position.

    Returns
    -------
    torch.Tensor (n,)
        The log-probabilities, in float32.
    """
    width = model.model.get_output_embeddings().weight.shape[0]
    block = max(1, _LOGITS_AT_ONCE // width)
    parts = []
    for first in range(0, max(len(targets), 1), block):  # one empty block if there are no positions
        logits = model.logits(hidden[first : first + block])
        ids = targets[first : first + block].to(logits.device)
        chosen = logits.gather(1, ids[:, None])[:, 0]
        parts.append(chosen - logits.logsumexp(1))
    return torch.cat(parts)


@torch.no_grad()
def response_logprobs(
    model: LanguageModel,
    texts: Sequence[Encoded],
    starts: Sequence[int],
    *,
    token_budget: int | None = None,
) -> list[tuple[float, int]]:
    """Return the summed log-probability of each response's tokens, and their number.

    Parameters
    ----------
    model : LanguageModel
        The language model.
    texts : Sequence[Encoded]
        Prompts with responses as token ids.
    starts : Sequence[int]
        For each text, the position of the response's first token.
    token_budget : int, optional
        Padded tokens in one forward pass; default 8192.
    """
    results: list[tuple[float, int]] = []
    longest = max((len(text) for text in texts), default=1)
    rows = max(1, (token_budget or _TOKENS_AT_ONCE) // longest)
    with model.running():
        for first in range(0, len(texts), rows):
            results += _pass(model, texts[first : first + rows], starts[first : first + rows])
    return results


@torch.no_grad()
def next_token_logprobs(model: LanguageModel, ids: Sequence[int]) -> torch.Tensor:
    """Return log p of every token of the vocabulary after a text: float32 (vocabulary,), on the CPU."""
    tokens = torch.tensor([list(ids)], device=model.device)
    hidden = _hidden(model, tokens, torch.ones_like(tokens))[0, -1:]
    return model.logits(hidden)[0].log_softmax(0).cpu()


@torch.no_grad()
def check_logits(model: LanguageModel) -> None:
    """Raise a `HubError` if `LanguageModel.logits` differs from the logits of the model itself."""
    size = model.model.get_input_embeddings().weight.shape[0]
    ids = torch.arange(6, device=model.device)[None] % size
    direct = model.model(input_ids=ids).logits[0].float()
    ours = model.logits(_hidden(model, ids, torch.ones_like(ids))[0])
    gap = float((direct.to(ours.device) - ours).abs().max())
    if not gap <= 1e-2 * max(1.0, float(direct.abs().max())):
        raise HubError(
            f"{model.name}: its architecture ({model.model.config.model_type}) computes logits in a way that "
            "is not supported, so log-probabilities would be wrong"
        )


def _pass(model: LanguageModel, texts: Sequence[Encoded], starts: Sequence[int]) -> list[tuple[float, int]]:
    """Run texts, padded on the right, through the model once."""
    length = max(len(text) for text in texts)
    ids = torch.tensor([[*text.input_ids, *[0] * (length - len(text))] for text in texts])
    positions = torch.arange(length)[None]
    lengths = torch.tensor([len(text) for text in texts])[:, None]
    present = positions < lengths
    # The first token of a text has no probability.
    counted = present & (positions >= torch.tensor(starts)[:, None]) & (positions > 0)
    hidden = _hidden(model, ids.to(model.device), present.long().to(model.device))
    row, column = counted.nonzero(as_tuple=True)
    values = token_logprobs(
        model, hidden[row.to(hidden.device), column.to(hidden.device) - 1], ids[row, column]
    )
    sums = torch.zeros(len(texts), dtype=torch.float64).index_add_(0, row, values.double().cpu())
    return list(zip(sums.tolist(), counted.sum(1).tolist(), strict=True))


def _hidden(model: LanguageModel, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    backbone = model.model.base_model
    states: torch.Tensor = backbone(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    return states

"""Log-probabilities of a prompt's responses in one pass, with the prompt's tokens computed once.

The row contains the prompt once, followed by the responses as the branches of a tree, as for classifiers. If
the architecture does not allow this, or the prompt is too long for one row, each text has its own row
(the plain way). The first prompt is scored both ways. If the results differ, the plain way is used for all
prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch

from rmcalib.judges._inference.architectures import CannotShare, Sharing, how_to_share
from rmcalib.judges._inference.attention import Branches, tree_attention
from rmcalib.judges._inference.packing import Row, Text, Tree, pack, tree_mask
from rmcalib.judges._inference.templates import Encoded
from rmcalib.judges._policies.logprobs import LanguageModel, response_logprobs, token_logprobs

__all__ = ["PromptScorer"]

_LONGEST_ROW = 8192  # tokens of a prompt with all its responses, by default
# Largest difference of the two ways per token, relative to the token's log-probability (or 1).
_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-6}
_NARROW = 3e-2


class PromptScorer:
    """Computes the log-probabilities of responses under one language model, prompt by prompt.

    Parameters
    ----------
    model : LanguageModel
        The language model.
    token_budget : int, optional
        Tokens in one forward pass; default 8192.
    """

    def __init__(self, model: LanguageModel, token_budget: int | None = None) -> None:
        """Find out whether the responses of a prompt can share it."""
        self.model, self.token_budget = model, token_budget
        self.sharing = _sharing(model)
        self._checked = False

    @torch.no_grad()
    def logprobs(self, texts: Sequence[Encoded], starts: Sequence[int]) -> list[tuple[float, int]]:
        """Return the summed log-probability of each response's tokens, and their number.

        ``starts`` are the positions of the responses' first tokens.
        """
        tree = Tree(tuple(Text(i, 0, text, 0) for i, text in enumerate(texts)))
        worth = len(texts) > 1 and tree.prefix_len > 0
        if self.sharing is None or not worth or len(tree) > (self.token_budget or _LONGEST_ROW):
            return self._plain(texts, starts)
        with self.model.running():
            found = _shared(self.model, tree, starts, self.sharing)
        if self._checked:
            return found
        self._checked = True
        plain = self._plain(texts, starts)
        allowed = _TOLERANCE.get(self.model.dtype, _NARROW)
        for (own, count), (other, _) in zip(found, plain, strict=True):
            if not abs(own - other) <= allowed * max(count, abs(other), 1.0):
                self.sharing = None
                return plain
        return found

    def _plain(self, texts: Sequence[Encoded], starts: Sequence[int]) -> list[tuple[float, int]]:
        return response_logprobs(self.model, texts, starts, token_budget=self.token_budget)


def _sharing(model: LanguageModel) -> Sharing | None:
    """Return how responses can share a prompt in this model; None if they cannot."""
    backbone = model.model.base_model
    parts: Any = SimpleNamespace(
        kind="causal", backbone=backbone, config=backbone.config, device=model.device, dtype=model.dtype
    )
    try:
        with model.running():
            sharing = how_to_share(parts)
    except CannotShare:
        return None
    return sharing.with_masks() if sharing.attention == "flex" else sharing


def _shared(
    model: LanguageModel, tree: Tree, starts: Sequence[int], sharing: Sharing
) -> list[tuple[float, int]]:
    """Run a prompt with its responses through the model once."""
    row: Row = (tree,)
    packed = pack([row])
    ids, positions, trees, branches = (
        torch.from_numpy(array).to(model.device)
        for array in (packed.input_ids, packed.positions, packed.trees, packed.branches)
    )
    backbone = model.model.base_model
    inputs: dict[str, Any] = {"input_ids": ids, "position_ids": positions, "use_cache": False}
    if sharing.attention == "branches":
        with tree_attention(backbone.config):
            hidden = backbone(**inputs, tree=Branches([row])).last_hidden_state[0]
    else:
        masks: Any = {
            kind: tree_mask(trees, branches, positions, dtype=model.dtype, window=window)
            for kind, window in sharing.windows.items()
        }
        mask = masks if sharing.layer_types else masks.popitem()[1]
        hidden = backbone(**inputs, attention_mask=mask).last_hidden_state[0]
    places, targets, counts = _predictions(tree, starts)
    values = token_logprobs(model, hidden[torch.tensor(places, device=hidden.device)], torch.tensor(targets))
    parts = torch.split(values.double().cpu(), counts)
    return [(float(part.sum()), count) for part, count in zip(parts, counts, strict=True)]


def _predictions(tree: Tree, starts: Sequence[int]) -> tuple[list[int], list[int], list[int]]:
    """Return the positions that predict the responses' tokens, the tokens, and their number per response."""
    places: list[int] = []
    targets: list[int] = []
    counts: list[int] = []
    shared, own = tree.prefix_len, tree.prefix_len
    for text, start in zip(tree.texts, starts, strict=True):
        counted = range(max(start, 1), len(text))  # the first token of a text has no probability
        # The previous token is in the shared part, or on the response's own branch.
        places += [at - 1 if at - 1 < shared else own + at - 1 - shared for at in counted]
        targets += [text.encoded.input_ids[at] for at in counted]
        counts.append(len(counted))
        own += len(text) - shared
    return places, targets, counts

"""Load a reward model by name: a Hub id, a local folder, a PEFT adapter or the demo."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import HubError
from rmcalib.judges._model_files import find_files
from rmcalib.judges._options import LoadOptions

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._registry import Recipe

__all__ = ["RewardModel", "load_model", "longest_text", "with_recipe"]

LONGEST_DEFAULT = 4096


@dataclass
class RewardModel:
    """A loaded reward model, as `load_model` returns it.

    Attributes
    ----------
    name : str
        Hub id, folder or `"demo"`.
    revision : str
        Commit on the Hub, or the SHA-256 of a local folder's files.
    recipe : Recipe
        How the model is read. The recipe's sign and column are applied to all rewards.
    tokenizer : Any
        The tokenizer.
    backbone : torch.nn.Module
        The transformer.
    head : torch.nn.Module
        The score head.
    kind : str
        How a reward is computed.

        - `causal`: `backbone(...).last_hidden_state` is (n, length, hidden), after the final norm. The
          hidden state of one token per response goes through `head`, in float32: (n, hidden) -> (n,).
        - `encoder`: `score(input_ids, attention_mask)` returns the rewards (n,). Responses cannot share a
          prompt.
        - `opaque`: as `encoder`, with the model's own code.
    config : Any
        The configuration of the checkpoint.
    device, dtype : torch.device, torch.dtype
        The device and the dtype in which it runs.
    max_length : int
        The longest text in tokens.
    sources : dict[str, str]
        Other repositories that were used, as `org/name@commit`, by `base`, `tokenizer` and `code`.
    dtype_from : str
        Where the dtype comes from: `option`, `cpu`, `recipe` or `checkpoint`.

    Examples
    --------
    >>> model = load_model("demo", device="cpu")
    >>> model.kind, model.dtype_from
    ('causal', 'cpu')
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
    sources: dict[str, str] = field(default_factory=dict)
    dtype_from: str = ""

    def score(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Return the rewards (n,) of right-padded texts (n, length), for the kinds `encoder` and `opaque`."""
        outputs = self.backbone(input_ids=input_ids, attention_mask=attention_mask)
        rewards: torch.Tensor = self.head(outputs)
        return rewards


def load_model(name: str, options: LoadOptions | None = None, **changes: Any) -> RewardModel:
    """Load a reward model.

    Parameters
    ----------
    name : str
        A Hub id (`org/name`) or a local folder, of a model or a PEFT adapter, or `"demo"`.
    options : LoadOptions, optional
        Options for loading it.
    **changes
        Fields of `LoadOptions` that replace those of `options`.

    Returns
    -------
    RewardModel
        The model, in evaluation mode.

    Raises
    ------
    ValueError
        If the model cannot be loaded: the score head is not in the checkpoint, there are several outputs and
        no `column`, there is no chat template, the weights are damaged, and so on.

    Examples
    --------
    >>> load_model("demo", device="cpu").kind
    'causal'
    """
    options, recipe = with_recipe(name, options, **changes)
    files = find_files(name, options, tokenizer=recipe.tokenizer)

    from rmcalib.judges._inference import loading

    asked = loading.Asked(name, recipe, options, files.code_commit)
    tokenizer = loading.load_tokenizer(asked, files.tokenizer)
    parts = loading.load_parts(asked, files.weights, files.adapter)
    if recipe.append_token_id is not None:
        own = getattr(parts.config, "reward_token_id", recipe.append_token_id)
        recipe = dataclasses.replace(recipe, append_token_id=own)
    return RewardModel(
        name=name,
        revision=files.commit,
        recipe=recipe,
        tokenizer=tokenizer,
        backbone=parts.backbone,
        head=parts.head,
        kind=parts.kind,
        config=parts.config,
        device=parts.device,
        dtype=parts.dtype,
        max_length=longest_text(name, parts.config, tokenizer, parts.kind, recipe, options.max_length),
        sources=files.sources,
        dtype_from=parts.dtype_from,
    )


def with_recipe(name: str, options: LoadOptions | None, **changes: Any) -> tuple[LoadOptions, Recipe]:
    """Return the options for a model with its recipe in them, and the recipe; refuse unsupported models."""
    options = LoadOptions.of(options, **changes)
    recipe = options.recipe_for(name)
    if recipe.status == "unsupported":
        raise HubError(f"{name}: not supported: {recipe.reason}")
    return dataclasses.replace(options, recipe=recipe), recipe


def longest_text(name: str, config: Any, tokenizer: Any, kind: str, recipe: Recipe, asked: int | None) -> int:
    """Return the length of the longest text in tokens: `asked`, if the model can read that much."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    own = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    said = getattr(tokenizer, "model_max_length", None)
    if said is not None and said < 10**6 and (own is None or kind == "encoder"):
        own = min(said, own or said)  # encoders reserve some positions
    limit = recipe.max_length or own
    if asked is None:
        return min(limit or LONGEST_DEFAULT, LONGEST_DEFAULT)
    if asked < 8:
        raise ValueError(f"max_length: must be at least 8 tokens, got {asked}")
    if limit is not None and asked > limit:
        raise ValueError(f"max_length: {asked} is more than the {limit} tokens that {name} can read")
    return asked

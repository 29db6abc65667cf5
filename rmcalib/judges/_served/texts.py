"""The texts that are sent to the server of a reward model.

vLLM takes chat messages and applies the chat template itself. SGLang gets token ids and OpenRLHF gets
strings, so the tokenizer is loaded here. vLLM also gets token ids if the user wants the texts of our own
scorer, or if the recipe has another template or appends a token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import HubError
from rmcalib.judges._inference.templates import conversation, encode, render
from rmcalib.judges._model_files import locate
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._served.servers import Text

if TYPE_CHECKING:
    from rmcalib.benchmarks import Item
    from rmcalib.judges._registry import Recipe

__all__ = ["Writer", "text_writer"]

Writer = Callable[["Item"], list[Text]]
"""Returns one text per response of a prompt."""


def text_writer(kind: str, recipe: Recipe, limit: int, *, here: bool = False) -> tuple[Writer, str]:
    """Return a function that writes the texts of a prompt, and what applies the chat template.

    The latter is `server`, or the name and commit of the tokenizer that is used here.

    Parameters
    ----------
    kind : str
        Kind of server.
    recipe : Recipe
        Recipe of the model.
    limit : int
        The longest text in tokens.
    here : bool
        Always write the texts here.
    """
    if kind == "vllm" and not here and recipe.template is None and recipe.append_token_id is None:
        return _as_messages, "server"
    tokenizer, source = _local_tokenizer(kind, recipe)
    if kind != "openrlhf":
        return lambda item: _as_ids(item, tokenizer, recipe, limit), source
    if recipe.append_token_id is not None:
        raise ValueError(
            f"{recipe.model}: its recipe appends a token to every text (append_token_id), which OpenRLHF's "
            "server does not support: serve the model with vLLM or SGLang"
        )
    return lambda item: _as_strings(item, tokenizer, recipe), source


def _as_messages(item: Item) -> list[Text]:
    return [Text(messages=tuple(conversation(item.prompt, response))) for response in item.responses]


def _as_ids(item: Item, tokenizer: Any, recipe: Recipe, limit: int) -> list[Text]:
    encoded = encode(
        [item], tokenizer, max_length=limit, template=recipe.template, append=recipe.append_token_id
    )
    return [Text(ids=text.input_ids, n_tokens=len(text), truncated=text.truncated) for text in encoded[0]]


def _as_strings(item: Item, tokenizer: Any, recipe: Recipe) -> list[Text]:
    texts = [render(item.prompt, response, tokenizer, recipe.template) for response in item.responses]
    return [Text(string=text) for text in _without_double_bos(texts, tokenizer)]


def _without_double_bos(texts: Sequence[str], tokenizer: Any) -> list[str]:
    """Remove the beginning-of-sequence token from texts if the server's tokenizer adds one itself."""
    bos = getattr(tokenizer, "bos_token", None)
    if not bos or tokenizer(texts[0])["input_ids"][:2] != [tokenizer.bos_token_id] * 2:
        return list(texts)
    return [text.removeprefix(bos) for text in texts]


def _local_tokenizer(kind: str, recipe: Recipe) -> tuple[Any, str]:
    source = recipe.tokenizer or recipe.model
    try:
        folder, commit = locate(source, LoadOptions(), small_files_only=True)

        from rmcalib.judges._inference import loading

        asked = loading.Asked(recipe.model, recipe, LoadOptions(), None)
        return loading.load_tokenizer(asked, folder), f"{source}@{commit}"
    except HubError as error:
        raise HubError(
            f"{recipe.model}: its tokenizer is needed here to write the texts for {kind}: {error}"
        ) from error

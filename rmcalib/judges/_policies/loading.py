"""Load causal language models, and PEFT adapters with their base."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import HubError
from rmcalib.judges._model_files import ModelFiles, find_files
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._reward_model import longest_text

if TYPE_CHECKING:
    from rmcalib.judges._policies.logprobs import LanguageModel

__all__ = ["load_language_model", "load_policy_tokenizer"]


def load_language_model(name: str, options: LoadOptions) -> LanguageModel:
    """Load a causal language model with its tokenizer, and check its logits.

    A PEFT adapter is put on its base and not merged, so that it can be switched off.
    """
    files, asked = _found(name, options)

    from rmcalib.judges._inference import loading
    from rmcalib.judges._policies.logprobs import LanguageModel, check_logits

    tokenizer = loading.load_tokenizer(asked, files.tokenizer)
    module, device, dtype = loading.load_causal(asked, files.weights)
    switch = None
    if files.adapter is not None:
        module, switch = _with_adapter(name, files.adapter, module, device, dtype)
    longest = longest_text(name, module.config, tokenizer, "causal", asked.recipe, options.max_length)
    model = LanguageModel(
        name, files.commit, module, tokenizer, device, dtype, longest, base=files.base, switch=switch
    )
    check_logits(model)
    return model


def load_policy_tokenizer(name: str, options: LoadOptions) -> Any:
    """Load the tokenizer of a language model alone."""
    files, asked = _found(name, options, small_files_only=True)

    from rmcalib.judges._inference import loading

    return loading.load_tokenizer(asked, files.tokenizer)


def _found(name: str, options: LoadOptions, *, small_files_only: bool = False) -> tuple[ModelFiles, Any]:
    """Return where the files of a model are, and what transformers' loaders need to know."""
    files = find_files(name, options, small_files_only=small_files_only)

    from rmcalib.judges._inference import loading

    return files, loading.Asked(name, options.recipe_for(name), options, files.code_commit)


def _with_adapter(name: str, adapter: Path, module: Any, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Put a PEFT adapter on its base; return the model, and a context that switches the adapter off."""
    try:
        from peft import PeftModel
    except ImportError as error:
        raise HubError(f"{name}: a PEFT adapter; install `peft` to load it") from error

    try:
        wrapped = PeftModel.from_pretrained(module, str(adapter), is_trainable=False)
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HubError(f"{name}: the adapter does not fit its base: {reason}") from error
    wrapped.eval().requires_grad_(False)
    if not getattr(module, "hf_device_map", None):
        wrapped.to(device=device, dtype=dtype)
    return wrapped.get_base_model(), wrapped.disable_adapter

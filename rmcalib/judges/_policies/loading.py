"""Load language models whose log-probabilities are needed: whole ones, and PEFT adapters with their base."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.hub import OWN_CODE, HubError
from rmcalib.judges._inference.own_code import pin_code
from rmcalib.judges._options import LoadOptions
from rmcalib.judges._reward_model import base_of, is_local, locate, longest_text

if TYPE_CHECKING:
    from rmcalib.judges._policies.logprobs import LanguageModel

__all__ = ["load_language_model", "load_policy_tokenizer"]


def load_language_model(name: str, options: LoadOptions) -> LanguageModel:
    """Load a causal language model with its tokenizer; its logits are checked.

    A PEFT adapter is put on its base. It is not merged, so that it can be switched off.
    """
    files = _files(name, options)

    from rmcalib.judges._inference import loading
    from rmcalib.judges._policies.logprobs import LanguageModel, check_logits

    tokenizer = loading.load_tokenizer(files.asked, files.tokenizer)
    module, device, dtype = loading.load_causal(files.asked, files.weights)
    switch = None
    if files.adapter is not None:
        module, switch = _with_adapter(files, module, device, dtype)
    recipe = options.recipe_for(name)
    longest = longest_text(name, module.config, tokenizer, "causal", recipe, options.max_length)
    model = LanguageModel(
        name, files.commit, module, tokenizer, device, dtype, longest, base=files.base, switch=switch
    )
    check_logits(model)
    return model


def load_policy_tokenizer(name: str, options: LoadOptions) -> Any:
    """Load the tokenizer of a language model alone."""
    files = _files(name, options, small_files_only=True)

    from rmcalib.judges._inference import loading

    return loading.load_tokenizer(files.asked, files.tokenizer)


@dataclasses.dataclass(frozen=True)
class _Files:
    """Where the files of a model are: weights and tokenizer, the adapter if it is one, and its base."""

    asked: Any
    commit: str
    weights: Path
    tokenizer: Path
    adapter: Path | None = None
    base: tuple[str, str] | None = None


def _files(name: str, options: LoadOptions, *, small_files_only: bool = False) -> _Files:
    recipe = options.recipe_for(name)
    if recipe.trust_remote_code and not options.trust_remote_code:
        raise HubError(f"{name}: {OWN_CODE}")
    folder, commit = locate(name, options, small_files_only=small_files_only)
    commits, adapter, base = {name: commit}, None, None
    if (folder / "adapter_config.json").is_file():
        adapter = folder
        base_name, _, folder, base_commit = base_of(name, adapter, options, small_files_only=small_files_only)
        base, commits[base_name] = (base_name, base_commit), base_commit
    tokenizer = adapter if adapter and (adapter / "tokenizer_config.json").is_file() else folder
    known = {repository: at for repository, at in commits.items() if not is_local(repository)}
    # Code of another repository is taken from one commit, not from whatever is newest.
    code = pin_code(name, (folder, tokenizer), known) if options.trust_remote_code else None

    from rmcalib.judges._inference import loading

    asked = loading.Asked(name, recipe, options, None if code is None else code[1])
    return _Files(asked, commit, folder, tokenizer, adapter, base)


def _with_adapter(files: _Files, module: Any, device: Any, dtype: Any) -> tuple[Any, Any]:
    """Put a PEFT adapter on its base; return the model, and the context in which the adapter is off."""
    name = files.asked.name
    try:
        from peft import PeftModel
    except ImportError as error:
        raise HubError(f"{name}: a PEFT adapter; install `peft` to load it") from error

    try:
        wrapped = PeftModel.from_pretrained(module, str(files.adapter), is_trainable=False)
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        reason = " ".join(str(error).split())[:200]
        raise HubError(f"{name}: the adapter does not fit its base: {reason}") from error
    wrapped.eval().requires_grad_(False)
    if not getattr(module, "hf_device_map", None):
        wrapped.to(device=device, dtype=dtype)
    return wrapped.get_base_model(), wrapped.disable_adapter

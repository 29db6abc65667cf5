"""Reward models by name: from a Hub id, a local folder, a PEFT adapter or the demo to a `RewardModel`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmcalib._util.files import kind_on_disk
from rmcalib._util.hub import (
    OWN_CODE,
    PICKLE_ONLY,
    HubError,
    check_repo_id,
    fetch_model,
    has_safe_weights,
    resolve_commit,
)
from rmcalib.judges._inference.own_code import pin_code
from rmcalib.judges._registry import Recipe, recipe_for

if TYPE_CHECKING:
    import torch

__all__ = ["Recipe", "RewardModel", "load_model"]

DEMO = Path(__file__).parents[1] / "demo" / "model"
LONGEST_DEFAULT = 4096


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
    revision: str  # the Hub commit, or the SHA-256 of a local folder's files
    recipe: Recipe
    tokenizer: Any
    backbone: torch.nn.Module
    head: torch.nn.Module
    kind: str
    config: Any
    device: torch.device
    dtype: torch.dtype
    max_length: int
    sources: dict[str, str] = field(default_factory=dict)  # "base", "tokenizer", "code": "org/name@commit"

    def score(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Reward right-padded texts (n, length) -> (n,) float32, for the kinds `encoder` and `opaque`."""
        outputs = self.backbone(input_ids=input_ids, attention_mask=attention_mask)
        rewards: torch.Tensor = self.head(outputs)
        return rewards


def load_model(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    max_length: int | None = None,
    recipe: Recipe | None = None,
) -> RewardModel:
    """Load a reward model, ready to score.

    Parameters
    ----------
    name : a Hub id (`org/name`), a local folder, either of them a full model or a PEFT adapter, or `"demo"`.
    revision : branch, tag or commit; the commit it stands for is in the result.
    device : `auto`, `cpu`, `cuda`, `cuda:1`, `mps`; `auto` spreads a model that is too large for one CUDA
        device over all of them.
    dtype : `auto` (float32 on a CPU, else the recipe's or the checkpoint's) or a name like `bfloat16`.
    trust_remote_code, allow_pickle : let the model's own Python code run, let pickle weights be loaded.
    max_length : longest text in tokens; default the model's own limit, at most 4096.
    recipe : how to read the model; default the registry's entry, or a plain one-label classifier.

    Returns
    -------
    RewardModel
        In evaluation mode. Whatever stands in the way is a `ValueError` with one line: a score head that is
        not in the checkpoint, several outputs and no `column`, no chat template, damaged weights, ...
    """
    recipe = recipe or recipe_for(name)
    if recipe.status == "unsupported":
        raise HubError(f"{name}: not supported: {recipe.reason}")
    if recipe.trust_remote_code and not trust_remote_code:
        raise HubError(f"{name}: {OWN_CODE}")
    folder, commit = locate(
        name, revision, recipe=recipe, trust_remote_code=trust_remote_code, allow_pickle=allow_pickle
    )
    sources: dict[str, str] = {}
    commits = {name: commit}
    adapter: Path | None = None
    if (folder / "adapter_config.json").is_file():
        adapter = folder
        base, branch, folder, base_commit = _base_of(name, adapter, recipe, trust_remote_code, allow_pickle)
        commits[base], sources["base"] = base_commit, f"{base}@{base_commit}"
        if branch is not None:
            sources["base_asked"] = branch
    tokenizer_folder = adapter if adapter and (adapter / "tokenizer_config.json").is_file() else folder
    if recipe.tokenizer is not None:
        tokenizer_folder, tokenizer_commit = locate(recipe.tokenizer, None, small_files_only=True)
        commits[recipe.tokenizer] = tokenizer_commit
        sources["tokenizer"] = f"{recipe.tokenizer}@{tokenizer_commit}"
    commits = {repository: at for repository, at in commits.items() if not is_local(repository)}
    code = pin_code(name, (folder, tokenizer_folder), commits) if trust_remote_code else None
    if code is not None and code[0] not in commits:
        sources["code"] = "@".join(code)

    from rmcalib.judges._inference import loading

    asked = loading.Asked(
        name, recipe, device, dtype, trust_remote_code, allow_pickle, None if code is None else code[1]
    )
    tokenizer = loading.load_tokenizer(asked, tokenizer_folder)
    parts = loading.load_parts(asked, folder, adapter)
    if recipe.append_token_id is not None:
        own = getattr(parts.config, "reward_token_id", recipe.append_token_id)
        recipe = dataclasses.replace(recipe, append_token_id=own)
    return RewardModel(
        name=name,
        revision=commit,
        recipe=recipe,
        tokenizer=tokenizer,
        backbone=parts.backbone,
        head=parts.head,
        kind=parts.kind,
        config=parts.config,
        device=parts.device,
        dtype=parts.dtype,
        max_length=_longest(name, parts.config, tokenizer, parts.kind, recipe, max_length),
        sources=sources,
    )


def locate(
    name: str,
    revision: str | None,
    *,
    recipe: Recipe | None = None,
    trust_remote_code: bool = False,
    allow_pickle: bool = False,
    small_files_only: bool = False,
) -> tuple[Path, str]:
    """Return the folder with a model's files, downloaded if need be, and their commit or SHA-256."""
    commit = identify(name, revision)
    if is_local(name):
        local = DEMO if name == "demo" else Path(name)
        if not small_files_only:
            _check_pickle(name, local, allow_pickle)
        return local, commit
    extra = () if recipe is None or recipe.head_file is None else tuple(recipe.head_file.split())
    folder = fetch_model(
        name,
        commit,
        revision=revision,
        trust_remote_code=trust_remote_code,
        allow_pickle=allow_pickle,
        extra_files=extra,
        small_files_only=small_files_only,
    )
    return folder, commit


def identify(name: str, revision: str | None = None) -> str:
    """Return a Hub model's commit, or the SHA-256 of a local one's files; nothing is downloaded."""
    if not is_local(name):
        return resolve_commit(check_model_name(name), revision=revision)
    if revision is not None:
        raise HubError(f"revision: {name} is a folder, which has none (only Hub models do)")
    return _digest(DEMO if name == "demo" else Path(name))


def is_local(name: str) -> bool:
    """Tell whether a model is on this machine: the demo, or a folder."""
    return name == "demo" or kind_on_disk(name) == "folder"


def check_model_name(name: str) -> str:
    """Return `name` if it is a model of this machine, or can be one of the Hub; else raise a `HubError`."""
    if not is_local(name) and kind_on_disk(name) == "file":
        raise HubError(f"{name}: a file; a model is the folder that it is in: {Path(name).parent}")
    return name if is_local(name) else check_repo_id(name)


def _base_of(
    name: str, adapter: Path, recipe: Recipe, trust_remote_code: bool, allow_pickle: bool
) -> tuple[str, str | None, Path, str]:
    """Locate the model that a PEFT adapter was trained on: its name, the revision asked, folder, commit."""
    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    base = settings.get("base_model_name_or_path")
    if not base:
        raise HubError(f"{name}: a PEFT adapter that names no base model (base_model_name_or_path)")
    try:
        folder, commit = locate(
            base,
            settings.get("revision"),
            recipe=recipe,
            trust_remote_code=trust_remote_code,
            allow_pickle=allow_pickle,
        )
    except HubError as error:
        raise HubError(f"{name}: its base model cannot be had: {error}") from error
    return base, settings.get("revision"), folder, commit


def _check_pickle(name: str, folder: Path, allow_pickle: bool) -> None:
    pickles = [*folder.glob("pytorch_model*.bin"), *folder.glob("adapter_model.bin")]
    if pickles and not has_safe_weights(folder) and not allow_pickle:
        raise HubError(f"{name}: {PICKLE_ONLY}")


def _digest(folder: Path) -> str:
    """SHA-256 over all files of a local model: a checkpoint saved over another must not pass for it."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        with path.open("rb") as file:
            total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def _longest(name: str, config: Any, tokenizer: Any, kind: str, recipe: Recipe, asked: int | None) -> int:
    """Return the longest text: as asked for, but never beyond the positions the model has."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    own = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    said = getattr(tokenizer, "model_max_length", None)
    if said is not None and said < 10**6 and (own is None or kind == "encoder"):
        own = min(said, own or said)  # an encoder's table may have places that are not for text
    limit = recipe.max_length or own
    if asked is None:
        return min(limit or LONGEST_DEFAULT, LONGEST_DEFAULT)
    if asked < 8:
        raise ValueError(f"max_length: {asked} tokens leave no room for a text")
    if limit is not None and asked > limit:
        raise ValueError(f"max_length: {asked} is beyond the {limit} tokens that {name} can read")
    return asked

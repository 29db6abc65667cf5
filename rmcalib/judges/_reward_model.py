"""Load a reward model by name: a Hub id, a local folder, a PEFT adapter or the demo."""

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
from rmcalib.judges._options import LoadOptions

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._registry import Recipe

__all__ = ["RewardModel", "base_of", "check_model_name", "identify", "is_local", "load_model", "locate"]

DEMO = Path(__file__).parents[1] / "demo" / "model"
LONGEST_DEFAULT = 4096


@dataclass
class RewardModel:
    """A loaded reward model.

    `kind` says how a reward is computed:

    - `causal`: `backbone(input_ids=, attention_mask=, position_ids=).last_hidden_state` (n, length, hidden),
      after the final norm. The state of one token per response goes through `head` (float32):
      (n, hidden) -> (n,).
    - `encoder`: `score(input_ids, attention_mask)` returns the rewards (n,). Responses cannot share a prompt.
    - `opaque`: the same, with the model's own code.

    The recipe's sign and column are applied in all three.
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
    dtype_from: str = ""  # what settled the dtype: "option", "cpu", "recipe" or "checkpoint"

    def score(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Reward right-padded texts (n, length) -> (n,) float32, for the kinds `encoder` and `opaque`."""
        outputs = self.backbone(input_ids=input_ids, attention_mask=attention_mask)
        rewards: torch.Tensor = self.head(outputs)
        return rewards


def load_model(name: str, options: LoadOptions | None = None, **changes: Any) -> RewardModel:
    """Load a reward model.

    Parameters
    ----------
    name : a Hub id (`org/name`) or a local folder, with a full model or a PEFT adapter, or `"demo"`.
    options : how to load it.
    **changes : single fields of `LoadOptions`, instead of or on top of `options`.

    Returns
    -------
    RewardModel
        In evaluation mode.

    Raises
    ------
    ValueError : if the model cannot be loaded, in one line: a score head that is not in the checkpoint,
        several outputs and no `column`, no chat template, damaged weights, ...

    Examples
    --------
    >>> load_model("demo", device="cpu").kind
    'causal'
    """
    options = LoadOptions.of(options, **changes)
    recipe = options.recipe_for(name)
    options = dataclasses.replace(options, recipe=recipe)
    if recipe.status == "unsupported":
        raise HubError(f"{name}: not supported: {recipe.reason}")
    if recipe.trust_remote_code and not options.trust_remote_code:
        raise HubError(f"{name}: {OWN_CODE}")
    folder, commit = locate(name, options)
    sources: dict[str, str] = {}
    commits = {name: commit}
    adapter: Path | None = None
    if (folder / "adapter_config.json").is_file():
        adapter = folder
        base, branch, folder, base_commit = base_of(name, adapter, options)
        commits[base], sources["base"] = base_commit, f"{base}@{base_commit}"
        if branch is not None:
            sources["base_asked"] = branch
    tokenizer_folder = adapter if adapter and (adapter / "tokenizer_config.json").is_file() else folder
    if recipe.tokenizer is not None:
        tokenizer_folder, tokenizer_commit = locate(recipe.tokenizer, LoadOptions(), small_files_only=True)
        commits[recipe.tokenizer] = tokenizer_commit
        sources["tokenizer"] = f"{recipe.tokenizer}@{tokenizer_commit}"
    commits = {repository: at for repository, at in commits.items() if not is_local(repository)}
    code = pin_code(name, (folder, tokenizer_folder), commits) if options.trust_remote_code else None
    if code is not None and code[0] not in commits:
        sources["code"] = "@".join(code)

    from rmcalib.judges._inference import loading

    asked = loading.Asked(name, recipe, options, None if code is None else code[1])
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
        max_length=longest_text(name, parts.config, tokenizer, parts.kind, recipe, options.max_length),
        sources=sources,
        dtype_from=parts.dtype_from,
    )


def locate(name: str, options: LoadOptions, *, small_files_only: bool = False) -> tuple[Path, str]:
    """Return the folder with a model's files, and their commit or SHA-256; download them if needed."""
    commit = identify(name, options.revision)
    if is_local(name):
        local = DEMO if name == "demo" else Path(name)
        if not small_files_only:
            _check_pickle(name, local, options.allow_pickle)
        return local, commit
    head_file = None if options.recipe is None else options.recipe.head_file
    folder = fetch_model(
        name,
        commit,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        allow_pickle=options.allow_pickle,
        extra_files=() if head_file is None else tuple(head_file.split()),
        small_files_only=small_files_only,
    )
    return folder, commit


def identify(name: str, revision: str | None = None) -> str:
    """Return the commit of a Hub model, or the SHA-256 of a local model's files. Nothing is downloaded."""
    if not is_local(name):
        return resolve_commit(check_model_name(name), revision=revision)
    if revision is not None:
        raise HubError(f"revision: {name} is a folder; only Hub models have revisions")
    return _digest(DEMO if name == "demo" else Path(name))


def is_local(name: str) -> bool:
    """Return whether a model is on this machine: the demo, or a folder."""
    return name == "demo" or kind_on_disk(name) == "folder"


def check_model_name(name: str) -> str:
    """Return `name` if it is a local model or can be a Hub id; else raise a `HubError`."""
    if not is_local(name) and kind_on_disk(name) == "file":
        raise HubError(f"{name}: is a file; give the folder that it is in: {Path(name).parent}")
    return name if is_local(name) else check_repo_id(name)


def base_of(
    name: str, adapter: Path, options: LoadOptions, *, small_files_only: bool = False
) -> tuple[str, str | None, Path, str]:
    """Locate the base model of a PEFT adapter: its name, the revision asked for, its folder, its commit."""
    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if not base:
        raise HubError(f"{name}: a PEFT adapter that names no base model (base_model_name_or_path)")
    try:
        asked = dataclasses.replace(options, revision=revision)
        folder, commit = locate(base, asked, small_files_only=small_files_only)
    except HubError as error:
        raise HubError(f"{name}: its base model cannot be loaded: {error}") from error
    return base, revision, folder, commit


def _check_pickle(name: str, folder: Path, allow_pickle: bool) -> None:
    pickles = [*folder.glob("pytorch_model*.bin"), *folder.glob("adapter_model.bin")]
    if pickles and not has_safe_weights(folder) and not allow_pickle:
        raise HubError(f"{name}: {PICKLE_ONLY}")


def _digest(folder: Path) -> str:
    """Hash all files of a local model, so that a checkpoint saved over another one is noticed."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        with path.open("rb") as file:
            total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def longest_text(name: str, config: Any, tokenizer: Any, kind: str, recipe: Recipe, asked: int | None) -> int:
    """Return the longest text in tokens: as asked for, but never more than the model has positions."""
    text = config.get_text_config() if hasattr(config, "get_text_config") else config
    own = getattr(text, "max_position_embeddings", None) or getattr(text, "n_positions", None)
    said = getattr(tokenizer, "model_max_length", None)
    if said is not None and said < 10**6 and (own is None or kind == "encoder"):
        own = min(said, own or said)  # some positions of an encoder are not for text
    limit = recipe.max_length or own
    if asked is None:
        return min(limit or LONGEST_DEFAULT, LONGEST_DEFAULT)
    if asked < 8:
        raise ValueError(f"max_length: {asked} tokens are too few for a text (give 8 or more)")
    if limit is not None and asked > limit:
        raise ValueError(f"max_length: {asked} is more than the {limit} tokens that {name} can read")
    return asked

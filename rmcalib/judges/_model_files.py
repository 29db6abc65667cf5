"""Find the files of a model: a Hub id, a local folder, a PEFT adapter with its base, or the demo."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

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

__all__ = ["ModelFiles", "check_model_name", "find_files", "identify", "is_local", "locate"]

DEMO = Path(__file__).parents[1] / "demo" / "model"


@dataclass(frozen=True)
class ModelFiles:
    """Where the files of a model are.

    Attributes
    ----------
    commit : str
        The model's commit, or the SHA-256 of a local folder's files.
    weights, tokenizer : Path
        Folders with the weights (of an adapter: those of its base) and the tokenizer.
    adapter : Path, optional
        Folder of a PEFT adapter; None for other models.
    base : tuple[str, str], optional
        Name and commit of the adapter's base model.
    code_commit : str, optional
        Commit of code in another repository.
    sources : dict[str, str]
        Other repositories that were used, for the manifest.
    """

    commit: str
    weights: Path
    tokenizer: Path
    adapter: Path | None
    base: tuple[str, str] | None
    code_commit: str | None
    sources: dict[str, str]


def find_files(
    name: str, options: LoadOptions, *, tokenizer: str | None = None, small_files_only: bool = False
) -> ModelFiles:
    """Find the files of a model, of an adapter's base, and of another repository's `tokenizer`."""
    if options.recipe_for(name).trust_remote_code and not options.trust_remote_code:
        raise HubError(f"{name}: {OWN_CODE}")
    folder, commit = locate(name, options, small_files_only=small_files_only)
    sources: dict[str, str] = {}
    commits = {name: commit}
    adapter, base = None, None
    if (folder / "adapter_config.json").is_file():
        adapter = folder
        base_name, branch, folder, at = _base_of(name, adapter, options, small_files_only=small_files_only)
        base, commits[base_name], sources["base"] = (base_name, at), at, f"{base_name}@{at}"
        if branch is not None:
            sources["base_asked"] = branch
    tokenizer_folder = adapter if adapter and (adapter / "tokenizer_config.json").is_file() else folder
    if tokenizer is not None:
        tokenizer_folder, at = locate(tokenizer, LoadOptions(), small_files_only=True)
        commits[tokenizer], sources["tokenizer"] = at, f"{tokenizer}@{at}"
    commits = {repository: at for repository, at in commits.items() if not is_local(repository)}
    code = pin_code(name, (folder, tokenizer_folder), commits) if options.trust_remote_code else None
    if code is not None and code[0] not in commits:
        sources["code"] = "@".join(code)
    code_commit = None if code is None else code[1]
    return ModelFiles(commit, folder, tokenizer_folder, adapter, base, code_commit, sources)


def locate(name: str, options: LoadOptions, *, small_files_only: bool = False) -> tuple[Path, str]:
    """Return the folder with a model's files; they are downloaded if needed.

    Parameters
    ----------
    name : str
        A Hub id, a local folder, or `"demo"`.
    options : LoadOptions
        Options for loading the model: the revision, and which files are allowed.
    small_files_only : bool
        Leave out the weights.

    Returns
    -------
    tuple of (Path, str)
        The folder, and the commit on the Hub or the SHA-256 of a local folder's files.

    Examples
    --------
    >>> folder, _ = locate("demo", LoadOptions())
    >>> (folder / "config.json").is_file()
    True
    """
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
    """Return what identifies the files of a model. Nothing is downloaded.

    Parameters
    ----------
    name : str
        A Hub id, a local folder, or `"demo"`.
    revision : str, optional
        Branch, tag or commit; only for Hub models.

    Returns
    -------
    str
        The commit of a Hub model, or the SHA-256 of a local model's files.

    Examples
    --------
    >>> len(identify("demo"))
    64
    """
    if not is_local(name):
        return resolve_commit(check_model_name(name), revision=revision)
    if revision is not None:
        raise HubError(f"revision: {name} is a folder; only models of the Hub have revisions")
    return _digest(DEMO if name == "demo" else Path(name))


def is_local(name: str) -> bool:
    """Return whether a model is on this machine.

    Parameters
    ----------
    name : str
        The name of the model.

    Returns
    -------
    bool
        True for `"demo"` and for folders.

    Examples
    --------
    >>> is_local("demo"), is_local("org/name")
    (True, False)
    """
    return name == "demo" or kind_on_disk(name) == "folder"


def check_model_name(name: str) -> str:
    """Return `name` if it is a local model or can be a Hub id; otherwise raise a `HubError`."""
    if not is_local(name) and kind_on_disk(name) == "file":
        raise HubError(f"{name}: is a file; give its folder: {Path(name).parent}")
    return name if is_local(name) else check_repo_id(name)


def _base_of(
    name: str, adapter: Path, options: LoadOptions, *, small_files_only: bool = False
) -> tuple[str, str | None, Path, str]:
    """Return the name, the requested revision, the folder and the commit of a PEFT adapter's base model."""
    settings = json.loads((adapter / "adapter_config.json").read_text(encoding="utf-8"))
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if not base:
        raise HubError(
            f"{name}: a PEFT adapter without a base model: base_model_name_or_path is missing in "
            "adapter_config.json"
        )
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
    """Hash all files of a local model, so that a replaced checkpoint is noticed."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        with path.open("rb") as file:
            total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()

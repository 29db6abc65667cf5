"""Find the files of a model: a Hub id, a local folder, a PEFT adapter with its base, or the demo."""

from __future__ import annotations

import dataclasses
import hashlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rmcalib._util.files import kind_on_disk, read_object
from rmcalib._util.hub import (
    OWN_CODE,
    PICKLE_ONLY,
    HubError,
    check_repo_id,
    fetch_model,
    has_safe_weights,
    resolve_commit,
)
from rmcalib.judges._checks import read_json
from rmcalib.judges._settings import LoadOptions

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
        base_name, branch = _base_of(name, adapter, options)
        try:
            asked = dataclasses.replace(options, revision=branch)
            folder, at = locate(base_name, asked, small_files_only=small_files_only)
        except HubError as error:
            raise HubError(f"{name}: its base model cannot be loaded: {error}") from error
        base, commits[base_name], sources["base"] = (base_name, at), at, f"{base_name}@{at}"
        if branch is not None:
            sources["base_asked"] = branch
    tokenizer_folder = adapter if adapter and (adapter / "tokenizer_config.json").is_file() else folder
    if tokenizer is not None:
        tokenizer_folder, at = locate(tokenizer, LoadOptions(), small_files_only=True)
        commits[tokenizer], sources["tokenizer"] = at, f"{tokenizer}@{at}"
    commits = {repository: at for repository, at in commits.items() if not is_local(repository)}
    code = _pin_code(name, (folder, tokenizer_folder), commits) if options.trust_remote_code else None
    if code is not None and code[0] not in commits:
        sources["code"] = "@".join(code)
    code_commit = None if code is None else code[1]
    return ModelFiles(commit, folder, tokenizer_folder, adapter, base, code_commit, sources)


def locate(name: str, options: LoadOptions, *, small_files_only: bool = False) -> tuple[Path, str]:
    """Return the folder with a model's files, downloaded if needed, and its commit or SHA-256."""
    commit = identify(name, options.revision)
    if is_local(name):
        local = DEMO if name == "demo" else Path(name)
        pickles = [*local.glob("pytorch_model*.bin"), *local.glob("adapter_model.bin")]
        if pickles and not (small_files_only or has_safe_weights(local) or options.allow_pickle):
            raise HubError(f"{name}: {PICKLE_ONLY}")
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
    """Return the commit of a Hub model, or the SHA-256 of a local model's files. Nothing is downloaded.

    >>> len(identify("demo"))
    64
    """
    if not is_local(name):
        return resolve_commit(check_model_name(name), revision=revision)
    if revision is not None:
        raise HubError(f"revision: {name} is a folder; only models of the Hub have revisions")
    folder, total = DEMO if name == "demo" else Path(name), hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")):
        with path.open("rb") as file:
            total.update(f"{path.name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


def is_local(name: str) -> bool:
    """Return whether a model is on this machine: `"demo"`, or a folder.

    >>> is_local("demo"), is_local("org/name")
    (True, False)
    """
    return name == "demo" or kind_on_disk(name) == "folder"


def model_from(name: str) -> str:
    """Return where a model is taken from, for manifests: `demo`, `folder` or `hub`."""
    return "demo" if name == "demo" else "folder" if is_local(name) else "hub"


def check_model_name(name: str) -> str:
    """Return `name` if it is a local model or can be a Hub id; otherwise raise a `HubError`.

    A folder that is named like a Hub id is used, with a warning that says so.
    """
    if not is_local(name):
        if kind_on_disk(name) == "file":
            raise HubError(f"{name}: is a file; give its folder: {Path(name).parent}")
        return check_repo_id(name)
    if re.fullmatch(r"\w[\w.-]*/[\w.-]+", name):
        warnings.warn(
            f"{name}: the folder of this name is used, not the Hub's model (write ./{name} to say so)",
            stacklevel=2,
        )
    return name


def _base_of(name: str, adapter: Path, options: LoadOptions) -> tuple[str, str | None]:
    """Return the name and the requested revision of a PEFT adapter's base model.

    An adapter may not choose a folder of this machine: only the user may.
    """
    settings = read_json(name, adapter / "adapter_config.json")
    base, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if options.base is not None:
        return options.base, revision if base == options.base and isinstance(revision, str) else None
    if not isinstance(base, str) or not base:
        raise HubError(
            f"{name}: a PEFT adapter without a base model (base_model_name_or_path in adapter_config.json): "
            "give its base model (`base`)"
        )
    if is_local(base):
        raise HubError(f"{name}: its base model is the folder {base!r}: give it (`base`) if that is right")
    return base, revision if isinstance(revision, str) else None


def _pin_code(name: str, folders: Iterable[Path], known: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the repository and commit of code that `folders` use from another repository; None if none.

    A configuration may point to another repository's code (`other/repo--module.Class`). transformers would
    use that repository's newest commit. `known` has commits that are known already, such as the model's own,
    because files saved by transformers often point to their original repository. transformers takes only one
    `code_revision`, so code of several repositories cannot be pinned.
    """
    references = (
        reference
        for folder in folders
        for file in ("config.json", "tokenizer_config.json")
        for reference in _texts(read_object(folder / file).get("auto_map"))
    )
    found = list(dict.fromkeys(text.split("--")[0] for text in references if "--" in text))
    if not found:
        return None
    if len(found) > 1:
        raise HubError(
            f"{name}: its code is in several repositories ({', '.join(found)}), which cannot be pinned to "
            "commits: copy the code into the model's folder, and remove `repository--` in auto_map"
        )
    try:
        return found[0], known.get(found[0]) or resolve_commit(found[0])
    except HubError as error:
        raise HubError(f"{name}: its code in another repository is not available: {error}") from error


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of an `auto_map`. A tokenizer's entry is a pair, one of which may be missing."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)

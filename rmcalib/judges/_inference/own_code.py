"""Where a checkpoint's own Python code comes from: its files, or another repository, pinned to a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError, resolve_commit

__all__ = ["code_repositories", "pin_code"]


def pin_code(name: str, folders: Iterable[Path], known: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the repository and commit of code that `folders` borrow from the Hub, or None if they do not.

    A configuration may point to another repository's code (`other/repo--module.Class`), which transformers
    would take from that repository's newest commit, whatever the model's. ``known`` are commits that are
    settled already, such as the model's own: files saved by transformers often point to where they are from.
    transformers takes one ``code_revision``, so code of several repositories cannot be pinned.
    """
    found = code_repositories(folders)
    if not found:
        return None
    if len(found) > 1:
        raise HubError(
            f"{name}: its code is in several repositories ({', '.join(found)}), which cannot be pinned to "
            "commits: copy it into the model's folder, and name it without `repository--` in auto_map"
        )
    try:
        return found[0], known.get(found[0]) or resolve_commit(found[0])
    except HubError as error:
        raise HubError(f"{name}: the code that it imports is not available: {error}") from error


def code_repositories(folders: Iterable[Path]) -> list[str]:
    """List the repositories that the configurations in `folders` take code from, without their own files.

    >>> import json
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     auto_map = {"AutoModel": "org/code--modeling.Model", "AutoConfig": "configuration.Config"}
    ...     _ = Path(folder, "config.json").write_text(json.dumps({"auto_map": auto_map}))
    ...     code_repositories([Path(folder)])
    ['org/code']
    """
    references = (
        reference
        for folder in folders
        for file in ("config.json", "tokenizer_config.json")
        for reference in _texts(read_object(folder / file).get("auto_map"))
    )
    return list(dict.fromkeys(text.split("--")[0] for text in references if "--" in text))


def _texts(value: Any) -> Iterator[str]:
    """All texts of an `auto_map`: a tokenizer's entry is a pair of which one may be missing."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)

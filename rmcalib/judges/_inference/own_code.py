"""Pin a checkpoint's own Python code to a commit if it is in another repository."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.files import read_object
from rmcalib._util.hub import HubError, resolve_commit

__all__ = ["code_repositories", "pin_code"]


def pin_code(name: str, folders: Iterable[Path], known: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the repository and commit of code that `folders` use from another repository; None if none.

    A configuration may point to another repository's code (`other/repo--module.Class`). transformers would
    use that repository's newest commit. `known` has commits that are known already, such as the model's own,
    because files saved by transformers often point to their original repository. transformers takes only one
    `code_revision`, so code of several repositories cannot be pinned.
    """
    found = code_repositories(folders)
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


def code_repositories(folders: Iterable[Path]) -> list[str]:
    """Return the other repositories whose code the configurations in `folders` use.

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
    """Yield all texts of an `auto_map`. A tokenizer's entry is a pair, one of which may be missing."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)

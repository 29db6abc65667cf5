"""Where results are: a folder, or the URL of a folder in object storage such as ``s3://bucket/runs``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer

from rmcalib._util.files import check_output

__all__ = [
    "Place",
    "input_file",
    "is_url",
    "output_file",
    "output_folder",
    "refuse_overwriting",
    "writes_stdout",
]

Place = Annotated[
    str,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Folder for the results, or a URL such as s3://bucket/runs.",
        rich_help_panel="What to report",
    ),
]


def output_folder(place: str) -> Path:
    """Return the path of ``--output``, which may be a URL.

    >>> output_folder("runs").as_posix()
    'runs'
    """
    from rmcalib._util.storage import as_path

    if not place.strip():
        raise ValueError("--output: an empty name; '.' is the current folder")
    return as_path(place)


def is_url(text: str) -> bool:
    """Return whether a text is a URL; `Path` would drop one of its slashes.

    >>> is_url("http://example.org/x.csv"), is_url("C:/x.csv")
    (True, False)
    """
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def input_file(text: str) -> Path:
    """Return the path of a local file that an option names, to read it.

    >>> input_file("c.json").name
    'c.json'
    """
    return _local_file(text, "download the file and give its path")


def output_file(text: str) -> Path:
    """Return the path of a local file that an option names, to write it; ``-`` is standard output.

    >>> output_file("m.md").name
    'm.md'
    """
    path = _local_file(text, "give a file of this machine")
    if path.is_dir():
        raise typer.BadParameter(f"'{text}' is a directory; name a file")
    try:
        check_output(path)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return path


def writes_stdout(targets: Mapping[str, str | Path | None], *, as_json: bool) -> bool:
    """Return whether an option writes to standard output (``-``), so that the command prints nothing there.

    >>> writes_stdout({"--markdown": Path("-")}, as_json=False), writes_stdout({"--to": None}, as_json=True)
    (True, False)
    """
    taken = [f"{option} -" for option, target in targets.items() if str(target) == "-"]
    if len(taken) + as_json > 1:
        others = " and ".join([*taken[1:], *(["--json"] if as_json else [])])
        raise ValueError(f"{taken[0]}: {others} writes to standard output too; name a file")
    return bool(taken)


def refuse_overwriting(option: str, target: str | Path | None, read: Iterable[str | Path | None]) -> None:
    """Raise a ValueError if a file to write is one that the command reads, or belongs to a run it reads."""
    if target is None or is_url(str(target)):
        return
    file = Path(target).resolve()
    for source in read:
        if source is None or is_url(str(source)):
            continue
        place = Path(source).resolve()
        if file == place or (file.parent == place and file.name in ("run.json", "scores.parquet")):
            raise ValueError(f"{option} {target}: this command reads that file; name another one")


def _local_file(text: str, remedy: str) -> Path:
    """Return a path that is neither empty nor a URL; ``remedy`` says what to do about a URL."""
    if not str(text).strip():
        raise typer.BadParameter("an empty name; name a file")
    if is_url(str(text)):
        raise typer.BadParameter(f"{text}: a URL; {remedy}")
    return Path(text)

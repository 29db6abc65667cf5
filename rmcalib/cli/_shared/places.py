"""Where results are: a folder, or the URL of a folder in object storage such as ``s3://bucket/runs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Place", "output_folder"]

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

"""Where results are, as people name it: a folder, or the URL of a remote place such as ``s3://bucket/runs``."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import re

__all__ = ["Place", "Places"]

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


class Places:
    """The places of one command, as paths of this machine while it is entered.

    >>> with Places() as places:
    ...     places.folder("runs").as_posix(), places.copy("scores.parquet").as_posix()
    ('runs', 'scores.parquet')
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._stack = contextlib.ExitStack()
        self._names: dict[str, str] = {}

    def __enter__(self) -> Places:
        """Do nothing yet."""
        return self

    def __exit__(self, *error: object) -> bool | None:
        """Upload what is left, and throw the copies away."""
        return self._stack.__exit__(*error)  # type: ignore[arg-type]

    def folder(self, place: str, *, needed: re.Pattern[str] | None = None) -> Path:
        """Return a folder that stands for ``place``: what is written there is uploaded as it comes.

        ``needed`` says what of it is brought here. If uploads fail for good, the command ends; see
        :func:`rmcalib._util.remote.mirrored`.
        """
        from rmcalib._util.remote import is_remote, mirrored

        if not place.strip():
            raise ValueError("--output: an empty name; '.' is the current folder")
        if is_remote(place) and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise ValueError(f"--output {place}: several processes need a folder that all of them can reach")
        return self._remember(
            self._stack.enter_context(mirrored(place, needed=needed, on_failure=_interrupt)), place
        )

    def copy(self, place: str) -> Path:
        """Return a path with the runs, or the file, that ``place`` has."""
        from rmcalib._util.remote import fetched

        return self._remember(self._stack.enter_context(fetched(place)), place)

    def shown(self, text: object) -> str:
        """Return ``text`` as people should see it: with the places they named, not our copies of them."""
        line = str(text)
        for folder, place in self._names.items():
            line = line.replace(folder, place)
        return line

    def _remember(self, path: Path, place: str) -> Path:
        from rmcalib._util.remote import is_remote

        if is_remote(place):
            self._names[str(path)] = place.rstrip("/")
        return path


def _interrupt() -> None:
    """End what the main thread does, also if it waits for something."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

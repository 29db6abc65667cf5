"""The tables and figures of results/, from the rows of scripts/reproduce_paper.py."""

from pathlib import Path
from typing import Any


def write_report(tables: dict[str, list[dict[str, Any]]], folder: Path, published: Path | None) -> None:
    pass

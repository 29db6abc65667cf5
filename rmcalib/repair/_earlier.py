"""Which files `calibrate` and `combine` may replace: their own earlier results, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from rmcalib._util.files import kind_on_disk
from rmcalib.repair._calibrator import Calibrator
from rmcalib.scores import Scores

__all__ = ["replaces_calibrator", "replaces_panel"]


def replaces_calibrator(path: str | Path) -> bool:
    """Return whether a calibrator would be replaced if one were written to `path`.

    Parameters
    ----------
    path : str | Path
        Where `rmcalib calibrate` will write (`--to`).

    Returns
    -------
    bool
        True if an earlier calibrator is there, False if nothing is.

    Raises
    ------
    ValueError
        If something else is there, which must not be lost.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "calibrator.json"
    ...     before = replaces_calibrator(file)
    ...     _ = Calibrator(2.0, 1.8, 2.3).save(file)
    ...     before, replaces_calibrator(file)
    (False, True)
    """
    return _replaces(Path(path), _is_calibrator, "a calibrator", "calibrator.json")


def replaces_panel(path: str | Path, inputs: Iterable[str | Path] = ()) -> bool:
    """Return whether the scores of a panel would be replaced if others were written to `path`.

    Parameters
    ----------
    path : str | Path
        Where `rmcalib combine` will write (`--to`).
    inputs : Iterable[str | Path]
        The files and folders that are combined; none of them is ever replaced.

    Returns
    -------
    bool
        True if the scores of an earlier panel are there, False if nothing is.

    Raises
    ------
    ValueError
        If something else is there, which must not be lost.

    Examples
    --------
    >>> replaces_panel("a-new-file.parquet")
    False
    """
    target = Path(path)
    if any(target.resolve() == Path(one).resolve() for one in inputs):
        raise ValueError(f"--to {path}: is one of the runs to combine; give another file")
    return _replaces(target, _is_panel, "the scores of a panel", "panel.parquet")


def _replaces(path: Path, is_own: Callable[[Path], bool], what: str, example: str) -> bool:
    kind = kind_on_disk(path)
    if kind == "folder":  # also "", which is the current folder
        raise ValueError(f"--to {path}: is a folder; name a file, such as {example}")
    if kind is None:
        return False
    if not is_own(path):
        raise ValueError(f"--to {path}: exists and is not {what}; give another file, or remove it first")
    return True


def _is_calibrator(path: Path) -> bool:
    try:
        Calibrator.load(path)
    except (OSError, ValueError):
        return False
    return True


def _is_panel(path: Path) -> bool:
    try:
        manifest = Scores.from_parquet(path).manifest
    except (OSError, ValueError):
        return False
    return "panel" in manifest and "status" not in manifest  # a run of a panel's scores has a status

"""A function of the user's own file that labels samples: `--label-from check.py:function`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any


def label_function(place: str, rollouts: str | Path) -> Callable[[dict[str, Any]], Any]:
    """Load a function from a Python file, which is run for that.

    Parameters
    ----------
    place : str
        ``FILE.py:function``. The function takes the row of a sample as it is in the rollouts, a dictionary, and
        returns 1 (correct), 0, a share, or None if it does not know.
    rollouts : str or Path
        The folder of rollouts. A file in it is refused: whoever writes samples must not run code.

    Returns
    -------
    function

    Examples
    --------
    >>> label_function("check.py", "rollouts")
    Traceback (most recent call last):
    ValueError: label_from: 'check.py': expected FILE.py:function
    """
    file, _, name = place.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise ValueError(f"label_from: {place!r}: expected FILE.py:function")
    path, folder = Path(file).resolve(), Path(rollouts).resolve()
    if folder.is_file():
        folder = folder.parent
    if any(way.is_relative_to(folder) for way in (path, Path(file).parent.resolve())):  # or a link in it
        raise ValueError(
            f"label_from: {file} is in the folder of rollouts, whose files are never run; move it"
        )
    if not path.is_file():
        raise ValueError(f"label_from: {file}: no such file")
    spec = importlib.util.spec_from_file_location("rmcalib_label_from", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"label_from: {file} failed: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"label_from: {file} has no function {name!r}")
    return function

"""Child processes that import only what is installed, never a module of the current folder."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["isolated"]


def isolated(code: str, *args: str) -> list[str]:
    """Return the command that runs Python `code` in a new process, isolated from the current folder.

    Installed packages come first. Where this process found rmcalib and other modules comes last, without the
    current folder: `./torch.py` is never imported.

    >>> import subprocess
    >>> subprocess.run(isolated("import sys; print(sys.argv[1])", "hello"), capture_output=True).stdout
    b'hello\\n'
    """
    here = {"", ".", str(Path.cwd())}
    own = [str(Path(__file__).resolve().parents[2]), *(path for path in sys.path if path not in here)]
    paths = list(dict.fromkeys(own))
    setup = f"import sys; sys.path += [path for path in {paths!r} if path not in sys.path]"
    return [sys.executable, "-I", "-W", "ignore", "-c", f"{setup}\n{code}", *args]

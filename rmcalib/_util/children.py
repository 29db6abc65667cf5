"""Child processes that import only what is installed, never a module of the current folder."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["isolated"]

# Finds this rmcalib wherever it is, without the other modules of its parent folder.
_SETUP = """
import importlib.util, sys
class Own:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "rmcalib":
            return importlib.util.spec_from_file_location(
                name, {folder!r} + "/__init__.py", submodule_search_locations=[{folder!r}]
            )
sys.meta_path.insert(0, Own)
sys.path += [path for path in {paths!r} if path not in sys.path]
"""


def isolated(code: str, *args: str) -> list[str]:
    """Return the command that runs Python `code` in a new process, isolated from the current folder.

    Installed packages come first, then whatever else this process can import from, without the current
    folder: `./torch.py` is never imported.

    >>> import subprocess
    >>> subprocess.run(isolated("import sys; print(sys.argv[1])", "hello"), capture_output=True).stdout
    b'hello\\n'
    """
    paths = [path for path in sys.path if path not in ("", ".", str(Path.cwd()))]
    setup = _SETUP.format(folder=str(Path(__file__).resolve().parents[1]), paths=paths)
    return [sys.executable, "-I", "-W", "ignore", "-c", f"{setup}\n{code}", *args]

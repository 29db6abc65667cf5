"""Processes: several that work on one job, child processes, and Ctrl-C.

With ``torchrun`` or ``accelerate launch``, each process scores a part of the prompts. If one process fails, it
reports why, and the launcher ends the others.
"""

from __future__ import annotations

import contextlib
import datetime
import multiprocessing
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from rmcalib import __version__

# Processes may have very different amounts to score. If one dies, the launcher ends all.
_PATIENCE = datetime.timedelta(days=7)
_CLOSING = 0.5  # seconds
_PACKAGES = (
    *("torch", "transformers", "tokenizers", "datasets"),
    *("huggingface_hub", "accelerate", "peft", "numpy"),
)
INTERRUPTED = 130  # the exit code that shells expect after Ctrl-C
_AGAIN = 1.0  # seconds; launchers forward a Ctrl-C to processes that already got it from the terminal


class PeerError(RuntimeError):
    """Another process of the job was lost. The message says how to go on."""


def process_rank() -> tuple[int, int]:
    """Return the rank of this process and the number of processes: (0, 1) unless a launcher started several.

    torchrun and accelerate set all of these variables. A RANK that something else left in the environment
    must not turn a command into a silent helper of a job that does not exist.
    """
    if not (os.environ.get("MASTER_ADDR") and os.environ.get("MASTER_PORT")):
        return 0, 1
    try:
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return 0, 1
    return (rank, world) if 0 <= rank < world else (0, 1)


def is_main_process() -> bool:
    """Return whether this process prints, joins the parts and writes reports."""
    return process_rank()[0] == 0


def may_draw() -> bool:
    """Return whether this process should draw progress bars: the main process, on a terminal."""
    return sys.stderr.isatty() and is_main_process()


class Team:
    """The processes of one job; `joined` creates it in each of them.

    >>> with joined() as team:
    ...     team.gather("here")
    ['here']
    """

    def __init__(self, rank: int = 0, world: int = 1, group: Any = None) -> None:
        """Store the arguments; `group` is a gloo process group, or None for the default one."""
        self.rank, self.world, self._group = rank, world, group

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all processes, by rank. No process continues before all have called this."""
        if self.world == 1:
            return [value]
        from torch import distributed

        values: list[Any] = [None] * self.world
        try:
            distributed.all_gather_object(values, value, group=self._group)
        except RuntimeError as error:
            raise PeerError(
                "another process of this job was lost; what is scored is kept: run the same command again"
            ) from error
        return values


@contextlib.contextmanager
def joined() -> Iterator[Team]:
    """Join the processes of the launcher for the length of the block. All of them must call it.

    An existing process group, such as that of a training script, is used and kept.
    """
    rank, world = process_rank()
    if world == 1:
        yield Team()
        return
    from torch import distributed
    from torch.distributed.rendezvous import rendezvous

    ours = not distributed.is_initialized()
    if ours:
        store, _, _ = next(rendezvous("env://", rank, world))
        store.set_timeout(_PATIENCE)
        number = store.add(f"rmcalib, process {rank}", 1)  # separates several jobs of one script
        store = distributed.PrefixStore(f"rmcalib {number}", store)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=_PATIENCE)
    shared = distributed.get_backend() == "gloo"
    yield Team(rank, world, None if shared else distributed.new_group(backend="gloo", timeout=_PATIENCE))
    if ours:  # not after an error: the others would notice before this process has reported it
        # Gloo's threads release the last messages. Without this, torch 2.6 can deadlock in the next line.
        time.sleep(_CLOSING)
        distributed.destroy_process_group()
        # Gloo's threads still handle the last messages; a process that ends now would be aborted.
        time.sleep(_CLOSING)


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


def package_versions() -> dict[str, str]:
    """Return the versions of Python, rmcalib and the packages that affect scores.

    >>> "numpy" in package_versions()
    True
    """
    from importlib.metadata import PackageNotFoundError, version

    versions = {"rmcalib": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


# Ctrl-C: the first one ends a command cleanly, a later second one ends it at once.


def answer_interrupts() -> None:
    """Let the first Ctrl-C raise KeyboardInterrupt. A second one, over a second later, ends the process.

    So the cleanup is never interrupted halfway. It finishes, or the process ends as with ``kill -9``, after
    which every command can be resumed. If Ctrl-C is ignored (``nohup``), it stays ignored.
    """
    first: float | None = None

    def answer(*_: object) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic()
            raise KeyboardInterrupt
        if time.monotonic() - first > _AGAIN:
            end_now()

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, answer)


def end_now(code: int = INTERRUPTED) -> NoReturn:
    """End the process without waiting for threads, which may hang in a download."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # the reader has closed it
            continue
    os._exit(code)


@contextlib.contextmanager
def spared() -> Iterator[None]:
    """Block Ctrl-C for processes that are started in the block; their parent handles it.

    >>> with spared():
    ...     signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    True
    """
    if not hasattr(signal, "pthread_sigmask"):  # not on Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # child processes inherit the mask
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """End this process, which `multiprocessing` has started, when its parent ends for any reason."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

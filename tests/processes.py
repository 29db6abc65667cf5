"""Run Python in a new process without waiting for imports.

Importing torch, pandas and Matplotlib takes seconds. Here, one server per test session imports them once, and
every process is a fork of it. Libraries that read settings from the environment when they are imported
(huggingface_hub, transformers, datasets) are imported in the new process. Tests that interrupt a process start it
with `subprocess`. Tests that need such libraries with the same settings share a `prepared` process.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import Pipe, get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any
from unittest import mock

from tests.hooks import PATIENCE

IMPORTED = [
    "aiohttp",
    "jinja2.sandbox",
    "matplotlib.pyplot",
    "pandas",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "requests",
    "rich.console",
    "rmcalib.cli.eval",
    "rmcalib.repair",
    "rmcalib.report",
    "scipy.stats",
    "seaborn",
    "sklearn.linear_model",
    "torch._dynamo",
    "torch.distributed.tensor",
    "torch.export",
    "torch.utils.data",
    "cyclopts",
    "yaml",
]


def run_python(
    arguments: Sequence[object], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Like ``subprocess.run([sys.executable, *arguments])``; arguments begin with ``-c`` or ``-m``."""
    words = [str(word) for word in arguments]
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "out"), Path(folder, "err")
        process = start_python(words, cwd=cwd, env=env, output=files)
        process.join(PATIENCE)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired(words, PATIENCE)
        out, err = (file.read_text(encoding="utf-8") for file in files)
    return subprocess.CompletedProcess(words, process.exitcode, out, err)


@contextlib.contextmanager
def prepared(
    setup: str, env: Mapping[str, str]
) -> Iterator[Callable[[str], subprocess.CompletedProcess[str]]]:
    """Run `setup` in a new process once; what is yielded runs code after it, each time in a fork."""
    ours, theirs = Pipe()
    process = _server().Process(target=_prepare, args=(setup, dict(env), theirs))
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
        process.start()
    theirs.close()

    def run(code: str) -> subprocess.CompletedProcess[str]:
        ours.send(code)
        if not ours.poll(PATIENCE):
            process.kill()
            raise subprocess.TimeoutExpired(code, PATIENCE)
        return subprocess.CompletedProcess(code, *ours.recv())

    try:
        yield run
    finally:
        ours.close()
        process.join(PATIENCE)


def _prepare(setup: str, env: dict[str, str], connection: Any) -> None:
    _replace_environment(env)
    names = {"__name__": "__main__"}
    exec(setup, names)
    with contextlib.suppress(EOFError):  # the test has ended
        while True:
            code = connection.recv()
            with tempfile.TemporaryDirectory() as folder:
                files = Path(folder, "out"), Path(folder, "err")
                fork = get_context("fork").Process(target=_continue, args=(code, names, *map(str, files)))
                fork.start()
                fork.join()
                connection.send((fork.exitcode, *(file.read_text(encoding="utf-8") for file in files)))


def _continue(code: str, names: dict[str, Any], out: str, err: str) -> None:
    _print_to(out, err)
    exec(code, names)


def start_python(
    arguments: Sequence[object],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    output: tuple[Path, Path] = (Path(os.devnull), Path(os.devnull)),
) -> ForkServerProcess:
    """Start a process like `run_python`, without waiting for its end."""
    words, files = map(str, arguments), map(str, output)
    process = _server().Process(
        target=_work, args=([*words], str(cwd or Path.cwd()), dict(env or os.environ), *files)
    )
    with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):  # the server must not have threads
        process.start()
    return process


def _server() -> ForkServerContext:
    context = get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def _print_to(out: str, err: str) -> None:
    for descriptor, path in ((1, out), (2, err)):
        with open(path, "wb") as file:  # noqa: PTH123
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))


def _replace_environment(env: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def _work(words: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    _print_to(out, err)
    _replace_environment(env)
    os.chdir(cwd)
    sys.argv = words[:1] + words[2:]
    sys.path.insert(0, "" if words[0] == "-c" else cwd)
    exec(env.get("TESTS_AT_START", ""), {})
    if words[0] == "-c":
        exec(words[1], {"__name__": "__main__"})
    else:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)

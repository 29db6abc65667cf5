"""Run Python in a new process without waiting for imports.

Importing torch, pandas and Matplotlib takes seconds. Here, one server per test session imports them once, and
every process is a fork of it. Libraries that read settings from the environment when they are imported
(huggingface_hub, transformers, datasets) are imported in the new process. Tests that interrupt a process start it
with `subprocess`.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
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


def _work(words: list[str], cwd: str, env: dict[str, str], out: str, err: str) -> None:
    for descriptor, path in ((1, out), (2, err)):
        with open(path, "wb") as file:  # noqa: PTH123
            os.dup2(file.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = words[:1] + words[2:]
    sys.path.insert(0, "" if words[0] == "-c" else cwd)
    exec(env.get("TESTS_AT_START", ""), {})
    if words[0] == "-c":
        exec(words[1], {"__name__": "__main__"})
    else:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)

"""Ctrl-C: one line and exit code 130 at any time, no leftover processes, and a second one ends at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.hooks import PATIENCE


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE)


def test_an_interrupt_during_imports() -> None:
    done = run("""
import signal, sys
class Interrupt:
    def find_spec(self, name, *_):
        if name == "cyclopts":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupt())
from rmcalib.__main__ import main
main()
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "rmcalib: interrupted\n")


def test_hanging_threads_are_not_waited_for() -> None:
    done = run("""
import signal, sys, threading, time
import rmcalib.cli
def work():
    threading.Thread(target=time.sleep, args=(600,)).start()
    signal.raise_signal(signal.SIGINT)
rmcalib.cli.app = lambda *_: work()
from rmcalib.__main__ import main
main()
""")
    reported = "rmcalib: interrupted; run the same command again to continue\n"
    assert (done.returncode, done.stderr) == (130, reported)


def test_an_immediate_second_interrupt_is_ignored_and_a_later_one_ends() -> None:
    done = run("""
import signal, time
from rmcalib._util import processes
processes.answer_interrupts()
try:
    signal.raise_signal(signal.SIGINT)
except KeyboardInterrupt:
    print("once")
signal.raise_signal(signal.SIGINT)  # forwarded by a launcher
print("still there")
now = time.monotonic()
processes.time.monotonic = lambda: now + 2
signal.raise_signal(signal.SIGINT)
print("never")
""")
    assert (done.returncode, done.stdout, done.stderr) == (130, "once\nstill there\n", "")


def test_an_ignored_interrupt_stays_ignored() -> None:
    done = run("""
import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)  # as under nohup
from rmcalib._util.processes import answer_interrupts
answer_interrupts()
signal.raise_signal(signal.SIGINT)
print("goes on")
""")
    assert (done.returncode, done.stdout) == (0, "goes on\n")


def test_processes_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text("""
import os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from rmcalib._util.processes import end_with_parent, spared
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=end_with_parent)
    with spared():
        child = pool.submit(os.getpid).result()
    os.kill(child, signal.SIGINT)  # is blocked there
    assert pool.submit(os.getpid).result() == child
    pool.submit(time.sleep, 600)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
""")
    # To a file: a remaining child would keep a pipe open.
    with (tmp_path / "out").open("w") as out:
        command, error = [sys.executable, str(script)], subprocess.STDOUT
        done = subprocess.run(command, stdout=out, stderr=error, timeout=PATIENCE)
    output = (tmp_path / "out").read_text()
    assert done.returncode == -signal.SIGKILL, output
    child, deadline = int(output.split()[0]), time.monotonic() + PATIENCE
    while _runs(child):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(process: int) -> bool:
    try:
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE  # its parent may be gone
    except psutil.NoSuchProcess:
        return False

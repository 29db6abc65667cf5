"""Hold a process back at a known place, so that what a test does to it never depends on who is faster."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

FOLDER = Path(__file__).parent
PATIENCE = 600.0  # seconds that are enough on any machine: only a test that fails waits so long

_HOLD = """
import os, time
from pathlib import Path
from rmcalib.runs._run import Run

parts = 0

def add(run, scored, *, add=Run.add):
    global parts
    add(run, scored)
    parts += 1
    end = time.monotonic() + {patience}
    while {condition}:
        time.sleep(0.02)
        if time.monotonic() > end:
            os._exit(70)  # the test has died: nobody should be left behind

Run.add = add
"""


def at_start(env: Mapping[str, str], code: str) -> dict[str, str]:
    """Let every Python process of this environment run `code` before anything else."""
    paths = os.pathsep.join(path for path in (str(FOLDER), env.get("PYTHONPATH", "")) if path)
    return {**env, "PYTHONPATH": paths, "TESTS_AT_START": code}


def held(env: Mapping[str, str], condition: str) -> dict[str, str]:
    """Let whoever writes a part of a run wait there as long as `condition` holds.

    It is an expression about the `run`, the `parts` that the process has written so far, and anything of
    `os` and `Path`.
    """
    return at_start(env, _HOLD.format(condition=condition, patience=PATIENCE))


def wait_for(condition: Callable[[], object], alive: Callable[[], object] = lambda: True) -> None:
    """Wait until the condition holds; not longer than what it waits for is `alive`."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert alive(), "it ended before what was waited for"
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)

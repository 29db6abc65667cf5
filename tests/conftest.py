"""Settings of all tests: the same examples everywhere, a working Ctrl-C, a plain terminal."""

from __future__ import annotations

import os
import signal

# Several test processes share few cores: threads inside of them would only wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import matplotlib.font_manager  # noqa: F401 (see below)
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# Examples must not fail because the machine is busy, and must be the same on every day.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
# They must not depend on imports either: Hypothesis would also try constants of the modules that are loaded.
providers._get_local_constants = lambda: providers._local_constants

# Processes in the background (nohup, a script's &) ignore Ctrl-C, and so do their children. Tests that
# interrupt a process need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A proxy would not find the servers of the tests, which are on this machine. The output of commands must not
# depend on the terminal and the colours that are set here.
for name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(name, None)
    os.environ.pop(name.upper(), None)
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
os.environ.pop("GITHUB_ACTIONS", None)  # rich would assume a terminal

# On a new machine, Matplotlib searches for fonts at its first import, and prints a message if that takes
# seconds. It is imported above, so that the message does not appear in the output of a command.

pytest_plugins = ["tests.fixtures"]


def pytest_xdist_auto_num_workers() -> int:
    """Two test processes more than there are cores: many tests wait for servers and for other processes."""
    return (os.cpu_count() or 1) + 2

"""What holds for all tests, wherever they run: the same examples, a Ctrl-C that arrives, a plain terminal."""

from __future__ import annotations

import os
import signal

import matplotlib.font_manager  # noqa: F401 (see below)
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# No example may fail because the machine is busy, or because today's are others than yesterday's.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
# Nor because of what was imported before: Hypothesis would also try numbers and words that it finds in there.
providers._get_local_constants = lambda: providers._local_constants

# What is started in the background (nohup, a script's &) ignores Ctrl-C, and so does all that it starts: what
# is to be interrupted here would never hear of it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The servers of the tests are on this machine, where a proxy does not find them; and the command line is to
# print what it prints for anybody, not for the terminal or in the colours that somebody wants here.
for name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ.pop(name, None)
    os.environ.pop(name.upper(), None)
for name in ("COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "PY_COLORS", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(name, None)
os.environ.pop("GITHUB_ACTIONS", None)  # typer takes it for a terminal

# On a machine where it has never run, Matplotlib looks for fonts as soon as it is imported, and if that takes
# some seconds, says so on standard error: better above than where a command should say nothing.

pytest_plugins = ["tests.fixtures"]

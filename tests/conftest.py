"""What holds for all tests: the same examples every time, and a Ctrl-C that is heard."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# No example may fail because the machine is busy, or because today's are others than yesterday's.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# A shell's background jobs ignore it, and so would the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

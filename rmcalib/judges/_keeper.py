"""Run a command until it ends, a signal comes, or the process that asked for it has died.

This file is started by its path, with the process id of whoever asks and the command. It imports nothing of
rmcalib, so that it starts at once. The command runs in a separate process group, and the whole group is
ended: servers have processes of their own, which would keep a GPU.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from typing import Any

_LOOK = 0.2  # seconds between two looks at the parent
_PATIENCE = 20.0  # seconds to end after SIGTERM, before SIGKILL


def main() -> int:
    """Return the exit code of the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    stopping = False

    def stop(*_: Any) -> None:
        nonlocal stopping
        stopping = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    server = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL)
    while server.poll() is None and not stopping and os.getppid() == parent:
        time.sleep(_LOOK)
    _signal_group(server.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        server.wait(_PATIENCE)
    _signal_group(server.pid, signal.SIGKILL)
    return server.wait() & 0xFF


def _signal_group(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


if __name__ == "__main__":
    sys.exit(main())

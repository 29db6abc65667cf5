"""``python -m rmcalib`` is ``rmcalib``."""

import ctypes
import sys
import warnings

from rmcalib._util.processes import INTERRUPTED, answer_interrupts, end_now

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # in glibc's malloc.h


def keep_memory() -> None:
    """Keep freed memory for the next arrays, where the C library is glibc: clean pages take time."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        for option in (_TRIM_THRESHOLD, _MMAP_THRESHOLD):
            mallopt(option, 2**28)


def main() -> None:
    """Run the command line in this process, which Ctrl-C may interrupt at any moment."""
    answer_interrupts()
    keep_memory()
    # Our figures are flat. matplotlib works without its 3D axes, which take long to import, but warns.
    sys.modules["mpl_toolkits.mplot3d"] = None  # type: ignore[assignment]
    warnings.filterwarnings("ignore", message="Unable to import Axes3D")
    try:
        from rmcalib.cli import main as run

        run()
    except KeyboardInterrupt:  # while that was imported
        sys.stderr.write("rmcalib: interrupted\n")
        end_now()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            end_now()
        raise


if __name__ == "__main__":
    main()

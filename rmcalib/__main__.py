"""``python -m rmcalib`` is ``rmcalib``."""

import sys
import warnings

from rmcalib._util.processes import INTERRUPTED, answer_interrupts, end_now


def main() -> None:
    """Run the command line in this process, which Ctrl-C may interrupt at any moment."""
    answer_interrupts()
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

"""Places that are not this machine's disk: results on any fsspec URL, such as ``s3://bucket/runs``.

Everything else in rmcalib reads and writes local folders. ``mirrored`` gives it one that follows a URL, and
``fetched`` one with a copy of what a URL has.
"""

from rmcalib._util.remote.mirror import Pace, mirrored, runs_in
from rmcalib._util.remote.store import RemoteError, is_remote
from rmcalib._util.remote.transfer import fetched

__all__ = ["Pace", "RemoteError", "fetched", "is_remote", "mirrored", "runs_in"]

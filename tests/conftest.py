"""What holds for all tests: the same examples every time, and no threads that fight for the cores."""

from __future__ import annotations

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

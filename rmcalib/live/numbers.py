"""Counts of a server, as Prometheus reads them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

_SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 180.0)
_SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)
_REWARDS = (-20.0, -10.0, -5.0, -2.0, -1.0, 0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass
class Histogram:
    """How many values are at most each limit; their number and sum."""

    limits: Sequence[float]
    sum: float = 0.0
    counts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Begin with nothing."""
        self.counts = [0] * (len(self.limits) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.sum += value
        place = next((n for n, limit in enumerate(self.limits) if value <= limit), len(self.limits))
        self.counts[place] += 1

    def lines(self, name: str) -> list[str]:
        """Return the lines of the text format."""
        lines, total = [], 0
        for limit, number in zip([*map("{:g}".format, self.limits), "+Inf"], self.counts, strict=True):
            total += number
            lines.append(f'{name}_bucket{{le="{limit}"}} {total}')
        return [*lines, f"{name}_sum {self.sum:.9g}", f"{name}_count {total}"]


class Numbers:
    """What a server has done so far."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = Histogram(_SECONDS)
        self.batches = Histogram(_SIZES)
        self.rewards = Histogram(_REWARDS)

    def text(self, **more: tuple[str, str, float]) -> str:
        """Return everything in Prometheus's text format; `more` has help, type and value by name."""
        lines = [
            "# HELP rmcalib_requests_total Requests by dialect and status.",
            "# TYPE rmcalib_requests_total counter",
        ]
        lines += [
            f'rmcalib_requests_total{{dialect="{dialect}",status="{status}"}} {number}'
            for (dialect, status), number in sorted(self.requests.items())
        ]
        for name, about, histogram in (
            ("rmcalib_request_seconds", "Seconds from a request to its answer.", self.seconds),
            ("rmcalib_batch_samples", "Samples in a batch.", self.batches),
            ("rmcalib_reward", "Rewards that were answered.", self.rewards),
        ):
            lines += [f"# HELP {name} {about}", f"# TYPE {name} histogram", *histogram.lines(name)]
        for name, (about, kind, value) in more.items():
            lines += [
                f"# HELP rmcalib_{name} {about}",
                f"# TYPE rmcalib_{name} {kind}",
                f"rmcalib_{name} {value:g}",
            ]
        return "\n".join(lines) + "\n"

"""Alarms that stay valid however often one looks at a training run.

An alarm is a small class in a file of its own: its name, its statistic, its margin and its sentence. `monitor.Monitor`
does the rest: windows, error spending, clusters. To add an alarm, write such a class, and put it into a list below.
"""

from rmcalib.integrations.alarms.agreement import Agreement
from rmcalib.integrations.alarms.check import Change, Check, Observed, Sums
from rmcalib.integrations.alarms.copies import Copies
from rmcalib.integrations.alarms.form import Contains
from rmcalib.integrations.alarms.gap import Gap
from rmcalib.integrations.alarms.length import Length
from rmcalib.integrations.alarms.monitor import Monitor
from rmcalib.integrations.alarms.order import Order
from rmcalib.integrations.alarms.outside import Outside
from rmcalib.scores.rollouts import FORMS

ERRORS: tuple[Check, ...] = (Gap(), Order())
"""What labels show: the reward is wrong about the samples."""
CHANGES: tuple[Change, ...] = (Outside(), Agreement(), Length(), Copies(), *map(Contains, FORMS))
"""What needs no labels: the samples are not what they were at the start. A change is not an error."""

__all__ = ["CHANGES", "ERRORS", "Change", "Check", "Monitor", "Observed", "Sums"]

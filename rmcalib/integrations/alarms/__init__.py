"""Alarms that stay valid however often one looks at a training run.

An alarm is a class in a file of its own: its name, its share of the error budget, its statistic (`Sums` of each
prompt) and its sentence. `monitor.Monitor` does the rest: windows, error spending, clusters. To add an alarm, write
such a class and put it into `ERRORS`. A change of a value that needs no labels is one row of `CHANGES`.
"""

from rmcalib.integrations.alarms.changes import CHANGES, agreement
from rmcalib.integrations.alarms.gap import Gap
from rmcalib.integrations.alarms.monitor import Check, Monitor, Observed, Sums, Value
from rmcalib.integrations.alarms.order import Order

ERRORS: tuple[Check, ...] = (Gap(), Order())
"""What labels show: the reward is wrong about the samples."""

__all__ = ["CHANGES", "ERRORS", "Check", "Gap", "Monitor", "Observed", "Order", "Sums", "Value", "agreement"]

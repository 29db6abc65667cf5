"""Samples that training frameworks write become scores with steps.

`frameworks` has the files of each framework, `columns` finds their rewards and labels, `samples` is a step as arrays,
and `reader` follows a folder that grows.
"""

from rmcalib.scores.rollouts.columns import Labeller
from rmcalib.scores.rollouts.frameworks import NoSamplesYetError
from rmcalib.scores.rollouts.reader import Look, RolloutReader
from rmcalib.scores.rollouts.samples import FORMS, StepSamples, forms_of, steps_of

__all__ = [
    "FORMS",
    "Labeller",
    "Look",
    "NoSamplesYetError",
    "RolloutReader",
    "StepSamples",
    "forms_of",
    "steps_of",
]

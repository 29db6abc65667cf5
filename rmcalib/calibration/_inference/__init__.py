"""Intervals and tests of calibration errors, by simulating alternatives and inverting.

Sampling noise pushes a calibration error up, so quantiles of resampled errors lie too high. Instead, outcomes
are drawn under alternatives whose miscalibration has the observed shape and a growing size: none, the
observed one, and more. The interval holds the true errors of all alternatives under which the observed error
is not extreme. The alternative without miscalibration is the null of `ece_null`, so that interval and test
agree. The interval is united with the one for smooth statistics, which is right for large errors.
"""

from rmcalib.calibration._inference._binned import binned_inference, ece_interval
from rmcalib.calibration._inference._estimates import Difference, Inference, difference, mean_difference
from rmcalib.calibration._inference._pairwise import pairwise_inference
from rmcalib.calibration._inference._smooth import smooth_inference

__all__ = [
    "Difference",
    "Inference",
    "binned_inference",
    "difference",
    "ece_interval",
    "mean_difference",
    "pairwise_inference",
    "smooth_inference",
]

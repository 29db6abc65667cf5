"""Calibration of RLHF reward models, and of the distributions over rankings underneath them."""

__version__ = "0.1.0"

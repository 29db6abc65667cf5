"""Calibration of distributions over rankings: the notions of the paper and their uncertainty."""

"""The result of a notion: its error, with methods for the null test and the interval."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray
from rmcalib.calibration._intervals import Interval
from rmcalib.calibration._nulls import NullTest
from rmcalib.ranking.events import Family

__all__ = ["NotionProtocol", "NotionResult", "Uncertainty"]

NotionProtocol = Literal["exact", "reference"]
"""How an error is computed: by its definition, or as the paper's public code does."""


class Uncertainty(Protocol):
    """What computes the null test and the interval of a result."""

    def null(self, *, resamples: int, rng: np.random.Generator | int) -> NullTest:
        """Compare the error with that of a calibrated forecast."""
        ...

    def interval(self, *, resamples: int, level: float, rng: np.random.Generator | int) -> Interval:
        """Return the error with a confidence interval."""
        ...


@dataclass(frozen=True, eq=False)
class NotionResult:
    """The calibration error under one notion.

    Attributes
    ----------
    value : float
        The error, ``weights @ per_event``.
    per_event : float array (E,)
        The error of each event.
    events : int array (E, k)
        The events.
    weights : float array (E,)
        Weights of the average, which sum to 1. Those of ``full_rank`` sum over the classes of each set of
        items and average over sets.
    family, k
        What the events are.
    n : int
        Number of instances.
    protocol : {"exact", "reference"}
        How it was computed.
    selection : str
        How the events were chosen.
    marginal_error : float
        The largest standard error of a marginal; 0 if all are exact.

    Examples
    --------
    >>> from rmcalib.calibration import sub_k
    >>> from rmcalib.ranking import PlackettLuce
    >>> sub_k(PlackettLuce([[2.0, 0.0, 0.0]] * 3), [[0, 1, 2]] * 3, 2)
    NotionResult(sub-2: 0.246135, 6 events (all), 3 instances, exact)
    """

    value: float
    per_event: FloatArray
    events: IntArray
    weights: FloatArray
    family: Family
    k: int
    n: int
    protocol: NotionProtocol
    selection: str
    marginal_error: float = 0.0
    uncertainty: Uncertainty | None = field(default=None, repr=False)

    @property
    def n_events(self) -> int:
        """The number of events averaged over."""
        return len(self.events)

    def null(self, *, resamples: int = 200, rng: np.random.Generator | int = 0) -> NullTest:
        """Compare the error with the errors of a calibrated forecast at this sample size.

        Rankings are drawn from the forecast itself. Events that were selected by their frequency in the
        evaluated rankings are selected again in every draw.

        Parameters
        ----------
        resamples : int
            Number of simulated data sets.
        rng : numpy Generator or int
            Source of randomness, or its seed.

        Returns
        -------
        NullTest
            The error, the null's mean and 95% point, and the p-value of calibration.

        Examples
        --------
        >>> from rmcalib.calibration import sub_k
        >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
        >>> data = synthetic_plackett_luce(300, 3, confidence=3.0, rng=np.random.default_rng(0))
        >>> sub_k(data.forecast, data.orders, 2).null().p_value < 0.01
        True
        """
        return self._known().null(resamples=resamples, rng=rng)

    def interval(
        self, *, resamples: int = 200, level: float = 0.95, rng: np.random.Generator | int = 0
    ) -> Interval:
        """Return a confidence interval of the error; for ``full_rank``, of its excess over the null mean.

        Parameters
        ----------
        resamples : int
            Number of simulated data sets.
        level : float
            Probability that the interval contains the true error.
        rng : numpy Generator or int
            Source of randomness, or its seed.

        Returns
        -------
        Interval
            The error (or excess) and its limits.

        Examples
        --------
        >>> from rmcalib.calibration import sub_k
        >>> from rmcalib.ranking.synthetic import synthetic_plackett_luce
        >>> data = synthetic_plackett_luce(300, 3, rng=np.random.default_rng(0))
        >>> sub_k(data.forecast, data.orders, 2).interval().low
        0.0
        """
        return self._known().interval(resamples=resamples, level=level, rng=rng)

    def _known(self) -> Uncertainty:
        if self.uncertainty is None:
            raise ValueError(f"protocol: the {self.protocol} protocol has no null test and no interval")
        return self.uncertainty

    def __repr__(self) -> str:
        """Show the value and where it comes from, not the arrays."""
        return (
            f"NotionResult({self.family}-{self.k}: {self.value:.6g}, {self.n_events:,} events "
            f"({self.selection}), {self.n:,} instances, {self.protocol})"
        )

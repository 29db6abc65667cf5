"""A calibrator: one temperature, and the data it was fitted on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from annotated_types import Gt, Lt

from rmcalib._util.files import write_json
from rmcalib._util.storage import read_file
from rmcalib._util.terminal import count
from rmcalib._util.texts import parse_json, typed
from rmcalib.calibration import temperature_interval
from rmcalib.metrics import Forecasts, single_answers
from rmcalib.scores import Scores

__all__ = ["Calibrator", "CalibratorCheck", "labelled_forecasts"]

FORMAT = 1
"""The version of the file format."""


@dataclass(frozen=True)
class CalibratorCheck:
    """The result of :meth:`Calibrator.check`: whether a calibrator holds on other scores.

    Attributes
    ----------
    temperature : float
        The best temperature for the other scores.
    low, high : float
        Limits of its interval.
    n : int
        Number of prompts that it was fitted on.
    holds : bool
        Whether chance can explain the difference of the two temperatures, given both intervals.
    sentence : str
        The same in words.

    Examples
    --------
    >>> rewards = np.tile([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], (40, 1))
    >>> Calibrator(3.0, 2.5, 3.5).check(Scores.from_arrays(rewards)).holds
    True
    """

    temperature: float
    low: float
    high: float
    n: int
    holds: bool
    sentence: str


@dataclass(frozen=True)
class Calibrator:
    """Divides rewards by a temperature that was fitted on labelled prompts.

    A temperature is only valid for prompts like those it was fitted on. Use `check` before you use it on
    others.

    Parameters
    ----------
    temperature : float
        The number that rewards are divided by.
    low, high : float
        Limits of its interval.
    level : float
        Confidence level of the interval.
    model : str
        Name of the judge.
    fitted_on : Mapping[str, Any]
        What it was fitted on: benchmark, revision, n (prompts), categories, a hash of the scores, the model's
        revision, and the kind of judge.
    versions : Mapping[str, str]
        Versions of rmcalib, numpy and scipy.

    Examples
    --------
    >>> calibrator = Calibrator(2.0, 1.8, 2.3, model="org/rm", fitted_on={"benchmark": "mine", "n": 500})
    >>> calibrator.apply(Scores.from_arrays([[4.0, 2.0]])).reward.tolist()
    [2.0, 1.0]
    """

    temperature: Annotated[float, Gt(0)]
    low: Annotated[float, Gt(0)]
    high: Annotated[float, Gt(0)]
    level: Annotated[float, Gt(0), Lt(1)] = 0.95
    model: str = ""
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)

    def apply(self, scores: Scores) -> Scores:
        """Return the scores with rewards divided by the temperature; the manifest names the calibrator."""
        calibrated = scores.at_temperature(self.temperature)
        about = {"temperature": self.temperature, "fitted_on": dict(self.fitted_on)}
        return replace(calibrated, manifest={**calibrated.manifest, "calibrator": about})

    def check(self, scores: Scores) -> CalibratorCheck:
        """Fit the temperature of other scores, which are not calibrated yet, and compare it with this one.

        >>> rewards = np.tile([[2.0, 0.0], [2.0, 0.0], [0.0, 2.0]], (40, 1))
        >>> check = Calibrator(1.0, 0.9, 1.1).check(Scores.from_arrays(rewards))
        >>> check.holds, round(check.temperature, 2)
        (False, 2.89)
        """
        part = labelled_forecasts(scores)
        found = temperature_interval(part.reward, part.is_correct, part.prompt, level=self.level)
        holds = _agree((self.temperature, self.low, self.high), (found.value, found.low, found.high))
        where = f" on {self.fitted_on['benchmark']}" if self.fitted_on.get("benchmark") else ""
        n = self.fitted_on.get("n")
        size = f" ({count(n, 'prompt')})" if n else ""
        verdict = "holds here" if holds else "does not hold here"
        sentence = (
            f"The temperature {self.temperature:.3g} was fitted{where}{size} and {verdict}: on these "
            f"{count(len(part), 'prompt')} the best one is {found.value:.3g} [{found.low:.3g}, "
            f"{found.high:.3g}]."
        )
        return CalibratorCheck(found.value, found.low, found.high, len(part), holds, sentence)

    def save(self, path: str | Path) -> Path:
        """Write the calibrator as JSON."""
        return write_json(path, {"rmcalib_calibrator": FORMAT, **asdict(self)})

    @classmethod
    def load(cls, path: str | Path) -> Calibrator:
        """Read a file that `save` wrote.

        Raises
        ------
        ValueError
            If the file is not a calibrator; the message says what is wrong with it.
        """
        try:
            content = parse_json(read_file(Path(path)), str(path))
        except OSError as error:
            raise ValueError(f"{path}: {error.strerror or error}") from error
        if not isinstance(content, dict) or content.get("rmcalib_calibrator") != FORMAT:
            raise ValueError(f"{path}: not a calibrator; make one with `rmcalib calibrate`")
        known = {one.name for one in fields(cls)}
        values = {name: value for name, value in content.items() if name in known}
        found = typed(cls, values, str(path))
        if not np.isfinite(found.temperature):
            raise ValueError(f"{path}: temperature: {found.temperature!r} is not finite")
        typed(int, found.fitted_on.get("n", 0), f"{path}: fitted_on.n")
        return found


def _agree(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    """Return whether chance can explain the difference of two positive numbers, each with its limits.

    The limits of the difference d of their logarithms are d ± √(a² + b²), where a and b are the distances of
    the two from their limits on the side that faces the other.

    >>> _agree((2.0, 1.7, 2.4), (2.5, 2.1, 3.0)), _agree((2.0, 1.9, 2.1), (2.5, 2.3, 2.8))
    (True, False)
    """
    (lower, _, lower_high), (upper, upper_low, _) = sorted((one, other))
    if lower <= 0 or not np.isfinite(upper) or upper_low <= 0:  # no distance in logarithms
        return lower_high >= upper_low
    apart = np.log(upper / lower)
    return bool(apart <= np.hypot(np.log(lower_high / lower), np.log(upper / upper_low)))


def labelled_forecasts(scores: Scores) -> Forecasts:
    """Return the forecasts of the prompts with exactly one correct response, or raise if there are none."""
    found = single_answers(scores)
    if found is None:
        raise ValueError(
            "no prompt has exactly one correct response; a temperature is fitted on such prompts"
        )
    return found

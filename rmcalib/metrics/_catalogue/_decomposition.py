"""The Brier score and the log loss of the first choice: miscalibration, discrimination and uncertainty."""

from __future__ import annotations

from typing import Literal

from rmcalib.calibration import Decomposition, corp
from rmcalib.metrics._catalogue._metric import Metric
from rmcalib.metrics._events import accuracy_of, confidence_of
from rmcalib.metrics._forecasts import Forecasts, once
from rmcalib.metrics._statistic import Settings, Statistic

__all__ = ["DECOMPOSITION"]

Score = Literal["brier", "log"]
_PARTS = {
    "miscalibration": ("low", "how much isotonic recalibration would lower the {score} of the first choice"),
    "discrimination": (
        "high",
        "recalibrated {score} of the first choice: how much lower than with a constant probability",
    ),
    "uncertainty": (None, "{score} of the first choice with a constant probability"),
}
_UNITS = {"brier": "squared probability", "log": "nats"}
_SCORES = {"brier": "Brier score", "log": "log loss"}


@once
def _split(forecasts: Forecasts, score: Score) -> Decomposition:
    return corp(confidence_of(forecasts), accuracy_of(forecasts), score=score)


def _entry(score: Score, part: str) -> Metric:
    def statistic(forecasts: Forecasts, settings: Settings) -> Statistic:  # noqa: ARG001
        value = getattr(_split(forecasts, score), part)
        return Statistic.constant(value, len(forecasts), note="a wrong first choice has probability 1")

    better, meaning = _PARTS[part]
    return Metric(
        f"{score}_{part}",
        meaning.format(score=_SCORES[score]),
        statistic,
        better=better,  # type: ignore[arg-type]
        unit=_UNITS[score],
        label=f"{part} ({_SCORES[score]})",
        digits=4,
        group="decomposition",
        compared="nowhere",
        ranked="nowhere",
    )


_KINDS: tuple[Score, ...] = ("brier", "log")
DECOMPOSITION = tuple(_entry(score, part) for score in _KINDS for part in _PARTS)

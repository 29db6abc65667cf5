"""What a raw reward means: a probability, its log-odds, or the number itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from rmcalib._util.arrays import FloatArray, check_choice
from rmcalib._util.display import clean_line

if TYPE_CHECKING:
    from rmcalib.judges import Judge
    from rmcalib.repair import Calibrator
    from rmcalib.scores.scale import Scale

Output = Literal["p", "logit", "raw"]
# What the numbers of a function state by themselves, by their scale.
_STATED = {
    "utility": "best",
    "logprob": "best",
    "logit": "best",
    "log_odds": "correct",
    "probability": "correct",
}
_SQUASHED = ("probability", "logit")  # numbers from 0 to 1, whose log-odds are rewards


@dataclass(frozen=True, slots=True)
class Scored:
    """The reward of a sample.

    `reward` is what the optimiser gets, `raw` the judge's number, `probability` None if it is unknown, and
    `outside` whether the raw reward is beyond the range that the calibrator was fitted on.
    """

    reward: float
    raw: float
    probability: float | None
    outside: bool


@dataclass(frozen=True)
class Meaning:
    """Turns the raw rewards of a judge into what was asked for.

    With a calibrator of single responses, P(correct) = σ((r − b)/T); with one of best responses, P(best of its
    prompt) = softmax(r/T) over the responses to the prompt. Rewards beyond the fitted range count as its
    limits. Without a calibrator, `stated` is what the judge's own numbers state.
    """

    output: Output
    stated: str = ""
    calibrator: Calibrator | None = None
    squashed: bool = False
    """Whether the judge's numbers are from 0 to 1, and their log-odds are the rewards."""

    @property
    def event(self) -> str:
        """What the probability is of: "correct" (each response), "best" (of its prompt), or nothing."""
        if self.calibrator is None:
            return self.stated
        return "best" if self.calibrator.threshold is None else "correct"

    @property
    def needs_group(self) -> bool:
        """Whether the output depends on the other responses to the prompt."""
        return self.output == "p" and self.event == "best"

    def of(self, keys: Sequence[str], raw: Sequence[float]) -> list[Scored]:
        """Return the rewards of samples with these prompts."""
        given = np.asarray(raw, dtype=np.float64)
        rewards = _log_odds(given) if self.squashed else given
        low, high = self._range()
        log_odds, p = self._read(keys, np.clip(rewards, low, high))
        outside = (
            np.zeros(len(rewards), bool) if self.calibrator is None else self.calibrator.outside(rewards)
        )
        if self.needs_group and (alone := np.flatnonzero(np.isnan(p))).size:
            raise ValueError(
                f"prompt {keys[alone[0]][:60]!r}: P(best of its prompt) needs at least two responses to it at a "
                'time; use output="logit", or a calibrator that was fitted on labels of single responses'
            )
        chosen = {"raw": given, "logit": log_odds, "p": p}[self.output].tolist()
        known = [value if value == value else None for value in p.tolist()]
        rows = zip(chosen, given.tolist(), known, outside.tolist(), strict=True)
        return [Scored(*row) for row in rows]

    def _range(self) -> tuple[float, float]:
        reference = () if self.calibrator is None else self.calibrator.reference
        return (reference[0], reference[-1]) if reference else (-np.inf, np.inf)

    def _read(self, keys: Sequence[str], rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return log-odds (or log-utilities) and probabilities, NaN where there is none."""
        from scipy.special import expit

        if self.calibrator is not None:
            rewards = (rewards - (self.calibrator.threshold or 0.0)) / self.calibrator.temperature
        if self.event == "correct":
            return rewards, np.asarray(expit(rewards))
        return rewards, _softmax_by(keys, rewards) if self.event else np.full(len(rewards), np.nan)


def meaning_of(judge: Judge, calibrator: Calibrator | None, output: str) -> Meaning:
    """Return the meaning of a judge's rewards, or raise a ValueError if nothing makes that output of them."""
    check_choice(output, "output", get_args(Output))
    if calibrator is not None and calibrator.inputs:
        names = ", ".join(clean_line(one.name) for one in calibrator.inputs)
        raise ValueError(
            f"calibrator: is of a panel ({names}); give one that was fitted on {judge.name} alone"
        )
    squashed = judge.scale in _SQUASHED
    meaning = Meaning(output, _stated(judge.scale), calibrator, squashed)  # type: ignore[arg-type]
    if output != "raw" and not meaning.event:
        raise ValueError(
            f"output={output!r}: {judge.name} states no probabilities; give a calibrator (`rmcalib calibrate`), or "
            'take its numbers as they are: output="raw" (serve: --answer raw)'
        )
    return meaning


def _stated(scale: Scale | str) -> str:
    """Return what rewards state by themselves: P(best of its prompt), P(correct), or nothing."""
    if isinstance(scale, str):
        return _STATED.get(scale, "")
    if scale.states_correct:
        return "correct"
    utilities = scale.kind == "utility" and not scale.assumed
    return "best" if utilities or scale.kind == "probability" else ""


def _log_odds(p: FloatArray) -> FloatArray:
    """Return the log-odds of probabilities; 0 and 1 are moved inside by the precision of floats."""
    if not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"the judge's numbers are to be from 0 to 1, and one is {p[(p < 0) | (p > 1)][0]:g}")
    inside = np.clip(p, np.finfo(float).tiny, 1 - np.finfo(float).epsneg)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _softmax_by(keys: Sequence[str], values: FloatArray) -> FloatArray:
    """Return the softmax of values within equal keys; NaN where a key is alone."""
    from scipy.special import softmax

    groups: dict[str, list[int]] = {}
    for index, key in enumerate(keys):
        groups.setdefault(key, []).append(index)
    result = np.full(len(values), np.nan)
    for rows in groups.values():
        if len(rows) > 1:
            result[rows] = softmax(values[rows])
    return result

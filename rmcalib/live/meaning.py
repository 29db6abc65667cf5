"""What a raw reward means: a probability, its log-odds, or the number itself."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from rmcalib._util.arrays import FloatArray, check_choice
from rmcalib._util.display import clean_line
from rmcalib.judges.apis.samples import Scored

if TYPE_CHECKING:
    from rmcalib.judges import Judge
    from rmcalib.repair import Calibrator
    from rmcalib.scores.scale import Scale

Output = Literal["p", "log_p", "logit", "raw"]
Event = Literal["best", "correct", ""]
"""What a probability is of: each response, the best of its prompt, or nothing."""
# What the numbers of a function state by themselves, by their scale.
_STATED: dict[str, Event] = {
    "utility": "best",
    "logprob": "best",
    "logit": "best",
    "log_odds": "correct",
    "probability": "correct",
}
_SQUASHED = ("probability", "logit")  # numbers from 0 to 1, whose log-odds are rewards


@dataclass(frozen=True)
class Meaning:
    """Turns the raw rewards of judges into the requested output.

    The calibrator says what they mean: σ((r − b)/T) if it was fitted on single responses, else softmax(r/T) over
    the responses to a prompt. Rewards beyond the fitted range count as its limits. `squashed` says for each judge
    whether its numbers are from 0 to 1, so that their log-odds are the rewards.
    """

    output: Output
    event: Event
    calibrator: Calibrator
    squashed: tuple[bool, ...] = (False,)

    @property
    def needs_group(self) -> bool:
        """Whether the output depends on the other responses to the prompt."""
        return self.output in ("p", "log_p") and self.event == "best"

    def of(self, keys: Sequence[str], raw: Sequence[Sequence[float]]) -> list[Scored]:
        """Return the rewards of samples with these prompts from the numbers of each judge."""
        from scipy.special import log_expit

        used, given = self.calibrator, np.array(raw, dtype=np.float64).reshape(len(keys), -1)
        rewards = given.copy()
        for j in np.flatnonzero(self.squashed):
            rewards[:, j] = _log_odds(given[:, j])
        several = bool(used.inputs)
        rewards = rewards if several else rewards[:, 0]
        inside = used.within(rewards)
        logit, p = used.logit(inside), self._probabilities(keys, inside)
        log_p = log_expit(logit) if self.event == "correct" else np.log(np.maximum(p, np.finfo(float).tiny))
        single = used.one_reward(rewards) if several else given[:, 0]
        chosen = {"raw": single, "logit": logit, "p": p, "log_p": log_p}[self.output]
        stated = [value if value == value else None for value in p.tolist()]
        inputs = map(tuple, given.tolist() if several else [()] * len(keys))
        outside = used.outside(rewards).tolist()
        return [
            Scored(*row)
            for row in zip(chosen.tolist(), single.tolist(), stated, outside, inputs, strict=True)
        ]

    def _probabilities(self, keys: Sequence[str], rewards: FloatArray) -> FloatArray:
        """Return the probability of each response; NaN if there is none."""
        if self.event == "correct":
            return self.calibrator.p_correct(rewards)
        if self.event == "":
            return np.full(len(keys), np.nan)
        count = Counter(keys)
        alone = np.array([count[key] == 1 for key in keys], dtype=bool)
        if self.needs_group and alone.any():
            raise ValueError(
                f"prompt {keys[int(alone.argmax())][:60]!r}: P(best of its prompt) needs at least two responses to it "
                'at a time; use output="logit", or a calibrator that was fitted on labels of single responses'
            )
        return np.where(alone, np.nan, self.calibrator.p_best(rewards, list(keys)))


def meaning_of(judges: Sequence[Judge], calibrator: Calibrator | None, output: str) -> Meaning:
    """Return the meaning of judges' rewards, or raise a ValueError if nothing makes that output of them."""
    from rmcalib.repair import Calibrator

    check_choice(output, "output", get_args(Output))
    names = [judge.name for judge in judges]
    takes = [each.name for each in calibrator.inputs] if calibrator is not None else []
    if len(names) > 1 and not takes:
        raise ValueError(
            f"{len(names)} judges need a calibrator that takes the rewards of all of them (`rmcalib combine`)"
        )
    if len(names) != max(len(takes), 1):
        listed = ", ".join(map(clean_line, takes))
        raise ValueError(f"calibrator: it takes the rewards of {listed}; given: {', '.join(names)}")
    event: Event = _stated(judges[0].scale)
    if calibrator is not None and not takes and calibrator.model:
        ours, fitted = (_last(name).casefold() for name in (names[0], calibrator.model))
        if ours != fitted:
            warnings.warn(
                f"calibrator: it was fitted on scores of {clean_line(calibrator.model)}, and this is {names[0]}: the "
                "probabilities of another model are wrong",
                stacklevel=3,
            )
    if calibrator is not None:
        event = "best" if calibrator.threshold is None else "correct"
    if output != "raw" and not event:
        raise ValueError(
            f"output={output!r}: {names[0]} states no probabilities; give a calibrator (`rmcalib calibrate`), or "
            'take its numbers as they are: output="raw" (serve: --answer raw)'
        )
    used = calibrator or Calibrator(1.0, 1.0, 1.0, threshold=0.0 if event == "correct" else None)
    squashed = tuple(judge.scale in _SQUASHED for judge in judges)
    return Meaning(output, event, used, squashed)  # type: ignore[arg-type]


def in_order(judges: Sequence[Judge], calibrator: Calibrator | None) -> list[Judge]:
    """Return judges in the order of a calibrator's inputs; a ValueError names the first that is none of them."""
    inputs = () if calibrator is None else calibrator.inputs
    if len(inputs) != len(judges) or len(judges) == 1:
        return list(judges)
    left, ordered = list(judges), []
    for wanted in inputs:
        same = [judge for judge in left if judge.name == wanted.name]
        match = same or [judge for judge in left if _last(judge.name) == _last(wanted.name)]
        if len(match) != 1:
            have = ", ".join(clean_line(judge.name) for judge in left)
            raise ValueError(
                f"calibrator: it takes the rewards of {clean_line(wanted.name)}, which must be one of: {have}"
            )
        left.remove(match[0])
        ordered += match
    return ordered


def _last(name: str) -> str:
    return name.rstrip("/").rpartition("/")[2]


def _stated(scale: Scale | str) -> Event:
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

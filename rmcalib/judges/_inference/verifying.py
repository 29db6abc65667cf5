"""Check, while a benchmark is scored, that sharing prompts does not change rewards.

Some texts are scored again alone, and must get the same reward as with shared prompts. In the first chunk,
these are a response of each of the two shortest prompts, which share rows with others, and the longest text.
Later, it is the longest text of a chunk if it is much longer than all texts checked before, or the first one
that is longer than a window of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.judges._inference import forward
from rmcalib.judges._inference.architectures import lengths_to_check
from rmcalib.judges._inference.packing import Text

if TYPE_CHECKING:
    import torch

    from rmcalib.judges._reward_model import RewardModel


_MUCH_LONGER = 1.5
_TIMES_THE_NOISE = 4.0
# Largest difference of a reward, in epsilons of its dtype. A float64 model has a head in float32.
_EPSILONS = {"float64": 1e10, "float32": 1_000.0, "float16": 8.0, "bfloat16": 4.0}


class Verifier:
    """Chooses the texts to check, and remembers what has been checked.

    `longest` is the length of the longest text that was checked.
    """

    def __init__(self, model: RewardModel) -> None:
        """Nothing is checked yet."""
        self.model = model
        self.longest = 0
        self._noise = 0.0
        self._limits = lengths_to_check(model)

    def sample(self, texts: Sequence[Text]) -> list[Text]:
        """Return the texts of a chunk to check; empty if they are like those that have been checked."""
        if not texts:
            return []
        longest = max(texts, key=len)
        crosses = any(self.longest <= limit < len(longest) for limit in self._limits)
        if self.longest and not crosses and len(longest) <= _MUCH_LONGER * self.longest:
            return []
        if self.longest:
            return [longest]
        prompts: dict[int, list[Text]] = {}
        for text in texts:
            prompts.setdefault(text.prompt, []).append(text)
        groups = sorted(prompts.values(), key=lambda group: sum(map(len, group)))
        # The last response: if the mask were wrong, it would attend to the responses before it.
        short = [group[-1] for group in groups[:2]]
        return [*short, *([] if any(longest is text for text in short) else [longest])]

    def passed(self, sample: Sequence[Text]) -> None:
        """Record that the rewards of `sample` were right."""
        self.longest = max(self.longest, *map(len, sample))

    def disagreement(self, sample: Sequence[Text], shared: FloatArray) -> float:
        """Score each text of `sample` alone; return the largest difference from `shared` if it is too large.

        Otherwise return 0. The tolerance is measured, because rewards also change a little when the same
        texts are scored in one batch, padded to one length. A reward that is not finite is not a
        disagreement; the scorer reports it.
        """
        import torch

        alone = torch.cat([forward.plain_rewards(self.model, [text])[1] for text in sample])
        together = forward.plain_rewards(self.model, sample[:2])[1] if len(sample) > 1 else alone[:1]
        values = alone.double().cpu().numpy()
        noise = float(np.abs(together.double().cpu().numpy() - values[: len(together)]).max())
        self._noise = max(self._noise, noise)
        tolerance = max(_TIMES_THE_NOISE * self._noise, rounding(self.model.dtype, values))
        difference = float(np.abs(shared - values).max())
        return 0.0 if difference <= tolerance or not np.isfinite(values).all() else difference


def rounding(dtype: torch.dtype, rewards: FloatArray) -> float:
    """Return the largest difference of rewards by rounding: some epsilons times their range (at least 1).

    In bfloat16, sharing changed rewards by up to 1.5 epsilons of the largest one.

    >>> import torch
    >>> rounding(torch.bfloat16, np.array([-1.0, 3.0]))
    0.125
    """
    import torch

    factor = _EPSILONS.get(str(dtype).removeprefix("torch."), 4.0)
    scale = max(1.0, float(np.ptp(rewards))) if len(rewards) else 1.0
    return factor * float(torch.finfo(dtype).eps) * scale

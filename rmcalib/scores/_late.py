"""Labels of a run's samples that come later, in a file of their own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rmcalib.scores._files import read_table
from rmcalib.scores._schema import as_number

if TYPE_CHECKING:
    from rmcalib.scores.rollouts import StepSamples

_PROMPT = ("prompt", "input", "question", "prompt_id", "item_id")
_RESPONSE = ("response", "output", "completion", "answer", "text")
_LABEL = ("label", "is_correct", "correct", "acc")


@dataclass
class LateLabels:
    """A table with a row per labelled sample, which may grow while a run is watched.

    Its columns are the prompt, the response, the label and, optionally, the step and the inclusion probability
    (`inclusion`). Prompt and response are texts, or the id and the number of the response in the scores of
    `load_rollouts`.
    """

    path: str | Path
    _state: tuple[int, int] = (-1, -1)
    _known: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict, repr=False)

    def refresh(self, *, strict: bool) -> list[str]:
        """Read the file if it has changed; return a problem with it unless ``strict``."""
        try:
            about = Path(self.path).stat()
            state = (about.st_mtime_ns, about.st_size)
            if state != self._state:
                self._state = state
                self._known = self._read()
        except (ValueError, OSError) as error:
            first = not self._known
            if strict or first:
                raise ValueError(
                    str(error) if str(self.path) in str(error) else f"{self.path}: {error}"
                ) from error
            return [f"{error} (the labels before it are used)"]
        return []

    def _read(self) -> dict[tuple[str, str], tuple[float, float]]:
        table = read_table(self.path)
        names = {name.strip().lower(): name for name in table.columns}

        def column(known: tuple[str, ...]) -> str:
            for name in known:
                if name in names:
                    return names[name]
            have = ", ".join(table.columns)
            raise ValueError(f"{self.path}: no column {' or '.join(known)} (has {have})")

        prompt, response, label = column(_PROMPT), column(_RESPONSE), column(_LABEL)
        inclusion = names.get("inclusion")
        found: dict[tuple[str, str], tuple[float, float]] = {}
        for row in range(len(table)):
            value = table.columns[label][row]
            if value is None or value == "":
                continue
            number = as_number({"true": 1, "false": 0}.get(str(value).strip().lower(), value))
            if number is None or not 0 <= number <= 1:
                raise table.error(row, label, "no label: give true or false, 0 or 1, or a share from 0 to 1")
            chance = 1.0 if inclusion is None else as_number(table.columns[inclusion][row])
            if chance is None or not 0 < chance <= 1:
                raise table.error(row, str(inclusion), "expected a probability above 0, at most 1")
            key = (str(table.columns[prompt][row]), str(table.columns[response][row]))
            if key in found and found[key][0] != number:
                raise table.error(row, label, "the same sample has another label in an earlier row")
            found[key] = (number, 1 / chance)
        # Texts are known by their digests.
        return found | {(digest_of(one), digest_of(other)): value for (one, other), value in found.items()}

    def joined(self, samples: StepSamples) -> StepSamples:
        """Return samples with their labels and weights; a label that a sample has stays."""
        label, weight = samples.label.copy(), samples.weight.copy()
        count: dict[Any, int] = {}
        for row, prompt in enumerate(samples.prompt.tolist()):
            number = count[prompt] = count.get(prompt, -1) + 1
            keys = [(f"{prompt}@{samples.step:g}", str(number))]
            if samples.text is not None:
                keys.insert(0, (prompt, samples.text[row]))
            value = next((self._known[key] for key in keys if key in self._known), None)
            if value is not None and np.isnan(label[row]):
                label[row], weight[row] = value
        return replace(samples, label=label, weight=weight)


def digest_of(text: str) -> str:
    """Return the id of a text."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]

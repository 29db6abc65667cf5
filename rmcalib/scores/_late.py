"""Labels of a run's samples that come later, in a file of their own."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rmcalib._util.texts import brief, digest_of
from rmcalib.scores._files import read_table
from rmcalib.scores._joining import label_columns, label_rows, value_of
from rmcalib.scores._roles import listed

if TYPE_CHECKING:
    from rmcalib.scores.rollouts import StepSamples
    from rmcalib.scores.scale import Labels

_log = logging.getLogger("rmcalib")


class _Said(NamedTuple):
    """What a file says of a sample: its label, 1/P(it was drawn), and a second judge's score; NaN where unknown."""

    label: float
    weight: float
    second: float


@dataclass
class LateLabels:
    """A table with a row per labelled sample, which may grow while a run is watched.

    Its columns are the prompt, the response, the label, a second judge's score (`second`) or both and, optionally, the
    step and the inclusion probability (`inclusion`). Prompt and response are texts, or the id of the prompt and the
    number of the response, as in a sheet of `rmcalib label`: then ids of a run with several steps end in ``@step``.
    """

    path: str | Path
    labels_are: Labels | None = None
    """What the user says that labels mean; labels that name the best sample are refused unless it is "best"."""
    version: int = 0
    """How often labels were read."""
    has_labels: bool = True
    """Whether the file has a column of labels, not only a second judge's scores; as long as it is unread, it may."""
    _waits: bool = False
    _n_joined: int = 0
    _state: tuple[int, int] = (-1, -1)
    _known: dict[tuple[str, str], _Said] = field(default_factory=dict, repr=False)

    def refresh(self, *, strict: bool) -> list[str]:
        """Read the file if it has changed; return a problem with it unless ``strict``: then it may come later."""
        path = Path(self.path)
        try:
            if not strict and not (path.exists() and path.stat().st_size):
                if not self._waits:
                    _log.info("waiting: no labels in %s yet", path)
                self._waits = True
                return []
            about = path.stat()
            state = (about.st_mtime_ns, about.st_size)
            if state != self._state:
                self._state = state
                self._known = self._read()
                self._n_joined = 0
                self.version += 1
        except FileNotFoundError as error:
            raise ValueError(
                f"labels: there is no file {path}; `rmcalib label` draws samples to label, and --follow waits for them"
            ) from error
        except (ValueError, OSError) as error:
            first = not self._known
            if strict or first:
                raise ValueError(
                    str(error) if str(self.path) in str(error) else f"{self.path}: {error}"
                ) from error
            return [f"{error} (the labels before it are used)"]
        return []

    def _read(self) -> dict[tuple[str, str], _Said]:
        table = read_table(self.path)
        asked = set(table.columns["ask"]) if "ask" in table.columns else set()
        if "best" in asked and self.labels_are != "best":
            raise ValueError(
                f"{self.path}: its labels say which sample of a prompt is the best (ask), not whether each is correct; "
                "draw them by `rmcalib label FOLDER --ask correct`"
            )
        labels: dict[tuple[str, str], _Said] = {}
        by_text: dict[tuple[str, str], _Said] = {}
        for row in label_rows(table):
            if row.response is None:
                raise ValueError(f"{self.path}: no column `response` (has {listed(table.columns)})")
            said = _Said(
                value_of(row.label),
                1.0 if row.inclusion is None else 1 / row.inclusion,
                math.nan if row.second is None or math.isinf(row.second) else row.second,
            )
            if math.isnan(said.label) and math.isnan(said.second):
                continue
            key = (row.prompt, row.response)
            before = labels.get(key, said)
            for name in ("label", "second"):
                earlier, now = getattr(before, name), getattr(said, name)
                if earlier != now and not (math.isnan(earlier) or math.isnan(now)):
                    where = f"{self.path}: {table.place(row.row)}"
                    raise ValueError(f"{where}: the same sample has another {name} in an earlier row")
            first = before if math.isnan(said.label) else said
            labels[key] = first._replace(second=before.second if math.isnan(said.second) else said.second)
            if row.text:  # the response is a number
                by_text.setdefault((row.prompt, row.text), labels[key])
        self.has_labels = bool(label_columns(table))
        # Texts of samples are known by their digests; prompts of tables are texts or, if they are long, digests.
        texts = by_text | labels
        digests = {(prompt, digest_of(text)): said for (prompt, text), said in texts.items()}
        return (
            labels | digests | {(digest_of(prompt), text): said for (prompt, text), said in digests.items()}
        )

    def problem(self) -> str | None:
        """Return that no label is of a sample that was joined, if that is so."""
        if self._n_joined or not self._known:
            return None
        prompt, response = next(iter(self._known))
        return (
            f"{self.path}: none of its labels is of a sample of the run; looked for samples with its prompts and "
            f"responses, as texts or as PROMPT@STEP and a number, such as {brief(prompt)} and {brief(response)}"
        )

    def joined(self, samples: StepSamples, *, is_only: bool) -> StepSamples:
        """Return samples with labels, weights and second scores; what a sample has stays.

        If this is the only step, ids of prompts in a sheet are without it.
        """
        label, weight, second = samples.label.copy(), samples.weight.copy(), samples.second.copy()
        count: dict[Any, int] = {}
        for row, prompt in enumerate(samples.prompt.tolist()):
            number = count[prompt] = count.get(prompt, -1) + 1
            keys = [(f"{prompt}@{samples.step:.15g}", str(number))]
            if samples.text is not None:
                keys.insert(0, (prompt, samples.text[row]))
            elif is_only:
                keys.append((prompt, str(number)))
            said = next((self._known[key] for key in keys if key in self._known), None)
            if said is None:
                continue
            self._n_joined += 1
            if np.isnan(label[row]):
                label[row], weight[row] = said.label, said.weight
            if np.isnan(second[row]):
                second[row] = said.second
        return replace(samples, label=label, weight=weight, second=second)

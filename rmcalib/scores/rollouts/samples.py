"""The samples of a step as arrays."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray, IntArray
from rmcalib._util.texts import did_you_mean, digest_of
from rmcalib.scores._scores import Scores


class Form(NamedTuple):
    """Something that texts may contain: a pattern, and what it matches, in words."""

    pattern: re.Pattern[str]
    what: str


FORMS = {
    "markdown": Form(
        re.compile(r"^ {0,3}((?!#### [-$]?\d)#{1,6} |[-*+] |\d+[.)] |\|)|\*\*\S", re.MULTILINE),
        "headings, lists, tables or bold",
    ),
    "code": Form(re.compile(r"```"), "a code block"),
    "answer": Form(re.compile(r"\\boxed\{|<answer>|^#### [-$]?\d", re.MULTILINE), "a marked final answer"),
}
"""What samples may contain."""


def forms_of(texts: Iterable[str]) -> BoolArray:
    """Return which texts contain which of `FORMS`: (N, forms)."""
    rows = [[form.pattern.search(text) is not None for form in FORMS.values()] for text in texts]
    return np.array(rows, dtype=bool).reshape(-1, len(FORMS))


@dataclass(frozen=True)
class StepSamples:
    """The samples of a step as arrays (N,).

    ``prompt`` are texts, digests or numbers; ``reward`` the numbers as they are; ``label`` is NaN where it is unknown;
    ``text`` are digests of the samples; ``form`` (N, 3) is what they contain; ``weight`` is 1/P(the sample is
    labelled); ``second`` are the scores of a second judge, NaN where it was not asked.
    """

    step: float
    prompt: npt.NDArray[Any]
    reward: FloatArray
    label: FloatArray
    length: FloatArray
    weight: FloatArray
    second: FloatArray
    text: npt.NDArray[Any] | None = None
    form: BoolArray | None = None
    dropped: int = 0
    """Samples without a reward, which were left out."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.reward)

    def _arrays(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: array for name, array in values.items() if isinstance(array, np.ndarray)}

    def take(self, rows: Any) -> StepSamples:
        """Return some of them, or all in another order."""
        return replace(self, **{name: array[rows] for name, array in self._arrays().items()})

    @classmethod
    def joined(cls, parts: Sequence[StepSamples]) -> StepSamples:
        """Return the samples of a step that several files have."""
        if len(parts) == 1:
            return parts[0]
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in parts[0]._arrays()
        }
        return replace(parts[0], **arrays, dropped=sum(part.dropped for part in parts))

    @cached_property
    def labelled_prompts(self) -> IntArray:
        """The prompts with a label."""
        return np.unique(self.prompt[~np.isnan(self.label)])

    @cached_property
    def n_labels(self) -> int:
        """The number of samples with a label."""
        return int((~np.isnan(self.label)).sum())

    def repeated(self) -> BoolArray | None:
        """Return which samples are copies of an earlier one of their prompt; None without texts."""
        if self.text is None:
            return None
        keys = [*zip(self.prompt.tolist(), self.text.tolist(), strict=True)]
        first = {key: row for row, key in reversed([*enumerate(keys)])}
        return np.array([first[key] != row for row, key in enumerate(keys)], dtype=bool)

    def digest(self) -> bytes:
        """Return what identifies changed samples."""
        content = hashlib.sha256()
        for array in self._arrays().values():
            is_text = array.dtype == object
            content.update("\n".join(map(str, array)).encode() if is_text else array.tobytes())
        return content.digest()


def steps_of(scores: Scores, second: str | None = None) -> Iterable[StepSamples]:
    """Yield the steps of scores; scores without steps are one step, 0. ``second`` is a further column."""
    if second is not None and second not in scores.extra:
        raise ValueError(
            f"columns: no column {second!r} for second ({did_you_mean(second, [*scores.extra])})"
        )
    n, extra = len(scores), scores.extra
    steps = np.asarray(extra.get("step", np.zeros(n)), dtype=np.float64)
    texts = None if "response_text" not in extra else [str(text) for text in extra["response_text"]]
    length = extra.get("characters", np.full(n, np.nan))
    if "characters" not in extra and texts is not None:
        length = np.array([float(len(text)) for text in texts])
    whole = StepSamples(
        0.0,
        np.asarray(scores.item_id if scores.cluster is None else scores.cluster, dtype=object),
        scores.reward,
        scores.label,
        np.asarray(length, dtype=np.float64),
        np.ones(n),
        np.full(n, np.nan) if second is None else np.asarray(extra[second], dtype=np.float64),
        None if texts is None else np.array([digest_of(text) for text in texts], dtype=object),
        None if texts is None else forms_of(texts),
    )
    for step in np.unique(steps).tolist():
        yield replace(whole.take(steps == step), step=step)


Columns = dict[str, Any]


def scores_of(parts: Sequence[StepSamples], name: str, source: str) -> Scores:
    """Return steps as one table of scores."""
    return Scores.from_columns(*columns_of(parts, name, source), source=f"{source}, {name}")


def columns_of(
    parts: Sequence[StepSamples], name: str, source: str, texts: Mapping[str, str] | None = None
) -> tuple[Columns, dict[str, Any]]:
    """Return columns of scores, and their manifest. A prompt is an id of its own in each step, and a cluster over all.

    ``texts`` by their digests become further columns.
    """
    several = len(parts) > 1
    prompt = np.concatenate([part.prompt for part in parts])
    step = np.repeat([part.step for part in parts], [len(part) for part in parts])
    ids = (
        np.array([f"{name}@{at:.15g}" for name, at in zip(prompt, step, strict=True)]) if several else prompt
    )
    _, group = np.unique(ids.astype(str), return_inverse=True)
    order, sizes = np.argsort(group, kind="stable"), np.bincount(group)
    response = np.empty(len(ids), dtype=np.int64)
    response[order] = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    length = np.concatenate([part.length for part in parts])
    columns: Columns = {
        "item_id": ids,
        "response": response,
        "step": step,
        "reward": np.concatenate([part.reward for part in parts]),
        "label": np.concatenate([part.label for part in parts]),
        **({"cluster": prompt} if several else {}),
        **({} if np.isnan(length).any() else {"characters": length.astype(np.int64)}),
    }
    if texts is not None:
        for column, of in (("prompt_text", "prompt"), ("response_text", "text")):
            digests = np.concatenate([getattr(part, of) for part in parts])
            columns[column] = np.array([texts[str(digest)] for digest in digests], dtype=object)
    about: dict[str, Any] = {"model": name, "source": source}
    if dropped := sum(part.dropped for part in parts):
        about["missing"] = {"responses": dropped, "treated": "left out"}
    return columns, about

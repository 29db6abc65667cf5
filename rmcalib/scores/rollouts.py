"""Samples that training frameworks write become scores with steps.

=========  ====================================================  ==================================================
framework  files                                                 a row
=========  ====================================================  ==================================================
verl       `<step>.jsonl`                                        a sample: input, output, score, step, ...
TRL        `completions/completions_<step>.parquet`              a sample: step, prompt, completion, rewards
ms-swift   `completions.jsonl`                                   many samples as lists, or one; step or gen_step
NeMo-RL    `train_data_step<N>.jsonl`, `val_data_step...`        a sample: content, rewards, ...
SkyRL      `dumped_evals/global_step_<N>_evals/*.jsonl`          a sample: input_prompt, output_response, score
AReaL      `rollout/<version>/<task>.jsonl`                      a sample: prompt, completion, reward
rmcalib    `rewards-<N>.jsonl` of `rmcalib serve --log`          a sample: time, step, prompt, response, reward
=========  ====================================================  ==================================================

Files may still grow: a last line that is cut off is read next time. A step that is written again, because the run was
restarted, replaces the former one. A new framework is one entry of `LAYOUTS`.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rmcalib._util.arrays import BoolArray, FloatArray
from rmcalib._util.storage import read_input
from rmcalib._util.texts import brief, json_lines, parse_json
from rmcalib.scores._files import read_parquet
from rmcalib.scores._late import LateLabels, digest_of
from rmcalib.scores._load import load_all_scores, load_scores
from rmcalib.scores._roles import KNOWN, parse_columns, unknown_names
from rmcalib.scores._schema import as_number, raise_if_any
from rmcalib.scores._scores import Scores

_LABELS = re.compile(r"(^|_)(acc|accuracy|correct|correctness|is_correct|exact|exact_match|label|truth)(_|$)")
_NUMBERS = (int, float, bool)
_LARGEST = 1e300  # larger rewards have no mean
_SERVED = 256  # samples of a server's log that count as a step, if clients do not say which it is
_WORDS = {"true": 1.0, "yes": 1.0, "correct": 1.0, "false": 0.0, "no": 0.0, "wrong": 0.0, "incorrect": 0.0}
LABEL_FROM = "label_from"
"""The column of labels that a function of the user made."""


class NoSamplesYetError(ValueError):
    """There is a folder, but no complete sample in it: wait."""


class Sample(NamedTuple):
    """A sample as a framework writes it."""

    values: dict[str, Any]
    step: Any
    prompt: str
    text: str
    line: str


Flush = list[Sample]
"""Samples that were written at once: if they have the steps of earlier ones, they replace them."""
Labeller = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class StepSamples:
    """The samples of a step as arrays (N,).

    ``prompt`` are texts, digests or numbers; ``reward`` the numbers as they are; ``label`` is NaN where it is unknown;
    ``text`` are digests of the samples; ``weight`` is 1/P(the sample is labelled).
    """

    step: float
    prompt: npt.NDArray[Any]
    reward: FloatArray
    label: FloatArray
    length: FloatArray
    text: npt.NDArray[Any] | None
    weight: FloatArray
    dropped: int = 0
    """Samples without a reward, which were left out."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.reward)

    def sorted(self) -> StepSamples:
        """Return them in the order of prompts."""
        return self.take(np.argsort(self.prompt, kind="stable"))

    def take(self, rows: Any) -> StepSamples:
        """Return some of them."""
        text = None if self.text is None else self.text[rows]
        columns = {
            name: getattr(self, name)[rows] for name in ("prompt", "reward", "label", "length", "weight")
        }
        return replace(self, text=text, **columns)

    def labelled_prompts(self) -> npt.NDArray[Any]:
        """Return the prompts with a label."""
        return np.unique(self.prompt[~np.isnan(self.label)])

    def repeated(self) -> BoolArray | None:
        """Return which samples are copies of an earlier one of their prompt; None without texts."""
        if self.text is None:
            return None
        seen: set[Any] = set()
        copies = []
        for key in zip(self.prompt.tolist(), self.text.tolist(), strict=True):
            copies.append(key in seen)
            seen.add(key)
        return np.array(copies, dtype=bool)

    def digest(self) -> bytes:
        """Return what tells changed samples apart."""
        numbers = b"".join(one.tobytes() for one in (self.reward, self.label, self.weight, self.length))
        return hashlib.sha256(numbers + "\n".join(map(str, self.prompt.tolist())).encode()).digest()


def load_rollouts(
    source: str | Path,
    columns: str | Mapping[str, Any] | None = None,
    *,
    scale: str | None = None,
    labels_are: str | None = None,
) -> dict[str, Scores]:
    """Read the samples of a training run, one `Scores` per reward.

    Parameters
    ----------
    source : str or Path
        The folder into which a framework writes samples (see :mod:`rmcalib.scores.rollouts`), or one of its
        files; or any file of scores, with or without a column of steps.
    columns : mapping or str, optional
        Which columns are rewards and labels: ``"reward=score,label=acc"``; ``"reward=a+b"`` is the sum of two
        rewards, ``"reward=-loss"`` one where lower is better. By default, the label is a column with a name
        such as ``acc`` or ``correct``, and the rewards are `score` or `reward`, or all other reward functions.
    scale, labels_are
        What the numbers and the labels are; as for `load_scores`. The numbers of samples are not guessed.

    Returns
    -------
    dict of str to Scores
        By the name of the reward. A prompt is an id of its own in each step; ``cluster`` says which of them
        are the same prompt. ``extra`` has the step and the number of characters of each response.

    Raises
    ------
    ValueError
        If nothing can be read, or if it is not clear which column is what; the message lists the columns.

    Examples
    --------
    >>> import json, tempfile
    >>> rows = [{"input": "1 + 1?", "output": str(i), "score": 0.1 * i, "acc": i == 2, "step": 5}
    ...         for i in range(4)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "5.jsonl").write_text("\\n".join(map(json.dumps, rows)))
    ...     scores = load_rollouts(folder)["score"]
    >>> scores.n_items, scores.is_correct.tolist(), scores.extra["step"].tolist()
    (1, [False, False, True, False], [5.0, 5.0, 5.0, 5.0])
    """
    return RolloutReader(source, columns).read(scale=scale, labels_are=labels_are)


@dataclass(frozen=True)
class Roles:
    """Which columns are the rewards, and which one is the label. A reward is a sum of signed columns."""

    rewards: dict[str, dict[str, float]]
    label: str | None


@dataclass(frozen=True)
class Look:
    """What has changed in a folder since the last look: by reward the steps that are new or other, and the gone."""

    changed: dict[str, list[StepSamples]]
    removed: list[float]
    problems: list[str]


@dataclass
class _File:
    """What is known of a file: its state on the disk, its samples as they are written, and as arrays."""

    state: tuple[int, int]
    flushes: list[Flush] = field(default_factory=list)
    steps: list[dict[str, list[StepSamples]]] | None = None
    """Of each flush, by reward, the samples of each step."""


@dataclass
class RolloutReader:
    """Reads the samples of a run that goes on: each look parses only the files that have changed.

    Parameters
    ----------
    source, columns
        As for `load_rollouts`.
    label_from : function, optional
        Makes the label of a sample from its row, as it is in the file.
    labels : str or Path, optional
        A file with labels of some samples, which may come later; see `LateLabels`.
    """

    source: str | Path
    columns: str | Mapping[str, Any] | None = None
    label_from: Labeller | None = None
    labels: str | Path | None = None
    skip: set[Path] = field(default_factory=set, repr=False)
    """Files that are not read: those of an earlier run in the same folder."""
    _files: dict[Path, _File] = field(default_factory=dict, repr=False)
    _bad: dict[Path, tuple[int, int]] = field(default_factory=dict, repr=False)
    _names: dict[str, None] = field(default_factory=dict, repr=False)
    _roles: Roles | None = field(default=None, repr=False)
    _seen: dict[str, dict[float, bytes]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Read what the user says about columns, and the first labels."""
        self._given = parse_columns(self.columns)
        self._late = None if self.labels is None else LateLabels(self.labels)

    def read(self, *, scale: str | None = None, labels_are: str | None = None) -> dict[str, Scores]:
        """Return the scores of everything that is written so far, by reward; see `load_rollouts`."""
        files, other = _files_of(Path(self.source))
        if other is not None:
            return load_all_scores(other, self.columns, scale=scale, labels_are=labels_are)
        steps, _ = self._all_steps(files, strict=True)
        found = {}
        for name, by_step in steps.items():
            parts = [by_step[step] for step in sorted(by_step)]
            scores = _scores(parts, name, str(self.source))
            found[name] = load_scores(scores, scale=scale, labels_are=labels_are)
        return found

    def look(self, *, strict: bool = True) -> Look:
        """Return what has changed since the last look.

        If ``strict``, a file that cannot be read is an error. Otherwise it is named once in ``problems``, and left
        out. It is always an error if the columns are not clear.
        """
        try:
            steps, problems = self._steps_now(strict=strict)
        except NoSamplesYetError:
            gone = sorted({step for by_step in self._seen.values() for step in by_step})
            if not gone:
                raise
            self._seen = {}
            return Look({}, gone, [])
        changed: dict[str, list[StepSamples]] = {}
        removed: set[float] = set()
        for name, by_step in steps.items():
            if self._late is not None:
                by_step = {step: self._late.joined(samples) for step, samples in by_step.items()}
            before = self._seen.get(name, {})
            now = {step: samples.digest() for step, samples in by_step.items()}
            changed[name] = [by_step[step] for step in sorted(now) if before.get(step) != now[step]]
            removed |= before.keys() - now.keys()
            self._seen[name] = now
        return Look(changed, sorted(removed), problems)

    def _steps_now(self, *, strict: bool) -> tuple[dict[str, dict[float, StepSamples]], list[str]]:
        files, other = _files_of(Path(self.source))
        if other is not None:
            return self._table_steps(other), []
        return self._all_steps([place for place in files if place.path not in self.skip], strict=strict)

    def _table_steps(self, path: Path) -> dict[str, dict[float, StepSamples]]:
        """Return the steps of a file of scores that no framework wrote."""
        about = path.stat()
        known = self._files.get(path)
        if known is None or known.state != (about.st_mtime_ns, about.st_size):
            loaded = load_all_scores(path, self.columns, scale="reward")
            by_reward = {name: [*steps_of(scores)] for name, scores in loaded.items()}
            self._files[path] = known = _File((about.st_mtime_ns, about.st_size), steps=[by_reward])
        return {name: {one.step: one for one in steps} for name, steps in (known.steps or [{}])[0].items()}

    def _all_steps(
        self, files: list[_Place], *, strict: bool
    ) -> tuple[dict[str, dict[float, StepSamples]], list[str]]:
        """Return the samples of all files by reward and step, and the problems with files."""
        problems: list[str] = []
        if self._late is not None:
            problems += self._late.refresh(strict=strict)
        gone = self._files.keys() - {place.path for place in files}
        for path in gone:
            del self._files[path]
        for place in files:
            problems += self._tried(self._parse, place, strict)
        if self._roles is None and self._names:
            self._roles = _roles(
                self._given, [*self._names], self._numeric(), self._is_labelled(), str(self.source)
            )
        if self._roles is None:
            raise NoSamplesYetError(f"{self.source}: no complete sample in its files yet")
        for place in files:
            problems += self._tried(self._convert, place, strict)
        return self._assembled(files), problems

    def _assembled(self, files: list[_Place]) -> dict[str, dict[float, StepSamples]]:
        assert self._roles is not None
        found: dict[str, dict[float, StepSamples]] = {}
        for name in self._roles.rewards:
            steps: dict[float, StepSamples] = {}
            from_file: dict[float, Path] = {}
            for place in files:
                known = self._files.get(place.path)
                for flush in (known.steps if known else None) or []:
                    new = {samples.step: samples for samples in flush[name]}
                    first = min(new, default=math.inf)
                    if place.shared:  # several files have the samples of a step
                        new = {
                            step: _joined(steps[step], one)
                            if step in steps and from_file[step] != place.path
                            else one
                            for step, one in new.items()
                        }
                        steps |= new
                    else:
                        # A step that is written again replaces itself and, after a restart, all later ones.
                        steps = {step: one for step, one in steps.items() if step < first} | new
                    from_file |= dict.fromkeys(new, place.path)
            if steps:
                found[name] = steps
        if not found:
            raise NoSamplesYetError(
                f"{self.source}: no sample with a reward ({', '.join(self._roles.rewards)}) yet"
            )
        return found

    def _tried(self, work: Callable[[_Place], None], place: _Place, strict: bool) -> list[str]:
        """Do something with a file; return its problem if it has one that was not reported yet."""
        path = place.path
        try:
            work(place)
        except (ValueError, OSError) as error:
            if strict:
                raise
            state = _state(path)
            self._files[path] = _File(state, steps=[])
            if self._bad.get(path) == state:
                return []
            self._bad[path] = state
            text = str(error) if str(path) in str(error) else f"{path}: {error}"
            return [f"{text} (skipped)"]
        return []

    def _parse(self, place: _Place) -> None:
        state = _state(place.path, must_exist=True)
        if place.path in self._files and self._files[place.path].state == state:
            return
        flushes = [*place.parse(place.path, place.step)]
        for flush in flushes:
            for sample in flush:
                if self.label_from is not None:
                    sample.values[LABEL_FROM] = _made_label(self.label_from, sample, place.path)
                self._names.update(dict.fromkeys(sample.values))
        self._files[place.path] = _File(state, flushes)

    def _convert(self, place: _Place) -> None:
        known = self._files.get(place.path)
        if known is None or known.steps is not None:
            return
        assert self._roles is not None
        roles = self._roles
        steps = [
            {name: _steps_of(flush, roles, name, place.path) for name in roles.rewards}
            for flush in known.flushes
        ]
        known.steps, known.flushes = steps, []  # the texts are not needed any more

    def _numeric(self) -> set[str]:
        """Return the columns that hold numbers."""
        rows = (sample.values for file in self._files.values() for flush in file.flushes for sample in flush)
        return {name for row in rows for name, value in row.items() if isinstance(value, _NUMBERS)}

    def _is_labelled(self) -> bool:
        return self.label_from is not None or self._late is not None


def _state(path: Path, *, must_exist: bool = False) -> tuple[int, int]:
    try:
        about = path.stat()
    except OSError:
        if must_exist:
            raise
        return (0, 0)
    return (about.st_mtime_ns, about.st_size)


def _made_label(function: Labeller, sample: Sample, path: Path) -> Any:
    """Return the label that the user's function makes; its own errors name the sample."""
    try:
        return function(sample.values)
    except Exception as error:
        kind = type(error).__name__
        raise ValueError(
            f"{path}: {sample.line}: the function of --label-from failed: {kind}: {error}"
        ) from error


# Which columns are what.


def _roles(
    given: Mapping[str, list[str]], names: list[str], numeric: set[str], labelled: bool, source: str
) -> Roles:
    """Return which columns are rewards and labels, or raise an error that lists the columns of the files."""
    signed = {name: (name[1:], -1.0) if name.startswith("-") and name not in names else (name, 1.0)
              for name in given.get("reward", ())}  # fmt: skip
    asked = {"reward": [name for name, _ in signed.values()], "label": given.get("label", [])}
    problems = unknown_names({role: wanted for role, wanted in asked.items() if wanted}, names)
    label = given["label"][0] if "label" in given else None
    if label is None:
        label = LABEL_FROM if LABEL_FROM in names else None
    if label is None and not labelled:
        candidates = [name for name in names if name in numeric and _LABELS.search(name.lower())]
        if len(candidates) > 1:
            either = " or ".join(candidates)
            problems.append(f"label: could be {either}: say which, --columns label={candidates[0]}")
        label = candidates[0] if candidates else None
    if signed:
        name = "+".join(name for name, _ in signed.values())
        rewards = {name: dict(signed.values())}
    else:
        rewards = {name: {name: 1.0} for name in _rewards_of(names, numeric, label)}
    if not rewards:
        problems.append(f"no column of rewards (has {', '.join(names)}): name it, --columns reward=NAME")
    raise_if_any(problems, source)
    return Roles(rewards, label)


def _rewards_of(names: list[str], numeric: set[str], label: str | None) -> list[str]:
    for usual in ("score", "reward"):
        if usual in numeric:
            return [usual]
    return [
        name
        for name in names
        if name in numeric
        and name not in KNOWN["not_rewards"]
        and name != label
        and not _LABELS.search(name.lower())
    ]


# From samples to arrays.


def _steps_of(flush: Flush, roles: Roles, name: str, path: Path) -> list[StepSamples]:
    """Return the samples of a flush by step; those without a finite reward are left out."""
    by_step: dict[float, list[tuple[float | None, Sample]]] = {}
    for sample in flush:
        reward = _reward(sample, roles.rewards[name], path)
        by_step.setdefault(_step(sample, path), []).append((reward, sample))
    steps = []
    for step, every in by_step.items():
        rows = [(reward, sample) for reward, sample in every if reward is not None]
        if not rows:
            continue
        samples = [sample for _, sample in rows]
        steps.append(
            StepSamples(
                step,
                np.array([digest_of(sample.prompt) for sample in samples], dtype=object),
                np.array([reward for reward, _ in rows]),
                np.array([_label(sample, roles.label, path) for sample in samples]),
                np.array([float(len(sample.text)) for sample in samples]),
                np.array([digest_of(sample.text) for sample in samples], dtype=object),
                np.ones(len(rows)),
                len(every) - len(rows),
            )
        )
    return steps


def _reward(sample: Sample, columns: Mapping[str, float], path: Path) -> float | None:
    """Return the sum of signed columns; None if one is missing or not finite."""
    total = 0.0
    for column, sign in columns.items():
        value = sample.values.get(column)
        number = as_number(value)
        if value is not None and number is None:
            raise ValueError(f"{path}: {sample.line}: {column} is {brief(value)}: expected a number")
        if number is None or not math.isfinite(number):
            return None
        if abs(number) > _LARGEST:
            raise ValueError(f"{path}: {sample.line}: {column} is {number:g}: too large for a reward")
        total += sign * number
    return total


def _step(sample: Sample, path: Path) -> float:
    number = as_number(sample.step)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{path}: {sample.line}: step is {brief(sample.step)}: expected a number")
    return float(number)


def _label(sample: Sample, column: str | None, path: Path) -> float:
    """Return a label from 0 to 1; NaN if there is none."""
    value = None if column is None else sample.values.get(column)
    if value is None or value == "":
        return math.nan
    number = _WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    number = as_number(value) if number is None else number
    if number is not None and math.isnan(number):
        return math.nan
    if number is None or not 0 <= number <= 1:
        raise ValueError(
            f"{path}: {sample.line}: {column} is {brief(value)}: no label: give true or false, 0 or 1, or a share from "
            "0 to 1, or name another column, --columns label=NAME"
        )
    return number


def _joined(first: StepSamples, second: StepSamples) -> StepSamples:
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("prompt", "reward", "label", "length", "text", "weight")
    }
    return replace(first, **columns, dropped=first.dropped + second.dropped)


def _scores(parts: list[StepSamples], name: str, source: str) -> Scores:
    """Return steps as one table of scores."""
    several = len(parts) > 1
    columns: dict[str, list[Any]] = {key: [] for key in ("item_id", "cluster", "step")}
    for part in parts:
        prompts = part.prompt.tolist()
        columns["item_id"] += [f"{one}@{part.step:g}" for one in prompts] if several else prompts
        columns["cluster"] += prompts
        columns["step"] += [part.step] * len(part)
    ids = np.array(columns["item_id"])
    _, group = np.unique(ids, return_inverse=True)
    order, sizes = np.argsort(group, kind="stable"), np.bincount(group)
    response = np.empty(len(ids), dtype=np.int64)
    response[order] = np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    arrays = {
        **columns,
        "response": response,
        "reward": np.concatenate([part.reward for part in parts]),
        "label": np.concatenate([part.label for part in parts]),
        "characters": np.concatenate([part.length for part in parts]).astype(np.int64),
    }
    if not several:
        del arrays["cluster"]
    about: dict[str, Any] = {"model": name, "source": source}
    if dropped := sum(part.dropped for part in parts):
        about["missing"] = {"responses": dropped, "treated": "left out"}
    return Scores.from_columns(arrays, about, source=f"{source}, {name}")


def steps_of(scores: Scores) -> Iterable[StepSamples]:
    """Yield the steps of scores; scores without steps are one step, 0."""
    steps = np.asarray(scores.extra.get("step", np.zeros(len(scores))), dtype=np.float64)
    length = scores.extra.get("characters")
    text = scores.extra.get("response_text")
    if length is None and text is not None:
        length = np.array([float(len(str(one))) for one in text])
    prompt = scores.item_id if scores.cluster is None else scores.cluster
    whole = StepSamples(
        0.0,
        np.asarray(prompt, dtype=object),
        scores.reward,
        scores.label,
        np.full(len(scores), np.nan) if length is None else np.asarray(length, dtype=np.float64),
        None if text is None else np.array([digest_of(str(one)) for one in text], dtype=object),
        np.ones(len(scores)),
    )
    for step in np.unique(steps).tolist():
        yield replace(whole.take(steps == step), step=step)


# The layouts of frameworks.

Parser = Callable[[Path, Any], Iterable[Flush]]


@dataclass(frozen=True)
class _Place:
    """A file of a run: its step by its name, and how it is read; ``shared`` if a step has several files."""

    path: Path
    step: int
    parse: Parser
    shared: bool = False


def _files_of(source: Path) -> tuple[list[_Place], Path | None]:
    """Return the files of a run in the order of their steps, or a file of scores."""
    if not source.is_dir() and not source.is_file():
        raise ValueError(f"{source}: no such folder or file")
    for pattern, parse, shared in LAYOUTS:
        found = sorted(_matching(source, pattern))
        if found:
            return [_Place(path, step, parse, shared) for step, path in found], None
    pairs = source / "generated_predictions.jsonl"  # of LLaMA-Factory, which has no steps
    if source.is_file() or pairs.is_file():
        return [], source if source.is_file() else pairs
    raise NoSamplesYetError(
        f"{source}: no samples of verl (<step>.jsonl), TRL (completions_<step>.parquet), ms-swift (completions.jsonl), "
        "NeMo-RL (train_data_step<N>.jsonl), SkyRL (global_step_<N>_evals), AReaL (<version>/<task>.jsonl) or `rmcalib "
        "serve` (rewards-<N>.jsonl)"
    )


def _matching(source: Path, pattern: str) -> Iterable[tuple[int, Path]]:
    """Yield the files that match a pattern of names such as `folder/(\\d+)\\.jsonl`, with their steps."""
    *folders, name = pattern.split("/")
    if source.is_file():
        match = re.fullmatch(name, source.name)
        if match and (not folders or re.fullmatch(folders[-1], source.parent.name)):
            number = match if match.re.groups else re.fullmatch(folders[-1], source.parent.name)
            yield int(number[1] or 0) if number else 0, source
        return
    places = [(source, None)] if not folders else _subfolders(source, folders)
    for folder, step in places:
        for path in folder.iterdir():
            match = re.fullmatch(name, path.name)
            if match:
                yield int(match[1] or 0) if match.re.groups else step or 0, path


def _subfolders(source: Path, folders: list[str]) -> list[tuple[Path, int | None]]:
    """Return the folders that match; outer ones may be left out, if the source is inside of them."""
    inner = folders[-1]
    roots = [source, *(source / name for name in folders[:-1])]
    if not re.compile(inner).groups:
        return [(source, None), *([(source / inner, None)] if (source / inner).is_dir() else [])]
    found: list[tuple[Path, int | None]] = []
    for root in roots:
        for folder in root.iterdir() if root.is_dir() else ():
            match = re.fullmatch(inner, folder.name)
            if match and folder.is_dir():
                found.append((folder, int(match[1])))
    return found


def _objects(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSONL file; a last line that is cut off is left for the next time."""
    content = read_input(path)
    whole, _, last = content.rpartition(b"\n")
    with contextlib.suppress(ValueError):
        parse_json(last, str(path))
        whole = content
    yield from json_lines(whole, str(path))


def _text(value: Any) -> str:
    """Return a prompt or a completion as text: a text, or the contents of messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(_text(part) for part in value)
    if isinstance(value, dict):
        return _text(value.get("content", ""))
    return "" if value is None else str(value)


def _verl(path: Path, step: Any) -> Iterable[Flush]:
    yield [
        Sample(row, row.get("step", step), _text(row.get("input")), _text(row.get("output")), line)
        for line, row in _objects(path)
    ]


def _trl(path: Path, step: Any) -> Iterable[Flush]:
    try:
        columns, _ = read_parquet(path)
    except ValueError:
        return  # not finished: it is read the next time
    yield _of_lists({name: values.tolist() for name, values in columns.items()}, step, "row")


def _swift(path: Path, _: Any) -> Iterable[Flush]:
    """Yield lines with lists of samples, or runs of lines with one sample each and the same step (Ray)."""
    rows: Flush = []
    for line, row in _objects(path):
        if isinstance(row.get("prompt"), list) and any(
            isinstance(row.get(name), list) for name in ("step", "gen_step")
        ):
            yield _of_lists(
                {name: values for name, values in row.items() if isinstance(values, list)}, None, line
            )
            continue
        step = row.get("step", row.get("gen_step"))
        if rows and rows[-1].step != step:
            yield rows
            rows = []
        rows.append(Sample(row, step, _text(row.get("prompt")), _text(row.get("completion")), line))
    if rows:
        yield rows


def _of_lists(lists: Mapping[str, list[Any]], step: Any, line: str) -> Flush:
    """Return the samples of columns."""
    n = len(lists.get("prompt", ()))
    rows = [{name: values[i] for name, values in lists.items() if len(values) == n} for i in range(n)]
    return [
        Sample(
            row,
            row.get("step", row.get("gen_step", step)),
            _text(row["prompt"]),
            _text(row.get("completion")),
            f"{line}, sample {number}",
        )
        for number, row in enumerate(rows)
    ]


def _nemo(path: Path, step: Any) -> Iterable[Flush]:
    flush = []
    for line, row in _objects(path):
        # A value may be a list with one entry.
        flat = {
            name: value[0] if isinstance(value, list) and len(value) == 1 and name != "content" else value
            for name, value in row.items()
        }
        if isinstance(flat.get("rewards"), _NUMBERS):
            flat["score"] = flat.pop("rewards")
        prompt, text = _prompt_and_rest(row.get("content"), path, line)
        flush.append(Sample(flat, step, prompt, text, line))
    yield flush


def _prompt_and_rest(content: Any, path: Path, line: str) -> tuple[str, str]:
    """Return the prompt and the rest of a list of texts or messages, which may be inside another list."""
    parts = content
    while isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], list):
        parts = parts[0]
    if not isinstance(parts, list) or not parts:
        raise ValueError(f"{path}: {line}: content is {brief(content)}: expected a prompt and a response")
    if all(isinstance(part, dict) for part in parts):  # messages: the prompt ends before the first answer
        answers = [place for place, part in enumerate(parts) if part.get("role") == "assistant"]
        end = answers[0] if answers else 1
    else:
        end = 1
    return _text(parts[:end]), _text(parts[end:])


def _skyrl(path: Path, step: Any) -> Iterable[Flush]:
    flush = []
    for line, row in _objects(path):
        score = row.get("score")
        if isinstance(score, list):  # of tokens
            row = {**row, "score": sum(as_number(one) or 0.0 for one in score)}
        flush.append(
            Sample(row, step, _text(row.get("input_prompt")), _text(row.get("output_response")), line)
        )
    yield flush


def _areal(path: Path, step: Any) -> Iterable[Flush]:
    yield [
        Sample(
            row, row.get("tail_version", step), _text(row.get("prompt")), _text(row.get("completion")), line
        )
        for line, row in _objects(path)
    ]


def _served(path: Path, number: Any) -> Iterable[Flush]:
    """Yield the samples of a server's log. Without steps, every so many samples of a file count as one."""
    flush = []
    for place, (line, row) in enumerate(_objects(path)):
        step = row.get("step")
        if step is None:
            step = number * 1_000_000 + place // _SERVED
        flush.append(Sample(row, step, _text(row.get("prompt")), _text(row.get("response")), line))
    yield flush


LAYOUTS: tuple[tuple[str, Parser, bool], ...] = (
    (r"(\d+)\.jsonl", _verl, False),
    (r"completions/completions_(\d+)\.parquet", _trl, False),
    (r"completions()\.jsonl", _swift, False),
    (r"train_data_step(\d+)\.jsonl", _nemo, False),
    (r"val_data_step(\d+)\.jsonl", _nemo, False),
    (r"dumped_evals/global_step_(\d+)_evals/(?!aggregated_results).+\.jsonl", _skyrl, True),
    (r"rewards-(\d+)\.jsonl", _served, True),
    (r"rollout/(\d+)/\d+\.jsonl", _areal, True),
)
"""How each framework names its files (the group is the step), how a file is read, and whether files share a step."""

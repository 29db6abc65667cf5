"""Read the samples of a training run, once or repeatedly while it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rmcalib._util.texts import digest_of
from rmcalib.scores._labels import by_name
from rmcalib.scores._late import LateLabels
from rmcalib.scores._load import load_all_scores
from rmcalib.scores._roles import parse_columns
from rmcalib.scores.rollouts.columns import LABEL_FROM, NUMBERS, Labeller, Roles, roles_of, steps_of_flush
from rmcalib.scores.rollouts.frameworks import Flush, NoSamplesYetError, Place, Sample, files_of
from rmcalib.scores.rollouts.samples import Columns, StepSamples, columns_of, steps_of
from rmcalib.scores.scale import Labels

State = tuple[int, int]
"""When a file was written, and its size."""


@dataclass(frozen=True)
class Look:
    """What has changed in a folder since the last look: by reward the steps that are new or other, and the gone."""

    changed: dict[str, list[StepSamples]]
    removed: list[float]
    problems: list[str]


Parts = tuple[StepSamples, ...]
"""The samples of a step, of each file that has some."""


@dataclass
class _File:
    """What is known of a file: its state on the disk, its samples as they are written, and as arrays."""

    state: State
    flushes: list[Flush] = field(default_factory=list)
    steps: list[dict[str, list[StepSamples]]] | None = None
    """Of each flush, by reward, the samples of each step."""


@dataclass
class RolloutReader:
    """Reads the samples of a run that goes on: each look parses only the files that have changed.

    Parameters
    ----------
    source : str or Path
        The folder into which a framework writes samples (see :mod:`rmcalib.scores.rollouts.frameworks`), or one
        of its files; or any file of scores.
    columns : mapping or str, optional
        Which columns are rewards and labels: ``"reward=score,label=acc"``; ``"reward=a+b"`` is the sum of two
        rewards, ``"reward=-loss"`` one where lower is better, and ``second`` a second judge's scores. By default,
        the label is a column with a name such as ``acc`` or ``correct``, and the rewards are `score` or `reward`,
        or all other reward functions.
    label_from : function, optional
        Makes the label of a sample from its row, as it is in the file.
    labels : str or Path, optional
        A file with labels of some samples, which may come later; see `LateLabels`.
    labels_are : {"correct", "best"}, optional
        What labels mean; by default what the name of their column or a table of scores says.
    """

    source: str | Path
    columns: str | Mapping[str, Any] | None = None
    label_from: Labeller | None = None
    labels: str | Path | None = None
    labels_are: Labels | None = None
    skip: set[Path] = field(default_factory=set, repr=False)
    """Files that are not read: those of an earlier run in the same folder."""
    texts: dict[str, str] | None = field(default=None, repr=False)
    """Prompts and samples by their digests, if they are wanted: then scores have them, too."""
    _files: dict[Path, _File] = field(default_factory=dict, repr=False)
    _bad: dict[Path, State] = field(default_factory=dict, repr=False)
    _trouble: str = field(default="", repr=False)
    """Why the last look found no folder, or no table that can be read."""
    _unused_labels: str | None = field(default=None, repr=False)
    """What was said of a file of labels that are of none of the samples."""
    _names: dict[str, None] = field(default_factory=dict, repr=False)
    _numeric: set[str] = field(default_factory=set, repr=False)
    _roles: Roles | None = field(default=None, repr=False)
    _stated: Labels | None = field(default=None, repr=False)
    """What the labels of a table of scores mean."""
    _seen: dict[str, dict[float, tuple[Parts, Any, bytes]]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Read what the user says about columns, and the first labels."""
        self._given = parse_columns(self.columns, ("second",))
        self._late = None if self.labels is None else LateLabels(self.labels, self.labels_are)

    def read(self) -> dict[str, tuple[Columns, dict[str, Any]]]:
        """Return the columns of scores of everything that is written so far, and their manifest, by reward."""
        files, other = files_of(Path(self.source))
        if other is not None:
            raise ValueError(f"{other}: it has no samples of a training run")
        every = self._all_steps(files, strict=True)[0]
        return {
            name: columns_of(
                [StepSamples.joined(steps[step]) for step in sorted(steps)],
                name,
                str(self.source),
                self.texts,
            )
            for name, steps in every.items()
        }

    def look(self, *, strict: bool = True) -> Look:
        """Return what has changed since the last look.

        If ``strict``, a file that cannot be read is an error. Otherwise it is named once in ``problems``, and left
        out, and so is the folder if it was read before. It is always an error if the columns are not clear.
        """
        try:
            files, other = files_of(Path(self.source))
            if other is not None:
                problems = self._refreshed(strict=strict)
                steps = self._table_steps(other)
            else:
                files = [place for place in files if place.path not in self.skip]
                steps, problems = self._all_steps(files, strict=strict)
        except NoSamplesYetError:
            gone = sorted({step for by_step in self._seen.values() for step in by_step})
            if not gone:
                raise
            self._seen = {name: {} for name in self._seen}
            return Look({}, gone, [])
        except (ValueError, OSError) as error:
            if strict or not self._seen:
                raise
            news = [] if str(error) == self._trouble else [f"{error} (what was read before is kept)"]
            self._trouble = str(error)
            return Look({}, [], news)
        self._trouble = ""
        changed = {name: self._changed(name, by_step) for name, by_step in steps.items()}
        problem = None if self._late is None else self._late.problem()
        if problem is not None and strict:
            raise ValueError(problem)
        if problem is not None and problem != self._unused_labels:
            problems.append(problem)
        self._unused_labels = problem
        removed = {
            step for name, seen in self._seen.items() for step in seen if step not in steps.get(name, {})
        }
        for name, seen in self._seen.items():
            self._seen[name] = {step: about for step, about in seen.items() if step not in removed}
        return Look(changed, sorted(removed), problems)

    def _changed(self, name: str, steps: Mapping[float, Parts]) -> list[StepSamples]:
        """Return the steps that are new or other than at the last look."""
        seen, late, changed = self._seen.setdefault(name, {}), self._late, []
        version = None if late is None else late.version
        for step in sorted(steps):
            parts, before = steps[step], seen.get(step)
            if before is not None and before[1] == version and _are_same(before[0], parts):
                continue
            samples = StepSamples.joined(parts)
            samples = samples if late is None else late.joined(samples, is_only=len(steps) == 1)
            digest = samples.digest()
            if before is None or before[2] != digest:
                changed.append(samples)
            seen[step] = (parts, version, digest)
        return changed

    def _table_steps(self, path: Path) -> dict[str, dict[float, Parts]]:
        """Return the steps of a file of scores that no framework wrote."""
        state = _state(path)
        if path not in self._files or self._files[path].state != state:
            columns = {role: names for role, names in self._given.items() if role != "second"}
            loaded = load_all_scores(path, columns, scale="reward")
            by_reward = {name: [*steps_of(scores, self.second)] for name, scores in loaded.items()}
            self._files[path] = _File(state, steps=[by_reward])
            self._stated = next((scores.labels for scores in loaded.values()), None)
        (rewards,) = self._files[path].steps or [{}]
        return {name: {samples.step: (samples,) for samples in steps} for name, steps in rewards.items()}

    @property
    def meaning(self) -> Labels:
        """What the labels that were read mean."""
        column = None if self._roles is None else self._roles.label
        stated = self._stated if column is None else by_name(column)
        return self.labels_are or ("best" if stated in ("best", "votes") else "correct")

    @property
    def second(self) -> str | None:
        """The column of a second judge's scores that the user named."""
        return next(iter(self._given.get("second", ())), None)

    def _all_steps(
        self, files: list[Place], *, strict: bool
    ) -> tuple[dict[str, dict[float, Parts]], list[str]]:
        """Return the samples of all files by reward and step, and the problems with files."""
        problems = self._refreshed(strict=strict)
        for path in self._files.keys() - {place.path for place in files}:
            del self._files[path]
        for place in files:
            problems += self._tried(self._parse, place, strict)
        if self._roles is None and self._names:
            labelled = self.label_from is not None or (self._late is not None and self._late.has_labels)
            self._roles = roles_of(self._given, [*self._names], self._numeric, labelled, str(self.source))
        if self._roles is None:
            raise NoSamplesYetError(f"{self.source}: no complete sample in its files yet")
        for place in files:
            problems += self._tried(self._convert, place, strict)
        steps = {name: self._assembled(files, name) for name in self._roles.rewards}
        steps = {name: by_step for name, by_step in steps.items() if by_step}
        if not steps:
            names = ", ".join(self._roles.rewards)
            raise NoSamplesYetError(f"{self.source}: no sample with a reward ({names}) yet")
        return steps, problems

    def _refreshed(self, *, strict: bool) -> list[str]:
        return [] if self._late is None else self._late.refresh(strict=strict)

    def _assembled(self, files: list[Place], name: str) -> dict[float, Parts]:
        """Return the samples of one reward by step."""
        steps: dict[float, Parts] = {}
        latest = float("-inf")
        for place in files:
            file = self._files.get(place.path)
            from_file: set[float] = set()
            for flush in (file.steps if file else None) or []:
                new = {samples.step: samples for samples in flush[name]}
                if not new:
                    continue
                if not place.layout.shared and min(new) <= latest:
                    # A step that is written again replaces itself and, after a restart, all later ones.
                    steps = {step: parts for step, parts in steps.items() if step < min(new)}
                for step, samples in new.items():
                    others = () if step in from_file else steps.get(step, ())
                    steps[step] = (*others, samples)
                from_file |= new.keys()
                latest = max(steps)
        return steps

    def _tried(self, work: Callable[[Place], None], place: Place, strict: bool) -> list[str]:
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

    def _parse(self, place: Place) -> None:
        state = _state(place.path)
        if place.path in self._files and self._files[place.path].state == state:
            return
        flushes = place.read()
        for flush in flushes:
            for sample in flush:
                if self.label_from is not None:
                    sample.values[LABEL_FROM] = _made_label(self.label_from, sample, place.path)
                if self.texts is not None:
                    self.texts |= {digest_of(text): text for text in (sample.prompt, sample.text)}
                if self._roles is None:
                    self._names.update(dict.fromkeys(sample.values))
                    self._numeric |= {
                        name for name, value in sample.values.items() if isinstance(value, NUMBERS)
                    }
        self._files[place.path] = _File(state, flushes)

    def _convert(self, place: Place) -> None:
        file = self._files.get(place.path)
        if file is None or file.steps is not None:
            return
        assert self._roles is not None
        file.steps = [
            {name: steps_of_flush(flush, self._roles, name, place.path) for name in self._roles.rewards}
            for flush in file.flushes
        ]
        file.flushes = []  # the texts are not needed any more


def _are_same(first: Parts, second: Parts) -> bool:
    return len(first) == len(second) and all(a is b for a, b in zip(first, second, strict=True))


def _state(path: Path) -> State:
    """Return the state of a file; (0, 0) if there is none, which reading it reports."""
    try:
        about = path.stat()
    except OSError:
        return (0, 0)
    return (about.st_mtime_ns, about.st_size)


def _made_label(function: Labeller, sample: Sample, path: Path) -> Any:
    """Return the label that the user's function makes; its own errors name the sample."""
    try:
        return function(sample.values)
    except (Exception, SystemExit) as error:
        kind = type(error).__name__
        raise ValueError(f"{path}: {sample.line}: label_from failed: {kind}: {error}") from error

"""The files that training frameworks write. A new framework is a function of a row, and a row of `LAYOUTS`.

Files may still grow: a last line that is cut off is read next time.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rmcalib._util.storage import read_input
from rmcalib._util.texts import brief, json_lines, parse_json
from rmcalib.scores._files import read_parquet
from rmcalib.scores._schema import as_number

_SERVED = 256  # samples of a server's log that count as a step, if clients do not say which it is


class NoSamplesYetError(ValueError):
    """There is a folder, but no complete sample in it: wait."""


class Sample(NamedTuple):
    """A sample as a framework writes it; ``line`` is where it stands."""

    values: dict[str, Any]
    step: Any
    prompt: str
    text: str
    line: str


Flush = list[Sample]
"""Samples that were written at once: if they have the steps of earlier ones, they replace them."""
Reader = Callable[[Path, int], Iterable[Flush]]
"""Reads a file whose name has this number."""
RowReader = Callable[[dict[str, Any], int, int], tuple[dict[str, Any], Any, Any, Any]]
"""Takes a row, the number of its file and its place; returns its columns, step, prompt and completion."""


@dataclass(frozen=True)
class Layout:
    """How a framework names its files (the group is the step), and how it writes them."""

    framework: str
    looks_like: str
    pattern: str
    read: Reader
    shared: bool = False
    """Whether several files have the samples of a step."""


@dataclass(frozen=True)
class Place:
    """A file of a run: the number in its name, and its layout."""

    path: Path
    number: int
    layout: Layout

    def read(self) -> list[Flush]:
        """Return the samples that it has now."""
        return [*self.layout.read(self.path, self.number)]


def files_of(source: Path) -> tuple[list[Place], Path | None]:
    """Return the files of a run in the order of their steps, or a file of scores."""
    if not source.is_dir() and not source.is_file():
        raise ValueError(f"{source}: no such folder or file")
    for layout in LAYOUTS:
        files = sorted(_matching(source, layout.pattern))
        if files:
            return [Place(path, number, layout) for number, path in files], None
    pairs = source / "generated_predictions.jsonl"  # of LLaMA-Factory, which has no steps
    if source.is_file() or pairs.is_file():
        return [], source if source.is_file() else pairs
    readable = {layout.framework: layout.looks_like for layout in LAYOUTS}
    raise NoSamplesYetError(
        f"{source}: no samples of {', '.join(f'{name} ({files})' for name, files in readable.items())}"
    )


def _matching(source: Path, pattern: str) -> Iterable[tuple[int, Path]]:
    """Yield the files that match a pattern of names such as `folder/(\\d+)\\.jsonl`, with their numbers.

    The source may be the file, or any folder on the way to it.
    """
    names = pattern.split("/")
    ways = [names[first:] for first in range(len(names)) if re.compile("/".join(names[first:])).groups]
    if source.is_file():
        yield from _numbered([source.absolute()], ways[-1])
        return
    for way in ways:
        folders = [source]
        for name in way[:-1]:
            inner = [path for folder in folders for path in folder.iterdir() if re.fullmatch(name, path.name)]
            folders = [path for path in inner if path.is_dir()]
        for folder in folders:
            yield from _numbered(folder.iterdir(), way)


def _numbered(paths: Iterable[Path], way: list[str]) -> Iterable[tuple[int, Path]]:
    pattern, depth = re.compile("/".join(way)), len(way)
    for path in paths:
        name = path.name if depth == 1 else "/".join(path.parts[-depth:])
        if match := pattern.fullmatch(name):
            yield int(match[1] or 0), path


def _objects(path: Path) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield the objects of a JSONL file with their lines, but not a last one that is cut off."""
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


def _rows(read_row: RowReader) -> Reader:
    """Return a reader of files with one sample per line."""

    def read(path: Path, number: int) -> Iterable[Flush]:
        flush = []
        for place, (line, row) in enumerate(_objects(path)):
            try:
                values, step, prompt, text = read_row(row, number, place)
            except ValueError as error:
                raise ValueError(f"{path}: {line}: {error}") from None
            flush.append(Sample(values, step, _text(prompt), _text(text), line))
        yield flush

    return read


def _plain(row: dict[str, Any], number: int, _: int) -> tuple[dict[str, Any], Any, Any, Any]:
    """Of verl and of AReaL, whose files have numbers as names, too."""
    step = row.get("step", row.get("tail_version", number))
    return row, step, row.get("input", row.get("prompt")), row.get("output", row.get("completion"))


def _nemo(row: dict[str, Any], number: int, _: int) -> tuple[dict[str, Any], Any, Any, Any]:
    """Values may be lists with one entry; the content is a list of texts or messages, or one inside another list."""
    parts = row.get("content")
    while isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], list):
        parts = parts[0]
    if not isinstance(parts, list) or not parts:
        raise ValueError(f"content is {brief(row.get('content'))}: expected a prompt and a response")
    # Of messages, the prompt ends before the first answer.
    answers = (
        i for i, part in enumerate(parts) if isinstance(part, dict) and part.get("role") == "assistant"
    )
    end = next(answers, 1)
    flat = {name: value[0] if isinstance(value, list) and len(value) == 1 else value
            for name, value in row.items() if name != "content"}  # fmt: skip
    flat["score"] = flat.pop("rewards", None)
    return flat, number, parts[:end], parts[end:]


def _skyrl(row: dict[str, Any], number: int, _: int) -> tuple[dict[str, Any], Any, Any, Any]:
    score = row.get("score")
    if isinstance(score, list):  # of tokens
        row = {**row, "score": sum(as_number(token) or 0.0 for token in score)}
    return row, number, row.get("input_prompt"), row.get("output_response")


def _served(row: dict[str, Any], number: int, place: int) -> tuple[dict[str, Any], Any, Any, Any]:
    """Without steps, every so many samples of a file count as one."""
    step = row.get("step")
    step = number * 1_000_000 + place // _SERVED if step is None else step
    return row, step, row.get("prompt"), row.get("response")


def _trl(path: Path, number: int) -> Iterable[Flush]:
    try:
        columns, _ = read_parquet(path)
    except ValueError:
        return  # not finished: it is read the next time
    yield _of_lists({name: values.tolist() for name, values in columns.items()}, number, "row")


def _swift(path: Path, _: int) -> Iterable[Flush]:
    """Yield lines with lists of samples, or runs of lines with one sample each and the same step (Ray)."""
    rows: Flush = []
    for line, row in _objects(path):
        if isinstance(row.get("prompt"), list) and isinstance(_swift_step(row), list):
            lists = {name: values for name, values in row.items() if isinstance(values, list)}
            yield _of_lists(lists, None, line)
            continue
        step = _swift_step(row)
        if rows and rows[-1].step != step:
            yield rows
            rows = []
        rows.append(Sample(row, step, _text(row.get("prompt")), _text(row.get("completion")), line))
    if rows:
        yield rows


def _swift_step(row: Mapping[str, Any], otherwise: Any = None) -> Any:
    return row.get("step", row.get("gen_step", otherwise))


def _of_lists(lists: Mapping[str, list[Any]], number: int | None, line: str) -> Flush:
    """Return the samples of columns."""
    n = len(lists.get("prompt", ()))
    rows = [{name: values[i] for name, values in lists.items() if len(values) == n} for i in range(n)]
    return [
        Sample(
            row,
            _swift_step(row, number),
            _text(row["prompt"]),
            _text(row.get("completion")),
            f"{line}, sample {i}",
        )
        for i, row in enumerate(rows)
    ]


_STEP_OF_SKYRL = r"dumped_evals/(?:global_step_(\d+)_evals|eval_only)/(?!aggregated_results).+\.jsonl"
LAYOUTS: tuple[Layout, ...] = (
    Layout("verl", "<step>.jsonl", r"(\d+)\.jsonl", _rows(_plain)),
    Layout("TRL", "completions_<step>.parquet", r"completions/completions_(\d+)\.parquet", _trl),
    Layout("ms-swift", "completions.jsonl", r"completions()\.jsonl", _swift),
    Layout("NeMo-RL", "train_data_step<N>.jsonl", r"train_data_step(\d+)\.jsonl", _rows(_nemo)),
    Layout("NeMo-RL", "val_data_step<N>.jsonl", r"val_data_step(\d+)\.jsonl", _rows(_nemo)),
    Layout("SkyRL", "global_step_<N>_evals", _STEP_OF_SKYRL, _rows(_skyrl), shared=True),
    Layout("`rmcalib serve`", "rewards-<N>.jsonl", r"rewards-(\d+)\.jsonl", _rows(_served), shared=True),
    Layout("AReaL", "<version>/<task>.jsonl", r"rollout/(\d+)/\d+\.jsonl", _rows(_plain), shared=True),
)

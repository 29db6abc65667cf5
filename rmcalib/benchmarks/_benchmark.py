"""Benchmarks: prompts with correct and wrong responses, from the Hub, from a file, or built in.

The schema is RewardBench 2's: one row a prompt with `id`, `prompt` (text, or a list of chat messages),
`chosen` and `rejected` (lists of responses; a text by itself is one response), and `subset` (the category).
Other columns are ignored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rmcalib._util.hub import HubError, check_repo_id, resolve_commit, translated
from rmcalib._util.processes import may_draw

SHORT_NAMES = {"reward-bench-2": "allenai/reward-bench-2", "rewardbench2": "allenai/reward-bench-2"}
COLUMNS = ("id", "prompt", "chosen", "rejected", "subset")
DEMO = Path(__file__).parents[1] / "demo" / "benchmark.jsonl"

Prompt = str | tuple[dict[str, str], ...]


@dataclass(frozen=True)
class Item:
    """One prompt with its responses, the `n_correct` correct ones first.

    `prompt` is a text, or chat messages `{"role": ..., "content": ...}` that end with the user's turn.
    """

    id: str
    category: str
    prompt: Prompt
    responses: tuple[str, ...]
    n_correct: int


@dataclass(frozen=True)
class Benchmark:
    """A named list of prompts; `revision` is the data set's commit, or the file's SHA-256."""

    name: str
    revision: str
    items: tuple[Item, ...]

    def __len__(self) -> int:
        """Count the prompts."""
        return len(self.items)

    def __repr__(self) -> str:
        """Name it and count it."""
        return f"Benchmark({self.name!r}, revision={self.revision!r}, {len(self)} prompts)"

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in the order in which they appear."""
        return tuple(dict.fromkeys(item.category for item in self.items))

    @property
    def n_responses(self) -> int:
        """Count the responses of all prompts."""
        return sum(len(item.responses) for item in self.items)

    @property
    def n_empty(self) -> int:
        """Count the responses without any text: they are scored like the others, and reported."""
        return sum(not response.strip() for item in self.items for response in item.responses)


def load_benchmark(
    name: str = "demo", *, revision: str | None = None, split: str = "test", limit: int | None = None
) -> Benchmark:
    """Load the prompts of a benchmark.

    Parameters
    ----------
    name : `"demo"` (built in), a Hub data set id (`"reward-bench-2"` is short for
        `"allenai/reward-bench-2"`), or the path of a `.parquet`, `.jsonl` or `.json` file.
    revision : branch, tag or commit of a Hub data set; the commit it stands for is in the result.
    split : split of a Hub data set.
    limit : at most so many prompts, spread evenly over the benchmark so that every category has its share.

    Returns
    -------
    Benchmark
        Every item has at least one correct and one wrong response, and ids are unique; else a `ValueError`
        says which row is wrong.

    >>> from tempfile import TemporaryDirectory
    >>> row = '{"id": "1", "prompt": "2+2?", "chosen": ["4"], "rejected": ["5", "6"], "subset": "Math"}'
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.jsonl").write_text(row)
    ...     bench = load_benchmark(f"{folder}/mine.jsonl")
    >>> bench.name, bench.items[0].responses, bench.items[0].n_correct
    ('mine', ('4', '5', '6'), 1)
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit: {limit} prompts make no benchmark (give 1 or more)")
    path = DEMO if name == "demo" else Path(name)
    if name == "demo" or (name and path.exists()) or path.suffix in _READERS:
        if revision is not None:
            raise ValueError(f"revision: {name} is a file, which has none (only Hub data sets do)")
        benchmark = _from_file(path, "demo" if name == "demo" else path.stem)
    else:
        benchmark = _from_hub(SHORT_NAMES.get(name, name), revision, split)
    if limit is None or limit >= len(benchmark):
        return benchmark
    kept = tuple(benchmark.items[i * len(benchmark) // limit] for i in range(limit))
    return Benchmark(benchmark.name, benchmark.revision, kept)


def items_from_rows(rows: Iterable[tuple[str, Mapping[str, Any]]], source: str) -> tuple[Item, ...]:
    """Check `rows` (pairs of "where it stands" and the row) and turn them into items.

    >>> row = {"id": 7, "prompt": "Hi", "chosen": ["a"], "rejected": [], "subset": "Chat"}
    >>> items_from_rows([("line 1", row)], "x.jsonl")
    Traceback (most recent call last):
    ValueError: x.jsonl, line 1 (id '7'): no wrong response ('rejected' is empty); a prompt needs at least one
    """
    pairs = [(where, _item(row, f"{source}, {where}")) for where, row in rows]
    if not pairs:
        raise ValueError(f"{source}: no prompts in it")
    ids = distinct_ids([item.id for _, item in pairs], [item.category for _, item in pairs])
    seen: dict[str, str] = {}
    for identifier, (where, item) in zip(ids, pairs, strict=True):
        if identifier in seen:
            raise ValueError(
                f"{source}, {where}: id {item.id!r} is there twice (first in {seen[identifier]})"
            )
        seen[identifier] = where
    return tuple(replace(item, id=identifier) for identifier, (_, item) in zip(ids, pairs, strict=True))


def distinct_ids(ids: Sequence[str], categories: Sequence[str]) -> list[str]:
    """Put the category in front of ids that several categories use, each counting its own prompts.

    Ties is left alone, because its ids carry a meaning.

    >>> distinct_ids(["1", "2", "1"], ["Math", "Math", "Focus"])
    ['Math/1', '2', 'Focus/1']
    """
    used: dict[str, set[str]] = {}
    for identifier, category in zip(ids, categories, strict=True):
        used.setdefault(identifier, set()).add(category)
    return [
        identifier if len(used[identifier]) == 1 or category == "Ties" else f"{category}/{identifier}"
        for identifier, category in zip(ids, categories, strict=True)
    ]


def _item(row: Mapping[str, Any], where: str) -> Item:
    missing = [column for column in COLUMNS if row.get(column) is None]
    if missing:
        raise ValueError(f"{where}: nothing for {', '.join(missing)} (a row needs {', '.join(COLUMNS)})")
    for column in ("id", "subset"):
        if not isinstance(row[column], (str, int, float)) or row[column] != row[column]:
            raise ValueError(f"{where}: {column!r} must be a text or a number")
    identifier = str(row["id"])
    where = f"{where} (id {identifier!r})"
    if "\0" in identifier + str(row["subset"]):
        raise ValueError(f"{where}: a NUL character in the id or the subset")
    chosen, rejected = (_responses(row[column], column, where) for column in ("chosen", "rejected"))
    if not chosen:
        raise ValueError(f"{where}: no correct response ('chosen' is empty); a prompt needs at least one")
    if not rejected:
        raise ValueError(f"{where}: no wrong response ('rejected' is empty); a prompt needs at least one")
    return Item(identifier, str(row["subset"]), _prompt(row["prompt"], where), chosen + rejected, len(chosen))


def _responses(value: Any, column: str, where: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)) or not all(isinstance(response, str) for response in value):
        raise ValueError(f"{where}: {column!r} must be a list of texts (or one text)")
    return tuple(value)


def _prompt(value: Any, where: str) -> Prompt:
    if isinstance(value, str):
        return value
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError(f"{where}: 'prompt' must be a text or a list of chat messages")
    for message in value:
        texts = isinstance(message, Mapping) and [message.get("role"), message.get("content")]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{where}: a chat message needs the texts 'role' and 'content'")
    if value[-1]["role"] == "assistant":
        raise ValueError(f"{where}: the prompt ends with the assistant's turn; the responses are that turn")
    return tuple({"role": message["role"], "content": message["content"]} for message in value)


def _from_hub(name: str, revision: str | None, split: str) -> Benchmark:
    check_repo_id(name)
    commit = resolve_commit(name, repo_type="dataset", revision=revision)
    import datasets

    try:
        with translated(name, repo_type="dataset", revision=revision):
            if not may_draw():
                datasets.disable_progress_bars()
            table = datasets.load_dataset(name, revision=commit, split=split)
    except HubError as error:
        cause = error.__cause__
        if isinstance(cause, ValueError) and "split" in str(cause):
            raise HubError(f"{name}: {str(cause).splitlines()[0]}") from cause
        raise
    table = _at_commit(table, name, commit)
    absent = [column for column in COLUMNS if column not in table.column_names]
    if absent:
        raise ValueError(f"{name}: no column {', '.join(absent)} (has {', '.join(table.column_names)})")
    rows = ((f"row {i}", row) for i, row in enumerate(table.select_columns(list(COLUMNS))))
    return Benchmark(name, commit, items_from_rows(rows, name))


def _at_commit(table: Any, name: str, commit: str) -> Any:
    """Make sure of the commit: without the Hub, `datasets` takes the version that it prepared last."""
    import datasets

    files = [Path(entry["filename"]) for entry in table.cache_files]
    if not files or all(commit in file.parts for file in files):
        return table
    prepared = [file.parent.with_name(commit) / file.name for file in files]  # one folder a commit
    if not all(file.is_file() for file in prepared):
        raise HubError(f"{name}@{commit}: the Hub cannot be reached, and the cache has another revision only")
    return datasets.concatenate_datasets([datasets.Dataset.from_file(str(file)) for file in prepared])


def _from_file(path: Path, name: str) -> Benchmark:
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise ValueError(f"{path}: a benchmark file ends in {', '.join(_READERS)}")
    try:
        content = path.read_bytes()
        items = items_from_rows(reader(path, content), str(path))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from error
    return Benchmark(name, hashlib.sha256(content).hexdigest(), items)


def _jsonl_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    # Only \n ends a line of JSONL: U+2028 and others may stand inside a text.
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            yield f"line {number}", _json_object(line, f"{path}, line {number}")


def _json_object(text: bytes, where: str) -> Mapping[str, Any]:
    row = _json(text, where)
    if not isinstance(row, dict):
        raise ValueError(f"{where}: expected an object {{...}} with {', '.join(COLUMNS)}")
    return row


def _json(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also what is too deep, or a number too long, for Python
        raise ValueError(f"{where}: not JSON: {error}") from error


def _json_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = _json(content, str(path))
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: expected a list of objects with {', '.join(COLUMNS)}")
    return ((f"row {i}", row) for i, row in enumerate(rows))


def _parquet_rows(path: Path, content: bytes) -> Iterator[tuple[str, Mapping[str, Any]]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file: {str(error).splitlines()[0]}") from error
    absent = [column for column in COLUMNS if column not in table.column_names]
    if absent:
        raise ValueError(f"{path}: no column {', '.join(absent)} (has {', '.join(table.column_names)})")
    return ((f"row {i}", row) for i, row in enumerate(table.select(list(COLUMNS)).to_pylist()))


_READERS = {".jsonl": _jsonl_rows, ".json": _json_rows, ".parquet": _parquet_rows}

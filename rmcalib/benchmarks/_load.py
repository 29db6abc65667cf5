"""Load benchmarks: by name from the Hub, from files as their authors publish them, or built in."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from rmcalib._util.files import kind_on_disk, opened_parquet, read_csv_table
from rmcalib._util.hub import HubError, check_repo_id, downloaded, resolve_commit, translated, without_hub
from rmcalib._util.processes import may_draw
from rmcalib._util.storage import is_remote, read_input
from rmcalib._util.texts import json_lines, parse_json, typed
from rmcalib.benchmarks._entries import BenchmarkEntry, HubSource, benchmarks, entry_for, known_entry
from rmcalib.benchmarks._items import Benchmark, Item, distinct_ids

DEMO = Path(__file__).parents[1] / "demo" / "benchmark.jsonl"
SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
_AT_ONCE = 100  # rows of a Parquet file that are decoded together
_LARGEST = 8 * 2**30  # bytes of a Parquet file's texts


def load_benchmark(
    name: str = "demo",
    *,
    format: str | None = None,
    revision: str | None = None,
    split: str | None = None,
    part: str | None = None,
    limit: int | None = None,
) -> Benchmark:
    """Load the prompts of a benchmark.

    Parameters
    ----------
    name : str
        `"demo"` (built in), a name that `rmcalib list benchmarks` lists, such as `"reward-bench-2"`, the id of a
        Hub data set, or the path of a `.parquet`, `.jsonl`, `.json` or `.csv` file or a folder of them.
    format : str, optional
        The format of a file or data set: the name of a benchmark (`"rm-bench"`, `"trl"`, ...), or the path of
        a YAML file that describes it. Default: rmcalib's own schema, or that of the data set if it is known.
    revision : str, optional
        Branch, tag or commit of a Hub data set. The result records the commit. For a benchmark of several
        data sets, give one revision for each, joined by `+`.
    split : str, optional
        Split of a Hub data set; default the one of the benchmark, else `"test"`.
    part : str, optional
        `"1/2"` for the first of two parts of the prompts, `"2/2"` for the second, and so on, for example to
        fit on one part and test on the other. A hash of the id assigns each prompt to a part. The name of the
        result ends in `-1of2`.
    limit : int, optional
        The largest number of prompts. They are spread evenly over the benchmark, so that all categories are
        represented.

    Returns
    -------
    Benchmark
        Every item has at least one wrong response, and a correct one or people's votes. Ids are unique. If
        a row breaks these rules, a `ValueError` names it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> row = '{"prompt": "2+2?", "chosen": "4", "rejected": "5"}'
    >>> with TemporaryDirectory() as folder:
    ...     _ = Path(folder, "mine.jsonl").write_text(row)
    ...     bench = load_benchmark(f"{folder}/mine.jsonl", format="trl")
    >>> bench.name, bench.items[0].responses, bench.items[0].n_correct
    ('mine', ('4', '5'), 1)
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit: must be at least 1, got {limit}")
    wanted = None if format is None else known_entry(format)
    if name == "demo" or _is_path(name):
        if revision is not None:
            raise ValueError(f"revision: {name} is a file, and only Hub data sets have revisions")
        benchmark = _from_file(name, wanted)
    else:
        benchmark = _from_hub(name, wanted, revision, split)
    if part is not None:
        benchmark = _part_of(benchmark, part)
    if limit is None or limit >= len(benchmark):
        return benchmark
    kept = tuple(benchmark.items[i * len(benchmark) // limit] for i in range(limit))
    return replace(benchmark, items=kept)


def _part_of(benchmark: Benchmark, part: str) -> Benchmark:
    kept = in_part([item.id for item in benchmark.items], part)
    items = tuple(item for item, mine in zip(benchmark.items, kept, strict=True) if mine)
    if not items:
        raise ValueError(f"part: part {part} of {benchmark.name} contains no prompts")
    return replace(benchmark, name=f"{benchmark.name}-{part.replace('/', 'of')}", items=items)


def in_part(ids: Iterable[str], part: str) -> list[bool]:
    """Return which ids belong to a part such as "1/2" of all prompts: a hash of the id decides."""
    match = re.fullmatch(r"([1-9]\d{0,2})/([1-9]\d{0,2})", part)
    number, of = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 1 <= number <= of:
        raise ValueError(
            f"part: {part!r} is not a part K/N (K from 1 to N, N up to 999); 1/2 and 2/2 are the halves of "
            "a benchmark"
        )
    digests = (hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest() for name in ids)
    return [int.from_bytes(digest) % of == number - 1 for digest in digests]


def _is_path(name: str) -> bool:
    if is_remote(name):
        raise ValueError(f"{name}: a URL; download the file and give its path")
    entry = benchmarks().get(name)
    if entry is not None and entry.hub:  # even if a folder has the same name
        return False
    return kind_on_disk(name) is not None or Path(name).suffix in SUFFIXES


def _from_file(name: str, wanted: BenchmarkEntry | None) -> Benchmark:
    path = DEMO if name == "demo" else Path(name)
    if wanted is None and path.is_dir():
        raise ValueError(
            f'{name}: is a folder; say how its files are written, format="NAME", or give the path of one file '
            f"(its name ends in {', '.join(SUFFIXES)})"
        )
    label = "demo" if name == "demo" else path.resolve().name if path.is_dir() else path.stem
    digest = hashlib.sha256()
    contents: list[tuple[Path, bytes]] = []
    for file in _files(path, wanted.folder if wanted else None):
        content = read_input(file)
        if path.is_dir():  # the hash depends on names and boundaries of files, too
            digest.update(f"{file.relative_to(path).as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
        contents.append((file, content))
    rows = ((f"{file}, {where}", row) for file, content in contents for where, row in _rows(file, content))
    entry = known_entry("demo") if name == "demo" else wanted
    return _benchmark(label, digest.hexdigest(), rows, entry, str(path))


def _files(path: Path, folder: str | None) -> list[Path]:
    """Return a file, or the files of a folder; only those below a subfolder `folder`, if there is one."""
    if not path.is_dir():
        if path.suffix not in SUFFIXES:
            raise ValueError(f"{path}: unknown file type; a benchmark file ends in {', '.join(SUFFIXES)}")
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    below = [file for file in files if folder in file.relative_to(path.parent).parts[:-1]]
    if not files:
        raise ValueError(f"{path}: no benchmark file in this folder (its name ends in {', '.join(SUFFIXES)})")
    return below or files


def _rows(path: Path, content: bytes) -> Iterator[tuple[str, Any]]:
    """Yield the place and the value of each row of a file."""
    if path.suffix == ".jsonl":
        yield from json_lines(content, str(path))
        return
    if path.suffix == ".csv":
        table = read_csv_table(path, content=content)
        for line, cells in zip(table.lines, table.rows, strict=True):
            yield f"line {line}", dict(zip(table.header, cells, strict=True))
        return
    if path.suffix == ".json":
        values = parse_json(content, str(path))
        if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
            raise ValueError(f"{path}: expected a list of objects")
        yield from ((f"row {number}", row) for number, row in enumerate(values))
        return
    with opened_parquet(content, str(path)) as file:
        number = size = 0
        for batch in file.iter_batches(_AT_ONCE):
            size += batch.nbytes
            if size > _LARGEST:
                raise ValueError(f"{path}: holds more than {_LARGEST:,} bytes; split it")
            yield from ((f"row {i}", row) for i, row in enumerate(batch.to_pylist(), start=number))
            number += batch.num_rows


def _from_hub(name: str, wanted: BenchmarkEntry | None, revision: str | None, split: str | None) -> Benchmark:
    entry = entry_for(name)
    sources = _hub_sources(name, entry, split)
    ids = [*dict.fromkeys(source.id for source in sources)]
    asked = revision.split("+") if revision and len(ids) > 1 else [revision] * len(ids)
    if len(asked) != len(ids):
        raise ValueError(f"revision: {name} has {len(ids)} data sets; give {len(ids)} commits, joined by '+'")
    wanted_of = dict(zip(ids, asked, strict=True))
    commits = {
        name: resolve_commit(check_repo_id(name), repo_type="dataset", revision=wanted_of[name])
        for name in ids
    }
    rows = (row for each in sources for row in _hub_rows(each, commits[each.id], wanted_of[each.id]))
    label = next(iter(commits)) if len(commits) == 1 else name
    return _benchmark(label, "+".join(commits.values()), rows, wanted or entry, label)


def _hub_sources(name: str, entry: BenchmarkEntry | None, split: str | None) -> tuple[HubSource, ...]:
    """Return the data sets of a benchmark on the Hub; `name` is the name of an entry or a Hub id."""
    if entry is None:
        return (HubSource(name, split or "test"),)
    named = tuple(source for source in entry.hub if source.id == name)
    sources = named or entry.hub
    if not sources:
        raise ValueError(
            f"{name}: not on the Hub; download it ({entry.homepage or 'from its authors'}) and give its "
            f'path with format="{entry.name}"'
        )
    if split is None:
        return sources
    return tuple({source.id: replace(source, split=split) for source in sources}.values())


def _benchmark(
    label: str,
    revision: str,
    rows: Iterator[tuple[str, Any]],
    entry: BenchmarkEntry | None,
    source: str,
) -> Benchmark:
    """Turn rows into items with unique ids; without an entry, rows are in our own schema."""
    from rmcalib.benchmarks._formats import read_items

    first = next(rows, None)
    if first is None:
        raise ValueError(f"{source}: contains no prompts")
    if entry is None:  # RewardBench 2 has our schema, and more columns
        is_theirs = {"num_correct", "total_completions"} <= {*first[1]}
        entry = known_entry("reward-bench-2" if is_theirs else "rmcalib")
    places: list[str] = []
    items: list[Item] = []
    left_out: Counter[str] = Counter()
    for where, read in read_items(chain([first], rows), entry):
        if isinstance(read, str):
            left_out[read] += 1
        else:
            items.append(_checked(read, where))
            places.append(where)
    notes = tuple(f"{label}: {n:,} left out: {why}" for why, n in left_out.items())
    if not items:
        raise ValueError(f"{source}: contains no prompts ({'; '.join(notes)})")
    categories = [item.category for item in items]
    ids = distinct_ids([item.id for item in items], categories, keep=entry.no_single_answer)
    seen: dict[str, str] = {}
    for item, identifier, where in zip(items, ids, places, strict=True):
        if identifier in seen:
            raise ValueError(f"{where}: id {item.id!r} appears twice (first in {seen[identifier]})")
        seen[identifier] = where.removeprefix(f"{source}, ")
    distinct = tuple(replace(item, id=name) for item, name in zip(items, ids, strict=True))
    foreign = None if entry_for(entry.name) is entry else entry
    return Benchmark(label, revision, distinct, entry.name, notes, foreign)


def _checked(item: Item, where: str) -> Item:
    """Return an item that is complete: a plug-in may have made it."""
    item = typed(Item, vars(item), where)
    if item.votes is not None and len(item.votes) != len(item.responses):
        raise ValueError(f"{where}: {len(item.votes)} votes for {len(item.responses)} responses")
    if item.n_correct >= len(item.responses) or (item.votes is None and not item.n_correct):
        raise ValueError(f"{where}: a prompt needs a correct and a wrong response, or votes")
    return item


def _hub_rows(source: HubSource, commit: str, revision: str | None) -> Iterator[tuple[str, Any]]:
    more = {} if source.category is None else {"subset": source.category}
    table = _hub_table(source, commit, revision)
    yield from ((f"{source.id}, row {i}", {**row, **more}) for i, row in enumerate(table))


def _hub_table(source: HubSource, commit: str, revision: str | None) -> Any:
    """Load a data set at a commit, from the cache if it is there: a commit does not change."""
    import datasets

    def load() -> Any:
        table = datasets.load_dataset(source.id, source.config, revision=commit, split=source.split)
        return _at_commit(table, source.id, commit)

    if not may_draw():
        datasets.disable_progress_bars()
    with contextlib.suppress(Exception), without_hub():  # any failure means: not in the cache
        return load()
    try:
        with translated(source.id, repo_type="dataset", revision=revision):
            return downloaded(load, source.id)
    except HubError as error:
        cause = error.__cause__
        if isinstance(cause, ValueError) and "split" in str(cause):
            raise HubError(f"{source.id}: {str(cause).splitlines()[0]}") from cause
        raise


def _at_commit(table: Any, name: str, commit: str) -> Any:
    """Return the table at the commit. Without the Hub, `datasets` takes the version it prepared last."""
    import datasets

    files = [Path(entry["filename"]) for entry in table.cache_files]
    if not files or all(commit in file.parts for file in files):
        return table
    prepared = [file.parent.with_name(commit) / file.name for file in files]  # one folder per commit
    if not all(file.is_file() for file in prepared):
        raise HubError(f"{name}@{commit}: the Hub cannot be reached, and the cache has only another revision")
    return datasets.concatenate_datasets([datasets.Dataset.from_file(str(file)) for file in prepared])

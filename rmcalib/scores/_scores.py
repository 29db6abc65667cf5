"""Scores: one row a response, in memory and in files (Parquet, JSONL, RewardBench's JSON)."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rmcalib._util.files import write_file, write_text
from rmcalib._util.storage import as_path, read_file
from rmcalib.benchmarks import distinct_ids
from rmcalib.scores._columns import KINDS, Place, checked_columns, row_place

COLUMNS = tuple(KINDS)
UNKNOWN_LENGTH = -1  # n_tokens of scores that were made elsewhere
_METADATA = b"rmcalib.manifest"


@dataclass(frozen=True)
class Scores:
    """The rewards of a benchmark's responses, with a manifest of how they were made.

    All arrays have one entry a response. A prompt's responses stand together, in the order of their index
    `response` (0, 1, ...); `offsets` says where each prompt starts. Every prompt has at least one correct and
    one wrong response, and every reward is finite: `Scores` refuses anything else.

    >>> scores = Scores.from_rows([
    ...     {"item_id": "a", "category": "Math", "response": 0, "is_correct": True, "reward": 2.5},
    ...     {"item_id": "a", "category": "Math", "response": 1, "is_correct": False, "reward": -1.0},
    ... ])
    >>> len(scores), scores.n_items, scores.reward.tolist(), scores.offsets.tolist()
    (2, 1, [2.5, -1.0], [0, 2])
    """

    item_id: npt.NDArray[np.str_]
    category: npt.NDArray[np.str_]
    response: npt.NDArray[np.int64]
    is_correct: npt.NDArray[np.bool_]
    reward: npt.NDArray[np.float64]
    n_tokens: npt.NDArray[np.int64]
    truncated: npt.NDArray[np.bool_]
    manifest: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse scores that no metric could be computed from."""
        _check(self)

    def __len__(self) -> int:
        """Count the responses."""
        return len(self.reward)

    def __repr__(self) -> str:
        """Count what there is."""
        about = {name: self.manifest[name] for name in ("model", "benchmark") if name in self.manifest}
        return f"Scores({self.n_items} prompts, {len(self)} responses, {about})"

    @property
    def offsets(self) -> npt.NDArray[np.int64]:
        """Where each prompt's responses start, and the end: int (n_items + 1,)."""
        starts = np.flatnonzero(np.r_[True, self.item_id[1:] != self.item_id[:-1]])
        return np.append(starts, len(self)).astype(np.int64)

    @property
    def n_items(self) -> int:
        """Count the prompts."""
        return len(self.offsets) - 1

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        manifest: Mapping[str, Any] | None = None,
        *,
        source: str = "scores",
        place: Place = row_place,
    ) -> Scores:
        """Build scores from columns; prompts keep the order of their first row.

        `n_tokens` and `truncated` may be missing. A bad value is told as that of `source` and the `place` of
        its row.
        """
        absent = [name for name in COLUMNS[:5] if name not in columns]
        if absent:
            raise ValueError(f"{source}: no column {', '.join(absent)} (has {', '.join(map(str, columns))})")
        n = len(columns["reward"])
        given = {"n_tokens": np.full(n, UNKNOWN_LENGTH), "truncated": np.zeros(n, dtype=bool), **columns}
        if n == 0:
            raise ValueError(f"{source}: no scores in it")
        arrays = checked_columns(given, source=source, place=place)
        _, first, inverse = np.unique(arrays["item_id"], return_index=True, return_inverse=True)
        order = np.lexsort((arrays["response"], first[inverse]))
        try:
            return cls(
                **{name: array[order] for name, array in arrays.items()}, manifest=dict(manifest or {})
            )
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Mapping[str, Any]],
        manifest: Mapping[str, Any] | None = None,
        *,
        source: str = "scores",
        place: Place = row_place,
    ) -> Scores:
        """Build scores from rows (mappings with the columns' names)."""
        rows = list(rows)
        names = [name for name in COLUMNS if name in COLUMNS[:5] or all(name in row for row in rows)]
        for i, row in enumerate(rows):
            absent = [name for name in names if row.get(name) is None]
            if absent:
                raise ValueError(
                    f"{source}, {place(i)}: nothing for {', '.join(absent)} (a row needs {', '.join(names)})"
                )
        columns = {name: [row[name] for row in rows] for name in names}
        return cls.from_columns(columns, manifest, source=source, place=place)

    @classmethod
    def from_parquet(cls, path: str | Path) -> Scores:
        """Read our Parquet file (or anybody's with the same columns)."""
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(io.BytesIO(read_file(as_path(path))))
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path}: {_why(error)}") from error
        stored = (table.schema.metadata or {}).get(_METADATA, b"{}")
        columns = {name: table.column(name).to_numpy() for name in table.column_names if name in COLUMNS}
        if not {*COLUMNS[:5]} <= {*columns}:  # told with the others, one of which may be meant
            columns |= {name: np.empty(0) for name in table.column_names}
        return cls.from_columns(columns, json.loads(stored), source=str(path))

    def to_parquet(self, path: str | Path) -> None:
        """Write a Parquet file that carries the manifest."""
        write_file(path, lambda file: _write_table(self, file))

    @classmethod
    def from_jsonl(cls, path: str | Path) -> Scores:
        """Read JSONL: one object a response, with our columns (`n_tokens` and `truncated` may be missing)."""
        rows, places = [], []
        for number, line in enumerate(_read(as_path(path)).split(b"\n"), start=1):
            if not line.strip():
                continue
            row = _parse(line, f"{path}, line {number}")
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path}, line {number}: expected an object {{...}} with {', '.join(COLUMNS[:5])}"
                )
            rows.append(row)
            places.append(f"line {number}")
        return cls.from_rows(rows, source=str(path), place=places.__getitem__)

    def to_jsonl(self, path: str | Path) -> None:
        """Write JSONL, one object a response."""
        columns = [getattr(self, name).tolist() for name in COLUMNS]
        lines = (json.dumps(dict(zip(COLUMNS, row, strict=True))) for row in zip(*columns, strict=True))
        write_text(path, "".join(f"{line}\n" for line in lines))

    @classmethod
    def from_rewardbench_json(cls, path: str | Path) -> Scores:
        """Read a file of RewardBench's `eval-set-scores`: scores flat or nested, correct responses first."""
        return from_rewardbench(_parse(_read(as_path(path)), str(path)), source=str(path))

    def to_rewardbench_json(self, path: str | Path) -> None:
        """Write RewardBench's `eval-set-scores` form (without the texts, which are not kept here)."""
        write_text(path, json.dumps(to_rewardbench(self), indent=1))


def load_scores(path: str | Path) -> Scores:
    """Read scores from a `.parquet`, `.jsonl` or `.json` (RewardBench's) file."""
    readers = {
        ".parquet": Scores.from_parquet,
        ".jsonl": Scores.from_jsonl,
        ".json": Scores.from_rewardbench_json,
    }
    reader = readers.get(as_path(path).suffix)
    if reader is None:
        raise ValueError(f"{str(path) or repr('')}: a file of scores ends in {', '.join(readers)}")
    return reader(path)


def read_scores_hash(path: str | Path) -> str | None:
    """Return the hash of the run that a Parquet file of scores is of, without reading the scores."""
    import pyarrow.parquet as pq

    try:
        with as_path(path).open("rb") as file:
            stored = (pq.read_schema(file).metadata or {}).get(_METADATA, b"{}")
        found = json.loads(stored).get("hash")
    except (OSError, ValueError, AttributeError):  # whoever reads the scores says what is wrong with them
        return None
    return found if isinstance(found, str) else None


def from_rewardbench(content: Any, *, source: str) -> Scores:
    """Turn the content of an `eval-set-scores` file (columns as lists) into scores."""
    needed = ("id", "subset", "scores", "num_correct")
    if not isinstance(content, Mapping) or any(name not in content for name in needed):
        hint = "; rows of scores belong into a .jsonl file" if isinstance(content, list) else ""
        raise ValueError(f"{source}: not RewardBench scores (an object with {', '.join(needed)}){hint}")
    lists = [content[name] for name in needed]
    if not all(isinstance(values, list) for values in lists) or len({len(values) for values in lists}) != 1:
        raise ValueError(f"{source}: {', '.join(needed)} must be lists of one length")
    for name in ("id", "subset"):
        for i, value in enumerate(content[name]):
            if not isinstance(value, (str, int)):
                raise ValueError(f"{source}, {name} {i}: {json.dumps(value)} is no text")
    rows, places = [], []
    categories = [str(subset) for subset in content["subset"]]
    names = distinct_ids([str(identifier) for identifier in content["id"]], categories)
    for i_item, (identifier, _, scores, n_correct) in enumerate(zip(*lists, strict=True)):
        where = f"{source}, id {identifier!r}"
        if not isinstance(scores, list):
            raise ValueError(f"{where}: no scores (a generative judge gives none)")
        if isinstance(n_correct, bool) or not isinstance(n_correct, int) or n_correct < 1:
            raise ValueError(f"{where}: num_correct is {json.dumps(n_correct)}, not a whole number from 1 up")
        for i, score in enumerate(scores):
            while isinstance(score, list) and len(score) == 1:
                score = score[0]
            if isinstance(score, bool) or not isinstance(score, (int, float)):
                raise ValueError(f"{where}: score {i} is {json.dumps(score)}, not a number")
            row = (names[i_item], categories[i_item], i, i < n_correct, score)
            rows.append(dict(zip(COLUMNS[:5], row, strict=True)))
            places.append(f"entry {i_item}")
    about = {key: content[key] for key in ("model", "model_type", "chat_template") if key in content}
    return Scores.from_rows(rows, {"source": source, **about}, source=source, place=places.__getitem__)


def to_rewardbench(scores: Scores) -> dict[str, Any]:
    """Return scores in the form of RewardBench's `eval-set-scores` files, correct responses first."""
    result: dict[str, Any] = {name: [] for name in ("id", "subset", "scores", "num_correct", "results")}
    for start, end in zip(scores.offsets[:-1], scores.offsets[1:], strict=True):
        order = start + np.argsort(~scores.is_correct[start:end], kind="stable")
        rewards = scores.reward[order].tolist()
        best = max(rewards)
        result["id"].append(str(scores.item_id[start]))
        result["subset"].append(str(scores.category[start]))
        result["scores"].append(rewards)
        result["num_correct"].append(int(scores.is_correct[start:end].sum()))
        result["results"].append(1.0 / rewards.count(best) if rewards[0] == best else 0.0)
    about = {"model": "unknown", "model_type": "Seq. Classifier", "chat_template": "tokenizer"}
    return result | {key: scores.manifest.get(key, value) for key, value in about.items()}


def _write_table(scores: Scores, file: IO[bytes]) -> None:
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({name: pyarrow.array(getattr(scores, name).tolist()) for name in COLUMNS})
    table = table.replace_schema_metadata({_METADATA: json.dumps(scores.manifest).encode()})
    pyarrow.parquet.write_table(table, file)


def _check(scores: Scores) -> None:
    def first(wrong: npt.NDArray[np.bool_]) -> int:
        return int(np.flatnonzero(wrong)[0])

    def name(row: int) -> str:
        return f"item {str(scores.item_id[row])!r}, response {scores.response[row]}"

    if len({len(getattr(scores, column)) for column in COLUMNS}) != 1:
        raise ValueError("the columns have different lengths")
    bad = ~np.isfinite(scores.reward)
    if bad.any():
        row = first(bad)
        raise ValueError(
            f"{name(row)}: the reward is {scores.reward[row]} ({bad.sum()} of them are not finite)"
        )
    starts = np.flatnonzero(np.r_[True, scores.item_id[1:] != scores.item_id[:-1]])
    sizes = np.diff(np.r_[starts, len(scores)])
    if len(np.unique(scores.item_id[starts])) != len(starts):
        raise ValueError("the responses of an item do not stand together")
    expected = np.arange(len(scores)) - np.repeat(starts, sizes)
    bad = scores.response != expected
    if bad.any():
        row = first(bad)
        told = (
            "is there twice"
            if row and scores.response[row] == scores.response[row - 1]
            else "comes too early"
        )
        raise ValueError(f"{name(row)} {told}: an item's responses are numbered 0, 1, 2, ...")
    bad = scores.category != np.repeat(scores.category[starts], sizes)
    if bad.any():
        raise ValueError(f"{name(first(bad))}: another category than the item's other responses")
    correct = np.add.reduceat(scores.is_correct, starts, dtype=np.int64)
    for kind, bad in (("correct", correct == 0), ("wrong", correct == sizes)):
        if bad.any():
            raise ValueError(f"item {str(scores.item_id[starts[first(bad)]])!r}: no {kind} response")


def _read(path: Path) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ValueError(f"{path}: {_why(error)}") from error


def _parse(text: bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:  # also what is too deep, or a number too long, for Python
        several = where.endswith(".json") and "Extra data" in str(error)
        hint = " (one object a line? then its name should end in .jsonl)" if several else ""
        raise ValueError(f"{where}: not JSON: {error}{hint}") from error


def _why(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text.splitlines()[0] if text else type(error).__name__

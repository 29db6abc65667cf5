"""Samples that training frameworks write: verl, TRL, ms-swift, NeMo-RL. They become scores with steps.

=========  ===============================================  ==============================================
framework  files                                            a row
=========  ===============================================  ==============================================
verl       `<step>.jsonl`                                   a sample: input, output, score, step, ...
TRL        `completions/completions_<step>.parquet`         a sample: step, prompt, completion, rewards
ms-swift   `completions.jsonl`                              many samples: the same, as lists
NeMo-RL    `train_data_step<N>.jsonl`, `val_data_step...`   a sample: content, rewards, ...
=========  ===============================================  ==============================================

Files may still grow: a last line that is cut off is read next time. A step that is written again, because
the run was restarted, replaces the former one.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib._util.storage import read_input
from rmcalib.scores._files import read_parquet
from rmcalib.scores._schema import Problems, shown, taken
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import KNOWN, parse_columns

Row = dict[str, Any]
_LABELS = re.compile(r"(^|_)(acc|accuracy|correct|correctness|is_correct|exact|exact_match|label|truth)(_|$)")
_NUMBERS = (int, float, bool)


def load_rollouts(
    source: str | Path, columns: str | Mapping[str, Any] | None = None, *, split: str = "train"
) -> dict[str, Scores]:
    """Read the samples of a training run, one `Scores` per reward.

    Parameters
    ----------
    source : str or Path
        The folder into which verl, TRL, ms-swift or NeMo-RL writes samples, or one of its files.
    columns : mapping or str, optional
        Which columns are rewards and labels: ``"reward=score,label=acc"``, or several rewards with
        ``"reward=a+b"``. By default, the label is a column with a name such as ``acc`` or ``correct``, and
        the rewards are `score` (verl, NeMo-RL), or all other reward functions.
    split : {"train", "val"}
        Which of NeMo-RL's files to read.

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
    (1, [False, False, True, False], [5, 5, 5, 5])
    """
    return RolloutReader(source, columns, split=split).read()


@dataclass
class RolloutReader:
    """Reads the samples of a run that goes on: each `read` parses only the files that have changed."""

    source: str | Path
    columns: str | Mapping[str, Any] | None = None
    split: str = "train"
    _parsed: dict[Path, tuple[tuple[int, int], list[Row]]] = field(default_factory=dict, repr=False)

    def read(self) -> dict[str, Scores]:
        """Return the scores of everything that is written so far, by reward; see `load_rollouts`."""
        files = _files_of(Path(self.source), self.split)
        steps: dict[int, list[Row]] = {}
        for path, parse in files:
            seen: set[int] = set()
            last: int | None = None
            flush: Any = None
            for row in self._rows(path, parse):
                step = row["step"]
                other = row.get("flush") != flush  # ms-swift writes a step at once
                flush = row.get("flush")
                if step not in seen or other or (last is not None and step < last):
                    # Written again: by a later file, or after a restart in the same file.
                    for known in [one for one in steps if one == step or (one > step and one in seen)]:
                        del steps[known]
                    seen = {one for one in seen if one < step} | {step}
                steps.setdefault(step, []).append(row)
                last = step
        rows = [row for step in sorted(steps) for row in steps[step]]
        if not rows:
            raise ValueError(f"{self.source}: no complete sample in its files yet")
        return _scores(rows, parse_columns(self.columns), str(self.source))

    def _rows(self, path: Path, parse: Callable[[Path], Iterable[Row]]) -> list[Row]:
        about = path.stat()
        state = (about.st_mtime_ns, about.st_size)
        if path not in self._parsed or self._parsed[path][0] != state:
            self._parsed[path] = (state, list(parse(path)))
        return self._parsed[path][1]


def _files_of(source: Path, split: str) -> list[tuple[Path, Callable[[Path], Iterable[Row]]]]:
    """Return the files of a run in the order of their steps, each with its parser."""
    if source.is_dir():
        paths = [*source.iterdir(), *(source / "completions").glob("*.parquet")]
    elif source.is_file():
        paths = [source]
    else:
        raise ValueError(f"{source}: no such folder or file")
    nemo = re.compile(rf"{split}_data_step(\d+)\.jsonl")
    known: list[tuple[re.Pattern[str], Callable[[Path], Iterable[Row]]]] = [
        (re.compile(r"(\d+)\.jsonl"), _verl),
        (re.compile(r"completions_(\d+)\.parquet"), _trl),
        (re.compile(r"completions()\.jsonl"), _swift),
        (nemo, _nemo),
    ]
    for pattern, parse in known:
        found = [(int(match[1] or 0), path) for path in paths if (match := pattern.fullmatch(path.name))]
        if found:
            return [(path, parse) for _, path in sorted(found)]
    raise ValueError(
        f"{source}: no samples of verl (<step>.jsonl), TRL (completions_<step>.parquet), ms-swift "
        f"(completions.jsonl) or NeMo-RL ({split}_data_step<N>.jsonl)"
    )


def _objects(path: Path) -> Iterable[Row]:
    """Yield the objects of a JSONL file; a last line that is cut off is left for the next time."""
    lines = read_input(path).split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                return
            raise ValueError(f"{path}, line {number}: not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number}: expected an object {{...}}")
        yield row


def _verl(path: Path) -> Iterable[Row]:
    for row in _objects(path):
        numbers = {name: value for name, value in row.items() if isinstance(value, _NUMBERS)}
        output = str(row.get("output") or "")
        step = int(row.get("step") or path.stem)
        yield numbers | {"step": step, "prompt": str(row.get("input")), "characters": len(output)}


def _trl(path: Path) -> Iterable[Row]:
    try:
        columns, _ = read_parquet(path)
    except ValueError:
        return  # not finished: it is read the next time
    listed = {name: values.tolist() for name, values in columns.items()}
    yield from _samples(listed, step=int(path.stem.rpartition("_")[2]))


def _swift(path: Path) -> Iterable[Row]:
    for number, flush in enumerate(_objects(path)):
        lists = {name: values for name, values in flush.items() if isinstance(values, list)}
        lists["flush"] = [number] * len(lists.get("prompt", ()))
        yield from _samples(lists)


def _samples(lists: Mapping[str, list[Any]], step: int | None = None) -> Iterable[Row]:
    """Yield samples of columns; texts other than the prompt are left out."""
    n = len(lists.get("prompt", ()))
    for i in range(n):
        row = {name: values[i] for name, values in lists.items() if len(values) == n}
        numbers = {name: value for name, value in row.items() if isinstance(value, _NUMBERS)}
        own = row.get("step", step)
        if own is None:
            continue
        text = str(row.get("completion") or "")
        yield numbers | {"step": int(own), "prompt": repr(row["prompt"]), "characters": len(text)}


def _nemo(path: Path) -> Iterable[Row]:
    step = int(path.stem.rpartition("step")[2])
    for row in _objects(path):
        flat = {name: value[0] if _is_single(value) else value for name, value in row.items()}
        content = row.get("content")
        parts = content if isinstance(content, list) else [content]
        numbers = {name: value for name, value in flat.items() if isinstance(value, _NUMBERS)}
        if "rewards" in numbers:
            numbers["score"] = numbers.pop("rewards")
        text = "".join(map(str, parts[1:]))
        yield numbers | {"step": step, "prompt": str(parts[0]), "characters": len(text)}


def _is_single(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 1


def _scores(rows: list[Row], given: Mapping[str, list[str]], source: str) -> dict[str, Scores]:
    """Return the scores of each reward."""
    names = [*dict.fromkeys(name for row in rows for name in row)]
    problems = Problems(source)
    for role in ("reward", "label"):
        for name in given.get(role, ()):
            if name.removeprefix("-") not in names:
                near = difflib.get_close_matches(name, names, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"has {', '.join(names)}"
                problems.append(f"no column {name!r} for {role} ({hint})")
    problems.raise_if_any()
    label = given["label"][0] if "label" in given else _label_of(names, problems)
    rewards = given.get("reward") or _rewards_of(names, label)
    if not rewards:
        problems.append(f"no column of rewards (has {', '.join(names)}): name it, --columns reward=NAME")
    problems.raise_if_any()
    labels = None if label is None else _truth(rows, label, problems)
    digest = [hashlib.sha256(row["prompt"].encode("utf-8", "replace")).hexdigest()[:16] for row in rows]
    items = [f"{prompt}@{row['step']}" for prompt, row in zip(digest, rows, strict=True)]
    shared: dict[str, Any] = {
        "item_id": items,
        "cluster": digest,
        "step": np.array([row["step"] for row in rows]),
        "characters": np.array([row["characters"] for row in rows]),
    }
    problems.raise_if_any()
    import pandas as pd

    found = {}
    for name in rewards:
        plain, sign = (name.removeprefix("-"), -1.0) if name not in names else (name, 1.0)
        values = np.array([_float(row.get(plain)) for row in rows])
        there = np.flatnonzero(np.isfinite(values))
        if not len(there):
            continue
        own: dict[str, Any] = {key: taken(column, there) for key, column in shared.items()}
        own["response"] = pd.Series(own["item_id"]).groupby(own["item_id"]).cumcount().to_numpy()
        own["reward"] = sign * values[there]
        own["label"] = np.full(len(there), np.nan) if labels is None else labels[there]
        about: dict[str, Any] = {"model": plain, "source": source}
        if len(there) < len(rows):
            about["missing"] = {"responses": len(rows) - len(there), "treated": "left out"}
        found[plain] = Scores.from_columns(own, about, source=f"{source}, {plain}")
    if not found:
        raise ValueError(f"{source}: no finite reward in {', '.join(rewards)}")
    return found


def _label_of(names: list[str], problems: Problems) -> str | None:
    found = [name for name in names if _LABELS.search(name.lower())]
    if len(found) > 1:
        problems.append(f"label: could be {' or '.join(found)}: say which, --columns label={found[0]}")
    return found[0] if found else None


def _rewards_of(names: list[str], label: str | None) -> list[str]:
    if "score" in names:
        return ["score"]
    return [name for name in names if name not in KNOWN["not_rewards"] and name != label]


def _truth(rows: list[Row], name: str, problems: Problems) -> FloatArray:
    values = np.array([_float(row.get(name)) for row in rows])
    bad = np.flatnonzero((values < 0) | (values > 1))
    if len(bad):
        problems.append(
            f"{name} is {shown(rows[bad[0]][name])}, and a label is 0, 1 or a share in between: turn it into "
            "one, or name another column, --columns label=NAME"
        )
    return values


def _float(value: Any) -> float:
    return float(value) if isinstance(value, _NUMBERS) else float("nan")

"""Rollouts: the samples that training frameworks write, step by step.

| framework | files |
|---|---|
| verl | `<step>.jsonl`: input, output, score, and keys of the reward function |
| TRL | `completions/completions_<step>.parquet`: step, prompt, completion, one column per reward function |
| ms-swift | `completions.jsonl`: one object per flush, whose values are lists |
| NeMo-RL | `train_data_step<N>.jsonl` or `val_data_step<N>.jsonl`: content, rewards |
| LLaMA-Factory | `generated_predictions.jsonl`: chosen, rejected |
| any | `.jsonl` or `.parquet` files with the columns step, prompt, reward, and label |

Files are read while they grow: a cut last line or an unfinished Parquet file is left for the next time. A step
that is written again, because a run was restarted, replaces the earlier one.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import parse_columns

__all__ = ["Rollouts", "Step", "load_rollouts"]

_STEP = re.compile(r"^(?:completions_|(?:train|val)_data_step)?(\d+)\.(?:jsonl|parquet)$")
_FILES = ("*.jsonl", "*.parquet", "completions/*.parquet", "completions/*.jsonl")
_PROMPTS = ("prompt", "input", "question", "prompt_id", "uid")
_OUTPUTS = ("completion", "output", "response")
_REWARDS = ("reward", "rewards", "score")
_LABELS = re.compile(
    r"(?:^|_)(?:acc|accuracy|correct|correctness|label|exact|exact_match|match|verify|verified)(?:_|$)"
)
_NO_REWARDS = re.compile(r"advantage|step|idx|index|length|token|mask|epoch|timestamp|_id$|^id$|^uid$")
Row = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """The samples of one step of a training run.

    Attributes
    ----------
    step : float
        Its number.
    prompt : list of str
        Which prompt each sample is for: a digest of its text. A prompt that returns has the same.
    rewards : dict of float (N,)
        The rewards by judge: one, or several reward functions.
    label : float (N,), optional
        1 for correct samples, 0 for wrong ones, or a share; None without labels.
    length : float (N,), optional
        Characters of the sample; None if the texts are not there.
    """

    step: float
    prompt: list[str]
    rewards: dict[str, FloatArray]
    label: FloatArray | None
    length: FloatArray | None


@dataclass
class Rollouts:
    """Reads a training run's folder, or one file, again and again.

    Parameters
    ----------
    folder : str or Path
        Where the framework writes; see the table above.
    columns : mapping or str, optional
        Which column is what: ``"reward=score,label=acc"``; roles: step, prompt, response, reward (several:
        ``reward=a+b``), label. Columns with usual names are found without it.
    """

    folder: str | Path
    columns: str | Mapping[str, Any] | None = None
    _seen: dict[Path, tuple[int, int]] = field(default_factory=dict)

    def read(self) -> list[Step]:
        """Return the steps that are new, or were written again, since the last time; in the order of steps."""
        root = Path(self.folder)
        if not root.exists():
            raise ValueError(f"{root}: does not exist")
        found: dict[float, Step] = {}
        given = parse_columns(self.columns)
        for path in _files(root):
            state = path.stat()
            mark = (state.st_size, state.st_mtime_ns)
            if self._seen.get(path) == mark:
                continue
            for number, rows in _steps(path, given):
                found[number] = _step(number, rows, given, path)
            self._seen[path] = mark
        return [found[number] for number in sorted(found)]


def load_rollouts(folder: str | Path, columns: str | Mapping[str, Any] | None = None) -> dict[str, Scores]:
    """Read the samples of a training run as scores, one judge per reward.

    Parameters
    ----------
    folder, columns
        As for `Rollouts`.

    Returns
    -------
    dict of Scores
        By judge. The samples of one prompt at one step are its responses, the category is the step, and a
        prompt that returns is one cluster.

    Examples
    --------
    >>> import tempfile
    >>> rows = [{"input": "1 + 1?", "output": text, "score": r, "acc": a, "step": 3}
    ...         for text, r, a in (("2", 1.5, 1), ("3", -0.5, 0))]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "3.jsonl").write_text("".join(json.dumps(row) + "\\n" for row in rows))
    ...     found = load_rollouts(folder)
    >>> found["score"].reward.tolist(), found["score"].category.tolist()
    ([1.5, -0.5], ['step 3', 'step 3'])
    """
    steps = Rollouts(folder, columns).read()
    if not steps:
        raise ValueError(f"{folder}: no samples yet")
    result = {}
    for judge in dict.fromkeys(name for one in steps for name in one.rewards):
        own = [one for one in steps if judge in one.rewards]
        ids = [f"{one.step:g}/{prompt}" for one in own for prompt in one.prompt]
        counts: Counter[str] = Counter()
        response = []
        for name in ids:
            response.append(counts[name])
            counts[name] += 1
        sizes = [len(one.prompt) for one in own]
        columns_: dict[str, Any] = {
            "item_id": ids,
            "response": response,
            "reward": np.concatenate([one.rewards[judge] for one in own]),
            "label": np.concatenate(
                [
                    np.full(n, np.nan) if one.label is None else one.label
                    for one, n in zip(own, sizes, strict=True)
                ]
            ),
            "cluster": [prompt for one in own for prompt in one.prompt],
            "category": [f"step {one.step:g}" for one, n in zip(own, sizes, strict=True) for _ in range(n)],
            "step": np.repeat([one.step for one in own], sizes),
        }
        result[judge] = Scores.from_columns(columns_, {"model": judge}, source=str(folder))
    return result


def _files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    paths = sorted({path for pattern in _FILES for path in root.glob(pattern) if path.is_file()})
    train = [path for path in paths if not path.name.startswith("val_data_step")]
    own = [path for path in train or paths if _STEP.match(path.name) or path.name in _NAMED]
    return own or train or paths


_NAMED = ("completions.jsonl", "generated_predictions.jsonl")


def _steps(path: Path, given: Mapping[str, list[str]]) -> Iterator[tuple[float, list[Row]]]:
    """Yield the steps of a file with their rows; a later step of the same number replaces an earlier one."""
    match = _STEP.match(path.name)
    default = float(match.group(1)) if match else 0.0
    key = given.get("step", ["step"])[0]
    result: dict[float, list[Row]] = {}
    last: float | None = None
    for flush, whole in _flushes(path):
        parts: dict[float, list[Row]] = {}
        for row in flush:
            parts.setdefault(_number(row.get(key, default), path, key), []).append(row)
        for number, rows in parts.items():
            if number == last and not whole:  # the step goes on
                result[number] += rows
            else:
                result[number] = list(rows)
            last = number
    yield from result.items()


def _flushes(path: Path) -> Iterator[tuple[list[Row], bool]]:
    """Yield the rows that were written together, and whether they are a whole step (not one line of it)."""
    if path.suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        try:
            table = pyarrow.parquet.read_table(io.BytesIO(path.read_bytes()))
        except (pyarrow.ArrowException, OSError):
            return  # not finished: read it the next time
        yield table.to_pylist(), True
        return
    content = path.read_bytes()
    lines = content.split(b"\n")
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if number == len(lines) - 1:
                return  # cut: read it the next time
            raise ValueError(f"{path}, line {number + 1}: not JSON") from None
        if not isinstance(row, dict):
            raise ValueError(f"{path}, line {number + 1}: expected an object {{...}}")
        yield _unfolded(row, path, number), isinstance(row.get("step"), list)


def _unfolded(row: Row, path: Path, line: int) -> list[Row]:
    """Turn an object of lists into rows (ms-swift), and a pair into two samples (LLaMA-Factory)."""
    if "chosen" in row and "rejected" in row and "reward" not in row:
        prompt = {"prompt": row.get("prompt", f"pair {line}")}
        return [
            {**prompt, "reward": row["chosen"], "label": 1},
            {**prompt, "reward": row["rejected"], "label": 0},
        ]
    lists = {name: value for name, value in row.items() if isinstance(value, list)}
    if isinstance(row.get("step"), list):
        sizes = {len(value) for value in lists.values()}
        if len(sizes) != 1:
            raise ValueError(f"{path}, line {line + 1}: its lists have {len(sizes)} different lengths")
        return [{name: value[i] for name, value in lists.items()} for i in range(sizes.pop())]
    # NeMo-RL: numbers are lists of length one; the content is a list of texts, the prompt first.
    flat = {
        name: value[0] if isinstance(value, list) and len(value) == 1 else value
        for name, value in row.items()
    }
    content = row.get("content")
    if isinstance(content, list) and content and "prompt" not in row:
        flat |= {"prompt": content[0], "completion": "".join(_text(one) for one in content[1:])}
    return [flat]


def _step(number: float, rows: Sequence[Row], given: Mapping[str, list[str]], path: Path) -> Step:
    names = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [name for name in names if any(_is_number(row.get(name)) for row in rows)]
    label = _label(names, numeric, rows, given, path)
    rewards = _rewards(names, numeric, label, given, path)
    prompt = _one_of("prompt", names, given, _PROMPTS, path)
    if prompt is None:
        raise ValueError(
            f"{path}: which column is the prompt? Give columns='prompt=...' (has {', '.join(names)})"
        )
    text = _one_of("response", names, given, _OUTPUTS, path)
    # A sample without a reward is no sample: a reward function may return nothing.
    kept = [row for row in rows if all(_is_number(row.get(name.removeprefix("-"))) for name in rewards)]
    return Step(
        number,
        [hashlib.blake2b(_text(row.get(prompt)).encode(), digest_size=12).hexdigest() for row in kept],
        {name.removeprefix("-"): _column(kept, name) for name in rewards},
        None if label is None else _truth(kept, label, path),
        None if text is None else np.array([len(_text(row.get(text))) for row in kept], dtype=np.float64),
    )


def _rewards(
    names: Sequence[str],
    numeric: Sequence[str],
    label: str | None,
    given: Mapping[str, list[str]],
    path: Path,
) -> list[str]:
    if "reward" in given:
        for name in given["reward"]:
            if name.removeprefix("-") not in names:
                raise ValueError(f"{path}: no column {name!r} (has {', '.join(names)})")
        return list(given["reward"])
    usual = [name for name in _REWARDS if name in numeric and name != label]
    if usual:
        return usual[:1]
    others = [name for name in numeric if name != label and not _NO_REWARDS.search(name)]
    if not others:
        raise ValueError(
            f"{path}: which column is the reward? Give columns='reward=...' (has {', '.join(names)})"
        )
    return others


def _label(
    names: Sequence[str],
    numeric: Sequence[str],
    rows: Sequence[Row],
    given: Mapping[str, list[str]],
    path: Path,
) -> str | None:
    if "label" in given:
        name = given["label"][0]
        if name not in names:
            raise ValueError(f"{path}: no column {name!r} (has {', '.join(names)})")
        return name
    found = [name for name in names if _LABELS.search(name.lower())]
    found = [name for name in found if all(_share(row.get(name)) is not None for row in rows)]
    if len(found) > 1:
        raise ValueError(f"{path}: which column is the truth, {' or '.join(found)}? Give columns='label=...'")
    others = [name for name in numeric if name not in found and not _NO_REWARDS.search(name)]
    return found[0] if found and others else None  # the only number is the reward


def _one_of(
    role: str, names: Sequence[str], given: Mapping[str, list[str]], usual: Sequence[str], path: Path
) -> str | None:
    if role in given:
        if given[role][0] not in names:
            raise ValueError(f"{path}: no column {given[role][0]!r} (has {', '.join(names)})")
        return given[role][0]
    return next((name for name in usual if name in names), None)


def _truth(rows: Sequence[Row], name: str, path: Path) -> FloatArray:
    found = [_share(row.get(name)) for row in rows]
    for row, value in zip(rows, found, strict=True):
        if value is None:
            raise ValueError(
                f"{path}: {name} is {row.get(name)!r}: a label is true or false, or a share from 0 to 1; rescale "
                "it, or give another column with columns='label=...'"
            )
    return np.array(found, dtype=np.float64)


def _share(value: Any) -> float | None:
    """Return a label from 0 to 1, NaN for an unknown one, None for anything else."""
    if value is None:
        return math.nan
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return float(value.lower() == "true")
    if isinstance(value, bool | int | float) and (0 <= value <= 1 or value != value):
        return float(value)
    return None


def _column(rows: Sequence[Row], name: str) -> FloatArray:
    own = name.removeprefix("-")
    values = np.array([float(row[own]) for row in rows], dtype=np.float64)
    return -values if own != name else values


def _number(value: Any, path: Path, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{path}: {name} is {value!r}, not a number") from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _text(value: Any) -> str:
    """Return a prompt or a response as text; chats are lists of messages."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "content" in value:
        return _text(value["content"])
    if isinstance(value, list):
        return "\n".join(_text(one) for one in value)
    return json.dumps(value, sort_keys=True, default=str)

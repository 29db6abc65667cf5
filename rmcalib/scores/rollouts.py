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

import contextlib
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.storage import read_input
from rmcalib._util.texts import json_lines, parse_json
from rmcalib.scores._files import Table, columns_of, read_parquet
from rmcalib.scores._layouts import ROW
from rmcalib.scores._load import load_all_scores
from rmcalib.scores._roles import KNOWN, parse_columns, turned, unknown_names
from rmcalib.scores._schema import as_number, raise_if_any
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import to_columns

Row = dict[str, Any]
Parser = Callable[[Path], Iterable[list[Row]]]
"""Yields what was written at once: the samples of a file, or of a line of ms-swift."""
_LABELS = re.compile(r"(^|_)(acc|accuracy|correct|correctness|is_correct|exact|exact_match|label|truth)(_|$)")
_NUMBERS = (int, float, bool)


def load_rollouts(source: str | Path, columns: str | Mapping[str, Any] | None = None) -> dict[str, Scores]:
    """Read the samples of a training run, one `Scores` per reward.

    Parameters
    ----------
    source : str or Path
        The folder into which verl, TRL, ms-swift or NeMo-RL writes samples, or one of its files; or any file
        of scores, with or without a column of steps.
    columns : mapping or str, optional
        Which columns are rewards and labels: ``"reward=score,label=acc"``, or several rewards with
        ``"reward=a+b"``. By default, the label is a column with a name such as ``acc`` or ``correct``, and
        the rewards are `score` (verl, NeMo-RL), or all other reward functions.

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
    return RolloutReader(source, columns).read()


@dataclass
class RolloutReader:
    """Reads the samples of a run that goes on: each `read` parses only the files that have changed."""

    source: str | Path
    columns: str | Mapping[str, Any] | None = None
    _parsed: dict[Path, tuple[tuple[int, int], list[list[Row]]]] = field(default_factory=dict, repr=False)

    def read(self) -> dict[str, Scores]:
        """Return the scores of everything that is written so far, by reward; see `load_rollouts`."""
        files, other = _files_of(Path(self.source))
        if other is not None:
            return load_all_scores(other, self.columns)
        steps: dict[int, list[Row]] = {}
        for path, parse in files:
            for rows in self._written(path, parse):
                own: dict[int, list[Row]] = {}
                for row in rows:
                    own.setdefault(row["step"], []).append(row)
                # A step that is written again replaces itself and, after a restart, all later ones.
                first = min(own, default=math.inf)
                steps = {step: known for step, known in steps.items() if step < first} | own
        rows = [row for step in sorted(steps) for row in steps[step]]
        if not rows:
            raise ValueError(f"{self.source}: no complete sample in its files yet")
        return _scores(rows, parse_columns(self.columns), str(self.source))

    def _written(self, path: Path, parse: Parser) -> list[list[Row]]:
        about = path.stat()
        state = (about.st_mtime_ns, about.st_size)
        if path not in self._parsed or self._parsed[path][0] != state:
            self._parsed[path] = (state, list(parse(path)))
        return self._parsed[path][1]


def _files_of(source: Path) -> tuple[list[tuple[Path, Parser]], Path | None]:
    """Return the files of a run in the order of their steps, each with its parser, or a file of scores."""
    if source.is_dir():
        paths = [*source.iterdir(), *(source / "completions").glob("*.parquet")]
    elif source.is_file():
        paths = [source]
    else:
        raise ValueError(f"{source}: no such folder or file")
    known: dict[str, Parser] = {
        r"(\d+)\.jsonl": _verl,
        r"completions_(\d+)\.parquet": _trl,
        r"completions()\.jsonl": _swift,
        r"train_data_step(\d+)\.jsonl": _nemo,
        r"val_data_step(\d+)\.jsonl": _nemo,
    }
    for pattern, parse in known.items():
        found = [(int(match[1] or 0), path) for path in paths if (match := re.fullmatch(pattern, path.name))]
        if found:
            return [(path, parse) for _, path in sorted(found)], None
    pairs = source / "generated_predictions.jsonl"  # of LLaMA-Factory, which has no steps
    if source.is_file() or pairs.is_file():
        return [], source if source.is_file() else pairs
    raise ValueError(
        f"{source}: no samples of verl (<step>.jsonl), TRL (completions_<step>.parquet), ms-swift "
        "(completions.jsonl) or NeMo-RL (train_data_step<N>.jsonl)"
    )


def _objects(path: Path) -> Iterable[Row]:
    """Yield the objects of a JSONL file; a last line that is cut off is left for the next time."""
    content = read_input(path)
    whole, _, last = content.rpartition(b"\n")
    with contextlib.suppress(ValueError):
        parse_json(last, str(path))
        whole = content
    yield from (row for _, row in json_lines(whole, str(path)))


def _sample(values: Row, step: Any, prompt: str, text: str) -> Row:
    """Return a sample: its numbers, its step, an id of its prompt, and its length. Texts are left out."""
    numbers = {name: value for name, value in values.items() if isinstance(value, _NUMBERS)}
    digest = hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:16]
    return numbers | {"step": int(step), "prompt": digest, "characters": len(text)}


def _verl(path: Path) -> Iterable[list[Row]]:
    yield [
        _sample(row, row.get("step") or path.stem, str(row.get("input")), str(row.get("output") or ""))
        for row in _objects(path)
    ]


def _trl(path: Path) -> Iterable[list[Row]]:
    try:
        columns, _ = read_parquet(path)
    except ValueError:
        return  # not finished: it is read the next time
    listed = {name: values.tolist() for name, values in columns.items()}
    yield _samples(listed, step=path.stem.rpartition("_")[2])


def _swift(path: Path) -> Iterable[list[Row]]:
    for line in _objects(path):
        yield _samples({name: values for name, values in line.items() if isinstance(values, list)})


def _samples(lists: Mapping[str, list[Any]], step: str | None = None) -> list[Row]:
    """Return the samples of columns."""
    n = len(lists.get("prompt", ()))
    rows = [{name: values[i] for name, values in lists.items() if len(values) == n} for i in range(n)]
    return [
        _sample(row, own, repr(row["prompt"]), str(row.get("completion") or ""))
        for row in rows
        if (own := row.get("step", step)) is not None
    ]


def _nemo(path: Path) -> Iterable[list[Row]]:
    samples = []
    for row in _objects(path):
        # A value may be a list with one entry, and the prompt is the first part of the content.
        flat = {
            name: value[0] if isinstance(value, list) and len(value) == 1 else value
            for name, value in row.items()
        }
        if isinstance(flat.get("rewards"), _NUMBERS):
            flat["score"] = flat.pop("rewards")
        content = row.get("content")
        parts = content if isinstance(content, list) else [content]
        text = "".join(map(str, parts[1:]))
        samples.append(_sample(flat, path.stem.rpartition("step")[2], str(parts[0]), text))
    yield samples


def _scores(rows: list[Row], given: Mapping[str, list[str]], source: str) -> dict[str, Scores]:
    """Return the scores of each reward."""
    columns = turned(Table(columns_of(rows), source), given.get("reward", ())).columns
    names = [*columns]
    problems = unknown_names({role: given[role] for role in ("reward", "label") if role in given}, names)
    label = given["label"][0] if "label" in given else _label_of(names, problems)
    rewards = given.get("reward") or _rewards_of(names, label)
    if not rewards:
        problems.append(f"no column of rewards (has {', '.join(names)}): name it, --columns reward=NAME")
    raise_if_any(problems, source)
    found = {}
    for name in rewards:
        there = np.isfinite(np.array([as_number(value) for value in columns[name]], dtype=np.float64))
        if not there.any():
            continue
        roles = {"prompt": ["prompt"], "step": ["step"], "reward": [name]}
        roles |= {"label": [label]} if label else {}
        used = ["characters", *(own[0] for own in roles.values())]
        table = Table({one: columns[one][there] for one in used}, f"{source}, {name}")
        model = name.removeprefix("-")
        about: dict[str, Any] = {"model": model, "source": source}
        if not there.all():
            about["missing"] = {"responses": int((~there).sum()), "treated": "left out"}
        foreign = to_columns(table, roles)
        scores = Scores.from_columns(foreign.models[None], about, labels=foreign.labels, source=table.source)
        del scores.extra[ROW]
        found[model] = scores
    if not found:
        raise ValueError(f"{source}: no finite reward in {', '.join(rewards)}")
    return found


def _label_of(names: list[str], problems: list[str]) -> str | None:
    found = [name for name in names if _LABELS.search(name.lower())]
    if len(found) > 1:
        problems.append(f"label: could be {' or '.join(found)}: say which, --columns label={found[0]}")
    return found[0] if found else None


def _rewards_of(names: list[str], label: str | None) -> list[str]:
    if "score" in names:
        return ["score"]
    return [name for name in names if name not in KNOWN["not_rewards"] and name != label]

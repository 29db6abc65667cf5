"""`load_scores`: any scores in. Files, frames, run folders, built-in models."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rmcalib._util.arrays import FloatArray, IntArray, check_choice
from rmcalib._util.storage import as_path, is_remote, read_input
from rmcalib._util.terminal import count
from rmcalib._util.texts import parse_json
from rmcalib.scores import _files
from rmcalib.scores._formats import (
    is_rewardbench,
    is_rewardmath,
    is_rewardmath_table,
    rewardbench_columns,
    rewardmath_models,
    rewardmath_table,
)
from rmcalib.scores._known import REAL, built_in_scores, is_built_in
from rmcalib.scores._meaning import MISSING, STEPS, Missing, measured, step_rewards
from rmcalib.scores._schema import LARGEST_REWARD, Place, row_place, shown, taken
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import listed, parse_columns, to_columns


@dataclass(frozen=True)
class _Reading:
    """How a source is read: the options of `load_scores`, and the only model that is needed."""

    scale: str | None = None
    cluster: str | None = None
    steps: str = "product"
    missing: Missing | None = None
    only: str | None = None

    def __post_init__(self) -> None:
        check_choice(self.steps, "steps", STEPS)
        check_choice(self.missing, "missing", (None, *MISSING))


class Loaded(NamedTuple):
    """Scores, the table they were read from, and the row of it that each response is from (N,)."""

    scores: Scores
    table: _files.Table
    row: IntArray


def load_scores(
    source: Any,
    columns: str | Mapping[str, Any] | None = None,
    *,
    scale: str | None = None,
    model: str | None = None,
    cluster: str | None = None,
    steps: str = "product",
    missing: Missing | None = None,
) -> Scores:
    """Read the scores of one model from a file or a table, or load built-in ones.

    Parameters
    ----------
    source : str, Path, DataFrame, Arrow table or Scores
        A file (`.csv`, `.tsv`, `.parquet`, `.jsonl`, `.json`), a run folder, or a table. It is long, with one
        row per response, or wide, with one row per prompt: `chosen` and `rejected`, several columns of
        rewards, or a list of rewards. Files of RewardBench, RewardMATH and LLaMA-Factory
        (`generated_predictions.jsonl`) are recognised. Or `real/<model>`, a model of a built-in board (see
        :func:`load_board`). Scores are returned as they are.
    columns : mapping or str, optional
        Which column is what: ``{"reward": "score", "prompt": "prompt_id"}`` or
        ``"reward=score,prompt=prompt_id"``. Roles: prompt, response, reward, label, category, cluster, step,
        model. Columns with usual names are found without it. Several rewards per row: ``"reward=a+b"`` or a
        list. ``"reward=-loss"``: lower is better. Further columns are kept in `Scores.extra`.
    scale : {"reward", "probability", "logprob", "rating", "logit"}, optional
        What the numbers are. By default, `rmcalib.scores.look` decides if it is certain, and numbers are
        rewards otherwise; the manifest says which (``meaning``). Files of rmcalib and of known formats are
        never guessed.
    model : str, optional
        Which model, if the source has several.
    cluster : str, optional
        The column that says which prompts belong together; the same as ``columns={"cluster": ...}``.
    steps : str
        How to combine the step scores of a process reward model (a column of lists, `steps`): product, min,
        last, mean or geometric_mean.
    missing : Missing, optional
        What to do about a response without a score: ``"refuse"`` the file (the default), count it as the
        ``"lowest"`` reward of all (the default for RewardMATH's files), or ``"drop"`` its prompt. The
        manifest records how many there were.

    Returns
    -------
    Scores

    Raises
    ------
    ValueError
        With everything that is missing, ambiguous or wrong, and the option that repairs it.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"prompt_id": [7, 7], "response_id": ["a", "b"], "score": [1.5, 0.5],
    ...                       "is_best": ["no", "yes"]})
    >>> scores = load_scores(table)
    >>> scores.reward.tolist(), scores.is_correct.tolist()
    ([1.5, 0.5], [False, True])
    """
    found = load_all_scores(
        source, columns, scale=scale, cluster=cluster, steps=steps, missing=missing, only=model
    )
    name = "table" if _files.is_frame(source) else str(source)
    if model is None and len(found) > 1:
        raise ValueError(
            f"{name}: scores of {len(found)} models ({listed(found)}), and one is needed: name it (model=...)"
        )
    if len(found) == 1:
        return next(iter(found.values()))
    return find_model(found, str(model), name)


def load_all_scores(
    source: Any,
    columns: str | Mapping[str, Any] | None = None,
    *,
    scale: str | None = None,
    cluster: str | None = None,
    steps: str = "product",
    missing: Missing | None = None,
    only: str | None = None,
) -> dict[str, Scores]:
    """Read the scores of all models of a source, by model; see `load_scores`.

    Parameters
    ----------
    source, columns, scale, cluster, steps, missing
        As for `load_scores`.
    only : str, optional
        A model whose name is known, so that the others need not be built.

    Returns
    -------
    dict of str to Scores
        The scores by model. If a file does not name its model, the name is that of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Scores.from_arrays([[1.0, 0.0]]).to_parquet(f"{folder}/mine.parquet")
    ...     list(load_all_scores(f"{folder}/mine.parquet"))
    ['mine']
    """
    found = _load(source, columns, _Reading(scale, cluster, steps, missing, only))
    return {name: loaded.scores for name, loaded in found.items()}


def load_with_rows(source: Any, columns: str | Mapping[str, Any] | None = None, **options: Any) -> Loaded:
    """Read scores of one model together with the table that they are from, so that rows can be written back.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"prompt": ["a", "b", "a"], "score": [1.0, 2.0, 3.0]})
    >>> load_with_rows(table).row.tolist()
    [0, 2, 1]
    """
    found = _load(source, columns, _Reading(**options))
    if len(found) > 1:
        raise ValueError(f"{source}: scores of {len(found)} models ({listed(found)}), and one is needed")
    return next(iter(found.values()))


def find_model(found: Mapping[str, Scores], model: str, path: str | Path) -> Scores:
    """Return the scores of one model of a file, or raise a ValueError that lists the models."""
    if model not in found:
        near = difflib.get_close_matches(model, found, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"has {listed(found)}"
        raise ValueError(f"{path}: no scores of {model!r} ({hint})")
    return found[model]


def _load(source: Any, columns: str | Mapping[str, Any] | None, reading: _Reading) -> dict[str, Loaded]:
    given = parse_columns(columns)
    if isinstance(source, Scores):
        table = _files.Table(dict(source.columns()), "scores")
        scores = measured(source, reading.scale, guess=False)
        return {str(source.manifest.get("model") or "scores"): Loaded(scores, table, np.arange(len(source)))}
    if _files.is_frame(source):
        return _of_table(_files.read_frame(source), "scores", given, reading)
    if is_built_in(source):
        scores = built_in_scores(str(source))
        table = _files.Table(dict(scores.columns()), str(source))
        return {str(source).removeprefix(f"{REAL}/"): Loaded(scores, table, np.arange(len(scores)))}
    if isinstance(source, (np.ndarray, list, tuple)):
        raise TypeError(
            "expected Scores, a table or a path; arrays: Scores.from_arrays(rewards, correct=...)"
        )
    file = as_path(source)
    if file.suffix.lower() not in _files.ENDINGS and (is_remote(file) or file.is_dir()):
        file /= "scores.parquet"  # of a run folder
        if not is_remote(file) and not file.exists():
            raise ValueError(
                f"{source}: a folder without scores.parquet: name a file of scores or a run folder"
            )
    content = None
    known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    if file.suffix.lower() == ".json":
        content = parse_json(read_input(file), str(file))
        if is_rewardbench(content):
            known[""] = rewardbench_columns(content, str(file))
        elif is_rewardmath(content):
            table, notes = rewardmath_table(content, str(file), file.stem)
            ((own, about),) = rewardmath_models(table).values()
            about |= {"model": file.stem, "notes": [*notes, *about.get("notes", [])]}
            known[""] = own, about
    if not known:
        table = _files.read_table(file, content)
        if not given and len(table) and is_rewardmath_table(table.columns):
            known = rewardmath_models(table)
    if known:
        if not is_rewardbench(content):
            reading = replace(reading, missing=reading.missing or "lowest")
        result = {}
        for name, (own, about) in known.items():
            if reading.only in (None, name) or not name:
                where = f"{file}: {name}" if name else str(file)
                table = _files.Table(own, where)
                result[name or str(about.get("model") or file.stem)] = _built(own, about, table, reading)
        return result
    return _of_table(table, file.stem, given, reading)


def _of_table(
    table: _files.Table, stem: str, given: Mapping[str, list[str]], reading: _Reading
) -> dict[str, Loaded]:
    """Build the scores of each model of a table."""
    about = dict(table.manifest or {})
    ours = table.manifest is not None and not given and reading.cluster is None
    parts = {None: dict(table.columns)} if ours else to_columns(table, given, reading.cluster)
    result = {}
    for model, own in parts.items():
        if reading.only is not None and len(parts) > 1 and model != reading.only:
            continue
        named = about if model is None else about | {"model": model}
        guess = table.manifest is None
        result[model or str(about.get("model") or stem)] = _built(own, named, table, reading, guess=guess)
    if not result:
        raise ValueError(f"{table.source}: no scores of {reading.only!r} (has {listed(map(str, parts))})")
    return result


def _built(
    columns: Mapping[str, Any],
    about: Mapping[str, Any],
    table: _files.Table,
    reading: _Reading,
    *,
    guess: bool = False,
) -> Loaded:
    """Build scores from columns; steps, pairs and missing numbers become rewards."""
    n = len(next(iter(columns.values())))
    given = {"__row__": np.arange(n)} | dict(columns)
    manifest = dict(about)
    source, place, missing = table.source, table.place, reading.missing or "refuse"
    if "steps" in given:
        rewards, probabilities = _by_steps(given.pop("steps"), reading.steps, missing, source, place)
        given["reward"] = rewards
        manifest |= {"score_kind": "steps", "steps": reading.steps}
        manifest["scale"] = "log-utilities" if probabilities else "unknown"
    if missing != "refuse":
        given, treated = _without_missing(given, missing, source)
        if treated:
            manifest["notes"] = [*manifest.get("notes", []), treated.pop("note")]
            manifest["missing"] = treated
    scores = Scores.from_columns(given, manifest, source=source, place=place)
    row = scores.extra["__row__"]
    extra = {name: array for name, array in scores.extra.items() if name != "__row__"}
    return Loaded(measured(replace(scores, extra=extra), reading.scale, guess=guess), table, row)


def _by_steps(
    values: Any, steps: str, missing: str, source: str, place: Place = row_place
) -> tuple[FloatArray, bool]:
    """Combine the step scores of each response; NaN for a response without any."""
    lists = []
    for number, value in enumerate(values):
        row = np.array([np.nan]) if value is None or value is np.nan else _numbers(value)
        if row is None or (np.isnan(row).any() and missing == "refuse") or np.isinf(row).any():
            raise ValueError(
                f"{source}, {place(number)}: steps is {shown(value)}, not a list of finite numbers "
                "(missing='lowest' counts it as the lowest of all, missing='drop' leaves its prompt out)"
            )
        lists.append(np.array([np.nan]) if np.isnan(row).any() else row)
    known = np.array([not np.isnan(row).any() for row in lists])
    if not known.any():
        raise ValueError(f"{source}: no response has step scores")
    kept = [row for row, there in zip(lists, known, strict=True) if there]
    rewards = np.full(len(lists), np.nan)
    try:
        rewards[known], probabilities = step_rewards(
            np.concatenate(kept), np.array([len(row) for row in kept]), steps
        )
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None
    return rewards, probabilities


def _numbers(value: Any) -> FloatArray | None:
    try:
        row = np.atleast_1d(np.array(value, dtype=np.float64))
    except (TypeError, ValueError, OverflowError):
        return None
    return row if row.ndim == 1 and len(row) and not (np.abs(row) > LARGEST_REWARD).any() else None


def _without_missing(
    given: dict[str, Any], missing: str, source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give responses without a reward the lowest one, or leave their prompts out; say how many."""
    values = given.get("reward", [])
    absent = np.array([value is None or value != value for value in values])
    if not absent.any():
        return given, {}
    items = np.asarray([str(name) for name in given["item_id"]])
    prompts = np.unique(items[absent])
    n, of = int(absent.sum()), len(prompts)
    if missing == "drop" or absent.all():
        kept = np.flatnonzero(~np.isin(items, prompts))
        if not len(kept):
            raise ValueError(f"{source}: no prompt has a score for each of its responses")
        given = {name: taken(column, kept) for name, column in given.items()}
        note = f"{count(n, 'response')} had no score; {count(of, 'prompt')} left out."
        return given, {"responses": n, "prompts": of, "treated": "drop", "note": note}
    lowest = min(value for value, empty in zip(values, absent, strict=True) if not empty)
    given["reward"] = [lowest if empty else value for value, empty in zip(values, absent, strict=True)]
    note = f"{count(n, 'response')} of {count(of, 'prompt')} had no score; lowest reward assumed."
    return given, {"responses": n, "prompts": of, "treated": "lowest", "note": note}

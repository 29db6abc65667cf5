"""Read files of scores: of one model, or of all models in a file."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from rmcalib._util.arrays import check_choice
from rmcalib._util.storage import as_path
from rmcalib.scores import _files, _rewardmath
from rmcalib.scores._built_in import REAL, built_in_scores
from rmcalib.scores._kinds import Missing, Reading
from rmcalib.scores._scores import Scores
from rmcalib.scores._steps import STEPS

__all__ = ["ALL_STEPS", "find_model", "is_built_in", "load_all_scores", "load_scores"]

ALL_STEPS = "all"
"""The value of ``steps`` that combines steps in all ways."""
_ENDINGS = (".parquet", ".jsonl", ".json")


def load_scores(
    path: str | Path, *, model: str | None = None, steps: str = "product", missing: Missing | None = None
) -> Scores:
    """Read the scores of one model from a file, or load built-in ones.

    Parameters
    ----------
    path : str | Path
        A `.parquet` or `.jsonl` file with our columns, RewardBench's `.json`, or RewardMATH's files (its own
        `.json`, or a Parquet table of many models). The format is detected. Or `real/<model>`, a model of the
        built-in board (see :func:`load_board`).
    model : str, optional
        Which model, if the file has several.
    steps : str
        How to combine the step scores of a process reward model: product, min, last, mean or geometric_mean.
    missing : Missing, optional
        What to do about a response without a score: ``"refuse"`` the file (the default), count it as the
        ``"lowest"`` reward of all (the default for RewardMATH's files), or ``"drop"`` its prompt. The
        manifest records how many there were.

    Returns
    -------
    Scores

    Examples
    --------
    >>> load_scores("real/internlm/internlm2-7b-reward").n_items
    483
    """
    check_choice(steps, "steps", STEPS)
    if is_built_in(path):
        return built_in_scores(str(path))
    found = load_all_scores(path, steps=steps, missing=missing)
    if model is None and len(found) > 1:
        raise ValueError(
            f"{path}: scores of {len(found)} models ({_listed(found)}), and one is needed: "
            f"`rmcalib eval --scores {path}` makes a run folder for each"
        )
    if len(found) == 1:
        return next(iter(found.values()))
    return find_model(found, str(model), path)


def find_model(found: Mapping[str, Scores], model: str, path: str | Path) -> Scores:
    """Return the scores of one model of a file, or raise a ValueError that lists the models.

    Parameters
    ----------
    found : Mapping[str, Scores]
        The scores of all models of the file, by name.
    model : str
        The name to look for.
    path : str | Path
        The file, for the message.

    Returns
    -------
    Scores

    Examples
    --------
    >>> find_model({"a": Scores.from_arrays([[1.0, 0.0]])}, "a", "x.json").n_items
    1
    """
    if model not in found:
        near = difflib.get_close_matches(model, found, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"has {_listed(found)}"
        raise ValueError(f"{path}: no scores of {model!r} ({hint})")
    return found[model]


def is_built_in(path: str | Path) -> bool:
    """Return whether a path is the name of built-in scores, such as `real/openbmb/Eurus-RM-7b`.

    Parameters
    ----------
    path : str | Path
        A path. If a file or folder of this name exists, the result is False.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_built_in("real/openbmb/Eurus-RM-7b"), is_built_in("runs/real/scores.parquet")
    (True, False)
    """
    return str(path).startswith(f"{REAL}/") and not Path(path).exists()


def load_all_scores(
    path: str | Path, *, steps: str = "product", missing: Missing | None = None
) -> dict[str, Scores]:
    """Read the scores of all models of a file.

    Parameters
    ----------
    path, missing
        As for `load_scores`.
    steps : str
        As for `load_scores`, or ``"all"``: each process reward model is returned once for each way to combine
        its steps, as `name (product)`, `name (min)` and so on.

    Returns
    -------
    dict of str to Scores
        The scores by model. If a file does not name its model, the name is that of the file.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Scores.from_arrays([[1.0, 0.0]]).to_jsonl(f"{folder}/mine.jsonl")
    ...     list(load_all_scores(f"{folder}/mine.jsonl"))
    ['mine']
    """
    check_choice(steps, "steps", (*STEPS, ALL_STEPS))
    if is_built_in(path):
        return {str(path).removeprefix(f"{REAL}/"): built_in_scores(str(path))}
    file = as_path(path)
    if file.suffix not in _ENDINGS:
        raise ValueError(
            f"{str(path) or repr('')}: unknown file type; a file of scores ends in {', '.join(_ENDINGS)}"
        )
    first = Reading(STEPS[0] if steps == ALL_STEPS else steps, missing or "refuse")
    makers: dict[str, Callable[[Reading], Scores]] = {}
    if file.suffix == ".parquet" and (table := _files.read_tidy(path)) is not None:
        first = dataclasses.replace(first, missing=missing or "lowest")
        for name, (columns, about) in _rewardmath.models_of_table(table, str(path)).items():
            makers[name] = _maker(columns, about, f"{path}: {name}")
    elif file.suffix == ".json" and _rewardmath.is_rewardmath(content := _files.read_json(path)):
        first = dataclasses.replace(first, missing=missing or "lowest")
        columns, about = _rewardmath.models_of_list(content, str(path))
        makers[file.stem] = _maker(columns, about, str(path))
    elif file.suffix == ".json":
        scores = Scores.from_rewardbench(content, source=str(path))
        return {_name(scores, file): scores}
    else:
        read = Scores.from_parquet if file.suffix == ".parquet" else Scores.from_jsonl
        makers[""] = lambda reading: read(path, reading=reading)
    result: dict[str, Scores] = {}
    for name, make in makers.items():
        scores = make(first)
        name = name or _name(scores, file)
        if steps == ALL_STEPS and scores.manifest.get("score_kind") == "steps" and "steps" in scores.manifest:
            result |= {f"{name} ({how})": _called(make(first.combined_by(how)), name, how) for how in STEPS}
        else:
            result[name] = scores
    return result


def _listed(names: Iterable[str], most: int = 10) -> str:
    """Return names for a message; of many, the first ones."""
    known = list(names)
    return ", ".join([*known[:most], *([f"and {len(known) - most} more"] if len(known) > most else [])])


def _maker(columns: dict[str, Any], about: dict[str, Any], source: str) -> Callable[[Reading], Scores]:
    def make(reading: Reading) -> Scores:
        scores = Scores.from_columns(columns, source=source, reading=reading)
        notes = [*about.get("notes", []), *scores.manifest.get("notes", [])]
        more = {"notes": notes} if notes else {}
        known = {key: value for key, value in about.items() if key != "notes"}
        return dataclasses.replace(scores, manifest={**known, **scores.manifest, **more})

    return make


def _called(scores: Scores, name: str, how: str) -> Scores:
    return dataclasses.replace(scores, manifest={**scores.manifest, "model": f"{name} ({how})"})


def _name(scores: Scores, file: Path) -> str:
    return str(scores.manifest.get("model") or file.stem)

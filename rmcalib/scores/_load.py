"""`load_scores`: any scores in. Files, frames, run folders, built-in models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from rmcalib._util.arrays import IntArray, check_choice
from rmcalib._util.display import count
from rmcalib._util.storage import as_path, is_remote, read_input
from rmcalib._util.texts import did_you_mean, parse_json
from rmcalib.scores import _files, _formats
from rmcalib.scores._joining import join_labels, with_second, with_shares
from rmcalib.scores._known import built_in_scores, is_built_in
from rmcalib.scores._layouts import ROW
from rmcalib.scores._meaning import MISSING, STEPS, Missing, measured, step_rewards
from rmcalib.scores._roles import listed, parse_columns
from rmcalib.scores._runs import NoRunsError, single_run
from rmcalib.scores._schema import Columns, as_number, objects
from rmcalib.scores._scores import Scores
from rmcalib.scores._tables import to_columns
from rmcalib.scores.scale import Labels, Scale

T = TypeVar("T")
TEXTS = ("prompt_text", "response_text")
"""The texts of rollouts: in their table, for `label`."""


@dataclass(frozen=True)
class _Reading:
    """How a source is read; see `load_scores`."""

    scale: str | None = None
    labels_are: str | None = None
    cluster: str | None = None
    steps: str = "product"
    missing: Missing | None = None
    labels: Any = None
    labels_by: str | None = None
    second: Any = None


class OfModel(NamedTuple):
    """What a source has of one model: columns, their manifest, and the table that they are from.

    ``labels`` is what its labels mean, if the source defines it. A table without a manifest is foreign: its numbers
    may be anything.
    """

    columns: Mapping[str, Any]
    about: dict[str, Any]
    table: _files.Table
    labels: Labels | None = None


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
    labels: Any = None,
    labels_are: str | None = None,
    labels_by: str | None = None,
    second: Any = None,
    model: str | None = None,
    cluster: str | None = None,
    steps: str = "product",
    missing: Missing | None = None,
) -> Scores:
    """Read the scores of one model from a file or a table, or load built-in ones.

    Parameters
    ----------
    source : str, Path, DataFrame, Arrow table, Dataset, list of dict or Scores
        A file (`.csv`, `.tsv`, `.parquet`, `.jsonl`, `.json`, `.xlsx`), a folder or a table. A table is long,
        with one row per response, or wide, with one row per prompt: `chosen` and `rejected`, several columns
        of rewards, a list of rewards, or a list of objects (`candidates`: [{`score`, `correct`}]). Files of
        RewardBench, RewardMATH and LLaMA-Factory (`generated_predictions.jsonl`) are recognised. A folder has
        one run, a data set that `save_to_disk` wrote, or the samples of a training run (see
        :mod:`rmcalib.scores.rollouts`). Or `real/<model>`, a model of a built-in board (see
        :func:`load_board`). Scores are returned as they are.
    columns : mapping or str, optional
        Which column is what: ``{"reward": "score", "prompt": "prompt_id"}`` or
        ``"reward=score,prompt=prompt_id"``. Roles: prompt, response, reward, label, category, cluster, step,
        model, person. Columns with usual names are found without it. Several rewards per row:
        ``"reward=a+b"`` or a list. ``"reward=-loss"``: lower is better. ``"label=ann+ben"``: the ratings of
        several people, which become votes. Further columns are kept in `Scores.extra`.
    scale : {"utility", "log_odds", "probability", "logprob", "rating", "logit", "none", "reward"}, optional
        What the numbers are: those of a Bradley-Terry model, log-odds or probabilities, grades, rewards that
        went through a sigmoid ("logit"), or numbers that state no probabilities. By default, the registry
        decides for known models, then `rmcalib.scores.look` if it is certain. Otherwise numbers are taken as
        utilities, and `Scores.scale` says that this is assumed.
    labels : DataFrame, Arrow table or path, optional
        Labels of some prompts, such as a filled sheet of :func:`rmcalib.label`: columns prompt, response and
        label (1 or 0, words, ``tie``, or empty), perhaps inclusion and person. They are joined by the ids of
        prompts, and by the ids of responses (``response_id``), their texts (``response_text``) or, if there are
        neither, their numbers. They replace the labels of the source. Prompts without
        labels stay. Labels of several people become votes.
    labels_are : {"best", "correct"}, optional
        What the labels mean: one response of a prompt is the best, or each response is correct or not. By
        default, the name of the column decides. A bare 0/1 column names the best response if at least nine of
        ten prompts have exactly one 1; `Scores.labels` says which was taken.
    labels_by : str, optional
        A column, such as ``"category"``: prompts were drawn at random within its groups, and each group counts
        by its fraction of all prompts. For labels without inclusion probabilities.
    second : Scores, DataFrame or path, optional
        A second judge's scores of the same prompts. Where prompts were drawn with known probabilities, it makes
        the intervals of accuracy and gap narrower.
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
        Lists everything that is missing, ambiguous or wrong, with the argument that repairs it.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"prompt_id": [7, 7], "response_id": ["a", "b"], "score": [1.5, 0.5],
    ...                       "is_best": ["no", "yes"]})
    >>> scores = load_scores(table)
    >>> scores.reward.tolist(), scores.is_correct.tolist()
    ([1.5, 0.5], [False, True])
    """
    reading = _Reading(scale, labels_are, cluster, steps, missing, labels, labels_by, second)
    return _single(_load(source, columns, reading, only=model), source).scores


def load_all_scores(
    source: Any,
    columns: str | Mapping[str, Any] | None = None,
    *,
    scale: str | None = None,
    labels: Any = None,
    labels_are: str | None = None,
    labels_by: str | None = None,
    second: Any = None,
    cluster: str | None = None,
    steps: str = "product",
    missing: Missing | None = None,
) -> dict[str, Scores]:
    """Read the scores of all models of a source, by model; see `load_scores`.

    Parameters
    ----------
    source, columns, scale, labels, labels_are, labels_by, second, cluster, steps, missing
        As for `load_scores`.

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
    reading = _Reading(scale, labels_are, cluster, steps, missing, labels, labels_by, second)
    loaded = _load(source, columns, reading)
    return {name: each.scores for name, each in loaded.items()}


def load_with_rows(
    source: Any,
    columns: str | Mapping[str, Any] | None = None,
    *,
    scale: str | None = None,
    labels: Any = None,
) -> Loaded:
    """Read scores of one model together with the table that they are from, so that rows can be written back.

    >>> import pandas as pd
    >>> table = pd.DataFrame({"prompt": ["a", "b", "a"], "score": [1.0, 2.0, 3.0]})
    >>> load_with_rows(table).row.tolist()
    [0, 2, 1]
    """
    scores, table, row = _single(_load(source, columns, _Reading(scale, labels=labels)), source)
    if not table.typed:
        columns = {name: _files.as_numbers(values) for name, values in table.columns.items()}
        table = replace(table, columns=columns, typed=True)
    return Loaded(scores, table, row)


def find_model(models: Mapping[str, T], model: str, source: Any) -> T:
    """Return what a source has of one model, or raise a ValueError that lists the models."""
    if model not in models:
        hint = did_you_mean(model, models, f"has {listed(models)}")
        raise ValueError(f"{source}: no scores of {model!r} ({hint})")
    return models[model]


def _single(models: Mapping[str, Loaded], source: Any) -> Loaded:
    if len(models) > 1:
        raise ValueError(
            f"{_named(source)}: scores of {len(models)} models ({listed(models)}), and one is needed: name it "
            "(model=...)"
        )
    return next(iter(models.values()))


def _named(source: Any) -> str:
    return "table" if _files.is_frame(source) else str(source)


def _load(
    source: Any,
    columns: str | Mapping[str, Any] | None,
    reading: _Reading,
    *,
    only: str | None = None,
) -> dict[str, Loaded]:
    """Return everything that a source has by model; of several models, `only` one is built if it is named."""
    check_choice(reading.steps, "steps", STEPS)
    check_choice(reading.missing, "missing", (None, *MISSING))
    given = parse_columns(columns) | ({} if reading.cluster is None else {"cluster": [reading.cluster]})
    if is_built_in(source):
        source = built_in_scores(str(source))
    if isinstance(source, Scores):
        table = _files.Table(source.columns(), "scores")
        loaded = Loaded(clustered(source, reading.cluster), table, np.arange(len(source)))
        return {source.name: _as_said(loaded, reading, guess=False)}
    models = _models_of(source, given)
    if only is not None and len(models) > 1:
        models = {only: find_model(models, only, _named(source))}
    built = {name: _built(model, reading) for name, model in models.items()}
    if _files.is_frame(source):
        return built
    return {name: each._replace(scores=_called(name, each.scores)) for name, each in built.items()}


def _called(name: str, scores: Scores) -> Scores:
    """Return scores whose manifest names their model; that of a file which names none is the file's name."""
    return replace(scores, manifest={"model": name, **scores.manifest})


def _models_of(source: Any, given: Mapping[str, list[str]]) -> dict[str, OfModel]:
    """Read a table, or a file in one of the known formats."""
    if _files.is_frame(source):
        return _in_table(_files.read_frame(source), "scores", given)
    if not isinstance(source, str) and not hasattr(source, "suffix"):
        raise TypeError(
            "expected Scores, a table or a path; arrays: Scores.from_arrays(rewards, correct=...)"
        )
    file = as_path(source)
    if file.suffix.lower() not in _files.ENDINGS and (is_remote(file) or file.is_dir()):
        return _in_folder(file, given)
    return _in_file(file, given)


def _in_folder(folder: Path, given: Mapping[str, list[str]]) -> dict[str, OfModel]:
    """Read a folder of `save_to_disk`, one that has one run, or the samples of a training run."""
    if _files.is_saved_dataset(folder):
        return _in_table(_files.read_saved_dataset(folder), folder.name, given)
    try:
        run = single_run(folder)
    except NoRunsError as no_runs:
        return _in_rollouts(folder, given, no_runs)
    scores = run.scores()
    table = _files.Table(scores.columns(), str(run.folder), manifest=scores.manifest)
    return {run.label: OfModel(table.columns, scores.manifest, table)}


def _in_rollouts(folder: Path, given: Mapping[str, list[str]], otherwise: ValueError) -> dict[str, OfModel]:
    """Read the samples that a training framework writes, by reward; if there are no files of them, raise."""
    from rmcalib.scores.rollouts import RolloutReader  # it reads files of scores by `load_all_scores`

    if is_remote(folder) or not any(path.suffix in (".jsonl", ".parquet") for path in folder.rglob("*")):
        raise otherwise
    if any(folder.glob("rewards-*.jsonl")):  # a server's log: `reward` is what the optimiser got
        given = {"reward": ["raw"], **given}
    loaded = {}
    read = RolloutReader(folder, given, texts={}).read()
    for reward, (columns, about) in read.items():
        table = _files.Table(columns, str(folder))  # it has the texts, the scores do not
        kept = {key: values for key, values in columns.items() if key not in TEXTS}
        name = reward if len(read) > 1 else folder.resolve().name  # which column it is says less
        loaded[name] = OfModel(kept, {**about, "model": name}, table)
    return loaded


def _in_file(file: Path, given: Mapping[str, list[str]]) -> dict[str, OfModel]:
    """Read a file of scores."""
    content, models = None, {}
    if file.suffix.lower() == ".json":
        content = parse_json(read_input(file), str(file))
        models = _formats.models_of_json(content, str(file), file.stem)
    if not models:
        table = _files.read_table(file, content)
        models = _formats.models_of_table(table) if not given and len(table) else {}
    if not models:
        return _in_table(table, file.stem, given)
    return {
        model: OfModel(columns, about, _files.Table(dict(columns), str(file), manifest=about))
        for model, (columns, about) in models.items()
    }


def _in_table(table: _files.Table, stem: str, given: Mapping[str, list[str]]) -> dict[str, OfModel]:
    """Return what a table has of each model."""
    about = table.manifest or {}
    called = str(about.get("model") or stem)
    if about and not given:
        return {called: OfModel(table.columns, about, table)}
    foreign = to_columns(table, given)
    if foreign.notes:
        about = about | {"notes": [*about.get("notes", []), *foreign.notes]}
    return {
        model or called: OfModel(
            columns, about if model is None else about | {"model": model}, table, foreign.labels
        )
        for model, columns in foreign.models.items()
    }


def _built(given: OfModel, reading: _Reading) -> Loaded:
    """Build scores from columns; steps, pairs and missing numbers become rewards."""
    table, about, missing = given.table, dict(given.about), reading.missing
    columns = {name: objects(values) for name, values in given.columns.items()}
    columns.setdefault(ROW, np.arange(len(next(iter(columns.values())))))
    if missing is None:
        missing = "lowest" if about.get("benchmark_format") == "rewardmath" else "refuse"

    def place(row: int) -> str:
        return table.place(int(columns[ROW][row]))

    if "steps" in columns:
        try:
            columns["reward"], probabilities = step_rewards(columns.pop("steps").tolist(), reading.steps)
        except ValueError as error:
            raise ValueError(f"{table.source}: {error}") from None
        about |= {"score_kind": "steps", "steps": reading.steps}
        if probabilities:
            stated = Scale("probability", "probabilities that all steps are correct", of="correct")
            about["scale"] = asdict(stated)
    if missing != "refuse":
        columns = _without_missing(columns, missing, about, table.source)
    scores = Scores.from_columns(columns, about, labels=given.labels, source=table.source, place=place)
    row = scores.extra.pop(ROW)
    return _as_said(Loaded(scores, table, row), reading, guess=table.manifest is None)


def _as_said(loaded: Loaded, reading: _Reading, *, guess: bool) -> Loaded:
    """Return scores on the scale, and with labels of the meaning, that the user states."""
    scores, table, row = loaded
    if reading.labels is not None:
        scores = replace(scores, extra={**scores.extra, ROW: row})  # labels may leave responses out
        scores = join_labels(scores, reading.labels, table, row)
        row = scores.extra.pop(ROW)
    if reading.labels_are is not None:
        scores = scores.labelled_as(reading.labels_are)
    scores = measured(scores, reading.scale, guess=guess)
    if reading.labels_by is not None:
        scores = with_shares(scores, reading.labels_by)
    if reading.second is not None:
        scores = with_second(scores, load_scores(reading.second))
    return Loaded(scores, table, row)


def clustered(scores: Scores, cluster: str | None) -> Scores:
    """Return scores whose prompts belong together by a further column."""
    if cluster is None:
        return scores
    if cluster not in scores.extra:
        have = ", ".join(scores.extra) or "none"
        raise ValueError(f"cluster: the scores have no further column {cluster!r} (have: {have})")
    return replace(scores, cluster=np.asarray(scores.extra[cluster]).astype(str))


def _without_missing(columns: Columns, missing: Missing, about: dict[str, Any], source: str) -> Columns:
    """Give responses without a reward the lowest one, or leave their prompts out; the manifest says how many."""
    rewards = columns.get("reward", objects([]))
    absent = np.array([value is None or value != value for value in rewards], dtype=bool)
    if not absent.any():
        return columns
    items = columns["item_id"].astype(np.str_)
    prompts = np.unique(items[absent])
    n, of = count(int(absent.sum()), "response"), count(len(prompts), "prompt")
    numbers = [number for number in map(as_number, rewards[~absent]) if number is not None]
    if missing == "lowest" and numbers:
        columns = {**columns, "reward": np.where(absent, min(numbers), rewards)}
        note = f"{n} of {of} had no score; lowest reward assumed."
    else:
        kept, missing = ~np.isin(items, prompts), "drop"
        if not kept.any():
            raise ValueError(f"{source}: no prompt has a score for each of its responses")
        columns = {name: values[kept] for name, values in columns.items()}
        note = f"{n} had no score; {of} left out."
    about["notes"] = [*about.get("notes", []), note]
    about["missing"] = {"responses": int(absent.sum()), "prompts": len(prompts), "treated": missing}
    return columns

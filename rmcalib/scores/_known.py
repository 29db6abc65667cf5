"""Scores that others have made: built into the package, or published by RewardBench.

The built-in files are in `rmcalib/demo`, whose README and LICENSE files name their sources. The Hub data set
`allenai/reward-bench-2-results` has one JSON file per model; the scores of a file are cached as Parquet. The
numbers of the leaderboard are in separate small files.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from rmcalib._util.hub import HubError, check_repo_id, downloaded, folder_name, resolve_commit, translated
from rmcalib._util.texts import did_you_mean, parse_json, parse_yaml, typed
from rmcalib.benchmarks._entries import known_entry
from rmcalib.scores._files import read_table
from rmcalib.scores._formats import rewardbench_columns, star
from rmcalib.scores._scores import Scores

REAL = "real"
"""All reward models that come with the package: the boards `rewardmath` and `reward-bench-2`."""
BOARDS = ("rewardmath", "reward-bench-2", "pandalm", REAL)
"""The names of the built-in boards."""
RESULTS = "allenai/reward-bench-2-results"
"""The data set with published scores."""
_DEMO = Path(__file__).parents[1] / "demo"
_SCORES, _FIGURES = "eval-set-scores", "eval-set"  # folders of the data set
_SHARED = ("item_id", "category", "response", "label", "votes", "ties", "characters")


def load_board(name: str = "rewardmath") -> dict[str, Scores]:
    """Load the built-in scores of real reward models and judges, by model. They have no texts.

    Parameters
    ----------
    name : str
        ``"rewardmath"``: the published rewards of nine classifiers on RewardMATH, 483 problems of MATH with
        ten solutions each; the first is correct. ``"reward-bench-2"``: the rewards of three
        classifiers on RewardBench 2, 1,865 prompts. ``"real"``: both. ``"pandalm"``: the verdicts of two
        judges on the 999 pairs of PandaLM's test set, with the votes of three people on each.

    Returns
    -------
    dict of str to Scores
        The scores by model, as :func:`rmcalib.leaderboard` takes them. The manifests name the source, its
        commit and the licence.

    Examples
    --------
    >>> board = load_board()
    >>> len(board), board["internlm/internlm2-7b-reward"]
    (9, Scores(internlm/internlm2-7b-reward on rewardmath: 483 prompts, 4830 responses, scale utility, labels best))
    """
    if name not in BOARDS:
        raise ValueError(f"{name}: no such board (have: {', '.join(BOARDS)})")
    if name == REAL:
        return {**_board("rewardmath"), **_board("reward-bench-2")}
    return dict(_board(name))


def built_in_scores(name: str) -> Scores:
    """Load the built-in scores of one model by its name, `real/<model>`."""
    model, have = name.removeprefix(f"{REAL}/"), load_board(REAL) | load_board("pandalm")
    if model not in have:
        names = ", ".join(f"{REAL}/{each}" for each in have)
        raise ValueError(f"{name}: no such scores are built in (have: {names})")
    return have[model]


def is_built_in(source: Any) -> bool:
    """Return whether a name is that of built-in scores, such as `real/openbmb/Eurus-RM-7b`."""
    return str(source).startswith(f"{REAL}/") and not Path(source).exists()


@lru_cache(maxsize=len(BOARDS))
def _board(name: str) -> dict[str, Scores]:
    """Return the scores of a built-in file, which has a column of rewards for each model.

    If people voted, it has verdicts instead: P(the response beats the other one of its pair).
    """
    about: dict[str, Any] = parse_yaml((_DEMO / "boards.yaml").read_bytes(), "boards.yaml")[name]
    table = read_table(_DEMO / f"{name}.parquet").columns
    verdicts = about.pop("verdicts", {})
    shared = {column: table.pop(column) for column in _SHARED if column in table}
    by_model = {}
    for model, values in table.items():
        manifest = {"model": model, **about}
        if verdicts:
            rewards = {"beats": star([[p] for p in values[::2]])}
            manifest["verdicts"] = verdicts[model]
        else:
            rewards = {"reward": values}
        by_model[model] = Scores.from_columns(shared | rewards, manifest)
    return by_model


def published_scores(model: str, *, revision: str | None = None, cache: Path | None = None) -> Scores:
    """Download the published RewardBench 2 scores of a model, or read them from the cache.

    Parameters
    ----------
    model : str
        Hub id of the model.
    revision : str, optional
        Branch, tag or commit of the data set of results; default the current one.
    cache : Path, optional
        Folder for the scores; default `rmcalib/published` in the Hugging Face home folder.

    Returns
    -------
    Scores
        The manifest names the file and its commit.

    Examples
    --------
    This needs the Hub::

        scores = published_scores("Skywork/Skywork-Reward-V2-Llama-3.1-8B")
    """
    check_repo_id(model)
    commit = resolve_commit(RESULTS, repo_type="dataset", revision=revision)
    if cache is None:
        from huggingface_hub import constants

        cache = Path(constants.HF_HOME) / "rmcalib" / "published"
    stored = cache / commit / f"{folder_name(model)}.parquet"
    if stored.is_file():
        return Scores.from_parquet(stored)
    source = f"{RESULTS}/{_SCORES}/{model}.json"
    columns, about = rewardbench_columns(parse_json(_content(model, commit), source), source)
    about |= {"model": model, "benchmark": known_entry("reward-bench-2").hub_id}
    about |= {"scores": "published", "source_revision": commit}
    scores = Scores.from_columns(columns, about, source=source)
    scores.to_parquet(stored)
    return scores


def published_models(*, revision: str | None = None) -> list[str]:
    """List the models with published RewardBench 2 scores.

    Parameters
    ----------
    revision : str, optional
        Branch, tag or commit of the data set of results; default the current one.

    Returns
    -------
    list of str
        Hub ids, sorted.

    Examples
    --------
    This needs the Hub::

        models = published_models()
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    commit = resolve_commit(RESULTS, repo_type="dataset", revision=revision)
    where: dict[str, Any] = {"recursive": True, "revision": commit, "repo_type": "dataset"}
    with translated(RESULTS, repo_type="dataset", revision=revision):
        entries = downloaded(lambda: [*HfApi().list_repo_tree(RESULTS, _SCORES, **where)], RESULTS)
    paths = [PurePosixPath(entry.path) for entry in entries if isinstance(entry, RepoFile)]
    return sorted(str(p.relative_to(_SCORES).with_suffix("")) for p in paths if p.suffix == ".json")


def published_figures(models: Iterable[str]) -> tuple[dict[str, dict[str, float]], str]:
    """Download the numbers that RewardBench 2's leaderboard shows, and return them with their commit.

    They are by model and category; models without numbers are missing. Files are kept in the Hub's cache: each
    is downloaded once per commit.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # the files are tiny
    commit = resolve_commit(RESULTS, repo_type="dataset")
    names = {name: f"{_FIGURES}/{name}.json" for name in models if _is_repo_id(name)}

    def download() -> Path:
        files = [*names.values()]
        return Path(snapshot_download(RESULTS, repo_type="dataset", revision=commit, allow_patterns=files))

    with translated(RESULTS, repo_type="dataset"):
        folder = downloaded(download, RESULTS)
    by_model = {name: _figures(folder / file) for name, file in names.items() if (folder / file).is_file()}
    return {name: figures for name, figures in by_model.items() if figures}, commit


def _figures(path: Path) -> dict[str, float]:
    content = typed(dict[str, Any], parse_json(path.read_bytes(), str(path)), str(path))
    numbers = {key: value for key, value in content.items() if type(value) in (int, float)}
    return {key: float(value) for key, value in numbers.items() if math.isfinite(value)}


def _is_repo_id(name: str) -> bool:
    try:
        check_repo_id(name)
    except HubError:
        return False
    return True


def _content(model: str, commit: str) -> bytes:
    """Download the file of a model. It is not kept: most of it is texts."""
    from huggingface_hub import HfFileSystem

    path = f"datasets/{RESULTS}@{commit}/{_SCORES}/{model}.json"
    with translated(RESULTS, repo_type="dataset"):
        try:
            return bytes(downloaded(lambda: HfFileSystem().cat_file(path), RESULTS))
        except FileNotFoundError:
            models = published_models(revision=commit)
            hint = did_you_mean(model, models, f"{len(models)} other models have some")
            raise HubError(f"{model}: no published scores in {RESULTS} ({hint})") from None

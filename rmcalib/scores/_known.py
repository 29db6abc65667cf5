"""Scores that others have made: built into the package, or published by RewardBench.

The built-in files are in `rmcalib/demo`, whose README and LICENSE files name their sources. The Hub data set
`allenai/reward-bench-2-results` has one JSON file per model; the scores of a file are cached as Parquet. The
numbers of the leaderboard are in separate small files.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from rmcalib._util.hub import HubError, check_repo_id, downloaded, folder_name, resolve_commit, translated
from rmcalib._util.texts import parse_yaml
from rmcalib.benchmarks._entries import known_entry
from rmcalib.benchmarks._items import distinct_ids
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
_KEPT = ("model_type", "chat_template", "repaired_ids", "notes")


def load_board(name: str = "rewardmath") -> dict[str, Scores]:
    """Load the built-in scores of real reward models and judges, by model. They have no texts.

    Parameters
    ----------
    name : str
        ``"rewardmath"``: the published rewards of nine classifiers on RewardMATH, 483 problems of MATH with
        ten solutions each, of which the first is correct. ``"reward-bench-2"``: the rewards of three
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
    (9, Scores(483 prompts, 4830 responses,
               {'model': 'internlm/internlm2-7b-reward', 'benchmark': 'rewardmath'}))
    """
    if name not in BOARDS:
        raise ValueError(f"{name}: no such board (have: {', '.join(BOARDS)})")
    if name == REAL:
        return {**_rewardmath(), **_rewardbench2()}
    return dict({"rewardmath": _rewardmath, "reward-bench-2": _rewardbench2, "pandalm": _pandalm}[name]())


def built_in_scores(name: str) -> Scores:
    """Load the built-in scores of one model by its name, `real/<model>`."""
    model, have = name.removeprefix(f"{REAL}/"), load_board(REAL) | load_board("pandalm")
    if model not in have:
        names = ", ".join(f"{REAL}/{one}" for one in have)
        raise ValueError(f"{name}: no such scores are built in (have: {names})")
    return have[model]


def is_built_in(source: Any) -> bool:
    """Return whether a name is that of built-in scores, such as `real/openbmb/Eurus-RM-7b`."""
    return str(source).startswith(f"{REAL}/") and not Path(source).exists()


@lru_cache(maxsize=1)
def _rewardmath() -> dict[str, Scores]:
    with np.load(_DEMO / "rewardmath.npz", allow_pickle=False) as file:
        models, rewards = file["models"].tolist(), file["rewards"]
    about = _about("rewardmath")
    return {
        model: Scores.from_arrays(own, category="MATH", manifest={"model": model, **about})
        for model, own in zip(models, rewards, strict=True)
    }


@lru_cache(maxsize=1)
def _rewardbench2() -> dict[str, Scores]:
    table = _read("rewardbench2")
    categories = table.pop("subset")
    keep = known_entry("reward-bench-2").no_single_answer
    response = np.array(table.pop("response"), dtype=np.int64)
    columns = {
        "item_id": distinct_ids(table.pop("id"), categories, keep=keep),
        "category": categories,
        "response": response,
        "label": (response < np.array(table.pop("num_correct"))).astype(np.float64),
    }
    return {
        model: Scores.from_columns(
            columns | {"reward": rewards}, {"model": model, **_about("reward-bench-2")}
        )
        for model, rewards in table.items()
    }


@lru_cache(maxsize=1)
def _pandalm() -> dict[str, Scores]:
    """Return two judges' verdicts with the votes: 1 and 2 name a response, 0 is a tie, others are unread."""
    table = _read("pandalm")
    people = np.array([table[f"annotator{i}"] for i in (1, 2, 3)])
    n = people.shape[1]
    columns = {
        "item_id": np.repeat([str(one) for one in table["id"]], 2),
        "category": np.repeat(np.array(table["application"], dtype=object), 2),
        "response": np.tile([0, 1], n),
        "votes": np.stack([(people == i).sum(axis=0) for i in (1, 2)], axis=1).ravel(),
        "ties": np.repeat((people == 0).sum(axis=0), 2),
        "characters": np.stack([table["characters_1"], table["characters_2"]], axis=1).ravel(),
    }
    votes = columns["votes"].reshape(n, 2)
    columns["label"] = (votes > votes[:, ::-1]).astype(np.float64).ravel()
    found = {}
    for name, model in (("gpt_35_turbo", "gpt-3.5-turbo"), ("pandalm_7b", "WeOpenML/PandaLM-7B-v1")):
        wins = [{"1": 1.0, "2": 0.0}.get(str(verdict), 0.5) for verdict in table[name]]
        counts = {"pairs": n, "unclear": sum(str(verdict) not in ("0", "1", "2") for verdict in table[name])}
        about = {"model": model, **_about("pandalm"), "verdicts": counts}
        found[model] = Scores.from_columns(columns | {"beats": star([[p] for p in wins])}, about)
    return found


def _about(board: str) -> dict[str, Any]:
    found: dict[str, Any] = parse_yaml((_DEMO / "boards.yaml").read_bytes(), "boards.yaml")[board]
    return found


def _read(name: str) -> dict[str, Any]:
    import pyarrow.parquet

    table: dict[str, Any] = pyarrow.parquet.read_table(_DEMO / f"{name}.parquet").to_pydict()
    return table


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
    columns, about = rewardbench_columns(_parse(_content(model, commit), source), source)
    manifest: dict[str, Any] = {
        "model": model,
        "benchmark": known_entry("reward-bench-2").hub_id,
        "scores": "published",
        "source": source,
        "source_revision": commit,
        **{key: about[key] for key in _KEPT if key in about},
    }
    scores = Scores.from_columns(columns, manifest, source=source)
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
    with translated(RESULTS, repo_type="dataset", revision=revision):

        def listed() -> list[Any]:
            return [
                *HfApi().list_repo_tree(
                    RESULTS, _SCORES, recursive=True, revision=commit, repo_type="dataset"
                )
            ]

        entries = downloaded(listed, RESULTS)
        paths = [PurePosixPath(entry.path) for entry in entries if isinstance(entry, RepoFile)]
    return sorted(str(p.relative_to(_SCORES).with_suffix("")) for p in paths if p.suffix == ".json")


def published_figures(
    models: Iterable[str], *, revision: str | None = None, jobs: int = 8
) -> tuple[dict[str, dict[str, float]], str]:
    """Download the numbers that RewardBench 2's leaderboard shows.

    Files are kept in the Hub's cache: each is downloaded once per commit, and later read without a network.

    Parameters
    ----------
    models : Iterable[str]
        Hub ids of the models.
    revision : str, optional
        Branch, tag or commit of the data set of results; default the current one.
    jobs : int
        Number of simultaneous downloads.

    Returns
    -------
    figures : dict of str to dict
        The value of each category by model; models without numbers are missing.
    commit : str
        The commit of the data set.

    Examples
    --------
    This needs the Hub::

        figures, commit = published_figures(["Skywork/Skywork-Reward-V2-Llama-3.1-8B"])
    """
    commit = resolve_commit(RESULTS, repo_type="dataset", revision=revision)
    names = [name for name in dict.fromkeys(models) if _is_repo_id(name)]
    with ThreadPoolExecutor(max_workers=jobs) as pool:
        found = list(pool.map(lambda name: _figures(name, commit), names))
    return {name: figures for name, figures in zip(names, found, strict=True) if figures}, commit


def _figures(model: str, commit: str) -> dict[str, float]:
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()  # the files are tiny
    name = f"{_FIGURES}/{model}.json"
    if try_to_load_from_cache(RESULTS, name, revision=commit, repo_type="dataset") is _CACHED_NO_EXIST:
        return {}
    with translated(RESULTS, repo_type="dataset"):
        try:
            path = downloaded(
                lambda: Path(hf_hub_download(RESULTS, name, repo_type="dataset", revision=commit)), RESULTS
            )
        except LocalEntryNotFoundError:  # the Hub was not reached
            raise
        except EntryNotFoundError:
            return {}
    content = _parse(path.read_bytes(), f"{RESULTS}/{name}")
    if not isinstance(content, dict):
        raise ValueError(f"{RESULTS}/{name}: not a JSON object")
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
            known = published_models(revision=commit)
            near = difflib.get_close_matches(model, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"{len(known)} other models have some"
            raise HubError(f"{model}: no published scores in {RESULTS} ({hint})") from None


def _parse(content: bytes, source: str) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{source}: not JSON: {error}") from error

"""Scores that RewardBench has published: downloaded by model name, without a GPU.

The Hub data set `allenai/reward-bench-2-results` has one JSON file per model, which consists mostly of texts.
A file is streamed until the required columns are complete; only these are kept, and cached as a Parquet file.
The numbers of the leaderboard are in separate small files.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

from rmcalib._util.hub import HubError, check_repo_id, downloaded, folder_name, resolve_commit, translated
from rmcalib._util.waiting import within
from rmcalib.benchmarks._entries import known_entry
from rmcalib.scores._formats import rewardbench_columns
from rmcalib.scores._scores import Scores

RESULTS = "allenai/reward-bench-2-results"
"""The data set with published scores."""
FOLDER = "eval-set-scores"
FIGURES = "eval-set"
_NEEDED = ("id", "subset", "scores", "num_correct", "model", "model_type", "chat_template")
_KEPT = ("model_type", "chat_template", "repaired_ids", "notes")
_BLOCK = 1 << 18


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
    source = f"{RESULTS}/{FOLDER}/{model}.json"
    content = select_columns(_blocks(model, commit), _NEEDED, source)
    columns, about = rewardbench_columns(content, source)
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
                *HfApi().list_repo_tree(RESULTS, FOLDER, recursive=True, revision=commit, repo_type="dataset")
            ]

        entries = downloaded(listed, RESULTS)
        paths = [PurePosixPath(entry.path) for entry in entries if isinstance(entry, RepoFile)]
    return sorted(str(p.relative_to(FOLDER).with_suffix("")) for p in paths if p.suffix == ".json")


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
    name = f"{FIGURES}/{model}.json"
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


def select_columns(blocks: Iterable[bytes], wanted: Iterable[str], source: str) -> dict[str, Any]:
    """Parse some members of a large JSON object from a stream; stop reading after the last one.

    >>> stream = iter([b'{"text": ["long, {and} ', b'wild"], "id": ["1", ', b'"2"], "more": ', b"unread"])
    >>> select_columns(stream, ["id"], "x.json"), next(stream)
    ({'id': ['1', '2']}, b'unread')
    """
    wanted = set(wanted)
    found: dict[str, Any] = {}
    for key, value in _members(blocks, wanted, source):
        found[key] = _parse(value, source)
        if len(found) == len(wanted):
            break
    return found


_IN_STRING, _OUTSIDE = re.compile(rb'["\\]'), re.compile(rb'["{}\[\],:]')


def _members(blocks: Iterable[bytes], wanted: set[str], source: str) -> Iterator[tuple[str, bytes]]:
    """Yield the wanted members of a JSON object as raw text.

    Only the structure is parsed: where strings, arrays and objects begin and end. Other values are skipped.
    """
    depth, in_string, key, keep = 0, False, "", True
    value = bytearray()
    skip = 0  # characters of the next block that belong to an escape
    for block in blocks:
        position = min(skip, len(block))
        skip -= position
        kept = 0
        while True:
            match = (_IN_STRING if in_string else _OUTSIDE).search(block, position)
            if match is None:
                break
            sign, position = match[0], match.end()
            if in_string:
                if sign == b'"':
                    in_string = False
                else:
                    position += 1
                    skip = max(0, position - len(block))
            elif sign == b'"':
                in_string = True
            elif sign in b"{[":
                depth += 1
                if depth == 1:
                    if sign != b"{":
                        raise ValueError(f"{source}: not a JSON object")
                    kept = position
            elif sign == b":" and depth == 1:
                key = str(_parse(bytes(value) + block[kept : match.start()], source))
                value.clear()
                keep, kept = key in wanted, position
            elif (sign == b"," and depth == 1) or (sign == b"}" and depth == 1):
                if keep and key:
                    yield key, bytes(value) + block[kept : match.start()]
                value.clear()
                keep, kept, key = True, position, ""
                if sign == b"}":
                    return
            elif sign in b"}]":
                depth -= 1
        if keep:
            value += block[kept:]
    raise ValueError(f"{source}: the file ends too early")


def _parse(text: bytes, source: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{source}: not JSON: {error}") from error


def _blocks(model: str, commit: str) -> Iterator[bytes]:
    """Read the file of a model from the Hub in blocks."""
    from huggingface_hub import HfFileSystem

    path = f"datasets/{RESULTS}@{commit}/{FOLDER}/{model}.json"
    with translated(RESULTS, repo_type="dataset"):
        try:
            file = within(lambda: HfFileSystem().open(path, "rb", block_size=_BLOCK))
        except FileNotFoundError:
            known = published_models(revision=commit)
            near = difflib.get_close_matches(model, known, n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"{len(known)} other models have some"
            raise HubError(f"{model}: no published scores in {RESULTS} ({hint})") from None
        with file:
            while block := within(lambda: file.read(_BLOCK)):
                yield block

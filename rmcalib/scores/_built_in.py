"""Scores of real reward models and judges that come with the package and can be used offline.

The files are in `rmcalib/demo`, whose README and LICENSE files name their sources.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.texts import parse_yaml
from rmcalib.benchmarks._entries import known_entry
from rmcalib.benchmarks._items import distinct_ids
from rmcalib.scores._scores import Scores

REAL = "real"
"""All reward models that come with the package: the boards `rewardmath` and `reward-bench-2`."""
BOARDS = ("rewardmath", "reward-bench-2", "pandalm", REAL)
"""The names of the built-in boards."""
_DEMO = Path(__file__).parents[1] / "demo"


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
        beats = [row for p in wins for row in ((None, p), (1 - p, None))]
        about = {"model": model, **_about("pandalm"), "verdicts": counts}
        found[model] = Scores.from_columns(columns | {"beats": beats}, about)
    return found


def _about(board: str) -> dict[str, Any]:
    found: dict[str, Any] = parse_yaml((_DEMO / "boards.yaml").read_bytes(), "boards.yaml")[board]
    return found


def _read(name: str) -> dict[str, Any]:
    import pyarrow.parquet

    table: dict[str, Any] = pyarrow.parquet.read_table(_DEMO / f"{name}.parquet").to_pydict()
    return table

"""Scores of real reward models that come with the package and can be used offline."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from rmcalib._util.arrays import FloatArray
from rmcalib.scores._scores import Scores

__all__ = ["REAL", "built_in_scores", "is_built_in", "load_board"]

REAL = "real"
"""The name of the built-in board."""
_FILE = Path(__file__).parents[1] / "demo" / "rewardmath.npz"
_ABOUT = {
    "benchmark": "rewardmath",
    "benchmark_format": "rewardmath",
    "scores": "published",
    "source": "github.com/kimsh0507/RewardMATH_official, results/RewardMATH",
    "source_revision": "cde06ab3f5466e1f94e74ba4fadf0e6561434ecb",
    "licence": "MIT License, Copyright (c) 2024 Sunghwan Kim",
}


def load_board(name: str = REAL) -> dict[str, Scores]:
    """Load the built-in scores of real reward models, by model.

    The board ``"real"`` has the published rewards of nine classifiers on RewardMATH: 483 problems of MATH
    with ten solutions each, of which the first is correct. It has no texts. The manifests name the source,
    its commit and the licence.

    Parameters
    ----------
    name : str
        ``"real"``, the only board so far.

    Returns
    -------
    dict of str to Scores
        The scores by model, as :func:`rmcalib.leaderboard` takes them.

    Examples
    --------
    >>> board = load_board()
    >>> len(board), board["internlm/internlm2-7b-reward"]
    (9, Scores(483 prompts, 4830 responses,
               {'model': 'internlm/internlm2-7b-reward', 'benchmark': 'rewardmath'}))
    """
    if name != REAL:
        raise ValueError(f"{name}: no such board (have: {REAL})")
    return {model: _scores(model, rewards) for model, rewards in _rewards().items()}


def built_in_scores(name: str) -> Scores:
    """Load the built-in scores of one model by its name, ``real/<model>``.

    >>> built_in_scores("real/openbmb/Eurus-RM-7b").n_items
    483
    """
    model = name.removeprefix(f"{REAL}/")
    if model not in _rewards():
        have = ", ".join(f"{REAL}/{one}" for one in _rewards())
        raise ValueError(f"{name}: no such scores are built in (have: {have})")
    return _scores(model, _rewards()[model])


def _scores(model: str, rewards: FloatArray) -> Scores:
    return Scores.from_arrays(rewards, category="MATH", manifest={"model": model, **_ABOUT})


@lru_cache(maxsize=1)
def _rewards() -> dict[str, FloatArray]:
    with np.load(_FILE, allow_pickle=False) as file:
        return dict(zip(file["models"].tolist(), file["rewards"], strict=True))


def is_built_in(source: Any) -> bool:
    """Return whether a name is that of built-in scores, such as `real/openbmb/Eurus-RM-7b`."""
    return str(source).startswith(f"{REAL}/") and not Path(source).exists()

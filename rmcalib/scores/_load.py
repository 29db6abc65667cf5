"""Loading scores by the name of a file, or of scores that are built in."""

from __future__ import annotations

from pathlib import Path

from rmcalib._util.storage import as_path
from rmcalib.scores._built_in import REAL, built_in_scores
from rmcalib.scores._scores import Scores

__all__ = ["is_built_in", "load_scores"]


def load_scores(path: str | Path) -> Scores:
    """Read scores from a file, or take those of a real reward model that are built in.

    Parameters
    ----------
    path : a `.parquet`, `.jsonl` or `.json` (RewardBench's) file; or `real/<model>`, a model of the built-in
        board (see :func:`load_board`).

    Examples
    --------
    >>> load_scores("real/internlm/internlm2-7b-reward").n_items
    483
    """
    if is_built_in(path):
        return built_in_scores(str(path))
    readers = {
        ".parquet": Scores.from_parquet,
        ".jsonl": Scores.from_jsonl,
        ".json": Scores.from_rewardbench_json,
    }
    reader = readers.get(as_path(path).suffix)
    if reader is None:
        raise ValueError(f"{str(path) or repr('')}: a file of scores ends in {', '.join(readers)}")
    return reader(path)


def is_built_in(path: str | Path) -> bool:
    """Tell whether a name is that of built-in scores; a file or folder of the same name goes first.

    >>> is_built_in("real/openbmb/Eurus-RM-7b"), is_built_in("runs/real/scores.parquet")
    (True, False)
    """
    return str(path).startswith(f"{REAL}/") and not Path(path).exists()

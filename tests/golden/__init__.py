"""What the paper's public code returned on given predictions; README.md says where each figure is from."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

FOLDER = Path(__file__).parent
DATA_SETS = ("iris", "political", "authorship", "glass")


def predictions(name: str) -> dict[str, Any]:
    """Return the arrays that the public code was given."""
    with np.load(FOLDER / f"{name}.npz") as file:
        return dict(file)


def figures(name: str) -> dict[str, Any]:
    """Return what the public code computed from them."""
    figures: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return figures


def public_data(name: str) -> tuple[Any, Any]:
    """Return the ranks and the features of iris or wine as published."""
    with np.load(FOLDER / "label_ranking.npz") as file:
        return file[f"{name}_ranks"], file[f"{name}_features"]


def published_errors() -> pd.DataFrame:
    """Return the errors that the paper's authors published for one fold of some data sets."""
    return pd.read_csv(FOLDER / "published_errors.csv")

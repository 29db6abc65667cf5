"""Label-ranking data: features, and a ranking of the same labels for every row."""

import csv
import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rmcalib._util.arrays import FloatArray, IntArray, check_choice, check_integer
from rmcalib._util.files import read_csv_table
from rmcalib.ranking import PlackettLuce, orders_from_ranks
from rmcalib.tabular._sources import SHA256, fetch, offline_iris, offline_wine

if TYPE_CHECKING:
    import pandas as pd

DATASETS = tuple(sorted(SHA256))
"""Names for :func:`load_dataset`: the data sets of the paper, and segment and pendigits."""

_OFFLINE = {"iris": offline_iris, "wine": offline_wine}
_POLITICAL_LABELS = 6
_POLITICAL_MISSING = 977
_LARGEST_FEATURE = 1e100  # the squares of larger ones, and so the standard deviation, overflow


@dataclass(frozen=True)
class Dataset:
    """Label-ranking data: rows of features, and one ranking per row.

    Attributes
    ----------
    name : str
        Name of the data set.
    numeric : float array (n, d)
        Numeric features; NaN if missing.
    orders : int array (n, m)
        Label numbers, best first.
    labels : tuple[str, ...]
        Names of the m labels.
    texts : str array (n, c)
        Categorical features.
    numeric_names : tuple[str, ...]
        Names of the numeric features.
    identifiers : tuple[str, ...]
        Names of numeric columns that only number the rows; they are not used as features.

    Examples
    --------
    >>> data = load_dataset("iris")
    >>> len(data), data.n_items, data.labels
    (150, 3, ('L1', 'L2', 'L3'))
    """

    name: str
    numeric: FloatArray
    orders: IntArray
    labels: tuple[str, ...]
    texts: NDArray[Any] = field(repr=False)
    numeric_names: tuple[str, ...] = field(default=(), repr=False)
    identifiers: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.orders)

    @property
    def n_items(self) -> int:
        """The number of labels that are ranked."""
        return int(self.orders.shape[1])

    @property
    def fingerprint(self) -> str:
        """A hash of the content. Results that were made from other data have another hash."""
        digest = hashlib.sha256(np.ascontiguousarray(self.numeric).tobytes())
        digest.update(np.ascontiguousarray(self.orders).tobytes())
        digest.update("\x1f".join(map(str, self.texts.reshape(-1))).encode())
        return digest.hexdigest()[:16]


def load_dataset(name: str) -> Dataset:
    """Load one of the public data sets by name; iris and wine work without a network.

    Parameters
    ----------
    name : str
        One of ``DATASETS``.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> load_dataset("iris").numeric.shape
    (150, 4)
    """
    check_choice(name, "dataset", DATASETS)
    if name in _OFFLINE:
        features, orders = _OFFLINE[name]()
        labels = tuple(f"L{number + 1}" for number in range(orders.shape[1]))
        return _numeric_dataset(name, features, orders, labels)
    path = fetch(name)
    if name == "political":
        return _political(path)
    return _from_frame(_read_frame(path), name, "L", where=str(path))


def read_csv(path: str | Path, labels: str | Sequence[str] = "L") -> Dataset:
    """Read label-ranking data from a CSV file with a header.

    Parameters
    ----------
    path : str | Path
        The file.
    labels : str | Sequence[str]
        The columns that hold the rank of each label, from 1 (best) to m: a list of names, or the prefix that
        they share. All other columns are features; those that are not numbers are categories.

    Returns
    -------
    Dataset

    Raises
    ------
    ValueError
        If a row is longer or shorter than the header, a value is missing, the ranks of a row have ties or
        gaps, or a numeric column has the same value in every row.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "mine.csv"
    ...     _ = path.write_text("age,rank_a,rank_b\\n31,1,2\\n54,2,1\\n")
    ...     read_csv(path, labels="rank_").orders
    array([[0, 1],
           [1, 0]])
    """
    source = Path(path)
    if not source.is_file():
        raise ValueError(f"{source}: there is no such file")
    frame = _read_frame(source)
    unnamed = [i for i, column in enumerate(frame.columns) if str(column).startswith("Unnamed: ")]
    if unnamed:
        raise ValueError(f"{source}: column {unnamed[0] + 1} has no name; name it or leave it out")
    name = "".join(c if c.isalnum() or c in "-_." else "_" for c in source.stem) or "data"
    data = _from_frame(frame, name, labels, where=str(source))
    for column, values in zip(data.numeric_names, data.numeric.T, strict=True):
        if (values == values[0]).all():
            raise ValueError(
                f"{source}: column '{column}' is constant ({values[0]:g} in every row); leave it out"
            )
    return data


def synthetic_dataset(
    n: int, n_items: int, n_features: int = 4, *, spread: float = 1.0, seed: int = 0
) -> tuple[Dataset, PlackettLuce]:
    """Draw label-ranking data from a Plackett-Luce model whose log-utilities are linear in the features.

    Parameters
    ----------
    n : int
        Number of rows.
    n_items : int
        Number of labels.
    n_features : int
        Number of features, which are standard normal.
    spread : float
        Standard deviation of the log-utilities over rows.
    seed : int
        Seed of everything that is drawn.

    Returns
    -------
    tuple of Dataset and PlackettLuce
        The data, and the distributions that its rankings were drawn from.

    Examples
    --------
    >>> data, truth = synthetic_dataset(10, 3)
    >>> data.orders.shape, len(truth)
    ((10, 3), 10)
    """
    check_integer(n, "n", 1)
    check_integer(n_items, "n_items", 2)
    check_integer(n_features, "n_features", 1)
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_features))
    slopes = rng.normal(scale=spread / np.sqrt(n_features), size=(n_features, n_items))
    truth = PlackettLuce(features @ slopes)
    labels = tuple(f"L{number + 1}" for number in range(n_items))
    return _numeric_dataset(f"synthetic-{seed}", features, truth.sample(1, rng)[0], labels), truth


@dataclass(frozen=True)
class FeatureEncoder:
    """Fitted transformers of the numeric ``columns`` and of the categories; None if there are none."""

    columns: IntArray
    numbers: Any
    categories: Any

    def transform(self, data: Dataset, rows: IntArray) -> FloatArray:
        """Return features (len(rows), d): standardised numbers, then one column per known category."""
        blocks = [np.empty((len(rows), 0))]
        if self.numbers is not None:
            blocks.append(self.numbers.transform(data.numeric[np.ix_(rows, self.columns)]))
        if self.categories is not None:
            blocks.append(self.categories.transform(data.texts[rows]))
        return np.column_stack(blocks)


def fit_encoder(data: Dataset, rows: IntArray, *, identifiers: bool = False) -> FeatureEncoder:
    """Learn the encoding from ``rows`` of ``data``.

    Missing numbers are replaced by the median, numbers are standardised, and categories are one-hot encoded.
    Categories that are not in ``rows`` are ignored. Columns that only number the rows are left out, unless
    ``identifiers``.

    >>> from rmcalib.tabular import load_dataset
    >>> data = load_dataset("iris")
    >>> features = fit_encoder(data, np.arange(100)).transform(data, np.arange(100))
    >>> bool(np.allclose(features.mean(axis=0), 0)), bool(np.allclose(features.std(axis=0), 1))
    (True, True)
    """
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    names = enumerate(data.numeric_names)
    kept = [number for number, name in names if identifiers or name not in data.identifiers]
    columns = np.array(kept, dtype=np.int64)
    numbers = categories = None
    if kept:
        imputer = SimpleImputer(strategy="median", keep_empty_features=True)
        numbers = make_pipeline(imputer, StandardScaler()).fit(data.numeric[np.ix_(rows, columns)])
    if data.texts.shape[1]:
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        categories = encoder.fit(data.texts[rows])
    return FeatureEncoder(columns, numbers, categories)


def _numeric_dataset(name: str, features: FloatArray, orders: IntArray, labels: tuple[str, ...]) -> Dataset:
    names = tuple(f"A{number + 1}" for number in range(features.shape[1]))
    return Dataset(name, features, orders, labels, np.empty((len(orders), 0), dtype=str), names)


def _read_frame(path: Path) -> "pd.DataFrame":
    """Read a CSV file. The index of the table holds the line on which each row begins."""
    import pandas as pd

    try:
        # pandas silently uses the first column as an index if rows have one cell too many.
        table = read_csv_table(path)
        text = io.StringIO()
        csv.writer(text).writerows([table.header, *table.rows] if table.header else [])
        text.seek(0)
        frame = pd.read_csv(text)
    except (pd.errors.EmptyDataError, pd.errors.ParserError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a CSV file with a header ({' '.join(str(error).split())})") from error
    if frame.empty:
        raise ValueError(f"{path}: has no rows")
    frame.index = pd.Index(table.lines)
    return frame


def _from_frame(frame: "pd.DataFrame", name: str, labels: str | Sequence[str], *, where: str) -> Dataset:
    columns = [str(column) for column in frame.columns]
    chosen = _label_columns(columns, labels, where)
    features = [column for column in columns if column not in chosen]
    if not features:
        raise ValueError(f"{where}: every column is a label; there are no features to learn from")
    missing = frame.isna().to_numpy()
    if missing.any():
        row, column = np.argwhere(missing)[0]
        raise ValueError(
            f"{where}: column '{columns[column]}' has no value in line {frame.index[row]}; "
            "fill it in or leave the row out"
        )
    numbers = [column for column in features if frame[column].dtype.kind in "iufb"]
    texts = [column for column in features if column not in numbers]
    numeric = frame[numbers].to_numpy(np.float64)
    too_large = np.abs(numeric) > _LARGEST_FEATURE
    if too_large.any():
        row, column = np.argwhere(too_large)[0]
        raise ValueError(
            f"{where}: column '{numbers[column]}' is {numeric[row, column]:g} in line {frame.index[row]}; "
            f"the largest possible number is {_LARGEST_FEATURE:g}"
        )
    return Dataset(
        name,
        numeric,
        _orders(frame, chosen, where),
        tuple(chosen),
        frame[texts].to_numpy(dtype=object).astype(str).reshape(len(frame), len(texts)),
        tuple(numbers),
    )


def _label_columns(columns: list[str], labels: str | Sequence[str], where: str) -> list[str]:
    """Return the columns with ranks: those that are named, or that start with a prefix."""
    if isinstance(labels, str):
        chosen = [column for column in columns if column.startswith(labels)]
        problem = "" if chosen else f"no column starts with '{labels}'"
    else:
        chosen = list(labels)
        problem = "" if chosen else "no label column is named"
        problem = next((f"no column '{column}'" for column in chosen if column not in columns), problem)
    if problem:
        raise ValueError(
            f"{where}: {problem} (have: {', '.join(columns[:20])}); name the columns of ranks with --labels"
        )
    repeated = [column for column in chosen if chosen.count(column) > 1]
    if repeated:
        raise ValueError(f"{where}: the label column '{repeated[0]}' is named twice")
    if len(chosen) < 2:
        raise ValueError(f"{where}: only one label column, '{chosen[0]}'; a ranking needs at least two")
    return chosen


def _orders(frame: "pd.DataFrame", labels: Sequence[str], where: str) -> IntArray:
    ranks = frame[list(labels)]
    text = [column for column in labels if ranks[column].dtype.kind not in "iuf"]
    if text:
        raise ValueError(
            f"{where}: label column '{text[0]}' does not hold numbers; ranks are 1..{len(labels)}"
        )
    values = ranks.to_numpy(np.float64)
    bad = (np.sort(values, axis=1) != np.arange(1, len(labels) + 1)).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        shown = ", ".join(f"{value:g}" for value in values[row])
        raise ValueError(
            f"{where}: line {frame.index[row]} has ranks {shown}; expected each of 1..{len(labels)} exactly "
            "once (no ties, no gaps)"
        )
    return orders_from_ranks(values, base=1)


def _political(path: Path) -> Dataset:
    """Read the survey: 977 means no answer, caseid numbers the people, the last six columns are ranks."""
    frame = _read_frame(path)
    labels = [str(column) for column in frame.columns[-_POLITICAL_LABELS:]]
    data = _from_frame(frame, "political", labels, where=str(path))
    numeric = np.where(data.numeric == _POLITICAL_MISSING, np.nan, data.numeric)
    short = tuple(label.removeprefix("Pos. of ").removesuffix(" in Ranking") for label in labels)
    return Dataset(
        "political", numeric, data.orders, short, data.texts, data.numeric_names, identifiers=("caseid",)
    )

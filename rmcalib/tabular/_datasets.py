"""Label-ranking data: features, and a ranking of the same labels for every row.

The public files are those of the paper's repository, from a pinned commit or a local folder, and checked by their
hash. Iris and wine need no network: they are made from scikit-learn's copies in the same way (normalised features,
labels sorted by naive Bayes probability).
"""

import csv
import hashlib
import io
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_integers, check_choice
from rmcalib._util.files import read_csv_table
from rmcalib.ranking import PlackettLuce, orders_from_ranks

if TYPE_CHECKING:
    import pandas as pd

BASE_URL = (
    "https://raw.githubusercontent.com/Advueu963/Calibrated_Preference_Learning/"
    "dc0b53324cfc98625517f6e7cdeb5c65a77b89a6/src/cal_pref/data/"
)
SHA256 = {
    "authorship": "dde5ff780519bed034dff985f0aac15f8f4f756a5ae099354e11ffb12d339227",
    "glass": "321b0b2490cb1fa21238933fe689558084143318b513e670a164242f0e6c4b30",
    "iris": "9a38f95ff9e900cc852382eadd8c64940b434699c91022ccbd7016a414daddfa",
    "libras": "275dba593b274db1a45c9dd7beb23c3a541f6c79d6f8d182e74c851b8ba5f659",
    "movies": "943082d9696f0a48969da85ef94325d291283cc174d993998c3f4f849761e3a1",
    "pendigits": "5a56701b2c3dc7e235181c75b95ba040ab9a5974d979ed9832b0e01ca17cc25e",
    "political": "b67604465c41efdbf376e4ce3596a08fb5d4431f110473a16df1fc5b9fa6234a",
    "segment": "9ccab630cdf5592c3d9970eeea7aacd8091d1b3300b219b43f2a865b7a4773ce",
    "vehicle": "9fb97428dd846ab7e6e03be21cfeac769405d4ce0742de1b8e9a5bbb3148b4dc",
    "vowel": "70e6bdcd41bdb551df95dda9e52806853c5e3f5f5210478b8682be3b07fd8c45",
    "wine": "9fb727bf94c66ac342ada1f4682be0d830348d2de580b37dc468cb505e5a0bf8",
    "yeast": "d8631caedd24a047eef634cc75585c785ff0ef56ff9eb4fb259857ef924f85c6",
}
DATASETS = tuple(sorted(SHA256))
"""Names for :func:`load_dataset`: the data sets of the paper, and segment and pendigits."""

Encoder = Callable[[IntArray], FloatArray]
"""A function of row numbers that returns their features (n, d)."""
_SMALLEST = 1e-75  # the smallest likelihood of a feature


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
    if name in ("iris", "wine"):
        features, orders = _offline(name)
        return _numeric_dataset(name, features, orders)
    if name != "political":
        return read_csv(fetch(name))
    # A survey: 977 means no answer, and caseid numbers the people.
    data = read_csv(fetch(name), labels="Pos. of ")
    return replace(
        data,
        numeric=np.where(data.numeric == 977, np.nan, data.numeric),
        labels=tuple(label.removeprefix("Pos. of ").removesuffix(" in Ranking") for label in data.labels),
        identifiers=("caseid",),
    )


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
        If a row is longer or shorter than the header, a value is missing, or the ranks of a row have ties or
        gaps.

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
    return _from_frame(_read_frame(Path(path)), labels, Path(path))


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
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, n_features))
    slopes = rng.normal(scale=spread / np.sqrt(n_features), size=(n_features, n_items))
    truth = PlackettLuce(features @ slopes)
    return _numeric_dataset(f"synthetic-{seed}", features, truth.sample(1, rng)[0]), truth


def naive_bayes_rankings(features: ArrayLike, classes: ArrayLike, *, decimals: int | None = 3) -> IntArray:
    """Turn a classification task into label ranking: labels are sorted by naive Bayes probability.

    Each feature is normal within a class and known up to its resolution (the mean gap between its distinct
    values). Its likelihood is the normal probability of that interval. Class frequencies are smoothed by one.
    Ties go to the lower label. With 3 decimals, the rankings equal those of the public iris and wine files.

    Parameters
    ----------
    features : array (n, d)
        Numbers.
    classes : array (n,)
        Class of each row, 0..m−1; each class at least once.
    decimals : int, optional
        Number of decimals to which probabilities are rounded; None for no rounding.

    Returns
    -------
    int array (n, m)
        The labels of each row, most probable first.

    Examples
    --------
    >>> naive_bayes_rankings([[0.0], [0.1], [1.0], [1.1], [2.0], [2.1]], [0, 0, 1, 1, 2, 2])[0]
    array([0, 1, 2])
    """
    from scipy.special import log_ndtr, logsumexp

    x = as_floats(features, "features", ndim=2)
    y = as_integers(classes, "classes", ndim=1)
    if len(x) != len(y):
        raise ValueError(f"classes: {len(y)} classes for {len(x)} rows of features")
    m = int(y.max()) + 1
    members = y == np.arange(m)[:, None]
    if m < 2 or not members.any(axis=1).all():
        raise ValueError(f"classes: expected every one of 0..{max(m, 2) - 1} at least once")
    log_joint = np.tile(np.log((members.sum(axis=1) + 1) / (len(y) + m)), (len(x), 1))
    for column in x.T:
        distinct = np.unique(column)
        step = float(np.diff(distinct).mean()) if len(distinct) > 1 else 0.01
        values = np.rint(column / step) * step
        for label, rows in enumerate(members):
            centre, spread = values[rows].mean(), max(values[rows].std(), step / 6)
            # P(|value - x| < step/2), from the tail on the far side of the mean, for accuracy.
            distance = np.abs(values - centre)
            outer, inner = -(distance - step / 2) / spread, -(distance + step / 2) / spread
            log_share = log_ndtr(outer) + np.log1p(-np.exp(log_ndtr(inner) - log_ndtr(outer)))
            log_joint[:, label] += np.maximum(log_share, np.log(_SMALLEST))
    probabilities = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    if decimals is not None:
        probabilities = np.round(probabilities, decimals)
    return np.argsort(-probabilities, axis=1, kind="stable")


def fetch(name: str) -> Path:
    """Return the path of a data set's file: in ``RMCALIB_DATA``, in the cache, or downloaded into it.

    The hash is checked in all cases. A download is written to a temporary file first, so the cache never
    holds an incomplete or wrong file. The cache is ``RMCALIB_CACHE``, or the user's cache folder.
    """
    file = f"{name}.csv"
    folder = os.environ.get("RMCALIB_DATA")
    if folder:
        if not Path(folder).is_dir():
            raise ValueError(f"RMCALIB_DATA: {folder} is not a folder")
        local = Path(folder) / file
        if local.is_file():
            if hashlib.sha256(local.read_bytes()).hexdigest() != SHA256[name]:
                raise ValueError(f"{local}: this is not the public {name} file, by its SHA-256")
            return local
    import pooch

    cache = Path(os.environ.get("RMCALIB_CACHE") or pooch.os_cache("rmcalib")) / "label_ranking"
    pooch.get_logger().setLevel("WARNING")
    download = pooch.HTTPDownloader(timeout=30)
    url = BASE_URL + file
    try:
        return Path(pooch.retrieve(url, f"sha256:{SHA256[name]}", file, cache, downloader=download))
    except (OSError, ValueError) as error:  # not reached, not the expected file, or not written
        problem = " ".join(str(error).split())
        raise ValueError(
            f"{name}: cannot be fetched from {url}: {problem}. Without a network, put {file} into a "
            "folder and set RMCALIB_DATA to the folder; iris and wine need no download"
        ) from error


def fit_encoder(data: Dataset, rows: IntArray, *, identifiers: bool = False) -> Encoder:
    """Learn the encoding from ``rows`` of ``data``; return a function of rows that returns features (n, d).

    Missing numbers are replaced by the median, numbers are standardised, and categories are one-hot encoded.
    Categories that are not in ``rows`` are ignored. Columns that only number the rows are left out, unless
    ``identifiers``.

    >>> data = load_dataset("iris")
    >>> features = fit_encoder(data, np.arange(100))(np.arange(100))
    >>> bool(np.allclose(features.mean(axis=0), 0)), bool(np.allclose(features.std(axis=0), 1))
    (True, True)
    """
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    kept = [identifiers or name not in data.identifiers for name in data.numeric_names]
    numbers = data.numeric[:, kept]
    parts: list[tuple[NDArray[Any], Any]] = []
    if any(kept):
        imputer = SimpleImputer(strategy="median", keep_empty_features=True)
        parts.append((numbers, make_pipeline(imputer, StandardScaler()).fit(numbers[rows])))
    if data.texts.shape[1]:
        categories = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        parts.append((data.texts, categories.fit(data.texts[rows])))

    def encode(chosen: IntArray) -> FloatArray:
        return np.column_stack([fitted.transform(values[chosen]) for values, fitted in parts])

    return encode


def _offline(name: str) -> tuple[FloatArray, IntArray]:
    """Return features (n, d) and orders (n, m) of iris or wine, without a network."""
    from sklearn.datasets import load_iris, load_wine

    raw, classes = (load_iris if name == "iris" else load_wine)(return_X_y=True)
    if name == "iris":  # scikit-learn has Fisher's values in these rows; the label-ranking file has UCI's
        raw[[34, 37]] = (4.9, 3.1, 1.5, 0.1)
    low, high = raw.min(axis=0), raw.max(axis=0)
    features = np.round(2 * (raw - low) / (high - low) - 1, 5)
    return features, naive_bayes_rankings(features, classes)


def _numeric_dataset(name: str, features: FloatArray, orders: IntArray) -> Dataset:
    labels = tuple(f"L{number + 1}" for number in range(orders.shape[1]))
    names = tuple(f"A{number + 1}" for number in range(features.shape[1]))
    return Dataset(name, features, orders, labels, np.empty((len(orders), 0), dtype=str), names)


def _read_frame(path: Path) -> "pd.DataFrame":
    """Read a CSV file. The index of the table holds the line on which each row begins."""
    import pandas as pd

    # pandas silently uses the first column as an index if rows have one cell too many.
    table = read_csv_table(path)
    if not table.rows or "" in table.header:
        raise ValueError(f"{path}: expected CSV with a header that names all columns, and rows")
    text = io.StringIO()
    csv.writer(text).writerows([table.header, *table.rows])
    text.seek(0)
    return pd.read_csv(text).set_axis(table.lines)


def _from_frame(frame: "pd.DataFrame", labels: str | Sequence[str], where: Path) -> Dataset:
    import pandas as pd

    columns = [str(column) for column in frame.columns]
    chosen = (
        [name for name in columns if name.startswith(labels)] if isinstance(labels, str) else list(labels)
    )
    if not set(chosen) <= set(columns) or len(set(chosen)) < max(len(chosen), 2):
        raise ValueError(
            f"{where}: labels {chosen or labels!r}: expected two or more different columns of ranks, each "
            f"named once (have: {', '.join(columns[:20])})"
        )
    features = [column for column in columns if column not in chosen]
    if not features:
        raise ValueError(f"{where}: every column is a label; there are no features to learn from")
    unusable = frame.isin([np.nan, np.inf, -np.inf]).to_numpy()
    if unusable.any():
        row, column = np.argwhere(unusable)[0]
        raise ValueError(
            f"{where}: column '{columns[column]}' has no finite value in line {frame.index[row]}"
        )
    ranks = frame[chosen].apply(pd.to_numeric, errors="coerce").to_numpy(np.float64)
    bad = (np.sort(ranks, axis=1) != np.arange(1, len(chosen) + 1)).any(axis=1)
    if bad.any():
        row = int(np.argmax(bad))
        shown = ", ".join(f"{name} {frame[name].iloc[row]}" for name in chosen[:9])
        raise ValueError(
            f"{where}: line {frame.index[row]} has the ranks {shown}; expected each of 1..{len(chosen)} exactly "
            "once (no ties, no gaps)"
        )
    numbers = [column for column in features if frame[column].dtype.kind in "iufb"]
    texts = [column for column in features if column not in numbers]
    return Dataset(
        re.sub(r"[^\w.-]", "_", where.stem),
        frame[numbers].to_numpy(np.float64),
        orders_from_ranks(ranks, base=1),
        tuple(chosen),
        frame[texts].to_numpy(dtype=object).astype(str).reshape(len(frame), len(texts)),
        tuple(numbers),
    )

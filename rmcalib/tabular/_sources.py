"""Sources of the label-ranking data sets: a pinned download, a local folder, or scikit-learn's data.

The files are those of the paper's public repository. Iris and wine need no network: they are made from
scikit-learn's copies in the same way (normalised features, labels sorted by naive Bayes probability).
"""

import hashlib
import os
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike

from rmcalib._util.arrays import FloatArray, IntArray, as_floats, as_integers

BASE_URL = (
    "https://raw.githubusercontent.com/Advueu963/Calibrated_Preference_Learning/"
    "dc0b53324cfc98625517f6e7cdeb5c65a77b89a6/src/cal_pref/data/"
)
SHA256 = MappingProxyType(
    {
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
)
_SMALLEST = 1e-75


def fetch(name: str, *, base_url: str = BASE_URL, cache: Path | None = None) -> Path:
    """Return the path of a data set's file: in ``RMCALIB_DATA``, in the cache, or downloaded into it.

    The hash is checked in all cases. A download is written to a temporary file first, so the cache never
    holds an incomplete or wrong file. ``cache`` is ``RMCALIB_CACHE`` or the user's cache folder by default.
    """
    file = f"{name}.csv"
    folder = os.environ.get("RMCALIB_DATA")
    if folder:
        if not Path(folder).is_dir():
            raise ValueError(f"RMCALIB_DATA: {folder} is not a folder")
        local = Path(folder) / file
        if local.is_file():
            _check_hash(local, name)
            return local
    import pooch
    import requests

    target = cache or Path(os.environ.get("RMCALIB_CACHE") or pooch.os_cache("rmcalib")) / "label_ranking"
    pooch.get_logger().setLevel("WARNING")
    try:
        path = pooch.retrieve(
            base_url + file,
            known_hash=f"sha256:{SHA256[name]}",
            fname=file,
            path=target,
            downloader=pooch.HTTPDownloader(timeout=30),
        )
    except (requests.RequestException, ConnectionError, TimeoutError) as error:
        raise ValueError(
            f"{name}: {base_url + file} cannot be reached ({type(error).__name__}). Without a network, put "
            f"{file} into a folder and set RMCALIB_DATA to the folder; iris and wine need no download"
        ) from error
    except ValueError as error:
        raise ValueError(
            f"{name}: {base_url + file} does not have the expected SHA-256 {SHA256[name][:12]}..., so it was "
            "not kept; try again, or put the right file into a folder and set RMCALIB_DATA to the folder"
        ) from error
    except OSError as error:
        raise ValueError(f"{name}: cannot write to the cache folder {target}: {error.strerror}") from error
    return Path(path)


def offline_iris() -> tuple[FloatArray, IntArray]:
    """Return features (150, 4) and orders (150, 3) of the iris label-ranking data, without a network.

    >>> features, orders = offline_iris()
    >>> features[0], orders[0]
    (array([-0.55556,  0.25   , -0.86441, -0.91667]), array([0, 1, 2]))
    """
    from sklearn.datasets import load_iris

    raw, classes = load_iris(return_X_y=True)
    # scikit-learn has Fisher's values in these rows; the label-ranking file has UCI's.
    raw[[34, 37]] = (4.9, 3.1, 1.5, 0.1)
    return _rebuilt(raw, classes)


def offline_wine() -> tuple[FloatArray, IntArray]:
    """Return features (178, 13) and orders (178, 3) of the wine label-ranking data, without a network.

    >>> features, orders = offline_wine()
    >>> features.shape, orders[0]
    ((178, 13), array([0, 1, 2]))
    """
    from sklearn.datasets import load_wine

    return _rebuilt(*load_wine(return_X_y=True))


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


def _rebuilt(raw: FloatArray, classes: IntArray) -> tuple[FloatArray, IntArray]:
    low, high = raw.min(axis=0), raw.max(axis=0)
    features = np.round(2 * (raw - low) / (high - low) - 1, 5)
    return features, naive_bayes_rankings(features, classes)


def _check_hash(path: Path, name: str) -> None:
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != SHA256[name]:
        raise ValueError(
            f"{path}: its SHA-256 is {found[:12]}..., expected {SHA256[name][:12]}...; this is not "
            f"the public {name} file (to use your own data, pass it as a file with --data)"
        )

"""Data sets: the offline ones equal the public files, downloads are checked, bad files are reported."""

import gc
import hashlib
import http.server
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from rmcalib.tabular import load_dataset, naive_bayes_rankings, read_csv, synthetic_dataset
from rmcalib.tabular._datasets import SHA256, fetch, fit_encoder
from tests.golden import public_data


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_offline_data_equal_the_public_files(name: str) -> None:
    ranks, features = public_data(name)
    data = load_dataset(name)
    np.testing.assert_array_equal(data.orders, np.argsort(ranks, axis=1))
    # The file has five decimals; in wine, a few values were rounded in the other direction.
    np.testing.assert_allclose(data.numeric, features, rtol=0, atol=1.0001e-5)


def test_naive_bayes_uses_normal_probabilities_of_intervals() -> None:
    rng = np.random.default_rng(0)
    classes = rng.integers(0, 3, size=30)
    features = np.round(rng.normal(size=(30, 2)) + classes[:, None], 1)
    score = np.log([(sum(classes == c) + 1) / 33 for c in range(3)]) + np.zeros((30, 3))
    for x in features.T:
        step = np.diff(np.unique(x)).mean()
        z = np.rint(x / step) * step
        for c in range(3):
            mean, sd = z[classes == c].mean(), z[classes == c].std()
            score[:, c] += np.log(norm.cdf(z + step / 2, mean, sd) - norm.cdf(z - step / 2, mean, sd))
    expected = np.argsort(-score, axis=1, kind="stable")
    np.testing.assert_array_equal(naive_bayes_rankings(features, classes, decimals=None), expected)


def test_synthetic_data_are_drawn_from_the_returned_distributions() -> None:
    data, truth = synthetic_dataset(4000, 3, spread=2.0)
    first = data.orders[:, 0] == 0
    assert abs(first.mean() - truth.top([[0]]).mean()) < 0.03
    np.testing.assert_array_equal(
        synthetic_dataset(50, 3, seed=4)[0].orders, synthetic_dataset(50, 3, seed=4)[0].orders
    )


def test_the_encoding_is_fitted_on_training_rows_only() -> None:
    data, _ = synthetic_dataset(40, 3)
    train, test = np.arange(20), np.arange(20, 40)
    before = fit_encoder(data, train)(train)
    data.numeric[test] = 1e6
    np.testing.assert_array_equal(fit_encoder(data, train)(train), before)


GOOD = "A1,A2,L1,L2,L3\n0.1,x,1,2,3\n0.2,y,3,1,2\n0.3,x,2,1,3\n"


def test_own_file_with_prefix_list_and_texts(tmp_path: Path) -> None:
    path = tmp_path / "my data!.csv"
    path.write_text(GOOD)
    data = read_csv(path)
    assert data.name == "my_data_"
    assert data.orders.tolist() == [[0, 1, 2], [1, 2, 0], [1, 0, 2]]
    assert data.texts.tolist() == [["x"], ["y"], ["x"]]
    features = fit_encoder(data, np.arange(2))(np.arange(3))
    assert features.shape == (3, 3)
    two = read_csv(path.rename(tmp_path / "b.csv"), ["L1", "L2", "L3"])
    assert two.labels == ("L1", "L2", "L3")


@pytest.mark.parametrize(
    ("text", "labels", "named"),
    [
        ("A1,L1,L2\n1,1,1\n2,1,2\n", "L", "line 2"),
        ("A1,L1,L2\n1,1,2\n2,1,3\n", "L", "line 3"),
        ("A1,L1,L2\n1,1.5,2\n2,1,2\n", "L", "line 2"),
        ("A1,L1,L2\n1,a,b\n2,b,a\n", "L", "line 2"),
        ("A1,L1,L2\n1,1,2\n,2,1\n", "L", "'A1' .* line 3"),
        ("A1,L1\n1,1\n2,1\n", "L", "'L1'"),
        ("L1,L2\n1,2\n2,1\n", "L", "features"),
        ("A1,L1,L2\n1,1,2\n2,2,1\n", "rank", "'rank'"),
        ("A1,L1,L2\n1,1,2\n2,2,1\n", ["L1", "L9"], "'L9'"),
        ("A1,L1,L2\n1,1,2\n2,2,1\n", ["L1", "L1"], "'L1'"),
        ("A1,L1,L2\ninf,1,2\n2,2,1\n", "L", "'A1' .* line 2"),
        ("A1,L1,L2\n", "L", "rows"),
        ("", "L", "CSV"),
        ("A1,L1,L2\n7,1,1,2\n8,2,2,1\n", "L", "line 2"),
        ("\r\nA1,L1,L2\r\n\r\n1,1,2\r\n  \r\n2,2,1,5\r\n", "L", "line 6"),
        ('A1,T,L1,L2\n1,"a\nb",1,2\n\n2,c,1,1\n', "L", "line 5"),
    ],
)
def test_errors_name_file_and_line(text: str, labels: str | list[str], named: str, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=named) as caught:
        read_csv(path, labels)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_missing_and_unknown_names(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.csv: "):
        read_csv(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="dataset: unknown 'iriss'"):
        load_dataset("iriss")


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of a server that downloads come from. The cache is a new folder, too."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as httpd:
        address = f"http://127.0.0.1:{httpd.server_address[1]}/"
        monkeypatch.setattr("rmcalib.tabular._datasets.BASE_URL", address)
        monkeypatch.setenv("RMCALIB_CACHE", str(tmp_path / "cache"))
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder
        httpd.shutdown()
        thread.join()
    # The download library leaves refused connections to the garbage collector, which may run earlier.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(autouse=True)
def no_local_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RMCALIB_DATA", raising=False)


def test_download_is_cached(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = b"A1,L1,L2\n1,1,2\n"
    (served / "glass.csv").write_bytes(content)
    known = {**SHA256, "glass": hashlib.sha256(content).hexdigest()}
    monkeypatch.setattr("rmcalib.tabular._datasets.SHA256", known)
    path = fetch("glass")
    assert path.read_bytes() == content
    (served / "glass.csv").unlink()
    assert fetch("glass") == path


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
@pytest.mark.parametrize("case", ["wrong hash", "no such file", "no server"])
def test_a_file_that_cannot_be_fetched(
    case: str, served: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case == "wrong hash":
        (served / "glass.csv").write_text("A1,L1,L2\n1,1,2\n")
    if case == "no server":
        monkeypatch.setattr("rmcalib.tabular._datasets.BASE_URL", "http://127.0.0.1:9/")
    with pytest.raises(ValueError, match=r"glass: .*RMCALIB_DATA") as caught:
        fetch("glass")
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_local_folder_is_checked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "glass.csv").write_text("A1,L1,L2\n1,1,2\n")
    monkeypatch.setenv("RMCALIB_DATA", str(tmp_path))
    with pytest.raises(ValueError, match="this is not the public glass file"):
        load_dataset("glass")
    monkeypatch.setenv("RMCALIB_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"RMCALIB_DATA: .* is not a folder"):
        load_dataset("glass")

"""Results at a URL: a command brings only what its own runs go on from."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest

from rmcalib._util.remote.store import Store
from tests.cli.conftest import Invoke

URL = "memory://own-runs"
OTHERS = ("org__rm/demo/run.json", "org__rm/demo/scores.parquet", "demo/other/scores.parquet", "events.jsonl")


@pytest.fixture
def store() -> Iterator[Store]:
    store = Store(URL, fsspec.filesystem("memory"), "/own-runs")
    for name in OTHERS:
        store.write(name, b"{}")
    yield store
    store.fs.rm("/own-runs", recursive=True)


@pytest.mark.parametrize("command", ["eval", "score"])
def test_only_the_own_run_is_fetched(
    command: str, store: Store, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = Store.read

    def count(self: Store, name: str = "") -> bytes | None:
        read.append(name)
        return original(self, name)

    options = ("--limit", "8", "--device", "cpu", "--output", URL, "--quiet")
    more = ("--resamples", "20") if command == "eval" else ()
    assert invoke(command, *options, *more).code == 0
    monkeypatch.setattr(Store, "read", count)
    monkeypatch.setattr("rmcalib.judges._classifier.load_model", None)  # not needed: the run is there
    assert invoke(command, *options, *more).code == 0
    fetched = {name for name in read if not name.startswith(".")}
    assert {"demo/demo/run.json", "demo/demo/scores.parquet"} <= fetched
    assert not fetched & set(OTHERS)
    assert set(OTHERS) < set(store.names())  # and nothing of the others is lost

"""Folders that follow a store: order of uploads, failures, locks, and what a crash at any moment leaves."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from rmcalib._util.remote import Pace, RemoteError, fetched, is_remote, mirrored
from rmcalib._util.remote.lock import NAME, Lock, LockLostError
from rmcalib._util.remote.mirror import RUNS, Mirror
from rmcalib._util.remote.store import Store, open_store
from tests.hooks import PATIENCE, wait_for
from tests.remote.stores import HASTY, QUICK, DiskStore, Flaky, memory_store

RUN = "org__rm/bench"


def write(folder: Path, **files: str) -> None:
    """Write files of a run: `run`, `metrics`, `scores`, or any other name with `__` for dots and slashes."""
    names = {"run": f"{RUN}/run.json", "metrics": f"{RUN}/metrics.json", "scores": f"{RUN}/scores.parquet"}
    for key, content in files.items():
        path = folder / names.get(key, f"{RUN}/parts/{key}.parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        # As runs write: another file each time. Two contents of one length within a tick of the file system's
        # clock could not be told apart otherwise.
        new = path.with_name(f".{path.name}.tmp")
        new.write_text(content)
        new.replace(path)


def run_json(digest: str, status: str = "scoring") -> str:
    return json.dumps({"hash": digest, "status": status})


def a_mirror(name: str, scratch: Path) -> tuple[Mirror, Store, Flaky]:
    store, flaky = memory_store(name)
    lock = Lock(store, stale=QUICK.stale, settle=QUICK.settle)
    lock.acquire()
    return Mirror(store, scratch, lock, QUICK), store, flaky


def changes(flaky: Flaky, root: str) -> list[tuple[str, str]]:
    return [
        (name, path.removeprefix(f"/{root}/{RUN}/"))
        for name, path in flaky.done
        if name != "cat_file" and not path.endswith(NAME)
    ]


def test_what_is_written_is_there_and_what_is_removed_is_gone() -> None:
    store, _ = memory_store("plain")
    with mirrored("memory://plain/", pace=QUICK) as folder:
        write(folder, run=run_json("1"), part_0="a")
        (folder / RUN / ".part.tmp").write_text("not yet")
        (folder / RUN / "lock.json").write_text("{}")
        wait_for(lambda: len(store.names()) == 2)
        (folder / RUN / "parts/part_0.parquet").unlink()
        write(folder, scores="all")
        wait_for(lambda: store.names() == [f"{RUN}/run.json", f"{RUN}/scores.parquet"])
        write(folder, run=run_json("1", "finished"))
        (folder / "events.jsonl").write_text("{}\n")
    assert store.read(f"{RUN}/run.json") == run_json("1", "finished").encode()
    assert store.read("events.jsonl") == b"{}\n"  # the last moment counts too
    assert store.read(NAME) is None
    assert not folder.exists()
    # Another time, on another machine: what a run goes on from is there; pages and pictures stay there.
    store.write(f"{RUN}/report.html", b"page")
    store.write(f"{RUN}/parts/part-00000.parquet", b"rows")
    store.write("elsewhere.bin", b"not ours")
    with mirrored("memory://plain", pace=QUICK) as folder:
        found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        assert found == [
            "events.jsonl",
            f"{RUN}/parts/part-00000.parquet",
            f"{RUN}/run.json",
            f"{RUN}/scores.parquet",
        ]
    assert len(store.names()) == 6


def test_an_error_in_the_block_names_the_place_and_nothing_is_lost() -> None:
    store, _ = memory_store("broken")

    def fail() -> None:
        with mirrored("memory://broken", pace=QUICK) as folder:
            write(folder, part_0="a")
            raise ValueError(f"{folder}/org__rm: bad")

    with pytest.raises(ValueError, match="memory://broken/org__rm: bad"):
        fail()
    assert store.names() == [f"{RUN}/parts/part_0.parquet"]


def test_paths_are_themselves(tmp_path: Path) -> None:
    with mirrored(tmp_path) as folder, fetched(f"file://{tmp_path}") as other:
        assert folder == other == tmp_path
    assert not is_remote(f"local://{tmp_path}")
    assert is_remote("simplecache::s3://bucket/runs")


def test_scores_before_the_manifest_that_speaks_of_them(tmp_path: Path) -> None:
    mirror, _, flaky = a_mirror("order", tmp_path)
    write(tmp_path, run=run_json("1"), part_0="a", part_1="b")
    mirror.push()
    flaky.done.clear()
    for part in (tmp_path / RUN / "parts").iterdir():
        part.unlink()
    write(tmp_path, scores="all", run=run_json("1", "finished"), metrics="{}")
    mirror.push()
    done = changes(flaky, "order")
    assert done[:3] == [
        ("pipe_file", "scores.parquet"),
        ("pipe_file", "run.json"),
        ("pipe_file", "metrics.json"),
    ]
    # Both at the same time.
    assert sorted(done[3:]) == [("rm_file", "parts/part_0.parquet"), ("rm_file", "parts/part_1.parquet")]
    flaky.done.clear()
    mirror.push()
    assert changes(flaky, "order") == []


def test_a_run_that_is_replaced_never_lends_its_scores_to_the_new_one(tmp_path: Path) -> None:
    mirror, store, flaky = a_mirror("replaced", tmp_path)
    write(tmp_path, run=run_json("old", "finished"), scores="old", metrics="{}")
    mirror.push()
    flaky.done.clear()
    (tmp_path / RUN / "scores.parquet").unlink()
    write(tmp_path, run=run_json("new"), part_0="new")
    mirror.push()
    assert changes(flaky, "replaced") == [
        ("rm_file", "scores.parquet"),
        ("pipe_file", "run.json"),
        ("pipe_file", "parts/part_0.parquet"),
    ]
    # Also where the scores were written over, and also of what was brought from the store.
    again = tmp_path / "again"
    again.mkdir()
    other = Mirror(store, again, mirror.lock, QUICK)
    other.pull(RUNS)
    flaky.done.clear()
    write(again, scores="newer", run=run_json("newer", "finished"))
    other.push()
    assert changes(flaky, "replaced")[:1] == [("pipe_file", "run.json")]
    write(again, scores="newest", run=run_json("newest", "finished"))
    flaky.done.clear()
    other.push()
    assert changes(flaky, "replaced") == [
        ("rm_file", "scores.parquet"),
        ("pipe_file", "run.json"),
        ("pipe_file", "scores.parquet"),
    ]


def test_a_crash_after_any_upload_leaves_what_can_be_trusted(tmp_path: Path) -> None:
    """No data without a manifest, which would be nobody's; no manifest with the scores of another run."""

    def whole(store: Store) -> None:
        manifest = json.loads(store.read(f"{RUN}/run.json") or b"{}")
        for name in ("scores", "parts/part_0"):
            content = store.read(f"{RUN}/{name}.parquet")
            assert content is None or content.decode() == manifest["hash"], name

    steps = [
        {"run": run_json("a"), "part_0": "a"},
        {"scores": "a", "run": run_json("a", "finished"), "metrics": "a"},
        {"run": run_json("b"), "part_0": "b"},
        {"scores": "b", "run": run_json("b", "finished")},
        {"scores": "c", "run": run_json("c", "finished")},
    ]
    for crash in range(20):
        folder = tmp_path / str(crash)
        folder.mkdir()
        mirror, store, flaky = a_mirror("crash", folder)
        changed = len(changes(flaky, "crash")) + crash
        flaky.fails = lambda name, _, flaky=flaky, end=changed: (
            name != "cat_file" and len(changes(flaky, "crash")) >= end
        )
        with contextlib.suppress(OSError):
            for step in steps:
                if "part_0" in step:
                    (folder / RUN / "scores.parquet").unlink(missing_ok=True)
                write(folder, **step)
                if "scores" in step:
                    (folder / RUN / "parts/part_0.parquet").unlink(missing_ok=True)
                mirror.push()
                whole(store)
        whole(store)


def test_a_store_that_fails_for_a_while_is_waited_for(recwarn: pytest.WarningsRecorder) -> None:
    store, flaky = memory_store("flaky")
    left = [3]

    def fails(name: str, path: str) -> bool:
        if name == "pipe_file" and path.endswith("part_0.parquet") and left[0]:
            left[0] -= 1
            return True
        return False

    flaky.fails = fails
    with opened(store) as folder:
        write(folder, part_0="a")
        wait_for(lambda: store.names() == [f"{RUN}/parts/part_0.parquet"])
        # and at the very end
        left[0] = 2
        write(folder, part_0="b")
    assert store.read(f"{RUN}/parts/part_0.parquet") == b"b"
    assert any("no answer for pipe_file; trying again" in str(told.message) for told in recwarn)


def test_a_store_that_fails_for_good_ends_the_run_and_keeps_the_files() -> None:
    store, flaky = memory_store("gone")
    called = threading.Event()
    folders = []

    def write_on() -> None:
        with opened(store, on_failure=called.set, pace=HASTY) as folder:
            folders.append(folder)
            flaky.fails = lambda name, path: name == "pipe_file" and not path.endswith(NAME)
            write(folder, part_0="a")
            assert called.wait(PATIENCE)

    with pytest.warns(UserWarning, match="trying again"), pytest.raises(RemoteError) as told:
        write_on()
    assert str(folders[0]) in str(told.value)
    assert (folders[0] / RUN / "parts/part_0.parquet").read_text() == "a"
    assert "\n" not in str(told.value)
    shutil.rmtree(folders[0])


@contextlib.contextmanager
def opened(store: Store, on_failure: Callable[[], None] | None = None, pace: Pace = QUICK) -> Iterator[Path]:
    """`mirrored`, on a store of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmcalib._util.remote.mirror.open_store", lambda _: store)
        with mirrored(store.url, pace=pace, on_failure=on_failure) as folder:
            yield folder


def test_one_writer_at_a_time() -> None:
    memory_store("shared")
    slow = replace(QUICK, stale=PATIENCE)  # it is refused by the owner's next beat, and need not wait so long
    with mirrored("memory://shared", pace=QUICK):
        with pytest.raises(
            RemoteError, match=r"is in use by process \d+ on .*: wait for it, or choose"
        ) as told:
            _as_elsewhere(lambda: mirrored("memory://shared", pace=slow).__enter__())
        assert "\n" not in str(told.value)
    with mirrored("memory://shared", pace=QUICK):
        pass  # it was given back


def _as_elsewhere(call: Callable[[], object]) -> None:
    """The lock's owner lives, and is not this process: look at it from another machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmcalib._util.remote.lock.platform.node", lambda: "elsewhere")
        call()


def test_a_lock_that_stopped_beating_is_taken_over_and_its_owner_writes_no_more(tmp_path: Path) -> None:
    mirror, store, _ = a_mirror("stale", tmp_path)
    write(tmp_path, part_0="a")
    mirror.push()
    other = Lock(store, stale=0.3, settle=0.0)
    _as_elsewhere(other.acquire)
    write(tmp_path, part_0="b")
    with pytest.raises(LockLostError, match="has taken over"):
        mirror.push()
    with pytest.raises(LockLostError):
        mirror.lock.beat()
    mirror.lock.release()
    assert json.loads(store.read(NAME) or b"")["token"] == other.token  # another's lock is left alone
    assert store.read(f"{RUN}/parts/part_0.parquet") == b"a"


def test_a_lock_that_another_has_had_and_given_back_is_lost(tmp_path: Path) -> None:
    mirror, store, _ = a_mirror("given-back", tmp_path)
    write(tmp_path, part_0="a")
    mirror.push()
    other = Lock(store, stale=0.3, settle=0.0)
    _as_elsewhere(other.acquire)
    other.release()
    write(tmp_path, part_0="b")
    for call in (mirror.push, mirror.lock.beat):
        with pytest.raises(LockLostError, match="the lock is gone: another process has taken over and ended"):
            call()
    mirror.lock.release()
    assert store.read(NAME) is None  # not brought back
    assert store.read(f"{RUN}/parts/part_0.parquet") == b"a"


def test_the_lock_of_a_process_that_is_dead_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(*_: object) -> None:
        pytest.fail("it was waited for")

    store, _ = memory_store("dead")
    first = Lock(store, settle=0.0)
    first.acquire()
    owner = json.loads(store.read(NAME) or b"")
    store.write(NAME, json.dumps({**owner, "pid": 2**22 + 1}).encode())
    monkeypatch.setattr(Lock, "_watch", watch)
    second = Lock(store, settle=0.0)
    second.acquire()
    assert json.loads(store.read(NAME) or b"")["token"] == second.token


def test_copies_have_finished_runs_or_one_file() -> None:
    store, _ = memory_store("copied")
    for name in ("run.json", "scores.parquet", "report.html"):
        store.write(f"{RUN}/{name}", name.encode())
    with fetched("memory://copied") as folder:
        found = sorted(path.name for path in folder.rglob("*") if path.is_file())
        assert found == ["run.json", "scores.parquet"]
    with fetched(f"memory://copied/{RUN}/scores.parquet") as file:
        assert (file.name, file.read_bytes()) == ("scores.parquet", b"scores.parquet")
    assert not file.exists()
    with (
        pytest.raises(RemoteError, match="memory://copied/nothing: no runs there"),
        fetched("memory://copied/nothing"),
    ):
        pass


def test_names_that_lead_elsewhere_are_passed_over() -> None:
    store, flaky = memory_store("evil")
    store.write("good/run.json", b"{}")
    flaky.fs.find, find = (
        lambda *_, **__: [
            "/evil/../../x/run.json",
            "/evil/a/../../run.json",
            "/evil/good/run.json",
            "/evil2/run.json",
        ],
        flaky.fs.find,
    )
    try:
        assert store.names() == ["good/run.json"]
    finally:
        flaky.fs.find = find


def test_an_unknown_kind_of_place_is_one_line() -> None:
    with pytest.raises(RemoteError, match="no such kind of storage: 'nowhere'") as told:
        open_store("nowhere://x")
    assert "\n" not in str(told.value)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(RemoteError, match=r"s3://bucket/runs: .*\(pip install s3fs\)"):
        open_store("s3://bucket/runs")
    assert fsspec.filesystem("memory") is not None


def test_what_a_killed_process_has_half_written_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISK_STORE", str(tmp_path))
    store = Store("disk://runs", DiskStore(), str(tmp_path / "store"))
    store.write(f"{RUN}/run.json", b"{}")
    half = tmp_path / "store" / RUN / ".scores.parquet.99cc84bd"
    half.write_bytes(b"half")
    kept = tmp_path / "store" / ".hidden"
    kept.write_bytes(b"somebody's")
    lock = Lock(store, stale=QUICK.stale, settle=QUICK.settle)
    Mirror(store, tmp_path / "scratch", lock, QUICK).pull()
    assert (half.exists(), kept.exists()) == (False, True)
    assert store.names() == [f"{RUN}/run.json"]


def test_two_writers_of_one_process_are_told_apart() -> None:
    store, _ = memory_store("one-process")
    first, second = (Lock(store, stale=PATIENCE, settle=0.0) for _ in range(2))
    lost: list[LockLostError] = []
    with first.held(0.1, lost.append):
        with pytest.raises(RemoteError, match="in use by"):
            second.acquire()
        first.check()
    assert lost == []
    second.acquire()
    second.release()
    left = Lock(store, stale=PATIENCE, settle=0.0)  # of an earlier process with our number
    left._write()
    second.acquire()  # at once
    second.release()

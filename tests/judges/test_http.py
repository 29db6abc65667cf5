"""The HTTP client of judges: retries, limits, order, and a key that is sent to one host only."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import pytest

from rmcalib.judges._http import (
    KEY_ENV,
    Client,
    ServerError,
    _connections,
    clean_url,
    in_parallel,
    open_client,
)
from tests.judges.serving import Reply, Request, serving

KEY = "sk-very-secret-123"


def quick(url: str, **options: object) -> Client:
    return Client(url, **{"first_wait": 0.001, "timeout": 5.0, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "fault",
    [Reply("busy", 429, {"Retry-After": "0"}), Reply("x", 500), Reply("x", 503), Reply({"a": 1}, cut=True)],
    ids=["429", "500", "503", "cut"],
)
def test_temporary_failures_are_retried(fault: Reply) -> None:
    with serving(lambda request: fault if request.number < 2 else Reply({"fine": True})) as server:
        assert quick(server.url).post("/x", {"a": 1}) == {"fine": True}
        assert len(server.requests) == 3


def test_attempts_are_limited_and_the_error_has_the_servers_message() -> None:
    with serving(lambda _: Reply({"error": {"message": "engine\x1b[31m is\ndead"}}, 500)) as server:
        with pytest.raises(ServerError, match="dead") as caught:
            quick(server.url, attempts=3).get("/x")
        assert caught.value.status == 500
        assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 404, 422])
def test_refusals_are_final(status: int) -> None:
    with serving(lambda _: Reply({"detail": "no such field"}, status)) as server:
        with pytest.raises(ServerError, match="no such field"):
            quick(server.url).post("/x", {})
        assert len(server.requests) == 1


@pytest.mark.parametrize("as_date", [False, True])
def test_a_long_retry_after_is_capped_and_shown(as_date: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("rmcalib._util.storage.time.sleep", pauses.append)
    monkeypatch.setattr("rmcalib._util.storage.LONGEST_PAUSE", 60.0)
    value = formatdate(time.time() + 3600, usegmt=True) if as_date else "3600"
    with (
        serving(
            lambda r: Reply("busy", 429, {"Retry-After": value}) if r.number == 0 else Reply(1)
        ) as server,
        pytest.warns(UserWarning, match=r"36\d\d|35\d\d"),
    ):
        assert quick(server.url).get("/x") == 1
    assert max(pauses) == 60.0


@contextlib.contextmanager
def raw_server(pieces: Iterator[bytes]) -> Iterator[str]:
    """A server that reads a request and then sends pieces, one every 20 ms."""
    listener, over = socket.create_server(("127.0.0.1", 0)), threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                for piece in pieces:
                    connection.sendall(piece)
                    if over.wait(0.02):
                        break

    threading.Thread(target=serve, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    over.set()


@pytest.mark.parametrize(
    "pieces",
    [
        itertools.chain([b"HTTP/1.1 200 OK\r\n"], (f"X-{n}: 1\r\n".encode() for n in itertools.count())),
        itertools.chain([b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"], itertools.repeat(b" ")),
        itertools.repeat(b"HTTP/1.1 100 Continue\r\n\r\n"),
        itertools.repeat(b""),
    ],
    ids=["headers", "body", "100 Continue", "nothing"],
)
def test_the_timeout_is_a_deadline_for_the_whole_request(pieces: Iterator[bytes]) -> None:
    with raw_server(pieces) as url:
        start = time.monotonic()
        with pytest.raises(ServerError) as caught:
            quick(url, timeout=0.4, attempts=1).get("/x")
        assert time.monotonic() - start < 3
        assert caught.value.status is None


def test_an_error_does_not_wait_for_other_requests() -> None:
    def answer(request: Request) -> Reply:
        return Reply({}, 400) if request.path == "/0" else Reply(1, delay=4)

    with serving(answer) as server:
        start = time.monotonic()
        client = Client(server.url, timeout=60)
        with pytest.raises(ServerError):
            list(in_parallel(lambda n: client.get(f"/{n}"), range(4), workers=4))
        assert time.monotonic() - start < 3


def test_huge_answers_are_not_read() -> None:
    with (
        serving(lambda _: Reply(b"[" + b"1," * 100_000 + b"1]")) as server,
        pytest.raises(ServerError, match="/x"),
    ):
        quick(server.url, max_bytes=102_400).get("/x")


@pytest.mark.parametrize("content", [b"<html>hello</html>", b"[" * 100_000, b"\xff\xfe"])
def test_answers_that_are_not_json(content: bytes) -> None:
    with serving(lambda _: Reply(content)) as server, pytest.raises(ServerError):
        quick(server.url, attempts=1).get("/x")


def test_a_server_that_does_not_run() -> None:
    with serving(lambda _: Reply(1)) as server:
        url = server.url
    for gone in (url, "http://a..b"):
        with pytest.raises(ServerError) as caught:
            quick(gone, attempts=1).get("/x")
        assert caught.value.status is None


def test_lone_surrogates_are_replaced() -> None:
    with serving(lambda request: Reply(request.body)) as server:
        assert quick(server.url).post("/x", {"text": "a\ud800b é 🙂"}) == {"text": "a\ufffdb é 🙂"}


def test_the_key_goes_to_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with serving(lambda _: Reply(1)) as server:
        quick(server.url).get("/x")
        monkeypatch.setenv("MINE", KEY)
        client = quick(server.url, key_env="MINE")
        client.get("/x")
        assert KEY not in repr(client)
        monkeypatch.setenv(KEY_ENV, "other")
        quick(server.url).get("/x")
        sent = [request.headers.get("Authorization") for request in server.requests]
    assert sent == [None, f"Bearer {KEY}", "Bearer other"]


def test_redirects_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)
    with (
        serving(lambda _: Reply({})) as other,
        serving(lambda _: Reply({}, 307, {"Location": f"{other.url}/?{KEY}"})) as server,
    ):
        with pytest.raises(ServerError) as caught:
            quick(server.url).post("/x", {})
        assert KEY not in str(caught.value)
        assert other.requests == []


PROXIES = [
    "socks5://user:hunter2@10.0.0.1:1",
    "socks9://user:hunter2@x",
    "http://user:hun/ter2@127.0.0.1:9",
    "http://user:hunter2@127.0.0.1:hunter2",
    "user:hunter2@[",
    "http://user:hunter2@127.0.0.1:9",
]


@pytest.mark.parametrize("proxy", PROXIES)
def test_proxies(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not used for this machine, and a broken one is reported without its password."""
    _connections.cache_clear()
    monkeypatch.setenv("ALL_PROXY", proxy)
    with serving(lambda _: Reply({"fine": True})) as server:
        assert quick(server.url).get("/x") == {"fine": True}
    with pytest.raises(ServerError) as caught:
        quick("http://example.invalid", attempts=1).get("/x")
    assert not any(part in str(caught.value) for part in ("hunter2", "hun/", "'hun", "ter2", "user:"))
    _connections.cache_clear()


def test_keys_that_are_missing_or_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_ENV, raising=False)
    with pytest.raises(ValueError, match="MINE"):
        open_client("http://127.0.0.1:1", "MINE", 1.0)
    with serving(lambda _: Reply({}, 401)) as server:
        with pytest.raises(ServerError, match=KEY_ENV):
            quick(server.url).get("/x")
        monkeypatch.setenv(KEY_ENV, "a\nb")
        with pytest.raises(ServerError, match=KEY_ENV):
            quick(server.url).get("/x")


@pytest.mark.parametrize("url", ["http://u:secret@h", "https://h/?key=secret", "http://h#secret"])
def test_addresses_with_secrets_are_refused(url: str) -> None:
    with pytest.raises(ValueError) as caught:
        clean_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "host",
        "ftp://host",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://h h",
        "http://[::1",
    ],
)
def test_invalid_addresses(url: str) -> None:
    with pytest.raises(ValueError):
        clean_url(url)


def test_results_keep_their_order_and_calls_are_limited() -> None:
    lock, now, most = threading.Lock(), 0, 0

    def call(n: int) -> int:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002 * (n % 3))
        with lock:
            now -= 1
        return n * n

    assert list(in_parallel(call, range(50), workers=5)) == [n * n for n in range(50)]
    assert 1 < most <= 5


def test_inputs_are_taken_as_needed_and_an_error_stops_the_rest() -> None:
    taken: list[int] = []

    def inputs() -> itertools.count[int]:
        return itertools.count()

    def call(n: int) -> int:
        taken.append(n)
        if n == 5:
            raise ValueError("five")
        return n

    results = in_parallel(call, inputs(), workers=2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(results)
    assert max(taken) <= 10


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_escaped_keys_are_masked_too(monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    key = 'sk-very/"secret"-123'
    monkeypatch.setenv(KEY_ENV, key)
    escaped = "".join(f"\\u{ord(sign):04x}" for sign in key)
    slashed = key.replace("/", "\\/").replace('"', '\\"')
    content = f'{{"{escaped}": ["{slashed}", {{"x": "a {escaped} b"}}], "model": "rm"}}'
    with serving(lambda _: Reply(content.encode(), status)) as server:
        if status == 200:
            found = quick(server.url).get("/x")
            assert found == {"***": ["***", {"x": "a *** b"}], "model": "rm"}
        else:
            with pytest.raises(ServerError) as caught:
                quick(server.url, attempts=1).get("/x")
            shown = str(caught.value)
            assert all(form not in shown for form in (key, slashed, escaped[:30], "secret"))

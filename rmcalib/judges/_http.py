"""The one HTTP client of judges: JSON requests with a deadline, retries, and a key for one host only.

Requests run on an event loop in a thread of its own, because only there a deadline holds for a whole request:
connecting, every byte of the headers, and the body. The key is read from its environment variable: no object,
file or message contains it.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import threading
import unicodedata
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

from rmcalib._util.storage import LONGEST_PAUSE, retry_after

if TYPE_CHECKING:
    import httpx
    import tenacity

KEY_ENV = "RMCALIB_API_KEY"
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504, 529}  # statuses after which a request is sent again
_LONGEST_WAIT = 30.0  # seconds between two attempts
_SHOWN_WAIT = 5.0  # seconds; a longer pause that a server asks for is shown
_SHORTEST_KEY = 8  # characters of a key that is masked in answers; a shorter one may occur by chance
_LONGEST_INTEGER = 300  # digits that float64 can hold
_EXCERPT = 200  # characters of a server's message that an error shows
T = TypeVar("T")
R = TypeVar("R")


class ServerError(ValueError):
    """A server gave no usable answer. `status` is the HTTP status, None if there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """Store the message, which is one line, and the status."""
        super().__init__(message)
        self.status = status


class _TemporaryError(ServerError):
    """A failure after which the request is sent again. `wait`: seconds that the server asks to wait."""

    def __init__(self, message: str, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message, status)
        self.wait = wait


@dataclass(frozen=True)
class Client:
    """A JSON client for one server. It can be used by several threads.

    Parameters
    ----------
    url : str
        The server's address, as `clean_url` returns it.
    key_env : str, optional
        The environment variable with the key. None: `RMCALIB_API_KEY`, if it is set.
    timeout : float
        Seconds for a whole request, from connecting to the last byte of the answer.
    attempts : int
        How many times a request is sent before it fails.
    first_wait : float
        Seconds before the second attempt. The wait doubles each time, with a random part.
    max_bytes : int
        The size of the largest answer that is read.
    """

    url: str
    key_env: str | None = None
    timeout: float = 300.0
    attempts: int = 8
    first_wait: float = 0.5
    max_bytes: int = 16 * 2**20

    def get(self, path: str) -> Any:
        """Send a GET request, and return the JSON of the answer."""
        return _run(self._ask("GET", path, None))

    def post(self, path: str, body: Any) -> Any:
        """Send JSON in a POST request, and return the JSON of the answer."""
        # Lone surrogates are legal in JSON, but most servers refuse them: send U+FFFD instead.
        text = json.dumps(body, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        return _run(self._ask("POST", path, text.decode("utf-16-le", "replace").encode()))

    async def _ask(self, method: str, path: str, content: bytes | None) -> Any:
        """Send a request until it succeeds, fails permanently, or has been sent `attempts` times."""
        import tenacity

        usual = tenacity.wait_random_exponential(multiplier=self.first_wait, max=_LONGEST_WAIT)

        def wait(state: tenacity.RetryCallState) -> float:
            error: Any = state.outcome and state.outcome.exception()
            return usual(state) if error.wait is None else min(error.wait, LONGEST_PAUSE)

        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_TemporaryError),
            stop=tenacity.stop_after_attempt(self.attempts),
            wait=wait,
            before_sleep=_show_wait,
            reraise=True,
        )
        return await retrying(self._send, method, f"{self.url}{path}", content)

    async def _send(self, method: str, where: str, content: bytes | None) -> Any:
        """Send a request once."""
        import httpx

        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **self._authorisation()}
        if content is not None:
            headers["Content-Type"] = "application/json"
        try:
            async with (
                asyncio.timeout(self.timeout),
                _connections(os.getpid())[1].stream(
                    method, where, content=content, headers=headers
                ) as answer,
            ):
                read = await self._read(answer, where)
        except (TimeoutError, httpx.TimeoutException) as error:
            raise _TemporaryError(f"{where}: no complete answer within {self.timeout:g} seconds") from error
        except httpx.InvalidURL:
            raise ServerError(f"{where}: is not a valid address") from None
        except (httpx.HTTPError, OSError) as error:
            raise _TemporaryError(
                f"{where}: {_reason(error)}: is the server running, and the address right?"
            ) from error
        return self._parsed(answer, read, where)

    async def _read(self, answer: httpx.Response, where: str) -> bytes:
        pieces, size = [], 0
        async for piece in answer.aiter_raw():
            pieces.append(piece)
            size += len(piece)
            if size > self.max_bytes:
                raise ServerError(
                    f"{where}: the answer is larger than {self.max_bytes / 2**20:.3g} MiB", answer.status_code
                )
        return b"".join(pieces)

    def _parsed(self, answer: httpx.Response, content: bytes, where: str) -> Any:
        status = answer.status_code
        if 300 <= status < 400:
            target = self._shown(answer.headers.get("Location", "another address"))
            raise ServerError(
                f"{where}: the server redirects to {target}. Redirects are not followed: give the final "
                "address",
                status,
            )
        if status in (401, 403):
            name = self.key_env or KEY_ENV
            has = "refuses the key in" if os.environ.get(name) else "needs a key: put it into"
            raise ServerError(f"{where}: the server {has} the environment variable {name}", status)
        if status in _TEMPORARY:
            message = f"{where}: status {status}: {self._shown(content)}"
            raise _TemporaryError(message, status, retry_after(answer.headers.get("Retry-After")))
        if not 200 <= status < 300:
            raise ServerError(f"{where}: status {status}: {self._shown(content)}", status)
        try:
            return self._masked(json.loads(content, parse_int=_number))
        except (ValueError, RecursionError):
            raise _TemporaryError(
                f"{where}: the answer is not JSON: {self._shown(content)}", status
            ) from None

    def _masked(self, value: Any) -> Any:
        """Replace the key in decoded JSON, however the server escaped it: answers are written to files."""
        key = self._key()
        if len(key) < _SHORTEST_KEY:
            return value

        def masked(part: Any) -> Any:
            if isinstance(part, str):
                return part.replace(key, "***")
            if isinstance(part, list):
                return [masked(each) for each in part]
            if isinstance(part, dict):
                return {masked(name): masked(each) for name, each in part.items()}
            return part

        return masked(value)

    def _key(self) -> str:
        return os.environ.get(self.key_env or KEY_ENV, "").strip()

    def _authorisation(self) -> dict[str, str]:
        key = self._key()
        if not (key.isascii() and key.isprintable()):
            name = self.key_env or KEY_ENV
            raise ServerError(
                f"the key in the environment variable {name} has characters that keys cannot have"
            )
        return {"Authorization": f"Bearer {key}"} if key else {}

    def _shown(self, said: bytes | str) -> str:
        """Return the beginning of a server's message on one line, without control characters or the key."""
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        try:
            found = self._masked(json.loads(text))
            while isinstance(found, dict):  # {"error": {"message": ...}}, {"detail": ...}, {"message": ...}
                named = [found[name] for name in ("error", "message", "detail") if name in found]
                if not named:
                    break
                found = named[0]
            text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
        key = self._key()
        text = text.replace(key, "***") if key else text
        line = "".join("\ufffd" if unicodedata.category(c)[0] == "C" else c for c in " ".join(text.split()))
        return line if len(line) <= _EXCERPT else line[: _EXCERPT - 1] + "…"


def clean_url(endpoint: str) -> str:
    """Return a server's address without a final `/` or `/v1`; refuse one that contains a secret.

    >>> clean_url("http://localhost:8000/v1/")
    'http://localhost:8000'
    >>> clean_url("localhost:8000")
    Traceback (most recent call last):
    ValueError: endpoint: 'localhost:8000' is not an address like http://localhost:8000
    """
    try:
        parts = urlsplit(str(endpoint).strip())
        known = parts.scheme in ("http", "https") and bool(parts.hostname)
        secret = parts.username is not None or parts.password is not None or parts.query or parts.fragment
        _ = parts.port  # raises if it is not a number
    except ValueError:
        known, secret = False, None
    if secret:  # the address is not repeated: it may contain a password
        raise ValueError(
            "endpoint: leave user, password, '?' and '#' out of the address, and put the key into the "
            f"environment variable {KEY_ENV}"
        )
    if not known:
        raise ValueError(f"endpoint: {endpoint!r} is not an address like http://localhost:8000")
    path = parts.path.rstrip("/").removesuffix("/v1").rstrip("/")
    return urlunsplit((parts.scheme, parts.netloc.lower(), path, "", ""))


def open_client(endpoint: str, api_key_env: str | None, timeout: float) -> Client:
    """Return a client for a server, after checking the user's settings. Nothing is sent yet."""
    if api_key_env is not None and not os.environ.get(api_key_env):
        raise ValueError(f"api_key_env: the environment variable {api_key_env} is not set")
    return Client(clean_url(endpoint), api_key_env, timeout)


def in_parallel(call: Callable[[T], R], inputs: Iterable[T], *, workers: int) -> Iterator[R]:
    """Call a function for every input, `workers` at a time, and yield the results in order.

    Inputs are read a few ahead of the results. If a call fails, its error is raised when its result is due.
    No more calls are started then, and the requests that are still running are given up.

    >>> list(in_parallel(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    pool, waiting, threads = ThreadPoolExecutor(workers), deque[Future[R]](), set[int]()

    def run(value: T) -> R:
        threads.add(threading.get_ident())
        return call(value)

    try:
        for value in inputs:
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
            waiting.append(pool.submit(run, value))
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for thread in threads if waiting else ():
            if (request := _RUNNING.get(thread)) is not None:
                request.cancel()


_RUNNING: dict[int, Future[Any]] = {}  # the request of each thread


def _run(request: Coroutine[Any, Any, T]) -> T:
    """Run a request on the event loop, and wait for its result."""
    future = asyncio.run_coroutine_threadsafe(request, _connections(os.getpid())[0])
    _RUNNING[threading.get_ident()] = future
    try:
        return future.result()
    finally:
        future.cancel()  # after Ctrl-C
        _RUNNING.pop(threading.get_ident(), None)


@functools.cache
def _connections(_process: int) -> tuple[asyncio.AbstractEventLoop, httpx.AsyncClient]:
    """Return the event loop of this process, in a thread of its own, and the pool of its connections."""
    import httpx

    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True, name="rmcalib-requests").start()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    here: Any = {"all://127.0.0.1": None, "all://localhost": None}  # never through a proxy
    client = httpx.AsyncClient(timeout=None, limits=limits, follow_redirects=False, mounts=here)
    atexit.register(_close, loop, client)
    return loop, client


def _close(loop: asyncio.AbstractEventLoop, client: httpx.AsyncClient) -> None:
    """Close the connections at the end of the process, which Python would warn about."""
    with contextlib.suppress(Exception):
        asyncio.run_coroutine_threadsafe(client.aclose(), loop).result(1.0)


def _show_wait(state: tenacity.RetryCallState) -> None:
    error: Any = state.outcome and state.outcome.exception()
    if error.wait is not None and error.wait >= _SHOWN_WAIT:
        pause = state.next_action.sleep if state.next_action else 0.0
        warnings.warn(
            f"{error}: the server asks to wait {error.wait:.0f} s; trying again in {pause:.0f} s",
            stacklevel=2,
        )


def _number(digits: str) -> int | float:
    """Return a whole number of JSON; infinity if float64 cannot hold it."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _reason(error: Exception) -> str:
    """Return in a few words why there was no answer."""
    import httpx

    text = f"{error!r} {error.__cause__!r} {error.__context__!r}".lower()
    if "certificate" in text:
        return "the certificate is not trusted"
    if isinstance(error, httpx.ConnectError):
        unknown = any(sign in text for sign in ("name or service", "name resolution", "getaddrinfo"))
        return "unknown host" if unknown else "connection refused"
    return "the connection was lost"

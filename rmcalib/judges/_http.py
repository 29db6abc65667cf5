"""The one HTTP client of judges: JSON requests with a deadline, retries, and a key for one host only.

A request runs in a separate thread, because a deadline must hold for all of it: connecting, every byte of
the headers, and the body. A request that is late or no longer needed is abandoned; it does
not keep the process alive. The key is read from its environment variable: no object, file or message contains
it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from rmcalib._util.display import clean_line, shortened
from rmcalib._util.secrets import masked
from rmcalib._util.storage import retried, retry_after, started
from rmcalib._util.texts import adapter
from rmcalib.judges._templates import well_formed

if TYPE_CHECKING:
    import httpx

KEY_ENV = "RMCALIB_API_KEY"
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504, 529}  # statuses after which a request is sent again
_LONGEST_WAIT = 30.0  # seconds between two attempts
_SHOWN_WAIT = 5.0  # seconds; a longer pause that a server asks for is shown
_SHORTEST_KEY = 8  # characters of a key that is masked in answers; a shorter one may occur by chance
_EXCERPT = 200  # characters of a server's message that an error shows
T = TypeVar("T")
R = TypeVar("R")


class ServerError(ValueError):
    """A server gave no usable answer.

    `status` is the HTTP status, None if there was no answer. After a `temporary` error, the request is sent
    again, after `wait` seconds if the server asks for a pause.
    """

    def __init__(
        self, message: str, status: int | None = None, *, temporary: bool = False, wait: float | None = None
    ) -> None:
        """Store the message, which is one line."""
        super().__init__(masked(message))
        self.status, self.temporary, self.wait = status, temporary, wait


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
        return self._ask("GET", path, None)

    def post(self, path: str, body: Any) -> Any:
        """Send JSON in a POST request, and return the JSON of the answer."""
        return self._ask("POST", path, well_formed(json.dumps(body, ensure_ascii=False)).encode())

    def _ask(self, method: str, path: str, content: bytes | None) -> Any:
        """Send a request until it succeeds, fails permanently, or has been sent `attempts` times."""
        longest = (min(self.first_wait * 2**n, _LONGEST_WAIT) for n in range(self.attempts - 1))

        def say(error: Exception, wanted: float | None, seconds: float) -> str:
            if wanted is None or seconds < _SHOWN_WAIT:
                return ""
            return f"{error}: the server asks to wait {wanted:.0f} s; trying again in {seconds:.0f} s"

        return retried(
            lambda: self._send(method, f"{self.url}{path}", content),
            (random.uniform(0, most) for most in longest),
            lambda error: getattr(error, "temporary", False),
            asked=lambda error: getattr(error, "wait", None),
            say=say,
        )

    def _send(self, method: str, where: str, content: bytes | None) -> Any:
        """Send a request once."""
        import httpx

        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **self._authorisation()}
        headers |= {} if content is None else {"Content-Type": "application/json"}
        options: dict[str, Any] = {"content": content, "headers": headers, "timeout": self.timeout}

        def exchange() -> tuple[httpx.Response, bytes]:
            read = bytearray()
            connections = _connections(os.getpid(), here=_is_here(where))
            with connections.stream(method, where, **options) as answer:
                for piece in answer.iter_raw():
                    read += piece
                    if len(read) > self.max_bytes:
                        most = f"{self.max_bytes / 2**20:.3g} MiB"
                        raise ServerError(f"{where}: the answer is larger than {most}", answer.status_code)
            return answer, bytes(read)

        try:
            answer, read = started(exchange).result(self.timeout)
        except (LateError, httpx.TimeoutException) as error:
            message = f"{where}: no complete answer within {self.timeout:g} seconds"
            raise ServerError(message, temporary=True) from error
        except (httpx.HTTPError, OSError, UnicodeError) as error:  # the last for names that no host can have
            why = clean_line(error) or type(error).__name__
            message = f"{where}: no answer ({why}): does the server run?"
            raise ServerError(message, temporary=True) from error
        return self._parsed(answer, read, where)

    def _parsed(self, answer: httpx.Response, content: bytes, where: str) -> Any:
        status = answer.status_code
        if status in (401, 403):
            name = self.key_env or KEY_ENV
            has = "refuses the key in" if os.environ.get(name) else "needs a key: put it into"
            raise ServerError(f"{where}: the server {has} the environment variable {name}", status)
        if not 200 <= status < 300:
            redirected = "redirects are not followed: give the final address"
            said = redirected if status < 400 else self._shown(content)
            wait = retry_after(answer.headers.get("Retry-After"))
            message = f"{where}: status {status}: {said}"
            raise ServerError(message, status, temporary=status in _TEMPORARY, wait=wait)
        try:
            return _masked(json.loads(content), self._key())
        except (ValueError, RecursionError):
            message = f"{where}: the answer is not JSON: {self._shown(content)}"
            raise ServerError(message, status, temporary=True) from None

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

    def _shown(self, content: bytes) -> str:
        """Return the beginning of a server's message on one line, without the key."""
        text, key = content.decode("utf-8", "replace"), self._key()
        with contextlib.suppress(ValueError, RecursionError):  # decoded, because a key may be escaped
            text = json.dumps(_masked(json.loads(text), key), ensure_ascii=False)
        return shortened(clean_line(text.replace(key, "***") if key else text), _EXCERPT)


def _masked(value: Any, key: str) -> Any:
    """Replace the key in decoded JSON, however the server escaped it: answers are written to files."""
    if len(key) < _SHORTEST_KEY:
        return value
    if isinstance(value, str):
        return value.replace(key, "***")
    if isinstance(value, list):
        return [_masked(each, key) for each in value]
    if isinstance(value, dict):
        return {_masked(name, key): _masked(each, key) for name, each in value.items()}
    return value


def clean_url(endpoint: str) -> str:
    """Return a server's address without a final `/` or `/v1`; refuse one that contains a secret.

    >>> clean_url("http://localhost:8000/v1/")
    'http://localhost:8000'
    >>> clean_url("localhost:8000")
    Traceback (most recent call last):
    ValueError: endpoint: 'localhost:8000' is not an address like http://localhost:8000
    """
    from pydantic import HttpUrl

    text = str(endpoint).strip()
    if {*"@?#"} & {*text}:  # the address is not repeated: it may contain a password
        raise ValueError(
            "endpoint: leave user, password, '?' and '#' out of the address, and put the key into the "
            f"environment variable {KEY_ENV}"
        )
    try:
        url = str(adapter(HttpUrl).validate_python(text))
    except ValueError:
        raise ValueError(f"endpoint: {endpoint!r} is not an address like http://localhost:8000") from None
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def open_client(endpoint: str, api_key_env: str | None, timeout: float) -> Client:
    """Return a client for a server, after checking the user's settings. Nothing is sent yet."""
    if api_key_env is not None and not os.environ.get(api_key_env):
        raise ValueError(f"api_key_env: the environment variable {api_key_env} is not set")
    return Client(clean_url(endpoint), api_key_env, timeout)


def in_parallel(call: Callable[[T], R], inputs: Iterable[T], *, workers: int) -> Iterator[R]:
    """Call a function for every input, `workers` at a time, and yield the results in order.

    Inputs are read a few ahead of the results. If a call fails, its error is raised when its result is due.
    No more calls are started then, and those that still run are not waited for.

    >>> list(in_parallel(abs, [-1, 2, -3], workers=2))
    [1, 2, 3]
    """
    free, waiting = threading.Semaphore(workers), deque[Future[R]]()
    over = False

    def run(value: T) -> R:
        with free:
            if over:
                raise RuntimeError("this result is no longer needed")
            return call(value)

    try:
        for value in inputs:
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
            waiting.append(started(functools.partial(run, value)))
        while waiting:
            yield waiting.popleft().result()
    finally:
        over = True


def _is_here(url: str) -> bool:
    """Return whether an address is one of this machine.

    >>> [_is_here(url) for url in ("http://localhost:80", "http://127.1.2.3", "http://[::1]:8", "http://a.b")]
    [True, True, True, False]
    """
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


@functools.cache
def _connections(_process: int, *, here: bool) -> httpx.Client:
    """Return the connections of this process, which a forked one must not share.

    Servers on this machine are never reached through a proxy.
    """
    import httpx

    limits = httpx.Limits(max_connections=None, max_keepalive_connections=256)
    if here:
        return httpx.Client(transport=httpx.HTTPTransport(limits=limits), follow_redirects=False)
    try:
        return httpx.Client(limits=limits, follow_redirects=False)
    except (ImportError, ValueError, httpx.InvalidURL) as error:
        # Of a broken address, the library shows a part, which may be of the password.
        why = str(error) if isinstance(error, ImportError) else "it has no valid address"
        raise ServerError(
            f"the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used: {why}"
        ) from None

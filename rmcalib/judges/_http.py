"""A small JSON client for the servers of judges.

It retries after temporary failures (a busy or restarting server, a lost connection), limits the size of
answers, and sends the key to one host only. The key is read from its environment variable: no object, file or
message contains it.
"""

from __future__ import annotations

import functools
import json
import os
import random
import time
import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    import requests

__all__ = ["CONCURRENCY", "KEY_ENV", "TIMEOUT", "Client", "ServerError", "clean_url", "open_client"]

KEY_ENV = "RMCALIB_API_KEY"
TIMEOUT = 300.0  # seconds, by default
CONCURRENCY = 16  # requests at a time, by default
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504, 529}  # statuses after which a request is sent again
_LONGEST_WAIT = 30.0  # seconds between two attempts, unless the server asks for more
_LONGEST_ASKED = 300.0  # seconds that a server may ask for
_SHORTEST_KEY = 8  # characters of a key that is masked in answers; a shorter one may occur by chance
_LONGEST_INTEGER = 300  # digits that float64 can hold
_EXCERPT = 200  # characters of a server's message that an error shows


class ServerError(ValueError):
    """A server gave no usable answer. `status` is the HTTP status, None if there was no answer."""

    def __init__(self, message: str, status: int | None = None) -> None:
        """Store the message, which is one line, and the status."""
        super().__init__(message)
        self.status = status


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
        Seconds to wait for an answer.
    attempts : int
        How many times a request is sent before it fails.
    first_wait : float
        Seconds before the second attempt. The wait doubles each time, up to 30 seconds, and is shortened at
        random, so that clients do not all return at the same time.
    max_bytes : int
        The size of the largest answer that is read.
    """

    url: str
    key_env: str | None = None
    timeout: float = TIMEOUT
    attempts: int = 8
    first_wait: float = 0.5
    max_bytes: int = 16 * 2**20

    def get(self, path: str, *, attempts: int | None = None) -> Any:
        """Send a GET request, and return the JSON of the answer."""
        return self._ask("GET", path, None, attempts)

    def post(self, path: str, body: Any, *, attempts: int | None = None) -> Any:
        """Send JSON in a POST request, and return the JSON of the answer."""
        # Lone surrogates are legal in JSON, but most servers refuse them: send U+FFFD instead.
        text = json.dumps(body, ensure_ascii=False).encode("utf-16-le", "surrogatepass")
        return self._ask("POST", path, text.decode("utf-16-le", "replace").encode(), attempts)

    def check_key(self) -> None:
        """Raise a `ValueError` if the variable that was named for the key is not set."""
        if self.key_env is not None and not os.environ.get(self.key_env):
            raise ValueError(f"api_key_env: the environment variable {self.key_env} is not set")

    @functools.cached_property
    def _session(self) -> requests.Session:
        import requests
        from requests.adapters import HTTPAdapter

        session = requests.Session()
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(pool_maxsize=256))
        return session

    def _ask(self, method: str, path: str, data: bytes | None, attempts: int | None) -> Any:
        """Send a request until it succeeds, fails permanently, or has been sent `attempts` times."""
        left = self.attempts if attempts is None else attempts
        wait = self.first_wait
        while True:
            left -= 1
            try:
                return self._send(method, path, data)
            except _TemporaryError as error:
                if left <= 0:
                    raise ServerError(str(error), error.status) from error.__cause__
                pause = wait * random.uniform(0.5, 1.0) if error.wait is None else error.wait
            if pause > _LONGEST_ASKED:
                raise ServerError(
                    f"{self.url}{path}: the server is busy and asks to wait {pause:.0f} seconds: run the "
                    "same command later; it continues where it stopped",
                    429,
                )
            time.sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT)

    def _send(self, method: str, path: str, data: bytes | None) -> Any:
        """Send a request once."""
        import requests
        import urllib3

        where = f"{self.url}{path}"
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            answer = self._session.request(
                method,
                where,
                data=data,
                headers=headers,
                auth=self._authorise,  # without it, requests would send a password from ~/.netrc
                timeout=(min(30.0, self.timeout), self.timeout),
                allow_redirects=False,
                stream=True,
            )
            with answer:
                content = self._read(answer, where)
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise _TemporaryError(f"{where}: no answer within {self.timeout:g} seconds") from error
        except requests.exceptions.InvalidURL:
            raise ServerError(f"{where}: is not a valid address") from None
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _TemporaryError(
                f"{where}: {_reason(error)}: is the server running, and the address right?"
            ) from error
        return self._parsed(answer, content, where)

    def _read(self, answer: requests.Response, where: str) -> bytes:
        deadline = time.monotonic() + self.timeout
        pieces, size = [], 0
        for piece in answer.raw.stream(2**14, decode_content=False):
            pieces.append(piece)
            size += len(piece)
            if size > self.max_bytes:
                raise ServerError(
                    f"{where}: the answer is larger than {self.max_bytes / 2**20:.3g} MiB", answer.status_code
                )
            if time.monotonic() > deadline:
                raise _TemporaryError(f"{where}: the answer was not complete after {self.timeout:g} seconds")
        return b"".join(pieces)

    def _parsed(self, answer: requests.Response, content: bytes, where: str) -> Any:
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
            raise _TemporaryError(message, status, _retry_after(answer.headers.get("Retry-After")))
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

    def _authorise(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        name, key = self.key_env or KEY_ENV, self._key()
        if not (key.isascii() and key.isprintable()):
            raise ServerError(
                f"the key in the environment variable {name} has characters that keys cannot have"
            )
        if key:
            request.headers["Authorization"] = f"Bearer {key}"
        return request

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


class _TemporaryError(Exception):
    """A temporary failure. `wait` is the number of seconds that the server asks to wait."""

    def __init__(self, message: str, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.status, self.wait = status, wait


def clean_url(endpoint: str) -> str:
    """Return a server's address without a final `/` or `/v1`; refuse one that contains a secret.

    >>> clean_url("http://localhost:8000/v1/")
    'http://localhost:8000'
    >>> clean_url("localhost:8000")
    Traceback (most recent call last):
    ValueError: endpoint: 'localhost:8000' is not an address like http://localhost:8000
    """
    if not isinstance(endpoint, str):
        raise ValueError(f"endpoint: must be a text like http://localhost:8000, got {endpoint!r}")
    try:
        parts = urlsplit(endpoint.strip())
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


def open_client(
    endpoint: str,
    *,
    api_key_env: str | None = None,
    timeout: float = TIMEOUT,
    concurrency: int = CONCURRENCY,
) -> Client:
    """Return a client for a server, after checking the user's settings. Nothing is sent yet.

    >>> open_client("http://localhost:8000", concurrency=0)
    Traceback (most recent call last):
    ValueError: concurrency: must be at least 1, got 0
    """
    if concurrency < 1:
        raise ValueError(f"concurrency: must be at least 1, got {concurrency}")
    if timeout <= 0:
        raise ValueError(f"timeout: must be more than 0 seconds, got {timeout:g}")
    client = Client(clean_url(endpoint), api_key_env, timeout)
    client.check_key()
    return client


def _number(digits: str) -> int | float:
    """Return a whole number of JSON; infinity if float64 cannot hold it."""
    return int(digits) if len(digits) <= _LONGEST_INTEGER else float(digits)


def _retry_after(value: str | None) -> float | None:
    """Return the seconds of a Retry-After header: a number, or a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _reason(error: Exception) -> str:
    """Return in a few words why there was no answer."""
    text = repr(error).lower()
    known = {
        "refused": "connection refused",
        "name or service": "unknown host",
        "name resolution": "unknown host",
        "resolve": "unknown host",
        "certificate": "the certificate is not trusted",
        "reset": "the connection was lost",
        "aborted": "the connection was lost",
        "incompleteread": "the connection was lost",
        "broken": "the connection was lost",
        "disconnected": "the connection was lost",
    }
    return next((reason for sign, reason in known.items() if sign in text), type(error).__name__)

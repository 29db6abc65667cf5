"""`serve`: a judge behind a URL that training frameworks ask for rewards.

One process, one port. The event loop reads and writes; one thread scores batches. A request is held while the
model works or is away, up to `Limits.hold` seconds. A request that cannot be answered gets an error status and
one line, never a number.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import gc
import hmac
import ipaddress
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from rmcalib._util.display import clean_line, shortened
from rmcalib.judges._http import ServerError
from rmcalib.judges._judge import RewardError
from rmcalib.judges._served import EndpointJudge
from rmcalib.judges.apis import PATHS, api_of
from rmcalib.judges.apis.samples import Sample, Scored
from rmcalib.live.batching import Batcher, FullError, Job, Outcome
from rmcalib.live.canaries import Canaries
from rmcalib.live.connections import limited_connections, room_for
from rmcalib.live.numbers import Numbers
from rmcalib.live.policy import Texts
from rmcalib.live.scoring import is_away

if TYPE_CHECKING:
    from rmcalib.live.reward import Reward

TOKEN = "RMCALIB_SERVE_TOKEN"
"""The environment variable with the token that clients must send, as `Bearer`, or as the password of a URL."""
log = logging.getLogger("rmcalib.serve")
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
_SHORT_CHECK = 1.0  # seconds between two short canaries, for a model behind another server
_RETRY = b"5"  # seconds, for clients that read it
_EXCERPT = 300  # characters of an error


@dataclass(frozen=True)
class Limits:
    """What a server accepts: bytes of a body, samples of a request, characters of a text, samples that wait.

    `connections` is how many there may be, if the system allows as many open files. `hold` is how many seconds
    a request is held before 503, `reading` how many its body may take, and `idle` after how many a connection
    without a request is closed.
    """

    body: int = 64 * 2**20
    samples: int = 4096
    characters: int = 2_000_000
    waiting: int = 16_384
    connections: int = 16_384
    hold: float = 150.0
    reading: float = 60.0
    idle: float = 75.0


class RequestError(Exception):
    """A request that gets an error status and one line."""

    def __init__(self, status: int, text: str) -> None:
        """Store the status and the line."""
        super().__init__(text)
        self.status = status


class RewardServer:
    """The ASGI application of `serve`.

    Parameters
    ----------
    reward : Reward
        The judge and what its rewards mean.
    texts : Texts
        How to treat whole texts formatted with a policy's template.
    limits : Limits
        The largest requests and the longest waits.
    token : str
        The token that clients must send; empty: none.
    on_change : {"stop", "warn"}
        What to do when the canaries' rewards have changed: answer 503, or only say so.
    check_every : float
        Seconds between two checks of all canaries.
    """

    def __init__(
        self,
        reward: Reward,
        *,
        texts: Texts | None = None,
        limits: Limits | None = None,
        token: str = "",
        on_change: Literal["stop", "warn"] = "stop",
        check_every: float = 300.0,
    ) -> None:
        """Start the judge's thread; the model is loaded by `begin`."""
        self.reward, self.texts, self.limits = reward, texts or Texts(), limits or Limits()
        self.on_change, self.check_every = on_change, check_every
        self.numbers = Numbers()
        self.canaries = [Canaries(judge) for judge in reward.judges]
        self.draining = False
        self._token = token.encode()
        self._behind: list[Canaries] = []  # of models behind another server, which may change
        self._short_check = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.batcher: Batcher[asyncio.Future[list[Outcome]]] = Batcher(
            self._score,
            lambda: asyncio.get_running_loop().create_future(),
            self._deliver,
            most_waiting=self.limits.waiting,
            hold=True,
            on_batch=self.numbers.batches.add,
        )

    def begin(self) -> None:
        """Load the model, or ask its server, and score the canaries; errors are raised here."""
        for judge, canaries in zip(self.reward.judges, self.canaries, strict=True):
            self.batcher.call(judge.identity).result()
            behind = getattr(judge, "_served", judge)  # vLLM that was started for it
            if isinstance(behind, EndpointJudge):
                self._behind.append(canaries)
                behind.serve(self.limits.hold)
            self.batcher.call(canaries.begin).result()

    def close(self) -> None:
        """Score what waits, and end the judge's thread."""
        self.batcher.close(timeout=self.limits.hold)
        self.reward.close()

    async def watch(self) -> None:
        """Check the canaries every few minutes, for ever."""
        while True:
            await asyncio.sleep(self.check_every)
            for canaries in self.canaries:
                await asyncio.wrap_future(
                    self.batcher.call(functools.partial(self._checked, canaries, canaries.check))
                )

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            return
        self._loop = asyncio.get_running_loop()
        start, title = time.perf_counter(), "other"
        headers: list[tuple[bytes, bytes]] = []
        try:
            path = scope["path"].rstrip("/") or "/"
            if scope["method"] == "GET":
                status, kind, content = self._look(path, scope)
            else:
                self._check_request(path, scope)
                async with asyncio.timeout(self.limits.reading):
                    body = await _read_body(receive, self.limits.body)
                asked = _decoded(body)
                title, answer = await self._answer(path, asked, receive)
                status, kind, content = 200, b"application/json", json.dumps(answer, allow_nan=False).encode()
        except RequestError as error:
            status, kind, content = error.status, b"application/json", _error_body(str(error))
            headers += [(b"retry-after", _RETRY)] if status == 503 else []
            headers += [(b"www-authenticate", b'Bearer realm="rmcalib"')] if status == 401 else []
        except TimeoutError:
            status, kind, content = 408, b"application/json", _error_body("the body did not arrive in time")
        except ConnectionError:  # the client has gone
            return
        except Exception as error:
            log.warning("unexpected error: %s: %s", type(error).__name__, error)
            status, kind, content = (
                500,
                b"application/json",
                _error_body(f"{type(error).__name__} in the server"),
            )
        self.numbers.requests[title, status] += 1
        self.numbers.seconds.add(time.perf_counter() - start)
        headers += [(b"content-type", kind), (b"content-length", str(len(content)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    def _look(self, path: str, scope: dict[str, Any]) -> tuple[int, bytes, bytes]:
        """Answer a GET request: health, numbers, the model's name."""
        if path == "/health":
            state = self.state()
            return 200 if state == "ok" else 503, b"application/json", json.dumps({"status": state}).encode()
        self._check_token(scope)
        if path == "/metrics":
            return 200, b"text/plain; version=0.0.4; charset=utf-8", self._metrics().encode()
        if path == "/v1/models":
            card = {"id": self.reward.name, "object": "model", "owned_by": "rmcalib"}
            return 200, b"application/json", json.dumps({"object": "list", "data": [card]}).encode()
        raise RequestError(405 if path in PATHS else 404, f"{path}: POST to {', '.join(sorted(PATHS))}")

    def state(self) -> str:
        """Return `ok`, or why requests are not answered: `draining`, `away` or `changed`."""
        if self.draining:
            return "draining"
        if self.batcher.away_since is not None:
            return "away"
        return "changed" if self._changed() is not None and self.on_change == "stop" else "ok"

    def _changed(self) -> Canaries | None:
        """Return the canaries of the first model that has changed."""
        return next((canaries for canaries in self.canaries if canaries.change is not None), None)

    def _metrics(self) -> str:
        counts, lost = self.reward.counts, 0 if self.reward.log is None else self.reward.log.lost
        changed = self._changed() is not None
        return self.numbers.text(
            samples_total=("Samples that were rewarded.", "counter", counts.scored),
            outside_total=("Rewards beyond the calibrator's fitted range.", "counter", counts.outside),
            failures_total=("Samples that could not be rewarded.", "counter", counts.failed),
            not_logged_total=("Rows that the log could not take.", "counter", lost),
            waiting_samples=("Samples in the queue.", "gauge", self.batcher.waiting),
            model_away=(
                "Whether the model behind does not answer.",
                "gauge",
                self.batcher.away_since is not None,
            ),
            model_changed=("Whether the canaries' rewards have changed.", "gauge", changed),
        )

    def _check_token(self, scope: dict[str, Any]) -> None:
        if not self._token:
            return
        given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        kind, _, secret = given.partition(b" ")
        if kind.lower() == b"basic":  # http://user:token@host, for clients that cannot send headers
            with contextlib.suppress(ValueError):
                secret = base64.b64decode(secret).partition(b":")[2]
        if not hmac.compare_digest(secret, self._token):
            raise RequestError(401, f"a token is needed (Authorization: Bearer, the server's {TOKEN})")

    def _check_request(self, path: str, scope: dict[str, Any]) -> None:
        """Refuse a request before its body is read."""
        self._check_token(scope)
        if path not in PATHS:
            raise RequestError(404, f"{path}: POST to {', '.join(sorted(PATHS))}")
        if scope["method"] != "POST":
            raise RequestError(405, f"{path}: use POST")
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if length.isdigit() and int(length) > self.limits.body:
            raise RequestError(413, f"the body has {int(length):,} bytes; at most {self.limits.body:,}")
        if self.draining:
            raise RequestError(503, "the server is shutting down")

    async def _answer(self, path: str, body: Any, receive: Receive) -> tuple[str, Any]:
        """Return the name of the request's API, and what it answers."""
        try:
            api = api_of(path, body)
            samples = api.read(body, self.texts)
        except ValueError as error:
            raise RequestError(422, str(error)) from error
        if len(samples) > self.limits.samples:
            raise RequestError(422, f"{len(samples)} samples in a request; at most {self.limits.samples}")
        longest = max((sample.size for sample in samples), default=0)
        if longest > self.limits.characters:
            raise RequestError(422, f"a text of {longest:,} characters; at most {self.limits.characters:,}")
        scored = await self._scored(samples, receive) if samples else []
        for result in scored:
            self.numbers.rewards.add(result.reward)
        return api.title, api.answer(path, self.reward.name, scored)

    async def _scored(self, samples: Sequence[Sample], receive: Receive) -> list[Scored]:
        try:
            job = self.batcher.submit(samples)
        except FullError as error:
            raise RequestError(503, str(error)) from error
        if not await self._done(job, receive):
            self.batcher.cancel(job)
            why = "is away" if self.batcher.away_since is not None else "has not answered"
            raise RequestError(503, f"{self.reward.name}: the model {why} for {self.limits.hold:.0f} s")
        outcomes = job.future.result()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise _as_request_error(outcome)
        return outcomes  # type: ignore[return-value]

    async def _done(self, job: Job[asyncio.Future[list[Outcome]]], receive: Receive) -> bool:
        """Wait for a job; after a second, also look whether the client is still there."""
        done, _ = await asyncio.wait([job.future], timeout=1.0)
        if done:
            return True
        gone: asyncio.Future[Any] = asyncio.ensure_future(receive())
        either: set[asyncio.Future[Any]] = {job.future, gone}
        try:
            await asyncio.wait(either, timeout=self.limits.hold - 1.0, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left = gone.done()
            gone.cancel()
        if left and not job.future.done():
            self.batcher.cancel(job)
            raise ConnectionError
        return job.future.done()

    # In the judge's thread

    def _score(self, groups: list[Sequence[Sample]]) -> list[list[Outcome]]:
        error = None if self._changed() is None else self._distrust()
        if error is not None:
            return [[error] * len(group) for group in groups]
        return self.reward.score(groups, check=self._distrust)

    def _distrust(self) -> RequestError | None:
        """Return why rewards are not answered; asked after each batch, in the middle of which a model may change."""
        if self._behind and time.monotonic() - self._short_check > _SHORT_CHECK:
            for canaries in self._behind:
                self._checked(canaries, canaries.check_short)
            self._short_check = time.monotonic()
        changed = self._changed()
        if changed is None or changed.change is None or self.on_change == "warn":
            return None
        return RequestError(503, f"{changed.judge.name}: the model behind has changed: {changed.change.text}")

    def _checked(self, canaries: Canaries, check: Callable[[], Any]) -> None:
        """Run a check, and say if something has changed."""
        before = canaries.change
        after = check()
        if (before and before.name) == (after and after.name):
            return
        what = "as at the start again" if after is None else f"{after.name}: {after.text}"
        log.warning("%s: the rewards of the canaries are %s", canaries.judge.name, what)
        if self.reward.log is not None:
            self.reward.log.event(
                "changed" if after else "restored", cause=after and after.name, text=after and after.text
            )

    def _deliver(self, done: list[tuple[Job[asyncio.Future[list[Outcome]]], list[Outcome]]]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the loop is closed, so no request waits
            self._loop.call_soon_threadsafe(_set_results, done)


def _set_results(done: list[tuple[Job[asyncio.Future[list[Outcome]]], list[Outcome]]]) -> None:
    for job, outcomes in done:
        if not job.future.done():
            job.future.set_result(outcomes)


def _as_request_error(error: Exception) -> RequestError:
    """Return the status of a failure: 503 if it may go away, 422 if the text is the reason, else 500 or 502."""
    if isinstance(error, RequestError):
        return error
    text = str(error) or type(error).__name__
    if isinstance(error, ServerError):
        return RequestError(503 if is_away(error) else 502, text)
    return RequestError(
        422 if isinstance(error, ValueError) and not isinstance(error, RewardError) else 500, text
    )


def _error_body(text: str) -> bytes:
    """Return an error as JSON. LLaMA-Factory reads `scores` from any body, so that word is not in it."""
    line = shortened(clean_line(text), _EXCERPT)
    return json.dumps({"error": line.replace("scores", "results").replace("rewards", "results")}).encode()


async def _read_body(receive: Receive, most: int) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ConnectionError
        body += message.get("body", b"")
        if len(body) > most:
            raise RequestError(413, f"the body is larger than {most:,} bytes")
        if not message.get("more_body"):
            return bytes(body)


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise RequestError(422, f"not JSON: {error}") from error


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")


def is_local(host: str) -> bool:
    """Return whether an address is reached from this machine only.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("::1"), is_local("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    reward: Reward,
    *,
    host: str = "127.0.0.1",
    port: int = 9000,
    texts: Texts | None = None,
    limits: Limits | None = None,
    on_change: Literal["stop", "warn"] = "stop",
    check_every: float = 300.0,
    on_start: Callable[[str], None] = lambda _: None,
) -> None:
    """Serve a reward until SIGTERM or Ctrl-C; requests that wait are answered first.

    Parameters
    ----------
    reward : Reward
        The judge and what its rewards mean.
    host, port : str, int
        Where to listen; port 0 is any free one. Beyond this machine, a token is required: the environment
        variable `RMCALIB_SERVE_TOKEN`.
    texts : Texts, optional
        How to treat whole texts formatted with a policy's template.
    limits : Limits, optional
        The largest requests and the longest waits.
    on_change : {"stop", "warn"}
        What to do when the canaries' rewards have changed: answer 503, or only say so.
    check_every : float
        Seconds between two checks of all canaries.
    on_start : callable
        Called with the address when the server is ready.

    Examples
    --------
    It serves until it is stopped::

        from rmcalib.live import Reward, serve
        serve(Reward("org/name", calibrator="name.json"), port=9000)
    """
    try:
        import uvicorn
    except ModuleNotFoundError:
        raise ValueError("serve: uvicorn is not installed; pip install 'rmcalib[serve]'") from None
    token = os.environ.get(TOKEN, "").strip()
    if not is_local(host) and not token:
        raise ValueError(
            f"host {host}: reached from other machines, so set a token in the environment variable {TOKEN}"
        )
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listening(host, port))
        app = RewardServer(
            reward, texts=texts, limits=limits, token=token, on_change=on_change, check_every=check_every
        )
        stack.callback(app.close)
        app.begin()
        gc.collect()
        gc.freeze()  # the model's objects stay: the collector need not look at them again and again
        config = uvicorn.Config(
            app,
            http=limited_connections(app.limits.idle, room_for(app.limits.connections)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(app.limits.idle),
            timeout_graceful_shutdown=int(app.limits.hold) + 10,
            backlog=4096,
        )
        sys.setswitchinterval(0.001)  # the judge's thread must not keep requests waiting
        asyncio.run(_serve(uvicorn.Server(config), app, listening, on_start))


async def _serve(
    server: Any, app: RewardServer, listening: socket.socket, on_start: Callable[[str], None]
) -> None:
    """Run the server until a signal, and let it answer what waits."""

    def stop() -> None:
        server.force_exit = app.draining  # the second signal does not wait
        app.draining = server.should_exit = True
        app.batcher.hold = False

    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError, ValueError, RuntimeError):
            loop.add_signal_handler(name, stop)
    server.capture_signals = contextlib.nullcontext  # ours: uvicorn's would end the process by the signal
    watching = asyncio.ensure_future(app.watch())
    address, port = listening.getsockname()[:2]
    on_start(f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}")
    try:
        await server.serve(sockets=[listening])
    finally:
        watching.cancel()


def _listening(host: str, port: int) -> socket.socket:
    """Listen before the model is loaded: a port that is taken is reported at once, and clients wait."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(4096)
    except OSError as error:
        raise ValueError(f"{host}:{port}: cannot listen there: {error.strerror or error}") from error
    return listening

"""A loopback HTTP server for tests, whose answers come from a function, with failures on demand."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """What a client sent; `number` counts the requests to this path, from 0."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]
    number: int


@dataclass(frozen=True)
class Reply:
    """An answer: JSON or bytes. `cut` closes the connection in the middle of it."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False
    delay: float = 0.0


Answer = Callable[[Request], Reply]


@dataclass
class Server:
    """A running server: its address, all requests, and the most requests at a time."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    most_at_once: int = 0

    def paths(self) -> list[str]:
        return [request.path for request in self.requests]


@contextlib.contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    """Run a server on a free port of 127.0.0.1 until the block ends."""
    server, lock, now = Server(), threading.Lock(), 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def handle_any(self) -> None:
            nonlocal now
            text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            with lock:
                number = server.paths().count(self.path)
                body = json.loads(text) if text else None
                request = Request(self.command, self.path, body, dict(self.headers), number)
                server.requests.append(request)
                now += 1
                server.most_at_once = max(server.most_at_once, now)
            try:
                reply = answer(request)
                time.sleep(reply.delay)
            finally:
                with lock:
                    now -= 1
            self.send(reply)

        def send(self, reply: Reply) -> None:
            content = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            with contextlib.suppress(OSError):  # the client has disconnected
                self.send_response(reply.status)
                for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if reply.cut else content)
                self.wfile.flush()
            if reply.cut:
                self.close_connection = True

        do_GET = do_POST = handle_any

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.block_on_close = False
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()

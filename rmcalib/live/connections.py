"""Connections: how many there may be, and those of clients that send their headers slowly, or without end."""

from __future__ import annotations

import asyncio
from typing import Any

MOST_HEADERS = 256 * 2**10  # bytes of a request before its body
_OTHER_FILES = 256  # that a server may have open besides its connections
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 5\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


def room_for(connections: int) -> int:
    """Return how many connections this process may have; its limit of open files is raised where that is allowed."""
    try:
        import resource
    except ImportError:  # Windows
        return connections
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _OTHER_FILES
    if resource.RLIM_INFINITY != now < wanted:
        now = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (now, most))
    return connections if now == resource.RLIM_INFINITY else max(1, min(connections, now - _OTHER_FILES))


def limited_connections(seconds: float, most: int) -> Any:
    """Return uvicorn's class of connections, with limits that uvicorn does not have.

    A connection without a request that is being answered is closed after `seconds` to twice as many, also if
    bytes of headers arrive meanwhile. Headers of more than `MOST_HEADERS` bytes close it at once. If there are
    `most` connections, the oldest one without a request makes room for a new one; if all have one, the new one
    gets status 503.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    connections: dict[Any, None] = {}  # from the oldest to the newest

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """A connection of a client."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._headers, self._seen = 0, object()
            if len(connections) >= most:
                idle = next((other for other in connections if not other._has_request()), None)
                if idle is None:
                    transport.write(_FULL)
                    transport.close()
                else:
                    connections.pop(idle)
                    idle.transport.abort()
            if not transport.is_closing():
                connections[self] = None
            self._tick()

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
            connections.pop(self, None)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._headers = 0 if self._has_request() else self._headers + len(data)
            if self._headers > MOST_HEADERS:
                self.transport.abort()

        def _has_request(self) -> bool:
            """Return whether a request's headers have arrived, and its body or its answer has not."""
            return self.cycle is not None and (self.cycle.more_body or not self.cycle.response_complete)

        def _tick(self) -> None:
            answering = self.cycle is not None and not self.cycle.response_complete
            if not answering and self._seen is self.cycle:
                self.transport.abort()
                return
            self._seen = object() if answering else self.cycle
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    return Connection

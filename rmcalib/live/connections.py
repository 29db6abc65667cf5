"""Connections of clients that send their headers slowly, or without end: uvicorn limits neither."""

from __future__ import annotations

import asyncio
from typing import Any

MOST_HEADERS = 256 * 2**10  # bytes of a request before its body


def limited_connections(seconds: float) -> Any:
    """Return uvicorn's class of connections, with limits.

    A connection without a request that is being answered is closed after `seconds` to twice as many, also if
    bytes of headers arrive meanwhile. Headers of more than `MOST_HEADERS` bytes close it at once.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """A connection of a client."""

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._headers, self._seen = 0, object()
            self._tick()

        def connection_lost(self, exc: Exception | None) -> None:
            self._timer.cancel()
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

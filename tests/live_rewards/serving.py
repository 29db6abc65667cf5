"""A server of rewards in a thread of the test, and judges whose behaviour tests choose."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn

from rmcalib.benchmarks import Item
from rmcalib.judges import ScoredItem
from rmcalib.judges._http import ServerError
from rmcalib.live.connections import limited_connections
from rmcalib.live.reward import Reward
from rmcalib.live.server import RewardServer


@dataclass
class Length:
    """A judge whose reward is the length of a response. It can be away, slow, or wrong."""

    name: str = "length"
    scale: str = "reward"
    away: bool = False
    moody: bool = False  # the server fails if a batch has the response "poison"
    messages: bool = True  # whether it reads prompts of several messages
    rounds: float = 0.0  # what a reward of a batch is off by
    seconds: float = 0.0
    factor: float = 1.0
    asked: list[list[Item]] = field(default_factory=list)
    release: threading.Event | None = None

    def identity(self) -> dict[str, Any]:
        return {}

    def reward(self, response: str) -> float:
        if response == "unreadable":
            raise ValueError("the model's chat template does not accept these messages")
        return math.nan if response == "nan" else self.factor * len(response)

    def score(self, items: Sequence[Item]) -> Iterator[list[ScoredItem]]:
        self.asked.append(list(items))
        if self.release is not None:
            self.release.wait(30)
        time.sleep(self.seconds)
        texts = [text for item in items for text in item.responses]
        if self.away or (self.moody and "poison" in texts):
            raise ServerError("http://localhost:1: no answer", temporary=True)
        if not self.messages and any(not isinstance(item.prompt, str) for item in items):
            raise TypeError("prompts must be texts")
        off = self.rounds if len(items) > 1 else 0.0
        yield [
            ScoredItem(item.id, tuple(self.reward(text) + off for text in item.responses)) for item in items
        ]


@dataclass
class Running:
    """A running server."""

    url: str
    app: RewardServer

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=30, **options)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return httpx.get(self.url + path, timeout=30, **options)


@contextlib.contextmanager
def serving_rewards(reward: Reward, **options: Any) -> Iterator[Running]:
    """Serve a reward on a free port until the block ends."""
    app = RewardServer(reward, **options)
    app.begin()
    connections = limited_connections(app.limits.idle, app.limits.connections)
    config = uvicorn.Config(
        app, "127.0.0.1", 0, http=connections, ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment]
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Running(f"http://127.0.0.1:{port}", app)
    finally:
        server.should_exit = True
        thread.join(30)
        app.close()

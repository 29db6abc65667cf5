"""What `rmcalib serve` adds to calling the judge directly: latency, throughput, CPU, and faults under load.

    python scripts/bench_serve.py                 # the demo model, at 1, 16 and 256 clients
    python scripts/bench_serve.py --pair-ms 4     # a judge that takes 4 ms per response
    python scripts/bench_serve.py --faults        # 10,000 requests from 256 clients, 5% of them broken
    python scripts/bench_serve.py --minutes 60    # mixed load, with the memory of the server

The server runs in a process of its own, and so do the clients. The baseline is the same judge on the same samples
in one process, in batches of as many samples as there are clients.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

PROGRAM = """
import os, sys
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
sys.path.insert(0, {root!r})
from scripts.bench_serve import make_reward
from rmcalib.live import serve
serve(make_reward({pair_ms}), port=0, on_start=lambda url: print(url, flush=True))
"""
ROOT = Path(__file__).parents[1]
_BLOCK = bytes(200_000)


def make_reward(pair_ms: float) -> Any:
    """Return the demo model, or a function that takes a fixed time per response."""
    from rmcalib import Reward

    if not pair_ms:
        import torch

        torch.set_num_threads(1)
        return Reward("demo", output="raw", device="cpu")

    def fixed(_: Any, responses: list[str]) -> list[float]:
        until = time.perf_counter() + pair_ms / 1000 * len(responses)
        while time.perf_counter() < until:  # it takes a core and, as a model does, not the interpreter
            hashlib.sha256(_BLOCK).digest()
        return [float(len(text)) for text in responses]

    return Reward(fixed, output="raw", name="fixed")


def samples(n: int) -> list[tuple[str, str]]:
    """Return prompts of the demo with responses, four to a prompt; responses are made different."""
    from rmcalib import load_benchmark

    pairs = [(str(item.prompt), text) for item in load_benchmark("demo").items for text in item.responses]
    return [(pairs[i % len(pairs)][0], f"{pairs[i % len(pairs)][1]} {i}") for i in range(n)]


def direct(pair_ms: float, pairs: list[tuple[str, str]], batch: int) -> tuple[float, float]:
    """Return responses per second and CPU seconds per response of the judge itself."""
    reward = make_reward(pair_ms)
    reward(*zip(*pairs[:8], strict=True))
    start, cpu = time.perf_counter(), time.process_time()
    for first in range(0, len(pairs), batch):
        reward(*zip(*pairs[first : first + batch], strict=True))
    took, cpu = time.perf_counter() - start, time.process_time() - cpu
    return len(pairs) / took, cpu / len(pairs)


async def one_client(port: int, bodies: list[bytes], found: list[tuple[float, int, bytes]]) -> None:
    """Send requests one after the other on a connection, without a library whose time would be counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        start = time.perf_counter()
        head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        status = int((await reader.readline()).split()[1])
        length = 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        content = await reader.readexactly(length)
        found.append((time.perf_counter() - start, status, content))
    writer.close()


def clients(port: int, bodies: list[bytes], n: int, pipe: Any) -> None:
    """Run clients in this process, and send what they saw: seconds, statuses, contents."""

    async def run() -> Any:
        found: list[list[tuple[float, int, bytes]]] = [[] for _ in range(n)]
        await asyncio.gather(*(one_client(port, bodies[i::n], found[i]) for i in range(n)))
        return found

    start = time.perf_counter()
    by_client = asyncio.run(run())
    pipe.send((time.perf_counter() - start, by_client))


def asked(port: int, bodies: list[bytes], n: int) -> tuple[float, list[list[tuple[float, int, bytes]]]]:
    """Return the seconds that all requests took, and what each client saw."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=clients, args=(port, bodies, n, theirs))
    process.start()
    result = ours.recv()
    process.join()
    return result


class Server:
    """`serve` in a process of its own."""

    def __init__(self, pair_ms: float) -> None:
        code = PROGRAM.format(root=str(ROOT), pair_ms=pair_ms)
        self.process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.about = psutil.Process(self.process.pid)

    def cpu(self) -> float:
        times = self.about.cpu_times()
        return float(times.user + times.system)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def body_of(prompt: str, response: str) -> bytes:
    return json.dumps({"prompt": prompt, "response": response}).encode()


def measure(pair_ms: float, n_requests: int, sizes: list[int]) -> None:
    pairs = samples(n_requests)
    bodies = [body_of(*pair) for pair in pairs]
    server = Server(pair_ms)
    print("clients  direct/s  served/s  ratio  p50 ms  p95 ms  p99 ms  one batch ms  CPU added ms")
    try:
        asked(server.port, bodies[:64], 8)  # warm
        for n in sizes:
            some = slice(0, max(64, n_requests // (4 if n == 1 else 1)))
            rate, cpu_direct = direct(pair_ms, pairs[some], n)
            before = server.cpu()
            took, seen = asked(server.port, bodies[some], n)
            cpu = (server.cpu() - before) / len(bodies[some])
            times = 1000 * np.array([seconds for own in seen for seconds, _, _ in own])
            assert all(status == 200 for own in seen for _, status, _ in own)
            served = len(times) / took
            p50, p95, p99 = np.quantile(times, [0.5, 0.95, 0.99])
            print(
                f"{n:7d}  {rate:8.0f}  {served:8.0f}  {served / rate:5.2f}  {p50:6.1f}  {p95:6.1f}  {p99:6.1f}  "
                f"{1000 * n / rate:12.1f}  {1000 * (cpu - cpu_direct):12.2f}",
                flush=True,
            )
    finally:
        server.close()


def faults(n_requests: int = 10_000, n: int = 256) -> None:
    """Send many requests, 5% of them broken: every good one gets its own reward, every broken one an error."""
    pairs = [(prompt, "x" * (i % 200)) for i, (prompt, _) in enumerate(samples(n_requests))]
    bodies = [body_of(*pair) for pair in pairs]
    broken = [b"{", b'{"prompt": "a"}', b'{"query": ["a"], "prompts": ["b"]}', b"[]"]
    for i in range(0, n_requests, 20):
        bodies[i] = broken[i // 20 % 4]
    server = Server(0.01)
    try:
        took, seen = asked(server.port, bodies, n)
    finally:
        server.close()
    good = bad = wrong = 0
    for client, own in enumerate(seen):
        for place, (_, status, content) in enumerate(own):
            i = client + place * n
            if i % 20 == 0:
                bad += status == 422 and b"scores" not in content and b"rewards" not in content
            else:
                good += status == 200 and json.loads(content) == len(pairs[i][1])
            wrong += status not in (200, 422)
    print(
        f"{n_requests} requests, {n} clients, {took:.1f} s: {good} right, {bad} refused, {wrong} other statuses"
    )
    assert (good, bad, wrong) == (n_requests - n_requests // 20, n_requests // 20, 0)


def endure(minutes: float, pair_ms: float) -> None:
    """Send mixed load for some time, and print the server's memory."""
    server, rng = Server(pair_ms), np.random.default_rng(0)
    until, total = time.monotonic() + 60 * minutes, 0
    try:
        while time.monotonic() < until:
            n = int(rng.choice([1, 16, 64, 256]))
            pairs = samples(1000)
            bodies = [body_of(p, r * int(rng.choice([1, 1, 1, 20]))) for p, r in pairs]
            asked(server.port, bodies, n)
            total += len(bodies)
            memory = server.about.memory_info().rss / 2**20
            print(f"{total} requests, {memory:.0f} MiB, {server.about.num_fds()} files", flush=True)
    finally:
        server.close()


def main() -> None:
    """Measure what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair-ms", type=float, default=0.0)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 256])
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--minutes", type=float, default=0.0)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if given.faults:
        faults()
    elif given.minutes:
        endure(given.minutes, given.pair_ms)
    else:
        measure(given.pair_ms, given.requests, given.clients)


if __name__ == "__main__":
    main()

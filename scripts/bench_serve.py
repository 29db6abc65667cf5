"""What `rmcalib serve` adds to calling the judge directly: latency, throughput, CPU, and faults under load.

    python scripts/bench_serve.py                 # the demo model, at 1, 16 and 256 clients
    python scripts/bench_serve.py --pair-ms 4     # a judge that takes 4 ms per response
    python scripts/bench_serve.py --faults        # 10,000 requests from 256 clients, 5% of them broken
    python scripts/bench_serve.py --connections 10000   # most of them idle
    python scripts/bench_serve.py --vllm .venv-vllm/bin/python  # against vLLM's own server with the same model
    python scripts/bench_serve.py --minutes 60    # mixed load, at most --rate requests per second: the memory

The server and the clients run in separate processes. The baseline is the same judge on the same samples
in one process, in batches of as many samples as there are clients. CPU is that of the server's process.
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
import tempfile
import time
from collections import Counter
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
serve(make_reward({pair_ms}, {model!r}, {log!r}), port=0, on_start=lambda url: print(url, flush=True))
"""
ROOT = Path(__file__).parents[1]
BROKEN = [b"{", b'{"prompt": "a"}', b'{"query": ["a"], "prompts": ["b"]}', b"[]"]
_BLOCK = bytes(200_000)


def make_reward(pair_ms: float, model: str = "demo", log: str | None = None) -> Any:
    """Return a model, or a function that takes a fixed time per response."""
    from rmcalib import Reward

    if not pair_ms:
        import torch

        torch.set_num_threads(1)
        return Reward(model, output="raw", device="cpu", log=log)

    def fixed(_: Any, responses: list[str]) -> list[float]:
        until = time.perf_counter() + pair_ms / 1000 * len(responses)
        while time.perf_counter() < until:  # it takes a core and, as a model does, not the interpreter
            hashlib.sha256(_BLOCK).digest()
        return [float(len(text)) for text in responses]

    return Reward(fixed, output="raw", name="fixed", log=log)


def samples(n: int) -> list[tuple[str, str]]:
    """Return prompts of the demo with responses, four to a prompt; responses are made different."""
    from rmcalib import load_benchmark

    pairs = [(str(item.prompt), text) for item in load_benchmark("demo").items for text in item.responses]
    return [(pairs[i % len(pairs)][0], f"{pairs[i % len(pairs)][1]} {i}") for i in range(n)]


def direct(reward: Any, pairs: list[tuple[str, str]], batch: int) -> tuple[list[float], float]:
    """Return the seconds of each batch, and the CPU seconds of all, of the judge itself."""
    seconds, cpu = [], time.process_time()
    for first in range(0, len(pairs), batch):
        start = time.perf_counter()
        reward(*zip(*pairs[first : first + batch], strict=True))
        seconds.append(time.perf_counter() - start)
    return seconds, time.process_time() - cpu


async def ask_in_turn(
    port: int, bodies: list[bytes], answers: list[tuple[float, int, bytes]], pause: float, path: str
) -> None:
    """Send requests one after the other on a connection, without a library whose time would be counted."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for body in bodies:
        await asyncio.sleep(pause)
        start = time.perf_counter()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        status = int((await reader.readline()).split()[1])
        length = 0
        while (line := await reader.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        content = await reader.readexactly(length)
        answers.append((time.perf_counter() - start, status, content))
    writer.close()


def clients(port: int, bodies: list[bytes], n: int, pause: float, path: str, pipe: Any) -> None:
    """Run clients in this process, and send what they saw: seconds, statuses, contents."""

    async def run() -> Any:
        answers: list[list[tuple[float, int, bytes]]] = [[] for _ in range(n)]
        await asyncio.gather(*(ask_in_turn(port, bodies[i::n], answers[i], pause, path) for i in range(n)))
        return answers

    start = time.perf_counter()
    by_client = asyncio.run(run())
    pipe.send((time.perf_counter() - start, by_client))


def asked(
    port: int, bodies: list[bytes], n: int, pause: float = 0.0, path: str = "/"
) -> tuple[float, list[list[tuple[float, int, bytes]]]]:
    """Return the seconds that all requests took, and what each client saw; clients `pause` before a request."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=clients, args=(port, bodies, n, pause, path, theirs))
    process.start()
    result = ours.recv()
    process.join()
    return result


class Server:
    """`serve` in a separate process."""

    def __init__(self, pair_ms: float, model: str = "demo", log: str | None = None) -> None:
        code = PROGRAM.format(root=str(ROOT), pair_ms=pair_ms, model=model, log=log)
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


def measure(pair_ms: float, n_requests: int, sizes: list[int], rounds: int) -> None:
    """Print both sides of each number of clients: in turns, after a round that warms up on the same texts."""
    server, reward = Server(pair_ms), make_reward(pair_ms)
    print(
        "         direct/s  served/s  ratio    served ms: p50    p95    p99  direct ms: p95   CPU ms: direct  added"
    )
    try:
        for n in sizes:
            pairs = samples(max(64, n_requests // (4 if n == 1 else 1)))
            bodies = [body_of(*pair) for pair in pairs]
            direct(reward, pairs, n)
            asked(server.port, bodies, n)
            batches, latencies, rates, cpu = [], [], [], np.zeros(2)
            for _ in range(rounds):
                seconds, used = direct(reward, pairs, n)
                before = server.cpu()
                took, seen = asked(server.port, bodies, n)
                cpu += (used, server.cpu() - before)
                assert all(status == 200 for client in seen for _, status, _ in client)
                batches += seconds
                latencies += [second for client in seen for second, _, _ in client]
                rates.append((len(pairs) / sum(seconds), len(pairs) / took))
            here, there = np.median(rates, axis=0)
            p50, p95, p99 = 1000 * np.quantile(latencies, [0.5, 0.95, 0.99])
            alone, added = 1000 * np.array([cpu[0], cpu[1] - cpu[0]]) / (rounds * len(pairs))
            print(
                f"{n:7d}  {here:8.0f}  {there:8.0f}  {there / here:5.2f}  {p50:16.1f}  {p95:5.1f}  {p99:5.1f}  "
                f"{1000 * np.quantile(batches, 0.95):14.1f}  {alone:15.2f}  {added:5.2f}",
                flush=True,
            )
    finally:
        server.close()


def against_vllm(python: str, n_requests: int, sizes: list[int]) -> None:
    """Serve a small Llama with vLLM and with `serve`, one thread of torch each, and ask both for the same rewards."""
    from rmcalib import load_judge
    from tests.hub.tiny import save_model, tiny_classifier

    model = tiny_classifier(  # vLLM's attention on CPUs needs heads of 32, 64, 80, ...
        hidden_size=512,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=6,
        intermediate_size=1024,
    )
    for parameter in model.parameters():
        parameter.data.mul_(0.25 if parameter.ndim > 1 else 1.0)
    pairs = samples(n_requests)
    bodies = [
        json.dumps(
            {
                "messages": [{"role": "user", "content": p}, {"role": "assistant", "content": r}],
                "use_activation": False,
            }
        ).encode()
        for p, r in pairs
    ]
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder), model)
        judge: Any = load_judge(folder, backend="vllm", python=python, vllm_options="--enforce-eager")
        server = None
        try:
            judge.identity()  # starts its server
            server = Server(0.0, folder)
            tree = psutil.Process().children(recursive=True)
            theirs = [process for process in tree if process.pid != server.process.pid]
            port = int(judge._servers[0].url.rsplit(":", 1)[1])
            servers = {"vLLM": (port, theirs), "serve": (server.port, [server.about])}
            print("clients  server  requests/s  p50 ms  p95 ms  CPU ms per request  load")
            for n in sizes:
                rewards = {}
                for name, (place, processes) in servers.items():
                    asked(place, bodies[:64], 8, path="/classify")  # warm
                    before = cpu_of(processes)
                    took, seen = asked(place, bodies, n, path="/classify")
                    cpu = 1000 * (cpu_of(processes) - before) / len(bodies)
                    times = 1000 * np.array([seconds for client in seen for seconds, _, _ in client])
                    rewards[name] = [
                        json.loads(content)["data"][0]["probs"][0]
                        for client in seen
                        for _, _, content in client
                    ]
                    p50, p95 = np.quantile(times, [0.5, 0.95])
                    print(
                        f"{n:7d}  {name:6}  {len(times) / took:10.1f}  {p50:6.1f}  {p95:6.1f}  {cpu:18.1f}  "
                        f"{os.getloadavg()[0]:4.1f}",
                        flush=True,
                    )
                off = np.abs(np.subtract(rewards["vLLM"], rewards["serve"])).max()
                print(
                    f"         the rewards differ by up to {off:.2g}, of a spread of {np.std(rewards['vLLM']):.2g}"
                )
        finally:
            if server is not None:
                server.close()
            judge.close()


def cpu_of(processes: list[Any]) -> float:
    """Return the CPU seconds of processes."""
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


def faults(n_requests: int = 10_000, n: int = 256) -> None:
    """Send many requests, 5% of them broken: every good one gets its own reward, every broken one an error."""
    pairs = [(prompt, "x" * (i % 200)) for i, (prompt, _) in enumerate(samples(n_requests))]
    bodies = [body_of(*pair) for pair in pairs]
    for i in range(0, n_requests, 20):
        bodies[i] = BROKEN[i // 20 % 4]
    server = Server(0.01)
    try:
        took, seen = asked(server.port, bodies, n)
    finally:
        server.close()
    good = bad = wrong = 0
    for client, answers in enumerate(seen):
        for place, (_, status, content) in enumerate(answers):
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


def crowd(n: int) -> None:
    """Open many connections, most of them idle, and ask on some of them; the server must answer and survive."""
    import resource

    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server, start = Server(0.01), time.perf_counter()
    body = body_of("Why?", "Because.")
    request = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async def one(number: int) -> bool:
        """Connect, and ask on every second connection; return whether the reward came."""
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        held.append(writer)
        writer.write(b"" if number % 2 else request)
        return bool(number % 2) or b" 200 " in await reader.readline()

    async def run() -> list[bool]:
        answered = []
        for first in range(0, n, 500):  # a system's backlog is limited
            answered += await asyncio.gather(*(one(number) for number in range(first, min(n, first + 500))))
        return answered

    held: list[asyncio.StreamWriter] = []
    try:
        answered = asyncio.run(run())
        print(
            f"{n} connections in {time.perf_counter() - start:.1f} s: {sum(answered[::2])} of {len(answered[::2])} "
            f"requests answered, {server.about.num_fds()} files, {server.about.memory_info().rss / 2**20:.0f} MiB"
        )
        _, seen = asked(server.port, [body] * 64, 8)
        assert all(status == 200 for client in seen for _, status, _ in client)
    finally:
        server.close()


def endure(minutes: float, pair_ms: float, rate: float) -> None:
    """Send mixed load for some time, 5% of it broken, and print the server's memory; its log must have all rewards."""
    pairs, rng = samples(1000), np.random.default_rng(0)
    total, rewarded, statuses = 0, 0, Counter[int]()
    with tempfile.TemporaryDirectory() as folder:
        server, until = Server(pair_ms, log=folder), time.monotonic() + 60 * minutes
        try:
            while time.monotonic() < until:
                n = int(rng.choice([1, 4, 16, 64]))
                bodies = [mixed_body(pairs, rng) for _ in range(int(60 * rate))]
                _, seen = asked(server.port, bodies, n, n / rate)
                total += len(bodies)
                answers = [(status, content) for client in seen for _, status, content in client]
                statuses.update(status for status, _ in answers)
                rewarded += sum(
                    len(json.loads(content)["rewards"]) for status, content in answers if status == 200
                )
                memory = server.about.memory_info().rss / 2**20
                print(
                    f"{time.strftime('%H:%M:%S')} {total} requests, {rewarded} rewards, {memory:.0f} MiB, "
                    f"{server.about.num_fds()} files, {server.cpu():.0f} CPU s, statuses "
                    f"{dict(sorted(statuses.items()))}, load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
        finally:
            server.close()
        logged = sum(path.read_bytes().count(b"\n") for path in Path(folder).glob("rewards-*.jsonl"))
        print(f"{logged} rows in the log")
        assert logged == rewarded


def mixed_body(pairs: list[tuple[str, str]], rng: np.random.Generator) -> bytes:
    """Return a request of 1 to 16 samples, some of them long, or a broken one."""
    if rng.random() < 0.05:
        return BROKEN[rng.integers(len(BROKEN))]
    chosen = [pairs[i] for i in rng.integers(len(pairs), size=int(rng.choice([1, 1, 1, 4, 16])))]
    texts = [response * int(rng.choice([1, 1, 1, 20])) for _, response in chosen]
    queries = [f"{prompt}{text} {rng.random()}" for (prompt, _), text in zip(chosen, texts, strict=True)]
    return json.dumps({"query": queries, "prompts": [prompt for prompt, _ in chosen]}).encode()


def main() -> None:
    """Measure what the options ask for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair-ms", type=float, default=0.0)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 16, 256])
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--connections", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=0.0)
    parser.add_argument("--rate", type=float, default=5.0)
    given = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if given.faults:
        faults()
    elif given.vllm:
        against_vllm(given.vllm, given.requests, given.clients)
    elif given.connections:
        crowd(given.connections)
    elif given.minutes:
        endure(given.minutes, given.pair_ms, given.rate)
    else:
        measure(given.pair_ms, given.requests, given.clients, given.rounds)


if __name__ == "__main__":
    main()

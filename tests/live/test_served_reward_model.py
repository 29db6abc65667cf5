"""A reward model that a real vLLM serves: its rewards are ours, runs resume, and how fast it is."""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import Judge, Recipe, compare_served, load_judge, scored_chunks
from rmcalib.scores import Scores
from tests.hub.tiny import save_model, tiny_classifier
from tests.live.vllm import vllm_server

NAME = "tiny/rm"


@dataclass(frozen=True)
class Served:
    """A running server, and the folder with the model that it has."""

    url: str
    folder: Path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("vllm")
    model = tiny_classifier(  # vLLM's attention on CPUs needs heads of 32, 64, 80, ...
        hidden_size=512,
        num_attention_heads=8,
        num_key_value_heads=4,
        num_hidden_layers=6,
        intermediate_size=1024,
    )
    for parameter in model.parameters():  # the larger model would give rewards in the hundreds
        parameter.data.mul_(0.25 if parameter.ndim > 1 else 1.0)
    folder = save_model(home / "rm", model)
    with vllm_server(folder, NAME, "--runner", "pooling", log=home / "log") as url:
        yield Served(url, folder)


def rewards_of(judge: Judge, items: list[Item]) -> list[float]:
    return [reward for chunk in scored_chunks(judge, items) for one in chunk for reward in one.rewards]


def texts() -> list[Item]:
    """Prompts of the demo, a conversation, an empty response, other scripts, and truncated texts."""
    turns = (
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Who are you?"},
    )
    return [
        *rmcalib.load_benchmark("demo", limit=30).items,
        Item("conversation", "", turns, ("A judge.", "", "été 🙂 日本"), 1),
        Item("long", "", "Why? " * 40, ("Because. " * 400, "So. " * 20), 1),
    ]


def test_rewards_equal_those_of_the_loaded_model(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    here = rewards_of(load_judge(str(served.folder), device="cpu"), texts())
    there = rewards_of(load_judge(NAME, endpoint=served.url), texts())
    difference = np.abs(np.subtract(here, there)).max()
    with capsys.disabled():
        print(
            f"\n{len(here)} rewards from {min(here):.3g} to {max(here):.3g} differ by up to {difference:.2g}"
        )
    assert np.ptp(here) > 1
    assert difference < 1e-4


@pytest.mark.parametrize(
    "recipe", [{}, {"template": "openbmb", "append_token_id": 6}], ids=["plain", "recipe"]
)
def test_token_ids_give_the_same_rewards(served: Served, recipe: dict[str, Any]) -> None:
    name = str(served.folder)
    here = load_judge(name, device="cpu", recipe=Recipe(name, **recipe))
    there = load_judge(name, endpoint=served.url, recipe=Recipe(name, **recipe), tokenize_here=True)
    assert rewards_of(there, texts()) == pytest.approx(rewards_of(here, texts()), abs=1e-4)


def test_lengths_and_truncation_equal_those_of_the_loaded_model(served: Served) -> None:
    def columns(judge: Judge) -> list[Any]:
        return [(one.n_tokens, one.truncated) for chunk in scored_chunks(judge, texts()) for one in chunk]

    here = columns(load_judge(str(served.folder), device="cpu"))
    assert columns(load_judge(NAME, endpoint=served.url)) == here
    assert here[-1] == ((512, here[-1][0][1]), (True, False))


def test_the_server_returns_probabilities_by_default(served: Served) -> None:
    def ask(**more: Any) -> float:
        messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
        body = json.dumps({"model": NAME, "messages": messages, **more}).encode()
        request = urllib.request.Request(f"{served.url}/classify", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return float(json.load(answer)["data"][0]["probs"][0])

    assert ask() == pytest.approx(1 / (1 + math.exp(-ask(use_activation=False))), abs=1e-6)


def test_doctor_finds_no_difference(served: Served) -> None:
    check = compare_served(str(served.folder), served.url)
    assert (check.status, check.served_model, check.endpoint_kind) == ("right", NAME, "vllm")


def test_a_killed_run_resumes(served: Served, tmp_path: Path) -> None:
    command = ["rmcalib", "eval", "--model", NAME, "--endpoint", served.url, "--benchmark", "demo"]
    command += ["--limit", "160", "-J", "concurrency=1", "--output", str(tmp_path / "runs")]
    program = [sys.executable, "-c", "from rmcalib.cli import main; main()", *command[1:]]
    process = subprocess.Popen(program, start_new_session=True)
    while not list((tmp_path / "runs").rglob("scored-*.jsonl")):
        assert process.poll() is None
        time.sleep(0.01)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    resumed = subprocess.run(program, capture_output=True, text=True, check=True)
    assert "responses were scored before; " in resumed.stderr
    (file,) = (tmp_path / "runs").rglob("scores.parquet")
    whole = rmcalib.score(NAME, demo(160), endpoint=served.url)
    assert Scores.from_parquet(file).reward == pytest.approx(whole.reward, abs=1e-4)


def test_speed(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    bench = demo(200)
    seconds = {}
    for who, judge in {
        "vLLM": load_judge(NAME, endpoint=served.url),
        "our scorer": load_judge(str(served.folder), device="cpu"),
    }.items():
        judge.identity()  # connects, or loads the model
        start = time.perf_counter()
        lengths = [n for chunk in scored_chunks(judge, bench.items) for one in chunk for n in one.n_tokens]
        seconds[who] = time.perf_counter() - start
    with capsys.disabled():
        for who, time_taken in seconds.items():
            print(f"\n{who}: {len(lengths)} texts, {sum(lengths):,} tokens in {time_taken:.1f} s", end="")
        print()
    assert len(lengths) == bench.n_responses


def demo(limit: int) -> Benchmark:
    return rmcalib.load_benchmark("demo", limit=limit)

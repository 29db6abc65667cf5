"""A reward model that a real vLLM serves: its rewards are ours, runs resume, and how fast it is."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from transformers import AutoModelForSequenceClassification

import rmcalib
from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import Judge, Recipe, compare_served, load_judge
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._templates import encode
from rmcalib.scores import Scores
from tests.hub.tiny import save_model, tiny_classifier
from tests.live.backend import OPTIONS, rewards_of, running


@dataclass(frozen=True)
class Served:
    """A judge whose server runs, and the folder with its model."""

    judge: Any
    folder: Path

    @property
    def url(self) -> str:
        return str(self.judge._servers[0].url)


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
    with running(folder) as judge:
        yield Served(judge, folder)


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
    there = rewards_of(served.judge, texts())
    asked = rewards_of(load_judge(str(served.folder), endpoint=served.url), texts())
    difference = max(np.abs(np.subtract(here, other)).max() for other in (there, asked))
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
    assert columns(load_judge(str(served.folder), endpoint=served.url)) == here
    assert here[-1] == ((512, here[-1][0][1]), (True, False))


def test_the_server_returns_probabilities_by_default(served: Served) -> None:
    def ask(**more: Any) -> float:
        messages = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
        body = json.dumps({"model": str(served.folder), "messages": messages, **more}).encode()
        request = urllib.request.Request(f"{served.url}/classify", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return float(json.load(answer)["data"][0]["probs"][0])

    assert ask() == pytest.approx(1 / (1 + math.exp(-ask(use_activation=False))), abs=1e-6)


def test_doctor_finds_no_difference(served: Served) -> None:
    check = compare_served(str(served.folder), served.url)
    assert (check.status, check.about["endpoint_kind"]) == ("right", "vllm")


def test_a_killed_run_leaves_no_server_and_resumes(served: Served, tmp_path: Path) -> None:
    command = ["eval", "--model", str(served.folder), "--backend", "vllm", "--benchmark", "demo"]
    command += ["--limit", "160", "--output", str(tmp_path / "runs")]
    command += ["-J", f"vllm_options={OPTIONS['vllm_options']}"]
    environment = {**os.environ, "RMCALIB_VLLM": os.environ["VLLM_PYTHON"]}
    program = [sys.executable, "-m", "rmcalib", *command]
    process = subprocess.Popen(program, env=environment)
    while not list((tmp_path / "runs").rglob("scored-*.jsonl")):
        assert process.poll() is None
        time.sleep(0.01)
    children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) > 1
    process.kill()
    assert process.wait() == -signal.SIGKILL
    _, left = psutil.wait_procs(children, timeout=60)
    assert not [child for child in left if child.status() != psutil.STATUS_ZOMBIE]
    resumed = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    assert "responses were scored before; " in resumed.stderr
    (file,) = (tmp_path / "runs").rglob("scores.parquet")
    whole = rewards_of(load_judge(str(served.folder), device="cpu"), demo(160).items)
    assert Scores.from_parquet(file).reward == pytest.approx(whole, abs=1e-4)


def test_speed(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    """One table: vLLM, our own path, and the usual loop of one text at a time, on chat lengths."""
    loaded: Any = load_judge(str(served.folder), device="cpu")
    loaded.identity()
    stock: Any = AutoModelForSequenceClassification.from_pretrained(served.folder).eval()
    items = long_texts(24)

    def usual_loop() -> list[float]:
        encoded = encode(items, loaded.model.tokenizer, max_length=loaded.model.max_length)
        with torch.inference_mode():
            return [float(stock(torch.tensor([text.input_ids])).logits) for row in encoded for text in row]

    ways: dict[str, Callable[[], list[float]]] = {
        "vLLM": lambda: rewards_of(served.judge, items),
        "our own path": lambda: rewards_of(loaded, items),
        "usual loop": usual_loop,
    }
    tokens = sum(len(text) for row in encode(items, loaded.model.tokenizer, max_length=512) for text in row)
    lines, found = [], {}
    for who, way in ways.items():
        start, cpu = time.perf_counter(), cpu_seconds()
        found[who] = way()
        seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu
        lines.append(f"{who:<14}{seconds:>8.1f} s{cpu:>8.1f} CPU s{tokens / seconds:>10,.0f} tokens/s")
    with capsys.disabled():
        print(f"\n{len(found['vLLM'])} texts, {tokens:,} tokens, load {os.getloadavg()[0]:.1f}")
        print("\n".join(lines))
    for rewards in found.values():
        assert rewards == pytest.approx(found["usual loop"], abs=1e-4)


def cpu_seconds() -> float:
    """CPU time of this process and of the server's processes."""
    me = psutil.Process()
    times = [one.cpu_times() for one in (me, *me.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def long_texts(n: int) -> list[Item]:
    rng = np.random.default_rng(0)

    def words(median: float) -> str:  # random letters: vLLM would share what all texts have in common
        return "".join(rng.choice(list("abcdefgh "), max(1, int(rng.lognormal(np.log(median), 0.6)))))

    return [Item(str(i), "", words(100), tuple(words(200) for _ in range(4)), 1) for i in range(n)]


def demo(limit: int) -> Benchmark:
    return rmcalib.load_benchmark("demo", limit=limit)

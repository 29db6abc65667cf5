"""`--backend vllm` with a small program instead of vLLM: it is started, checked, used, and always stopped.

The program is a child process that hands every request to a loopback server of the test, which computes the
answers with transformers. `tests/live` has the same with the real vLLM.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import rmcalib
from rmcalib._util.hub import HubError
from rmcalib.judges import Recipe, load_judge
from rmcalib.judges import _vllm as vllm
from rmcalib.judges._judge import scored_chunks
from tests.hub.tiny import save_model, tiny_classifier, tiny_config
from tests.judges.folders import adapter_of
from tests.judges.serving import Reply, Request, Server, serving

CHILD = """#!{python}
import http.server, json, os, sys, time, urllib.error, urllib.request
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
with open({notes!r}, "a") as file:
    file.write(json.dumps({{"pid": os.getpid(), "argv": sys.argv[1:]}}) + "\\n")
print("INFO 11-18 00:00:00 [loader.py:1] Loading weights", flush=True)
if {dies!r}:
    print("RuntimeError: no such kernel", file=sys.stderr)
    sys.exit(3)
started = time.monotonic()
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_): pass
    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        if self.path == "/health":
            status, content = (200 if time.monotonic() > started + 0.1 else 503), b""
        else:
            asked = urllib.request.Request({backend!r} + self.path, body, {{"Served": options["--model"]}})
            try:
                with urllib.request.urlopen(asked) as found:
                    status, content = 200, found.read()
            except urllib.error.HTTPError as error:
                status, content = error.code, error.read()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
    do_GET = do_POST = answer
http.server.ThreadingHTTPServer(("127.0.0.1", int(options["--port"])), Handler).serve_forever()
"""


@dataclass
class Fake:
    """The program instead of vLLM's Python, its notes about each start, and the server behind it."""

    python: Path
    notes: Path
    server: Server

    @property
    def starts(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.notes.read_text().splitlines()]

    def has_ended(self, seconds: float = 10.0) -> bool:
        """Whether the last child ends soon."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                os.kill(self.starts[-1]["pid"], 0)
            except ProcessLookupError:
                return True
            time.sleep(0.05)
        return False


def program(folder: Path, server: Server, *, dies: bool = False) -> Fake:
    path, notes = folder / "fake-vllm", folder / "notes.jsonl"
    path.write_text(CHILD.format(python=sys.executable, notes=str(notes), backend=server.url, dies=dies))
    path.chmod(0o755)
    return Fake(path, notes, server)


@dataclass
class Answers:
    """Answers as vLLM does, computed with the stock classes of transformers."""

    classifier: Any = None
    squash: bool = False

    def __post_init__(self) -> None:
        self.known: dict[str, tuple[Any, Any]] = {}

    def language_model(self, folder: str) -> tuple[Any, Any]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        if folder not in self.known:
            load: Any = AutoModelForCausalLM
            self.known[folder] = load.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        return self.known[folder]

    @torch.no_grad()
    def __call__(self, request: Request) -> Reply:
        body, folder = request.body, request.headers.get("Served", "")
        if request.path == "/version":
            return Reply({"version": "0.32.0"})
        if request.path == "/v1/models":
            card = {"id": folder, "owned_by": "vllm", "root": folder, "max_model_len": 4000}
            return Reply({"data": [card]})
        if request.path == "/classify":
            values = [float(self.classifier(torch.tensor([ids])).logits[0, 0]) for ids in body["input"]]
            if self.squash:
                values = [1 / (1 + math.exp(-value)) for value in values]
            found = [{"index": i, "probs": [value]} for i, value in enumerate(values)]
            return Reply({"data": found, "usage": {"prompt_tokens": sum(map(len, body["input"]))}})
        if request.path in ("/tokenize", "/v1/chat/completions"):
            return self.chat(request.path, body, folder)
        if request.path == "/v1/completions":
            ids = body["prompt"]
            table = self.language_model(folder)[0](torch.tensor([ids])).logits[0].log_softmax(-1)
            rows: list[Any] = [
                None,
                *({str(t): {"logprob": float(table[i, t])}} for i, t in enumerate(ids[1:])),
            ]
            return Reply({"choices": [{"prompt_logprobs": rows}]})
        return Reply({"detail": "Not Found"}, 404)

    def chat(self, path: str, body: Any, folder: str) -> Reply:
        model, tokenizer = self.language_model(folder)
        ids = tokenizer.apply_chat_template(body["messages"], add_generation_prompt=True, tokenize=True)
        ids = list(ids["input_ids"] if isinstance(ids, dict) or hasattr(ids, "keys") else ids)
        if path == "/tokenize":
            return Reply({"tokens": ids, "count": len(ids)})
        logprobs = model(torch.tensor([ids])).logits[0, -1].log_softmax(-1)
        top = logprobs.topk(len(logprobs))  # all, so that every label is among them
        shown = [
            {"token": tokenizer.decode([i]), "logprob": v}
            for v, i in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        ]
        content = {"content": [{"top_logprobs": shown}]}
        return Reply({"model": body["model"], "choices": [{"logprobs": content}], "usage": {}})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model") / "rm", tiny_classifier(seed=3))


@pytest.fixture(scope="module")
def classifier(folder: Path) -> Any:
    from transformers import AutoModelForSequenceClassification

    load: Any = AutoModelForSequenceClassification
    return load.from_pretrained(folder).eval()


@pytest.fixture
def fake(tmp_path: Path, classifier: Any) -> Iterator[Fake]:
    with serving(Answers(classifier)) as server:
        yield program(tmp_path, server)


def rewards(judge: Any, limit: int = 8) -> Any:
    items = rmcalib.load_benchmark("demo", limit=limit).items
    return np.array([r for chunk in scored_chunks(judge, items) for one in chunk for r in one.rewards])


def test_rewards_are_those_of_transformers_and_the_server_ends(fake: Fake, folder: Path) -> None:
    bench = rmcalib.load_benchmark("demo", limit=8)
    options: dict[str, Any] = {
        "python": str(fake.python),
        "tensor_parallel": 2,
        "vllm_options": "--enforce-eager",
    }
    scores = rmcalib.score(str(folder), bench, backend="vllm", max_length=300, **options)
    here = rmcalib.score(str(folder), bench, device="cpu", max_length=300)
    assert scores.reward == pytest.approx(here.reward, abs=1e-4)
    assert fake.has_ended()
    (start,) = fake.starts
    argv = " ".join(start["argv"])
    for part in ("--runner pooling", "--max-model-len 300", "--dtype float32", "--tensor-parallel-size 2"):
        assert part in argv
    assert argv.endswith("--enforce-eager")
    assert scores.manifest["backend"] == "vllm"
    assert scores.manifest["difference_from_transformers"] < 1e-4
    assert all(request.body["use_activation"] is False for request in asked(fake)[-8:])


def asked(fake: Fake) -> list[Request]:
    return [request for request in fake.server.requests if request.path == "/classify"]


def test_an_interrupted_run_leaves_no_server_and_resumes_and_a_finished_one_starts_none(
    fake: Fake, folder: Path, tmp_path: Path
) -> None:
    class StopError(Exception):
        pass

    def stop(done: int, *_: int) -> None:
        if done > 4 * 32:  # one chunk of 32 prompts is kept
            raise StopError

    def score(**options: Any) -> Any:
        bench = rmcalib.load_benchmark("demo", limit=34)
        python = str(fake.python)
        return rmcalib.score(
            str(folder), bench, backend="vllm", python=python, output=tmp_path / "runs", **options
        )

    with pytest.raises(StopError):
        score(on_progress=stop)
    assert fake.has_ended()
    before = len(asked(fake))
    score()
    assert len(asked(fake)) - before < 30  # two prompts, and checks of the server
    assert fake.has_ended()
    assert score().reward == pytest.approx(rewards(load_judge(str(folder), device="cpu"), 34), abs=1e-4)
    assert len(fake.starts) == 2


def test_a_judge_can_be_used_again_and_closed(fake: Fake, folder: Path) -> None:
    judge: Any = load_judge(str(folder), backend="vllm", python=str(fake.python))
    first = rewards(judge, 4)
    judge.close()
    assert fake.has_ended()
    assert rewards(judge, 4).tolist() == first.tolist()
    assert len({start["argv"][start["argv"].index("--port") + 1] for start in fake.starts}) > 1
    judge.close()


def test_the_last_lines_of_a_child_that_dies(tmp_path: Path, folder: Path) -> None:
    with serving(Answers()) as server:
        dying = program(tmp_path, server, dies=True)
        with pytest.raises(ValueError, match=r"code 3.*no such kernel"):
            load_judge(str(folder), backend="vllm", python=str(dying.python)).identity()


@pytest.mark.parametrize(
    ("python", "named"), [("nowhere/python", "nowhere"), (sys.executable, "RMCALIB_VLLM")]
)
def test_a_python_that_does_not_exist_or_has_no_vllm(folder: Path, python: str, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        load_judge(str(folder), backend="vllm", python=python).identity()


@pytest.mark.parametrize("fits", [True, False])
def test_squashed_rewards_are_refused(
    tmp_path: Path, folder: Path, classifier: Any, monkeypatch: pytest.MonkeyPatch, fits: bool
) -> None:
    if not fits:
        monkeypatch.setattr(vllm, "main_memory", lambda: type("Memory", (), {"available": 0}))
    with serving(Answers(classifier, squash=True)) as server:
        squashing = program(tmp_path, server)
        with pytest.raises(ValueError, match="between 0 and 1"):
            load_judge(str(folder), backend="vllm", python=str(squashing.python)).identity()
        assert squashing.has_ended()


def test_other_weights_are_refused(tmp_path: Path, folder: Path) -> None:
    with serving(Answers(tiny_classifier(seed=4))) as server:
        other = program(tmp_path, server)
        with pytest.raises(ValueError, match="differ by up to"):
            load_judge(str(folder), backend="vllm", python=str(other.python)).identity()
        assert other.has_ended()


def test_the_pooled_token_is_the_last_one_sent(tmp_path: Path) -> None:
    """Where the padding token ends every text, transformers reads the token before it."""
    model = tiny_classifier(seed=5)
    model.config.pad_token_id = 6  # <|end|>
    place = save_model(tmp_path / "rm", model)
    with serving(Answers(model)) as server:
        fake = program(tmp_path, server)
        there = load_judge(str(place), backend="vllm", python=str(fake.python))
        here = rewards(load_judge(str(place), device="cpu"), 4)
        assert rewards(there, 4) == pytest.approx(here, abs=1e-4)
        assert all(ids[-1] != 6 for request in asked(fake) for ids in request.body["input"])


@pytest.mark.parametrize("field", ["head", "architecture", "attention"])
def test_heads_that_vllm_does_not_know(folder: Path, field: str) -> None:
    changed: dict[str, Any] = {field: "eager" if field == "attention" else "gpt_neox"}
    recipe = Recipe(str(folder), **changed)
    with pytest.raises(HubError, match=f"`{field}: "):
        load_judge(str(folder), backend="vllm", recipe=recipe).identity()


def test_adapters_are_refused(folder: Path, tmp_path: Path) -> None:
    adapter, _ = adapter_of(folder, tmp_path / "adapter", with_head=False)
    with pytest.raises(HubError, match="PEFT"):
        load_judge(str(adapter), backend="vllm", base=str(folder)).identity()


def test_language_models_are_no_classifiers(tmp_path: Path) -> None:
    place = language_model(tmp_path / "lm", 0)
    with pytest.raises(HubError, match="LlamaForCausalLM"):
        load_judge(str(place), backend="vllm", python="nowhere").identity()


def language_model(folder: Path, seed: int) -> Path:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    make: Any = AutoModelForCausalLM
    model = make.from_config(tiny_config(max_position_embeddings=4096))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2) if parameter.ndim > 1 else None
    return save_model(folder, model)


def test_a_language_model_that_judges(tmp_path: Path) -> None:
    place = str(language_model(tmp_path / "lm", 0))
    with serving(Answers()) as server:
        fake = program(tmp_path, server)
        there: Any = load_judge(place, judging="letter", backend="vllm", python=str(fake.python))
        here = load_judge(place, judging="letter", device="cpu")
        assert rewards(there, 2) == pytest.approx(rewards(here, 2), abs=1e-3)
        there.close()
        assert "--runner" not in fake.starts[0]["argv"]


def test_a_policy_and_its_reference(tmp_path: Path) -> None:
    places = [str(language_model(tmp_path / name, seed)) for seed, name in enumerate(("policy", "base"))]
    with serving(Answers()) as server:
        fake = program(tmp_path, server)
        options: dict[str, Any] = {"reference": places[1], "beta": 0.1, "max_length": 400}
        there: Any = load_judge(places[0], backend="vllm", python=str(fake.python), **options)
        here = load_judge(places[0], device="cpu", **options)
        assert rewards(there, 2) == pytest.approx(rewards(here, 2), abs=1e-4)
        there.close()
        assert [start["argv"][3] for start in fake.starts] == places


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"backend": "vllm", "device": "cpu"}, "device"),
        ({"backend": "vllm", "endpoint": "http://localhost:1"}, "backend"),
        ({"backend": "vlm"}, "backend"),
        ({"python": "x"}, "python"),
        ({"backend": "vllm", "tensor_parallel": 0}, "tensor_parallel"),
    ],
)
def test_settings_without_effect(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}: "):
        load_judge("org/rm", **options)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_its_parent(tmp_path: Path, number: signal.Signals) -> None:
    code = f"""
import time
from rmcalib.judges._vllm import Process
server = Process("rm", [{str(tmp_path / "fake-vllm")!r}, "-m", "vllm", "--port", "0"], 0)
print("started", flush=True)
time.sleep(60)
"""
    with serving(Answers()) as server:
        fake = program(tmp_path, server)
        parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        assert parent.stdout is not None
        assert parent.stdout.readline() == "started\n"
        while not fake.notes.is_file():
            time.sleep(0.01)
        parent.send_signal(number)
        assert parent.wait() != 0
        parent.stdout.close()
        assert fake.has_ended()

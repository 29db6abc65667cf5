"""Served reward models on the command line: one command from a server to a report, and its faults."""

from __future__ import annotations

import json
import threading
import traceback
from pathlib import Path

import pytest

import rmcalib
from rmcalib.benchmarks import Item
from rmcalib.judges import load_model
from rmcalib.judges._scoring import score_items
from tests.cli.conftest import FILES, Invoke, folder_of, visible
from tests.judges.reward_servers import Vllm
from tests.judges.serving import Reply, Request, serving

KEY = "sk-very-secret-123"
SMALL = ("--benchmark", "demo", "--limit", "12")


def test_from_a_server_to_a_report(tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMCALIB_API_KEY", KEY)
    with serving(Vllm()) as server:
        base = ("eval", "--model", "org/rm", "--endpoint", server.url, *SMALL, "--resamples", "20")
        done = invoke(*base, "--json")
        assert done.code == 0, done.err
        assert {request.headers["Authorization"] for request in server.requests} == {f"Bearer {KEY}"}
        again = invoke(*base)
        assert "all responses were scored before" in again.err
    folder = folder_of(tmp_path / "runs")
    assert visible(folder) == FILES
    manifest = json.loads((folder / "run.json").read_text())
    assert (manifest["model"], manifest["endpoint"]) == ("org/rm", server.url)
    assert manifest["server_version"] == "0.32.0"
    for text in (done.out, done.err, again.out, again.err):
        assert KEY not in text
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("status", [400, 401, 500])
def test_the_key_is_in_no_error(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setenv("MINE", KEY)
    monkeypatch.setattr("time.sleep", lambda _: None)

    def answer(request: Request) -> Reply:
        said = {"error": {"message": f"\x1b[31mbad {request.headers['Authorization']}"}}
        return Vllm()(request) if request.method == "GET" else Reply(said, status)

    with serving(answer) as server:
        command = ("score", "--model", "org/rm", "--endpoint", server.url, "--api-key-env", "MINE", *SMALL)
        failed = invoke(*command)
        assert failed.code == 2
        assert failed.err.count("\n") == 1
        with pytest.raises(ValueError) as caught:
            rmcalib.score("org/rm", "demo", endpoint=server.url, api_key_env="MINE")
    for text in (failed.out, failed.err, "".join(traceback.format_exception(caught.value))):
        assert KEY not in text
        assert "\x1b[31m" not in text
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_squashed_rewards_leave_nothing_behind(tmp_path: Path, invoke: Invoke) -> None:
    with serving(Vllm(knows=())) as server:
        failed = invoke("eval", "--model", "org/rm", "--endpoint", server.url, *SMALL)
    assert failed.code == 2
    assert "does not return raw rewards: all 8 rewards lie between 0 and 1" in failed.err
    assert not list((tmp_path / "runs").rglob("*.parquet"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--endpoint-kind", "vllm"), "--endpoint-kind: has no effect without --endpoint"),
        (("--endpoint", "localhost:8000"), "'localhost:8000' is not an address like http://localhost:8000"),
        (("--endpoint", "http://me:pw@host"), "leave user, password"),
        (("--endpoint", "http://127.0.0.1:9", "--device", "cuda"), "device: has no effect on a served model"),
        (("--endpoint", "http://127.0.0.1:9"), "127.0.0.1:9/v1/models: connection refused"),
        (("--endpoint", "http://127.0.0.1:9", "--api-key-env", "NOT_SET"), "variable NOT_SET is not set"),
    ],
)
def test_bad_options(invoke: Invoke, options: tuple[str, ...], message: str) -> None:
    failed = invoke("score", "--model", "org/rm", *options, *SMALL)
    assert failed.code == 2
    assert message in failed.err
    assert "pw" not in failed.err


def test_a_batch_of_served_and_loaded_models(tmp_path: Path, invoke: Invoke) -> None:
    with serving(Vllm()) as server:
        models = tmp_path / "models.yaml"
        models.write_text(
            f"- {{model: org/rm, endpoint: '{server.url}'}}\n- model: demo\n"
            f"- {{model: org/other, endpoint: '{server.url}'}}\n"
        )
        done = invoke("batch", "--models", models, *SMALL, "--device", "cpu", "--no-metrics", "--json")
        assert done.code == 1
    states = {entry["model"]: entry for entry in json.loads(done.out)["models"]}
    assert {name: state["state"] for name, state in states.items()} == {
        "org/rm": "done",
        "demo": "done",
        "org/other": "failed",
    }
    assert "the server has 'org/rm', not 'org/other'" in states["org/other"]["why"]


def test_the_doctor_compares_a_server_with_the_model(invoke: Invoke) -> None:
    model, lock = load_model("demo", device="cpu"), threading.Lock()

    def reward(messages: list[dict[str, str]]) -> float:
        item = Item("x", "", tuple(messages[:-1]), (messages[-1]["content"],), 1)
        with lock:
            return next(score_items(model, [item]))[0].rewards[0]

    command = ("doctor", "--model", "demo", "--device", "cpu", "--endpoint")
    with serving(Vllm("demo", "demo", rewards=reward)) as server:
        done = invoke(*command, server.url)
        assert done.code == 0, done.err
        assert f"{server.url}: vllm 0.32.0, model demo" in done.out
        assert "The server gives the model's rewards." in done.out
    with serving(Vllm("demo", "demo", rewards=lambda text: reward(text) * 1.02)) as server:
        assert json.loads(invoke(*command, server.url, "--json").out)["status"] == "rounding"
    with serving(Vllm("demo", "demo")) as server:
        other = invoke(*command, server.url)
        assert other.code == 1
        assert "The server gives other rewards." in other.out


def test_the_doctor_needs_both_server_and_model(invoke: Invoke) -> None:
    failed = invoke("doctor", "--endpoint", "http://127.0.0.1:9")
    assert failed.code == 2
    assert "--endpoint, --model: give both" in failed.err

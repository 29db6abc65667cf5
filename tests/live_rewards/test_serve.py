"""`serve`: dialects, statuses, batches, and faults. No answer contains a number that was made up."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

import rmcalib
from rmcalib import Calibrator, Reward
from rmcalib.judges import compare_served
from rmcalib.judges._http import ServerError
from rmcalib.live.policy import PolicyTexts, Texts
from rmcalib.live.server import Limits, serve
from tests.cli.conftest import environment
from tests.hooks import PATIENCE
from tests.hub.tiny import tiny_tokenizer
from tests.judges.reward_servers import SIGMOID, Vllm, reward_of
from tests.judges.serving import Reply, Request, serving
from tests.live_rewards.serving import Length, Running, serving_rewards

POINTWISE = Calibrator(2.0, 1.8, 2.2, threshold=3.0, reference=(0.0, 3.0, 8.0))
CHAT = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "xxxxx"}]


def p(length: float) -> float:
    return 1 / (1 + math.exp(-(min(length, 8.0) - 3) / 2))


def refused(answer: httpx.Response, status: int) -> str:
    """Check an error: its status, one line, and none of the words that a client may read numbers from."""
    assert answer.status_code == status, answer.text
    assert "scores" not in answer.text
    assert "rewards" not in answer.text
    body = answer.json()
    assert list(body) == ["error"]
    assert "\n" not in body["error"]
    return str(body["error"])


@pytest.fixture(scope="module")
def calibrated() -> Any:
    with serving_rewards(Reward(Length(), calibrator=POINTWISE)) as running:
        yield running


# Dialects


def test_a_server_of_ours_is_recognised_as_a_judge() -> None:
    """`doctor` compares the rewards without the calibrator."""
    with serving_rewards(
        Reward("demo", calibrator=Calibrator(2.0, 1.8, 2.2, reference=(0.0, 1.0)))
    ) as running:
        check = compare_served("demo", running.url)
        assert (check.status, check.cause, check.about["endpoint_kind"]) == ("right", "equal", "score")
        with pytest.raises(ServerError, match="other"):
            compare_served("other", running.url)


def test_each_dialect_is_answered_in_its_form(calibrated: Running) -> None:
    openrlhf = {"query": ["Why? xxxxx", "Why? xxx"], "prompts": ["Why? ", "Why? "], "labels": [None, "1"]}
    assert calibrated.post("/get_reward", openrlhf).json() == {
        "rewards": [pytest.approx(p(5)), 0.5],
        "scores": [pytest.approx(p(5)), 0.5],
        "extra_logs": {"raw": [5.0, 3.0], "outside": [0.0, 0.0]},
    }
    for prompt in ("Why?", CHAT[:1]):
        slime = {"prompt": prompt, "response": "xxxxx", "label": {"any": 1}}
        assert calibrated.post("/", slime).json() == pytest.approx(p(5))
    vllm = {"model": "any", "messages": CHAT, "use_activation": False}
    assert calibrated.post("/classify", vllm).json()["data"] == [
        {"index": 0, "label": "LABEL_0", "probs": [pytest.approx(p(5))], "num_classes": 1}
    ]
    assert calibrated.post("/pooling", vllm).json()["data"][0]["data"] == [pytest.approx(p(5))]
    own = calibrated.post("/score", {"prompts": ["a", "b"], "responses": ["xxx", "x" * 20], "step": 4}).json()
    assert own == {
        "rewards": [0.5, pytest.approx(p(8))],
        "raw": [3.0, 20.0],
        "probabilities": [0.5, pytest.approx(p(8))],
        "outside": [False, True],
    }


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("/", {}, "keys"),
        ("/", [1], "object"),
        ("/", {"query": "one text"}, "query"),
        ("/", {"query": ["a b"], "prompts": ["x"]}, "query 0"),
        ("/", {"query": ["a", "b"], "prompts": ["a"]}, "prompts"),
        ("/", {"query": ["<|im_start|>user\na b"], "prompts": ["<|im_start|>user\na"]}, "policy-tokenizer"),
        ("/", {"messages": ["a b"]}, "policy-tokenizer"),
        ("/", {"prompt": 3, "response": "x"}, "prompt"),
        ("/", {"prompt": "a", "response": None}, "response"),
        ("/score", {"prompts": ["a"], "responses": ["x", "y"]}, "prompts"),
        ("/score", {"prompts": ["a"], "responses": ["x"], "step": "soon"}, "step"),
        ("/score", {"prompts": ["a"], "responses": ["x"], "step": 10**400}, "step"),
        ("/score", {"prompts": ["a"], "responses": ["unreadable"]}, "template"),
        ("/classify", {"messages": CHAT[:1]}, "assistant"),
        ("/classify", {"messages": CHAT, "use_activation": True}, "use_activation"),
        ("/classify", {"input": "a whole text"}, "length"),
        ("/pooling", {"input": [[1, -2]]}, "input 0"),
        ("/pooling", {"input": {"a": 1}}, "input 0"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    calibrated: Running, path: str, body: Any, named: str
) -> None:
    assert named in refused(calibrated.post(path, body), 422)


def test_other_requests(calibrated: Running) -> None:
    url = calibrated.url
    refused(httpx.post(url, content=b"{"), 422)
    refused(httpx.post(url, content=b'{"prompt": "a", "response": NaN}'), 422)
    refused(httpx.post(url, content=b"[" * 100_000), 422)
    refused(calibrated.post("/other", {}), 404)
    refused(calibrated.get("/classify"), 405)
    refused(httpx.put(f"{url}/score", json={}), 405)
    assert calibrated.get("/health").json() == {"status": "ok"}
    assert calibrated.get("/v1/models").json()["data"][0]["id"] == "length"
    assert calibrated.post("/score", {"prompts": [], "responses": []}).json()["rewards"] == []


def test_a_reward_that_is_not_finite_is_an_error(calibrated: Running) -> None:
    body = {"prompts": ["a", "a"], "responses": ["xxx", "nan"]}
    refused(calibrated.post("/score", body), 500)
    assert calibrated.post("/", {"prompt": "a", "response": "xxx"}).json() == 0.5


def test_numbers_for_prometheus() -> None:
    with serving_rewards(Reward(Length(), calibrator=POINTWISE)) as running:
        running.post("/score", {"prompts": ["a", "b", "c"], "responses": ["xxx", "x" * 9, "x" * 9]})
        running.post("/", {"prompt": "a", "response": "nan"})
        lines = running.get("/metrics").text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values['rmcalib_requests_total{dialect="score",status="200"}'] == "1"
    assert values['rmcalib_batch_samples_bucket{le="4"}'] == "2"
    assert (values["rmcalib_samples_total"], values["rmcalib_outside_total"]) == ("3", "2")
    assert values["rmcalib_failures_total"] == "1"
    assert values["rmcalib_reward_count"] == "3"
    assert float(values["rmcalib_reward_sum"]) == pytest.approx(0.5 + 2 * p(8))


# Whole texts


def test_texts_of_a_policy_are_taken_apart() -> None:
    policy, judge = PolicyTexts(tiny_tokenizer()), Length()
    prompt = policy.render(CHAT[:1], header=True)
    whole = policy.render(CHAT)
    with serving_rewards(Reward(judge, output="raw"), texts=Texts(policy)) as running:
        answer = running.post("/", {"query": [whole], "prompts": [prompt], "labels": [None]})
        assert answer.json()["rewards"] == [5.0]
        assert running.post("/", {"model": "model", "messages": [whole]}).json() == {"scores": [5.0]}
        assert judge.asked[-1][0].prompt == tuple(CHAT[:1])
        refused(running.post("/", {"model": "model", "messages": ["Why? xxxxx"]}), 422)


def test_whole_texts_as_they_are() -> None:
    """The demo's own template: its text has the reward of the conversation."""
    reward = Reward("demo", output="raw", device="cpu")
    from rmcalib.judges._templates import render, text_ids

    judge: Any = reward.judges[0]
    items = rmcalib.load_benchmark("demo", limit=3).items
    texts = [render(item.prompt, item.responses[0], judge.model.tokenizer) for item in items]
    expected = reward([item.prompt for item in items], [item.responses[0] for item in items])
    with serving_rewards(reward, texts=Texts(as_is=True)) as running:
        given = running.post("/", {"query": texts, "labels": [None] * 3}).json()["rewards"]
        assert given == pytest.approx(expected, abs=1e-4)
        assert running.post("/", {"messages": texts}).json()["scores"] == pytest.approx(expected, abs=1e-4)
        bos = judge.model.tokenizer.bos_token
        stripped = [text.removeprefix(bos) for text in texts]  # as verl sends them
        rows = running.post("/classify", {"input": stripped[0], "use_activation": False}).json()["data"]
        assert rows[-1]["probs"][-1] == pytest.approx(expected[0], abs=1e-4)
        ids = [one for one, _ in text_ids(texts, judge.model.tokenizer, max_length=512)]
        rows = running.post("/pooling", {"input": ids}).json()["data"]
        assert [row["data"][0] for row in rows] == pytest.approx(expected, abs=1e-4)


# Batches


def gather(url: str, bodies: list[Any], clients: int = 64) -> list[httpx.Response]:
    """Send requests from many clients at once; return the answers in order."""

    async def run() -> list[httpx.Response]:
        free = asyncio.Semaphore(clients)
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=clients)) as client:

            async def send(body: Any) -> httpx.Response:
                async with free:
                    content = body if isinstance(body, bytes) else json.dumps(body).encode()
                    return await client.post(url, content=content)

            return await asyncio.gather(*(send(body) for body in bodies))

    return asyncio.run(run())


def test_requests_that_arrive_together_are_one_batch() -> None:
    judge = Length(seconds=0.1)
    with serving_rewards(Reward(judge, output="raw")) as running:
        before = len(judge.asked)
        bodies = [{"prompt": f"p{n % 4}", "response": "x" * n} for n in range(100)]
        answers = gather(f"{running.url}/", bodies)
    assert [answer.json() for answer in answers] == [float(n) for n in range(100)]
    batches = judge.asked[before:]
    assert len(batches) <= 40
    assert all(len({item.prompt for item in batch}) == len(batch) for batch in batches)  # equal prompts share


def test_broken_requests_among_many_harm_no_other(tmp_path: Path) -> None:
    judge = Length()
    good = [{"prompt": f"p{n % 7}", "response": "x" * (n % 50)} for n in range(1000)]
    broken = [
        b"{",
        {"prompt": "a"},
        {"prompt": "a", "response": "nan"},
        {"prompt": "a", "response": "unreadable"},
    ]
    bodies: list[Any] = [broken[n // 20 % 4] if n % 20 == 0 else one for n, one in enumerate(good)]
    with serving_rewards(Reward(judge, output="raw", log=tmp_path)) as running:
        answers = gather(f"{running.url}/", bodies, clients=128)
    for n, (answer, one) in enumerate(zip(answers, good, strict=True)):
        if n % 20:
            assert answer.json() == float(len(one["response"]))
        else:
            refused(answer, 500 if n // 20 % 4 == 2 else 422)
    rows = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert len(rows) == 950
    assert all(row["reward"] == len(row["response"]) for row in rows)


# Faults


def test_requests_are_held_until_the_model_returns() -> None:
    judge = Length()
    with serving_rewards(Reward(judge, output="raw")) as running:
        judge.away = True
        timer = threading.Timer(0.5, lambda: setattr(judge, "away", False))
        timer.start()
        answers = gather(f"{running.url}/", [{"prompt": "a", "response": "x" * n} for n in range(20)])
        assert [answer.json() for answer in answers] == [float(n) for n in range(20)]
        assert running.get("/health").status_code == 200


def test_a_model_that_stays_away_is_503() -> None:
    judge = Length()
    with serving_rewards(Reward(judge, output="raw"), limits=Limits(hold=1.5)) as running:
        judge.away = True
        answer = running.post("/", {"prompt": "a", "response": "x"})
        refused(answer, 503)
        assert int(answer.headers["retry-after"]) > 0
        assert running.get("/health").json() == {"status": "away"}


def test_a_text_that_the_server_behind_cannot_answer_holds_up_no_other() -> None:
    judge = Length(moody=True, seconds=0.05)
    with serving_rewards(Reward(judge, output="raw"), limits=Limits(hold=6.0)) as running:
        texts = ["poison" if n == 3 else "x" * n for n in range(20)]
        answers = gather(f"{running.url}/", [{"prompt": "a", "response": text} for text in texts])
    refused(answers[3], 503)
    assert [answer.json() for n, answer in enumerate(answers) if n != 3] == [n for n in range(20) if n != 3]


def test_a_model_that_hangs_is_503_and_a_full_queue_too() -> None:
    judge = Length()
    with serving_rewards(Reward(judge, output="raw"), limits=Limits(hold=1.5, waiting=10)) as running:
        judge.release = threading.Event()
        answers = gather(f"{running.url}/", [{"prompt": "a", "response": "x" * n} for n in range(40)])
        assert {answer.status_code for answer in answers} == {503}
        judge.release.set()
        assert running.post("/", {"prompt": "a", "response": "xx"}).json() == 2.0


def test_a_full_disk_is_counted_and_rewards_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving_rewards(Reward(Length(), output="raw", log=tmp_path)) as running:

        def full(*_: Any) -> int:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("rmcalib.live.log.os.write", full)
            assert running.post("/", {"prompt": "a", "response": "xx"}).json() == 2.0
        assert running.post("/", {"prompt": "a", "response": "xxx"}).json() == 3.0
        assert "rmcalib_not_logged_total 1" in running.get("/metrics").text
    assert [row["reward"] for row in logged(tmp_path)] == [3.0]


# The model behind another server changes


def behind(server: Any) -> Reward:
    return Reward("org/rm", endpoint=server.url, output="raw", timeout=5.0)


def test_a_change_of_the_model_behind_is_noticed_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmcalib.live.server._SHORT_CHECK", 0.0)
    vllm = Vllm()
    body = {"prompt": "a", "response": "xx"}
    with serving(vllm) as server:
        reward = Reward("org/rm", endpoint=server.url, output="raw", log=tmp_path, concurrency=4)
        with serving_rewards(reward) as running:
            right = running.post("/", body).json()
            vllm.knows, vllm.squash = (), SIGMOID  # the server forgets the key and answers a sigmoid
            refused(running.post("/", body), 503)
            assert running.get("/health").json() == {"status": "changed"}
            vllm.knows = ("use_activation",)
            assert running.post("/", body).json() == right
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [(event["event"], event["cause"]) for event in events] == [
        ("changed", "sigmoid"),
        ("restored", None),
    ]


def test_a_change_can_be_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmcalib.live.server._SHORT_CHECK", 0.0)
    vllm = Vllm()
    with serving(vllm) as server, serving_rewards(behind(server), on_change="warn") as running:
        before = running.post("/", {"prompt": "a", "response": "xx"}).json()
        vllm.seed = 1  # other weights
        assert running.post("/", {"prompt": "a", "response": "xx"}).json() != before
        assert "rmcalib_model_changed 1" in running.get("/metrics").text
        assert running.get("/health").status_code == 200


def test_a_change_in_the_middle_of_a_batch_is_noticed_before_its_rewards_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rmcalib.live.server._SHORT_CHECK", 0.0)
    vllm = Vllm()

    def rewards(text: Any) -> float:
        if "changes" in str(text):
            vllm.seed = 1
        return reward_of(text, vllm.seed)

    vllm.rewards = rewards
    with serving(vllm) as server:
        reward = Reward("org/rm", endpoint=server.url, output="raw", log=tmp_path)
        with serving_rewards(reward) as running:
            refused(running.post("/", {"prompt": "a", "response": "changes"}), 503)
    assert not logged(tmp_path)


def test_canaries_that_a_judge_cannot_read_are_left_out() -> None:
    judge = Length(messages=False)
    with serving_rewards(Reward(judge, output="raw")) as running:
        assert running.post("/", {"prompt": "a", "response": "xx"}).json() == 2.0
        judge.factor = -1.0
        running.app.batcher.call(running.app.canaries[0].check).result()
        refused(running.post("/", {"prompt": "a", "response": "xx"}), 503)


@pytest.mark.parametrize(("at_first", "state"), [(0.0, "changed"), (0.5, "ok")])
def test_rewards_that_round_with_the_batch_are_no_change(at_first: float, state: str) -> None:
    judge = Length(rounds=at_first)
    with serving_rewards(Reward(judge, output="raw")) as running:
        judge.rounds = 0.7
        running.app.batcher.call(running.app.canaries[0].check).result()
        assert running.get("/health").json() == {"status": state}


def test_a_server_behind_that_restarts_is_waited_for() -> None:
    vllm, down = Vllm(), threading.Event()

    def answer(request: Request) -> Reply:
        return Reply({"error": "starting"}, 503) if down.is_set() else vllm(request)

    with serving(answer) as server:
        reward = behind(server)
        object.__setattr__(reward.judges[0].client, "first_wait", 0.001)  # type: ignore[attr-defined]
        with serving_rewards(reward) as running:
            right = running.post("/", {"prompt": "a", "response": "xx"}).json()
            down.set()
            threading.Timer(0.5, down.clear).start()
            assert running.post("/", {"prompt": "a", "response": "xx"}).json() == right


def test_a_server_behind_that_hangs_is_given_up_and_asked_again() -> None:
    vllm, answers = Vllm(), threading.Event()
    answers.set()

    def answer(request: Request) -> Reply:
        answers.wait(PATIENCE)
        return vllm(request)

    with serving(answer) as server:
        reward = Reward("org/rm", endpoint=server.url, output="raw")  # a timeout of five minutes
        with serving_rewards(reward, limits=Limits(hold=1.5)) as running:
            right = running.post("/", {"prompt": "a", "response": "xx"}).json()
            answers.clear()
            refused(running.post("/", {"prompt": "a", "response": "xx"}), 503)
            answers.set()
            until = time.monotonic() + PATIENCE
            while (again := running.post("/", {"prompt": "a", "response": "xx"})).status_code == 503:
                assert time.monotonic() < until
            assert again.json() == right


# Safety


def test_a_token_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"prompt": "a", "response": "xx"}
    with serving_rewards(Reward(Length(), output="raw"), token="secret") as running:
        refused(running.post("/", body), 401)
        refused(running.post("/", body, headers={"Authorization": "Bearer wrong"}), 401)
        refused(running.post("/", body, headers={"Authorization": "Basic ???"}), 401)
        refused(running.get("/metrics"), 401)
        assert running.get("/health").status_code == 200
        assert running.post("/", body, headers={"Authorization": "Bearer secret"}).json() == 2.0
        word = base64.b64encode(b"any:secret").decode()
        assert running.post("/", body, headers={"Authorization": f"Basic {word}"}).json() == 2.0
    monkeypatch.delenv("RMCALIB_SERVE_TOKEN", raising=False)
    with pytest.raises(ValueError, match="RMCALIB_SERVE_TOKEN"):
        serve(Reward(Length(), output="raw"), host="0.0.0.0", port=0)


def test_requests_have_limits() -> None:
    limits = Limits(body=2000, samples=3, characters=100, reading=0.5)
    with serving_rewards(Reward(Length(), output="raw"), limits=limits) as running:
        refused(running.post("/", {"prompt": "a", "response": "x" * 3000}), 413)
        refused(running.post("/", {"prompt": "a", "response": "x" * 200}), 422)
        refused(running.post("/score", {"prompts": ["a"] * 4, "responses": ["x"] * 4}), 422)

        def slowly() -> Any:
            yield b'{"prompt": '
            time.sleep(1.5)
            yield b'"a", "response": "x"}'

        refused(httpx.post(running.url, content=slowly(), timeout=10), 408)
        big = (b"x" * 500 for _ in range(10))  # without a length
        refused(httpx.post(running.url, content=big, timeout=10), 413)


def test_a_port_that_is_taken_is_reported() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=str(port)):
            serve(Reward(Length(), output="raw"), port=port)


# As a process

PROGRAM = """
import sys, time
from rmcalib import Reward
from rmcalib.live import serve
def slow(prompt, responses):
    prompt = str(prompt)
    time.sleep(0.3 if prompt.startswith("p") else 0)  # the canaries are quick
    return [len(text) for text in responses]
serve(Reward(slow, output="raw", log=sys.argv[1]), port=0, on_start=lambda url: print(url, flush=True))
"""


def started(log: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(log)], stdout=subprocess.PIPE, text=True, env=environment()
    )
    assert process.stdout is not None
    with process.stdout:
        return process, process.stdout.readline().strip()


def arrived(url: str) -> float:
    """Return how many samples a server has begun to score, or has in its queue."""
    lines = httpx.get(f"{url}/metrics", timeout=30).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return float(values["rmcalib_batch_samples_sum"]) + float(values["rmcalib_waiting_samples"])


def logged(log: Path) -> list[dict[str, Any]]:
    lines = [
        line for path in sorted(log.glob("rewards-*")) for line in path.read_bytes().splitlines(keepends=True)
    ]
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def test_sigterm_drains_and_kill_loses_no_answered_reward(tmp_path: Path) -> None:
    process, url = started(tmp_path)
    answers: list[httpx.Response | Exception] = []

    def ask(n: int) -> None:
        try:
            answers.append(httpx.post(url, json={"prompt": f"p{n}", "response": "x" * n}, timeout=30))
        except httpx.HTTPError as error:
            answers.append(error)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    while arrived(url) < 4:
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    for thread in threads:
        thread.join()
    assert process.wait(30) == 0
    assert sorted(one.json() for one in answers if isinstance(one, httpx.Response)) == [1.0, 2.0, 3.0, 4.0]
    assert sorted(row["reward"] for row in logged(tmp_path)) == [1.0, 2.0, 3.0, 4.0]

    process, url = started(tmp_path)  # again, with kill -9 in the middle
    answers.clear()
    threads = [threading.Thread(target=ask, args=(n,)) for n in range(10, 18)]
    for thread in threads:
        thread.start()
    time.sleep(0.8)
    os.kill(process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    process.wait(30)
    seen = {one.json() for one in answers if isinstance(one, httpx.Response) and one.status_code == 200}
    assert seen <= {row["reward"] for row in logged(tmp_path)}


def test_the_command_serves_until_it_is_ended(tmp_path: Path) -> None:
    POINTWISE.save(tmp_path / "calibrator.json")
    options = ("--port", "0", "--calibrator", "calibrator.json", "--log", "log", "-J", "device=cpu")
    process = subprocess.Popen(
        [sys.executable, "-m", "rmcalib", "serve", *options],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stderr is not None
    with process.stderr:
        try:
            url = process.stderr.readline().partition("served at ")[2].split()[0]
            item = rmcalib.load_benchmark("demo", limit=1).items[0]
            body = {"prompts": [item.prompt], "responses": [item.responses[0]], "labels": [1], "step": 2}
            answer = httpx.post(f"{url}/score", json=body, timeout=30).json()
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
            process.wait(PATIENCE)
    (raw,) = Reward("demo", output="raw", device="cpu")([item.prompt], [item.responses[0]])
    assert answer["raw"] == [pytest.approx(raw, abs=1e-4)]
    assert answer["rewards"] == answer["probabilities"] == [pytest.approx(p(max(answer["raw"][0], 0.0)))]
    (row,) = logged(tmp_path / "log")
    assert (row["step"], row["label"], row["reward"]) == (2, 1, answer["rewards"][0])


# Hostile clients


def exchange(url: str, *pieces: bytes, pause: float = 0.0) -> bytes:
    """Send bytes, and return what arrives until the server closes the connection."""
    received = b""
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), timeout=20) as client:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                client.sendall(piece)
                time.sleep(pause)
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(65536):
                received += piece
    return received


def request(body: bytes, *headers: str) -> bytes:
    return "\r\n".join(["POST /score HTTP/1.1", "Host: x", *headers, "", ""]).encode() + body


SCORE = b'{"prompts": ["a"], "responses": ["bb"]}'
SMUGGLED = b"0\r\n\r\nGET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "sent",
    [
        request(SMUGGLED, "Content-Length: 4", "Transfer-Encoding: chunked"),
        request(SCORE, f"Content-Length: {len(SCORE)}", "Content-Length: 3"),
        request(SCORE, "Content-Length: -1"),
        request(SCORE, f"Content-Length: {'9' * 5000}"),
        request(SCORE, "Transfer-Encoding: xchunked", f"Content-Length: {len(SCORE)}"),
    ],
    ids=["chunked", "two lengths", "negative", "endless", "other coding"],
)
def test_a_request_has_one_length(sent: bytes) -> None:
    with serving_rewards(Reward(Length(), output="raw"), limits=Limits(idle=0.5, reading=0.5)) as server:
        answer = exchange(server.url, sent)
        assert answer.startswith(b"HTTP/1.1 4")
        assert answer.count(b"HTTP/1.1") == 1
        assert server.app.reward.counts.scored == 0


def test_connections_without_a_request_are_closed() -> None:
    with serving_rewards(Reward(Length(), output="raw"), limits=Limits(idle=0.5)) as server:
        start = time.monotonic()
        assert exchange(server.url, *[b"GET /health HTTP/1.1\r\n", *[b"X: y\r\n"] * 30], pause=0.1) == b""
        assert exchange(server.url) == b""
        endless = [b"GET /health HTTP/1.1\r\nX: ", *[b"y" * 2**16] * 64]
        assert exchange(server.url, *endless) == b""
        assert time.monotonic() - start < 15
        assert exchange(server.url, request(SCORE, f"Content-Length: {len(SCORE)}")).startswith(
            b"HTTP/1.1 200"
        )


def _until(connection: socket.socket, end: bytes) -> bytes:
    """Read an answer, whose head and body may come apart."""
    answer = b""
    while not answer.endswith(end) and (more := connection.recv(4096)):
        answer += more
    return answer


def test_too_many_connections() -> None:
    """Idle ones make room for new ones; if all are busy, a new one is told to come again, and nobody loses."""
    judge = Length()
    with serving_rewards(Reward(judge, output="raw"), limits=Limits(connections=8)) as server:
        judge.asked, judge.release = [], threading.Event()
        place = (urlsplit(server.url).hostname, urlsplit(server.url).port)
        body = b'{"prompt": "a", "response": "xx"}'
        request = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        with contextlib.ExitStack() as stack:
            _idle = [stack.enter_context(socket.create_connection(place)) for _ in range(30)]
            busy = []
            for number in range(8):
                busy.append(stack.enter_context(socket.create_connection(place, timeout=20)))
                busy[-1].sendall(request)
                end = time.monotonic() + 20
                while server.app.batcher.waiting + len(judge.asked) <= number:  # it has arrived
                    assert time.monotonic() < end, number
                    time.sleep(0.01)
            refusal = httpx.post(server.url, content=body)
            judge.release.set()
            answers = [_until(each, b"2.0") for each in busy]
        assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "5")
        assert all(b" 200 " in answer and answer.endswith(b"2.0") for answer in answers)
        assert server.post("/", {"prompt": "a", "response": "xxx"}).json() == 3


def test_a_slow_answer_keeps_its_connection() -> None:
    with serving_rewards(Reward(Length(seconds=1.5), output="raw"), limits=Limits(idle=0.3)) as server:
        assert server.post("/score", {"prompts": ["a"], "responses": ["bb"]}).json()["rewards"] == [2.0]


def test_tokens_reach_no_log(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    caplog.set_level("DEBUG", "rmcalib")
    reward = Reward(Length(), output="raw", log=tmp_path)
    with serving_rewards(reward, token="sekret-token", limits=Limits(idle=0.5)) as server:
        for given in ("Bearer sekret-token", "Bearer wrong-sekret-token", "Basic c2Vrcw=="):
            exchange(server.url, request(SCORE, f"Authorization: {given}", f"Content-Length: {len(SCORE)}"))
        exchange(server.url, request(b"{", "Authorization: Bearer sekret-token", "Content-Length: 1"))
    written = "".join(path.read_text() for path in tmp_path.iterdir())
    assert written.count("\n") == 1
    assert "sekret" not in written + caplog.text

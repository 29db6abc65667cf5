"""Policies behind a server: against the same models loaded here, and servers that fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from rmcalib.judges import Judge, load_judge, scored_chunks
from rmcalib.judges._policies import judge as policies
from tests.judges.serving import Reply, Request, Server, serving
from tests.judges.test_policy import saved
from tests.judges.tiny import tiny_items

PATH = "/v1/completions"


@dataclass
class Completions:
    """Answers with `prompt_logprobs` as vLLM 0.32 does; the format is recorded from a real server."""

    models: dict[str, Any]
    kind: str = "vllm"
    faults: dict[int, Reply] = field(default_factory=dict)
    swap_after: int | None = None  # from this request on, another model answers

    def __call__(self, request: Request) -> Reply:
        if request.path == "/version":
            return Reply({"version": "0.32.0"})
        if request.path == "/v1/models":
            cards = [
                {"id": name, "object": "model", "owned_by": self.kind, "root": name, "max_model_len": 512}
                for name in self.models
            ]
            return Reply({"object": "list", "data": cards})
        if request.path != PATH:
            return Reply({"detail": "Not Found"}, 404)
        if request.number in self.faults:
            return self.faults[request.number]
        model = self.models[request.body["model"]]
        if self.swap_after is not None and request.number >= self.swap_after:
            model = next(other for other in self.models.values() if other is not model)
        ids = request.body["prompt"]
        with torch.no_grad():
            table = model(input_ids=torch.tensor([ids])).logits[0].log_softmax(1)
        entries = [None, *({str(ids[i]): logprob(table[i - 1, ids[i]])} for i in range(1, len(ids)))]
        choice = {"index": 0, "text": "a", "logprobs": None, "prompt_logprobs": entries}
        return Reply({"id": "x", "object": "text_completion", "model": "m", "choices": [choice]})


def logprob(value: Any) -> dict[str, Any]:
    return {"logprob": float(value), "rank": 1, "decoded_token": "a"}


@dataclass(frozen=True)
class Pair:
    """A policy and its base, in folders and in memory."""

    policy: str
    base: str
    models: dict[str, Any]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    home = tmp_path_factory.mktemp("policies")
    models = {str(home / name): saved(home / name, "llama", seed) for seed, name in enumerate(("p", "b"))}
    return Pair(str(home / "p"), str(home / "b"), models)


@pytest.fixture
def server(pair: Pair) -> Iterator[tuple[Completions, Server]]:
    answers = Completions(dict(pair.models))
    with serving(answers) as running:
        yield answers, running


def rewards(judge: Judge, n: int = 3) -> list[float]:
    return [value for chunk in scored_chunks(judge, tiny_items(n)) for one in chunk for value in one.rewards]


@pytest.mark.parametrize("way", [{"reference": True, "beta": 0.3}, {"reference_free": "mean"}])
def test_rewards_are_those_of_the_loaded_models(
    pair: Pair, server: tuple[Completions, Server], way: dict[str, Any]
) -> None:
    options = {**way, "reference": pair.base} if "reference" in way else way
    here = rewards(load_judge(pair.policy, device="cpu", **options))
    there = load_judge(pair.policy, endpoint=server[1].url, **options)
    assert rewards(there) == pytest.approx(here, abs=1e-4)
    identity = there.identity()
    assert identity["served"][0]["model"] == pair.policy
    assert server[1].url not in str(identity)


def test_two_servers_and_other_names(pair: Pair) -> None:
    here = rewards(load_judge(pair.policy, device="cpu", reference=pair.base))
    models = list(pair.models.values())
    with serving(Completions({"mine": models[0]})) as one, serving(Completions({"old": models[1]})) as other:
        judge = load_judge(
            pair.policy,
            reference=pair.base,
            endpoint=one.url,
            reference_endpoint=other.url,
            served_name="mine",
            reference_served_name="old",
        )
        assert rewards(judge) == pytest.approx(here, abs=1e-4)


def test_temporary_failures_are_retried(pair: Pair, server: tuple[Completions, Server]) -> None:
    answers, running = server
    answers.faults |= {0: Reply({}, 503), 2: Reply({}, 429, {"Retry-After": "0"}), 3: Reply(b"[", cut=True)}
    judge = load_judge(pair.policy, reference=pair.base, endpoint=running.url)
    assert len(rewards(judge, 2)) == sum(len(item.responses) for item in tiny_items(2))


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (Reply({"choices": [{"text": "a"}]}), "the answer has no prompt_logprobs of all tokens"),
        (Reply({"choices": [{"prompt_logprobs": [None]}]}), "1 log-probabilities for"),
        (Reply({"detail": "Not Found"}, 404), "policies need vLLM, started for text"),
    ],
)
def test_unusable_answers_are_errors(
    pair: Pair, server: tuple[Completions, Server], reply: Reply, message: str
) -> None:
    answers, running = server
    answers.faults |= dict.fromkeys(range(100), reply)
    judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
    with pytest.raises(ValueError, match=message):
        rewards(judge)


def test_log_probabilities_that_overflow_are_refused(pair: Pair) -> None:
    answers = Completions(pair.models)

    def answer(request: Request) -> Reply:
        reply = answers(request)
        if request.path == PATH:
            for entry in reply.body["choices"][0]["prompt_logprobs"][1:]:
                entry |= {key: {"logprob": -1e308} for key in entry}
        return reply

    with serving(answer) as running:
        judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
        with pytest.raises(ValueError, match=r"no prompt_logprobs of all tokens \(OverflowError"):
            rewards(judge)


def test_other_servers_are_refused(pair: Pair) -> None:
    with serving(Completions(dict(pair.models), kind="sglang")) as running:
        judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
        with pytest.raises(ValueError, match="is sglang, which has no prompt_logprobs"):
            rewards(judge)


def test_a_model_that_is_replaced_is_noticed(
    pair: Pair, server: tuple[Completions, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "CHUNK", 1)
    answers, running = server
    answers.swap_after = len(tiny_items(1)[0].responses)
    judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
    with pytest.raises(ValueError, match="the log-probability of the same text has changed"):
        rewards(judge)


def test_a_longer_text_than_the_server_reads_is_refused(
    pair: Pair, server: tuple[Completions, Server]
) -> None:
    judge = load_judge(pair.policy, reference_free="sum", endpoint=server[1].url, max_length=600)
    with pytest.raises(ValueError, match="max_length: 600 is more than the 511 tokens"):
        rewards(judge)

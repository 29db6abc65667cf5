"""Policies as judges: against one text at a time through the stock model, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rmcalib.judges import Judge, load_judge
from rmcalib.judges import _language as logprobs
from rmcalib.judges import _policy as policies
from rmcalib.judges._judge import about_judge, scored_chunks
from rmcalib.judges._policy import trained_beta
from rmcalib.judges._templates import encode, response_starts
from rmcalib.scores.scale import as_scale
from tests.judges.serving import Reply, Request, Server, serving
from tests.judges.tiny import ARCHITECTURES, tiny_items, tiny_tokenizer


def saved(folder: Path, architecture: str, seed: int) -> Any:
    kind, sizes = ARCHITECTURES[architecture]
    torch.manual_seed(seed)
    make: Any = AutoModelForCausalLM
    changes = {"final_logit_softcapping": 3.0} if kind == "gemma2" else {}
    model = make.from_config(AutoConfig.for_model(kind, vocab_size=400, **sizes, **changes)).eval().float()
    for parameter in model.parameters():  # far from zero, so that mistakes are visible
        torch.nn.init.normal_(parameter, std=0.2) if parameter.ndim > 1 else None
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model


def slow(model: Any, prompt: str, response: str) -> tuple[float, int]:
    """Sum the log-probabilities of the response's tokens, one text at a time, from all logits."""
    tokenizer = tiny_tokenizer()
    before = tokenizer(f"<s><|user|>{prompt}<|end|>", add_special_tokens=False)["input_ids"]
    after = tokenizer(f"<|assistant|>{response}<|end|>", add_special_tokens=False)["input_ids"]
    ids = torch.tensor([before + after])
    with torch.no_grad():
        table = model(input_ids=ids).logits[0].double().log_softmax(1)
    values = [float(table[at - 1, ids[0, at]]) for at in range(len(before), ids.shape[1])]
    return sum(values), len(values)


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
def test_rewards_are_those_of_a_direct_computation(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logprobs, "_LOGITS_AT_ONCE", 400 * 7)  # blocks of seven positions
    policy = saved(tmp_path / "policy", architecture, 0)
    base = saved(tmp_path / "base", architecture, 1)
    items = tiny_items(4)
    common: dict[str, Any] = {"device": "cpu", "token_budget": 64}
    name = str(tmp_path / "policy")
    dpo = load_judge(name, reference=str(tmp_path / "base"), beta=0.3, **common)
    total = load_judge(name, reference_free="sum", **common)
    mean = load_judge(name, reference_free="mean", beta=2, **common)
    assert (as_scale(dpo.scale).kind, as_scale(total.scale).assumed) == ("utility", True)
    cases: list[tuple[Judge, Callable[[Any, Any], float]]] = [
        (dpo, lambda p, b: 0.3 * (p[0] - b[0])),
        (total, lambda p, _: p[0]),
        (mean, lambda p, _: 2 * p[0] / p[1]),
    ]
    for judge, reward in cases:
        scored = [each for chunk in judge.score(items) for each in chunk]
        for item, got in zip(items, scored, strict=True):
            texts = [(str(item.prompt), response) for response in item.responses]
            expected = [reward(slow(policy, *text), slow(base, *text)) for text in texts]
            assert got.rewards == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_identity_has_beta_and_both_models(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    name = str(tmp_path / "policy")
    judge = load_judge(name, reference=name, device="cpu")
    identity = judge.identity()
    assert identity["beta"] == 0.1
    assert len(identity["models"]) == 2
    assert [each.rewards for chunk in judge.score(tiny_items(1)) for each in chunk] == [
        pytest.approx([0.0] * len(tiny_items(1)[0].responses))
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"reference": "org/base", "reference_free": "sum"}, "reference"),
        ({"reference_free": "max"}, "reference_free"),
        ({"reference": "org/base", "beta": 0}, "beta"),
        ({"beta": 0.1, "endpoint": "http://localhost:1"}, "reference"),
        ({"reference": "org/base", "served_name": "x"}, "served_name"),
        ({"reference": "org/base", "reference_endpoint": "http://x"}, "reference_endpoint"),
        ({"reference": "a/b", "endpoint": "http://localhost:1", "dtype": "float32"}, "dtype"),
    ],
)
def test_what_is_refused(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        load_judge("org/policy", **options)


def test_an_unsupported_way_to_compute_logits_is_noticed(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    judge: Any = load_judge(str(tmp_path / "policy"), reference_free="sum", device="cpu")
    model = judge.models[0]
    model.model.config.logit_scale = 3.0  # llama does not read it, so that the two ways differ
    with pytest.raises(ValueError, match="llama"):
        logprobs._check_logits(model)


def adapter_on(base: Path, folder: Path) -> Any:
    """Save a LoRA adapter on a language model; return the model with the adapter."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(5)
    make: Any = AutoModelForCausalLM
    model = make.from_pretrained(base).eval()
    wrapped: Any = get_peft_model(
        model, LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"])
    )
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    wrapped.save_pretrained(folder)
    return wrapped.eval()


def test_an_adapter_has_its_base_as_reference(tmp_path: Path) -> None:
    base = saved(tmp_path / "base", "llama", 0)
    policy = adapter_on(tmp_path / "base", tmp_path / "adapter")
    (tmp_path / "adapter" / "dpo_config.json").write_text('{"beta": 0.25}')
    items = tiny_items(3)
    name, reference = str(tmp_path / "adapter"), str(tmp_path / "base")
    alone = load_judge(name, kind="policy", device="cpu", base=reference)
    named = load_judge(name, reference=reference, beta=0.25, device="cpu")
    free = load_judge(name, reference_free="sum", device="cpu", base=reference)
    for judge in (alone, named):
        scored = [each for chunk in judge.score(items) for each in chunk]
        for item, got in zip(items, scored, strict=True):
            texts = [(str(item.prompt), response) for response in item.responses]
            expected = [0.25 * (slow(policy, *text)[0] - slow(base, *text)[0]) for text in texts]
            assert got.rewards == pytest.approx(expected, rel=1e-4, abs=1e-4)
    first = next(iter(free.score(items)))[0]
    text = (str(items[0].prompt), items[0].responses[0])
    assert first.rewards[0] == pytest.approx(slow(policy, *text)[0], rel=1e-4)
    identity, about = alone.identity(), about_judge(alone)
    assert identity["models"][0]["base"].startswith(f"{reference}@")
    assert identity["reference"] == reference
    assert (about["beta"], about["beta_from"]) == (0.25, "dpo_config.json")
    assert about_judge(named)["beta_from"] == "option"


def test_a_whole_model_needs_a_reference(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    judge = load_judge(str(tmp_path / "policy"), beta=0.1, device="cpu")
    with pytest.raises(ValueError, match="reference"):
        judge.identity()


@pytest.mark.parametrize(
    ("file", "text", "beta"),
    [
        ("dpo_config.json", '{"beta": 0.05}', 0.05),
        ("training_args.yaml", "pref_beta: 0.2\n", 0.2),
        ("dpo_config.json", '{"beta": true}', None),
        ("dpo_config.json", '{"beta": -1}', None),
        ("dpo_config.json", "not json", None),
        ("config.json", '{"beta": 0.5}', None),  # an architecture's own parameter
        ("training_args.yaml", "!!python/object/apply:os.system ['true']", None),
    ],
)
def test_beta_is_read_from_the_files_of_training(
    tmp_path: Path, file: str, text: str, beta: float | None
) -> None:
    (tmp_path / file).write_text(text)
    assert trained_beta(tmp_path) == (None if beta is None else (beta, file))


def test_batches_change_nothing(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    judge: Any = load_judge(str(tmp_path / "policy"), reference_free="sum", device="cpu")
    model, items = judge.models[0], tiny_items(6)
    encoded = encode(items, model.tokenizer, max_length=judge._max_length, template=None)
    starts = response_starts(items, encoded, model.tokenizer, None)
    texts, begin = [text for row in encoded for text in row], [at for own in starts for at in own]
    together, alone = (model.logprobs(texts, begin, budget) for budget in (None, 1))
    for (one, count), (other, same) in zip(together, alone, strict=True):
        assert count == same
        assert one == pytest.approx(other, abs=1e-5 * max(count, 1))


# Behind a server

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
    assert identity["models"][0]["served_model"] == pair.policy
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


@pytest.mark.parametrize(
    "reply",
    [
        Reply({"choices": [{"text": "a"}]}),
        Reply({"choices": [{"prompt_logprobs": [None]}]}),
        Reply({"choices": [{"prompt_logprobs": [{"1": -1e308}] * 500}]}),
        Reply({"detail": "Not Found"}, 404),
    ],
)
def test_unusable_answers_are_errors(pair: Pair, server: tuple[Completions, Server], reply: Reply) -> None:
    answers, running = server
    answers.faults |= dict.fromkeys(range(100), reply)
    judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
    with pytest.raises(ValueError, match="vllm serve"):
        rewards(judge)


def test_other_servers_are_refused(pair: Pair) -> None:
    with serving(Completions(dict(pair.models), kind="sglang")) as running:
        judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
        with pytest.raises(ValueError, match="sglang"):
            rewards(judge)


def test_a_model_that_is_replaced_is_noticed(
    pair: Pair, server: tuple[Completions, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "CHUNK", 1)
    answers, running = server
    answers.swap_after = len(tiny_items(1)[0].responses)
    judge = load_judge(pair.policy, reference_free="sum", endpoint=running.url)
    with pytest.raises(ValueError, match=pair.policy):
        rewards(judge)


def test_a_longer_text_than_the_server_reads_is_refused(
    pair: Pair, server: tuple[Completions, Server]
) -> None:
    judge = load_judge(pair.policy, reference_free="sum", endpoint=server[1].url, max_length=600)
    with pytest.raises(ValueError, match="max_length"):
        rewards(judge)

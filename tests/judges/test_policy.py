"""Policies as judges: against one text at a time through the stock model, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from rmcalib.judges import Judge, LoadOptions, Recipe, load_judge
from rmcalib.judges._templates import encode, response_starts
from rmcalib.judges._judge import about_judge
from rmcalib.judges._policies import loading, logprobs, sharing
from rmcalib.judges._policy import trained_beta
from rmcalib.judges._logprobs import PromptScorer
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


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2", "gpt_neox"])
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
    assert (dpo.scale, total.scale) == ("log-utilities", "unknown")
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
    assert len(identity["revisions"]) == 2
    assert [each.rewards for chunk in judge.score(tiny_items(1)) for each in chunk] == [
        pytest.approx([0.0] * len(tiny_items(1)[0].responses))
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reference": "org/base", "reference_free": "sum"}, "reference: give either a reference model or"),
        ({"reference_free": "max"}, "reference_free: unknown 'max'"),
        ({"reference": "org/base", "beta": 0}, "beta: must be a positive number"),
        (
            {"beta": 0.1, "endpoint": "http://localhost:1"},
            "reference: give the model that training started from",
        ),
        ({"reference": "org/base", "compile": True}, "compile: has no effect"),
        ({"reference": "org/base", "served_name": "x"}, "served_name: has no effect without an endpoint"),
        ({"reference": "a/b", "endpoint": "http://localhost:1", "dtype": "float32"}, "the server decides"),
        ({"reference": "a/b", "endpoint": "http://localhost:1", "concurrency": 0}, "concurrency: must be at"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_judge("org/policy", **options)


def test_an_unsupported_way_to_compute_logits_is_noticed(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    judge: Any = load_judge(str(tmp_path / "policy"), reference_free="sum", device="cpu")
    model = judge.models[0]
    model.model.config.logit_scale = 3.0  # llama does not read it, so that the two ways differ
    with pytest.raises(ValueError, match="computes logits in a way"):
        logprobs.check_logits(model)


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
    alone = load_judge(name, kind="policy", device="cpu")
    named = load_judge(name, reference=reference, beta=0.25, device="cpu")
    free = load_judge(name, reference_free="sum", device="cpu")
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
    assert identity["base"].startswith(f"{reference}@")
    assert identity["reference"] == reference
    assert (about["beta"], about["beta_from"]) == (0.25, "dpo_config.json")
    assert about_judge(named)["beta_from"] == "option"


def test_a_whole_model_needs_a_reference(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    judge = load_judge(str(tmp_path / "policy"), beta=0.1, device="cpu")
    with pytest.raises(ValueError, match="is not a PEFT adapter, so give the model"):
        judge.identity()


@pytest.mark.parametrize(
    ("file", "text", "beta"),
    [
        ("dpo_config.json", '{"beta": 0.05}', 0.05),
        ("training_args.yaml", "pref_beta: 0.2\n", 0.2),
        ("train_config.json", '{"dpo": {"beta": 0.3}}', 0.3),
        ("README.md", "---\nlicense: mit\ntraining:\n  beta: 0.4\n---\n# Model\nbeta: 9\n", 0.4),
        ("README.md", "# Model\nbeta: 9\n", None),
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


def test_files_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dpo_config.json").write_text('{"beta": 0.1}')
    (tmp_path / "training_args.yml").write_text("beta: 0.2")
    with pytest.raises(
        ValueError, match=r"contradict each other \(dpo_config.json 0.1, training_args.yml 0.2\)"
    ):
        trained_beta(tmp_path)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma2", "gpt_neox"])
def test_a_shared_prompt_changes_nothing(architecture: str, tmp_path: Path) -> None:
    saved(tmp_path / "policy", architecture, 0)
    judge: Any = load_judge(str(tmp_path / "policy"), reference_free="sum", device="cpu")
    model, items = judge.models[0], tiny_items(6)
    encoded = encode(items, model.tokenizer, max_length=judge._max_length, template=None)
    starts = response_starts(items, encoded, model.tokenizer, None)
    scorer = PromptScorer(model)
    assert scorer.sharing is not None
    for texts, own in zip(encoded, starts, strict=True):
        shared = scorer.logprobs(texts, own)
        plain = logprobs.response_logprobs(model, texts, own)
        assert [count for _, count in shared] == [count for _, count in plain]
        for (one, count), (other, _) in zip(shared, plain, strict=True):
            assert one == pytest.approx(other, abs=1e-5 * max(count, 1))
    assert scorer.sharing is not None  # the check of the first prompt did not switch it off


def test_sharing_that_gives_wrong_results_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path / "policy", "llama", 0)
    judge: Any = load_judge(str(tmp_path / "policy"), reference_free="sum", device="cpu")
    expected = [each.rewards for chunk in judge.score(tiny_items(2)) for each in chunk]
    monkeypatch.setattr(sharing, "_shared", lambda _m, tree, _s, _h: [(-1.0, 1)] * len(tree.texts))
    other: Any = load_judge(str(tmp_path / "policy"), reference_free="sum", device="cpu")
    got = [each.rewards for chunk in other.score(tiny_items(2)) for each in chunk]
    assert got == [pytest.approx(rewards, abs=1e-4) for rewards in expected]


def test_code_of_another_repository_is_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path / "policy", "llama", 0)
    commit = "a" * 40
    seen: list[Any] = []

    def pin(name: str, folders: Any, known: Any) -> tuple[str, str]:
        seen.append((name, list(folders), dict(known)))
        return "org/code", commit

    monkeypatch.setattr("rmcalib.judges._files.pin_code", pin)
    name = str(tmp_path / "policy")
    _, asked = loading._found(name, LoadOptions(trust_remote_code=True))
    assert asked.code() == {"trust_remote_code": True, "code_revision": commit}
    assert seen == [(name, [tmp_path / "policy"] * 2, {})]
    assert loading._found(name, LoadOptions())[1].code()["code_revision"] is None


def test_code_needs_permission(tmp_path: Path) -> None:
    saved(tmp_path / "policy", "llama", 0)
    name = str(tmp_path / "policy")
    recipe = Recipe(name, trust_remote_code=True)
    judge = load_judge(name, reference_free="sum", recipe=recipe, device="cpu")
    with pytest.raises(ValueError, match="--trust-remote-code"):
        judge.identity()

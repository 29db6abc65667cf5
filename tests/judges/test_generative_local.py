"""Language models that judge, loaded here: against a direct computation with the stock model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from rmcalib.benchmarks import Item
from rmcalib.judges import load_judge
from rmcalib.judges._generative import GenerativeJudge
from rmcalib.judges._judge import scored_chunks
from rmcalib.judges._questions import Question
from tests.hub.tiny import tiny_config, tiny_tokenizer

ITEMS = [
    Item("a", "x", "Name a colour.", ("blue", "Tuesday", "It is 4."), 1),
    Item(
        "b", "x", ({"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}), ("é", ""), 1
    ),
]
YES_NO = """
version: 1
questions:
- {asks: correct, answer: token, labels: ["Y", "N"], user: "{{ prompt }} {{ response }} {{ labels }}"}
"""


def saved(folder: Path, architecture: str) -> Any:
    torch.manual_seed(0)
    make: Any = AutoModelForCausalLM
    model = make.from_config(tiny_config(architecture, max_position_embeddings=4096)).eval()
    for parameter in model.parameters():  # far from zero, so that mistakes are visible
        torch.nn.init.normal_(parameter, std=0.2) if parameter.ndim > 1 else None
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return model


def judge_of(folder: Path, judging: str, **options: Any) -> GenerativeJudge:
    judge = load_judge(str(folder), judging=judging, device="cpu", **options)
    assert isinstance(judge, GenerativeJudge)
    return judge


def slow(model: Any, question: Question, item: Item, texts: list[str], labels: str) -> Any:
    """The probabilities of labels, normalised: one question at a time, from all logits."""
    tokenizer = tiny_tokenizer()
    written = tokenizer.apply_chat_template(
        list(question.messages(item.prompt, texts)), tokenize=False, add_generation_prompt=True
    )
    ids = tokenizer(written, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        last = model(input_ids=ids).logits[0, -1].double().softmax(0)
    p = np.array([float(last[tokenizer.convert_tokens_to_ids(label)]) for label in labels])
    return p / p.sum()


@pytest.mark.parametrize("architecture", ["llama", "gpt_neox"])
def test_letters_are_those_of_a_direct_computation(architecture: str, tmp_path: Path) -> None:
    model = saved(tmp_path, architecture)
    judge = judge_of(tmp_path, "letter")
    question = judge.prompt.questions[0]
    for item, got in zip(ITEMS, (one for chunk in scored_chunks(judge, ITEMS) for one in chunk), strict=True):
        k = len(item.responses)
        expected = np.zeros(k)
        for order in judge._orders(item, question):
            p = slow(model, question, item, [item.responses[i] for i in order], "ABC"[:k])
            expected[order] += p / k
        assert np.exp(got.rewards) == pytest.approx(expected, abs=1e-5)
        assert sum(np.exp(got.rewards)) == pytest.approx(1)


def test_ratings_and_p_yes_are_those_of_a_direct_computation(tmp_path: Path) -> None:
    model = saved(tmp_path / "lm", "llama")
    (tmp_path / "words.yaml").write_text(YES_NO)
    rating = judge_of(tmp_path / "lm", "rating")
    yes_no = judge_of(tmp_path / "lm", "yes-no", judge_prompt=tmp_path / "words.yaml")
    (graded,), (checked,) = (
        [one for c in scored_chunks(j, ITEMS[:1]) for one in c] for j in (rating, yes_no)
    )
    for number, text in enumerate(ITEMS[0].responses):
        grades = slow(model, rating.prompt.questions[0], ITEMS[0], [text], "123456789")
        p_yes = slow(model, yes_no.prompt.questions[0], ITEMS[0], [text], "YN")[0]
        assert graded.rewards[number] == pytest.approx(grades @ np.arange(1, 10), abs=1e-4)
        assert checked.details["p_yes"][number] == pytest.approx(p_yes, abs=1e-5)
        assert checked.rewards[number] == pytest.approx(np.log(p_yes / (1 - p_yes)), abs=1e-4)


def test_votes_are_seeded(tmp_path: Path) -> None:
    saved(tmp_path / "lm", "llama")
    (tmp_path / "words.yaml").write_text(
        "version: 1\nquestions:\n- {asks: best, answer: text, pattern: '([A-Z])', max_tokens: 25, "
        "user: '{{ prompt }} {{ responses }}', each: '{{ label }}: {{ response }}'}\n"
    )

    def votes(seed: int) -> list[Any]:
        options = {"judge_prompt": tmp_path / "words.yaml", "votes": 4, "judge_seed": seed}
        judge = judge_of(tmp_path / "lm", "votes", **options)
        torch.manual_seed(seed + 17)  # must not matter
        return [one for chunk in scored_chunks(judge, ITEMS) for one in chunk]

    first = votes(0)
    assert [one.rewards for one in first] == [one.rewards for one in votes(0)]
    assert sum(sum(one.details["votes"]) for one in first) > 0
    for item, got in zip(ITEMS, first, strict=True):
        assert sum(got.details["votes"]) + got.details["unread"][0] == 4
        n, k = sum(got.details["votes"]), len(item.responses)
        assert np.exp(got.rewards) == pytest.approx((np.array(got.details["votes"]) + 0.5) / (n + 0.5 * k))


def test_labels_without_a_token_and_long_questions_are_refused(tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    with pytest.raises(ValueError, match="'Yes'"):
        list(judge_of(tmp_path, "yes-no").score(ITEMS))
    with pytest.raises(ValueError, match="max_characters"):
        list(judge_of(tmp_path, "letter", max_length=64).score(ITEMS))


def test_identity_is_known_without_the_weights(tmp_path: Path) -> None:
    saved(tmp_path, "llama")
    judge = judge_of(tmp_path, "letter")
    asked = judge.asked()
    assert asked["judge_prompt_version"] == "1"
    assert "model" not in judge.__dict__
    assert judge.identity()["revision"] == asked["revision"]
    assert judge.about()["device"] == "cpu"

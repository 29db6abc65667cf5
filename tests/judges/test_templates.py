from __future__ import annotations

import datetime
from typing import Any

import pytest

from rmcalib.benchmarks import Item
from rmcalib.judges._templates import common_prefix, encode, render
from tests.judges.tiny import tiny_tokenizer

ROBIN = (
    "A chat between a curious human and an artificial intelligence assistant. The assistant gives helpful, "
    "detailed, and polite answers to the human's questions."
)


def item(prompt: Any, *responses: str) -> Item:
    return Item("x", "c", prompt, responses, 1)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("raw", "PR"),
        ("oasst_pythia", "<|prompter|>P<|endoftext|><|assistant|>R<|endoftext|>"),
        ("mistral", "[INST] P [/INST] R</s>"),
        ("Yi-34b-chat", "<|im_start|>user\nP<|im_end|>\n<|im_start|>assistant\nR<|im_end|>\n"),
        ("pku-align", "BEGINNING OF CONVERSATION: USER: P ASSISTANT: R "),
        ("openbmb", "User: P\n\nAssistant: R\n\n"),
        ("Ziya", "\n\nHuman: P\n\nAssistant: R\n\n"),
        ("Robin", f"{ROBIN}\n###Human:\nP\n###Assistant:\nR\n"),
    ],
)
def test_named_templates_write_the_published_texts(template: str, text: str) -> None:
    assert render("P", "R", template=template) == text


def test_turns_alternate_and_a_system_text_leads() -> None:
    turns = (
        {"role": "system", "content": "S"},
        {"role": "user", "content": "P1"},
        {"role": "assistant", "content": "R1"},
        {"role": "user", "content": "P2"},
    )
    assert render(turns, "R2", template="mistral") == "[INST] S\n\nP1 [/INST] R1</s>[INST] P2 [/INST] R2</s>"
    assert render(turns, "R2", template="Robin").startswith("S\n###Human:\nP1\n")
    assert render(turns, "R2", template="Yi-34b-chat").startswith("<|im_start|>system\nS<|im_end|>\n")
    assert render(turns, "R2", tiny_tokenizer()).endswith("<|user|>P2<|end|><|assistant|>R2<|end|>")


def test_templates_get_a_fixed_date() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = (
        "{%- set date_string = strftime_now('%d %b %Y') %}\n"
        "Today: {{ date_string }}|{{ messages[0].content }}"
    )
    assert render("P", "R", tokenizer) == "Today: 26 Jul 2024|P"
    tokenizer.chat_template = "{{ strftime_now('%Y-%m-%d') }} {{ messages[0].content }}"
    assert render("P", "R", tokenizer) == "2024-07-26 P"
    assert datetime.datetime.now().year > 2024


def test_a_template_that_takes_too_long_is_given_up_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RMCALIB_TIMEOUT", "1")
    tokenizer = tiny_tokenizer()
    loops = "{% for _ in range(99999) %}{% for _ in range(400) %}{% endfor %}{% endfor %}"
    tokenizer.chat_template = "x{% if 'slow' in messages[-1].content %}" + loops + "{% endif %}"
    with pytest.raises(ValueError, match="item 'x', response 1"):
        encode([item("P", "fast", "slow")], tokenizer, max_length=99)


def test_a_doubled_bos_is_dropped_and_a_single_one_kept() -> None:
    prompt = item("it is", "not")
    (twice,) = encode([prompt], tiny_tokenizer(bos_twice=True), max_length=99)
    (once,) = encode([prompt], tiny_tokenizer(bos_twice=False), max_length=99)
    assert twice == once
    assert twice[0].input_ids.count(1) == 1
    tokenizer = tiny_tokenizer(bos_twice=True)
    (raw,) = encode([prompt], tokenizer, max_length=99, template="raw")
    assert raw[0].input_ids[0] == 1
    assert raw[0].input_ids.count(1) == 1


def test_truncation_is_flagged_and_keeps_what_the_tokenizer_appends() -> None:
    tokenizer = tiny_tokenizer(ends=True)
    whole, short = item("it is", "what you think " * 20, "no"), item("it is", "a", "b")
    cut, kept = encode([whole, short], tokenizer, max_length=20)
    assert [e.truncated for e in cut] == [True, False]
    assert [e.truncated for e in kept] == [False, False]
    assert len(cut[0]) == 20
    (full,) = encode([whole], tokenizer, max_length=10_000)
    assert cut[0].input_ids == (*full[0].input_ids[:19], 2)
    (reward_token,) = encode([whole], tiny_tokenizer(), max_length=20, append=7)
    assert len(reward_token[0]) == 20
    assert all(e.input_ids[-1] == 7 for e in reward_token)


def test_a_text_without_any_token_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'x'"):
        encode([item("", "", "a")], tiny_tokenizer(bos_twice=False), max_length=9, template="raw")


def test_odd_texts_are_encoded() -> None:
    odd = item("NUL \0 and \U0001f642 and \ud800 alone", "", " \n", "\0", "e\u0301" * 10, "x" * 200_000)
    (encoded,) = encode([odd], tiny_tokenizer(), max_length=100)
    assert [e.truncated for e in encoded] == [False, False, False, False, True]
    assert "\ufffd alone" in render(odd.prompt, "", tiny_tokenizer())


def test_the_prefix_is_what_all_responses_share() -> None:
    prompt = item("what is the answer", "yes", "yes it is", "no")
    (encoded,) = encode([prompt], tiny_tokenizer(), max_length=99)
    assert len({e.prefix_len for e in encoded}) == 1
    assert common_prefix([list(e.input_ids) for e in encoded]) == encoded[0].prefix_len > 5

"""Texts with a policy's template in them are taken apart, or refused."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rmcalib.live.policy import PolicyTexts
from tests.hub.tiny import tiny_tokenizer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WITH_DEFAULT = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nBe helpful.<|im_end|>\n{% endif %}" + CHATML
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{% set first = messages[0].content + '\n\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
    "{% for m in rest %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
    "{{ first if loop.first else '' }}{{ m.content }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
    "{% elif m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)
TEMPLATES = {"chatml": CHATML, "default": WITH_DEFAULT, "llama": LLAMA, "gemma": GEMMA, "mistral": MISTRAL}
CONTENT = st.text("ab <|im_end|>\n", min_size=1, max_size=12).map(lambda text: f"x{text.strip()}y")


@functools.cache
def policy(name: str) -> PolicyTexts:
    return PolicyTexts(tiny_tokenizer(chat_template=TEMPLATES[name]))


@pytest.mark.parametrize("name", TEMPLATES)
@given(
    turns=st.lists(CONTENT, min_size=1, max_size=5),
    system=st.none() | CONTENT,
    response=CONTENT,
    ended=st.booleans(),
)
def test_a_query_with_its_prompt_is_taken_apart(
    name: str, turns: list[str], system: str | None, response: str, ended: bool
) -> None:
    texts = policy(name)
    assume(len(turns) % 2 == 1)
    messages: list[dict[str, str]] = []
    if system is not None and name not in ("gemma", "mistral"):
        messages.append({"role": "system", "content": system})
    messages += [{"role": ("user", "assistant")[n % 2], "content": one} for n, one in enumerate(turns)]
    prompt = texts.render(messages, header=True)
    closing = texts.marks.end.rstrip() if ended else ""
    lead = " " if name == "mistral" else ""  # its template writes a space before the answer
    asked, answer = texts.pair(f"{prompt}{lead}{response}{closing}", prompt, "query 0")
    assert texts.render(list(asked), header=True) == prompt  # type: ignore[arg-type]
    assert answer == response
    marked = any(mark in one for one in [*turns, system or ""] for mark in ("<|im", "INST", "_turn", "eot"))
    if not marked:
        assert asked == tuple(messages)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_whole_text_is_taken_apart_if_that_is_certain(name: str) -> None:
    texts = policy(name)
    messages = [
        {"role": role, "content": f"{role} {n}"}
        for n, role in enumerate(("user", "assistant", "user", "assistant"))
    ]
    asked, answer = texts.pair(texts.render(messages), None, "text 0")
    assert (asked, answer) == (tuple(messages[:-1]), "assistant 3")


@pytest.mark.parametrize("name", TEMPLATES)
def test_other_texts_are_refused_with_the_mismatch(name: str) -> None:
    texts = policy(name)
    prompt = texts.render([{"role": "user", "content": "Why?"}], header=True)
    for query, given_prompt in ((f"{prompt}x", prompt[:-1]), ("x" + prompt, prompt), ("Why? Because.", None)):
        with pytest.raises(ValueError, match="query 0"):
            texts.pair(query, given_prompt, "query 0")
    if name == "llama":  # it trims: the text was not written by it
        with pytest.raises(ValueError, match="character"):
            texts.pair(prompt.replace("Why?", " Why?") + "x", prompt.replace("Why?", " Why?"), "query 0")


def test_a_tokenizer_without_a_template_is_refused() -> None:
    tokenizer: Any = tiny_tokenizer(chat_template=None)
    with pytest.raises(ValueError, match="template"):
        PolicyTexts(tokenizer)

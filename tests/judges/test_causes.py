"""Why a server's rewards differ: the doctor names the cause, with the demo model behind a loopback server."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.benchmarks import Item
from rmcalib.judges import compare_served, load_judge
from rmcalib.judges._causes import canaries, explain
from rmcalib.judges._templates import TEMPLATES, text_ids
from tests.judges.reward_servers import SIGMOID
from tests.judges.serving import Reply, Request, serving

Ids = list[int]
MAPS: dict[str, Callable[[Any], Any]] = {
    "sigmoid": lambda r: 1 / (1 + np.exp(-r)),
    "tanh": np.tanh,
    "negated": lambda r: -r,
    "affine": lambda r: 0.4 * r + 2,
    "constant": lambda r: 0 * r + 1,
    "clipped": lambda r: np.clip(r, np.quantile(r, 0.3), np.quantile(r, 0.7)),
    "equal": lambda r: r + 1e-6,
    "not finite": lambda r: np.where(r == r.max(), np.nan, r),
}


@pytest.mark.parametrize("name", MAPS)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(2, 10), shift=st.floats(-2, 2))
def test_rules_on_numbers(name: str, seed: int, scale: float, shift: float) -> None:
    expected = scale * np.random.default_rng(seed).normal(size=24) + shift
    if name in ("sigmoid", "tanh"):
        expected = np.clip(expected, -30, 30)
    assert explain(expected, MAPS[name](expected)).name == name


@given(seed=st.integers(0, 2**32 - 1), digits=st.integers(0, 2))
def test_rounding_and_truncation(seed: int, digits: int) -> None:
    rng = np.random.default_rng(seed)
    expected, lengths = 4 * rng.normal(size=24), rng.integers(10, 500, size=24)
    assert explain(expected, expected.round(digits)).name == "rounded"
    given = np.where(lengths > 200, expected + rng.normal(size=24) + 0.5, expected)
    if (lengths > 200).sum() > 3 and (lengths <= 200).sum() > 4 and np.abs(given - expected).max() > 0.2:
        assert explain(expected, given, lengths).name == "truncated"


def test_canaries_are_short_long_unusual_and_of_two_turns() -> None:
    items = canaries(512)
    kinds = {item.category for item in items}
    assert kinds == {"short", "turns", "unusual", "long"}
    assert max(len(text) for item in items for text in item.responses) > 3 * 512 - 1
    assert "long" not in {item.category for item in canaries()}


class Demo:
    """vLLM's API around the demo model, with a fault in the tokens or in the numbers."""

    def __init__(
        self,
        tokens: Callable[[Ids], Ids] = lambda ids: ids,
        numbers: Callable[[float], float] = lambda reward: reward,
        template: str | None = None,
    ) -> None:
        self.tokens, self.numbers, self.template = tokens, numbers, template
        self.judge: Any = demo_judge()

    def ids(self, messages: list[dict[str, str]]) -> Ids:
        tokenizer = self.judge.model.tokenizer
        if self.template is None:
            text = tokenizer.apply_chat_template(messages, tokenize=False)
        else:
            text = TEMPLATES[self.template].render(messages)
        return self.tokens(text_ids([text], tokenizer, max_length=512)[0][0])

    def __call__(self, request: Request) -> Reply:
        if request.path == "/v1/models":
            card = {"id": "demo", "owned_by": "vllm", "root": "demo", "max_model_len": 512}
            return Reply({"data": [card]})
        if request.path == "/tokenize":
            return Reply({"tokens": self.ids(request.body["messages"])})
        if request.path != "/classify":
            return Reply({}, 404)
        ids = self.ids(request.body["messages"])
        (reward,) = self.judge.score_texts([ids])
        value = self.numbers(reward) if request.body.get("use_activation") is False else SIGMOID(reward)
        row = {"index": 0, "label": "LABEL_0", "probs": [value], "num_classes": 1}
        return Reply({"data": [row], "usage": {"prompt_tokens": len(ids)}})


@functools.cache
def demo_judge() -> Any:
    judge: Any = load_judge("demo", device="cpu")
    judge.model  # noqa: B018
    return judge


def diagnosed(fault: Demo, **options: Any) -> Any:
    with serving(fault) as server:
        return compare_served("demo", server.url, concurrency=1, **options)


@pytest.mark.filterwarnings("ignore:.*counts.*tokens")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({}, "equal"),
        ({"numbers": lambda r: math.nan if r > 0 else r}, "not finite"),
        ({"numbers": lambda r: round(r, 2)}, "rounded"),
        ({"numbers": lambda r: float(round(r))}, "rounded"),
        ({"numbers": lambda r: 2 * r + 1}, "affine"),
        ({"numbers": lambda r: -r}, "negated"),
        ({"numbers": lambda r: max(r, -2.0)}, "clipped"),
        ({"tokens": lambda ids: [ids[0], *ids]}, "second bos"),
        ({"tokens": lambda ids: ids[1:]}, "missing bos"),
        ({"tokens": lambda ids: ids[:-1]}, "cut end"),
        ({"tokens": lambda ids: ids[:64]}, "truncated"),
        ({"numbers": SIGMOID}, "sigmoid"),
        ({"template": "openbmb"}, "template"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_doctor_names_the_cause(fault: dict[str, Any], cause: str) -> None:
    check = diagnosed(Demo(**fault))
    assert check.cause == cause
    assert check.healthy == (check.reward_difference < 0.01)


def test_noise_is_named() -> None:
    rng = np.random.default_rng(0)
    assert diagnosed(Demo(numbers=lambda r: r + rng.normal())).cause == "noise"


@pytest.mark.parametrize("cut", [lambda ids: ids[:64], lambda ids: ids[-64:]], ids=["end", "beginning"])
def test_a_server_that_cuts_is_refused_before_anything_is_scored(cut: Callable[[Ids], Ids]) -> None:
    with serving(Demo(tokens=cut)) as server:
        judge = load_judge("demo", endpoint=server.url, concurrency=1)
        with pytest.raises(ValueError, match=r"64 (tokens|of)"):
            judge.identity()


def test_another_count_of_tokens_is_a_warning() -> None:
    with serving(Demo(tokens=lambda ids: [ids[0], *ids])) as server:
        judge = load_judge("demo", endpoint=server.url, concurrency=1)
        with pytest.warns(UserWarning, match="tokenize_here"):
            judge.identity()


@pytest.mark.filterwarnings("ignore:.*counts.*tokens")
@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ({}, "equal"),
        ({"tokens": lambda ids: [ids[0], *ids]}, "second bos"),
        ({"tokens": lambda ids: ids[1:]}, "missing bos"),
        ({"template": "openbmb"}, "template"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_without_weights_tokens_are_compared(
    fault: dict[str, Any], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo_judge()
    monkeypatch.setattr("rmcalib.judges._model.load_model", lambda *_: pytest.fail("the weights were loaded"))
    check = diagnosed(Demo(**fault), weights=False)
    assert (check.cause, check.healthy) == (cause, cause == "equal")


def test_openrlhf_gets_the_beginning_of_text_token() -> None:
    """Its server tokenises without special tokens; the demo's tokenizer adds one."""
    judge = demo_judge()
    tokenizer = judge.model.tokenizer

    def answer(request: Request) -> Reply:
        if request.path == "/openapi.json":
            return Reply({"paths": {"/get_reward": {}}})
        if request.path != "/get_reward":
            return Reply({}, 404)
        ids = tokenizer(request.body["query"], add_special_tokens=False)["input_ids"]
        return Reply({"rewards": judge.score_texts(ids)})

    items = [Item("a", "", "What is 2 + 2?", ("4", "It is 5."), 1)]
    with serving(answer) as server:
        served = load_judge("demo", endpoint=server.url)
        (given,) = [one.rewards for chunk in served.score(items) for one in chunk]
    (own,) = [one.rewards for chunk in judge.score(items) for one in chunk]
    assert given == pytest.approx(own, abs=1e-4)


def test_the_command_says_why_and_proposes_nothing_after_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sys

    from rmcalib.cli import main

    monkeypatch.chdir(tmp_path)
    with serving(Demo(numbers=lambda r: -r)) as server:
        monkeypatch.setattr(
            sys,
            "argv",
            ["rmcalib", "doctor", "--model", "demo", "--endpoint", server.url, "-J", "concurrency=1"],
        )
        with pytest.raises(SystemExit) as ended:
            main()
    out = capsys.readouterr().out
    assert ended.value.code == 1
    assert "negated" in out
    assert "rmcalib eval" not in out

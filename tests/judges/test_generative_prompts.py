"""Prompts of judges and the reading of answers: what is refused, and properties of the numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.benchmarks import Item
from rmcalib.judges import _readings as reading
from rmcalib.judges import load_judge
from rmcalib.judges._generative import Cost, GenerativeJudge
from rmcalib.judges._questions import BUILT_IN, choice_of, read_prompt

USER = "user: '{{ prompt }} {{ responses }}', each: '{{ label }} {{ response }}'"
(LETTER,), (VOTES,) = (read_prompt(BUILT_IN / f"{name}.yaml").questions for name in ("letter", "votes"))
BEST = "version: 1\nquestions: [{asks: best, answer: token, " + USER + "}]"


def test_all_our_prompts_can_be_read() -> None:
    assert {path.stem for path in BUILT_IN.glob("*.yaml")} == {
        "letter",
        "yes-no",
        "rating",
        "votes",
        "rewardbench2",
    }
    for path in BUILT_IN.glob("*.yaml"):
        prompt = read_prompt(path)
        assert prompt.name == path.stem
        question = prompt.question_for(Item("a", "Math", "2 + 2?", ("4", "5"), 1))
        (_, user) = question.messages("2 + 2?", ["4", "5"] if question.asks == "best" else ["4"])
        assert "2 + 2?" in user["content"]
        assert "{{" not in user["content"]


ONE = (
    "version: 1\nquestions: [{asks: ASKS, answer: token, labels: LABELS, "
    "user: '{{ prompt }} {{ response }}'}]"
)


def one(asks: str, labels: str) -> str:
    return ONE.replace("ASKS", asks).replace("LABELS", labels)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[", ""),
        ("a: 1", "questions"),
        ("questions: [{}]", "version"),
        ("version: 1\nquestions: []", "questions"),
        ("version: 1\nquestions: [3]", "questions.0"),
        ("version: 1\nquestion: 1\nquestions: [{}]", "question is"),
        ("version: 1\nquestions: [{}]", "asks"),
        (BEST.replace("best", "worst"), "asks"),
        (BEST.replace("asks: best", "asks: [best]"), "asks"),
        (BEST.replace("token", "word"), "answer"),
        (BEST.replace("{{ responses }}", ""), "user: {{ responses }}"),
        (BEST.replace("{{ responses }}", "{{ responses }} {{ truth }}"), "{{ truth }}"),
        (BEST.replace("{{ label }}", ""), "each"),
        (BEST.replace("each:", "labels: [A, B], each:"), "labels"),
        (BEST.replace("each:", "temperature: 9, each:"), "temperature"),
        (BEST.replace("each:", "smoothing: 0, each:"), "smoothing"),
        (BEST.replace("each:", "max_tokens: 0.5, each:"), "max_tokens"),
        (BEST.replace("token", "text"), "pattern"),
        (BEST.replace("token", "text").replace("each:", "pattern: '(', each:"), "questions.0"),
        (one("correct", "[yes, no]"), "labels"),
        (one("rating", "[1, 10]"), "'10'"),
        (one("rating", "[good, bad]"), "good"),
        (one("rating", "[1, .nan]"), "labels"),
        ("version: [1]\nquestions: [{}]", "version"),
        ("version: 1\nname: &a [*a]\nquestions: [{}]", "name"),
    ],
)
def test_bad_prompt_files_are_refused_by_name(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"mine\.yaml") as caught:
        read_prompt(path)
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"judging": "essay"}, "judging"),
        ({"kind": "generative"}, "judging"),
        ({"judging": "letter", "votes": 3}, "votes"),
        ({"judging": "rating", "placements": 2}, "placements"),
        ({"judging": "votes", "votes": 0}, "votes"),
        ({"judging": "votes", "votes": "many"}, "votes"),
        ({"judging": "letter", "reference": "org/base"}, "reference"),
        ({"judging": "letter", "concurrency": 3}, "concurrency"),
        ({"judging": "letter", "endpoint": "http://h", "dtype": "float16"}, "dtype"),
        ({"judging": "letter", "endpoint": "http://h", "tokenize_here": True}, "tokenize_here"),
        ({"judging": "letter", "endpoint": "http://u:p@h"}, "RMCALIB_API_KEY"),
        ({"judging": "letter", "voles": 3}, "did you mean 'votes'"),
        ({"judging": "rating", "judge_prompt": "best.yaml"}, "best.yaml"),
        ({"judging": "votes", "judge_prompt": "best.yaml"}, "best.yaml"),
        ({"judging": "letter", "judge_prompt": "gone.yaml"}, "gone.yaml"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    options: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "best.yaml").write_text(BEST)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError) as caught:
        load_judge("org/lm", **options)
    assert named in str(caught.value)


def test_a_pattern_that_takes_forever_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmcalib.judges._questions._SEARCH_SECONDS", 0.3)
    (tmp_path / "mine.yaml").write_text(
        BEST.replace("token", "text").replace("each:", "pattern: '((?:a|a|b?a)+)$', each:")
    )
    question = read_prompt(tmp_path / "mine.yaml").questions[0]
    with pytest.raises(ValueError, match="pattern"):
        choice_of(question, "a" * 5000 + "!", "AB")


def test_too_many_responses_for_letters() -> None:
    judge = load_judge("org/lm", judging="letter")
    item = Item("many", "x", "?", tuple(map(str, range(27))), 1)
    with pytest.raises(ValueError, match="'many'"):
        judge.cost([item])  # type: ignore[attr-defined]


def test_costs_are_counted_without_asking() -> None:
    item = Item("a", "x", "?" * 400, ("a" * 400, "b" * 400), 1)

    def cost(**options: Any) -> Cost:
        judge = load_judge("org/lm", **options)
        assert isinstance(judge, GenerativeJudge)
        return judge.cost([item])

    letter, votes = cost(judging="letter"), cost(judging="votes", votes=5)
    assert (letter.requests, votes.requests) == (2, 5)
    assert (letter.answer_tokens, votes.answer_tokens) == (2, 5 * 2048)
    cut = cost(judging="letter", max_characters=4)
    assert letter.prompt_tokens - cut.prompt_tokens == 2 * 3 * 396 / 4


@settings(max_examples=40)
@given(
    k=st.integers(1, 12),
    count=st.none() | st.integers(1, 12),
    seed=st.integers(0, 5),
    name=st.sampled_from(["", "a", "\ud800"]),
)
def test_placements_are_balanced(k: int, count: int | None, seed: int, name: str) -> None:
    orders = reading.placements(k, count, seed=seed, item_id=name)
    assert len(orders) == min(count or k, k)
    assert (np.sort(orders, axis=1) == np.arange(k)).all()
    if len(orders) == k:  # each response is in each place once
        assert (np.sort(orders, axis=0) == np.arange(k)[:, None]).all()
    assert (orders == reading.placements(k, count, seed=seed, item_id=name)).all()


@given(k=st.integers(2, 6), seed=st.integers(0, 10_000))
def test_forecasts_sum_to_one_and_places_do_not_favour_anyone(k: int, seed: int) -> None:
    """A judge that depends only on places gives an even forecast."""
    rng = np.random.default_rng(seed)
    orders = reading.placements(k, None, seed=seed, item_id="a")
    by_place = np.tile(np.log(rng.dirichlet(np.ones(k))), (k, 1))
    found = reading.read_tokens(LETTER, by_place, np.zeros((k, k), bool), orders)
    assert np.exp(found.rewards) == pytest.approx(np.full(k, 1 / k))
    assert found.details["place"] == pytest.approx(np.exp(by_place[0]))
    logprobs = rng.normal(-5, 3, (k, k))
    found = reading.read_tokens(LETTER, logprobs, np.zeros((k, k), bool), orders)
    assert np.exp(found.rewards).sum() == pytest.approx(1)


@given(
    votes=st.lists(st.none() | st.integers(0, 2), max_size=12),
    smoothing=st.floats(0.01, 5),
)
def test_smoothed_fractions(votes: list[int | None], smoothing: float) -> None:
    found = reading.read_votes(replace(VOTES, smoothing=smoothing), votes, 3, np.array([[2, 0, 1]]))
    n = sum(vote is not None for vote in votes)
    for place, response in enumerate((2, 0, 1)):
        v = votes.count(place)
        assert np.exp(found.rewards[response]) == pytest.approx((v + smoothing) / (n + 3 * smoothing))
    assert (found.details["low"] <= found.details["high"]).all()


def test_more_votes_narrow_the_interval() -> None:
    orders = np.array([[0, 1]])
    few, many = (reading.read_votes(VOTES, [0, 1] * n, 2, orders).details for n in (2, 50))
    assert (few["high"] - few["low"] > 2 * (many["high"] - many["low"])).all()


def test_votes_about_one_response_at_a_time() -> None:
    correct = replace(VOTES, asks="correct", labels=("Yes", "No"), user="{{ prompt }} {{ response }}")
    found = reading.read_votes(correct, [0, 0, 1, None, None, None, None, None], 2)
    assert found.details["p_yes"].tolist() == [0.625, 0.5]
    assert found.rewards == pytest.approx([np.log(0.625 / 0.375), 0])
    rating = replace(correct, asks="rating", labels=("1", "2", "5"))
    assert reading.read_votes(rating, [0, 1, None, None, None, None], 2).rewards.tolist() == [1.5, 3.0]


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("Best: B", 1),
        ("best is **A**", None),
        ("Best: **A**", 0),
        ("Best: C", None),
        ("Best: A\nBest: B", 1),
        ("", None),
    ],
)
def test_reading_of_votes(text: str, choice: int | None) -> None:
    assert choice_of(VOTES, text, "AB") == choice

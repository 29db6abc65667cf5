"""The table of scores: what it holds, what it refuses, and its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.benchmarks import load_benchmark
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._files import columns_of

REWARDS = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0]])
OURS = ["item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated"]


def row(item: str, response: int, label: Any = None, reward: Any = 1.0, **more: Any) -> dict[str, Any]:
    return {
        "item_id": item,
        "category": "Math",
        "response": response,
        "label": label,
        "reward": reward,
    } | more


def equal(one: Scores, other: Scores) -> bool:
    left, right = one.to_pandas(), other.to_pandas()
    return list(left) == list(right) and left.equals(right)


def voted() -> Scores:
    return Scores.from_arrays(REWARDS, votes=[[3, 1, 0], [2, 2, 1]], ties=[1, 0], manifest={"model": "m"})


@pytest.mark.parametrize(
    ("correct", "expected"),
    [
        (None, [[1, 0, 0], [1, 0, 0]]),
        (2, [[0, 0, 1], [0, 0, 1]]),
        ([0, 1], [[1, 0, 0], [0, 1, 0]]),
        (np.array([[True, False, True], [False, False, False]]), [[1, 0, 1], [0, 0, 0]]),
        ([[0.5, 0.5, 0.0], [1.0, 0.25, np.nan]], [[0.5, 0.5, 0], [1, 0.25, np.nan]]),
    ],
)
def test_labels_of_arrays(correct: Any, expected: Any) -> None:
    scores = Scores.from_arrays(REWARDS, correct, ["Math", "Chat"])
    np.testing.assert_array_equal(scores.label, np.ravel(expected))
    assert scores.is_correct.tolist() == (np.ravel(expected) == 1).tolist()
    assert scores.reward.tolist() == REWARDS.ravel().tolist()
    assert scores.item_id.tolist() == ["0"] * 3 + ["1"] * 3
    assert scores.category.tolist() == ["Math"] * 3 + ["Chat"] * 3
    assert scores.response.tolist() == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"rewards": [1.0, 2.0]}, "rewards"),
        ({"rewards": [[1.0, np.nan]]}, "rewards"),
        ({"rewards": [[1.1e100, 0.0]]}, "reward"),
        ({"correct": 3}, "correct"),
        ({"correct": [0, -1]}, "correct"),
        ({"correct": [0, 1, 2]}, "correct"),
        ({"correct": [0.5, 1]}, "correct"),
        ({"correct": [[2.0, 0, 0], [0, 1, 0]]}, "label"),
        ({"category": ["Math"]}, "category"),
        ({"category": ["Math", ""]}, "category"),
        ({"category": ["Math", None]}, "category"),
        ({"item_id": ["a", "a\0"]}, "item_id"),
        ({"item_id": ["a", "a"]}, "item 'a'"),
        ({"cluster": ["a"]}, "cluster"),
        ({"ties": [0, 1]}, "ties"),
        ({"votes": [[1, 2, 3]]}, "votes"),
        ({"votes": [[1, 2, 3], [1, -2, 3]]}, "votes"),
    ],
)
def test_bad_arrays_are_named(arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Scores.from_arrays(**{"rewards": REWARDS, **arguments})


def test_all_problems_are_in_one_message() -> None:
    rows = [row("a", 0, 3.0, "high"), row("a", 1, 0.0, None), row("b", 0, reward=1.0, n_tokens=-7)]
    with pytest.raises(ValueError, match="test") as caught:
        Scores.from_columns(columns_of(rows), source="test")
    message = str(caught.value)
    assert all(part in message for part in ("label is 3.0", "reward is 'high'", "n_tokens"))
    with pytest.raises(ValueError, match="n_tokens is 1e"):  # too large for an integer
        Scores.from_columns(columns_of([row("a", 0, n_tokens=1e300)]))
    assert "2 values" in message  # of rewards
    assert "missing=" in message  # a remedy
    uneven = [row("a", 0), row("a", 2, category="Chat"), row("b", 0), row("b", 0)]
    with pytest.raises(ValueError, match="response 2 instead of 1") as caught:
        Scores.from_columns(columns_of(uneven))
    assert "category differs" in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"item_id": ["a"], "response": [0]}, "reward"),
        ({"item_id": ["a"], "response": [0], "reward": [1.0, 2.0]}, "lengths"),
        ({"item_id": [], "response": [], "reward": []}, "no scores"),
        ({"item_id": ["a"], "response": [0.5], "reward": [1.0]}, "response"),
        ({"item_id": ["a"], "response": [1], "reward": [1.0]}, "response 1 instead of 0"),
        ({"item_id": [["a"]], "response": [0], "reward": [1.0]}, "item_id"),
        ({"item_id": ["a"], "response": [0], "reward": [1.0], "ties": [1]}, "votes"),
        ({"item_id": ["a"], "response": [0], "reward": [10**400]}, "reward"),
        ({"item_id": ["a"], "response": [0], "reward": [1.0], "truncated": ["perhaps"]}, "truncated"),
        ({"item_id": ["a", "a"], "response": [0, 1], "beats": [[None, 0.9], [0.9, None]]}, "sum to 1"),
        ({"item_id": ["a", "a"], "response": [0, 1], "beats": [[None, 2.0], [0.9, None]]}, "beats"),
        ({"item_id": ["a", "a"], "response": [0, 1], "beats": [[None], [0.1, None]]}, "beats"),
    ],
)
def test_bad_columns_are_named(columns: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Scores.from_columns(columns)


def test_numbers_of_a_judge_are_details_and_texts_are_not() -> None:
    scores = Scores.from_columns(
        columns_of([row("a", 0, judge_x=0.5, judge_name="gpt"), row("a", 1, judge_x=None)])
    )
    assert list(scores.details) == ["x"]
    np.testing.assert_array_equal(scores.details["x"], [0.5, np.nan])
    assert scores.extra["judge_name"].tolist() == ["gpt", None]


def test_further_columns_can_be_written_whatever_they_hold(tmp_path: Path) -> None:
    values = {"hash": [2**80, 1], "mixed": ["a", 1], "flag": [True, None], "none": [None, None]}
    scores = Scores.from_columns({"item_id": ["a", "a"], "response": [0, 1], "reward": [1, 2]} | values)
    scores.to_parquet(tmp_path / "s.parquet")
    stored = load_scores(tmp_path / "s.parquet")
    assert stored.extra["hash"].tolist() == [str(2**80), "1"]
    assert {*stored.extra} == {*values}


def test_rows_may_come_in_any_order_and_prompts_may_have_any_labels() -> None:
    rows = [row("b", 1, 0, -2.0), row("a", 0, None, 7.0), row("b", 0, 1, 1.5), row("c", 0, 1), row("c", 1, 1)]
    scores = Scores.from_columns(columns_of([*rows, row("d", 0, 0), row("d", 1, 0)]))
    assert scores.item_id.tolist() == ["b", "b", "a", "c", "c", "d", "d"]
    assert scores.reward.tolist()[:3] == [1.5, -2.0, 7.0]
    assert scores.offsets.tolist() == [0, 2, 3, 5, 7]
    assert scores.n_tokens.tolist() == [-1] * 7
    assert scores.decided().item_id.tolist() == ["b", "b"]
    with pytest.raises(ValueError, match="no prompt"):
        scores.take([False, True, True, True]).decided()


def test_a_prompt_with_an_unknown_label_is_not_decided() -> None:
    scores = Scores.from_arrays([[1.0, 0.0, 2.0]], [[1.0, 0.0, np.nan]])
    with pytest.raises(ValueError, match="no prompt"):
        scores.decided()


@given(
    rewards=st.lists(st.lists(st.floats(-500, 500), min_size=3, max_size=3), min_size=1, max_size=4),
    temperature=st.floats(0.01, 100),
)
@settings(max_examples=50, deadline=None)
def test_probabilities_and_temperature(rewards: list[list[float]], temperature: float) -> None:
    scores = Scores.from_arrays(rewards, manifest={"hash": "1", "model": "m"})
    cooler = scores.at_temperature(temperature)
    assert np.array_equal(cooler.reward, scores.reward / temperature)
    assert (cooler.manifest["model"], cooler.manifest["temperature"]) == ("m", temperature)
    assert cooler.at_temperature(2.0).manifest["temperature"] == 2 * temperature
    p = np.exp(cooler.reward.reshape(-1, 3) - cooler.reward.reshape(-1, 3).max(axis=1, keepdims=True))
    np.testing.assert_allclose(cooler.probabilities.reshape(-1, 3), p / p.sum(axis=1, keepdims=True))


def test_pairs_at_a_temperature() -> None:
    scores = Scores.from_columns(
        {"item_id": ["a", "a"], "response": [0, 1], "beats": [[None, 0.9], [0.1, None]]}
    )
    assert scores.reward.tolist() == [0.9, 0.1]
    assert scores.scale.kind == "pairs"
    cooler = scores.at_temperature(2.0).pair_probabilities
    assert cooler is not None
    np.testing.assert_allclose(cooler[1:3], [0.75, 0.25])


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf"), 1e-320])
def test_invalid_temperatures(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature"):
        Scores.from_arrays(REWARDS).at_temperature(temperature)


def test_votes() -> None:
    scores = voted()
    assert scores.n_votes.tolist() == [5, 5]
    assert scores.label.tolist() == [1, 0, 0, 0.5, 0.5, 0]  # two responses share first place
    assert scores.decided().item_id.tolist() == ["0"] * 3
    assert scores.decided().votes is not None
    table = scores.to_pandas().drop(columns=["label", "is_correct"], errors="ignore")
    table["reward"] = table["reward"].astype(np.float32)
    assert load_scores(table).label.tolist() == scores.label.tolist()
    plain = Scores.from_arrays(REWARDS)
    assert plain.decided() is plain


def test_take_selects_prompts() -> None:
    taken = voted().take([False, True])
    assert (taken.n_items, taken.item_id[0], taken.manifest["model"]) == (1, "1", "m")
    assert taken.label.tolist() == [0.5, 0.5, 0]
    for bad, reason in (([True], r"bool of shape \(1,\)"), ([0, 1], "int64"), ([False] * 2, "none of the 2")):
        with pytest.raises(ValueError, match=reason):
            voted().take(bad)


@st.composite
def any_scores(draw: st.DrawFn) -> Scores:
    letters = st.characters(exclude_characters="\0", codec="utf-8")
    texts = st.text(letters, max_size=8).filter(str.strip)
    labels = st.sampled_from([0.0, 1.0, 0.25, np.nan]) if draw(st.booleans()) else st.sampled_from([0.0, 1.0])
    clusters, rows = draw(st.booleans()), []
    for name in draw(st.lists(texts, min_size=1, max_size=5, unique=True)):
        for i in range(draw(st.integers(1, 5))):
            more = {"n_tokens": draw(st.integers(0, 9999)), "truncated": draw(st.booleans()), "note": "é"}
            more |= {"cluster": f"of {name}"} if clusters else {}
            rows.append(row(name, i, draw(labels), draw(st.floats(-1e100, 1e100)), judge_x=0.5, **more))
    return Scores.from_columns(columns_of(rows), {"model": "org/rm", "note": "é"})


def write_jsonl(path: Path, scores: Scores) -> None:
    rows = zip(*(array.tolist() for array in scores.columns().values()), strict=True)
    named = (dict(zip(scores.columns(), row, strict=True)) for row in rows)
    known = ({key: value if value == value else None for key, value in row.items()} for row in named)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in known))


@given(scores=any_scores())
@settings(max_examples=20, deadline=None)
def test_every_format_keeps_everything(scores: Scores, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("formats")
    scores.to_parquet(folder / "s.parquet")
    write_jsonl(folder / "s.jsonl", scores)
    stored = load_scores(folder / "s.parquet")
    assert equal(stored, scores)
    assert {key: stored.manifest[key] for key in scores.manifest} == scores.manifest
    assert equal(load_scores(folder / "s.jsonl", scale="reward"), scores)
    table = scores.to_pandas()
    assert equal(load_scores(table, scale="reward"), scores)
    assert equal(Scores.from_parquet(folder / "s.parquet"), scores)


def test_the_columns_of_files(tmp_path: Path) -> None:
    Scores.from_arrays(REWARDS).to_parquet(tmp_path / "p.parquet")
    assert pq.read_schema(tmp_path / "p.parquet").names == OURS
    voted().to_parquet(tmp_path / "v.parquet")
    assert pq.read_schema(tmp_path / "v.parquet").names == [*OURS, "label", "votes", "ties"]
    assert pq.read_table(tmp_path / "v.parquet")["is_correct"].to_pylist() == [True] + [False] * 5
    assert equal(load_scores(tmp_path / "v.parquet"), voted())


def test_parts_of_scores_are_the_parts_of_their_benchmark() -> None:
    bench = load_benchmark("demo")
    ids = [item.id for item in bench.items]
    scores = Scores.from_arrays([[1.0, 0.0]] * len(ids), item_id=ids)
    for part in ("1/3", "2/3", "3/3"):
        own = scores.part(part)
        wanted = [item.id for item in load_benchmark("demo", part=part).items]
        assert own.item_id[own.offsets[:-1]].tolist() == wanted
    with pytest.raises(ValueError, match="4/3"):
        scores.part("4/3")

"""Scores from arrays and tables, at a temperature, and with people's votes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib.scores import Scores, load_scores
from rmcalib.scores._columns import COLUMNS, VOTE_COLUMNS
from tests.runs.small_runs import same

REWARDS = np.array([[2.0, 1.0, 0.0], [0.5, 3.0, -1.0]])
EVERYTHING = (*COLUMNS, *VOTE_COLUMNS)


def voted() -> Scores:
    return Scores.from_arrays(REWARDS, votes=[[3, 1, 0], [2, 2, 1]], ties=[1, 0], manifest={"model": "m"})


@pytest.mark.parametrize(
    ("correct", "expected"),
    [
        (0, [[1, 0, 0], [1, 0, 0]]),
        (2, [[0, 0, 1], [0, 0, 1]]),
        ([0, 1], [[1, 0, 0], [0, 1, 0]]),
        (np.array([[True, False, True], [False, True, False]]), [[1, 0, 1], [0, 1, 0]]),
    ],
)
def test_which_responses_are_correct(correct: Any, expected: list[list[int]]) -> None:
    scores = Scores.from_arrays(REWARDS, correct, ["Math", "Chat"])
    assert scores.is_correct.tolist() == np.array(expected, dtype=bool).ravel().tolist()
    assert scores.reward.tolist() == REWARDS.ravel().tolist()
    assert scores.item_id.tolist() == ["0"] * 3 + ["1"] * 3
    assert scores.category.tolist() == ["Math"] * 3 + ["Chat"] * 3
    assert scores.response.tolist() == [0, 1, 2] * 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rewards": [1.0, 2.0]}, "rewards: expected an array of 2 axes"),
        ({"rewards": [[1.0], [2.0]]}, "rewards: expected at least 2 responses"),
        ({"rewards": [[1.0, np.nan]]}, r"rewards: nan at index \(0, 1\)"),
        ({"rewards": [[1.0, "x"]]}, "rewards: expected numbers"),
        ({"correct": 3}, "correct: row 0 is 3, but responses are numbered 0 to 2"),
        ({"correct": [0, -1]}, "correct: row 1 is -1"),
        ({"correct": [0, 1, 2]}, r"correct: expected an index.*got shape \(3,\)"),
        ({"correct": [0.5, 1]}, "correct: 0.5 at index 0 is not a whole number"),
        ({"correct": [[True, False, False]]}, r"correct: expected shape \(2, 3\)"),
        ({"correct": np.ones((2, 3), dtype=bool)}, "item '0': no wrong response"),
        ({"category": ["Math"]}, "category: expected one for each of the 2 prompts, got 1"),
        ({"category": ["Math", ""]}, r"row 3 \(item '1'\): category is '', not a text"),
        ({"category": ["Math", None]}, r"row 3 \(item '1'\): category is empty"),
        ({"item_id": ["a", "a"]}, "item 'a', response 0"),
        ({"ties": [0, 1]}, "ties: give votes too"),
        ({"votes": [[1, 2, 3]]}, r"votes: expected shape \(2, 3\)"),
        ({"votes": [[1, 2, 3], [1, -2, 3]]}, r"row 4 \(item '1', response 1\): votes is -2"),
        ({"votes": [[1, 2, 3], [0, 0, 0]]}, "item '1': no correct response"),
    ],
)
def test_bad_arrays_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Scores.from_arrays(**{"rewards": REWARDS, **arguments})


def test_tables_round_trip() -> None:
    for scores in (Scores.from_arrays(REWARDS, [0, 1]), voted()):
        table = scores.to_pandas()
        assert list(table.columns) == list(COLUMNS if scores.votes is None else EVERYTHING)
        back = Scores.from_pandas(table.sample(frac=1.0, random_state=0).sort_values("item_id"))
        assert same(back, scores, tuple(table.columns))


def test_a_bad_table_is_named() -> None:
    table = Scores.from_arrays(REWARDS).to_pandas()
    with pytest.raises(ValueError, match="table: no column reward"):
        Scores.from_pandas(table.drop(columns="reward"))
    table["reward"] = table["reward"].astype(object)
    table.loc[4, "reward"] = "high"
    with pytest.raises(ValueError, match=r"table, row 4 \(item '1', response 1\): reward is 'high'"):
        Scores.from_pandas(table)
    assert Scores.from_pandas(pd.DataFrame(Scores.from_arrays(REWARDS).to_pandas())).n_items == 2


@given(temperature=st.floats(0.01, 100))
def test_a_temperature_divides_rewards(temperature: float) -> None:
    scores = Scores.from_arrays(REWARDS, manifest={"hash": "1", "model": "m"})
    cooler = scores.at_temperature(temperature)
    assert np.array_equal(cooler.reward, scores.reward / temperature)
    assert cooler.manifest == {"model": "m", "temperature": temperature}
    again = cooler.at_temperature(2.0)
    assert again.manifest["temperature"] == 2 * temperature


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_invalid_temperatures(temperature: float) -> None:
    with pytest.raises(ValueError, match=r"temperature: .* is not a positive finite number"):
        Scores.from_arrays(REWARDS).at_temperature(temperature)


@pytest.mark.parametrize("reward", [1.1e100, -1e308])
def test_rewards_too_large_to_compute_with_are_refused(reward: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"reward is .*e\+\d+, which is too large \(at most"):
        Scores.from_arrays([[reward, 0.0]])
    row = {"item_id": "a", "category": "x", "response": 0, "is_correct": True, "reward": reward}
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps(row))
    with pytest.raises(ValueError, match=r"s\.jsonl, line 1 \(item 'a', response 0\): reward is"):
        load_scores(path)


def test_votes_and_shares() -> None:
    scores = voted()
    assert scores.has_votes
    assert scores.n_votes.tolist() == [5, 5]
    assert scores.is_correct.tolist() == [True, False, False] + [False] * 3  # two responses have two votes
    assert np.allclose(scores.vote_shares(), [3 / 4, 1 / 4, 0, 2 / 5, 2 / 5, 1 / 5])
    assert np.allclose(scores.vote_shares(ties="keep"), [3 / 5, 1 / 5, 0, 2 / 5, 2 / 5, 1 / 5])
    split = scores.vote_shares(ties="split")
    assert np.allclose(split[:3], [(3 + 1 / 3) / 5, (1 + 1 / 3) / 5, 1 / 15])
    assert np.allclose(np.add.reduceat(split, scores.offsets[:-1]), 1)
    assert scores.decided().item_id.tolist() == ["0"] * 3
    assert scores.decided().votes is not None


def test_without_votes() -> None:
    scores = Scores.from_arrays(REWARDS)
    assert not scores.has_votes
    assert scores.n_votes.tolist() == [0, 0]
    assert np.isnan(scores.vote_shares()).all()
    assert scores.decided() is scores
    with pytest.raises(ValueError, match="ties: unknown 'half'"):
        scores.vote_shares(ties="half")  # type: ignore[arg-type]


def test_files_have_vote_columns_only_with_votes(tmp_path: Path) -> None:
    for name, write in (("v.parquet", Scores.to_parquet), ("v.jsonl", Scores.to_jsonl)):
        write(voted(), tmp_path / name)
        assert same(load_scores(tmp_path / name), voted(), EVERYTHING)
    Scores.from_arrays(REWARDS).to_parquet(tmp_path / "p.parquet")
    assert tuple(pq.read_schema(tmp_path / "p.parquet").names) == COLUMNS
    Scores.from_arrays(REWARDS).to_jsonl(tmp_path / "p.jsonl")
    first = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert tuple(first) == COLUMNS


def test_inconsistent_votes_are_refused() -> None:
    columns = voted().columns()
    with pytest.raises(ValueError, match="a column ties, but no column votes"):
        Scores.from_columns({name: columns[name] for name in columns if name != "votes"})
    uneven = columns["ties"].copy()
    uneven[1] = 7
    with pytest.raises(ValueError, match="item '0', response 1: its ties differ"):
        Scores.from_columns({**columns, "ties": uneven})
    without = {name: columns[name] for name in columns if name != "ties"}
    assert Scores.from_columns(without).ties is not None


def test_take_selects_prompts() -> None:
    taken = voted().take([False, True])
    assert (taken.n_items, taken.item_id[0], taken.manifest) == (1, "1", {"model": "m"})
    for bad in ([True], [0, 1], [False, False]):
        with pytest.raises(ValueError, match="items: expected 2 truth values"):
            voted().take(bad)


@pytest.mark.parametrize(
    ("field", "value"), [("item_id", ""), ("item_id", " "), ("category", ""), ("item_id", "a\ud800")]
)
def test_empty_and_invalid_names_are_refused(field: str, value: str) -> None:
    columns = Scores.from_arrays(REWARDS).columns()
    changed = [value if i == 2 else name for i, name in enumerate(columns[field].tolist())]
    with pytest.raises(ValueError, match=rf"row 2.*: {field} is .*, not a text"):
        Scores.from_columns({**columns, field: changed})

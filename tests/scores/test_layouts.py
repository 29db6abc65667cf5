"""One table in every layout gives the same scores; ratings of several people are votes."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib import apply, evaluate
from rmcalib.repair import Calibrator
from rmcalib.scores import Scores, load_scores
from rmcalib.scores._load import load_with_rows
from tests.scores.layouts import LAYOUTS, RECORDS, Record, rows
from tests.scores.test_rollouts import WRITERS

# A process with datasets takes long to write; the other layouts are tried on many tables.
QUICK = [name for name in LAYOUTS if not {"saved", "data", "xlsx"} & {*name.replace(".", "_").split("_")}]


def content(scores: Scores) -> dict[str, list[tuple[float, float]]]:
    """Return the rewards and labels of each prompt, in one order."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, reward, label in zip(scores.item_id.tolist(), scores.reward, scores.label, strict=True):
        found.setdefault(name, []).append((float(reward), float(label)))
    return {name: sorted(pairs) for name, pairs in found.items()}


def expected(records: list[Record]) -> dict[str, list[tuple[float, float]]]:
    return {name: sorted(zip(rewards, map(float, labels), strict=True)) for name, rewards, labels in records}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_scores(layout: str, tmp_path: Path) -> None:
    source, columns = LAYOUTS[layout](RECORDS, tmp_path)
    scores = load_scores(source, columns)
    assert content(scores) == expected(RECORDS)
    assert list(dict.fromkeys(scores.item_id.tolist())) == ["p7", "p9", "p8"]
    assert scores.labels == "best"


records_of = st.lists(
    st.lists(st.integers(-400, 400), min_size=2, max_size=4).flatmap(
        lambda rewards: st.tuples(st.just(rewards), st.integers(0, len(rewards) - 1))
    ),
    min_size=1,
    max_size=5,
)


@given(drawn=records_of, layout=st.sampled_from(QUICK))
@settings(max_examples=60, deadline=None)
def test_any_scores_in_any_layout(drawn: list[tuple[list[int], int]], layout: str) -> None:
    records = [
        (f"p{number}", [value / 4 for value in rewards], [int(i == best) for i in range(len(rewards))])
        for number, (rewards, best) in enumerate(drawn)
    ]
    with TemporaryDirectory() as folder:
        source, columns = LAYOUTS[layout](records, Path(folder))
        scores = load_scores(source, columns, scale="reward")
    assert content(scores) == expected(records)


@pytest.mark.parametrize("framework", WRITERS)
def test_a_folder_of_rollouts_with_one_reward(framework: str, tmp_path: Path) -> None:
    WRITERS[framework](tmp_path, 1)
    scores = load_scores(tmp_path)
    assert scores.reward.tolist() == [1, 2, 1, 2]
    assert scores.label.tolist() == [1, 0, 1, 0]
    assert load_scores(tmp_path, scale="rating").scale.kind == "rating"
    assert load_scores(tmp_path, labels_are="correct").labels == "correct"


def test_the_log_of_a_server_is_read_as_the_judges_own_rewards(tmp_path: Path) -> None:
    file, _ = LAYOUTS["server_log"](RECORDS, tmp_path)
    rewards = [reward for _, own, _ in RECORDS for reward in own]
    assert load_scores(tmp_path).reward.tolist() == load_scores(file).reward.tolist() == rewards
    assert load_scores(tmp_path, "reward=reward", scale="reward").reward.tolist() == [0.5] * len(rewards)


def test_other_fields_of_nested_objects_belong_to_responses() -> None:
    table = [
        {
            "id": 5,
            "answers": [{"id": "x", "score": 2.0, "tokens": 7}, {"id": "y", "score": 1.0, "tokens": 9}],
        },
        {"id": 6, "answers": [{"id": "x", "score": 0.5, "tokens": 3}]},
    ]
    scores = load_scores(table)
    assert scores.item_id.tolist() == ["5", "5", "6"]
    assert scores.extra["tokens"].tolist() == [7, 9, 3]
    assert scores.extra["answers_id"].tolist() == ["x", "y", "x"]
    assert load_with_rows(table).row.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"answers": [{"score": 1.0}, 5]}], "entry 0"),
        ([{"answers": [{"score": 1.0}]}, {"answers": []}], "entry 1"),
        ([{"answers": [{"score": 1.0}, {"correct": True}]}], "reward is None"),
        ([{"scores": [1.0, 2.0], "correct": [1]}], "correct"),
        ([{"scores": [1.0, 2.0], "rating_1": [5, 3, 2], "rating_2": [1, 2]}], "rating_1"),
        ([{"prompt": "a", "reward": 1.0, "rating_1": "good", "rating_2": 2}], "rating_1"),
        ([{"prompt": "a", "reward": 1.0}, 5], "from_arrays"),
        ([], "from_arrays"),
    ],
)
def test_bad_records_are_named(rows: list[Any], named: str) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        load_scores(rows)


def test_a_chat_of_as_many_messages_as_responses_is_a_prompt() -> None:
    chat = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    scores = load_scores([{"prompt": chat, "scores": [1.0, 2.0], "best": 1}])
    assert scores.n_items == 1
    assert scores.label.tolist() == [0, 1]


def test_several_splits_are_named(tmp_path: Path) -> None:
    import datasets

    data = datasets.Dataset.from_list(rows(RECORDS))
    both = datasets.DatasetDict({"train": data, "test": data})
    with pytest.raises(ValueError, match="train, test"):
        load_scores(both)
    both.save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match="train, test"):
        load_scores(tmp_path / "saved")
    assert content(load_scores(tmp_path / "saved" / "test")) == expected(RECORDS)


@pytest.mark.parametrize("name", ["data-00000-of-00001.arrow", "state.json"])
def test_damaged_data_sets_are_named(name: str, tmp_path: Path) -> None:
    source, _ = LAYOUTS["saved"](RECORDS, tmp_path)
    whole = (source / name).read_bytes()
    rng, refused = np.random.default_rng(0), []
    for _ in range(60):  # no damage ends the process
        damaged = bytearray(whole)
        damaged[int(rng.integers(len(whole)))] ^= 1 << int(rng.integers(8))
        (source / name).write_bytes(damaged)
        try:
            load_scores(source)
        except ValueError as error:
            refused.append(str(error))
    assert refused
    assert all("saved" in message for message in refused)
    (source / name).write_bytes(b"{}")
    with pytest.raises(ValueError, match="saved: damaged"):
        load_scores(source)


def test_excel_needs_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, _ = LAYOUTS["long.xlsx"](RECORDS, tmp_path)
    with pd.ExcelWriter(tmp_path / "two.xlsx") as book:
        for name in ("first", "second"):
            pd.DataFrame(rows(RECORDS)).to_excel(book, sheet_name=name, index=False)
    with pytest.raises(ValueError, match="first, second"):
        load_scores(tmp_path / "two.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match=r"long\.xlsx.*rmcalib\[excel\]"):
        load_scores(source)


# What `apply` returns


def test_numbers_of_a_file_stay_numbers(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "prompt_id,code,score,length,rate\n1,007,2.5,10,0.5\n1,008,0.5,,1\n2,009,1,12,\n"
    )
    table = apply(tmp_path / "x.csv", Calibrator(1.0, 0.9, 1.1)).table
    assert table["score"].tolist() == [2.5, 0.5, 1.0]
    assert table["prompt_id"].tolist() == [1, 1, 2]
    assert table["code"].tolist() == ["007", "008", "009"]
    assert table["length"].dtype.kind == table["rate"].dtype.kind == "f"
    assert load_scores(tmp_path / "x.csv").extra["rate"].dtype.kind == "f"
    texts = pd.DataFrame({"prompt": ["1", "1"], "score": [1.0, 2.0]})  # a frame has types of its own
    assert apply(texts, Calibrator(1.0, 0.9, 1.1)).table["prompt"].tolist() == ["1", "1"]


# Ratings of several people

RATED = pd.DataFrame(
    {
        "prompt": ["a", "a", "a", "b", "b", "c", "c"],
        "response_id": [0, 1, 2, 0, 1, 0, 1],
        "score": [1.0, 2.0, 0.0, 3.0, 4.0, 0.5, 0.25],
        "rating_1": [5, 3, 1, 2, 2, 4, 1],  # votes for a0 and c0, finds b alike
        "rating_2": [4, 4, 1, 3, 1, np.nan, 2],  # has two favourites of a, votes for b0, did not rate c0
        "rating_3": [1, 2, 3, 1, 5, 2, 2],  # votes for a2 and b1, finds c alike
    }
)
VOTES, TIES = [1, 0, 1, 1, 1, 1, 0], [0, 0, 0, 1, 1, 1, 1]


def by_people() -> pd.DataFrame:
    names = {"rating_1": "ann", "rating_2": "ben", "rating_3": "cy"}
    long = RATED.rename(columns=names).melt(
        ["prompt", "response_id", "score"], var_name="annotator", value_name="rating"
    )
    return long.sample(frac=1.0, random_state=5)


@pytest.mark.parametrize(
    ("source", "columns"),
    [
        (RATED, None),
        (RATED.rename(columns={"rating_1": "ann", "rating_2": "ben", "rating_3": "cy"}), "label=ann+ben+cy"),
        (by_people(), None),
        (by_people().dropna(), None),
        (by_people().rename(columns={"annotator": "who", "rating": "stars"}), "person=who,label=stars"),
        (
            RATED.groupby("prompt", as_index=False).agg(list).rename(columns={"score": "scores"}),
            None,
        ),
    ],
    ids=["columns", "named", "rows", "gaps", "named rows", "lists"],
)
def test_each_person_votes_for_the_response_that_they_rate_highest(source: Any, columns: str | None) -> None:
    scores = load_scores(source, columns)
    assert scores.votes is not None
    assert scores.ties is not None
    order = np.lexsort((scores.response, scores.item_id))
    assert scores.reward[order].tolist() == RATED["score"].tolist()
    assert scores.votes[order].tolist() == VOTES
    assert scores.ties[order].tolist() == TIES
    assert scores.labels == "votes"
    (note,) = scores.manifest["notes"]
    assert "5 votes" in note


def test_winners_of_several_people() -> None:
    table = pd.DataFrame(
        {"reward_a": [1.0, 2.0], "reward_b": [0.5, 3.0], "ann": ["a", "tie"], "ben": ["b", "b"]}
    )
    scores = load_scores(table, "label=ann+ben")
    assert scores.votes is not None
    assert scores.ties is not None
    assert scores.votes.tolist() == [1, 1, 0, 1]
    assert scores.ties.tolist() == [0, 0, 1, 1]


def test_a_label_comes_before_ratings_and_reward_columns_are_no_people() -> None:
    assert load_scores(RATED.assign(is_best=[1, 0, 0, 1, 0, 1, 0])).votes is None
    wide = pd.DataFrame({"reward_a": [1.0], "reward_b": [2.0], "rating_1": [3], "rating_2": [4]})
    assert load_scores(wide).votes is None  # of two people, or of two responses?
    lists = [{"prompt": "a", "scores": [1.0, 2.0], "ann": 1, "ben": 2}]
    with pytest.raises(ValueError, match="ann and ben"):
        load_scores(lists, "label=ann+ben")


def test_people_who_contradict_themselves_are_named() -> None:
    long = by_people()
    again = pd.concat([long, long.iloc[[0]]])
    with pytest.raises(ValueError, match=f"annotator is '{long['annotator'].iloc[0]}'"):
        load_scores(again)
    long.loc[long.index[-1], "score"] = 77.0
    with pytest.raises(ValueError, match=r"score is .*77"):
        load_scores(long)


@given(seed=st.integers(0, 10_000), n=st.integers(1, 6), m=st.integers(1, 4), people=st.integers(2, 5))
@settings(max_examples=40, deadline=None)
def test_votes_by_direct_counting(seed: int, n: int, m: int, people: int) -> None:
    rng = np.random.default_rng(seed)
    ratings = rng.integers(1, 4, size=(n, m, people)).astype(float)
    ratings[rng.random(ratings.shape) < 0.1] = np.nan
    table = pd.DataFrame({"prompt": np.repeat(np.arange(n), m), "reward": rng.normal(size=n * m)})
    for person in range(people):
        table[f"rating_{person}"] = ratings[:, :, person].ravel()
    scores = load_scores(table, scale="reward")
    votes, ties = np.zeros((n, m), int), np.zeros(n, int)
    for prompt in range(n):
        for person in range(people):
            given = ratings[prompt, :, person]
            if m < 2 or np.isnan(given).any():
                continue
            first = np.flatnonzero(given == given.max())
            if len(first) == 1:
                votes[prompt, first[0]] += 1
            ties[prompt] += len(first) == m
    assert scores.votes is not None
    assert scores.ties is not None
    assert scores.votes.tolist() == votes.ravel().tolist()
    assert scores.ties.tolist() == np.repeat(ties, m).tolist()


# Columns that nothing used, and names that look alike


def test_columns_that_could_be_labels_are_named() -> None:
    table = pd.DataFrame(
        {"prompt": ["a", "a"], "score": [1.0, 2.0], "verified": ["yes", "no"], "source": ["web", "book"]}
    )
    with pytest.raises(ValueError, match="label=verified") as caught:
        evaluate(table)
    assert "source" in str(caught.value)
    assert evaluate(load_scores(table, "label=verified"), resamples=20).value("accuracy") == 0


def test_ids_and_categories_that_look_alike_are_named() -> None:
    both = load_scores([{"id": 1, "reward": 1.0}, {"id": "1", "reward": 2.0}])
    assert both.n_items == 1
    (note,) = both.manifest["notes"]
    assert note.startswith("id: 1 ")
    for one, other in [("Math", "Math "), ("1", "1.0"), ("\u00e9", "e\u0301"), ("a\u00a0b", "a b")]:
        alike = load_scores(
            [{"id": 1, "reward": 1.0, "category": one}, {"id": 2, "reward": 2.0, "category": other}]
        )
        (note,) = alike.manifest["notes"]
        assert ascii(one) in note
        assert ascii(other) in note
    assert load_scores(pd.DataFrame(rows(RECORDS))).manifest.get("notes") is None

"""Any scores in: files and frames of other people, long and wide, with every kind of label."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.scores import Scores, load_all_scores, load_scores
from rmcalib.scores._load import load_with_rows

LONG = pd.DataFrame(
    {
        "prompt_id": [7, 7, 9, 9, 9],
        "response_id": ["a", "b", "a", "b", "c"],
        "score": [1.5, -0.5, 0.25, 3.0, -2.25],
        "is_best": [False, True, False, False, True],
    }
)
REWARDS = LONG["score"].tolist()
BEST = [0.0, 1.0, 0.0, 0.0, 1.0]


def write(table: pd.DataFrame, path: Path) -> Path:
    if path.suffix in (".csv", ".tsv"):
        table.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_json(path, orient="records", lines=path.suffix == ".jsonl")
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".jsonl", ".json"])
def test_a_table_of_usual_names_is_read_at_the_first_attempt(ending: str, tmp_path: Path) -> None:
    scores = load_scores(write(LONG, tmp_path / f"mine{ending}"))
    assert scores.item_id.tolist() == ["7", "7", "9", "9", "9"]
    assert scores.reward.tolist() == REWARDS
    assert scores.label.tolist() == BEST
    assert scores.extra["response_id"].tolist() == LONG["response_id"].tolist()
    assert scores.category.tolist() == ["all"] * 5


def test_frames_of_pandas_and_arrow_give_the_same() -> None:
    for frame in (LONG, pa.Table.from_pandas(LONG), LONG.convert_dtypes()):
        assert load_scores(frame).label.tolist() == BEST
    assert list(load_all_scores(LONG)) == ["scores"]
    own = Scores.from_arrays([[0.75, 0.25], [0.5, 0.5]])
    assert load_scores(own) is own


def test_columns_are_mapped_by_role() -> None:
    odd = LONG.rename(columns={"prompt_id": "q", "response_id": "who", "score": "s", "is_best": "good"})
    odd["half"] = ["x", "x", "y", "y", "y"]
    mapping = {"prompt": "q", "response": "who", "reward": "s", "label": "good", "category": "half"}
    scores = load_scores(odd, mapping, cluster="half")
    assert scores.reward.tolist() == REWARDS
    assert scores.category.tolist() == odd["half"].tolist()
    assert scores.cluster is not None
    assert scores.cluster.tolist() == odd["half"].tolist()
    text = ",".join(f"{role}={name}" for role, name in mapping.items())
    assert load_scores(odd, text).label.tolist() == BEST
    assert load_scores(odd, text.replace("reward=s", "reward=-s")).reward.tolist() == [-r for r in REWARDS]


def test_everything_missing_or_ambiguous_is_in_one_message(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("who,much\na,1\n")
    with pytest.raises(ValueError, match=r"x\.csv") as caught:
        load_scores(tmp_path / "x.csv")
    assert "reward=NAME" in str(caught.value)
    assert "prompt=NAME" in str(caught.value)
    two = LONG.assign(logit=0.5, acc=1)
    with pytest.raises(ValueError, match="reward: could be score or logit") as caught:
        load_scores(two)
    assert "label: could be is_best or acc" in str(caught.value)
    assert load_scores(two, "reward=logit,label=acc").reward.tolist() == [0.5] * 5
    with pytest.raises(ValueError, match=r"no column 'scor' for reward .*'score'"):
        load_scores(LONG, {"reward": "scor"})
    with pytest.raises(ValueError, match=r"unknown 'rewards' .*'reward'"):
        load_scores(LONG, "rewards=score")
    with pytest.raises(ValueError, match="expected role=column"):
        load_scores(LONG, "score")
    with pytest.raises(ValueError, match="'is_best' is the reward and the label"):
        load_scores(LONG, "reward=is_best,label=is_best")


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("label", ["yes", "no", "No", "YES", None], [1, 0, 0, 1, np.nan]),
        ("label", [1, 0, 0, 1, 0], [1, 0, 0, 1, 0]),
        ("correct", ["correct", "wrong", "tie", "incorrect", "right"], [1, 0, 0.5, 0, 1]),
        ("best", ["b", "b", "c", "c", "c"], [0, 1, 0, 0, 1]),
        ("winner", ["b", "b", None, None, None], [0, 1, np.nan, np.nan, np.nan]),
        ("label", ["b", "b", "c", "c", "c"], [0, 1, 0, 0, 1]),
        ("rank", [2, 1, 2, 3, 1], [0, 1, 0, 0, 1]),
        ("rank", [1, 1, 2, 3, 1], [0.5, 0.5, 0, 0, 1]),
        ("share", [0.75, 0.25, 0.2, 0.2, 0.6], [0.75, 0.25, 0.2, 0.2, 0.6]),
        ("acc", [1.0, 0.0, 0.0, 0.0, 0.0], [1, 0, 0, 0, 0]),
        (None, None, [np.nan] * 5),
    ],
)
def test_labels_of_every_kind(name: str | None, values: Any, expected: list[float], tmp_path: Path) -> None:
    table = LONG.drop(columns="is_best")
    if name is not None:
        table[name] = values
    for source in (table, write(table, tmp_path / "t.csv")):
        np.testing.assert_array_equal(load_scores(source).label, expected)


@pytest.mark.parametrize("values", [[3.5, 1, 2, 2, 1], [-1, 0, 1, 0, 0], ["good", "so-so", "b", "c", "d"]])
def test_other_labels_are_refused_with_the_remedy(values: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"is_best is .*label=NAME"):
        load_scores(LONG.assign(is_best=values))


@pytest.mark.parametrize(
    "ids", [[1, 2, 1, 2, 3], [0, 1, 0, 1, 2], ["x", "y", "z", "u", "v"], [101, 205, 101, 205, 300]]
)
def test_responses_may_have_any_id(ids: list[Any]) -> None:
    scores = load_scores(LONG.assign(response_id=ids))
    assert scores.response.tolist() == [0, 1, 0, 1, 2]
    assert scores.reward.tolist() == REWARDS


@pytest.mark.parametrize("source", [np.zeros((3, 2)), {"prompt": ["a"], "reward": [1.0]}, None])
def test_arrays_and_other_objects_are_refused_with_the_remedy(source: Any) -> None:
    with pytest.raises(TypeError, match="from_arrays"):
        load_scores(source)


def test_a_response_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="response_id is 'a'"):
        load_scores(LONG.assign(response_id=["a", "a", "a", "b", "c"]))


def test_texts_of_prompts_and_responses_are_no_ids() -> None:
    texts = pd.DataFrame(
        {
            "id": [0, 1, 2, 3],  # of rows
            "prompt": ["What is " + "very " * 40 + "far?"] * 2 + ["And near?"] * 2,
            "response": [
                "The moon is a long way off.",
                "The moon is a long way off.",
                "Yes, this is near.",
                "No",
            ],
            "reward": [1.0, 2.0, 3.0, 4.0],
        }
    )
    scores = load_scores(texts)
    assert scores.n_items == 2
    assert scores.response.tolist() == [0, 1, 0, 1]
    assert max(map(len, scores.item_id.tolist())) < 50
    assert scores.extra["response_text"].tolist() == texts["response"].tolist()


def test_ids_that_categories_share_are_told_apart() -> None:
    table = LONG.assign(prompt_id=7, subset=["Math", "Math", "Focus", "Focus", "Focus"])
    scores = load_scores(table)
    assert scores.n_items == 2
    assert scores.category.tolist() == table["subset"].tolist()


def test_a_file_of_several_judges_and_a_file_of_several_authors() -> None:
    both = pd.concat([LONG.assign(model="x"), LONG.assign(model="y", score=-LONG["score"])])
    assert list(load_all_scores(both)) == ["x", "y"]
    assert load_scores(both, model="y").reward.tolist() == [-r for r in REWARDS]
    assert load_scores(both, model="y").manifest["model"] == "y"
    for wrong in (None, "z"):
        with pytest.raises(ValueError, match="x, y"):
            load_scores(both, model=wrong)
    authors = load_scores(LONG.assign(model=["x", "y", "x", "y", "z"]))  # each wrote one response
    assert authors.extra["model"].tolist() == ["x", "y", "x", "y", "z"]


@pytest.mark.parametrize("step", [1, 12_345_678])
def test_a_prompt_that_returns_in_a_later_step_is_one_cluster(step: int) -> None:
    both = pd.concat([LONG.assign(step=step), LONG.assign(step=step + 1)])
    scores = load_scores(both)
    assert scores.n_items == 4
    assert scores.cluster is not None
    assert sorted(set(scores.cluster.tolist())) == ["7", "9"]
    assert scores.extra["step"].tolist() == [step] * 5 + [step + 1] * 5


def test_llama_factory(tmp_path: Path) -> None:
    path = tmp_path / "generated_predictions.jsonl"
    path.write_text('{"chosen": 3.81, "rejected": -1.02}\n{"chosen": 1.1, "rejected": 2.0}')
    scores = load_scores(path)
    assert scores.reward.tolist() == [3.81, -1.02, 1.1, 2.0]
    assert scores.label.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize(
    ("table", "columns", "labels"),
    [
        (
            {"chosen_score": [1.0, 2.0], "rejected_score": [0.5, 3.0], "chosen": ["a", "b"]},
            None,
            [1, 0, 1, 0],
        ),
        ({"reward_a": [1.0, 2.0], "reward_b": [0.5, 3.0], "winner": ["a", "b"]}, None, [1, 0, 0, 1]),
        ({"of_a": [1.0, 2.0], "of_b": [0.5, 3.0], "best": ["A", "of_b"]}, "reward=of_a+of_b", [1, 0, 0, 1]),
        ({"x": [1.0, 2.0], "y": [0.5, 3.0], "best": ["x", "tie"]}, {"reward": ["x", "y"]}, [1, 0, 0.5, 0.5]),
        ({"reward_1": [1.0, 2.0], "reward_2": [0.5, 3.0], "best": [1, 2]}, None, [1, 0, 0, 1]),
        ({"scores": [[1.0, 0.5], [2.0, 3.0]], "best": [1, 0]}, None, [0, 1, 1, 0]),
        ({"scores": [[1.0, 0.5], [2.0, 3.0]], "label": [["yes", "no"], ["no", "tie"]]}, None, [1, 0, 0, 0.5]),
        ({"score_0": [1.0, 2.0], "score_1": [0.5, 3.0]}, None, [np.nan] * 4),
        ({"chosen": [[1.0, 0.5], [2.0]], "rejected": [[], [3.0]]}, None, [1, 1, 1, 0]),
        (
            {"scores": [[1.0, 0.5], [2.0, 3.0]], "steps": [7, 8], "best": ["", "1"]},
            None,
            [np.nan, np.nan, 0, 1],
        ),
    ],
)
def test_wide_tables(table: dict[str, Any], columns: Any, labels: list[float]) -> None:
    frame = pd.DataFrame(table)
    for source in (frame, pa.Table.from_pandas(frame)):
        scores = load_scores(source, columns)
        assert scores.reward.tolist() == [1.0, 0.5, 2.0, 3.0]
        np.testing.assert_array_equal(scores.label, labels)


def test_several_rejected_responses_and_a_question_behind_several_pairs() -> None:
    table = pd.DataFrame(
        {"prompt": ["p", "p"], "chosen": [1.0, 2.0], "rejected_1": [0.5, 0.1], "rejected_2": [0.25, 0.2]}
    )
    scores = load_scores(table)
    assert scores.label.tolist() == [1, 0, 0, 1, 0, 0]
    assert scores.n_items == 2
    assert scores.cluster is not None
    assert set(scores.cluster.tolist()) == {"p"}
    with pytest.raises(ValueError, match="best is 'q'"):
        load_scores(table.assign(best="q"), "reward=rejected_1+rejected_2,label=best")


def test_responses_without_a_score() -> None:
    table = LONG.assign(score=[1.5, np.nan, 0.25, 3.0, -2.25])
    with pytest.raises(ValueError, match=r"reward is .*missing"):
        load_scores(table)
    lowest = load_scores(table, missing="lowest")
    assert lowest.reward.tolist() == [1.5, -2.25, 0.25, 3.0, -2.25]
    assert lowest.manifest["missing"] == {"responses": 1, "prompts": 1, "treated": "lowest"}
    assert load_scores(table, missing="drop").item_id.tolist() == ["9"] * 3
    with pytest.raises(ValueError, match="no prompt"):
        load_scores(table.assign(score=None), missing="drop")


def test_the_lowest_reward_of_a_file_of_texts(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("prompt,score\na,5\na,10\nb,\nb,7\n")
    assert load_scores(tmp_path / "x.csv", missing="lowest").reward.tolist() == [5, 10, 5, 7]


def test_a_file_with_the_names_of_rewardmath_and_texts_of_responses(tmp_path: Path) -> None:
    table = pd.DataFrame({"model": "m", "problem": ["p", "p"], "response": ["so", "no"], "score": [1.0, 2.0]})
    assert np.isnan(load_scores(write(table, tmp_path / "x.csv")).label).all()


def test_rows_can_be_written_back() -> None:
    mixed = LONG.iloc[[4, 0, 2, 1, 3]]
    found = load_with_rows(mixed)
    assert mixed["score"].to_numpy()[found.row].tolist() == found.scores.reward.tolist()
    assert list(found.table.columns) == list(LONG)


def test_scores_are_named_by_their_file_or_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text("prompt_id,response_id,score,is_best\na,x,1,1\na,y,0,0\n")
    assert load_scores(tmp_path / "mine.csv").manifest["model"] == "mine"
    (tmp_path / "rollouts").mkdir()
    rows = [{"input": "q", "output": str(i), "score": 0.1 * i, "acc": i, "step": 1} for i in range(2)]
    (tmp_path / "rollouts/1.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert load_scores(tmp_path / "rollouts").manifest["model"] == "rollouts"
    with pytest.raises(FileNotFoundError, match=r"none\.csv"):
        load_scores(tmp_path / "none.csv")


def test_a_run_folder(tmp_path: Path) -> None:
    Scores.from_arrays([[1.0, 0.0]]).to_parquet(tmp_path / "scores.parquet")
    assert load_scores(tmp_path).n_items == 1
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        load_scores(tmp_path / "empty")


@given(
    n=st.integers(1, 6),
    m=st.integers(1, 4),
    seed=st.integers(0, 100),
    ids=st.sampled_from(["text", "number"]),
)
@settings(max_examples=30, deadline=None)
def test_any_order_of_rows_gives_the_same_prompts(n: int, m: int, seed: int, ids: str) -> None:
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "question_id": np.repeat([f"q{i}" for i in range(n)] if ids == "text" else np.arange(n), m),
            "candidate": np.tile(np.arange(m), n),
            "reward": rng.normal(size=n * m),
            "correct": rng.integers(0, 2, size=n * m),
        }
    )
    mixed = load_scores(table.sample(frac=1.0, random_state=seed), scale="reward")
    back = mixed.to_pandas().sort_values(["item_id", "response"], kind="stable")
    assert back["reward"].tolist() == table["reward"].tolist()
    assert back["is_correct"].tolist() == (table["correct"] == 1).tolist()


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("x.json", "{", "not JSON"),
        ("x.json", "[1]", "expected a list of objects"),
        ("x.jsonl", "\n\n{oops}\n", "line 3"),
        ("x.jsonl", "[1]\n", "line 1"),
        ("x.jsonl", "\n", "no scores"),
        ("x.jsonl", '{"prompt": "a", "reward": "x"}\n', "reward"),
        ("x.jsonl", '{"chosen": 1, "rejected": 0}\n{"chosen": 1, "rejected": null}\n', "line 2"),
        ("x.jsonl", '{"prompt": null, "reward": 1}\n', "prompt"),
        ("x.csv", "", "x.csv"),
        ("x.csv", "prompt,score\na,1\nb\n", "x.csv"),
        ("x.csv", "prompt,score,score\na,1,2\n", "score"),
        ("x.csv", "prompt,score\na,1\n,2\n", "prompt"),
        ("x.csv", "prompt,score\na,1\na,high\n", "reward is 'high'"),
        ("x.parquet", "PAR1", "x.parquet"),
        ("x.xls", "", "unknown file type"),
        ("x.xlsx", "", "not an Excel file"),
        ("gone/x.json", None, "No such file"),
        ("gone/x.parquet", None, "x.parquet"),
    ],
)
def test_bad_files_are_named(name: str, content: str | None, part: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=name.rpartition("/")[2]) as caught:
        load_scores(tmp_path / name)
    assert part in str(caught.value)

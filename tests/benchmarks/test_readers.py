"""Every benchmark is read in its own format; a bad file gives an error of one line that names it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.benchmarks import Benchmark, benchmarks, load_benchmark
from tests.benchmarks.shapes import SHAPES, best_of_n, judgment, pair, said, talk, write

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def load(
    folder: Path, name: str, rows: list[dict[str, Any]] | None = None, suffix: str = ".jsonl"
) -> Benchmark:
    path = write(folder / f"mine{suffix}", SHAPES[name] if rows is None else rows)
    return load_benchmark(str(path), format=name)


def changed(name: str, row: int = 0, **changes: Any) -> list[dict[str, Any]]:
    rows = copy.deepcopy(SHAPES[name])
    rows[row] |= changes
    return rows


def test_every_entry_has_a_shape() -> None:
    assert set(SHAPES) == set(benchmarks()) - {"demo"}


@pytest.mark.parametrize("name", SHAPES)
def test_all_file_types_give_the_same_items(name: str, tmp_path: Path) -> None:
    bench = load(tmp_path, name)
    assert (bench.name, bench.format) == ("mine", name)
    assert load(tmp_path, name, suffix=".json").items == bench.items
    if name not in ("trl", "rmcalib"):  # their rows have different columns, which a table does not allow
        assert load(tmp_path, name, suffix=".parquet").items == bench.items


def test_reward_bench_1(tmp_path: Path) -> None:
    item = load(tmp_path, "reward-bench-1").items[0]
    assert (item.id, item.category, item.responses, item.n_correct) == (
        "0",
        "alpacaeval-easy",
        ("Apple.", "Brick."),
        1,
    )
    assert item.columns == {"chosen_model": "m1", "rejected_model": "m2"}


def test_rm_bench(tmp_path: Path) -> None:
    bench = load(tmp_path, "rm-bench")
    assert bench.categories == ("chat", "safety-refuse", "safety-response")
    assert bench.items[0].n_correct == 3
    assert bench.items[0].responses[3] == "Bye."
    rows = [{key: value for key, value in row.items() if key != "domain"} for row in SHAPES["rm-bench"]]
    assert load(tmp_path, "rm-bench", rows).categories == ("chat",)
    with pytest.raises(ValueError, match=r"line 2: 'rejected' has 2 responses, not 3 \(one per style\)"):
        load(tmp_path, "rm-bench", changed("rm-bench", 1, rejected=["a", "b"]))


def test_rmb_is_read_from_its_folders(tmp_path: Path) -> None:
    for uid, path in (
        ("b1", "BoN_set/Helpfulness/Chat/hi.json"),
        ("b2", "BoN_set/Harmlessness/S1.json"),
        ("p1", "Pairwise_set/Helpfulness/Chat/hi.json"),
    ):
        file = tmp_path / "RMB_dataset" / path
        file.parent.mkdir(parents=True)
        write(file, [best_of_n(uid, path) if uid[0] == "b" else pair(uid, path)])
    root = tmp_path / "RMB_dataset"
    (root / "README.md").write_text("not read")
    bench = load_benchmark(str(root), format="rmb")
    assert bench.name == "RMB_dataset"
    assert [(item.id, item.category) for item in bench.items] == [
        ("b2", "Harmlessness"),
        ("b1", "Helpfulness"),
    ]
    assert bench.items[1].columns == {
        "category_path": "BoN_set/Helpfulness/Chat/hi.json",
        "task": "Chat/hi",
        "language": "English",
    }
    assert bench.items[0].responses == ("The moon.", "The wind 0.", "The wind 1.")
    assert [item.id for item in load_benchmark(str(root), format="rmb-pairwise").items] == ["p1"]
    inner = load_benchmark(str(root / "BoN_set"), format="rmb")
    assert inner.items == bench.items
    assert inner.revision != bench.revision  # the paths differ, and may contain the category
    with pytest.raises(ValueError, match=r"hi\.json, row 0: no value for bon_uid, bon_best, loser_list"):
        load_benchmark(str(root / "Pairwise_set"), format="rmb")
    (root / "BoN_set" / "Harmlessness" / "S1.json").write_text('[{"bon_uid": "b2", ')
    with pytest.raises(ValueError, match=r"S1\.json: not JSON"):
        load_benchmark(str(root), format="rmb")


def test_judgebench(tmp_path: Path) -> None:
    bench = load(tmp_path, "judgebench")
    assert [item.responses for item in bench.items] == [("Seven.", "Eight."), ("Eight.", "Seven.")]
    assert bench.categories == ("mmlu-pro", "livecodebench")
    assert bench.items[0].columns["source"] == "mmlu-pro-math"
    with pytest.raises(ValueError, match=r"line 1: 'label' is 'A=B', not one of A>B, B>A"):
        load(tmp_path, "judgebench", changed("judgebench", label="A=B"))


def test_rewardmath(tmp_path: Path) -> None:
    bench = load(tmp_path, "rewardmath")
    assert [item.responses for item in bench.items] == [("It is\n2.", "It is\n3."), ("5.", "6.", "7.")]
    with pytest.raises(ValueError, match=r"line 1: the problem has 1 solutions, 0 of them by human_to_GPT-4"):
        load(tmp_path, "rewardmath", SHAPES["rewardmath"][:1])


def test_ppe_human(tmp_path: Path) -> None:
    items = load(tmp_path, "ppe-human").items
    assert [(item.votes, item.ties, item.n_correct) for item in items] == [
        ((1, 0), 0, 1),
        ((1, 0), 0, 1),
        ((0, 0), 1, 0),
        ((0, 0), 1, 0),
    ]
    assert items[1].responses == ("Second joke.", "First joke.")
    assert items[0].columns["language"] == "German"
    assert items[0].columns["hard_prompt"] == "true"


def test_ppe_correctness(tmp_path: Path) -> None:
    item = load(tmp_path, "ppe-correctness").items[0]
    assert item.responses == ("Answer 1", "Answer 3", "Answer 0", "Answer 2")
    assert item.n_correct == 2
    assert json.loads(item.columns["sampled_conflict_pairs"]) == [[0, 2], [1, 3]]
    rows = [*SHAPES["ppe-correctness"], {**SHAPES["ppe-correctness"][0], "scores": [True] * 4}]
    bench = load(tmp_path, "ppe-correctness", rows)
    assert (len(bench), bench.notes) == (
        1,
        ("mine: 1 left out: all responses are correct, or all are wrong",),
    )
    for scores, message in (([True], "1 scores for 4 responses"), (["x"] * 4, "'scores' must be a list")):
        with pytest.raises(ValueError, match=message):
            load(tmp_path, "ppe-correctness", changed("ppe-correctness", scores=scores))
    with pytest.raises(ValueError, match="'sampled_conflict_pairs' must be a list of pairs"):
        load(tmp_path, "ppe-correctness", changed("ppe-correctness", sampled_conflict_pairs=[[0, 9]]))


def test_helpsteer3(tmp_path: Path) -> None:
    first, second = load(tmp_path, "helpsteer3").items
    assert (first.responses[0], first.votes, first.ties) == ("sorted(x)", (2, 1), 0)
    assert first.columns["individual_preference"] == "-3 -1 1"
    assert (second.responses[0], second.votes, second.ties) == ("Goodbye!", (2, 0), 1)
    assert (second.category, second.shares, second.n_votes) == ("general", (1.0, 0.0), 3)
    alone = load(tmp_path, "helpsteer3", changed("helpsteer3", individual_preference=[])).items[0]
    assert (alone.votes, alone.ties) == ((1, 0), 0)
    with pytest.raises(
        ValueError, match=r"individual_preference 0: 'score' is 4, not a whole number from -3"
    ):
        load(tmp_path, "helpsteer3", changed("helpsteer3", individual_preference=[{"score": 4}]))


def test_multipref(tmp_path: Path) -> None:
    item = load(tmp_path, "multipref").items[0]
    assert (item.responses, item.votes, item.ties) == (("The Nile.", "The wall."), (2, 1), 1)
    assert item.columns["overall_pref"].split()[0] == "B-is-clearly-better"
    with pytest.raises(ValueError, match=r"contains no prompts .*nobody annotated"):
        load(
            tmp_path,
            "multipref",
            changed("multipref", normal_worker_annotations=[], expert_worker_annotations=[]),
        )


def test_mt_bench_collects_votes_in_both_orders_of_the_models(tmp_path: Path) -> None:
    bench = load(tmp_path, "mt-bench-human")
    item = bench.items[0]
    assert (item.id, item.category) == ("81/1/alpha/beta", "writing")
    assert item.prompt == (said("user", "Write a poem."),)
    assert (item.responses, item.votes, item.ties) == (("A poem.", "B poem."), (2, 1), 1)
    assert bench.notes == ("mine: 1 left out: the two conversations differ before the last response",)
    with pytest.raises(ValueError, match="no response of the assistant in turn 3"):
        load(tmp_path, "mt-bench-human", [judgment("tie", "x", turn=3)])


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_arena_55k(suffix: str, tmp_path: Path) -> None:
    bench = load(tmp_path, "arena-55k", suffix=suffix)
    assert len(bench) == 1  # the other has two turns
    assert bench.items[0].prompt == 'Say "hi", please.'
    assert (bench.items[0].responses, bench.items[0].votes) == (("bye", "hi"), (1, 0))
    broken = changed("arena-55k", 0, response_a='["\\ud83d"]') + changed("arena-55k", 0, id="3")[:1]
    assert [item.id for item in load(tmp_path, "arena-55k", broken, suffix).items] == ["3"]
    with pytest.raises(ValueError, match="one of winner_model_a, winner_model_b, winner_tie must be 1"):
        load(tmp_path, "arena-55k", changed("arena-55k", winner_tie="1"), suffix)


def test_arena_140k(tmp_path: Path) -> None:
    bench = load(tmp_path, "arena-140k")
    assert [(item.responses, item.votes, item.ties) for item in bench.items] == [
        (("Lo.", "La."), (1, 0), 0),
        (("La.", "Lo."), (0, 0), 1),
    ]
    assert bench.items[0].prompt == (said("user", "Sing."),)
    assert bench.notes == ("mine: 1 left out: a message has an image",)


def test_ultrafeedback(tmp_path: Path) -> None:
    bench = load(tmp_path, "ultrafeedback")
    assert bench.items[0].responses == ("Mars.", "Moon.", "Sun.")
    assert (bench.items[0].n_correct, bench.items[0].columns["ratings"]) == (1, "8.5 3 2")
    assert bench.notes == ("mine: 1 left out: all responses have the same rating",)


def test_trl_in_all_variants(tmp_path: Path) -> None:
    bench = load(tmp_path, "trl")
    hi, sky = (said("user", "Hi"),), (said("user", "Sky?"),)
    assert [(item.prompt, item.responses) for item in bench.items] == [
        ("2+2?", ("4", "5")),
        (hi, ("Hello!", "What?")),
        (sky, ("Blue.", "Green.")),
        ("The sky is", (" blue.", " green.")),
        (hi, ("I am fine", "I am not")),
        (sky, ("Blue.", "Red.")),
    ]
    assert bench.notes == ("mine: 1 left out: both responses are the same",)
    longer = {
        "chosen": [*talk("A?", "a"), *talk("B?", "b")],
        "rejected": [*talk("A?", "x"), *talk("B?", "b")],
    }
    bench = load(tmp_path, "trl", [longer, {"prompt": "p", "chosen": "a", "rejected": "b", "source": "s"}])
    assert bench.notes == ("mine: 1 left out: the two conversations differ before the last response",)
    assert bench.items[0].columns == {"source": "s"}
    with pytest.raises(ValueError, match="have no common beginning"):
        load(tmp_path, "trl", [{"chosen": "abc", "rejected": "xyz"}])
    with pytest.raises(ValueError, match="the last message is the user's"):
        load(
            tmp_path,
            "trl",
            [{"prompt": "p", "chosen": [said("user", "a")], "rejected": [said("assistant", "b")]}],
        )


def test_our_own_schema_with_votes(tmp_path: Path) -> None:
    plain, voted = load(tmp_path, "rmcalib").items
    assert plain.columns == {"language": "en"}
    assert (voted.responses, voted.votes, voted.ties, voted.n_correct) == (("Yes", "No"), (3, 1), 2, 1)
    for changes, message in (
        ({"votes": [1]}, "2 responses and 1 votes"),
        ({"votes": [1, -1]}, "'votes' must be a list of whole numbers"),
        ({"votes": [0, 0], "ties": 0}, "nobody voted"),
        ({"ties": 1.5}, "'ties' must be a whole number"),
    ):
        with pytest.raises(ValueError, match=rf"line 2 \(id '2'\): {message}"):
            load(tmp_path, "rmcalib", changed("rmcalib", 1, **changes))


# Bad files


def one_line(error: ValueError, folder: Path) -> None:
    assert str(error).startswith(str(folder))
    assert "\n" not in str(error)
    assert len(str(error)) < len(str(folder)) + 400


@pytest.mark.parametrize("name", SHAPES)
def test_a_missing_column_is_named(name: str, tmp_path: Path) -> None:
    for column in benchmarks()[name].columns:
        rows = copy.deepcopy(SHAPES[name])
        del rows[0][column]
        with pytest.raises(ValueError, match=rf"line 1: no value for {column} \(a row needs") as found:
            load(tmp_path, name, rows)
        one_line(found.value, tmp_path)


@pytest.mark.parametrize("name", SHAPES)
def test_a_truncated_download_is_named(name: str, tmp_path: Path) -> None:
    for suffix in (".json", ".jsonl", ".parquet"):
        if suffix == ".parquet" and name in ("trl", "rmcalib"):
            continue
        path = write(tmp_path / f"mine{suffix}", SHAPES[name])
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(ValueError, match=r"not JSON|not a readable Parquet file") as found:
            load_benchmark(str(path), format=name)
        one_line(found.value, tmp_path)


@pytest.mark.parametrize("name", SHAPES)
def test_mixed_formats_are_named(name: str, tmp_path: Path) -> None:
    other = "judgebench" if name != "judgebench" else "multipref"
    with pytest.raises(
        ValueError, match=rf"line {len(SHAPES[name]) + 1}: no value for .* looks like {other}"
    ):
        load(tmp_path, name, [*SHAPES[name], SHAPES[other][0]])


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
@settings(max_examples=25)
def test_wrong_types_give_an_error_of_one_line(
    name: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("types")
    rows = copy.deepcopy(SHAPES[name])
    row = data.draw(st.sampled_from(rows))
    row[data.draw(st.sampled_from(sorted(row)))] = data.draw(JSON)
    try:
        load(folder, name, rows)
    except ValueError as error:
        one_line(error, folder)


def test_a_matching_format_is_suggested(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", SHAPES["helpsteer3"])
    with pytest.raises(
        ValueError, match=r"no value for id, prompt, .*; the row looks like helpsteer3: give --for"
    ):
        load_benchmark(str(path))


def test_bad_csv_files_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", SHAPES["arena-55k"])
    path.write_text(path.read_text() + "1,2\n")
    with pytest.raises(ValueError, match=r"x\.csv, line 4: 2 cells, but the header has 9"):
        load_benchmark(str(path), format="arena-55k")
    path.write_text('id,prompt\n1,"cut off')
    with pytest.raises(ValueError, match=r"x\.csv, line 2: not CSV \(unexpected end of data\)"):
        load_benchmark(str(path), format="arena-55k")
    path.write_text("")
    with pytest.raises(ValueError, match=r"x\.csv: contains no prompts"):
        load_benchmark(str(path), format="arena-55k")

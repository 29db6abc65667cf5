"""Leaderboards: from runs and tables, several benchmarks, training steps, files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas
import pytest

from rmcalib.leaderboards import leaderboard, report_from_runs, report_from_table
from rmcalib.metrics import Settings
from rmcalib.report.sentences import outside_zero
from rmcalib.scores import Scores, load_scores
from tests.report.boards import BENCHMARK, board_of, synthetic, write_run, write_runs

PAPER = Path(__file__).parents[2] / "results/published_reward_models.csv"
FAST = Settings(resamples=50)


def test_the_papers_table_gives_the_papers_correlations() -> None:
    board = report_from_table(PAPER).board
    assert board is not None
    found = {row["target"]: row for row in board.correlations}
    expected = {"leaderboard": 0.7713, "Factuality": 0.6448, "Precise IF": 0.5955, "Math": 0.5417}
    expected |= {"Safety": 0.7260, "Focus": 0.7531}
    assert {name: round(found[name]["value"], 4) for name in expected} == expected
    assert len(board.models) == 48
    fewer = report_from_table(PAPER, bradley_terry_only=True)
    assert len(fewer.boards[PAPER.name].models) < 48
    assert any("LxzGordon/URM-LLaMa-3.1-8B" in note for note in fewer.notes)
    (marked,) = [row for row in board.models if row["model"] == "LxzGordon/URM-LLaMa-3.1-8B"]
    assert (marked["scale"], bool(marked["mark"])) == ("rating", True)
    assert any(section.name == "correlations" for section in board.document().sections)


def test_models_are_ranked_by_what_their_probabilities_are_worth(tmp_path: Path) -> None:
    write_run(tmp_path, "org/good", synthetic(1, n=300, skill=2.0))
    write_run(tmp_path, "org/loud", synthetic(2, n=300, skill=2.0, scale=20.0))
    write_run(tmp_path, "org/noise", synthetic(3, n=300, skill=0.0, scale=1e-3))
    board = board_of([tmp_path], settings=FAST)
    assert board.models[0]["model"] == "org/good"
    guesses = {row["model"]: row["better_than_guess"] for row in board.models}
    assert guesses["org/good"] is True
    assert guesses["org/noise"] is False
    ranks = {row["model"]: (row["rank_low"], row["rank"], row["rank_high"]) for row in board.models}
    assert all(low <= rank <= high for low, rank, high in ranks.values())
    assert board.best == "org/good"
    assert not any(section.name == "correlations" for section in board.document().sections)


def test_models_whose_labels_decide_different_prompts_have_no_range_of_ranks() -> None:
    one = Scores.from_arrays([[1.0, 0.0]] * 30)
    label = np.array([[1.0, 0.0]] * 29 + [[1.0, 1.0]])
    board = leaderboard({"one": one, "other": Scores.from_arrays([[2.0, 0.0]] * 30, label)}, resamples=50)
    assert [row["rank_low"] for row in board.models] == [None, None]
    assert board.best is None
    same = leaderboard({"one": one, "other": one}, resamples=50)
    assert same.best is None


def test_labels_of_different_meanings_are_refused_without_an_option_that_reports_lack() -> None:
    each = {
        name: Scores.from_arrays([[1.0, 0.0]] * 30, [[1, 0]] * 30, labels_are=name)
        for name in ("best", "correct")
    }
    with pytest.raises(ValueError, match=r"'best'.*'correct'") as refused:
        leaderboard(each, resamples=50)
    assert "labels_are" not in str(refused.value)


def test_a_judge_of_pairs_is_ranked_beside_a_reward_model(tmp_path: Path) -> None:
    rows = [(f"p{i}", j) for i in range(30) for j in range(2)]
    for name, column in (("pairs", "beats"), ("rewards", "reward")):
        values = [[[None, 0.7], [0.3, None]][j] if column == "beats" else 1.0 - j for _, j in rows]
        lines = [
            {"item_id": item, "response": j, "is_correct": j == 0, column: value}
            for (item, j), value in zip(rows, values, strict=True)
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    board = board_of([tmp_path / "pairs.jsonl", tmp_path / "rewards.jsonl"], settings=FAST)
    assert board.metric == "pairwise_overconfidence"
    assert [row["rank"] for row in board.models] == [1, 2]


def test_files_equal_the_tables_and_stale_ones_are_removed(tmp_path: Path) -> None:
    report = report_from_runs([write_runs(tmp_path / "runs", 4)], settings=FAST)
    board = next(iter(report.boards.values()))
    out = report.write(tmp_path / "report").parent
    for name in ("check.csv", "training.csv", "figures/training.pdf"):
        (out / name).write_text("old")
    page = report.write(out)
    assert page == out / "report.html"
    with (out / "leaderboard.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["model"] for row in rows] == [row["model"] for row in board.models]
    assert float(rows[0]["kept_information"]) == board.models[0]["values"]["kept_information"]["value"]
    assert {"rank", "rank_low", "rank_high", "better_than_guess"} <= set(rows[0])
    for name in ("metrics.csv", "correlations.csv", "ranks.csv", "summary.md", "figures/says_right.png"):
        assert (out / name).stat().st_size > 0
    for name in ("check.csv", "training.csv", "figures/training.pdf"):
        assert not (out / name).exists()
    before = page.read_bytes()
    assert report.write(out).read_bytes() == before


def test_models_with_other_labels_are_named() -> None:
    def model(label: list[int], names: str = "") -> Scores:
        rows = [
            {"prompt": i, "reward": float(j == i % 2), "is_best": label[j]}
            | ({"response_id": names[j]} if names else {})
            for i in range(30)
            for j in range(2)
        ]
        return load_scores(rows)

    shares, ids = [0, 1], "xy"
    same = leaderboard({"a": model(shares, ids), "b": model(shares, ids), "c": model(shares)}, resamples=20)
    other = leaderboard(
        {"a": model(shares, ids), "b": model(shares, ids), "c": model([1, 0], ids)}, resamples=20
    )
    assert [sum(note.count(": c.") for note in board.notes) for board in (same, other)] == [0, 1]


def test_official_scores_are_checked_and_missing_ones_named(tmp_path: Path) -> None:
    table = tmp_path / "official.csv"
    table.write_text("model,family,score,Math\norg/model-0,llama,50,40\norg/Model-1,qwen,60.5,\n")
    board = board_of([write_runs(tmp_path / "runs", 2)], official=table, settings=FAST)
    found = {(row["model"], row["category"]): row for row in board.check}
    assert set(found) == {("org/model-0", "overall"), ("org/model-0", "Math")}
    row = found["org/model-0", "Math"]
    assert (row["official"], found["org/model-0", "overall"]["official"]) == (0.4, 0.5)
    assert row["difference"] == pytest.approx(row["ours"] - 0.4)
    assert any("org/model-1" in note for note in board.notes)


def test_steps_of_one_training_are_in_order(tmp_path: Path) -> None:
    for step in (100, 20, 3):
        write_run(tmp_path / f"step-{step}", "mine", synthetic(step, skill=step / 50), step=step)
    report = report_from_runs([tmp_path], settings=FAST)
    board = report.boards[BENCHMARK]
    assert [row["step"] for row in board.training] == [3, 20, 100]
    kept = {row["step"]: row["kept_information"] for row in board.training}
    assert [row["step"] for row in board.training if row["best"]] == [max(kept, key=lambda step: kept[step])]
    report.write(tmp_path / "report")
    assert (tmp_path / "report/figures/training.pdf").read_bytes()[:4] == b"%PDF"


def test_runs_of_one_model_are_told_apart_and_unfinished_ones_left_out(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "org/rm", synthetic(1), dtype="float32", hash="1")
    write_run(tmp_path / "b", "org/rm", synthetic(2), dtype="bfloat16", hash="2")
    unfinished = tmp_path / "org__slow" / "org__bench"
    unfinished.mkdir(parents=True)
    (unfinished / "run.json").write_text(json.dumps({"model": "org/slow", "status": "scoring"}))
    board = board_of([tmp_path], settings=FAST)
    names = [row["model"] for row in board.models]
    assert len(set(names)) == 2
    assert all("org/rm" in name for name in names)
    assert any("org/slow" in note for note in board.notes)
    with pytest.raises(ValueError, match="2 runs"):
        load_scores(tmp_path)


def test_only_files_of_an_earlier_report_are_removed(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 3)
    mine = tmp_path / "out" / "benchmarks.csv"
    mine.parent.mkdir()
    mine.write_text("my own")
    report = report_from_runs([tmp_path / "runs"], settings=FAST)
    report.write(mine.parent)
    assert mine.read_text() == "my own"
    report.write(mine.parent)  # now there is an earlier report
    assert not mine.exists()


def test_a_part_of_a_benchmark_is_no_benchmark_of_its_own(tmp_path: Path) -> None:
    for name in ("org/bench", "org/bench-1of2", "org/bench-2of2"):
        write_run(tmp_path, "org/whole", synthetic(1), benchmark=name)
    write_run(tmp_path, "org/half", synthetic(2), benchmark="org/bench-1of2")
    report = report_from_runs([tmp_path], settings=FAST)
    models = {name: [row["model"] for row in board.models] for name, board in report.boards.items()}
    assert models == {"org/bench": ["org/whole"], "org/bench-1of2": ["org/half"]}
    assert sum("of2" in note for note in report.notes) == 2


def test_several_benchmarks_are_side_by_side(tmp_path: Path) -> None:
    for model, scales in (("org/a", (2.0, 2.0)), ("org/b", (0.2, 6.0))):
        for i, (name, scale) in enumerate(zip(("org/one", "two<b>"), scales, strict=True)):
            write_run(tmp_path / "runs", model, synthetic(i, n=150, scale=scale), benchmark=name)
    report = report_from_runs([tmp_path / "runs"], settings=FAST)
    assert list(report.boards) == ["org/one", "two<b>"]
    assert {row["benchmark"] for row in report.rows} == set(report.boards)
    p = {row["model"]: row["p_value"] for row in report.models}
    assert p["org/b"] < 0.05
    page = report.write(tmp_path / "report")
    assert "two<b>" not in page.read_text(encoding="utf-8")
    addresses = report.document().links.values()
    assert len(addresses) == 2
    assert all((page.parent / address).is_file() for address in addresses)
    assert json.loads((tmp_path / "report/report.json").read_text())["benchmarks"] == list(report.boards)
    with pytest.raises(ValueError, match="org/one"):
        report_from_runs([tmp_path / "runs"], official="x.csv", settings=FAST)
    one = report_from_runs([tmp_path / "runs"], benchmark="one", settings=FAST)
    assert list(one.boards) == ["org/one"]
    # Reports of different shapes in one folder do not mix.
    for other in (one, report, one):
        other.write(tmp_path / "report")
        other.write(tmp_path / "fresh" / str(id(other)))
        written, fresh = (
            {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
            for top in (tmp_path / "report", tmp_path / "fresh" / str(id(other)))
        )
        assert written == fresh


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "no models"),
        ("model,score,ece\n", "no models"),
        ("model,score\na,1\n", "ece_score"),
        ("model,prompt_id,score\na,1,1\n", "prompt_id"),
        ("name,score,ece\na,1,2\n", "model"),
        ("model,score,ece\na,1,x\n", "ece is 'x'"),
        ("model,score,ece\na,1,0.1\na,2,0.2\n", "'a'"),
        ("model,score,ece\n,1,1\n", "''"),
        ("model,score,ece\na,1,1,2,3\n", "line 2"),
    ],
)
def test_bad_tables_give_one_line(text: str, named: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    with pytest.raises(ValueError, match=named) as error:
        report_from_table(table)
    assert str(table) in str(error.value)
    assert "\n" not in str(error.value)


def test_clusters_widen_intervals_and_an_unknown_column_is_named(tmp_path: Path) -> None:
    rows = synthetic(0, skill=0.5).to_pandas()
    twice = pandas.concat([rows, rows.assign(item_id="again-" + rows["item_id"])])
    path = tmp_path / "twice.csv"
    twice.assign(question=[*rows["item_id"], *rows["item_id"]]).to_csv(path, index=False)
    alone, together = (board_of([path], settings=FAST, cluster=name).models[0] for name in (None, "question"))
    width, wider = (row["values"]["overconfidence"] for row in (alone, together))
    assert wider["high"] - wider["low"] > 1.2 * (width["high"] - width["low"])
    with pytest.raises(ValueError, match="nothing"):
        report_from_runs([path], cluster="nothing")


def test_missing_folders_and_damaged_manifests_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nothing"):
        board_of([tmp_path / "nothing"])
    folder = write_run(tmp_path, "org/rm", synthetic())
    (folder / "run.json").write_text("{")
    with pytest.raises(ValueError, match=r"run\.json"):
        board_of([tmp_path])


def test_scores_of_a_file_open_by_name(tmp_path: Path) -> None:
    Scores.from_arrays([[1.0, 0.0]]).to_parquet(tmp_path / "mine.parquet")
    assert load_scores("real/openbmb/Eurus-RM-7b").manifest["model"] == "openbmb/Eurus-RM-7b"


def test_gaps_of_calibrated_models_are_corrected_for_looking_at_all_of_them() -> None:
    rng, models = np.random.default_rng(3), {}
    for i in range(40):
        rewards = rng.normal(scale=2.0, size=(200, 3))
        chances = np.exp(rewards) / np.exp(rewards).sum(axis=1, keepdims=True)
        best = (chances.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1)
        models[f"calibrated {i}"] = Scores.from_arrays(rewards, correct=best)
    alone = leaderboard(models, resamples=20)
    by_its_interval = [row for row in alone.models if outside_zero(row["values"]["overconfidence"])]
    assert by_its_interval
    assert not any(row["gap"]["shown"] for row in alone.models)
    assert all(row["gap"]["p_value"] <= 0.05 for row in by_its_interval)
    models["over-confident"] = models["calibrated 0"].at_temperature(0.1)
    gaps = {row["model"]: row["gap"] for row in leaderboard(models, resamples=20).models}
    assert [name for name, gap in gaps.items() if gap["shown"]] == ["over-confident"]
    assert gaps["over-confident"]["value"] > 0
    figure = next(
        block for block in alone.document().first if getattr(block, "name", "") == "says_right"
    ).draw()
    assert {line.get_marker() for line in figure.axes[0].lines[1:]} == {
        "o"
    }  # as the tests say, not each interval

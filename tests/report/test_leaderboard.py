"""The leaderboard: its numbers against evaluations, its files, its page, and bad input."""

from __future__ import annotations

import csv
import html.parser
import json
import re
from pathlib import Path

import numpy as np
import pytest

from rmcalib._util.display import short_names
from rmcalib.metrics import Settings, metric_rows
from rmcalib.metrics._boards._models import measure_model
from rmcalib.report import (
    Leaderboard,
    leaderboard_from_runs,
    leaderboard_from_table,
    read_official,
    write_leaderboard,
)
from rmcalib.report._labels import place_labels
from rmcalib.report.leaderboard._figures import draw_figures
from rmcalib.report.leaderboard._lists import heat_words, rank_words
from rmcalib.report.leaderboard._page import leaderboard_page
from rmcalib.report.leaderboard._words import to_markdown
from tests.metrics.worlds import flat_scores
from tests.report.boards import synthetic, write_run, write_runs

PAPER = Path(__file__).parents[1] / "golden/paper_models.csv"
FAST = Settings(resamples=50)
EVIL = "org/<script>alert(1)</script>$x$&`|"


def test_the_papers_table_gives_the_papers_correlations() -> None:
    board = leaderboard_from_table(PAPER)
    found = {row["target"]: row for row in board.correlations}
    expected = {
        "leaderboard": 0.7713,
        "Factuality": 0.6448,
        "Precise IF": 0.5955,
        "Math": 0.5417,
        "Safety": 0.7260,
        "Focus": 0.7531,
    }
    assert {name: round(found[name]["value"], 4) for name in expected} == expected
    assert all(found[name]["low"] < expected[name] < found[name]["high"] for name in expected)
    assert all(found[name]["p_value"] < 1e-6 for name in expected)
    assert len(board.ranked) == 48
    fewer = leaderboard_from_table(PAPER, bradley_terry_only=True)
    assert len(fewer.ranked) < 48
    assert any("LxzGordon/URM-LLaMa-3.1-8B" in note for note in fewer.notes)


@pytest.mark.parametrize("ties", [False, True])
def test_the_numbers_equal_those_of_an_evaluation(ties: bool) -> None:
    scores = synthetic(3, ties=ties)
    full = {
        (row["category"], row["metric"]): row
        for row in metric_rows(scores, model="m", benchmark="b", settings=Settings(resamples=100))
    }
    found = measure_model(scores, model="m", settings=Settings(resamples=100)).metrics
    assert {"ece", "ece_at_temperature", "accuracy", "reference_top_1"} <= {row["metric"] for row in found}
    for row in found:
        other = full[row["category"], row["metric"]]
        assert row["n"] == other["n"]
        for key in ("value", "low", "high"):
            assert row[key] == pytest.approx(other[key]), (row["category"], row["metric"], key)


def test_rejection_ends_with_the_most_confident() -> None:
    rows = measure_model(synthetic(1, skill=2.0), model="m", settings=FAST).rejection
    assert rows[0]["n"] == 90
    assert rows[0]["rejected"] == 0.0
    assert rows[-1]["accuracy"] > rows[0]["accuracy"]


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Leaderboard:
    folder = write_runs(tmp_path_factory.mktemp("runs"), 5, ties=True)
    write_run(folder, EVIL, synthetic(9, ties=True))
    write_run(folder, "nicolinho/QRM-Llama3.1-8B-v2", synthetic(10, ties=True))
    write_run(folder, "LxzGordon/URM-LLaMa-3.1-8B", synthetic(11, ties=True))
    return leaderboard_from_runs([folder], settings=FAST, methods=("kendall", "pearson"))


def test_models_are_ranked_and_those_without_calibration_have_a_reason(board: Leaderboard) -> None:
    kept = [row["values"]["kept_information"]["value"] for row in board.ranked]
    assert kept == sorted(kept, reverse=True)
    assert [row["rank"] for row in board.ranked] == list(range(1, 8))
    (without,) = [row for row in board.models if row["rank"] is None]
    assert without["model"] == "nicolinho/QRM-Llama3.1-8B-v2"
    assert "quantile" in without["why"]
    assert without["values"]["accuracy"]["value"] > 0
    targets = {row["target"] for row in board.correlations}
    assert targets == {"leaderboard", "Factuality", "Math", "Focus", "Ties"}
    correlated = {"kept_information", "lost_information", "ece", "ece_at_temperature", "reference_top_1"}
    assert {row["metric"] for row in board.correlations} == correlated
    assert all(row["n"] == 7 for row in board.correlations)


def test_correlations_with_accuracy_come_from_different_halves(board: Leaderboard) -> None:
    assert {row["metric"] for row in board.split_correlations} == {
        "ece", "lost_information", "abs_log_temperature",
    }  # fmt: skip
    assert {row["target"] for row in board.split_correlations} == {"accuracy", "Factuality", "Focus", "Math"}
    for row in board.split_correlations:
        assert row["low"] <= row["value"] <= row["high"]
        assert row["n"] == 7
        assert row["families"] == 2  # org and LxzGordon
        assert row["note"] == "too few models (7; at least 10 are needed)"
    page, text = leaderboard_page(board), to_markdown(board)
    sentence = "Correlations over models mean little here: too few models (7; at least 10 are needed)."
    assert sentence in page
    assert sentence in text
    assert "Correlation with accuracy" in page
    assert "| |log T| | Math |".replace("| |log T| |", "| \\|log T\\| |") in text


class _Reader(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_is_self_contained_and_escapes_all_text(board: Leaderboard) -> None:
    page = leaderboard_page(board)
    reader = _Reader()
    reader.feed(page)
    assert reader.tags.count("script") == 1
    assert reader.tags.count("svg") == 10  # ten models or fewer: the figure of all is that of the best ten
    assert all(source.startswith("#") for source in reader.sources)
    assert "http:" not in page
    assert "https:" not in page
    assert "alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "<script>" not in to_markdown(board)


def test_the_page_is_accessible(board: Leaderboard) -> None:
    page = leaderboard_page(board)
    heads = re.findall(r"<th\b[^>]*>", page)
    assert heads
    assert all('scope="' in head for head in heads)
    labels = re.findall(r'<svg role="img" aria-label="([^"]+)"', page)
    assert len(set(labels)) == page.count("<svg") == 10
    # The column that is sorted first has aria-sort, and every heading is a button.
    assert page.count('aria-sort="ascending"') == 2
    assert len(heads) == page.count('<button type="button">')


def test_the_figure_of_ranks_explains_its_colours(board: Leaderboard) -> None:
    shown = rank_words(board)
    assert "from its rank by accuracy on the left to its rank by ECE at the best temperature on the" in shown
    assert "Thick and solid (green): at least 3 places better" in shown
    assert "Thick and dashed (red): at least 3 places worse" in shown
    assert "Models without all of these numbers are left out." in shown
    assert shown in leaderboard_page(board)


def test_models_without_usable_information_have_no_rank_at_the_best_temperature(tmp_path: Path) -> None:
    write_runs(tmp_path, 4)
    write_run(tmp_path, "org/noise", synthetic(20, skill=0.0))
    board = leaderboard_from_runs([tmp_path], settings=FAST)
    noise = next(row for row in board.models if row["model"] == "org/noise")
    assert noise["values"]["usable_information"]["low"] == 0
    assert noise["rank"] is not None
    assert noise["ranks"]["ece"] is not None
    assert noise["ranks"]["ece_at_temperature"] is None
    ranks = [row["rank"] for row in board.ranks if row["by"] == "ece_at_temperature"]
    assert sorted(ranks) == [1, 2, 3, 4]
    assert "these prompts do not show that their rewards have usable information" in rank_words(board)
    assert "left out" not in rank_words(board)
    by_it = leaderboard_from_runs([tmp_path], metric="ece_at_temperature", settings=FAST)
    assert len(by_it.ranked) == 4
    assert by_it.models[-1]["model"] == "org/noise"
    words = "org/noise is not ranked by ECE at the best temperature: these prompts do not show"
    assert words in to_markdown(by_it)


def test_the_heat_map_explains_its_colours(board: Leaderboard) -> None:
    largest = max(
        row["value"]
        for row in board.metrics
        if row["metric"] == "ece" and row["value"] is not None and row["category"] != "Ties"
    )
    shown = heat_words(board)
    assert f"from 0 (lightest) to {largest:.3f} (darkest)" in shown
    assert "metrics.csv" not in shown  # with so few models, the figure has the numbers
    assert shown in leaderboard_page(board)


def test_scores_have_one_unit_everywhere(board: Leaderboard) -> None:
    overall = {
        row["model"]: row["value"]
        for row in board.metrics
        if row["metric"] == "rewardbench_score" and row["category"] == "overall"
    }
    assert {row["model"]: row["score"] for row in board.wide_rows()} == pytest.approx(overall)
    assert all(0 < score <= 1.01 for score in overall.values())
    page = leaderboard_page(board)
    assert "scores are from 0 to 1" in page
    best = board.ranked[0]
    assert f">{best['score']:.3f}</td>" in page
    assert f">{best['category_scores']['Math']:.3f}</td>" in page
    assert f"| {best['score']:.3f} |" in to_markdown(board)


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("allenai/reward-bench-2", "RewardBench 2 score"), ("org/bench", "mean category score")],
)
def test_the_score_has_the_right_name(benchmark: str, name: str, tmp_path: Path) -> None:
    for i in range(3):
        write_run(tmp_path, f"org/model-{i}", synthetic(i, skill=0.5 + i), benchmark=benchmark)
    board = leaderboard_from_runs([tmp_path], settings=FAST)
    assert "too few models (3; at least 10 are needed)" in board.summary
    for text in (leaderboard_page(board), to_markdown(board)):
        assert name in text
        assert "leaderboard score" not in text
        assert "leaderboard rank" not in text


def test_files_are_written_repeatably_and_stale_ones_removed(board: Leaderboard, tmp_path: Path) -> None:
    page = write_leaderboard(board, tmp_path / "a")
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "check.csv").write_text("old")
    write_leaderboard(board, tmp_path / "b")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert files == sorted(path.relative_to(tmp_path / "b") for path in (tmp_path / "b").rglob("*.*"))
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes(), file
    assert page.name == "report.html"
    with (tmp_path / "a" / "leaderboard.csv").open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["model"] for row in rows] == [row["model"] for row in board.models]
    assert float(rows[0]["ece_low"]) <= float(rows[0]["ece"]) <= float(rows[0]["ece_high"])
    assert (tmp_path / "a/figures/ranks.pdf").read_bytes()[:4] == b"%PDF"


def test_bradley_terry_only_leaves_models_out_with_a_note(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    write_run(tmp_path, "LxzGordon/URM-LLaMa-3.1-8B", synthetic(7))
    board = leaderboard_from_runs([tmp_path], bradley_terry_only=True, settings=FAST)
    assert len(board.models) == 3
    assert board.notes == ["Left out, because not on a Bradley-Terry scale: LxzGordon/URM-LLaMa-3.1-8B."]


def test_the_recipe_in_the_manifest_counts(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    quantile = {"loss": "quantile regression", "bradley_terry": "no", "parameters": 8.0, "status": "recipe"}
    write_run(tmp_path, "org/mine", synthetic(7), about_model=quantile)
    board = leaderboard_from_runs([tmp_path], settings=FAST)
    assert {row["model"] for row in board.models if row["rank"] is None} == {"org/mine"}
    (row,) = (
        r for r in board.metrics if (r["model"], r["category"], r["metric"]) == ("org/mine", "overall", "ece")
    )
    assert row["value"] is None
    assert "quantile regression" in row["note"]
    only = leaderboard_from_runs([tmp_path], bradley_terry_only=True, settings=FAST)
    assert only.notes == ["Left out, because not on a Bradley-Terry scale: org/mine."]
    mine = tmp_path / "mine.yaml"
    mine.write_text("- {model: org/mine, bradley_terry: 'yes', loss: ranking}\n")
    assert len(leaderboard_from_runs([tmp_path], recipes=[mine], settings=FAST).ranked) == 4


def test_the_footer_has_the_numbers_of_resamples(tmp_path: Path) -> None:
    board = leaderboard_from_runs([write_runs(tmp_path, 3)], settings=Settings(resamples=400))
    shown = (
        "95% intervals over prompts, those of calibration errors and p-values from 200 simulated data sets"
    )
    assert shown in leaderboard_page(board)


def test_official_scores_are_checked_and_unknown_names_reported(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 3)
    table = tmp_path / "official.csv"
    table.write_text("model,score,math\norg/Model-1,50.0,40\norg/model-2,60.5,\nother/rm,1,2\n")
    board = leaderboard_from_runs([tmp_path / "runs"], official=read_official(table), settings=FAST)
    assert [(row["model"], row["category"], row["official"]) for row in board.check] == [
        ("org/model-2", "overall", pytest.approx(0.605))
    ]
    (row,) = board.check
    assert row["difference"] == pytest.approx(row["ours"] - 0.605)
    assert any("org/model-1 (did you mean org/Model-1?)" in note for note in board.notes)
    assert "Check against official" in leaderboard_page(board)


def test_the_intervals_of_correlations_follow_the_resamples(tmp_path: Path) -> None:
    lines = [f"org/rm-{i},{90 - i * i % 7},{0.1 + i * i % 5 / 50}" for i in range(8)]
    (tmp_path / "t.csv").write_text("model,score,ece\n" + "\n".join(lines) + "\n")
    few, many = (
        leaderboard_from_table(tmp_path / "t.csv", settings=Settings(resamples=n)).correlations[0]
        for n in (20, 400)
    )
    assert few["value"] == many["value"]
    assert (few["low"], few["high"]) != (many["low"], many["high"])


def test_two_runs_of_one_model_are_distinguished(tmp_path: Path) -> None:
    for folder, dtype in (("a", "float16"), ("b", "bfloat16")):
        scores = synthetic(len(dtype))
        write_run(tmp_path / folder, "org/rm", scores, inputs={"dtype": dtype}, hash=dtype)
    write_run(tmp_path / "c", "org/rm", synthetic(8), inputs={"dtype": "bfloat16"}, hash="bfloat16")
    board = leaderboard_from_runs([tmp_path], settings=FAST)
    assert sorted(row["model"] for row in board.models) == [
        "org/rm (dtype bfloat16)",
        "org/rm (dtype float16)",
    ]
    assert any("twice" in note for note in board.notes)
    assert any("2 different runs" in note for note in board.notes)


def test_one_model_and_equal_models_give_sensible_pages(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "org/rm", synthetic())
    one = leaderboard_from_runs([tmp_path / "one"], settings=FAST)
    assert any("three models" in note for note in one.notes)
    assert "needs at least 3 models" in leaderboard_page(one)
    assert not {"scores", "categories", "protocols"} & {*draw_figures(one)}  # no plots of a single point
    for i in range(4):
        write_run(tmp_path / "equal", f"org/rm-{i}", synthetic())
    equal = leaderboard_from_runs([tmp_path / "equal"], settings=FAST)
    assert {row["rank"] for row in equal.models} == {1}
    assert {"scores", "categories", "protocols"} <= {*draw_figures(equal)}
    assert "all have the same kept information" in equal.summary
    assert "all models are equal" in leaderboard_page(equal)


def test_models_without_a_category_are_ranked_in_the_others(tmp_path: Path) -> None:
    write_runs(tmp_path, 4, ties=True)
    write_run(tmp_path, "org/short", synthetic(20, ties=False))
    board = leaderboard_from_runs([tmp_path], settings=FAST)
    counts = {row["target"]: row["n"] for row in board.correlations if row["metric"] == "ece"}
    assert counts["Ties"] == 4
    assert counts["Math"] == 5
    assert any("same prompts" in note and "org/short" in note for note in board.notes)
    write_leaderboard(board, tmp_path / "report")


def test_unfinished_runs_and_several_benchmarks(tmp_path: Path) -> None:
    write_runs(tmp_path, 2)
    unfinished = tmp_path / "org__slow" / "org__bench"
    unfinished.mkdir(parents=True)
    (unfinished / "run.json").write_text(json.dumps({"model": "org/slow", "status": "scoring"}))
    assert any("not finished" in note for note in leaderboard_from_runs([tmp_path], settings=FAST).notes)
    write_run(tmp_path / "more", "org/model-0", synthetic(), benchmark="another")
    with pytest.raises(ValueError, match=r"several benchmarks, another \(1\), org/bench \(2\).*--benchmark"):
        leaderboard_from_runs([tmp_path], settings=FAST)
    assert len(leaderboard_from_runs([tmp_path], benchmark="bench", settings=FAST).models) == 2
    with pytest.raises(ValueError, match="no run of it"):
        leaderboard_from_runs([tmp_path], benchmark="nothing", settings=FAST)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no models in it"),
        ("model,score\na,1\n", "no column ece or ece_score"),
        ("name,score,ece\na,1,2\n", "no column model"),
        ("model,ece\na,1\n", "no column leaderboard_score or score"),
        ("model,score,ece\na,1,x\n", "line 2: ece is 'x', not a number"),
        ("model,score,ece\na,1,0.1\na,2,0.2\n", "line 3: 'a' appears twice"),
        ("model,score,ece\na,1\n", "line 2: 2 cells, but the header has 3"),
        ("model,score,ece\n,1,1\n", "line 2: the model has no name"),
    ],
)
def test_bad_tables_give_one_line(text: str, message: str, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(text)
    with pytest.raises(ValueError, match=message) as error:
        leaderboard_from_table(table)
    assert str(table) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_table_with_gaps_and_fractions(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(
        "model,leaderboard_score,Math,my-cat,my_error\na,0.9,0.8,1,0.1\nb,0.8,,2,0.2\nc,0.7,0.6,3,\nd,0.6,0.5,4,0.4\n"
    )
    board = leaderboard_from_table(table, metric="my_error", categories=["math", "my cat"])
    assert [row["score"] for row in board.models] == pytest.approx([0.9, 0.8, 0.6, 0.7])
    counts = {row["target"]: row["n"] for row in board.correlations}
    assert counts == {"leaderboard": 3, "math": 2, "my cat": 3}
    assert board.models[-1]["why"] == "empty in the table"
    assert "empty in the table" in leaderboard_page(board)
    with pytest.raises(ValueError, match="no column 'Focus'"):
        leaderboard_from_table(table, metric="my_error", categories=["Focus"])


def test_labels_cover_neither_each_other_nor_other_points() -> None:
    points = np.random.default_rng(0).random((40, 2)) * [6, 4]
    widths = np.full(40, 0.8)
    placed = place_labels(points, widths, 0.1, (6.0, 4.0), 40)
    assert len(placed) > 20
    boxes = np.array([[x, y - 0.05, x + 0.8, y + 0.05] for _, x, y, _ in placed])
    for i, box in enumerate(boxes):
        others = np.delete(boxes, i, axis=0)
        over = (
            (others[:, 0] < box[2])
            & (others[:, 2] > box[0])
            & (others[:, 1] < box[3])
            & (others[:, 3] > box[1])
        )
        assert not over.any()


def test_long_names_are_cut_and_equal_ones_keep_their_organisation() -> None:
    names = short_names(["a/" + "x" * 99, "b/rm", "c/rm"])
    assert len(names["a/" + "x" * 99]) <= 41
    assert names["b/rm"] == "b/rm"


def test_unfinished_runs_are_left_out_and_scores_with_another_manifest_are_refused(tmp_path: Path) -> None:
    write_runs(tmp_path, 4)
    first, second = sorted(tmp_path.glob("*/*/run.json"))[:2]
    first.write_text(json.dumps(json.loads(first.read_text()) | {"status": "scoring"}))
    board = leaderboard_from_runs([tmp_path], settings=FAST)
    assert len(board.wide_rows()) == 3
    assert sum("is not finished, and left out" in note for note in board.notes) == 1
    second.write_text(json.dumps(json.loads(second.read_text()) | {"hash": "another run's"}))
    with pytest.raises(ValueError, match="damaged"):
        leaderboard_from_runs([tmp_path], settings=FAST)


def test_over_confidence_behind_a_small_ece_is_noted(tmp_path: Path) -> None:
    write_runs(tmp_path, 3)
    write_run(tmp_path, "org/flat", flat_scores(200))
    notes = leaderboard_from_runs([tmp_path], settings=FAST).notes
    shown = "does not show that org/flat is over-confident"
    assert sum(shown in note for note in notes) == 1

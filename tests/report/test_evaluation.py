"""The report of one model: its files, its page, escaping, notes and words."""

import csv
import dataclasses
import html.parser
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rmcalib
from rmcalib.benchmarks import Benchmark, Item
from rmcalib.judges import Recipe
from rmcalib.metrics import Settings, disagreements
from rmcalib.report import Evaluation, evaluate, write_evaluation
from rmcalib.report.evaluation._page import clean_text, evaluation_page, folded
from rmcalib.report.evaluation._words import plain_words
from rmcalib.scores import Scores
from tests.metrics.slow_metrics import Prompt
from tests.metrics.worlds import calibrated_scores, flat_scores, prompts_of, ragged_scores, scores_of

COLUMNS = ("item_id", "category", "response", "is_correct", "reward", "n_tokens", "truncated")

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>"\'</style>'


class Page(html.parser.HTMLParser):
    """The tags of a page, their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.seen: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.seen.append(data)

    @property
    def text(self) -> str:
        return "".join(self.seen)


def benchmark_of(scores: Scores, text: str) -> Benchmark:
    items = []
    for number, prompt in enumerate(prompts_of(scores)):
        responses = tuple(f"{text} response {i} of {number}" for i in range(len(prompt.rewards)))
        items.append(
            Item(str(number), prompt.category, f"{text} prompt {number}", responses, sum(prompt.correct))
        )
    return Benchmark("made-up", "1", tuple(items))


@pytest.fixture(scope="module")
def bold() -> Evaluation:
    scores = calibrated_scores(150, confidence=3.0, seed=1)
    return evaluate(scores, benchmark=benchmark_of(scores, "plain"), resamples=50)


def test_files_agree_with_each_other(bold: Evaluation, tmp_path: Path) -> None:
    page = write_evaluation(bold, tmp_path)
    assert page == tmp_path / "report.html"
    content = json.loads((tmp_path / "metrics.json").read_text())
    with (tmp_path / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["model", "benchmark", "category", "metric", "value", "low", "high", "n", "note"]
    assert len(rows) == len(content["metrics"]) == len(bold.table)
    for ours, written in zip(content["metrics"], rows, strict=True):
        assert written["value"] == ("" if ours["value"] is None else str(ours["value"]))
    assert (tmp_path / "reliability.png").read_bytes().startswith(b"\x89PNG")
    assert content["protocol"] == "exact"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "metrics.csv",
        "metrics.json",
        "reliability.png",
        "report.html",
    ]


def test_the_page_needs_no_network_and_shows_the_numbers(bold: Evaluation, tmp_path: Path) -> None:
    text = bold.to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    addresses = [value for name, value in page.attributes if name in ("src", "href", "srcset", "action")]
    assert addresses == []
    assert not re.search(r"url\((?!#)|@import|https?://", text)
    assert f"{bold.value('ece'):.3f}" in page.text
    assert bold.summary in " ".join(page.text.split())
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert 'name="viewport"' in text
    # Reliability and margins: overall, Math, Focus; and decisions.
    assert page.tags.count("svg") == 2 * 3 + 1
    assert page.tags.count("article") == 10
    # Every table heading has a scope, every drawing a label.
    scopes = [value for name, value in page.attributes if name == "scope"]
    assert len(scopes) == page.tags.count("th")
    assert set(scopes) == {"col", "row"}
    labels = [value or "" for name, value in page.attributes if name == "aria-label"]
    assert sum(label.startswith("Reliability diagram, ") for label in labels) == 3
    assert sum(label.startswith("Histogram of margins, ") for label in labels) == 3


@pytest.mark.parametrize(
    ("benchmark", "name"),
    [("allenai/reward-bench-2", "RewardBench 2 score"), ("mine.jsonl", "mean category score")],
)
def test_the_subtitle_has_the_score_and_a_readable_time(benchmark: str, name: str, tmp_path: Path) -> None:
    manifest = {"benchmark": benchmark, "timings": {"finished": "2026-11-16T12:24:31+02:00"}}
    scores = calibrated_scores(30)
    columns = {key: getattr(scores, key) for key in scores.__dataclass_fields__ if key != "manifest"}
    result = evaluate(Scores(**columns, manifest=manifest), resamples=30)
    text = Page(result.to_html(tmp_path / "a.html").read_text(encoding="utf-8")).text
    score = result.value("rewardbench_score")
    assert f"30 prompts of {benchmark} · {name} {score:.3f} · scored 16 November 2026, 10:24 UTC" in text


def test_all_input_text_is_escaped(tmp_path: Path) -> None:
    prompts = [Prompt(f"cat {EVIL}", [float(i % 3), 1.0], [True, False], [1, 2]) for i in range(30)]
    scores = scores_of(prompts, ids=[f"{EVIL}{i}" for i in range(30)])
    items = tuple(
        Item(f"{EVIL}{i}", f"cat {EVIL}", ({"role": EVIL, "content": EVIL},), (EVIL, EVIL * 40), 1)
        for i in range(30)
    )
    manifest = {"model": EVIL, "device": EVIL, "dtype": EVIL, EVIL: EVIL, "timings": {"finished": EVIL}}
    scores = Scores(
        **{**{name: getattr(scores, name) for name in scores.__dataclass_fields__}, "manifest": manifest}
    )
    result = evaluate(scores, benchmark=Benchmark(EVIL, "1", items), model=EVIL, resamples=30)
    write_evaluation(result, tmp_path)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert page.tags.count("style") == 1
    assert '<script>alert("x")</script>' in page.text  # shown as text


def test_control_characters_and_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    scores = calibrated_scores(25)
    bench = benchmark_of(scores, "a\x00b\x1b[31m\ud800 🙂 \u202e")
    result = evaluate(scores, benchmark=bench, model="m\x00\ud800", resamples=30)
    text = write_evaluation(result, tmp_path).read_bytes().decode("utf-8")
    assert "\x00" not in text
    assert "\x1b" not in text
    assert "🙂" in text


def test_examples_are_the_largest_losses_with_their_own_texts() -> None:
    scores = ragged_scores(60, seed=11)
    result = evaluate(scores, benchmark=benchmark_of(scores, "x"), resamples=30, n_examples=5)
    prompts = prompts_of(scores)
    losses = {}
    for number, prompt in enumerate(prompts):
        if sum(prompt.correct) == 1:
            top = max(prompt.rewards)
            chance = np.exp(np.array(prompt.rewards) - top)
            if prompt.rewards[prompt.correct.index(True)] < top:
                losses[number] = -np.log((chance / chance.sum())[prompt.correct.index(True)])
    worst = sorted(losses, key=lambda number: -losses[number])[:5]
    assert [example.item_id for example in result.examples] == [str(number) for number in worst]
    for example, number in zip(result.examples, worst, strict=True):
        assert example.prompt == f"x prompt {number}"
        for response in example.responses:
            assert response.text is not None
            place = int(response.text.split()[2])
            assert response.reward == prompts[number].rewards[place]
            assert response.is_correct == prompts[number].correct[place]
        assert [r.probability for r in example.responses] == sorted(
            (r.probability for r in example.responses), reverse=True
        )


def test_prompts_that_the_model_gets_right_are_not_examples(tmp_path: Path) -> None:
    prompts = [Prompt("x", [2.0, 1.0], [True, False], [1, 2]) for _ in range(4)]
    prompts += [
        Prompt("x", [1.0, 1.0], [True, False], [1, 2]),
        Prompt("x", [0.9, 1.0], [True, False], [1, 2]),
    ]
    result = evaluate(scores_of(prompts, ids=list("abcdef")), resamples=30)
    assert [example.item_id for example in result.examples] == ["f"]
    text = result.to_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert "Worst forecasts" in text
    none = evaluate(scores_of(prompts[:4], ids=list("abcd")), resamples=30)
    assert "Worst forecasts" not in none.to_html(tmp_path / "b.html").read_text(encoding="utf-8")


def test_without_texts_the_report_says_so(tmp_path: Path) -> None:
    result = evaluate(calibrated_scores(30), resamples=30)
    assert "no text available" in result.to_html(tmp_path / "a.html").read_text()
    assert result.examples[0].prompt is None


def test_a_benchmark_that_does_not_fit_is_noted(tmp_path: Path) -> None:
    scores = calibrated_scores(30)
    bench = benchmark_of(scores, "x")
    result = evaluate(scores, benchmark=Benchmark("half", "1", bench.items[:15]), resamples=30)
    assert "15 of the 30 scored prompts are not in half." in result.notes
    write_evaluation(result, tmp_path)


def test_a_model_without_utilities_has_a_reason(tmp_path: Path) -> None:
    recipe = Recipe("org/qrm", bradley_terry="no", loss="quantile regression")
    result = evaluate(calibrated_scores(40), model="org/qrm", recipe=recipe, resamples=30)
    assert result.value("ece") is None
    assert "quantile regression" in result.summary
    page = write_evaluation(result, tmp_path).read_text()
    assert "not Plackett-Luce utilities" in page
    assert not (tmp_path / "reliability.png").exists()


def test_other_scales_are_measured_and_marked() -> None:
    result = evaluate(calibrated_scores(40), model="LxzGordon/URM-LLaMa-3.1-8B", resamples=30)
    assert result.value("ece") is not None
    assert any("Bradley-Terry" in note for note in result.notes)


def test_truncated_empty_and_tied_responses_are_counted() -> None:
    scores = calibrated_scores(30)
    cut = scores.truncated.copy()
    cut[:7] = True
    reward = scores.reward.copy()
    reward[1] = reward[0]
    changed = {name: getattr(scores, name) for name in scores.__dataclass_fields__}
    changed |= {"truncated": cut, "reward": reward, "manifest": {"max_length": 64, "counts": {"empty": 2}}}
    notes = " ".join(evaluate(Scores(**changed), resamples=30).notes)
    assert "7 of 120 responses (5.8%) were cut at 64 tokens" in notes
    assert "2 responses are empty" in notes
    assert "2 responses share their reward" in notes


def test_words_follow_the_numbers(bold: Evaluation) -> None:
    assert "over-confident" in bold.summary
    assert f"T = {bold.value('temperature'):.2g}" in bold.summary
    calm = evaluate(calibrated_scores(400, seed=3), resamples=100)
    assert "no more over- or under-confident than chance explains" in calm.summary
    assert "no larger than chance explains" in calm.summary
    timid = evaluate(calibrated_scores(600, confidence=0.3, seed=3), resamples=50)
    assert "under-confident" in timid.summary
    assert plain_words([]) == "No prompt here has exactly one correct response."


def test_scores_of_ties_alone_make_a_report(tmp_path: Path) -> None:
    prompts = [Prompt("Ties", [2.0, float(i), 0.0], [True, True, False], [1, 2, 3]) for i in range(8)]
    result = evaluate(scores_of(prompts), resamples=30)
    write_evaluation(result, tmp_path)
    assert result.value("correct_first", "Ties") is not None
    assert "a correct one is first" in result.summary


def test_long_texts_are_folded_and_very_long_ones_cut() -> None:
    assert folded("")["preview"] == "(empty)"
    text = folded("a" * 200_000)
    assert len(text["preview"]) < 500
    assert len(text["whole"]) < 21_000
    assert "180,000 more characters" in text["whole"]
    assert clean_text("a\r\nb\tc") == "a\nb\tc"


def test_unknown_rows_are_refused(bold: Evaluation) -> None:
    with pytest.raises(ValueError, match="no such row"):
        bold.value("eec")


def test_public_names_exist_and_are_lazy() -> None:
    assert set(rmcalib.__all__) >= {"load_benchmark", "score", "evaluate", "load_scores"}
    assert dir(rmcalib) == sorted(rmcalib.__all__)
    assert rmcalib.evaluate is evaluate
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = rmcalib.nothing


def test_a_recipe_used_for_scoring_is_remembered() -> None:
    about = {"loss": "quantile regression", "bradley_terry": "no"}
    scores = calibrated_scores(40)
    remembered = Scores(
        **{name: getattr(scores, name) for name in COLUMNS},
        manifest={"about_model": about, "model": "org/rm"},
    )
    assert evaluate(remembered, resamples=20).value("ece") is None
    assert evaluate(scores, resamples=20).value("ece") is not None


def test_the_footer_has_the_numbers_of_resamples(bold: Evaluation) -> None:
    assert "95% intervals from 50 resamples of prompts, seed 0." in evaluation_page(bold)
    more = dataclasses.replace(bold, settings=Settings(resamples=300))
    assert "from 300 resamples of prompts (smooth ECE: 200), seed 0." in evaluation_page(more)


def test_the_page_shows_the_requested_level_and_bins() -> None:
    result = evaluate(calibrated_scores(60), model="org/rm", resamples=20, level=0.8, bins=5)
    page = evaluation_page(result)
    assert "80% interval" in page
    assert "95% interval" not in page
    assert "10 equal-width bins" not in page


def test_over_confidence_is_reported_where_the_ece_does_not_show_it() -> None:
    result = evaluate(flat_scores(200), model="org/rm", resamples=50)
    assert result.value("ece") == pytest.approx(0, abs=0.01)
    assert "and is right 0% of the time: over-confident by" in result.summary


def test_scores_that_do_not_fit_their_benchmark_are_counted() -> None:
    scores = ragged_scores(6)
    starts, sizes = scores.offsets[:-1], np.diff(scores.offsets)
    items = [
        Item(name, category, "?", ("text",) * int(size), 1)
        for name, category, size in zip(
            scores.item_id[starts].tolist(), scores.category[starts].tolist(), sizes, strict=True
        )
    ]
    assert disagreements(scores, Benchmark("{b}", "1", tuple(items))) == []
    other = [Item(items[1].id, items[1].category, "?", ("text",) * 40, 1)]
    other += [Item(items[2].id, "another", "?", items[2].responses, 1), Item("new", "x", "?", ("a", "b"), 1)]
    assert disagreements(scores, Benchmark("{b}", "1", (*other, *items[3:]))) == [
        "1 of the 6 scored prompts is not in {b}.",
        "1 of the 5 others has another number of responses in {b}.",
        "1 of the 5 others has another category in {b}.",
        "1 of the 6 prompts of {b} has no scores.",
    ]


def test_other_objects_than_scores_are_refused_and_a_benchmark_may_be_a_name() -> None:
    with pytest.raises(TypeError, match="or load_scores, got str"):
        evaluate("scores.parquet")  # type: ignore[arg-type]
    scores = rmcalib.score(model="demo", benchmark=rmcalib.load_benchmark("demo", limit=6))
    report = evaluate(scores, benchmark="demo", resamples=20)
    assert report.benchmark == "demo"
    assert report.examples


def with_information(result: Evaluation, lost: float) -> Evaluation:
    """Replace the lost and usable information of an evaluation."""
    first = next(row for row in result.metrics if row["metric"] == "overconfidence")
    rows = [row for row in result.metrics if not row["metric"].endswith("_information")]
    for name, value in (("lost_information", lost), ("usable_information", 0.41)):
        rows.append(first | {"metric": name, "value": value, "low": 0.8 * value, "high": 1.2 * value})
    return replace(result, metrics=rows, summary=plain_words(rows, p_floor=1 / 51))


def test_the_page_begins_with_the_headline(bold: Evaluation) -> None:
    page = Page(evaluation_page(with_information(bold, 3.8)))
    text = " ".join(page.text.split())
    assert re.search(r"It says \d+% and is right \d+% of the time: over-confident by \d+ points \[", text)
    tiles = ["says", "right", "gap", "lost information", "usable information"]
    places = [next(i for i, seen in enumerate(page.seen) if seen == tile) for tile in tiles]
    assert places == sorted(places)
    assert "3.80 [3.04, 4.56]" in text
    assert "it is at most 0.50 (2/m for m responses)" in text
    assert text.index("Says and right") < text.index("Expected calibration error")
    assert "p-value" in text
    assert "<0.02" in text  # the smallest p-value of 50 draws
    for footnoted in ("calibr.", " at T", "over-conf.", "0.000 –"):
        assert footnoted not in text


def test_groups_are_shown_only_if_there_are_any(bold: Evaluation) -> None:
    assert "Where it is worst" not in evaluation_page(bold)
    row = {"group_by": "language", "group": "<b>de</b>", "n": 40, "says": 0.8, "right": 0.6, "gap": 0.2}
    flagged = row | {"low": 0.1, "high": 0.3, "p_adjusted": 0.0004, "flagged": True}
    fine = row | {"group": "en", "gap": 0.01, "low": -0.1, "high": 0.12, "p_adjusted": 0.9, "flagged": False}
    page = evaluation_page(replace(bold, groups=[flagged, fine]))
    text = " ".join(Page(page).text.split())
    assert "Where it is worst" in text
    assert "<b>de</b>" in text
    assert "+20 [+10, +30]" in text
    assert "after a correction for 2 groups" in text
    assert page.count("over-confident</td>") >= 1


def test_right_to_left_texts_are_isolated(tmp_path: Path) -> None:
    scores = calibrated_scores(25)
    result = evaluate(
        scores, benchmark=benchmark_of(scores, "שלום \u202eabc"), model="m\u202en", resamples=30
    )
    text = write_evaluation(result, tmp_path).read_text(encoding="utf-8")
    assert "Calibration of m�n" in text
    assert 'dir="auto"' in text
    assert "unicode-bidi: isolate" in text


def test_prompts_on_which_people_disagree_evenly_are_left_out() -> None:
    rewards, votes = [[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], [[3, 1], [2, 2], [1, 0]]
    scores = Scores.from_arrays(rewards, votes=votes)
    result = evaluate(scores, model="m", resamples=30)
    alone = evaluate(Scores.from_arrays([rewards[0], rewards[2]]), model="m", resamples=30)
    assert result.value("accuracy") == alone.value("accuracy") == 1.0
    assert result.notes[0] == (
        "1 prompt is left out where a correct response is needed: as many people preferred one response as "
        "another."
    )
    assert result.summary.startswith("It says 83%, people agree 75% of the time")
    with pytest.raises(ValueError, match="no prompt with a correct response"):
        evaluate(Scores.from_arrays([[1.0, 0.0]], votes=[[1, 1]]), model="m")


def test_the_official_score_is_shown_where_the_benchmark_has_one() -> None:
    rewards = np.random.default_rng(0).normal(loc=(1.0, 0.0), size=(40, 2))
    scores = Scores.from_arrays(rewards, category=["mmlu-pro", "livebench"] * 20)
    known = evaluate(replace(scores, manifest={"benchmark": "judgebench"}), resamples=20)
    right = rewards[:, 0] > rewards[:, 1]
    assert known.value("official_score") == right.mean()
    assert known.value("official_score", "mmlu-pro") == right[::2].mean()
    (row,) = (r for r in known.metrics if (r["metric"], r["category"]) == ("official_score", "overall"))
    assert row["note"] == "accuracy, as the benchmark's authors compute it"
    assert row["n"] == 40
    other = evaluate(replace(scores, manifest={"benchmark": "mine"}), resamples=20)
    assert "official_score" not in {r["metric"] for r in other.metrics}
    assert len(other.metrics) == len(known.metrics) - 3

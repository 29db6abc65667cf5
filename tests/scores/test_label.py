"""Draw prompts to label, label them, join the labels."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from rmcalib import Scores, best_of_n, compare, evaluate, label, load_scores, watch
from rmcalib.metrics.comparison import on_common_prompts
from rmcalib.scores.drawing import systematic, unequal_inclusion

N, M = 200, 3


def table(n: int = N, *, texts: bool = True) -> tuple[pd.DataFrame, np.ndarray[Any, Any]]:
    """Scores without labels, and the best response of each prompt."""
    rng = np.random.default_rng(3)
    utilities = rng.normal(size=(n, M))
    best = (utilities + rng.gumbel(size=(n, M))).argmax(axis=1)
    rows = [
        {"prompt_id": f"p{i}", "response_id": j, "score": utilities[i, j], "category": "ab"[i % 4 == 0]}
        | ({"prompt": f"Question number {i}?", "completion": f"Answer {j} to {i}."} if texts else {})
        for i in range(n)
        for j in range(M)
    ]
    return pd.DataFrame(rows), best


def filled(sheet: pd.DataFrame, best: np.ndarray[Any, Any]) -> pd.DataFrame:
    right = [
        float(best[int(name[1:])] == j) for name, j in zip(sheet["prompt"], sheet["response"], strict=True)
    ]
    return sheet.assign(label=right)


def test_a_draw_is_random_reproducible_and_knows_its_probabilities() -> None:
    frame, _ = table()
    sheet = label(frame, n=50, seed=1)
    assert [*sheet.table.columns[:4]] == ["prompt", "response", "inclusion", "label"]
    assert sheet.table["prompt"].nunique() == sheet.n == 50
    assert len(sheet.table) == 50 * M
    assert sheet.table["label"].isna().all()
    assert set(sheet.table["inclusion"]) == {50 / N}
    assert label(frame, n=50, seed=1).rows == sheet.rows
    assert label(frame, n=50, seed=2).rows != sheet.rows
    assert "score" not in sheet.table
    assert label(frame, n=10 * N).n == N


def test_prompts_are_drawn_equally_often() -> None:
    scores = Scores.from_arrays(np.zeros((20, 2)), category=["x"] * 5 + ["y"] * 15)
    for by in (None, "category"):
        drawn = [row["prompt"] for seed in range(400) for row in label(scores, 5, seed, by).rows]
        counts = pd.Series(drawn).value_counts().reindex([str(i) for i in range(20)]) / 2
        assert abs(counts / 400 - 0.25).max() < 0.09  # four standard errors
    groups = [
        label(scores, 4, seed, "category").table.groupby("category")["prompt"].nunique() for seed in range(20)
    ]
    assert all(one.to_dict() == {"x": 1, "y": 3} for one in groups)


@given(st.lists(st.floats(0, 10), min_size=2, max_size=40), st.integers(1, 30), st.integers(0, 5))
def test_unequal_probabilities_sum_to_n_and_are_kept(sizes: list[float], n: int, seed: int) -> None:
    inclusion = unequal_inclusion(np.array(sizes), n)
    assert inclusion.max() <= 1 + 1e-12
    assert inclusion.min() >= min(n / len(sizes), 1) / 2 - 1e-12
    assert inclusion.sum() == pytest.approx(min(n, len(sizes)))
    rng = np.random.default_rng(seed)
    drawn = systematic(inclusion, rng.permutation(len(sizes)), rng)
    assert len(set(drawn.tolist())) == len(drawn) == min(n, len(sizes))


def test_systematic_draws_have_their_probabilities() -> None:
    inclusion = np.array([0.9, 0.1, 0.5, 0.5])
    rng = np.random.default_rng(0)
    counts = np.zeros(4)
    for _ in range(4000):
        counts[systematic(inclusion, rng.permutation(4), rng)] += 1
    np.testing.assert_allclose(counts / 4000, inclusion, atol=0.035)


def test_a_second_judge_draws_where_it_is_unsure() -> None:
    frame, _ = table()
    unsure = np.arange(N) < N // 2
    other = Scores.from_arrays(
        np.where(unsure[:, None], 0.0, [[9.0, 0.0, 0.0]]), item_id=[f"p{i}" for i in range(N)]
    )
    sheet = label(frame, n=40, second=other).table
    drawn = sheet.groupby("prompt")["inclusion"].first()
    by_half = drawn.groupby([int(name[1:]) < N // 2 for name in drawn.index]).mean()
    assert by_half[True] > by_half[False]
    with pytest.raises(ValueError, match="p0"):
        label(frame, n=40, second=Scores.from_arrays([[1.0, 0.0, 0.0]], item_id=["other"]))


def test_more_labels_keep_the_first_and_know_the_probability_of_both_phases() -> None:
    frame, best = table()
    first = filled(label(frame, n=40).table, best)
    sheet = label(frame, n=30, more=True, labels=first)
    assert sheet.n == 70
    known = sheet.table.dropna(subset=["label"])
    assert set(known["prompt"]) == set(first["prompt"])
    scores = load_scores(frame)
    confidence = scores.probabilities.reshape(N, M).max(axis=1)
    fifth = np.argsort(np.argsort(confidence)) * 5 // N
    for h in range(5):
        own = sheet.table[[fifth[int(name[1:])] == h for name in sheet.table["prompt"]]]
        assert set(own["inclusion"]) == {own["prompt"].nunique() / (fifth == h).sum()}
    with pytest.raises(ValueError, match="more"):
        label(frame, n=30, more=True)


@pytest.mark.parametrize("options", [{"ask": "chosen"}, {"ask": "correct", "last": 2}])
def test_more_labels_are_about_the_same_responses(options: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"prompt": f"p{i}", "response_text": f"It is {j}.", "reward": rng.normal(), "step": step}
        for step in range(4)
        for i in range(20)
        for j in range(3)
    )
    first = label(rows, n=20, **options).table.assign(label=1.0)
    both = label(rows, n=20, more=True, labels=first).table
    assert {*both["ask"]} == {options["ask"]}
    once, twice = (load_scores(rows, labels=sheet.assign(label=1.0)) for sheet in (first, both))
    np.testing.assert_array_equal(once.reward, twice.reward)
    assert np.isfinite(twice.label).sum() == len(both) > len(first)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "frame"])
def test_labels_are_joined(suffix: str, tmp_path: Path) -> None:
    frame, best = table()
    sheet = filled(label(frame, n=50).table, best)
    given: Any = tmp_path / f"labels.{suffix}"
    if suffix == "csv":
        sheet.to_csv(given, index=False)
    elif suffix == "jsonl":
        sheet.to_json(given, orient="records", lines=True)
    else:
        given = sheet
    scores = load_scores(frame, labels=given)
    assert (scores.n_items, scores.labels) == (N, "best")
    known = ~np.isnan(scores.label.reshape(N, M)[:, 0])
    assert known.sum() == 50
    assert (scores.label.reshape(N, M).argmax(axis=1)[known] == best[known]).all()
    inclusion = scores.extra["inclusion"].reshape(N, M)[:, 0]
    assert (np.isfinite(inclusion) == known).all()
    assert set(inclusion[known]) == {0.25}


def test_a_half_filled_sheet_is_fine_and_the_best_alone_may_be_marked() -> None:
    frame, best = table()
    sheet = filled(label(frame, n=50).table, best)
    sheet.loc[sheet["label"] == 0, "label"] = None
    sheet.loc[sheet.index[20 * M :], "label"] = None
    scores = load_scores(frame, labels=sheet)
    assert np.isfinite(scores.label).sum() == 20 * M
    assert np.nansum(scores.label) == 20
    assert np.isfinite(scores.extra["inclusion"]).sum() == 50 * M
    with pytest.raises(ValueError, match="label"):
        load_scores(frame, labels=label(frame, n=50).table)


def test_marks_that_name_no_single_best_response() -> None:
    frame, best = table()
    sheet = filled(label(frame, n=50).table, best)
    prompts = sheet["prompt"].unique()
    sheet.loc[sheet["prompt"] == prompts[0], "label"] = 0.0
    sheet.loc[sheet["prompt"] == prompts[1], "label"] = [1.0, 1.0, 0.0]
    scores = load_scores(frame, labels=sheet)
    of_prompt = dict(zip(scores.item_id[scores.offsets[:-1]], scores.label.reshape(N, M), strict=True))
    assert np.isnan(of_prompt[prompts[0]]).all()
    assert of_prompt[prompts[1]].tolist() == [0.5, 0.5, 0.0]
    assert any("1 prompt" in note for note in scores.manifest["notes"])


def test_labels_are_joined_by_text() -> None:
    frame, best = table(20)
    long = "A question that is so long that its digest is its id. " * 4
    frame["prompt_id"] = [long + name for name in frame["prompt_id"]]
    rows = [
        {
            "prompt": f"{long}p{i}",
            "completion": f"Answer {j} to {i}.",
            "label": "yes" if best[i] == j else "no",
        }
        for i in range(20)
        for j in range(M)
    ]
    scores = load_scores(frame, labels=pd.DataFrame(rows))
    assert (scores.label.reshape(20, M).argmax(axis=1) == best).all()


def test_the_number_of_the_best_response_is_a_label() -> None:
    frame, best = table(20)
    given = pd.DataFrame({"prompt": [f"p{i}" for i in range(20)], "best": best})
    assert (load_scores(frame, labels=given).label.reshape(20, M).argmax(axis=1) == best).all()


def test_unknown_rows_are_named() -> None:
    frame, best = table()
    sheet = filled(label(frame, n=10).table, best)
    wrong = pd.concat([sheet, sheet.head(1).assign(prompt="who"), sheet.head(1).assign(response=17)])
    with pytest.raises(ValueError, match=r"'who'.*'17'"):
        load_scores(frame, labels=wrong)
    with pytest.raises(ValueError, match="maybe"):
        load_scores(frame, labels=sheet.assign(label="maybe"))
    for inclusion in (7.0, "a third"):
        with pytest.raises(ValueError, match="inclusion"):
            load_scores(frame, labels=sheet.assign(inclusion=inclusion))
    halves = np.arange(len(sheet)) % 2
    with pytest.raises(ValueError, match="inclusion"):
        load_scores(frame, labels=sheet.assign(inclusion=0.5 + halves / 4))
    for ask in ("x", np.where(halves, "best", "correct")):
        with pytest.raises(ValueError, match="ask"):
            load_scores(frame, labels=sheet.assign(ask=ask))
    with pytest.raises(ValueError, match="prompt"):
        load_scores(frame, labels=sheet.drop(columns="prompt"))
    twice = load_scores(frame, labels=pd.concat([sheet, sheet]))  # saved twice
    assert np.isfinite(twice.label).sum() == 10 * M
    with pytest.raises(ValueError, match="person"):
        load_scores(frame, labels=pd.concat([sheet, sheet.assign(label=1 - sheet["label"])]))
    with pytest.raises(ValueError, match="not in the scores"):
        load_scores(frame, labels=sheet.rename(columns={"prompt": "response", "response": "prompt"}))


def test_a_prompt_may_have_many_responses() -> None:
    n = 30_000
    frame = pd.DataFrame({"prompt_id": "p", "response_id": np.arange(n), "score": np.arange(n) / n})
    labels = pd.DataFrame({"prompt": "p", "response": np.arange(n)[::-1], "label": np.arange(n) % 3 == 0})
    start = time.process_time()
    assert load_scores(frame, labels=labels).label.sum() == n / 3
    assert time.process_time() - start < 30


def test_several_people_become_votes() -> None:
    frame, best = table()
    sheet = filled(label(frame, n=10).table, best)
    other = sheet.copy()
    other.loc[other.index[: 2 * M], "label"] = [1.0 - x for x in other["label"][: 2 * M]]  # ties in 2 prompts
    third = sheet.copy()
    third["label"] = third["label"].astype(object)
    third.loc[third.index[:M], "label"] = "tie"
    people = [one.assign(person=who) for one, who in zip((sheet, other, third), "abc", strict=True)]
    scores = load_scores(frame, labels=pd.concat(people))
    assert scores.labels == "votes"
    place = [np.flatnonzero(scores.item_id == name)[0] for name in sheet["prompt"].unique()]
    assert scores.n_votes.sum() == 30
    assert scores.ties is not None
    assert [int(scores.ties[i]) for i in place[:3]] == [2, 1, 0]
    # One pair of people agrees on each of the first two prompts, and all three on the others.
    assert scores.manifest["labelling"]["agreement"] == pytest.approx((1 + 1 + 8 * 3) / 30)


def test_labels_that_are_correct_or_not() -> None:
    frame, _ = table(50)
    sheet = label(frame, n=20, ask="correct").table
    sheet["label"] = np.random.default_rng(0).integers(0, 2, len(sheet))
    scores = load_scores(frame, labels=sheet)
    assert scores.labels == "correct"
    flipped = sheet.assign(label=1 - sheet["label"], person="b")
    three = pd.concat([sheet.assign(person="a"), flipped, sheet.assign(person="c")])
    majority = load_scores(frame, labels=three)
    np.testing.assert_array_equal(majority.label, scores.label)
    two = load_scores(frame, labels=pd.concat([sheet.assign(person="a"), sheet.assign(person="c")]))
    np.testing.assert_array_equal(two.label, scores.label)


def test_single_responses_use_what_is_known_of_all_prompts() -> None:
    rng = np.random.default_rng(1)
    odds = rng.normal(size=(1000, 1))
    correct = rng.random(odds.shape) < expit(odds)
    scores = Scores.from_arrays(1.6 * odds, scale="log_odds")
    second = Scores.from_arrays(4.0 * correct - 2.0 + rng.normal(size=odds.shape), scale="log_odds")
    widths = []
    for other in (None, second):
        sheet = label(scores, n=200, ask="correct", second=other).table
        right = correct[sheet["prompt"].astype(int), sheet["response"].astype(int)]
        labelled = load_scores(scores, labels=sheet.assign(label=right.astype(float)), second=other)
        report = evaluate(labelled, resamples=20)
        says, share, gap = (
            report.value(f"pointwise_{name}") or 0.0 for name in ("confidence", "accuracy", "gap")
        )
        assert says == pytest.approx(expit(1.6 * odds).mean())
        assert gap == pytest.approx(says - share)
        assert share == pytest.approx(correct.mean(), abs=0.1)
        row = next(row for row in report.rows if row["metric"] == "pointwise_gap")
        widths.append(row["high"] - row["low"])
    assert widths[1] < 0.8 * widths[0]


def test_labels_of_the_source_are_replaced() -> None:
    rng = np.random.default_rng(0)
    scores = Scores.from_arrays(rng.normal(size=(100, 3)), rng.integers(0, 3, 100))
    sheet = label(scores, n=30)
    assert sheet.table["label"].isna().all()
    rows = sheet.table.assign(label=0.0)
    rows.loc[rows["response"] == 2, "label"] = 1.0
    joined = load_scores(scores, labels=rows)
    assert np.isfinite(joined.label).sum() == 90
    assert np.nansum(joined.label.reshape(100, 3)[:, 2]) == 30


def test_shares_of_categories_are_inclusion_probabilities() -> None:
    frame, best = table()
    sheet = filled(label(frame, n=60).table, best).drop(columns="inclusion")
    scores = load_scores(frame, labels=sheet, labels_by="category")
    starts = scores.offsets[:-1]
    for name in "ab":
        own = scores.category[starts] == name
        known = np.isfinite(scores.label[starts][own])
        assert set(scores.extra["inclusion"][starts][own][known]) == {known.sum() / own.sum()}
    with pytest.raises(ValueError, match="domain"):
        load_scores(frame, labels=sheet, labels_by="domain")


def test_texts_come_from_columns_or_a_benchmark() -> None:
    frame, _ = table()
    row = label(frame, n=5).rows[0]
    number = int(row["prompt"][1:])
    assert row["prompt_text"] == f"Question number {number}?"
    assert row["response_text"] == f"Answer {row['response']} to {number}."
    assert not label(table(texts=False)[0], n=5).has_texts
    wide = pd.DataFrame(
        {
            "prompt": ["What is it now?"] * 2,
            "chosen": ["It is one.", "It is two."],
            "rejected": ["It is no.", "It is not."],
            "chosen_score": [1.0, 2.0],
            "rejected_score": [0.0, 3.0],
        }
    )
    lists = [[1.0, 0.0], [2.0, 3.0]]
    answers = [["It is one.", "It is no."], ["It is two.", "It is not."]]
    sides = {
        f"{name}_{side}": [row[place] for row in rows]
        for place, side in enumerate("ab")
        for name, rows in (("response", answers), ("score", lists))
    }
    for other in (
        wide,
        pd.DataFrame({"prompt": wide["prompt"], "responses": answers, "rewards": lists}),
        pd.DataFrame({"prompt": wide["prompt"], **sides}),
    ):
        rows = label(other, n=2).rows
        assert {row["response_text"] for row in rows} == {text for texts in answers for text in texts}
        assert all((row["response_text"][6] == "n") == row["response"] for row in rows)


def test_the_page_is_safe_and_hides_rewards(tmp_path: Path) -> None:
    frame, _ = table(30)
    hostile = "</script><script>alert(1)</script> @script@ @data@ \\1"
    frame["completion"] = hostile
    frame["score"] = 0.123456789 + np.arange(len(frame))
    page = label(frame, n=30).to_html(tmp_path / "label.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    assert "alert(1)</script>" not in page
    assert "123456789" not in page
    assert "default-src 'none'" in page
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert data["items"][0]["responses"][0]["text"] == hostile
    # A browser keeps labels by page: answers to another question about the same responses are other ones.
    other = label(frame, n=30, ask="correct").to_html(tmp_path / "other.html").read_text(encoding="utf-8")
    assert f'"key":"{data["key"]}"' not in other
    orders = {tuple(one["response"] for one in item["responses"]) for item in data["items"]}
    assert len(orders) > 3  # shuffled
    turned = label(table(5, texts=False)[0].replace({"prompt_id": {"p1": "p\u202e1"}}), n=5)
    assert '"text":"p\ufffd1"' in turned.to_html(tmp_path / "ids.html").read_text(encoding="utf-8")


# A page without a browser: it remembers what listens, and what is saved.
PAGE = """
const nodes = {}, kept = {}; let saved = "";
const node = () => ({on: {}, classList: {add() {}}, append() {}, remove() {}, replaceChildren() {}, setAttribute() {},
  click() {}, blur() {}, addEventListener(name, act) { this.on[name] = act; }});
globalThis.document = {...node(), body: node(), createElement: node, createTextNode: node,
  getElementById: (id) => nodes[id] ||= node()};
Object.assign(globalThis, {addEventListener() {}, scrollTo() {}, setTimeout() {},
  Blob: function ([text]) { saved = text; }, URL: {createObjectURL: () => "", revokeObjectURL() {}},
  localStorage: {getItem: (name) => kept[name] ?? null, setItem(name, text) { kept[name] = text; }}});
const [data, script, people] = JSON.parse(require("fs").readFileSync(0, "utf8"));
document.getElementById("data").textContent = data;
eval(script);
for (const name of people) {
  nodes.person.value = name; nodes.person.on.change();
  for (const key of "1u2") document.on.keydown({key, target: {}, preventDefault() {}});
}
nodes.save.on.click();
process.stdout.write(saved);
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_people_may_have_any_name(tmp_path: Path) -> None:
    data, _ = table(20)
    page = label(data, n=20).to_html(tmp_path / "label.html").read_text("utf-8")
    content, script = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    people = ["constructor", "__proto__", "toString", "Ada", "<b>"]
    done = subprocess.run(
        ["node", "-e", PAGE],
        input=json.dumps([content, script, people]),
        capture_output=True,
        text=True,
        check=True,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    labelled = {name: {row["prompt"] for row in rows if row["person"] == name} for name in people}
    assert {name: len(prompts) for name, prompts in labelled.items()} == dict.fromkeys(people, 1)
    assert {row["person"] for row in rows} == set(people)


def test_bad_arguments_are_named() -> None:
    frame, _ = table(20)
    for arguments, name in (({"n": 0}, "n:"), ({"by": "topic"}, "topic"), ({"ask": "nice"}, "ask")):
        with pytest.raises(ValueError, match=name):
            label(frame, **arguments)


def rollouts(steps: int = 6, prompts: int = 20) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {"prompt": f"s{s}p{i}", "response": j, "reward": rng.normal(), "step": 10 * s}
            for s in range(steps)
            for i in range(prompts)
            for j in range(M)
        ]
    )


def test_labels_of_the_last_steps_are_about_these_steps(tmp_path: Path) -> None:
    frame = rollouts()
    sheet = label(frame, n=10, last=2, ask="correct")
    assert sheet.of == 40
    assert set(sheet.table["from_step"]) == {40.0}
    assert {name[:2] for name in sheet.table["prompt"]} == {"s4", "s5"}
    page = sheet.to_html(tmp_path / "label.html").read_text(encoding="utf-8")
    assert '"from_step": 40' in page or '"from_step":40' in page
    joined = load_scores(frame, labels=sheet.table.assign(label=1))
    assert (joined.n_items, set(joined.extra["step"])) == (40, {40.0, 50.0})
    assert any("80 prompts" in note for note in joined.manifest["notes"])
    assert label(frame, n=10, last=99).of == 120
    each = {row["prompt"] for row in label(frame, n=12, by="step").rows}
    assert sorted(name[:2] for name in each) == sorted(2 * [f"s{s}" for s in range(6)])
    with pytest.raises(ValueError, match="last"):
        label(table()[0], n=10, last=2)
    with pytest.raises(ValueError, match="from_step"):
        load_scores(
            frame, labels=pd.concat([sheet.table.assign(label=1), sheet.table.assign(from_step=50.0)])
        )


def test_only_the_chosen_response_is_labelled(tmp_path: Path) -> None:
    frame, _ = table()
    sheet = label(frame, n=80, ask="chosen")
    assert len(sheet.table) == sheet.n == 80
    rewards = load_scores(frame).reward.reshape(N, M)
    place = np.array([int(name[1:]) for name in sheet.table["prompt"]])
    assert (rewards.argmax(axis=1)[place] == sheet.table["response"]).all()
    sheet.to_html(tmp_path / "label.html")
    rows = sheet.table.assign(label=(np.arange(80) < 60).astype(float))
    scores = load_scores(frame, labels=rows)
    assert (scores.labels, len(scores), scores.n_items) == ("correct", N, N)
    np.testing.assert_array_equal(scores.reward, rewards.max(axis=1))
    found = best_of_n(scores)
    row = found.row(M)
    assert (row["right"], len(found.rows), found.gains, found.labels) == (0.75, 1, [], "chosen")
    assert row["low"] < 0.75 < row["high"]
    report = evaluate(load_scores(scores, scale="log_odds"), resamples=20)
    assert not report.facts["undecided"]
    assert report.facts["sample"]["n"] == 80
    with pytest.raises(ValueError, match="second"):
        best_of_n(scores, scores)
    with pytest.raises(ValueError, match="'p"):
        load_scores(frame, labels=rows.assign(response=(rows["response"] + 1) % M))


@pytest.mark.parametrize(
    "form",
    [
        {"sep": ";"},
        {"sep": ";", "encoding": "utf-8-sig", "lineterminator": "\r\n"},
        {"sep": ";", "encoding": "utf-8-sig", "decimal": ","},
        {"sep": "\t", "encoding": "utf-8-sig", "lineterminator": "\r\n"},
    ],
)
def test_sheets_that_a_spreadsheet_saved(form: dict[str, Any], tmp_path: Path) -> None:
    frame, best = table(30)
    frame["prompt_id"] = np.repeat(np.arange(30), M)  # 1 and "1" are the same prompt
    frame["completion"] = ["\n" + text + ' "größer; als" 1,5 ' for text in frame["completion"]]
    sheet = label(frame, n=9).table
    marks = best[sheet["prompt"].astype(int)] == sheet["response"]
    sheet["label"] = np.where(marks, "x", "0")
    sheet.loc[sheet.index[-M:], "label"] = None  # half filled
    sheet.to_csv(tmp_path / "sheet.csv", index=False, **form)
    with (tmp_path / "sheet.csv").open("a", encoding="utf-8") as file:
        file.write(form["sep"] * (sheet.shape[1] + 2) + "\n")
    scores = load_scores(frame, labels=tmp_path / "sheet.csv")
    known = ~np.isnan(scores.label.reshape(30, M)[:, 0])
    assert known.sum() == 8
    assert (scores.label.reshape(30, M).argmax(axis=1) == best)[known].all()
    assert set(scores.extra["inclusion"][np.isfinite(scores.extra["inclusion"])]) == {9 / 30}
    as_floats = sheet.assign(prompt=sheet["prompt"] + ".0", response=sheet["response"].astype(str) + ".0")
    assert (np.isnan(load_scores(frame, labels=as_floats).label) == np.isnan(scores.label)).all()
    by_text = sheet.drop(columns="response").rename(columns={"response_text": "completion"})
    assert (np.isnan(load_scores(frame, labels=by_text).label) == np.isnan(scores.label)).all()


def test_labels_in_another_encoding_are_one_clear_error(tmp_path: Path) -> None:
    frame, best = table(10)
    sheet = filled(label(frame, n=5).table, best).assign(person="Jürgen")
    sheet.to_csv(tmp_path / "sheet.csv", index=False, encoding="cp1252", sep=";")
    with pytest.raises(ValueError, match=r"sheet\.csv.*UTF-8"):
        load_scores(frame, labels=tmp_path / "sheet.csv")


def test_rollouts_are_labelled_with_their_texts(tmp_path: Path) -> None:
    rng, run = np.random.default_rng(0), tmp_path / "run"
    run.mkdir()
    for step in range(1, 5):
        samples = [
            {
                "input": f"What is {i} + 1?",
                "output": f"\nIt is {i + j}, I think.",
                "score": rng.normal(),
                "step": step,
            }
            for i in range(10)
            for j in range(3)
        ]
        (run / f"{step}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples))
    sheet = label(run, n=6, last=2, ask="correct")
    assert (sheet.of, sheet.has_texts, sheet.rows[0]["from_step"]) == (20, True, 3.0)
    rows = sheet.table
    number = rows["prompt_text"].str.extract(r"(\d+)")[0].astype(int)
    assert (
        rows["response_text"]
        == [f"\nIt is {i + j}, I think." for i, j in zip(number, rows["response"], strict=True)]
    ).all()
    rows["label"] = (rows["response"] == 1).astype(int)
    rows.to_json(tmp_path / "labels.jsonl", orient="records", lines=True)
    scores = load_scores(run, labels=tmp_path / "labels.jsonl")
    assert (scores.n_items, int(np.isfinite(scores.label).sum())) == (20, 18)
    assert "response_text" not in scores.extra
    found = watch(run, labels=tmp_path / "labels.jsonl")
    assert found.labels["samples"] == 18


def shuffled(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the rows of each prompt in another order."""
    mixed = frame.sample(frac=1.0, random_state=4)
    return mixed.sort_values("prompt_id", key=lambda ids: ids.str[1:].astype(int), kind="stable")


@pytest.mark.parametrize("by", ["id", "text", "word"])
def test_labels_stay_with_their_responses_whatever_the_order_of_rows(by: str, tmp_path: Path) -> None:
    frame, best = table()
    frame["rank"] = frame["response_id"].tolist()
    if by == "word":
        frame["completion"] = [f"word{j}" for j in frame["rank"]]
    names = {"id": "response_id", "text": "completion", "word": "completion"}
    frame["response_id"] = [f"r{j}" for j in frame["rank"]]
    frame = frame[["prompt_id", names[by], "score"] + (["prompt"] if by == "text" else [])]
    sheet = filled(label(frame, n=100).table, best)
    sheet.to_csv(tmp_path / "sheet.csv", index=False)
    for labels in (sheet, tmp_path / "sheet.csv", sheet.assign(person="a")):
        joined = load_scores(shuffled(frame), labels=labels)
        chosen = joined.extra[names[by]][joined.label == 1]
        rows = joined.item_id[joined.label == 1]
        wanted = {f"p{i}": int(j) for i, j in enumerate(best)}
        assert len(rows) == 100
        assert all(str(wanted[p]) in str(name)[:8] for p, name in zip(rows, chosen, strict=True))
    bare = sheet[["prompt", "response", "label"]]
    if by != "text":
        with pytest.raises(ValueError, match="response"):
            load_scores(frame, labels=bare)


def test_labels_of_another_text_or_id_are_refused() -> None:
    frame, best = table()
    sheet = filled(label(frame, n=30).table, best)
    swapped = sheet.groupby("prompt")["response_text"].transform(lambda texts: texts.to_numpy()[::-1])
    for wrong in (swapped, sheet["response_text"] + " or not"):
        with pytest.raises(ValueError, match="'p"):
            load_scores(frame, labels=sheet.assign(response_text=wrong))
    named = frame.assign(response_id=[f"r{j}" for j in frame["response_id"]])
    sheet = filled(label(named, n=30).table, best)
    assert set(sheet["response_id"]) == {"r0", "r1", "r2"}
    with pytest.raises(ValueError, match="'q"):
        load_scores(named, labels=sheet.assign(response_id="q" + sheet["response_id"]))
    with pytest.raises(ValueError, match="'r"):
        load_scores(named, labels=sheet.assign(response_text=swapped))


def test_labels_name_responses_by_ids_that_count_from_1() -> None:
    frame, best = table(30, texts=False)
    frame["response_id"] += 1
    chosen = pd.DataFrame({"prompt": [f"p{i}" for i in range(30)], "response_id": best[:30] + 1, "label": 1})
    for labels in (chosen, chosen[chosen["response_id"] < M]):
        scores = load_scores(frame, labels=labels)
        assert scores.response[scores.label == 1].tolist() == (labels["response_id"] - 1).tolist()
    sheet = filled(label(frame, n=30).table, best)
    assert set(sheet["response_id"].astype(str)) == {"1", "2", "3"}
    assert load_scores(frame, labels=sheet).response[
        load_scores(frame, labels=sheet).is_correct
    ].tolist() == [*best]


def test_a_second_judge_is_joined_by_the_ids_of_responses() -> None:
    frame, best = table()
    named = frame.assign(response_id=[f"r{j}" for j in frame["response_id"]])
    sheet = filled(label(named, n=50).table, best)
    one, other = (load_scores(named, labels=sheet, second=each) for each in (named, shuffled(named)))
    np.testing.assert_allclose(one.extra["second"], other.extra["second"])
    drawn = [label(named, n=40, second=each).rows for each in (named, shuffled(named))]
    assert [row["inclusion"] for row in drawn[0]] == pytest.approx([row["inclusion"] for row in drawn[1]])


def test_order_within_few_prompts_has_room_for_errors() -> None:
    scores = Scores.from_arrays(np.tile([1.0, 0.0], (15, 1)), [0] * 15)
    row = next(
        row
        for row in evaluate(scores.labelled_as("correct"), resamples=20).rows
        if row["metric"] == "within_prompt_auroc"
    )
    assert row["value"] == row["high"] == 1.0
    assert row["low"] < 1 - 3 / 15


def test_two_judges_are_compared_response_by_response() -> None:
    frame, best = table()
    right = best[[int(name[1:]) for name in frame["prompt_id"]]] == frame["response_id"]
    named = frame.assign(response_id=[f"r{j}" for j in frame["response_id"]])
    sheet = filled(label(named, n=150).table, best)
    for a, b in (
        (load_scores(named, labels=sheet), load_scores(shuffled(named), labels=sheet)),
        (load_scores(named.assign(is_best=right)), load_scores(shuffled(named.assign(is_best=right)))),
    ):
        row = compare(a, b, metrics=["accuracy"]).row("accuracy")
        assert row is not None
        assert (row["a"], row["difference"]) == (row["b"], 0.0)
    everyone = [load_scores(one) for one in (named, shuffled(named))]
    first, second = on_common_prompts(everyone)
    np.testing.assert_array_equal(first.reward, second.reward)
    nameless = frame.assign(is_best=right).drop(columns=["response_id", "prompt", "completion"])
    with pytest.raises(ValueError, match="response"):  # labels alone show that the order is another one
        compare(load_scores(nameless), load_scores(shuffled(nameless)))
    with pytest.raises(ValueError, match="response_id"):
        on_common_prompts(
            [
                everyone[0],
                load_scores(named.assign(response_id="x" + named["response_id"]).drop(columns="completion")),
            ]
        )

"""Draw prompts to label, label them, join the labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmcalib import Scores, label, load_scores
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
    with pytest.raises(ValueError, match="inclusion"):
        load_scores(frame, labels=sheet.assign(inclusion=7.0))
    with pytest.raises(ValueError, match="prompt"):
        load_scores(frame, labels=sheet.drop(columns="prompt"))
    with pytest.raises(ValueError, match="person"):
        load_scores(frame, labels=pd.concat([sheet, sheet]))


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
    texts = {row["response_text"] for row in label(wide, n=2).rows}
    assert texts == {"It is one.", "It is two.", "It is no.", "It is not."}


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
    orders = {tuple(one["response"] for one in item["responses"]) for item in data["items"]}
    assert len(orders) > 3  # shuffled


def test_bad_arguments_are_named() -> None:
    frame, _ = table(20)
    for arguments, name in (({"n": 0}, "n:"), ({"by": "topic"}, "topic"), ({"ask": "nice"}, "ask")):
        with pytest.raises(ValueError, match=name):
            label(frame, **arguments)

"""`apply`: the input's rows in order, with what each reward means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit

import rmcalib
from rmcalib.repair import Calibrator, calibrate, decide
from tests.repair.test_calibrate import drawn, sampled

REFERENCE = tuple(np.linspace(-2.0, 2.0, 101))
CALIBRATOR = Calibrator(2.0, 1.8, 2.3, reference=REFERENCE)


def shuffled() -> pd.DataFrame:
    """Three prompts whose rows are mixed, with columns of their own and no labels."""
    return pd.DataFrame(
        {
            "note": ["x", "y", None, "z", "w", "v"],
            "prompt": ["a", "b", "a", "c", "b", "a"],
            "score": [1.0, 3.0, -1.0, 0.5, 3.0, 5.0],
        }
    )


def test_rows_and_columns_keep_their_order() -> None:
    table = shuffled()
    found = rmcalib.apply(table, CALIBRATOR).table
    assert list(found.columns[:3]) == list(table.columns)
    assert found["score"].tolist() == table["score"].tolist()
    for prompt in "abc":
        rows = table["prompt"] == prompt
        r = table["score"][rows].to_numpy() / 2
        expected = np.exp(r) / np.exp(r).sum()
        np.testing.assert_allclose(found["probability"][rows], expected)


def test_what_a_reward_means() -> None:
    table = shuffled()
    found = rmcalib.apply(table, CALIBRATOR).table
    assert found["percentile"].tolist() == pytest.approx([75, 100, 25, 62.5, 100, 100])
    others = [expit((1 - other) / 2) for other in (-1.0, 5.0)]
    assert found["beats_typical"][0] == pytest.approx(np.mean(others))
    assert found["beats_typical"][1] == pytest.approx(0.5)  # two equal rewards
    alone = np.mean(expit((0.5 - np.array(REFERENCE)) / 2))
    assert found["beats_typical"][3] == pytest.approx(alone)


def test_single_responses_have_a_probability_of_being_correct() -> None:
    calibrator = calibrate(sampled(500, temperature=3.0, threshold=7.0)).calibrator
    others = sampled(2000, temperature=3.0, threshold=7.0, seed=5)
    p = rmcalib.apply(others, calibrator).table["p_correct"]
    assert p.mean() == pytest.approx(others.is_correct.mean(), abs=0.03)
    assert "p_correct" not in rmcalib.apply(others, CALIBRATOR).table


@pytest.mark.parametrize("threshold", [0.0, 0.7, 1.0, None])
def test_accept_or_ask(threshold: float | None) -> None:
    decisions = decide(drawn(1000, scale=1.0, seed=2), alpha=0.2)
    object.__setattr__(decisions.choice, "threshold", threshold)
    found = rmcalib.apply(shuffled(), CALIBRATOR, decisions=decisions)
    surest = found.table.groupby("prompt")["probability"].transform("max")
    accept = np.zeros(6, dtype=bool) if threshold is None else surest >= threshold
    assert found.table["decision"].tolist() == ["accept" if one else "ask" for one in accept]
    if threshold is not None:
        same = rmcalib.apply(shuffled(), CALIBRATOR, decisions=threshold)
        assert same.table["decision"].tolist() == found.table["decision"].tolist()
        assert same.accepted == found.accepted


def test_pairs_in_one_row_have_a_column_per_response() -> None:
    table = pd.DataFrame({"chosen": [2.0, 0.0], "rejected": [0.0, 2.0]})
    found = rmcalib.apply(table, CALIBRATOR).table
    np.testing.assert_allclose(found["probability_0"], expit([1.0, -1.0]))
    np.testing.assert_allclose(found["probability_1"], expit([-1.0, 1.0]))


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl", "parquet"])
def test_files(tmp_path: Path, ending: str) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / f"out.{ending}"
    rows = shuffled().to_dict("records")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    calibrator = CALIBRATOR.save(tmp_path / "c.json")
    rmcalib.apply(source, calibrator).save(target)
    readers: dict[str, Any] = {
        "csv": pd.read_csv,
        "tsv": lambda path: pd.read_csv(path, sep="\t"),
        "jsonl": lambda path: pd.read_json(path, lines=True),
        "parquet": pd.read_parquet,
    }
    found = readers[ending](target)
    assert found["prompt"].tolist() == [row["prompt"] for row in rows]
    np.testing.assert_allclose(found["score"].astype(float), shuffled()["score"])
    expected = rmcalib.apply(shuffled(), CALIBRATOR).table["probability"]
    np.testing.assert_allclose(found["probability"], expected)


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="probability"):
        rmcalib.apply(shuffled().assign(probability=0.5), CALIBRATOR, columns="reward=score")
    with pytest.raises(ValueError, match=r"out\.doc"):
        rmcalib.apply(shuffled(), CALIBRATOR).save(tmp_path / "out.doc")
    assert not list(tmp_path.iterdir())

"""Numbers about the answers of a language model: against direct code and against many votes."""

from __future__ import annotations

import numpy as np
import pytest

from rmcalib.calibration import ece
from rmcalib.judges import answers_summary
from rmcalib.metrics import Settings, answer_rows
from rmcalib.report import evaluate
from rmcalib.scores import Scores


def with_details(rewards: np.ndarray, correct: np.ndarray, **details: np.ndarray) -> Scores:
    scores = Scores.from_arrays(rewards, correct=correct)
    flat = {f"judge_{name}": np.asarray(values, dtype=float).ravel() for name, values in details.items()}
    return Scores.from_columns({**scores.columns(), **flat})


def values(scores: Scores) -> dict[str, float]:
    return {row["name"]: row["value"] for row in answer_rows(scores, Settings(resamples=50))}


def test_binary_calibration_of_p_yes() -> None:
    rng = np.random.default_rng(0)
    p, correct = rng.random((60, 3)), rng.integers(0, 3, 60)
    y = (np.arange(3) == correct[:, None]).ravel().astype(float)
    found = values(with_details(np.log(p / (1 - p)), correct, p_yes=p))
    assert found["yes_gap"] == pytest.approx((p.ravel() - y).mean())
    assert found["yes_brier"] == pytest.approx(((p.ravel() - y) ** 2).mean())
    assert found["yes_ece"] == pytest.approx(ece(p.ravel(), y))


def test_the_fair_brier_score_does_not_depend_on_the_number_of_votes() -> None:
    """With 3 or 300 votes the fair score is the same up to noise, and the ordinary one is not."""
    rng = np.random.default_rng(1)
    share = rng.dirichlet(np.ones(4), 4000)
    correct = np.array([rng.choice(4, p=p) for p in share])
    truth = ((share - (np.arange(4) == correct[:, None])) ** 2).mean()
    for n in (3, 300):
        votes = np.array([rng.multinomial(n, p) for p in share])
        rewards = np.log((votes + 0.5) / (n + 2))
        details = {"votes": votes, "vote_count": np.full(votes.shape, n)}
        found = values(with_details(rewards, correct, **details))
        assert found["votes_fair_brier"] == pytest.approx(truth, abs=0.005)
        assert (found["votes_brier"] - truth > 0.03) == (n == 3)


def test_summary_of_places_and_counts() -> None:
    nan = np.nan
    place = np.array([[0.6, 0.4], [0.8, 0.2], [nan, nan]])
    firsts = np.array([[2.0, 0.0], [1.0, 1.0], [nan, nan]])
    first_row = np.array([[2.0, 0.0]] * 3)
    scores = with_details(
        np.array([[1.0, 0.0]] * 3),
        np.zeros(3, int),
        place=place,
        firsts=firsts,
        answers=first_row,
        unread=first_row / 2,
        floored=first_row,
        tokens=first_row * 50,
        floor=np.full((3, 2), 0.01),
        mass=np.full((3, 2), 0.2),
    )
    found = answers_summary(scores)
    assert {name: found[name] for name in ("answers", "unread", "floored", "tokens")} == {
        "answers": 6,
        "unread": 3,
        "floored": 6,
        "tokens": 300,
    }
    assert found["places"]["mean_probability"] == pytest.approx([0.7, 0.3])
    assert found["places"]["bias"] == pytest.approx(0.2)
    assert found["places"]["choice_moves"] == 0.5
    assert found["largest_floor"] == pytest.approx(0.02)
    notes = " ".join(evaluate(scores, resamples=20).notes)
    assert "A 0.700, B 0.300, where 0.500 would be fair" in notes
    assert "3 of 6 answers (50.0%) could not be read" in notes
    assert "off by at most 0.02" in notes
    assert "only 20.0% of the next token's probability" in notes


def test_other_judges_have_no_rows() -> None:
    scores = Scores.from_arrays([[1.0, 0.0]])
    assert (answer_rows(scores), answers_summary(scores)) == ([], {})
    assert evaluate(scores, resamples=20).answers == []

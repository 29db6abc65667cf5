"""Metrics of people's votes in tables, comparisons and leaderboards; scores without votes do not change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rmcalib.metrics import (
    Settings,
    catalogue,
    compare_scores,
    forecast,
    leaderboard,
    metric_rows,
)
from rmcalib.scores import Scores

FAST = Settings(resamples=40)


def voted(scale: float = 1.0, *, n: int = 120, votes: int = 4, seed: int = 0, ties: float = 0.0) -> Scores:
    """Scores on pairs; true fractions of votes are softmax(utility), rewards ``scale`` times the utility."""
    rng = np.random.default_rng(seed)
    utility = rng.normal(scale=1.2, size=(n, 2))
    shares = np.exp(utility) / np.exp(utility).sum(axis=1, keepdims=True)
    counts = rng.multinomial(votes, np.column_stack([shares * (1 - ties), np.full(n, ties)]))
    names = ["Chat" if i % 3 else "Code" for i in range(n)]
    return Scores.from_arrays(scale * utility, votes=counts[:, :2], ties=counts[:, 2], category=names)


VOTES = [name for name, metric in catalogue().items() if metric.prompts == "votes"]


def table(
    scores: Scores,
    settings: Settings = FAST,
    *,
    no_calibration: str | None = None,
    metrics: Sequence[str] | None = (*VOTES, "accuracy"),
) -> dict[tuple[str, str], dict[str, Any]]:
    rows = metric_rows(
        scores, model="m", benchmark="b", settings=settings, no_calibration=no_calibration, metrics=metrics
    )
    return {(row["category"], row["metric"]): row for row in rows}


def test_metrics_of_votes_exist_only_with_votes() -> None:
    plain = Scores.from_arrays([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    with_votes, without = table(voted()), table(plain, metrics=None)
    assert {("overall", name) for name in VOTES} <= set(with_votes)
    assert not {name for _, name in without} & set(VOTES)


def test_other_metrics_do_not_depend_on_votes() -> None:
    scores = voted()
    columns = {
        name: array for name, array in scores.decided().columns().items() if name not in ("votes", "ties")
    }
    plain = table(Scores.from_columns(columns), metrics=None)
    found = {key: row for key, row in table(scores, metrics=None).items() if key[1] not in VOTES}
    assert found == plain


def test_values_equal_a_direct_computation() -> None:
    scores = voted(2.0)
    p = forecast(scores).probability.reshape(-1, 2)
    assert scores.votes is not None
    votes = scores.votes.reshape(-1, 2)
    shares = votes / votes.sum(axis=1, keepdims=True)
    first = p.argmax(axis=1)
    rows, found = np.arange(len(p)), table(scores)
    assert found["overall", "vote_confidence"]["value"] == pytest.approx(p.max(axis=1).mean())
    assert found["overall", "vote_agreement"]["value"] == pytest.approx(shares[rows, first].mean())
    assert found["overall", "vote_log_loss"]["value"] == pytest.approx(
        -(shares * np.log(p)).sum(axis=1).mean()
    )
    pairs = (votes * (votes - 1)).sum(axis=1) / (4 * 3)
    assert found["overall", "voter_disagreement"]["value"] == pytest.approx(1 - pairs.mean())
    excess = found["overall", "vote_brier_excess"]["value"]
    ceiling, brier = (found["overall", f"vote_brier{end}"]["value"] for end in ("_ceiling", ""))
    assert excess == pytest.approx(brier - ceiling)
    code = np.array([i % 3 == 0 for i in rows])
    assert found["Code", "vote_gap"]["value"] == pytest.approx(
        (p.max(axis=1) - shares[rows, first])[code].mean()
    )
    assert found["Code", "vote_gap"]["n"] == code.sum()


def test_prompts_with_level_votes_count() -> None:
    scores = Scores.from_arrays([[1.0, 0.0], [0.0, 2.0], [3.0, 1.0]], votes=[[3, 1], [2, 2], [1, 0]])
    found = table(scores)
    assert found["overall", "vote_agreement"]["n"] == 3
    assert found["overall", "accuracy"]["n"] == 2
    assert found["overall", "vote_agreement"]["value"] == pytest.approx((0.75 + 0.5 + 1) / 3)
    assert found["overall", "vote_brier_ceiling"]["n"] == 2


def test_a_single_vote_has_no_ceiling() -> None:
    found = table(voted(votes=1))
    for name in (
        "vote_log_loss_ceiling",
        "vote_brier_excess",
        "voter_disagreement",
        "vote_agreement_ceiling",
    ):
        assert found["overall", name]["value"] is None
        assert "single vote" in found["overall", name]["note"]
    assert found["overall", "vote_log_loss"]["value"] > 0


def test_every_rule_for_ties() -> None:
    scores = voted(ties=0.25, n=300)
    found = {
        ties: table(scores, Settings(resamples=40, ties=ties))
        for ties in ("split", "drop", "davidson", "rao-kupper")
    }
    agree = {ties: rows["overall", "vote_agreement"]["value"] for ties, rows in found.items()}
    assert agree["davidson"] == agree["rao-kupper"] < agree["split"] < agree["drop"]
    assert found["split"]["overall", "vote_tie_share"]["value"] == pytest.approx(0.25, abs=0.05)
    # Votes without ties are drawn from the forecast, which is therefore calibrated on them.
    assert found["drop"]["overall", "vote_gap"]["low"] < 0 < found["drop"]["overall", "vote_gap"]["high"]


def test_calibrated_forecasts_are_not_called_over_confident_because_people_tie() -> None:
    found = [table(voted(ties=0.3, n=300, seed=seed))["overall", "vote_gap"] for seed in range(20)]
    assert sum(row["low"] <= 0 <= row["high"] for row in found) >= 16
    split = table(voted(ties=0.3, n=300), Settings(resamples=40, ties="split"))["overall", "vote_gap"]
    assert split["low"] > 0


def test_prompts_with_ties_alone_can_be_dropped() -> None:
    scores = Scores.from_arrays(
        [[1.0, 0.0], [0.0, 2.0]], votes=[[3, 1], [0, 0]], ties=[0, 4], category=["a", "b"]
    )
    found = table(
        Scores.from_columns({**scores.columns(), "is_correct": [True, False, False, True]}),
        Settings(resamples=20, ties="drop"),
    )
    assert found["overall", "vote_agreement"]["n"] == 1
    assert found["b", "vote_agreement"]["value"] is None
    assert found["b", "vote_calibration_error"]["note"] == "nobody prefers a response: all votes are ties"
    assert found["b", "vote_calibration_error_p_value"]["value"] is None


def test_models_without_utilities_have_metrics_without_probabilities() -> None:
    found = table(voted(), no_calibration="ratings")
    assert found["overall", "vote_agreement"]["value"] is not None
    assert found["overall", "vote_agreement_ceiling"]["value"] is not None
    assert found["overall", "vote_gap"]["note"] == "ratings"


def test_models_are_compared_and_ranked_by_votes() -> None:
    fair, bold = voted(1.0, n=300), voted(3.0, n=300)
    rows = {
        row["metric"]: row
        for row in compare_scores(fair, bold, settings=FAST)
        if row["category"] == "overall"
    }
    assert rows["vote_agreement"]["difference"] == 0
    assert rows["vote_log_loss"]["low"] > 0
    assert rows["vote_log_loss_excess"]["difference"] == pytest.approx(rows["vote_log_loss"]["difference"])
    assert "vote_log_loss_ceiling" not in rows  # the same for both
    board = leaderboard({"bold": bold, "fair": fair}, metric="vote_log_loss_excess", resamples=40)
    assert board.table["model"].tolist() == ["fair", "bold"]
    assert {"vote_gap", "vote_gap_low", "vote_agreement"} <= set(board.table)


def test_an_unknown_rule_for_ties_is_refused() -> None:
    with pytest.raises(ValueError, match="ties: unknown 'half'"):
        Settings(ties="half")  # type: ignore[arg-type]
    three = Scores.from_arrays([[1.0, 0.0, 2.0]] * 3, votes=[[2, 1, 0]] * 3, ties=[1] * 3)
    with pytest.raises(ValueError, match="rao-kupper is for two responses"):
        table(three, Settings(resamples=20, ties="rao-kupper"))

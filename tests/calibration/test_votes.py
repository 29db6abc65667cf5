"""Forecasts compared with votes: scores and ceilings, compared with slow direct code, and their noise."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.calibration import (
    VoteForecasts,
    effective_votes,
    fit_ties,
    majority_agreements,
    vote_agreement_ceilings,
    vote_brier_ceilings,
    vote_briers,
    vote_error,
    vote_inference,
    vote_log_loss_ceilings,
    vote_log_losses,
    voter_disagreements,
    with_tie_outcome,
)
from rmcalib.calibration._draws import expected_sums
from rmcalib.calibration._votes import _ceilings
from rmcalib.calibration._votes._error import _ShareOutcomes
from rmcalib.calibration._votes._ties import TieModel

KUPPER: Any = "kupper"  # not a model of ties


@st.composite
def ballots(draw: st.DrawFn) -> tuple[list[list[float]], list[list[int]], list[int]]:
    """Draw forecasts, votes and ties of up to four prompts with m responses."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    weights = draw(st.lists(st.lists(st.integers(1, 9), min_size=m, max_size=m), min_size=n, max_size=n))
    votes = draw(st.lists(st.lists(st.integers(0, 3), min_size=m, max_size=m), min_size=n, max_size=n))
    ties = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
    for row, tied in zip(votes, ties, strict=True):
        row[0] += sum(row) + tied == 0
    return [[w / sum(row) for w in row] for row in weights], votes, ties


def voters(votes: list[int], ties: int) -> list[np.ndarray]:
    """Return one vector per person: the response they chose, or an equal part of each."""
    m = len(votes)
    return [np.eye(m)[i] for i in range(m) for _ in range(votes[i])] + [np.full(m, 1 / m)] * ties


@settings(deadline=None, max_examples=60)
@given(ballots())
def test_scores_are_means_over_people(data: tuple[list[list[float]], list[list[int]], list[int]]) -> None:
    forecasts = VoteForecasts.from_arrays(*data)
    for row, (p, votes, ties) in enumerate(zip(*data, strict=True)):
        people = voters(votes, ties)
        losses = [-(x @ np.log(p)) for x in people]
        squares = [((x - np.array(p)) ** 2).sum() for x in people]
        assert vote_log_losses(forecasts)[row] == pytest.approx(np.mean(losses))
        assert vote_briers(forecasts)[row] == pytest.approx(np.mean(squares))
        if len(people) == 1:
            assert np.isnan(voter_disagreements(forecasts)[row])
            assert np.isnan(vote_brier_ceilings(forecasts)[row])
            continue
        pairs = [a @ b for a, b in permutations(people, 2)]
        own = np.mean([x @ x for x in people])
        assert voter_disagreements(forecasts)[row] == pytest.approx(1 - np.mean(pairs))
        assert vote_brier_ceilings(forecasts)[row] == pytest.approx(own - np.mean(pairs))


@settings(deadline=None, max_examples=40)
@given(ballots())
def test_a_voter_is_compared_with_the_others(
    data: tuple[list[list[float]], list[list[int]], list[int]],
) -> None:
    found = majority_agreements(VoteForecasts.from_arrays(*data))
    for row, (_, votes, ties) in enumerate(zip(*data, strict=True)):
        people = voters(votes, ties)
        if len(people) == 1:
            assert np.isnan(found[row])
            continue
        agree = []
        for i, x in enumerate(people):
            others = np.sum([y for j, y in enumerate(people) if j != i], axis=0)
            leaders = np.isclose(others, others.max())
            agree.append(x[leaders].mean())
        assert found[row] == pytest.approx(np.mean(agree))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=3), st.integers(0, 2))
def test_terms_of_the_entropy_are_means_over_different_people(votes: list[int], ties: int) -> None:
    people = voters(votes, ties)
    if not 2 <= len(people) <= 6:
        return
    m, total = len(votes), 0.0
    for k in range(1, len(people)):
        for i in range(m):
            chosen = [
                people[order[0]][i] * np.prod([1 - people[j][i] for j in order[1:]])
                for order in permutations(range(len(people)), k + 1)
            ]
            total += float(np.mean(chosen)) / k
    forecasts = VoteForecasts.from_arrays([[1 / m] * m], [votes], [ties])
    assert _ceilings._first_terms(forecasts)[0][0] == pytest.approx(total)


def draw_votes(shares: np.ndarray, n: int, rng: np.random.Generator) -> VoteForecasts:
    return VoteForecasts.from_arrays(shares, rng.multinomial(n, shares))


@pytest.mark.parametrize(("n_votes", "m"), [(2, 2), (4, 2), (50, 2), (4, 4)])
def test_ceilings_are_the_scores_of_the_truth(n_votes: int, m: int) -> None:
    rng = np.random.default_rng([n_votes, m])
    shares = rng.dirichlet(np.full(m, 0.7), 20_000)
    shares = np.clip(shares, 1e-12, None) / np.clip(shares, 1e-12, None).sum(axis=1, keepdims=True)
    forecasts = draw_votes(shares, n_votes, rng)
    entropy = -(shares * np.log(shares)).sum(axis=1).mean()
    for values, truth in (
        (vote_brier_ceilings(forecasts), 1 - (shares**2).sum(axis=1).mean()),
        (vote_log_loss_ceilings(forecasts), entropy),
        (vote_agreement_ceilings(forecasts), shares.max(axis=1).mean()),
    ):
        error = values.std() / np.sqrt(len(values))
        assert abs(values.mean() - truth) < 4 * error + 0.002
    # The truth itself has only noise.
    for scores, ceilings in (
        (vote_briers(forecasts), vote_brier_ceilings(forecasts)),
        (vote_log_losses(forecasts), vote_log_loss_ceilings(forecasts)),
    ):
        excess = scores - ceilings
        assert abs(excess.mean()) < 4 * excess.std() / np.sqrt(len(excess)) + 0.002


def test_ties_agree_with_no_response_in_the_agreement_ceiling() -> None:
    rng = np.random.default_rng(5)
    first = rng.beta(0.8, 0.8, 20_000)
    shares = np.column_stack([first * 0.7, (1 - first) * 0.7, np.full(len(first), 0.3)])
    votes = rng.multinomial(4, shares)
    split = VoteForecasts.from_arrays(np.full((len(first), 2), 0.5), votes[:, :2], votes[:, 2])
    best = np.maximum(first, 1 - first).mean()
    assert vote_agreement_ceilings(split).mean() == pytest.approx(0.7 * best + 0.15, abs=0.01)
    assert vote_agreement_ceilings(with_tie_outcome(split)).mean() == pytest.approx(0.7 * best, abs=0.01)


def test_single_votes_have_no_ceiling() -> None:
    forecasts = VoteForecasts.from_arrays([[0.6, 0.4]] * 3, [[1, 0], [0, 1], [1, 0]])
    for ceilings in (vote_brier_ceilings, vote_log_loss_ceilings, vote_agreement_ceilings):
        assert np.isnan(ceilings(forecasts)).all()


@pytest.mark.parametrize("votes", [[[4, 0], [3, 0]], [[2, 2], [1, 1]]])
def test_ceilings_of_unanimous_and_tied_votes_are_finite(votes: list[list[int]]) -> None:
    forecasts = VoteForecasts.from_arrays([[0.6, 0.4]] * 2, votes)
    unanimous = votes[0][1] == 0
    loss = vote_log_loss_ceilings(forecasts).mean()
    # An unbiased estimate from two prompts can exceed log 2, which the true entropy cannot.
    assert loss == pytest.approx(0, abs=0.01) if unanimous else np.log(2) < loss < 1.4
    assert vote_agreement_ceilings(forecasts).mean() == pytest.approx(1 if unanimous else 0.5, abs=0.05)


def test_the_error_compares_shares_within_bins() -> None:
    p, shares = np.array([0.55, 0.58, 0.92]), np.array([0.5, 0.75, 1.0])
    assert vote_error(p, shares) == pytest.approx((abs(1.13 - 1.25) + abs(0.92 - 1.0)) / 3)
    found = vote_inference(p, shares, np.array([4, 4, 2]), resamples=50)
    assert found.value == pytest.approx(vote_error(p, shares))


def test_drawn_votes_have_the_forecast_mean_and_the_observed_spread() -> None:
    outcomes = _ShareOutcomes.of(np.zeros(2, dtype=np.int64), np.array([4, 2]), 1)
    for correlation in (0.0, 0.3, 0.999):
        q = outcomes.probabilities(np.array([0.7, 0.2]), correlation)
        share = outcomes.chosen / outcomes.voters
        for rows, p, n in ((slice(0, 5), 0.7, 4), (slice(5, 8), 0.2, 2)):
            mean = (q[rows] * share[rows]).sum()
            spread = (q[rows] * (share[rows] - p) ** 2).sum()
            assert q[rows].sum() == pytest.approx(1)
            assert mean == pytest.approx(p)
            assert spread == pytest.approx(p * (1 - p) * (1 + (n - 1) * correlation) / n)
    expected = expected_sums(outcomes, [outcomes.probabilities(np.array([0.7, 0.2]), 0.3)])
    assert expected == pytest.approx(0.9)


@pytest.mark.parametrize("n_votes", [2, 50])
def test_calibrated_forecasts_pass_although_people_agree_more(n_votes: int) -> None:
    rng, rejected = np.random.default_rng(n_votes), 0
    for run in range(30):
        p = rng.uniform(0.5, 0.9, 300)
        shares = rng.beta(2 * p, 2 * (1 - p))  # people agree with each other
        found = vote_inference(
            p, rng.binomial(n_votes, shares) / n_votes, np.full(300, n_votes), resamples=99, rng=run
        )
        rejected += found.test().p_value <= 0.05
    assert rejected <= 6


def test_split_votes_vary_like_more_whole_ones() -> None:
    rng, n, tied = np.random.default_rng(3), 60_000, 0.4
    whole = VoteForecasts.from_arrays([[0.7, 0.3]] * 4, [[3, 1]] * 4)
    assert effective_votes(whole, [0.7] * 4).tolist() == [4] * 4
    # Two fifths of the people split their vote; the others choose so that 70% of all votes are for the first.
    votes = rng.multinomial(4, [0.7 - tied / 2, 0.3 - tied / 2, tied], n)
    split = VoteForecasts.from_arrays(np.tile([0.7, 0.3], (n, 1)), votes[:, :2], votes[:, 2])
    spread = split.shares.reshape(-1, 2)[:, 0].var()
    assert 0.21 / effective_votes(split, np.full(n, 0.7)).mean() == pytest.approx(spread, rel=0.02)


def test_the_order_of_prompts_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    p, n = rng.uniform(0.5, 1.0, 80), rng.integers(1, 9, 80)
    shares, order = rng.binomial(n, p) / n, rng.permutation(80)
    one, other = (vote_inference(p[o], shares[o], n[o], resamples=60) for o in (np.arange(80), order))
    assert one.interval().high == pytest.approx(other.interval().high)
    assert one.test().p_value == other.test().p_value


@pytest.mark.parametrize("model", ["davidson", "rao-kupper"])
def test_the_parameter_of_ties_is_recovered(model: TieModel) -> None:
    rng = np.random.default_rng(1)
    first = rng.beta(1.5, 1.5, 20_000)
    if model == "davidson":
        tie = 0.8 * np.sqrt(first * (1 - first))
        q = np.column_stack([first, 1 - first, tie]) / (1 + tie)[:, None]
    else:
        won, lost = first / (first + 1.6 * (1 - first)), (1 - first) / (1 - first + 1.6 * first)
        q = np.column_stack([won, lost, 1 - won - lost])
    votes = rng.multinomial(3, q)
    forecasts = VoteForecasts.from_arrays(np.column_stack([first, 1 - first]), votes[:, :2], votes[:, 2])
    assert fit_ties(forecasts, model) == pytest.approx(0.8 if model == "davidson" else 1.6, rel=0.05)
    more = with_tie_outcome(forecasts, model)
    assert more.probability.reshape(-1, 3) == pytest.approx(q, abs=0.02)
    assert more.probability.reshape(-1, 3).sum(axis=1) == pytest.approx(1)
    assert (more.votes.reshape(-1, 3) == votes).all()
    assert more.is_tie.reshape(-1, 3).tolist()[0] == [False, False, True]


def test_only_davidson_has_ties_of_several_responses() -> None:
    forecasts = VoteForecasts.from_arrays([[0.5, 0.3, 0.2]] * 4, [[1, 1, 0]] * 4, [2] * 4)
    found = with_tie_outcome(forecasts).probability.reshape(4, 4)
    assert found[0, 3] == pytest.approx(0.5)  # half of the people find them equal
    assert found[0, :3] / found[0, :3].sum() == pytest.approx([0.5, 0.3, 0.2])
    with pytest.raises(ValueError, match="rao-kupper is for two responses, not 3; use davidson or split"):
        with_tie_outcome(forecasts, "rao-kupper")
    with pytest.raises(ValueError, match="already an outcome"):
        fit_ties(with_tie_outcome(forecasts))


@pytest.mark.parametrize(("model", "none"), [("davidson", 0.0), ("rao-kupper", 1.0)])
def test_parameters_without_ties(model: TieModel, none: float) -> None:
    forecasts = VoteForecasts.from_arrays([[0.5, 0.5]] * 2, [[1, 1]] * 2)
    assert fit_ties(forecasts, model) == none
    everybody = VoteForecasts.from_arrays([[0.5, 0.5]] * 2, [[0, 0]] * 2, [3, 3])
    assert fit_ties(everybody, model) > 1e6


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VoteForecasts.from_arrays([[0.5, 0.6]], [[1, 1]]), "row 0 sums to 1.1, expected 1"),
        (lambda: VoteForecasts.from_arrays([[0.5, 0.5]], [[1, 1, 1]]), r"votes: expected shape \(1, 2\)"),
        (lambda: VoteForecasts.from_arrays([[0.5, 0.5]], [[1, -1]]), "a number of votes is 0 or more"),
        (lambda: VoteForecasts.from_arrays([[0.5, 0.5]] * 2, [[1, 1], [0, 0]]), "nobody voted on prompt 1"),
        (lambda: VoteForecasts.from_arrays([[0.5, 0.5]], [[1, 1]], [1, 2]), "ties: expected one number"),
        (lambda: vote_error([0.5], [0.5, 0.5]), "shares: 2 shares for 1 probabilities"),
        (lambda: vote_error([0.5], [1.5]), r"shares: 1.5 at index 0 is outside \[0, 1\]"),
        (lambda: vote_inference([0.5], [0.5], [0]), "n_votes: expected a number of at least 1"),
        (lambda: fit_ties(VoteForecasts.from_arrays([[0.5, 0.5]], [[1, 1]]), KUPPER), "unknown 'kupper'"),
        (lambda: with_tie_outcome(VoteForecasts.from_arrays([[0.5, 0.5]], [[1, 1]], [1])), "two prompts"),
    ],
)
def test_errors_name_the_bad_input(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]

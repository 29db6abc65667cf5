"""Every metric against direct computations, and what each view does with any kind of label."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmcalib.metrics.catalogue import catalogue, chosen_metrics, metric
from rmcalib.metrics.measures import Settings
from rmcalib.metrics.table import OVERALL, find_value, metric_rows
from rmcalib.metrics.views import Ties, whole_part
from rmcalib.scores import Scores
from tests.metrics import slow_metrics as slow
from tests.metrics.worlds import calibrated_scores, prompts_of, ragged_scores

FEW = Settings(resamples=50)


def table(scores: Scores, metrics: Any = None, *, ties: Ties = "drop") -> dict[Any, Any]:
    rows = metric_rows(whole_part(scores, ties=ties), chosen_metrics(metrics), FEW)
    return {(row["category"], row["metric"]): row for row in rows}


@pytest.mark.parametrize("category", [OVERALL, "Math", "Focus", "Safety"])
def test_every_metric_equals_a_direct_computation(category: str) -> None:
    scores = ragged_scores(180, seed=4)
    every = [p for p in prompts_of(scores) if category in (OVERALL, p.category)]
    one = [p for p in every if sum(p.correct) == 1]
    several = [p for p in every if sum(p.correct) > 1]
    rows = metric_rows(whole_part(scores), chosen_metrics(), FEW)
    confident, margin = slow.confidence_rows(one), slow.margins(one)
    uniform = sum(np.log(len(p.rewards)) for p in one) / len(one)
    expected = {
        "ece": slow.ece(slow.pooled(one)),
        "accuracy": slow.accuracy(one),
        "mean_confidence": sum(p for p, _ in confident) / len(one),
        "overconfidence": sum(p for p, _ in confident) / len(one) - slow.accuracy(one),
        "kept_information": 1 - slow.nll(one) / uniform,
        "confidence_ece": slow.ece(confident),
        "debiased_ece": slow.debiased_ece(slow.pooled(one)),
        "pairwise_ece": slow.ece(slow.pairs(one)),
        "brier": slow.brier(one),
        "nll": slow.nll(one),
        "reference_top_1": slow.reference(every),
        "margin_mean": sum(margin) / len(margin),
        "margin_median": np.median(margin),
        "shortest_baseline": slow.by_length(one, -1),
        "longest_baseline": slow.by_length(one, 1),
        "reward_length_correlation": slow.spearman(
            slow.centred([p.rewards for p in one]), slow.centred([p.lengths for p in one])
        ),
    }
    if several:
        expected["correct_first_probability"] = np.mean([p for p, kind in slow.sets(several) if kind])
    for name, value in expected.items():
        row = find_value(rows, name, category)
        assert row is not None, name
        assert row["value"] == pytest.approx(value, abs=1e-10), name
        if row["low"] is not None:
            assert row["low"] - 1e-9 <= row["value"] <= row["high"] + 1e-9, name


def test_the_temperature_maximises_the_likelihood_and_is_cross_fitted() -> None:
    scores = calibrated_scores(300, confidence=2.5, seed=5)
    prompts, found = prompts_of(scores), table(scores, ["temperature", "nll_at_temperature"])
    fitted = found[OVERALL, "temperature"]["value"]
    assert fitted == pytest.approx(slow.best_temperature(prompts), rel=1e-4)
    best = slow.nll(prompts, fitted)
    # On prompts that were not used for the fit the loss is no better than the best, and nearly as good.
    assert best <= found[OVERALL, "nll_at_temperature"]["value"] < best + 0.02


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), n=st.integers(1, 12))
def test_results_do_not_depend_on_the_order_of_responses(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = rng.integers(0, 3, size=(n, 4)).astype(float)  # many ties
    correct = rng.integers(4, size=n)
    order = np.array([rng.permutation(4) for _ in range(n)])
    shuffled = np.take_along_axis(rewards, order, axis=1)
    place = np.array([list(row).index(c) for row, c in zip(order, correct, strict=True)])
    a, b = table(Scores.from_arrays(rewards, correct)), table(Scores.from_arrays(shuffled, place))
    for key, row in a.items():
        if row["value"] is not None and "null" not in key[1] and "p_value" not in key[1]:
            assert row["value"] == pytest.approx(b[key]["value"], abs=1e-9), key


@pytest.mark.parametrize("accuracy", [0.97, 0.995])
def test_a_calibrated_model_that_is_nearly_always_right_is_not_called_misconfident(accuracy: float) -> None:
    rng, off = np.random.default_rng(0), 0
    margin = float(np.log(accuracy / (1 - accuracy)))
    for _ in range(60):
        rewards = np.column_stack([np.full(40, margin), np.zeros(40)])
        row = table(Scores.from_arrays(rewards, (rng.random(40) > accuracy).astype(int)), ["overconfidence"])
        limits = row[OVERALL, "overconfidence"]
        off += not limits["low"] <= 0 <= limits["high"]
    assert off <= 8


def test_no_wrong_choice_does_not_mean_no_error() -> None:
    found = table(Scores.from_arrays([[5.0, 0.0, 0.0]] * 40))
    for name in ("accuracy", "pairwise_accuracy", "usable_information", "kept_information"):
        assert found[OVERALL, name]["low"] < 1 - 1 / 40, name
    for name in ("nll", "brier", "ece"):
        assert found[OVERALL, name]["high"] > found[OVERALL, name]["value"] + 0.01, name


def test_a_temperature_without_an_upper_limit_has_a_lower_one() -> None:
    rng, held = np.random.default_rng(0), []
    for _ in range(120):
        rewards = rng.normal(0, 0.1, size=(40, 2))  # calibrated, with nearly no information
        first = rng.random(40) < 1 / (1 + np.exp(rewards[:, 1] - rewards[:, 0]))
        part = whole_part(Scores.from_arrays(rewards, (~first).astype(int)))
        found = catalogue()["temperature"].measure(part, FEW)
        limits = found.interval()
        if limits is not None:
            held.append(limits.low <= 1 <= limits.high)
            row = metric_rows(part, [catalogue()["temperature"]], FEW)[0]
            assert (row["high"] is None) == (row["low"] is None) == bool(row["note"])
    assert len(held) > 60
    assert np.mean(held) > 0.93


@pytest.mark.parametrize("size", [1e-90, 1e90])
def test_any_unit_of_rewards(size: float) -> None:
    scores = calibrated_scores(40, seed=1)
    plain = table(scores, ["accuracy", "usable_information"])
    scaled = table(scores.at_temperature(1 / size), ["accuracy", "usable_information", "nll"])
    for key, row in plain.items():
        assert scaled[key]["value"] == pytest.approx(row["value"], rel=1e-6)


def test_one_prompt_and_many_responses() -> None:
    one = table(Scores.from_arrays([[1.0, 0.0]]))
    assert one[OVERALL, "accuracy"]["value"] == 1
    assert one[OVERALL, "accuracy"]["low"] is None
    rng = np.random.default_rng(0)
    many = Scores.from_arrays(rng.normal(size=(2, 5000)))
    found = table(many, ["ece", "pairwise_ece", "pairwise_accuracy", "nll"])
    assert all(row["value"] is not None for row in found.values())


def test_prompts_are_freed_at_once() -> None:
    """Large files would not fit into memory if parts waited for the garbage collector."""
    part = whole_part(calibrated_scores(60))
    freed = weakref.ref(part)
    gc.disable()
    try:
        metric_rows(part, chosen_metrics(), FEW)
        del part
        assert freed() is None
    finally:
        gc.enable()


def test_labels_of_any_kind() -> None:
    """Samples of a policy: none, some or all of a prompt's responses are correct, or nobody knows."""
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(200, 4)) * 2
    label = (rng.random((200, 4)) < 1 / (1 + np.exp(-rewards))).astype(float)
    label[:20] = np.nan
    frame = {
        "item_id": np.repeat(np.arange(200).astype(str), 4),
        "category": ["all"] * 800,
        "response": np.tile(np.arange(4), 200),
        "label": label.ravel(),
        "reward": rewards.ravel(),
    }
    found = table(Scores.from_columns(frame))
    known = ~np.isnan(label)
    p = 1 / (1 + np.exp(-rewards[known]))
    gap = found[OVERALL, "pointwise_gap"]
    assert gap["value"] == pytest.approx(p.mean() - label[known].mean())
    assert gap["low"] < 0 < gap["high"]
    assert found[OVERALL, "pointwise_ece"]["value"] == pytest.approx(
        slow.ece(list(zip(p.tolist(), (label[known] == 1).tolist(), strict=True)))
    )
    assert found[OVERALL, "pointwise_ece_p_value"]["value"] > 0.02
    excess = found[OVERALL, "fitted_log_loss_excess"]
    parts = [found[OVERALL, name]["value"] for name in ("pointwise_log_loss_fitted", "base_log_loss")]
    assert excess["value"] == pytest.approx(parts[0] - parts[1])
    assert excess["low"] < excess["value"] < excess["high"] < 0
    wins = []
    for row, truth in zip(rewards[20:], label[20:], strict=True):
        good, bad = row[truth == 1], row[truth == 0]
        if len(good) and len(bad):
            wins.append(np.mean(good[:, None] > bad))
    assert found[OVERALL, "within_prompt_auroc"]["value"] == pytest.approx(np.mean(wins))
    best = label[20:][np.arange(180), rewards[20:].argmax(axis=1)].mean()
    assert found[OVERALL, "best_of_n"]["value"] == pytest.approx(best)
    # Which prompts have exactly one correct response is an outcome: none are selected by it.
    assert found[OVERALL, "accuracy"]["value"] is None


def test_what_labels_mean_decides_the_view() -> None:
    label = np.tile([1.0, 0.0], 100)
    label[1] = 1.0
    columns = {
        "item_id": np.repeat(np.arange(100).astype(str), 2),
        "category": ["all"] * 200,
        "response": np.tile([0, 1], 100),
        "label": label,
        "reward": np.tile([2.0, 0.0], 100),
    }
    best = Scores.from_columns(columns)
    assert best.labels == "best"
    found = table(best)
    assert (OVERALL, "pointwise_gap") not in found
    assert found[OVERALL, "accuracy"]["n"] == 99
    found = table(best.labelled_as("correct"))
    p = 1 / (1 + np.exp([-2.0, 0.0]))
    assert found[OVERALL, "pointwise_gap"]["value"] == pytest.approx(p.mean() - label.mean())
    assert found[OVERALL, "accuracy"]["value"] is None


def test_the_yes_of_a_language_model_is_measured_over_responses() -> None:
    rng = np.random.default_rng(0)
    rewards, correct = rng.normal(size=(30, 4)), rng.integers(4, size=30)
    p, y = 1 / (1 + np.exp(-rewards.ravel())), np.eye(4)[correct].ravel()
    scores = replace(Scores.from_arrays(rewards, correct), extra={"judge_p_yes": p})
    found = table(scores)
    assert found[OVERALL, "pointwise_gap"]["value"] == pytest.approx((p - y).mean())
    ece = slow.ece(list(zip(p.tolist(), y == 1, strict=True)))
    assert found[OVERALL, "pointwise_ece"]["value"] == pytest.approx(ece)
    assert (OVERALL, "pointwise_gap") not in table(Scores.from_arrays(rewards, correct))


def voted(*, n: int = 120, votes: int = 4, seed: int = 0, ties: float = 0.0) -> Scores:
    """Scores on pairs whose true fractions of votes are softmax(rewards)."""
    rng = np.random.default_rng(seed)
    utility = rng.normal(scale=1.2, size=(n, 2))
    shares = np.exp(utility) / np.exp(utility).sum(axis=1, keepdims=True)
    counts = rng.multinomial(votes, np.column_stack([shares * (1 - ties), np.full(n, ties)]))
    names = ["Chat" if i % 3 else "Code" for i in range(n)]
    return Scores.from_arrays(utility, votes=counts[:, :2], ties=counts[:, 2], category=names)


def test_votes_against_direct_computation() -> None:
    scores = voted()
    assert scores.votes is not None
    votes = scores.votes.reshape(-1, 2)
    p, shares = scores.probabilities.reshape(-1, 2), votes / votes.sum(axis=1, keepdims=True)
    first, rows, found = p.argmax(axis=1), np.arange(len(p)), table(scores)
    assert found[OVERALL, "vote_confidence"]["value"] == pytest.approx(p.max(axis=1).mean())
    assert found[OVERALL, "vote_agreement"]["value"] == pytest.approx(shares[rows, first].mean())
    loss = -(shares * np.log(p)).sum(axis=1).mean()
    assert found[OVERALL, "vote_log_loss"]["value"] == pytest.approx(loss)
    pairs = (votes * (votes - 1)).sum(axis=1) / (4 * 3)
    assert found[OVERALL, "voter_disagreement"]["value"] == pytest.approx(1 - pairs.mean())
    code = rows % 3 == 0
    gap = (p.max(axis=1) - shares[rows, first])[code].mean()
    assert found["Code", "vote_gap"]["value"] == pytest.approx(gap)
    assert found[OVERALL, "vote_calibration_error_p_value"]["value"] > 0.02
    assert abs(found[OVERALL, "vote_log_loss_excess"]["value"]) < 0.1


def test_ties_are_left_out_or_forecast() -> None:
    scores = voted(ties=0.3, n=400)
    drop, davidson = (table(scores, ties=rule) for rule in ("drop", "davidson"))
    assert drop[OVERALL, "vote_gap"]["low"] < 0 < drop[OVERALL, "vote_gap"]["high"]
    assert drop[OVERALL, "vote_tie_share"]["value"] == pytest.approx(0.3, abs=0.03)
    assert davidson[OVERALL, "vote_agreement"]["value"] < drop[OVERALL, "vote_agreement"]["value"]
    single = table(voted(votes=1))
    assert single[OVERALL, "vote_log_loss_ceiling"]["value"] is None


def test_judges_of_pairs_have_no_top_1_calibration() -> None:
    beats = [[None, 0.9], [0.1, None]] * 30
    columns = {
        "item_id": np.repeat(np.arange(30).astype(str), 2),
        "category": ["x"] * 60,
        "response": [0, 1] * 30,
        "is_correct": [True, False] * 30,
        "reward": [0.9, 0.1] * 30,
        "beats": beats,
    }
    found = table(Scores.from_columns(columns))
    assert found[OVERALL, "ece"]["value"] is None
    assert found[OVERALL, "ece"]["note"]
    assert found[OVERALL, "pairwise_confidence"]["value"] == pytest.approx(0.9)
    assert found[OVERALL, "pairwise_ece_p_value"]["value"] is None
    assert found[OVERALL, "accuracy"]["value"] == 1


def test_clusters_widen_intervals_and_nulls() -> None:
    scores = calibrated_scores(60, seed=3)
    columns = {name: np.concatenate([array] * 5) for name, array in scores.columns().items()}
    copy = np.repeat(np.arange(5), len(scores)).astype(str)
    cluster = columns["item_id"]
    columns["item_id"] = np.char.add(np.char.add(cluster, "-"), copy)
    alone = table(Scores.from_columns(columns), ["overconfidence", "ece_p_value"])
    together = table(Scores.from_columns({**columns, "cluster": cluster}), ["overconfidence", "ece_p_value"])
    single = table(scores, ["overconfidence"])

    def width(rows: dict[Any, Any]) -> float:
        row = rows[OVERALL, "overconfidence"]
        return float(row["high"] - row["low"])

    assert width(alone) < 0.6 * width(together)
    assert width(together) == pytest.approx(width(single), rel=0.1)
    assert together[OVERALL, "ece_p_value"]["value"] > alone[OVERALL, "ece_p_value"]["value"]


@pytest.mark.parametrize(("n_clusters", "shown"), [(2, False), (4, False), (30, False), (6, True)])
def test_few_clusters_and_one_large_one_have_no_interval(n_clusters: int, shown: bool) -> None:
    scores = calibrated_scores(60, seed=3)
    prompt = np.repeat(np.arange(60), np.diff(scores.offsets))
    category = np.where(prompt < 30, "Math", "Chat")
    cluster = np.where(prompt < 30, 0, 1 + prompt % (n_clusters - 1)).astype(str)
    if shown:
        cluster = (prompt // 10).astype(str)
    found = table(Scores.from_columns({**scores.columns(), "category": category, "cluster": cluster}))
    assert found[OVERALL, "nll_at_temperature"]["value"] > 0
    assert found[OVERALL, "overconfidence"]["value"] is not None
    for name in ("overconfidence", "accuracy", "kept_information", "lost_information", "ece"):
        assert (found[OVERALL, name]["low"] is not None) == shown
    assert (found[OVERALL, "ece_p_value"]["value"] is not None) == shown
    assert bool(found[OVERALL, "overconfidence"]["note"]) != shown
    if shown:
        return
    alone = found["Math", "overconfidence"]  # a category that is one cluster
    assert alone["value"] is not None
    assert alone["low"] is None
    assert "single" in alone["note"]
    assert found["Math", "nll_at_temperature"]["note"] == "needs at least two clusters of prompts"


def test_a_metric_of_ones_own() -> None:
    @metric("bold", "how often the first choice has a probability above 0.9", better="low")
    def bold(part: Any) -> Any:
        return part.first_choice.p > 0.9

    scores = calibrated_scores(50, confidence=3.0)
    found = table(scores, [bold, "accuracy"])
    direct = np.mean([p > 0.9 for p, _ in slow.confidence_rows(prompts_of(scores))])
    assert found[OVERALL, "bold"]["value"] == pytest.approx(direct)
    assert found["Math", "bold"]["low"] is not None
    never = table(calibrated_scores(50, confidence=0.01), [bold])[OVERALL, "bold"]
    assert never["value"] == 0 < never["high"]


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="'accuracy'"):
        chosen_metrics(["acuracy"])
    assert all(one.meaning and "|" not in one.meaning for one in catalogue().values())


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ("measure: accurracy", "accurracy"),
        ("measure: [gap, first_chioce]", "first_chioce"),
        ("measure: gap", "view"),
        ("measure: [correct_first, rihgt]", "rihgt"),
        ("measure: [error, top_1, {spacng: mass}]", "spacng"),
        ("measure: event_error", "event_error"),
        ("measure: smooth_ece, lable: x", "lable"),
        ("measure: smooth_ece, prompts: ones", "ones"),
        ("measure: smooth_ece}, {name: mine, meaning: m, measure: smooth_ece", "two"),
    ],
)
def test_a_wrong_entry_of_the_catalogue_is_found_when_it_is_read(
    entry: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = sys.modules["rmcalib.metrics.catalogue"]  # its function has the same name
    file = tmp_path / "catalogue.yaml"
    file.write_text(f"- {{group: x, title: X, metrics: [{{name: mine, meaning: m, {entry}}}]}}")
    monkeypatch.setattr(module, "_FILE", file)
    for cached in (module._file, catalogue):
        cached.cache_clear()
    try:
        with pytest.raises(ValueError, match=named) as caught:
            catalogue()
        assert "mine" in str(caught.value)
    finally:
        module._file.cache_clear()


class Plugin:
    """An entry point of another package."""

    def __init__(self, loaded: object) -> None:
        self.name, self.dist, self.load = "mine", None, lambda: loaded


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object], dict[str, Any]]]:
    """The catalogue with what another package's entry point loads."""

    def load(loaded: object) -> dict[str, Any]:
        module = sys.modules["rmcalib.metrics.catalogue"]  # its function has the same name
        monkeypatch.setattr(module, "entry_points", lambda **_: [Plugin(loaded)])
        catalogue.cache_clear()
        return catalogue()

    yield load
    monkeypatch.undo()
    catalogue.cache_clear()


def test_a_value_that_is_not_finite_is_none() -> None:
    odd = metric("odd", "not a number")(lambda part: np.full(len(part), np.nan))
    row = table(calibrated_scores(30), [odd])[OVERALL, "odd"]
    assert row["value"] is None
    assert row["note"]


def test_metrics_of_other_packages(plugged: Callable[[object], dict[str, Any]]) -> None:
    ones = metric("ones", "always 1")(lambda part: np.ones(len(part)))
    broken = metric("broken", "never works")(lambda _: 1 / 0)
    assert [*plugged([ones, broken])][-2:] == ["ones", "broken"]
    scores = calibrated_scores(30)
    assert table(scores, ["ones"])[OVERALL, "ones"]["value"] == 1
    with pytest.raises(ValueError, match="metric broken"):
        table(scores, ["broken"])
    with pytest.raises(ValueError, match="'mine'"):
        plugged(len)
    with pytest.raises(ValueError, match="'accuracy'"):
        plugged(metric("accuracy", "another one")(len))


CLUSTERED = {
    "labels": (
        "pairwise_accuracy",
        "pairwise_overconfidence",
        "pairwise_lost_information",
        "margin_median",
        "margin_mean",
        "rewardbench_score",
    ),
    "votes": ("vote_gap", "vote_agreement", "vote_confidence", "vote_log_loss"),
}


@pytest.mark.parametrize("kind", list(CLUSTERED))
def test_copies_of_prompts_in_a_cluster_add_nothing(kind: str) -> None:
    rng = np.random.default_rng(0)
    rewards = rng.normal(size=(60, 3))
    best = (rewards + rng.gumbel(size=rewards.shape)).argmax(axis=1)
    counts = np.eye(3, dtype=int)[best] * 3 + 1

    def width(copies: int, name: str, cluster: bool) -> float:
        names = np.repeat(np.arange(60), copies).astype(str).tolist() if cluster else None
        labels: dict[str, Any] = {"correct": np.repeat(best, copies)}
        if kind == "votes":
            labels = {"votes": np.repeat(counts, copies, axis=0)}
        scores = Scores.from_arrays(np.repeat(rewards, copies, axis=0), cluster=names, **labels)
        row = table(scores, [name])[OVERALL, name]
        return float(row["high"] - row["low"])

    for name in CLUSTERED[kind]:
        assert width(8, name, cluster=True) == pytest.approx(width(1, name, cluster=False), rel=0.12), name
        assert width(8, name, cluster=False) < 0.6 * width(8, name, cluster=True), name


def test_probabilities_in_one_bin_have_no_test_of_their_error() -> None:
    found = table(
        calibrated_scores(100).at_temperature(1e6), ["ece", "ece_p_value", "confidence_ece_p_value"]
    )
    assert found[OVERALL, "ece"]["value"] == 0
    assert found[OVERALL, "ece"]["note"]
    assert found[OVERALL, "ece_p_value"]["value"] is None
    assert found[OVERALL, "ece_p_value"]["note"]
    assert found[OVERALL, "confidence_ece_p_value"]["value"] is not None

"""Correlations over models with errors and accuracies from different prompts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kendalltau

from rmcalib.metrics import Settings, correlate_models
from rmcalib.metrics._boards._two_way import two_way_kendall
from rmcalib.scores import Scores


def board(n_models: int, *, n: int = 120, linked: bool, seed: int = 0) -> dict[str, Scores]:
    """Models of different skill on the same prompts; if linked, less skilled ones are more over-confident."""
    rng = np.random.default_rng(seed)
    u = rng.normal(0, 1.5, (n, 3))
    winner = (u + rng.gumbel(size=u.shape)).argmax(axis=1)
    models = {}
    for i, noise in enumerate(np.linspace(0.3, 4.0, n_models)):
        scale = np.exp(noise) if linked else np.exp(rng.normal(0, 0.5))
        rewards = scale * (u + noise * rng.normal(size=u.shape)) / (1 + noise**2)
        models[f"org-{i}/rm"] = Scores.from_columns(
            {
                "item_id": np.repeat([f"p{j}" for j in range(n)], 3),
                "category": ["x"] * (3 * n),
                "response": np.tile(np.arange(3), n),
                "is_correct": (np.arange(3) == winner[:, None]).ravel(),
                "reward": rewards.ravel(),
            }
        )
    return models


def test_without_influence_it_is_kendalls_tau() -> None:
    rng = np.random.default_rng(0)
    errors, scores = rng.normal(size=12), rng.normal(size=12)
    still = np.zeros(40)
    (found,) = two_way_kendall(
        [(e, still) for e in errors],
        [[(s, still) for s in scores]],
        clusters=np.arange(12),
        settings=Settings(resamples=50),
    )
    assert found["value"] == pytest.approx(kendalltau(-errors, scores).statistic)
    assert found["low"] <= found["value"] <= found["high"]


def test_noise_of_shared_prompts_does_not_correlate() -> None:
    rng = np.random.default_rng(1)
    naive, split = [], []
    for _ in range(20):
        # Equal models: all differences are noise, which the error and the score of a model share.
        noise = rng.normal(size=(12, 60))
        influence = (noise - noise.mean(axis=1, keepdims=True)) / 60
        means = noise.mean(axis=1)
        naive.append(kendalltau(means, means).statistic)
        measured = [(value, row) for value, row in zip(means, influence, strict=True)]
        errors = [(-value, -row) for value, row in measured]
        how = Settings(resamples=1)
        (found,) = two_way_kendall(errors, [measured], clusters=np.arange(12), settings=how)
        split.append(found["value"])
    assert np.mean(naive) == pytest.approx(1.0)
    # Each half has only the noise of its own prompts, so the two are nearly independent.
    assert abs(np.mean(split)) < 0.35


def test_linked_models_correlate_and_rows_name_metric_and_target() -> None:
    rows = correlate_models(board(14, linked=True), resamples=100)
    assert [row["metric"] for row in rows] == ["ece", "lost_information", "abs_log_temperature"]
    for row in rows[:2]:
        assert row["low"] > 0
        assert row["p_value"] < 0.05
        assert (row["n"], row["families"], row["prompts"], row["note"]) == (14, 14, 120, "")
    assert rows == correlate_models(board(14, linked=True), resamples=100)


def test_families_are_resampled_together() -> None:
    models = board(14, linked=True)
    alone, together = (
        correlate_models(models, families=families, resamples=200)[1]
        for families in ({}, {name: str(i % 5) for i, name in enumerate(models)})
    )
    assert together["value"] == alone["value"]
    assert together["families"] == 5
    assert together["note"] == "too few families of models (5; at least 10 are needed)"


def test_too_few_models_and_too_few_prompts() -> None:
    rows = correlate_models(board(2, linked=False), resamples=20)
    assert {row["value"] for row in rows} == {None}
    assert rows[0]["note"] == "too few models (2; at least 10 are needed)"
    one, other = board(2, linked=False).values()
    renamed = {name: getattr(other, name) for name in ("category", "response", "is_correct", "reward")}
    strange = Scores.from_columns({**renamed, "item_id": np.char.add("x", other.item_id.astype(str))})
    with pytest.raises(ValueError, match="share fewer than two prompts"):
        correlate_models({"a": one, "b": strange})


def test_prompts_in_another_order_are_matched() -> None:
    models = board(4, linked=False)
    name, scores = next(iter(models.items()))
    order = np.random.default_rng(0).permutation(120)
    rows = (order[:, None] * 3 + np.arange(3)).ravel()
    names = ("item_id", "category", "response", "is_correct", "reward")
    turned = Scores.from_columns({key: getattr(scores, key)[rows] for key in names})
    for row, usual in zip(
        correlate_models({**models, name: turned}, resamples=20),
        correlate_models(models, resamples=20),
        strict=True,
    ):
        assert row == pytest.approx(usual)


def test_interval_and_p_value_agree_about_zero() -> None:
    for seed in range(4):
        for row in correlate_models(board(12, linked=False, seed=seed), resamples=400):
            if min(abs(row["low"]), abs(row["high"])) > 0.02:
                assert (row["p_value"] <= 0.05) == (not row["low"] <= 0 <= row["high"])


def test_categories_are_targets_and_only_shared_prompts_count() -> None:
    models = board(11, linked=True)
    named = {}
    for i, (name, one) in enumerate(models.items()):
        columns = one.columns() | {"category": np.where(np.arange(360) < 180, "a", "b")}
        scores = Scores.from_columns(columns)
        named[name] = scores.take(np.arange(120) >= (30 if i == 0 else 0))
    rows = correlate_models(named, resamples=50)
    counts = {row["target"]: row["prompts"] for row in rows}
    assert counts == {"accuracy": 90, "a": 30, "b": 60}
    assert all(row["value"] > 0 for row in rows if row["metric"] == "lost_information")

"""Every metric against direct computations, intervals against simulations, and missing values."""

import numpy as np
import pytest

from rmcalib.calibration import NullTest, ece, pairwise_inference
from rmcalib.judges import Recipe, registry, scale_note, why_no_calibration
from rmcalib.metrics import (
    OVERALL,
    Forecasts,
    Settings,
    Statistic,
    catalogue,
    find_value,
    forecast,
    metric_rows,
    select_prompts,
    top_1_prompts,
)
from rmcalib.metrics._catalogue._lengths import spearman_sums
from rmcalib.metrics._events import accuracy_of, pairwise_forecasts
from rmcalib.metrics._rewardbench import ties_score
from rmcalib.scores import Scores
from tests.metrics import slow_metrics as slow
from tests.metrics.worlds import calibrated_scores, prompts_of, ragged_scores, scores_of

FEW = Settings(resamples=50)


def pairwise_null(found: Forecasts, *, resamples: int, seed: int = 0) -> NullTest:
    return pairwise_inference(
        found.log_probability, found.is_correct, found.prompt, resamples=resamples, rng=seed
    ).test()


def value_of(scores: Scores, metric: str, category: str = OVERALL, **options: object) -> float | None:
    rows = metric_rows(scores, model="m", benchmark="b", settings=FEW, **options)  # type: ignore[arg-type]
    row = find_value(rows, metric, category)
    assert row is not None
    value: float | None = row["value"]
    return value


@pytest.mark.parametrize("category", [OVERALL, "Math", "Focus", "Safety"])
def test_every_metric_equals_a_direct_computation(category: str) -> None:
    scores = ragged_scores(180, seed=4)
    every = [p for p in prompts_of(scores) if category in (OVERALL, p.category)]
    one = [p for p in every if sum(p.correct) == 1]
    several = [p for p in every if sum(p.correct) > 1]
    rows = metric_rows(scores, model="m", benchmark="b", settings=FEW)
    confident = slow.confidence_rows(one)
    margin = slow.margins(one)
    expected = {
        "ece": slow.ece(slow.pooled(one)),
        "accuracy": slow.accuracy(one),
        "mean_confidence": sum(p for p, _ in confident) / len(one),
        "overconfidence": sum(p for p, _ in confident) / len(one) - slow.accuracy(one),
        "confidence_ece": slow.ece(confident),
        "debiased_ece": slow.debiased_ece(slow.pooled(one)),
        "pairwise_ece": slow.ece(slow.pairs(one)),
        "brier": slow.brier(one),
        "nll": slow.nll(one),
        "reference_top_1": slow.reference(every),
        "margin_mean": sum(margin) / len(margin),
        "margin_median": sorted(margin)[len(margin) // 2] / 2 + sorted(margin)[(len(margin) - 1) // 2] / 2,
        "shortest_baseline": slow.by_length(one, -1),
        "longest_baseline": slow.by_length(one, 1),
        "reward_length_correlation": slow.spearman(
            slow.centred([p.rewards for p in one]), slow.centred([p.lengths for p in one])
        ),
        "confidence_length_correlation": slow.spearman(
            [p for p, _ in confident], [p.lengths[p.rewards.index(max(p.rewards))] for p in one]
        ),
        "rewardbench_score": np.mean(
            [
                # RewardBench looks at the first correct response only.
                float(p.rewards[p.correct.index(True)] == max(p.rewards))
                for p in every
            ]
        ),
    }
    if several:
        expected["correct_first_probability"] = np.mean([p for p, kind in slow.sets(several) if kind])
    if category == OVERALL:
        # The mean of the categories.
        expected["rewardbench_score"] = np.mean(
            [
                find_value(rows, "rewardbench_score", name)["value"]  # type: ignore[index]
                for name in ("Math", "Focus", "Safety")
            ]
        )
    for metric, value in expected.items():
        row = find_value(rows, metric, category)
        assert row is not None, metric
        assert row["value"] == pytest.approx(value, abs=1e-10), metric
        if row["low"] is not None:
            assert row["low"] <= row["value"] + 1e-9, metric
            assert row["high"] >= row["value"] - 1e-9, metric


def test_the_temperature_maximises_the_likelihood_and_is_cross_fitted() -> None:
    scores = calibrated_scores(300, confidence=2.5, seed=5)
    prompts = prompts_of(scores)
    fitted = value_of(scores, "temperature")
    assert fitted == pytest.approx(slow.best_temperature(prompts), rel=1e-4)
    best = slow.nll(prompts, fitted or 1.0)
    crossed = value_of(scores, "nll_at_temperature")
    # On prompts that were not used for the fit the loss is no better than the best, and nearly as good.
    assert crossed is not None
    assert best <= crossed < best + 0.02
    assert crossed < slow.nll(prompts)


def test_a_calibrated_model_measures_as_calibrated_and_an_overconfident_one_does_not() -> None:
    calibrated, bold = calibrated_scores(800, seed=6), calibrated_scores(800, confidence=3.0, seed=6)
    assert (value_of(calibrated, "ece_p_value") or 0) > 0.05
    rows = metric_rows(calibrated, model="m", benchmark="b", settings=Settings(resamples=300))
    row = find_value(rows, "ece")
    assert row is not None
    assert row["low"] == 0.0
    assert (value_of(bold, "ece_p_value") or 1) < 0.03
    assert (value_of(bold, "overconfidence") or 0) > 0.1
    after = value_of(bold, "ece_at_temperature")
    assert after is not None
    assert after < 0.03 < (value_of(bold, "ece") or 0)


def test_intervals_of_accuracy_and_temperature_cover_the_truth() -> None:
    """Of 60 intervals at 95%, few miss the truth: binomial(60, 0.05) is below 9 with probability 0.996."""
    missed = {"nll": 0, "temperature": 0}
    truth = []
    for seed in range(60):
        found = forecast(calibrated_scores(200, confidence=2.0, seed=seed))
        loss = -found.log_probability[found.is_correct]
        truth.append((loss, found))
    mean = float(np.mean([loss.mean() for loss, _ in truth]))
    for loss, found in truth:
        low_high = Statistic.mean(loss).interval()
        assert low_high is not None
        missed["nll"] += not low_high.low <= mean <= low_high.high
        part = catalogue()["temperature"].statistic(found, Settings()).interval()
        assert part is not None
        missed["temperature"] += not part.low <= 2.0 <= part.high
    assert max(missed.values()) < 9, missed


def test_ties_are_resampled_by_number() -> None:
    rng = np.random.default_rng(12)
    prompts, ids = [], []
    for number in range(25):
        for kind, n_correct in (("ref", 1), ("tied", 4)):
            if kind == "ref" and number % 7 == 3:
                continue  # a number N with only one kind of prompt
            ids.append(f"{kind}:{number}")
            rewards = rng.normal(0, 1, n_correct + 3) + 3.0 * (np.arange(n_correct + 3) < n_correct)
            correct = [i < n_correct for i in range(n_correct + 3)]
            prompts.append(slow.Prompt("Ties", rewards.tolist(), correct, [1.0] * (n_correct + 3)))
    scores = scores_of(prompts, ids=ids)
    rows = metric_rows(scores, model="m", benchmark="b", metrics=["rewardbench_score"])
    overall, ties = rows
    assert ties["value"] == ties_score(scores)
    assert ties["low"] < ties["value"] < ties["high"]
    assert [overall[key] for key in ("value", "low", "high")] == pytest.approx(
        [ties[key] for key in ("value", "low", "high")], abs=1e-15
    )


def test_the_ties_category_is_kept_apart() -> None:
    ties = [
        slow.Prompt("Ties", [2.0, 0.0, -1.0], [True, False, False], [3, 4, 5]),
        slow.Prompt("Ties", [1.5, 1.0, 0.0], [True, True, False], [3, 4, 5]),
    ]
    math_ = [slow.Prompt("Math", [1.0, 0.0], [True, False], [1, 2])] * 3
    scores = scores_of([*math_, *ties], ids=["a", "b", "c", "ref:0", "tied:0"])
    rows = metric_rows(scores, model="m", benchmark="b", settings=FEW)

    def at(metric: str, category: str) -> float | None:
        row = find_value(rows, metric, category)
        return None if row is None else row["value"]

    assert at("ece", "Ties") is None
    assert find_value(rows, "ece")["n"] == 3  # type: ignore[index]
    assert find_value(rows, "reference_top_1")["n"] == 5  # type: ignore[index]
    assert at("correct_first", "Ties") == 1.0
    assert at("rewardbench_score", "Ties") == pytest.approx(1.0 + 0.01 * np.tanh(1.0 / 0.5 - 1))
    assert at("rewardbench_score", OVERALL) == pytest.approx((1.0 + at("rewardbench_score", "Ties")) / 2)  # type: ignore[operator]


def test_equal_rewards_count_as_fractions_and_do_not_depend_on_order() -> None:
    same = [slow.Prompt("Math", [0.0] * 4, [True, False, False, False], [1, 2, 3, 4])] * 400
    scores = scores_of(same)
    assert value_of(scores, "accuracy") == 0.25
    assert value_of(scores, "ece") == pytest.approx(0.0, abs=1e-12)
    assert (accuracy_of(forecast(scores)) == 0.25).all()
    row = find_value(metric_rows(scores, model="m", benchmark="b", settings=FEW), "reward_length_correlation")
    assert row is not None
    assert row["value"] is None
    assert row["note"]


def test_without_utilities_calibration_is_empty_with_a_reason() -> None:
    scores = ragged_scores(60, seed=7)
    rows = metric_rows(scores, model="m", benchmark="b", no_calibration="quantiles", settings=FEW)
    empty = {row["metric"] for row in rows if row["value"] is None and row["category"] == OVERALL}
    full = {row["metric"] for row in rows if row["value"] is not None and row["category"] == OVERALL}
    assert {"ece", "nll", "temperature", "correct_first_probability", "reference_top_1"} <= empty
    assert {"accuracy", "rewardbench_score", "margin_mean", "shortest_baseline"} <= full
    assert all(row["note"] == "quantiles" for row in rows if row["metric"] == "ece")
    known = catalogue().values()
    usual = {metric.name for metric in known if metric.prompts != "votes" and "official" not in metric.needs}
    assert empty | full == usual


def test_unknown_lengths_are_noted() -> None:
    scores = calibrated_scores(30)
    columns = {
        name: getattr(scores, name) for name in ("item_id", "category", "response", "is_correct", "reward")
    }
    rows = metric_rows(Scores.from_columns(columns), model="m", benchmark="b", settings=FEW)
    row = find_value(rows, "shortest_baseline")
    assert row is not None
    assert row["value"] is None
    assert "lengths are unknown" in row["note"]


def test_few_prompts_get_no_temperature_and_no_crash() -> None:
    for n in (1, 2, 19):
        rows = metric_rows(calibrated_scores(n), model="m", benchmark="b", settings=FEW)
        row = find_value(rows, "temperature")
        assert row is not None
        assert row["value"] is None
        assert "at least 20" in row["note"]


@pytest.mark.parametrize(
    ("sign", "shown"), [(1.0, "every forecast is right"), (-1.0, "a uniform guess does as well")]
)
def test_extreme_models_are_reported_not_fitted(sign: float, shown: str) -> None:
    always = [slow.Prompt("Math", [sign * 3.0, 0.0], [True, False], [1, 2])] * 40
    rows = metric_rows(scores_of(always), model="m", benchmark="b", settings=FEW)
    row = find_value(rows, "temperature")
    assert row is not None
    assert row["value"] is None
    assert shown in row["note"]
    assert np.isfinite(find_value(rows, "nll_at_temperature")["value"])  # type: ignore[index]


def test_rewards_of_any_scale_stay_finite() -> None:
    for scale in (1e-6, 1e6):
        scores = calibrated_scores(60, confidence=scale, seed=8)
        rows = metric_rows(scores, model="m", benchmark="b", settings=FEW)
        assert all(np.isfinite(row["value"]) for row in rows if row["value"] is not None)
    fitted = [value_of(calibrated_scores(200, confidence=c, seed=9), "temperature") for c in (1.0, 1e6)]
    assert fitted[1] == pytest.approx(1e6 * (fitted[0] or 0), rel=1e-6)


def test_same_seed_gives_same_rows_and_categories_are_independent() -> None:
    scores = ragged_scores(90, seed=10)
    rows = metric_rows(scores, model="m", benchmark="b", settings=FEW)
    assert rows == metric_rows(scores, model="m", benchmark="b", settings=FEW)
    found = forecast(scores)
    only = select_prompts(found, top_1_prompts(found) & (found.category == "Math"))
    assert find_value(rows, "ece", "Math")["n"] == len(only)  # type: ignore[index]


def test_correlation_of_groups_that_never_vary_is_none() -> None:
    assert spearman_sums(np.ones(9), np.arange(9.0), np.arange(9)) is None


def test_the_registry_decides_which_models_are_measured() -> None:
    known = registry()
    left_out = {name for name, recipe in known.items() if why_no_calibration(recipe)}
    assert left_out == {"nicolinho/QRM-Gemma-2-27B", "nicolinho/QRM-Llama3.1-8B-v2"}
    marked = {
        name for name, recipe in known.items() if scale_note(recipe).startswith("not trained")
    } - left_out
    assert marked == {
        "LxzGordon/URM-LLaMa-3.1-8B",
        "ShikaiChen/LDL-Reward-Gemma-2-27B-v0.1",
        "RLHFlow/ArmoRM-Llama3-8B-v0.1",
    }
    assert scale_note(Recipe("org/rm", bradley_terry="yes")) == ""


def test_the_pairwise_null_is_that_of_winners_drawn_from_the_forecast() -> None:
    scores = ragged_scores(60, seed=3)
    forecasts = forecast(scores)
    forecasts = select_prompts(forecasts, top_1_prompts(forecasts))
    null = pairwise_null(forecasts, resamples=300, seed=1)
    p, happened, _ = pairwise_forecasts(forecasts)
    assert null.value == pytest.approx(ece(p, happened), abs=1e-12)
    rng = np.random.default_rng(2)
    slowly = []
    for _ in range(300):
        drawn = []
        for start, size in zip(forecasts.starts, forecasts.sizes, strict=True):
            rewards = forecasts.reward[start : start + size].tolist()
            winner = rng.choice(size, p=slow.probabilities(rewards))
            drawn.append(slow.Prompt("x", rewards, [i == winner for i in range(size)], [1.0] * size))
        slowly.append(slow.ece(slow.pairs(drawn)))
    error = np.std(slowly) * (2 / 300) ** 0.5
    assert null.mean == pytest.approx(np.mean(slowly), abs=4 * error)
    assert null.high == pytest.approx(np.quantile(slowly, 0.95), abs=12 * error)


def test_pairwise_p_values_of_calibrated_models_are_uniform_and_of_others_small() -> None:
    values = []
    for seed in range(60):
        forecasts = forecast(calibrated_scores(40, seed=seed))
        values.append(pairwise_null(forecasts, resamples=100, seed=seed).p_value)
    assert 0.35 < np.mean(values) < 0.65
    assert np.mean(np.array(values) < 0.1) < 0.25
    overconfident = forecast(calibrated_scores(400, seed=1), temperature=0.2)
    assert pairwise_null(overconfident, resamples=100).p_value < 0.02

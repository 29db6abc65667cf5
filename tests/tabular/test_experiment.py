"""Experiments: tidy, resumable at any time, and the same for any number of processes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rmcalib.ranking import PlackettLuce
from rmcalib.ranking.synthetic import synthetic_plackett_luce
from rmcalib.tabular import Plan, Questions
from rmcalib.tabular._evaluation import evaluate, kendall_tau
from rmcalib.tabular._experiment import run_experiment
from rmcalib.tabular._plan import COLUMNS
from rmcalib.tabular._tables import fold_means, paired_points, read_results, stagewise_verdicts
from tests.tabular.files import small

FAST = Plan(learners=("mallows", "pl"), folds=2, questions=Questions(resamples=20))


def test_results_are_tidy(tmp_path: Path) -> None:
    table = run_experiment([small()], FAST, tmp_path)
    assert tuple(table.columns) == COLUMNS
    keys = ["dataset", "learner", "fold", "family", "notion", "k", "protocol", "discrepancy"]
    assert not table.duplicated(keys).any()
    assert set(zip(table["family"], table["k"], strict=True)) == {
        ("", 3),
        ("sub", 2),
        ("sub", 3),
        ("top", 1),
        ("top", 2),
    }
    exact = table[table["discrepancy"] == "abs"]
    assert (exact["low"] <= exact["high"]).all()
    assert exact["p_value"].between(0, 1).all()
    pd.testing.assert_frame_equal(read_results(tmp_path / "results.csv"), table)


def test_an_interrupted_run_resumes_with_the_same_bytes(tmp_path: Path) -> None:
    data = [small(), replace(small(seed=1), name="other")]
    run_experiment(data, FAST, tmp_path / "whole")
    done: list[str] = []

    def stop(label: str) -> None:
        done.append(label)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(data, FAST, tmp_path / "cut", on_done=stop)
    assert not (tmp_path / "cut" / "results.csv").exists()
    assert len(list((tmp_path / "cut" / "parts").iterdir())) == 3
    heard: list[str] = []
    run_experiment(data, FAST, tmp_path / "cut", on_done=heard.append)
    assert len(heard) == 8
    whole, cut = ((tmp_path / name / "results.csv").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_the_number_of_processes_does_not_change_the_results(tmp_path: Path) -> None:
    plan = replace(FAST, learners=("pl", "rc", "rpc"), recalibrate=True)
    run_experiment([small()], plan, tmp_path / "one")
    run_experiment([small()], plan, tmp_path / "two", processes=2)
    one, two = ((tmp_path / name / "results.csv").read_bytes() for name in ("one", "two"))
    assert one == two


def test_another_plan_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    run_experiment([small()], replace(FAST, learners=("mallows",)), tmp_path)
    other = replace(FAST, learners=("mallows",), seed=1)
    with pytest.raises(ValueError, match=r"plan\.seed: 0 there, 1 now.*--fresh"):
        run_experiment([small()], other, tmp_path)
    with pytest.raises(ValueError, match=r"datasets\.synthetic-0: .* there"):
        run_experiment(
            [replace(small(seed=5), name="synthetic-0")], replace(FAST, learners=("mallows",)), tmp_path
        )
    assert len(run_experiment([small()], other, tmp_path, fresh=True))


def test_too_few_rows_for_the_folds(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="synthetic-0: 9 rows are too few for 5 folds"):
        run_experiment([small(9)], Plan(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learners": ("svm",)}, "learner: unknown 'svm'"),
        ({"folds": 1}, "folds: 1 is out of range"),
        ({"training": "reference", "folds": 4}, "5 folds"),
        ({"truth": "model"}, "rpc has no distribution"),
    ],
)
def test_bad_plans(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Plan(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"notions": ("strong",)}, "notion: unknown"),
        ({"protocols": ("both",)}, "protocol: unknown"),
        ({"discrepancies": ("l2",)}, "discrepancy: unknown"),
        ({"sub": (1,)}, "sub-k starts at 2"),
    ],
)
def test_bad_questions(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Questions(**options)  # type: ignore[arg-type]


def test_a_truth_drawn_from_the_model_is_calibrated(tmp_path: Path) -> None:
    plan = Plan(
        learners=("pl", "mallows"),
        truth="model",
        questions=Questions(protocols=("exact", "reference"), intervals=False),
    )
    table = run_experiment([small(300, 4)], plan, tmp_path)
    assert (table["p_value"].dropna() < 0.05).mean() < 0.2
    means = {
        (row["learner"], row["protocol"]): row["mean"]
        for row in fold_means(table).to_dict("records")
        if (row["notion"], row["family"], row["k"], row["discrepancy"]) == ("rankwise-95", "sub", 2, "abs")
    }
    assert means["mallows", "reference"] > means["mallows", "exact"]


def test_recalibration_repairs_an_overfitted_model(tmp_path: Path) -> None:
    plan = Plan(learners=("pl", "rpc"), recalibrate=True, questions=Questions(resamples=0))
    means = fold_means(run_experiment([small(80, 4)], plan, tmp_path))
    loss = means[means["notion"] == "log_loss"].set_index("learner")["mean"]
    assert loss["pl+t"] < loss["pl"]
    assert "rpc+t" not in set(means["learner"])


def test_no_temperature_if_every_held_out_row_is_forecast_correctly(tmp_path: Path) -> None:
    certain = replace(small(60), orders=np.tile([2, 0, 1], (60, 1)))
    plan = Plan(learners=("pl", "mallows"), folds=2, recalibrate=True, questions=Questions(resamples=0))
    means = fold_means(run_experiment([certain], plan, tmp_path))
    loss = means[means["notion"] == "log_loss"].set_index("learner")["mean"]
    assert loss["pl+t"] == loss["pl"] > 0
    assert loss["mallows+t"] == loss["mallows"]


def test_stagewise_stops_where_the_error_is_large() -> None:
    bad = PlackettLuce([[9.0, 0.0, -9.0, 0.0]] * 40)
    orders = synthetic_plackett_luce(40, 4, spread=0.0, rng=np.random.default_rng(0)).orders
    rows = evaluate(bad, orders, Questions(stagewise=True, resamples=50, sub=(2, 3, 4)), counted_on=orders)
    assert {row["k"] for row in rows if row["family"] == "sub"} == {2}
    known = pd.DataFrame([row | {"dataset": "d", "learner": "pl"} for row in rows])
    assert "k = 2" in stagewise_verdicts(known)[0]
    assert stagewise_verdicts(known) != stagewise_verdicts(known.assign(p_value=0.5))
    asked = Questions(
        stagewise=True, resamples=50, sub=(2, 3), top=(), notions=("rankwise",), intervals=False
    )
    reached = 0
    for seed in range(10):
        good = synthetic_plackett_luce(40, 4, rng=np.random.default_rng(seed))
        rows = evaluate(good.forecast, good.orders, asked, counted_on=good.orders)
        reached += any(row["k"] == 3 and row["family"] == "sub" for row in rows)
    assert reached >= 8  # each is stopped at k = 2 with probability 0.05


def test_kendall_tau_by_counting() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.permuted(np.tile(np.arange(5), (20, 1)), axis=1) for _ in "ab")
    expected = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        signs = [
            np.sign((x.index(i) - x.index(j)) * (y.index(i) - y.index(j))) for i in range(5) for j in range(i)
        ]
        expected.append(np.mean(signs))
    assert kendall_tau(a, b) == pytest.approx(np.mean(expected))


def test_points_are_joined_on_all_other_keys() -> None:
    rows = (("a", "abs", 1.0), ("b", "abs", 2.0), ("b", "kl", 3.0))
    means = pd.DataFrame(rows, columns=["learner", "discrepancy", "mean"])
    points = paired_points(means, {"discrepancy": "abs"}, {"discrepancy": "kl"}, ["learner", "discrepancy"])
    assert points.to_dict("records") == [{"learner": "b", "x": 2.0, "y": 3.0}]


def test_interval_and_test_agree_about_zero() -> None:
    questions = Questions(sub=(2,), top=(1,), discrepancies=("abs",), resamples=40)
    decided = []
    for seed in range(12):
        data = synthetic_plackett_luce(60, 3, confidence=1.6, rng=np.random.default_rng(seed))
        rows = evaluate(data.forecast, data.orders, questions, counted_on=data.orders, rng=seed)
        for row in rows:
            if row["notion"] in ("rankwise", "rankwise-95"):
                assert (row["low"] > 0) == (row["p_value"] <= 0.05)
                decided.append(row["low"] > 0)
    assert 0 < sum(decided) < len(decided)
    # Without intervals, the test uses the same draws.
    plain = evaluate(
        data.forecast, data.orders, replace(questions, intervals=False), counted_on=data.orders, rng=11
    )
    assert [row.get("p_value") for row in plain] == [row.get("p_value") for row in rows]

"""The experiment: tidy, resumable at any time, the same for any number of processes, with own learners."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rmcalib._util.processes import PeerError
from rmcalib.ranking import PlackettLuce
from rmcalib.tabular import LEARNERS, Plan, Questions, load_dataset, run_prolr
from tests.tabular.files import small

PLAN = Plan(learners=("mallows",), folds=2, questions=Questions(sub=(2,), top=(1,), resamples=20))
QUICK = replace(PLAN, questions=replace(PLAN.questions, resamples=0))


class Uniform:
    """A learner that forecasts all rankings with the same probability."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: Any, orders: Any) -> "Uniform":  # noqa: ARG002
        self.n_items = orders.shape[1]
        return self

    def predict(self, X: Any) -> PlackettLuce:
        return PlackettLuce(np.zeros((len(X), self.n_items)))


class Dying(Uniform):
    def predict(self, X: Any) -> Any:  # noqa: ARG002
        os.kill(os.getpid(), signal.SIGKILL)


class Wrong(Uniform):
    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


class Short(Uniform):
    def predict(self, X: Any) -> PlackettLuce:
        return PlackettLuce(np.zeros((len(X) - 1, self.n_items)))


def test_results_are_tidy_and_what_is_written_is_what_is_returned(tmp_path: Path) -> None:
    everything = ("rankwise", "rankwise-95", "full-rank", "full-rank-95")
    questions = Questions(notions=everything, protocols=("exact", "reference"), resamples=20)
    plan = replace(PLAN, learners=("mallows", "rpc"), questions=questions)
    result = run_prolr([small(), load_dataset("iris")], plan, folder=tmp_path / "run")
    table = result.table
    keys = ["dataset", "learner", "fold", "family", "notion", "k", "protocol", "discrepancy"]
    assert not table.duplicated(keys).any()
    ks = table[table["family"] != ""].groupby(["learner", "family"])["k"].unique().map(sorted)
    assert ks.to_dict() == {
        ("mallows", "sub"): [2, 3],
        ("mallows", "top"): [1, 2],  # the last place follows from the others
        ("rpc", "sub"): [2],
    }
    assert set(table[table["notion"] == "full-rank-95"]["protocol"]) == {"reference"}
    tested = table[table["p_value"].notna()]
    assert set(tested["protocol"]) == {"exact"}
    assert (tested["low"] <= tested["high"]).all()
    assert tested["p_value"].between(0, 1).all()
    paths = result.write(tmp_path / "out")
    assert [path.name for path in paths] == ["results.csv", "summary.csv", "synthetic-0.png", "iris.png"]
    assert (tmp_path / "run" / "results.csv").read_bytes() == paths[0].read_bytes()
    assert result.write(tmp_path / "again")[3].read_bytes() == paths[3].read_bytes()
    strong = result.summary[
        (result.summary["notion"] == "full-rank") & (result.summary["learner"] == "mallows")
    ]
    strong = strong[strong["protocol"] == "exact"]
    np.testing.assert_allclose(strong["excess"], strong["mean"] - strong["null_mean"], atol=1e-9)


def test_an_interrupted_run_resumes_with_the_same_bytes(tmp_path: Path) -> None:
    data = [small(), replace(small(seed=1), name="other")]
    run_prolr(data, PLAN, folder=tmp_path / "whole")
    done: list[str] = []

    def stop(label: str) -> None:
        done.append(label)
        if len(done) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_prolr(data, PLAN, folder=tmp_path / "cut", on_done=stop)
    assert not (tmp_path / "cut" / "results.csv").exists()
    parts = {path: path.stat().st_mtime_ns for path in (tmp_path / "cut" / "parts").iterdir()}
    assert len(parts) == 3
    heard: list[str] = []
    run_prolr(data, PLAN, folder=tmp_path / "cut", on_done=heard.append)
    assert len(heard) == 4
    assert all(path.stat().st_mtime_ns == time for path, time in parts.items())
    whole, cut = ((tmp_path / name / "results.csv").read_bytes() for name in ("whole", "cut"))
    assert whole == cut
    run_prolr(data, PLAN, folder=tmp_path / "cut", fresh=True)
    assert all(path.stat().st_mtime_ns > time for path, time in parts.items())


def test_a_folder_keeps_the_folds_of_several_plans_and_data_apart(tmp_path: Path) -> None:
    first = run_prolr(small(), QUICK, folder=tmp_path).table
    run_prolr(small(), replace(QUICK, seed=1), folder=tmp_path)
    run_prolr(replace(small(seed=5), name="synthetic-0"), QUICK, folder=tmp_path)
    run_prolr(small(), QUICK, learners={"mallows": Uniform}, folder=tmp_path)
    assert len(list((tmp_path / "parts").iterdir())) == 8
    pd.testing.assert_frame_equal(run_prolr(small(), QUICK, folder=tmp_path).table, first)


def test_the_number_of_processes_does_not_change_the_results() -> None:
    plan = replace(QUICK, learners=("mallows", "rpc"))
    pd.testing.assert_frame_equal(run_prolr(small(), plan).table, run_prolr(small(), plan, processes=2).table)


def test_a_lost_process_is_reported() -> None:
    with pytest.raises(PeerError, match="a process was lost"):
        run_prolr(small(), QUICK, learners={"dying": Dying}, processes=2)


def test_custom_learners_beside_built_in_ones() -> None:
    result = run_prolr(small(), QUICK, learners={"uniform": Uniform, "mallows": LEARNERS["mallows"]})
    loss = result.summary[result.summary["notion"] == "log_loss"].set_index("learner")["mean"]
    assert loss["uniform"] == pytest.approx(np.log(6))
    own = result.table[result.table["learner"] == "mallows"].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, run_prolr(small(), QUICK).table)


def losses(data: Any, *learners: str) -> dict[str, float]:
    plan = Plan(learners, folds=3, recalibrate=True, questions=Questions(sub=(2,), top=(), resamples=0))
    means = run_prolr(data, plan).summary
    found = means[means["notion"] == "log_loss"]
    return dict(zip(found["learner"], found["mean"], strict=True))


def test_repairs_lower_the_loss_of_overfitted_models() -> None:
    loss = losses(small(90, 4), "pl", "rc", "rpc")
    assert set(loss) == {"pl", "pl+t", "pl+u", "rc", "rc+t", "rc+u", "rc+pl"}
    assert loss["pl+t"] < loss["pl"]
    assert loss["rc+pl"] < loss["rc"]


def test_no_temperature_if_every_held_out_row_is_forecast_correctly() -> None:
    loss = losses(replace(small(60), orders=np.tile([2, 0, 1], (60, 1))), "pl", "mallows")
    assert loss["pl+t"] == loss["pl"] > 0
    assert loss["mallows+t"] == loss["mallows"]


def test_a_truth_drawn_from_the_model_is_calibrated() -> None:
    questions = Questions(protocols=("exact", "reference"), resamples=60, intervals=False)
    result = run_prolr(small(300, 4), Plan(("pl", "mallows"), folds=3, truth="model", questions=questions))
    assert (result.table["p_value"].dropna() < 0.05).mean() < 0.2
    means = result.summary.query(
        "learner == 'mallows' and notion == 'rankwise-95' and family == 'sub' and k == 2"
        " and discrepancy == 'abs'"
    )
    filtered = means.set_index("protocol")["mean"]
    assert filtered["reference"] > filtered["exact"]


def test_interval_and_test_agree_about_zero() -> None:
    plan = replace(PLAN, learners=("pl", "mallows"), folds=3)
    table = run_prolr(small(200, 3), plan).table
    tested = table[table["p_value"].notna()]
    assert ((tested["low"] > 0) == (tested["p_value"] <= 0.05)).all()
    without = run_prolr(
        small(200, 3), replace(plan, questions=replace(plan.questions, intervals=False))
    ).table
    pd.testing.assert_series_equal(without["p_value"], table["p_value"])


def test_tau_counts_concordant_pairs() -> None:
    orders = np.random.default_rng(0).permuted(np.tile(np.arange(5), (40, 1)), axis=1)
    orders[:, :2] = np.sort(orders[:, :2], axis=1)
    result = run_prolr(replace(small(40, 5), orders=orders), QUICK, learners={"uniform": Uniform})
    places = np.argsort(orders, axis=1)  # the forecast is 0, 1, 2, 3, 4: ties go to the lower label
    signs = [np.sign(places[:, j] - places[:, i]) for i in range(5) for j in range(i + 1, 5)]
    tau = result.table[result.table["notion"] == "kendall_tau"]["value"]
    assert tau.mean() == pytest.approx(np.mean(signs))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"data": "iriss"}, "dataset: unknown 'iriss'"),
        ({"data": ["iris", "iris"]}, "data: .*'iris'"),
        ({"data": small(9), "plan": Plan()}, "synthetic-0: 9 rows"),
        ({"learners": {}}, "learners"),
        ({"learners": {"a/b": Uniform}}, "learners: .*'a/b'"),
        ({"learners": {"a": Wrong}}, "learner a: "),
        ({"learners": {"a": Short}}, "learner a: .*30 rows and 3"),
        ({"learners": {"a": Uniform}, "plan": Plan(training="reference")}, "training"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"data": small(60), "plan": PLAN} | options
    with pytest.raises(ValueError, match=named):
        run_prolr(**given)


@pytest.mark.parametrize(
    ("make", "options", "named"),
    [
        (Plan, {"learners": ("svm",)}, "learner: unknown 'svm'"),
        (Plan, {"folds": 1}, "folds: 1"),
        (Plan, {"training": "reference", "folds": 4}, "training"),
        (Plan, {"truth": "model"}, "learner: rpc"),
        (Questions, {"notions": ("strong",)}, "notion: unknown"),
        (Questions, {"notions": ("full-rank-95",)}, "notion: full-rank-95"),
        (Questions, {"protocols": ("both",)}, "protocol: unknown"),
        (Questions, {"discrepancies": ("l2",)}, "discrepancy: unknown"),
        (Questions, {"sub": (1,)}, "k: 1"),
        (Questions, {"stagewise": 0.0}, "stagewise: 0"),
        (Questions, {"stagewise": "often"}, "stagewise: unknown"),
        (Questions, {"stagewise": "test", "protocols": ("reference",)}, "stagewise"),
    ],
)
def test_bad_plans(make: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        make(**options)


def test_stagewise_says_the_first_k_that_is_too_large() -> None:
    data = small(120, 4)
    ask = Questions(sub=(2, 3, 4), top=(1, 2, 3), notions=("rankwise",), resamples=20)
    whole = replace(PLAN, learners=("mallows", "rpc"), questions=ask)
    plain = run_prolr(data, whole)
    assert plain.stages.empty
    errors = plain.table[(plain.table["notion"] == "rankwise") & (plain.table["discrepancy"] == "abs")]
    errors = errors[(errors["learner"] == "mallows") & (errors["k"] >= 2)]
    values = [value for _, value in sorted(zip(errors["k"], errors["value"], strict=True))]
    for rule in (min(values) / 2, float(np.median(values)), 0.99):
        result = run_prolr(data, replace(whole, questions=replace(ask, stagewise=rule)))
        pd.testing.assert_frame_equal(result.summary, plain.summary)  # nothing else changes
        assert set(result.stages["learner"]) == {"mallows"}  # rpc has no rankings longer than two
        for row in result.stages.to_dict("records"):
            own = errors[(errors["family"] == row["family"]) & (errors["fold"] == row["fold"])].sort_values(
                "k"
            )
            large = own[own["value"] > rule]["k"]
            first = large.iloc[0] if len(large) else np.nan
            np.testing.assert_equal(row["uncalibrated_from"], float(first))
            assert row["examined"] == (own["k"].max() if np.isnan(first) else first)


def test_the_legend_names_what_is_drawn() -> None:
    for plan, drawn in ((PLAN, True), (QUICK, False)):
        figure = run_prolr(small(), plan).figure("synthetic-0")
        texts = [text.get_text() for text in figure.legends[0].get_texts()]
        assert ("if calibrated" in texts) is drawn

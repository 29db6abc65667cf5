"""The experiment from Python: custom learners, tables, figures and files."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rmcalib.ranking import PlackettLuce
from rmcalib.tabular import LEARNERS, MallowsLearner, Plan, Questions, load_dataset, run_prolr
from tests.tabular.files import small

PLAN = Plan(learners=("mallows",), folds=2, questions=Questions(sub=(2,), top=(1,), resamples=20))


class Uniform:
    """A learner that forecasts all rankings with the same probability."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, X: Any, orders: Any) -> "Uniform":  # noqa: ARG002
        self.n_items = orders.shape[1]
        return self

    def predict(self, X: Any) -> PlackettLuce:
        return PlackettLuce(np.zeros((len(X), self.n_items)))


class Wrong(Uniform):
    def predict(self, X: Any) -> Any:
        return np.zeros(len(X))


class Short(Uniform):
    def predict(self, X: Any) -> PlackettLuce:
        return PlackettLuce(np.zeros((len(X) - 1, self.n_items)))


def test_custom_learners_beside_built_in_ones() -> None:
    result = run_prolr(small(), PLAN, learners={"uniform": Uniform, "mallows": LEARNERS["mallows"]})
    assert list(result.table["learner"].unique()) == ["uniform", "mallows"]
    loss = result.summary[result.summary["notion"] == "log_loss"].set_index("learner")["mean"]
    assert loss["uniform"] == pytest.approx(np.log(6))
    built_in = run_prolr(small(), PLAN)
    own = result.table[result.table["learner"] == "mallows"].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, built_in.table)


def test_a_recalibrated_custom_learner_and_several_processes() -> None:
    plan = Plan(folds=2, recalibrate=True, questions=Questions(sub=(2,), top=(), resamples=0))
    one = run_prolr(small(), plan, learners={"uniform": Uniform})
    two = run_prolr(small(), plan, learners={"uniform": Uniform}, processes=2)
    assert set(one.table["learner"]) == {"uniform", "uniform+t"}
    pd.testing.assert_frame_equal(one.table, two.table)


def test_tables_and_figures_are_written(tmp_path: Path) -> None:
    result = run_prolr([small(), load_dataset("iris")], PLAN, folder=tmp_path / "run")
    paths = result.write(tmp_path / "out")
    assert [path.name for path in paths] == ["results.csv", "summary.csv", "synthetic-0.png", "iris.png"]
    assert (tmp_path / "run" / "results.csv").read_bytes() == paths[0].read_bytes()
    assert paths[2].read_bytes()[:4] == b"\x89PNG"
    assert result.write(tmp_path / "again")[2].read_bytes() == paths[2].read_bytes()
    assert result.figure("iris").axes[0].get_title(loc="left") == "sub-k"


def test_full_rank_is_drawn_as_excess() -> None:
    plan = Plan(("mallows",), 2, questions=Questions(sub=(2,), top=(), notions=("full-rank",), resamples=20))
    result = run_prolr(small(), plan)
    strong = result.table[result.table["notion"] == "full-rank"]
    assert strong["p_value"].notna().all()
    assert ((strong["low"] <= strong["value"]) & (strong["value"] <= strong["high"])).all()
    means = result.summary[result.summary["notion"] == "full-rank"]
    assert means["excess"].iloc[0] == pytest.approx(means["mean"].iloc[0] - means["null_mean"].iloc[0])
    assert result.figure("synthetic-0").axes[0].get_ylabel() == "excess over the null mean"


def test_a_folder_is_resumed_and_another_learner_refused(tmp_path: Path) -> None:
    run_prolr(small(), PLAN, learners={"mine": Uniform}, folder=tmp_path)
    done: list[str] = []
    run_prolr(small(), PLAN, learners={"mine": Uniform}, folder=tmp_path, on_done=done.append)
    assert len(done) == 2
    with pytest.raises(ValueError, match=r"learners\.mine"):
        run_prolr(small(), PLAN, learners={"mine": Wrong}, folder=tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "iriss"}, "dataset: unknown 'iriss'"),
        ({"data": ["iris", "iris"]}, "two data sets are called 'iris'"),
        ({"learners": {}}, "learners: none given"),
        ({"learners": {"a/b": Uniform}}, "bad name 'a/b'"),
        ({"learners": {"a": 3}}, "expected a function from a seed"),
        ({"learners": {"a": lambda seed: MallowsLearner()}, "processes": 2}, "cannot be sent to another"),  # noqa: ARG005
        ({"learners": {"a": Wrong}}, "learner a: predict returned ndarray"),
        ({"learners": {"a": Short}}, "expected 30 of 3"),
        ({"learners": {"a": Uniform}, "plan": Plan(training="reference")}, "cannot train other learners"),
    ],
)
def test_bad_input_is_reported(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"data": small(60), "plan": PLAN} | options
    with pytest.raises(ValueError, match=r".") as caught:
        run_prolr(**given)
    assert message in str(caught.value)


def test_a_figure_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no errors to draw for 'wine' \(have: synthetic-0\)"):
        run_prolr(small(), PLAN).figure("wine")

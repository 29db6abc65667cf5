"""The catalogue: one entry is enough for every file, page, command and document."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rmcalib
from rmcalib.cli._shared.conditions import parse_condition
from rmcalib.metrics import (
    GROUPS,
    Forecasts,
    Metric,
    Settings,
    Statistic,
    catalogue,
    chosen_metrics,
    forecast,
    metric_rows,
)
from rmcalib.report import evaluate, leaderboard_from_runs, write_evaluation, write_leaderboard
from rmcalib.scores import Scores
from tests.report.boards import synthetic, write_run

ROOT = Path(__file__).parents[2]
FAST = Settings(resamples=20)
MODULE = """
import numpy as np
from rmcalib.metrics import Metric, Statistic

def bold(forecasts, settings):
    top = np.maximum.reduceat(forecasts.probability, forecasts.starts)
    return Statistic.proportion((top > 0.5).astype(float))

METRIC = Metric("bold_fraction", "fraction of prompts with a probability above a half", bold, better="low")
NOT_ONE = 3
TAKEN = Metric("ece", "another", bold)
CRASHES = Metric("crashes", "raises", lambda forecasts, settings: 1 / 0)
NO_STATISTIC = Metric("plain", "returns a number", lambda forecasts, settings: 0.5)
SHAPE = Metric("shape", "resamples to one number",
               lambda f, settings: Statistic(0.5, len(f), resampled=lambda weights: np.zeros(1)))
FEWER = Metric("fewer", "counts wrongly", lambda f, settings: Statistic.constant(0.5, 1))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A distribution on the path that has one module and no entry points yet."""
    (tmp_path / "their_metrics.py").write_text(MODULE)
    about = tmp_path / "their_metrics-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-metrics\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    catalogue.cache_clear()
    yield about
    sys.modules.pop("their_metrics", None)
    catalogue.cache_clear()


def name_entry(about: Path, value: str) -> None:
    (about / "entry_points.txt").write_text(f"[rmcalib.metrics]\nmine = {value}\n")
    catalogue.cache_clear()


def test_an_installed_metric_appears_everywhere(installed: Path, tmp_path: Path) -> None:
    name_entry(installed, "their_metrics:METRIC")
    assert catalogue()["bold_fraction"].source == "their-metrics"
    scores = synthetic(1, ties=True)
    write_evaluation(evaluate(scores, model="org/rm", resamples=20), tmp_path / "eval")
    assert ",bold_fraction,0." in (tmp_path / "eval" / "metrics.csv").read_text()
    page = (tmp_path / "eval" / "report.html").read_text()
    assert "bold_fraction" in page
    assert "fraction of prompts with a probability above a half" in page
    other = synthetic(2, ties=True)
    compared = rmcalib.compare(scores, other, resamples=20).table
    assert compared.query("metric == 'bold_fraction' and category == 'overall'")["p_value"].notna().all()
    board = rmcalib.leaderboard({"a": scores, "b": other}, metric="bold_fraction", resamples=20)
    assert {"bold_fraction", "bold_fraction_low"} <= {*board.table.columns}
    assert board.table["bold_fraction"].is_monotonic_increasing
    for i, one in enumerate((scores, other)):
        write_run(tmp_path / "runs", f"org/model-{i}", one)
    write_leaderboard(leaderboard_from_runs([tmp_path / "runs"], settings=FAST), tmp_path / "board")
    assert "bold_fraction" in (tmp_path / "board" / "leaderboard.csv").read_text()
    assert "bold_fraction" in (tmp_path / "board" / "report.html").read_text()
    condition = parse_condition("bold_fraction[Math]>=0")
    assert condition.met(metric_rows(scores, model="m", benchmark="b", settings=FAST))
    assert "| `bold_fraction` | fraction of" in _page_script().tables(catalogue().values())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere:METRIC", r"entry point 'mine' \(rmcalib.metrics\) of their-metrics: cannot load nowhere"),
        ("their_metrics:NOT_ONE", "is a int, expected an rmcalib.metrics.Metric or a list of them"),
        ("their_metrics:TAKEN", "there is a metric 'ece' already, of rmcalib"),
    ],
)
def test_bad_entry_points_give_one_line(value: str, message: str, installed: Path) -> None:
    name_entry(installed, value)
    with pytest.raises(ValueError, match=message) as error:
        catalogue()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("CRASHES", "metric crashes of their-metrics: ZeroDivisionError"),
        ("NO_STATISTIC", "metric plain of their-metrics: returned a float, expected a Statistic"),
        ("SHAPE", r"metric shape of their-metrics: resampled returned shape \(1,\), expected \(20,\)"),
        ("FEWER", "metric fewer of their-metrics: its n is 1, but it was given 90 prompts"),
    ],
)
def test_errors_in_installed_metrics_name_the_metric(value: str, message: str, installed: Path) -> None:
    name_entry(installed, f"their_metrics:{value}")
    with pytest.raises(ValueError, match=message):
        metric_rows(synthetic(1), model="m", benchmark="b", settings=FAST)


def test_only_requested_metrics_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    every = metric_rows(synthetic(1), model="m", benchmark="b", settings=FAST)

    def slow(*_: object, **__: object) -> float:
        raise AssertionError("nobody asked for the smooth ECE or a temperature")

    monkeypatch.setattr("rmcalib.metrics._catalogue._calibration.smooth_ece", slow)
    monkeypatch.setattr("rmcalib.metrics._catalogue._temperature.fit_top_1_temperature", slow)
    rows = metric_rows(synthetic(1), model="m", benchmark="b", settings=FAST, metrics=["ece", "accuracy"])
    assert [row["metric"] for row in rows[:2]] == ["accuracy", "ece"]
    assert {row["metric"] for row in rows} == {"accuracy", "ece"}
    report = evaluate(synthetic(1), model="org/rm", metrics=["brier"], resamples=20)
    assert set(report.table["metric"]) == {"brier"}
    assert report.summary == f"Brier score {report.value('brier'):.3f}."
    assert [row for row in every if row["metric"] in ("ece", "accuracy")] == rows


def _page_script() -> Any:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        return importlib.import_module("write_metrics_page")
    finally:
        sys.path.pop(0)


def test_the_page_about_metrics_is_up_to_date() -> None:
    page = _page_script()
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.updated(text) == text, "run python scripts/write_metrics_page.py"
    assert all(f"| `{name}` |" in text for name, metric in catalogue().items() if not metric.source)


def test_entries_have_what_pages_need() -> None:
    for metric in catalogue().values():
        assert metric.meaning
        assert "|" not in metric.meaning
        assert metric.group in GROUPS
    groups = [metric.group for metric in chosen_metrics()]
    assert groups == sorted(groups, key=list(GROUPS).index)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "my metric"}, "letters, digits and underscores"),
        ({"statistic": None}, "statistic: expected a function"),
        ({"better": "up"}, "better"),
        ({"group": "mine"}, "group"),
        ({"compared": "always"}, "compared"),
    ],
)
def test_entries_are_checked(fields: dict[str, object], message: str) -> None:
    def zero(*_: object) -> Statistic:
        return Statistic.constant(0.0, 1)

    with pytest.raises(ValueError, match=message):
        Metric(**{"name": "mine", "meaning": "none", "statistic": zero, **fields})  # type: ignore[arg-type]


def test_the_median_of_resamples_is_that_of_repeated_values() -> None:
    values = np.random.default_rng(0).normal(size=9)
    weights = np.random.default_rng(1).multinomial(9, np.full(9, 1 / 9), size=50).astype(float)
    found = Statistic.median(values).resampled
    assert found is not None
    expected = [np.median(np.repeat(values, row.astype(int))) for row in weights]
    assert found(weights) == pytest.approx(expected)


def cut(scores: Scores, m: int) -> Scores:
    """The same scores with the first m responses of each prompt."""
    kept = scores.response < m
    names = ("item_id", "category", "response", "is_correct", "reward")
    return Scores.from_columns({name: getattr(scores, name)[kept] for name in names})


def test_different_numbers_of_responses_are_noted_if_the_metric_depends_on_them() -> None:
    models = {"four": synthetic(1), "two": cut(synthetic(2), 2)}
    by_ece = rmcalib.leaderboard(models, metric="ece", resamples=20)
    assert any("different numbers of responses per prompt (2, 4)" in note for note in by_ece.notes)
    by_loss = rmcalib.leaderboard(models, resamples=20)
    assert by_loss.metric == "kept_information"
    assert not any("numbers of responses" in note for note in by_loss.notes)


def _calibrated(seed: int, n: int, m: int, spread: float) -> Scores:
    rng = np.random.default_rng(seed)
    utilities = spread * rng.normal(size=(n, m))
    return Scores.from_arrays(utilities, (utilities + rng.gumbel(size=(n, m))).argmax(axis=1))


def test_kept_information_is_usable_minus_lost_and_counts_the_stated_probabilities() -> None:
    for scores in (_calibrated(0, 200, 4, 1.0), synthetic(1, scale=8.0), cut(synthetic(2), 2)):
        rows = metric_rows(scores, model="m", benchmark="b", settings=Settings(resamples=20))
        found = {row["metric"]: row for row in rows if row["category"] == "overall"}
        kept = found["kept_information"]
        uniform = np.log(np.bincount(np.unique(scores.item_id, return_inverse=True)[1])).mean()
        assert kept["value"] == pytest.approx(1 - found["nll"]["value"] / uniform)
        lost, usable = found["lost_information"]["value"], found["usable_information"]["value"]
        assert kept["value"] == pytest.approx(usable - lost)
        assert kept["low"] <= kept["value"] <= kept["high"] <= 1


def test_the_interval_of_kept_information_covers_it() -> None:
    truth = 1 - _losses(_calibrated(10_000, 50_000, 4, 1.0)).mean() / np.log(4)
    held = []
    for seed in range(60):
        (row, *_) = metric_rows(
            _calibrated(seed, 150, 4, 1.0), model="m", benchmark="b", metrics=["kept_information"]
        )
        held.append(row["low"] <= truth <= row["high"])
    assert sum(held) >= 53


def _losses(scores: Scores) -> Any:
    return -forecast(scores).log_probability[scores.is_correct]


def test_models_that_are_no_better_than_a_uniform_guess_come_last() -> None:
    rng = np.random.default_rng(1)
    noise = Scores.from_arrays(1e-3 * rng.normal(size=(300, 10)))
    worse = Scores.from_arrays(rng.normal(size=(300, 10)) - 2.0 * (np.arange(10) == 0))  # rarely right
    bold = Scores.from_arrays(20 * rng.normal(size=(300, 10)) + 30.0 * (np.arange(10) == 0))
    models = {"noise": noise, "worse": worse, "bold": bold, "good": _calibrated(3, 300, 10, 1.0)}
    table = rmcalib.leaderboard(models, resamples=20).table.set_index("model")
    assert list(table["rank"]) == [1, 2, 3, 4]
    assert table["kept_information"]["bold"] < 0 < table["kept_information"]["good"]
    assert table["better_than_guess"].to_dict() == {
        "good": True, "noise": False, "worse": False, "bold": False,
    }  # fmt: skip
    assert table.index[0] == "good"
    assert abs(table["lost_information"]["noise"]) < 0.01  # what put it first before
    by_error = rmcalib.leaderboard(models, metric="ece", resamples=20).table
    assert by_error["model"][0] == "good"


def test_the_gap_is_sorted_by_its_size() -> None:
    models = {"under": synthetic(1, scale=0.01), "fair": synthetic(1), "over": synthetic(1, scale=9.0)}
    board = rmcalib.leaderboard(models, metric="overconfidence", resamples=20)
    gaps = board.table["overconfidence"].tolist()
    assert [abs(gap) for gap in gaps] == sorted(abs(gap) for gap in gaps)
    assert min(gaps) < 0 < max(gaps)


def test_names_of_a_leaderboard_are_checked() -> None:
    with pytest.raises(ValueError, match="a different name for each"):
        rmcalib.leaderboard([synthetic(1), synthetic(2)], names=["a", "a"])
    with pytest.raises(ValueError, match="expected at least 1"):
        rmcalib.leaderboard([])
    with pytest.raises(ValueError, match="metric: unknown 'temperature'"):
        rmcalib.leaderboard([synthetic(1)], metric="temperature")


def test_information_equals_direct_sums() -> None:
    scores = synthetic(1, n=60, scale=4.0)
    rewards = scores.reward.reshape(-1, 4)

    def nll(temperature: float) -> float:
        logits = rewards / temperature
        return float((np.log(np.exp(logits).sum(axis=1)) - logits[:, 0]).mean())

    best = min(nll(t) for t in np.exp(np.linspace(-1, 4, 20_001)))
    rows = {row["metric"]: row for row in metric_rows(scores, model="m", benchmark="b")[::-1]}
    assert rows["lost_information"]["value"] == pytest.approx((nll(1) - best) / np.log(4), abs=1e-6)
    assert rows["usable_information"]["value"] == pytest.approx(1 - best / np.log(4), abs=1e-6)
    assert rows["lost_information"]["low"] > 0  # four times too large


def test_a_forecast_in_one_bin_gives_a_warning_at_the_ece() -> None:
    flat = synthetic(1, scale=1e-3)  # all probabilities are about 1/4 and in one bin
    rows = {row["metric"]: row["value"] for row in metric_rows(flat, model="m", benchmark="b")[::-1]}
    assert rows["ece_bound"] == 0.5
    assert rows["ece_fullest_bin"] == 1.0
    assert rows["ece"] == pytest.approx(0.0, abs=1e-12)
    assert rows["overconfidence"] < -0.1
    assert rows["lost_information"] > 0.1


def test_the_decomposition_of_the_first_choice_adds_up() -> None:
    scores = synthetic(1)
    rows = {row["metric"]: row["value"] for row in metric_rows(scores, model="m", benchmark="b")[::-1]}
    p = forecast(scores).probability.reshape(-1, 4)
    top, right = p.max(axis=1), (p.argmax(axis=1) == 0).astype(float)
    brier = ((top - right) ** 2).mean()
    parts = [rows[f"brier_{part}"] for part in ("miscalibration", "discrimination", "uncertainty")]
    assert parts[0] - parts[1] + parts[2] == pytest.approx(brier)
    assert parts[2] == pytest.approx(right.mean() * (1 - right.mean()))
    log = -np.log(np.where(right == 1, top, 1 - top)).mean()
    parts = [rows[f"log_{part}"] for part in ("miscalibration", "discrimination", "uncertainty")]
    assert parts[0] - parts[1] + parts[2] == pytest.approx(log)


def test_a_temperature_without_upper_limit_has_no_interval_and_can_be_written(tmp_path: Path) -> None:
    scores = synthetic(1, n=24, skill=0.4)
    found = {row["metric"]: row for row in metric_rows(scores, model="m", benchmark="b")[::-1]}
    row = found["temperature"]
    assert row["value"] is not None
    assert row["high"] is None
    assert "without upper limit" in row["note"]
    write_evaluation(evaluate(scores, model="org/rm", resamples=20), tmp_path)


def test_a_heading_makes_a_column_of_the_leaderboards_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sure(forecasts: Forecasts, _: Settings) -> Statistic:
        top = np.maximum.reduceat(forecasts.probability, forecasts.starts)
        return Statistic.proportion((top > 0.5).astype(float))

    more = [Metric("sure", "is sure", sure, heading="is sure?"), Metric("unlisted", "is sure, too", sure)]
    monkeypatch.setattr("rmcalib.metrics._catalogue._OWN", [*catalogue().values(), *more])
    catalogue.cache_clear()
    for i in range(2):
        write_run(tmp_path / "runs", f"org/model-{i}", synthetic(i))
    write_leaderboard(leaderboard_from_runs([tmp_path / "runs"], settings=FAST), tmp_path / "board")
    monkeypatch.undo()
    catalogue.cache_clear()
    header = (tmp_path / "board" / "leaderboard.csv").read_text().splitlines()[0].split(",")
    assert {"sure", "unlisted"} <= {*header}
    page = (tmp_path / "board" / "report.html").read_text()
    assert "is sure?" in page
    assert "unlisted" not in page

"""The files of `rmcalib card`: contents, escaping, and where they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from rmcalib.publish import Evaluator, make_card, write_card
from rmcalib.publish._badge import badge_svg
from rmcalib.publish._card import card_section, insert_section
from rmcalib.publish._every_eval import every_eval_ever
from rmcalib.publish._hub_results import eval_results
from rmcalib.report import Evaluation, evaluate
from rmcalib.scores import Scores

EVIL = '<script>alert(1)</script>|`"*x*\n![](http://evil)&'
HUB = {
    "model": "org/rm",
    "model_revision": "a" * 40,
    "benchmark": "org/bench",
    "benchmark_revision": "b" * 40,
    "timings": {"finished": "2026-01-02T03:04:05Z"},
    "versions": {"transformers": "5.0"},
    "dtype": "float32",
}


def evaluation(scale: float = 3.0, n: int = 120, **manifest: Any) -> Evaluation:
    rng = np.random.default_rng(0)
    utilities = rng.gumbel(size=(n, 3)) + np.array([0.8, 0, 0])
    scores = Scores.from_arrays(
        scale * utilities, category=[("Math", "Safety")[i % 2] for i in range(n)], manifest=HUB | manifest
    )
    return evaluate(scores, resamples=50, n_examples=0)


@pytest.fixture(scope="module")
def report() -> Evaluation:
    return evaluation()


def test_the_section_has_headline_table_and_figure(report: Evaluation) -> None:
    text = card_section(report)
    assert text.startswith("<!-- rmcalib:begin -->\n## Calibration\n")
    assert f"says {report.value('mean_confidence'):.0%}" in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    assert len(table) == 5  # heading, rule, overall, two categories
    assert len({line.count("|") for line in table}) == 1
    assert "![Reliability" in text
    assert "org/bench at bbbbbbbbbbbb" in text


def test_a_section_replaces_the_earlier_one(report: Evaluation) -> None:
    card = insert_section("---\nlicense: mit\n---\n# Mine\n\nWords.\n", card_section(report))
    again = insert_section(card + "\nMore words.\n", card_section(evaluation(scale=1.0)))
    assert again.count("## Calibration") == 1
    assert again.startswith("---\nlicense: mit\n---\n# Mine\n")
    assert again.endswith("More words.\n")
    assert insert_section("", "x") == "x\n"


def test_text_from_data_is_escaped() -> None:
    hostile = evaluation(model=EVIL, benchmark=EVIL)
    text = card_section(hostile)
    assert "<script>" not in text
    assert "![](http" not in text
    svg = badge_svg(hostile)
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert "<script>" not in svg
    card = make_card(hostile)
    assert sorted(card.files) == ["calibration/badge.svg", "calibration/reliability.png"]
    json.dumps(card.record, allow_nan=False)


@pytest.mark.parametrize(
    ("scale", "colour"), [(3.0, "#a3352f"), (0.02, "#a3352f")], ids=["over-confident", "under-confident"]
)
def test_the_badge_agrees_with_the_table(scale: float, colour: str) -> None:
    report = evaluation(scale)
    svg = badge_svg(report)
    values = [report.value(name) for name in ("mean_confidence", "accuracy", "overconfidence")]
    assert f"says {values[0]:.0%}, right {values[1]:.0%}, gap {100 * (values[2] or 0):+.0f}" in svg
    assert colour in svg


def test_a_calibrated_model_has_a_green_badge() -> None:
    rng = np.random.default_rng(3)
    utilities = rng.normal(size=(400, 2))
    correct = (utilities + rng.gumbel(size=(400, 2))).argmax(axis=1)
    report = evaluate(Scores.from_arrays(utilities, correct), resamples=50, n_examples=0)
    assert "#20714b" in badge_svg(report)


def test_a_model_without_probabilities_has_a_badge_and_a_section() -> None:
    report = evaluation(scale=0.5)
    quantile = {"loss": "quantile regression", "bradley_terry": "no"}
    report = evaluate(
        Scores.from_arrays(np.eye(3), manifest={"model": "m", "about_model": quantile}), resamples=20
    )
    assert "not available" in badge_svg(report)
    assert "## Calibration" in card_section(report)


def test_results_for_the_hub(report: Evaluation) -> None:
    entries = eval_results(report, source="https://example.org/report")
    tasks = {entry["dataset"]["task_id"]: entry for entry in entries}
    assert tasks["overconfidence"]["value"] == pytest.approx(report.value("overconfidence"), abs=1e-6)
    for entry in entries:
        assert entry["dataset"]["id"] == "org/bench"
        assert entry["dataset"]["revision"] == "b" * 40
        assert entry["date"] == "2026-01-02T03:04:05Z"
        assert entry["source"] == {"url": "https://example.org/report"}
        assert "120 prompts, 95% interval [" in entry["notes"]


def test_huggingface_hub_reads_the_results(report: Evaluation) -> None:
    import huggingface_hub

    parse = getattr(huggingface_hub, "parse_eval_result_entries", None)
    if parse is None:
        pytest.skip("this version of huggingface_hub does not support .eval_results")
    (content,) = (text for path, text in make_card(report).files.items() if path.startswith(".eval_results"))
    entries = parse(yaml.safe_load(content))
    assert [entry.task_id for entry in entries][:2] == ["mean_confidence", "accuracy"]
    assert entries[0].dataset_revision == "b" * 40
    assert entries[0].date == "2026-01-02T03:04:05Z"


@pytest.mark.parametrize("name", ["mine", "../../x", "a/b/c"])
def test_a_local_benchmark_has_no_results_for_the_hub(name: str) -> None:
    assert eval_results(evaluation(n=30, benchmark=name)) == []
    assert eval_results(evaluation(n=30, benchmark_revision="c" * 64)) == []


# The keys that version 0.3.0 of the schema requires.
REQUIRED = {
    "": (
        "schema_version",
        "evaluation_id",
        "retrieved_timestamp",
        "source_metadata",
        "eval_library",
        "model_info",
        "evaluation_results",
    ),
    "source_metadata": ("source_type", "source_organization_name", "evaluator_relationship"),
    "eval_library": ("name", "version"),
    "model_info": ("name", "id", "additional_details"),
}
RESULT = ("evaluation_name", "source_data", "metric_config", "score_details")


def test_the_record_has_what_the_schema_requires(report: Evaluation) -> None:
    record = every_eval_ever(report, evaluator=Evaluator("Lab", "third_party"), now=1_700_000_000)
    for part, names in REQUIRED.items():
        found = record[part] if part else record
        assert set(names) <= set(found)
    assert set(record) <= {*REQUIRED[""], "evaluation_timestamp"}
    assert record["evaluation_id"] == "org/bench/org/rm/1700000000"
    assert record["retrieved_timestamp"] == "1700000000"
    details = record["model_info"]["additional_details"]
    assert (details["deployment_type"], details["model_availability"]) == ("self_deployed", "open_weights")
    assert all(isinstance(value, str) for value in details.values())
    identifiers = [result["evaluation_result_id"] for result in record["evaluation_results"]]
    assert len(set(identifiers)) == len(identifiers)
    for result in record["evaluation_results"]:
        assert set(RESULT) <= set(result)
        config = result["metric_config"]
        assert {"lower_is_better", "min_score", "max_score"} <= set(config)
        assert result["source_data"]["hf_repo"] == "org/bench"
        assert isinstance(result["score_details"]["score"], float)
    directions = {
        result["metric_config"]["metric_id"]: result["metric_config"]["lower_is_better"]
        for result in record["evaluation_results"]
    }
    assert directions["accuracy"] is False
    assert directions["lost_information"] is True
    json.dumps(record, allow_nan=False)


def test_an_unknown_relationship_is_refused() -> None:
    with pytest.raises(ValueError, match="relationship: unknown 'friend'"):
        Evaluator("Lab", "friend")


def test_files_stay_inside_the_folder(tmp_path: Path) -> None:
    card = make_card(evaluation(n=40))
    files = write_card(card, tmp_path / "out")
    assert all(file.is_relative_to(tmp_path / "out") for file in files)
    names = sorted(str(file.relative_to(tmp_path / "out")) for file in files)
    assert names == [
        ".eval_results/rmcalib_org__bench.yaml",
        "calibration/badge.svg",
        "calibration/reliability.png",
        "card.md",
        "every_eval_ever.json",
    ]
    assert not list(tmp_path.rglob("*.tmp"))
    entries = yaml.safe_load((tmp_path / "out" / names[0]).read_text(encoding="utf-8"))
    assert entries == eval_results(evaluation(n=40))
    before = {file: file.read_bytes() for file in files if file.suffix != ".json"}
    write_card(make_card(evaluation(n=40)), tmp_path / "out")
    assert all(file.read_bytes() == content for file, content in before.items())

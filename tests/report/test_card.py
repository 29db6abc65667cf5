"""Model cards: the section, its place in a card, and results for the Hub."""

from __future__ import annotations

from pathlib import Path

import yaml

from rmcalib.report import document_of, evaluate, make_card, markdown_summary, write_card
from rmcalib.report.card import insert_section
from tests.report.boards import evaluation, synthetic

EVIL = "org/<script>alert(1)</script>|`x`"


def test_a_card_has_the_numbers_and_escapes_names(tmp_path: Path) -> None:
    found = evaluation(model=EVIL)
    card = make_card(found)
    assert "<script>" not in card.section.replace("\\<", "")
    files = write_card(card, tmp_path)
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == card.section
    assert (tmp_path / "calibration/reliability.png").read_bytes()[1:4] == b"PNG"
    assert len(files) == 2


def test_a_later_section_replaces_an_earlier_one() -> None:
    first, second = (make_card(evaluation(seed=seed)).section for seed in (0, 1))
    card = insert_section("# My model\n", first)
    again = insert_section(card, second)
    assert again.startswith("# My model")
    assert again.count("rmcalib:begin") == 1
    assert second.strip() in again


def test_results_for_the_hub_need_a_data_set_of_the_hub() -> None:
    about = {"model": "org/rm", "benchmark": "org/bench", "benchmark_revision": "1" * 40}
    found = evaluate(synthetic(manifest=about), resamples=20)
    (path,) = [name for name in make_card(found, source="https://x.org").files if name.startswith(".eval")]
    entries = yaml.safe_load(make_card(found, source="https://x.org").files[path])
    values = {entry["dataset"]["task_id"]: entry["value"] for entry in entries}
    assert values["accuracy"] == round(found.value("accuracy") or 0, 6)
    assert all(entry["source"]["url"] == "https://x.org" for entry in entries)
    local = evaluate(synthetic(manifest=about | {"benchmark_revision": "a hash"}), resamples=20)
    assert not any(name.startswith(".eval") for name in make_card(local).files)


def test_a_summary_starts_with_what_failed() -> None:
    lines = markdown_summary([document_of(evaluation())], ["ece>0.1 holds"]).splitlines()
    assert lines[0] == "<!-- rmcalib -->"
    assert "0.1" in lines[1]

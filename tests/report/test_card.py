"""Model cards: the section, results for the Hub, and the pull request, against a Hub on 127.0.0.1."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from rmcalib.report import evaluate, make_card
from rmcalib.report.card import insert_section, markdown_summary
from tests.hub.server import TOKEN, LoopbackHub
from tests.report.boards import evaluation, synthetic

SMALL = functools.cache(functools.partial(evaluation, n=40, metrics=["accuracy", "overconfidence"]))
README = b"---\nlicense: mit\n---\n# My model\n"
EVIL = "org/<script>alert(1)</script>|`x`"


def test_a_card_has_the_numbers_and_escapes_names(tmp_path: Path) -> None:
    found = SMALL(model=EVIL)
    card = make_card(found)
    assert "<script>" not in card.section.replace("\\<", "")
    files = card.write(tmp_path)
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == card.section
    assert (tmp_path / "calibration/reliability.png").read_bytes()[1:4] == b"PNG"
    assert len(files) == 2


def test_a_later_section_replaces_an_earlier_one() -> None:
    first, second = (make_card(SMALL(model=name)).section for name in ("a", "b"))
    card = insert_section("# My model\n", first)
    again = insert_section(card, second)
    assert again.startswith("# My model")
    assert again.count("rmcalib:begin") == 1
    assert second.strip() in again


def test_results_for_the_hub_need_a_data_set_of_the_hub() -> None:
    about = {"model": "org/rm", "benchmark": "org/bench", "benchmark_revision": "1" * 40}
    metrics = ["accuracy", "overconfidence"]
    found = evaluate(synthetic(manifest=about), metrics=metrics, resamples=20)
    (path,) = [name for name in make_card(found, source="https://x.org").files if name.startswith(".eval")]
    entries = yaml.safe_load(make_card(found, source="https://x.org").files[path])
    values = {entry["dataset"]["task_id"]: entry["value"] for entry in entries}
    assert values["accuracy"] == round(found.value("accuracy") or 0, 6)
    assert all(entry["source"]["url"] == "https://x.org" for entry in entries)
    hashed = synthetic(manifest=about | {"benchmark_revision": "a hash"})
    local = evaluate(hashed, metrics=metrics, resamples=20)
    assert not any(name.startswith(".eval") for name in make_card(local).files)


def test_a_summary_starts_with_what_failed() -> None:
    lines = markdown_summary([SMALL().document()], ["ece>0.1 holds"]).splitlines()
    assert lines[0] == "<!-- rmcalib -->"
    assert "0.1" in lines[1]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LoopbackHub]:
    from huggingface_hub import constants

    with LoopbackHub() as hub:
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        values = {
            "ENDPOINT": hub.url,
            "HUGGINGFACE_CO_URL_TEMPLATE": template,
            "HF_HUB_CACHE": str(tmp_path / "cache"),
            "HF_HUB_DISABLE_XET": True,
            "HF_HUB_OFFLINE": False,
        }
        for name, value in values.items():
            monkeypatch.setattr(constants, name, value)
        # Versions below 1.0 have a copy of it here.
        copy = "huggingface_hub.file_download.HUGGINGFACE_CO_URL_TEMPLATE"
        monkeypatch.setattr(copy, template, raising=False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        hub.add("models", "org/rm", {"README.md": README, "config.json": b"{}"})
        yield hub


def test_a_pull_request_adds_the_card_and_changes_nothing_else(hub: LoopbackHub) -> None:
    card = make_card(SMALL())
    url = card.push("org/rm")
    assert url == f"{hub.url}/org/rm/discussions/1"
    repo = hub.repos["models", "org/rm"]
    main, proposed = repo.commits[repo.refs["main"]], repo.commits[repo.refs["refs/pr/1"]]
    assert main == {"README.md": README, "config.json": b"{}"}
    assert set(proposed) == {"README.md", "config.json", *card.files}
    assert all(proposed[path] == content for path, content in card.files.items())
    text = proposed["README.md"].decode()
    assert text.startswith(README.decode())
    assert card.section.strip() in text


def test_a_repository_without_a_card_gets_one(hub: LoopbackHub) -> None:
    hub.add("models", "org/bare", {"config.json": b"{}"})
    make_card(SMALL()).push("org/bare")
    repo = hub.repos["models", "org/bare"]
    assert repo.commits[repo.refs["refs/pr/1"]]["README.md"].startswith(b"<!-- rmcalib:begin -->")


@pytest.mark.parametrize(
    ("repository", "token", "message"),
    [
        ("org/none", TOKEN, "org/none: no such model"),
        ("org/rm", "hf_wrong", "org/rm: "),
        ("../../rm", TOKEN, "neither a file or folder here nor a Hub id"),
    ],
)
def test_a_refusal_of_the_hub_is_one_line(
    hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch, repository: str, token: str, message: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ValueError, match=message) as caught:
        make_card(SMALL()).push(repository)
    assert "\n" not in str(caught.value)
    assert token not in str(caught.value)
    assert "refs/pr/1" not in hub.repos["models", "org/rm"].refs


def test_a_hub_that_fails_never_empties_the_card(hub: LoopbackHub) -> None:
    hub.fail("README.md", status=404)  # without the Hub's code for a missing file
    with pytest.raises(ValueError, match="org/rm"):
        make_card(SMALL()).push("org/rm")
    assert "refs/pr/1" not in hub.repos["models", "org/rm"].refs

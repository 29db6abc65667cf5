"""The pull request that `rmcalib card --push-to-hub` opens, against a Hub on 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rmcalib.report import make_card, push_card
from tests.hub.server import TOKEN, LoopbackHub
from tests.report.boards import evaluation

README = b"---\nlicense: mit\n---\n# My model\n"


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
    card = make_card(evaluation(n=40))
    url = push_card(card, "org/rm")
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
    push_card(make_card(evaluation(n=40)), "org/bare")
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
        push_card(make_card(evaluation(n=40)), repository)
    assert "\n" not in str(caught.value)
    assert token not in str(caught.value)
    assert "refs/pr/1" not in hub.repos["models", "org/rm"].refs


def test_a_hub_that_fails_never_empties_the_card(hub: LoopbackHub) -> None:
    hub.fail("README.md", status=404)  # without the Hub's code for a missing file
    with pytest.raises(ValueError, match="org/rm"):
        push_card(make_card(evaluation(n=40)), "org/rm")
    assert "refs/pr/1" not in hub.repos["models", "org/rm"].refs


@pytest.mark.usefixtures("hub")
def test_a_hub_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ValueError, match=r"org/rm: the Hub at .* cannot be reached, so nothing was uploaded"):
        push_card(make_card(evaluation(n=40)), "org/rm")

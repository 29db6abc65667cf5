"""The registry is complete, well-formed and open to users."""

from __future__ import annotations

import importlib.metadata
from collections import Counter
from pathlib import Path

import pytest
import torch

from rmcalib.judges import LoadOptions, Recipe, registry
from rmcalib.judges._registry import LEADERBOARD, read_recipes
from rmcalib.judges._templates import TEMPLATES

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
ENTRIES = read_recipes(LEADERBOARD)


def test_every_classifier_of_the_leaderboard_is_there() -> None:
    assert len(ENTRIES) == 55
    count = Counter(recipe.status for recipe in ENTRIES)
    assert count == {"plain": 27, "recipe": 5, "rebuilt": 17, "own-code": 5, "unsupported": 1}
    assert (ROOT / "configs" / "leaderboard.yaml").read_text() == LEADERBOARD.read_text()


def test_an_entry_has_all_it_needs() -> None:
    for recipe in ENTRIES:
        check_entry(recipe)


def check_entry(recipe: Recipe) -> None:
    assert recipe.loss
    assert recipe.evidence
    assert recipe.parameters or recipe.status == "unsupported"
    assert recipe.template is None or recipe.template in TEMPLATES
    assert (recipe.status == "own-code") == (recipe.head == "own-code") == recipe.trust_remote_code
    assert (recipe.status == "rebuilt") == (recipe.head not in ("auto", "own-code"))
    assert (recipe.loss == "unknown") == (recipe.bradley_terry == "unknown")


# Users' own entries


def test_a_user_s_file_wins_over_the_leaderboard(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "models:\n- model: me/rm\n  column: 1\n  bradley_terry: yes\n- model: openbmb/UltraRM-13b\n"
    )
    assert LoadOptions(recipes=(path,)).recipe_for("me/rm") == Recipe("me/rm", column=1, bradley_terry="yes")
    assert LoadOptions(recipes=(path,)).recipe_for("openbmb/UltraRM-13b").head == "auto"
    assert LoadOptions().recipe_for("openbmb/UltraRM-13b").head == "regression_head"
    assert LoadOptions().recipe_for("nobody/knows") == Recipe("nobody/knows")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("models: {", ""),
        ("models: 3", "models"),
        ("- column: 1", "entry 1"),
        ("- {model: a/b, colunm: 1}", "did you mean 'column'"),
        ("- {model: a/b, column: one}", "column"),
        ("- {model: a/b, sign: true}", "sign"),
        ("- {model: a/b, trust_remote_code: 1}", "trust_remote_code"),
        ("- {model: a/b, status: fine}", "status"),
        ("- {model: a/b, bradley_terry: perhaps}", "bradley_terry"),
        ("- {model: a/b, dtype: bf16}", "dtype"),
        ("- {model: a/b, pooling: middle}", "pooling"),
        ("- {model: a/b, attention: org/kernel}", "attention"),
        ("- {model: a/b, scale: logits}", "scale"),
        ("- {model: a/b, status: unsupported}", "reason"),
        ("- {model: a/b, head: own-code}", "trust_remote_code"),
        ("- {model: a/b, head: score, head_file: heads/h.safetensors}", "head_file"),
        ("- {model: a/b}\n- {model: a/b}", "a/b"),
        (f"- {{model: {'x' * 9000}, column: one}}", r"entry 1 \(x{40,60}…x{40,60}\): column"),
    ],
)
def test_a_wrong_entry_is_named(text: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.yaml.*{named}"):
        read_recipes(path)
    with pytest.raises(ValueError, match=r"gone\.yaml"):
        read_recipes(tmp_path / "gone.yaml")


def plugin() -> list[object]:
    return [{"model": "plug/in", "sign": -1}, Recipe("plug/in-too")]


def broken_plugin() -> list[object]:
    raise RuntimeError("oops")


def test_packages_add_models_through_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    def points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return [importlib.metadata.EntryPoint("mine", f"{__name__}:{chosen.__name__}", group)]

    monkeypatch.setattr(importlib.metadata, "entry_points", points)
    chosen = plugin
    assert registry()["plug/in"].sign == -1.0
    assert "plug/in-too" in registry()
    chosen = broken_plugin
    with pytest.raises(ValueError, match=r"'mine'.*oops"):
        registry()

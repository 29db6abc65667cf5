"""The registry is complete, well-formed and open to users, and its entries load models of their layout."""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmcalib.judges import LoadOptions, Recipe, load_model, registry
from rmcalib.judges._registry import LEADERBOARD, read_recipes
from rmcalib.judges._templates import TEMPLATES
from tests.hub import tiny
from tests.judges.folders import IDS, CustomHead, rewards

torch.set_num_threads(1)
ROOT = Path(__file__).parents[2]
ENTRIES = read_recipes(LEADERBOARD)


def test_every_classifier_of_the_leaderboard_is_there() -> None:
    assert len(ENTRIES) == 55
    count = Counter(recipe.status for recipe in ENTRIES)
    assert count == {"plain": 27, "recipe": 5, "rebuilt": 13, "own-code": 8, "unsupported": 2}
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


@pytest.mark.parametrize(
    ("name", "backbone", "bias", "widths", "config"),
    [
        ("infly/INF-ORM-Llama3.1-70B", "model", True, (32, 32, 1), {}),
        ("Ray2333/GRM-llama3-8B-sftreg", "model", True, (32, 16, 1), {}),
        ("openbmb/UltraRM-13b", "model", False, (32, 1), {}),
        ("PKU-Alignment/beaver-7b-v1.0-cost", "model", True, (32, 1), {"do_normalize": False}),
        ("PKU-Alignment/beaver-7b-v2.0-reward", "model", True, (32, 1), {}),
        ("Nexusflow/Starling-RM-34B", "transformer", False, (32, 1), {}),
    ],
)
def test_adapters_load_what_they_are_meant_for(
    name: str, backbone: str, bias: bool, widths: tuple[int, ...], config: dict[str, bool], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    layers = [nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)]
    custom = CustomHead(layers)
    recipe = dataclasses.replace(LoadOptions().recipe_for(name), tokenizer=None)
    folder = str(custom.save(tmp_path, recipe.head, backbone=backbone, **config))
    model = load_model(folder, device="cpu", recipe=recipe)
    torch.testing.assert_close(rewards(model), recipe.sign * custom(IDS), atol=1e-5, rtol=1e-5)


def test_pythia_s_layout(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1)], tiny.tiny_classifier("gpt_neox").base_model)
    more = {"model_type": "gpt_neox_reward_model", "pooling": "last"}
    folder = str(custom.save(tmp_path, "out_proj", backbone="gpt_neox", **more))
    recipe = LoadOptions().recipe_for("OpenAssistant/oasst-rm-2.1-pythia-1.4b-epoch-2.5")
    torch.testing.assert_close(rewards(load_model(folder, device="cpu", recipe=recipe)), custom(IDS))


def test_a_vision_language_model_is_read_as_text(tmp_path: Path) -> None:
    from safetensors.torch import save_file
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    rope = {"rope_type": "default", "mrope_section": [1, 1, 2]}
    text = tiny.tiny_config("qwen2").to_dict() | {"rope_parameters": rope, "rope_scaling": rope}
    text.pop("model_type")
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    torch.manual_seed(0)
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision)
    whole: Any = Qwen2_5_VLForConditionalGeneration(config)
    whole.eval()
    folder = tiny.save_model(tmp_path, whole)
    head = nn.Linear(32, 1)
    save_file(
        {f"v_head.summary.{k}": v for k, v in head.state_dict().items()}, folder / "value_head.safetensors"
    )
    model = load_model(
        str(folder), device="cpu", recipe=LoadOptions().recipe_for("Skywork/Skywork-VL-Reward-7B")
    )
    with torch.no_grad():
        states = whole.model(input_ids=IDS, attention_mask=torch.ones_like(IDS)).last_hidden_state
        expected = head(states[:, -1])[:, 0]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)


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

"""Every unusual family of reward models gives its original's rewards, from a Hub and from a folder."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.benchmarks import Item
from rmcalib.judges import load_judge, load_model, registry
from rmcalib.judges._registry import hashed_recipe
from tests.hub.server import LoopbackHub
from tests.hub.world import environment
from tests.judges import layouts
from tests.judges.folders import CustomHead
from tests.judges.layouts import LAYOUTS, PROMPT, RESPONSES, Layout
from tests.processes import run_python

torch.set_num_threads(1)
# deberta-v2 in transformers still compiles with torch.jit.
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
    # positions of vision-language models, in transformers 4
    pytest.mark.filterwarnings("ignore:.*computing a prompt once:UserWarning"),
]
ITEM = Item("item", "Math", PROMPT, RESPONSES, 1)
# Families that only the folder's name or `recipe` tells: nothing in their files does.
BY_NAME = {"Starling", "deberta", "open-llama", "URM", "QRM", "ArmoRM"}


def rewards_of(name: str | Path, **options: Any) -> list[float]:
    judge = load_judge(str(name), device="cpu", **options)
    ((scored,),) = judge.score([ITEM])
    return list(scored.rewards)


def close(rewards: list[float], layout: Layout) -> None:
    expected = layout.expected()
    assert max(expected) - min(expected) > 1e-3
    assert rewards == pytest.approx(expected, rel=1e-4, abs=1e-5)


def saved(family: str, folder: Path) -> Layout:
    """Save a family with its tokenizer in the same folder, as on a machine that cannot reach the Hub."""
    layout = LAYOUTS[family](folder)
    for other in layout.needs.values():
        shutil.copytree(other, folder, dirs_exist_ok=True)
    return layout


@pytest.mark.parametrize("family", LAYOUTS)
def test_a_folder_that_is_named_after_the_model(family: str, tmp_path: Path) -> None:
    layout = saved(family, tmp_path / "saved")
    cache = tmp_path / f"models--{layout.model.replace('/', '--')}" / "snapshots"
    cache.mkdir(parents=True)
    folder = layout.folder.rename(cache / ("0" * 40))
    with pytest.warns(UserWarning, match=layout.model):
        close(rewards_of(folder, **layout.options), layout)


@pytest.mark.parametrize("family", LAYOUTS)
def test_a_folder_with_another_name(family: str, tmp_path: Path) -> None:
    layout = saved(family, tmp_path / "step-500")
    if family not in BY_NAME:
        with pytest.warns(UserWarning, match=layout.model.rpartition("-")[0]):
            close(rewards_of(layout.folder, **layout.options), layout)
    named = rewards_of(layout.folder, recipe=layout.model.upper(), **layout.options)
    close(named, layout)


SCRIPT = """
import json, sys, warnings
from rmcalib.benchmarks import Item
from rmcalib.judges import _files, load_judge

warnings.simplefilter("ignore")
_files.try_tokenizer = lambda *_: None  # a process for each tokenizer
asked = json.loads(sys.argv[1])
item = Item("item", "Math", asked["prompt"], tuple(asked["responses"]), 1)
found = {}
for family, (model, options) in asked["models"].items():
    judge = load_judge(model, device="cpu", revision=family, **options)
    ((scored,),) = judge.score([item])
    found[family] = [judge.name, *scored.rewards]
print(json.dumps(found))
"""


def test_all_of_them_from_a_hub(tmp_path: Path) -> None:
    """A revision for each family: some have the same name. Names are in lower case, as people type them."""
    all_layouts = {family: build(tmp_path / family) for family, build in LAYOUTS.items()}
    models = {family: (layout.model.lower(), layout.options) for family, layout in all_layouts.items()}
    with LoopbackHub() as hub:
        for family, layout in all_layouts.items():
            hub.add("models", layout.model, layout.folder, ref=family)
            for name, folder in layout.needs.items():
                hub.add("models", name, folder)
        asked = json.dumps({"prompt": PROMPT, "responses": RESPONSES, "models": models})
        done = run_python(["-c", SCRIPT, asked], env=environment(hub.url, tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for family, layout in all_layouts.items():
        assert found[family][0] == layout.model
        close(found[family][1:], layout)


def test_a_command_takes_an_id_in_another_case(tmp_path: Path) -> None:
    layout = layouts.ultra_rm(tmp_path / "saved")
    with LoopbackHub() as hub:
        hub.add("models", layout.model, layout.folder)
        command = ["-m", "rmcalib", "eval", "--model", "OpenBMB/ultrarm-13B", "-J", "device=cpu"]
        where = ["--benchmark", "demo", "--limit", "2", "--output", str(tmp_path / "out")]
        done = run_python([*command, *where], env=environment(hub.url, tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert layout.model in done.stdout + done.stderr
    folders = [path.name for path in (tmp_path / "out").rglob("*") if path.is_dir()]
    assert "openbmb__UltraRM-13b" in folders


def test_every_recipe_beyond_a_stock_classifier_has_a_layout(tmp_path: Path) -> None:
    """docs/models.md says so: its column `Checked` is `layout` for these."""
    covered = [hashed_recipe(registry()[build(tmp_path / name).model]) for name, build in LAYOUTS.items()]
    for recipe in registry().values():
        if recipe.status == "rebuilt" or recipe.template is not None:
            assert hashed_recipe(recipe) in covered, recipe.model


# Names of folders


@pytest.mark.parametrize(
    "name", ["openbmb__UltraRM-13b", "openbmb--UltraRM-13b", "openbmb/UltraRM-13b", "ultrarm-13b"]
)
def test_names_of_folders(name: str, tmp_path: Path) -> None:
    layout = layouts.ultra_rm(tmp_path / "saved")
    config = json.loads((layout.folder / "config.json").read_text()) | {"architectures": ["Nothing"]}
    (layout.folder / "config.json").write_text(json.dumps(config))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    folder = layout.folder.rename(tmp_path / name)
    with pytest.warns(UserWarning, match="openbmb/UltraRM-13b"):
        close(rewards_of(folder), layout)


def test_a_folder_of_another_layout_does_not_get_the_recipe_of_its_name(plain: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(plain, tmp_path / "UltraRM-13b")
    assert load_model(str(folder), device="cpu").recipe.head == "auto"


def test_an_unknown_head_s_error_names_the_recipes_that_fit(tmp_path: Path) -> None:
    layout = layouts.ultra_rm(tmp_path / "step-500")
    config = json.loads((layout.folder / "config.json").read_text()) | {"architectures": ["Mine"]}
    (layout.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HubError) as caught:
        load_model(str(layout.folder), device="cpu")
    for model in ("openbmb/UltraRM-13b", "openbmb/Eurus-RM-7b"):
        assert model in str(caught.value)
    assert "beaver" not in str(caught.value)
    value_head = CustomHead([nn.Linear(32, 1)]).save(tmp_path / "critic", "v_head.summary")
    with pytest.raises(HubError, match="Ray2333/GRM-llama3-8B-sftreg"):  # not taken by itself
        load_model(str(value_head), device="cpu")
    (value_head / "chat_template.jinja").unlink()
    with pytest.raises(HubError, match="recipes=") as caught:  # that recipe has no template either
        load_model(str(value_head), device="cpu")
    assert "Ray2333" not in str(caught.value)


def test_an_unknown_recipe_is_named(plain: Path) -> None:
    with pytest.raises(ValueError, match="openbmb/UltraRM-13b"):
        load_model(str(plain), device="cpu", recipe="openbmb/UltraRM-31b")


def test_an_unknown_model_type_is_named(tmp_path: Path) -> None:
    layout = layouts.oasst(tmp_path / "step-500")
    config = json.loads((layout.folder / "config.json").read_text()) | {"model_type": "mine"}
    (layout.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HubError, match="'mine'"):
        load_model(str(layout.folder), device="cpu", allow_pickle=True)


# Code and pickle files stay behind flags


@pytest.mark.parametrize("family", ["oasst", "LDL", "URM", "QRM", "ArmoRM"])
def test_flags_are_needed(family: str, tmp_path: Path) -> None:
    layout = LAYOUTS[family](tmp_path / "saved")
    (flag,) = layout.options
    with pytest.raises(HubError, match=flag):
        load_model(str(layout.folder), device="cpu", recipe=layout.model)


def test_a_rebuilt_model_does_not_run_its_code_even_if_it_may(tmp_path: Path) -> None:
    layout = layouts.internlm2(tmp_path / "saved")
    for name in ("modeling_internlm2", "configuration_internlm2", "tokenization_internlm2_fast"):
        (layout.folder / f"{name}.py").write_text("raise RuntimeError('own code')")
    close(rewards_of(layout.folder, recipe=layout.model, trust_remote_code=True), layout)


def test_a_class_of_its_own_may_have_any_number_of_outputs(tmp_path: Path) -> None:
    layout = layouts.urm(tmp_path / "mine")
    close(rewards_of(layout.folder, trust_remote_code=True), layout)  # without a recipe
    with pytest.raises(HubError, match="10 outputs"):
        rewards_of(layout.folder)


def test_packed_projections_need_all_their_biases(tmp_path: Path) -> None:
    layout = layouts.internlm2(tmp_path / "saved")
    config = json.loads((layout.folder / "config.json").read_text()) | {"bias": True}
    (layout.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(HubError, match="bias"):
        load_model(str(layout.folder), device="cpu", recipe=layout.model)


@pytest.mark.parametrize("file", ["regression_layer.pt", "gating_layer.pt"])
def test_a_gated_head_needs_both_files(file: str, tmp_path: Path) -> None:
    layout = layouts.ldl(tmp_path / "saved")
    (layout.folder / file).unlink()
    with pytest.raises(HubError, match=file):
        load_model(str(layout.folder), device="cpu", recipe=layout.model, allow_pickle=True)


def test_a_missing_library_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = layouts.open_llama(tmp_path / "saved")
    monkeypatch.setitem(sys.modules, "google.protobuf", None)
    with pytest.raises(HubError, match="protobuf"):
        load_model(str(layout.folder), device="cpu", recipe=layout.model)

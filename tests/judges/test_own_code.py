"""A model's own code runs only with the flag, pinned to a commit; an adapter with another head is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges import Classifier, LoadOptions, Recipe, load_model
from rmcalib.judges._inference.own_code import code_repositories, pin_code
from tests.hub import tiny
from tests.hub.server import LoopbackHub
from tests.hub.world import environment
from tests.judges.folders import IDS, OWN_CODE, CustomHead, rewards
from tests.processes import run_python

CODE = """
from transformers import LlamaForSequenceClassification

class OwnRewardModel(LlamaForSequenceClassification):
    version = {version}
"""
SCRIPT = """
import sys
from rmcalib.benchmarks import load_benchmark
from rmcalib.judges import Classifier, load_model
from rmcalib.runs import score_inputs

model = load_model(sys.argv[1], device="cpu", trust_remote_code=True)
print(model.kind, model.backbone.version, model.sources)
print(score_inputs(Classifier(model), load_benchmark("demo", limit=1))["model_sources"])
"""


def files_of(folder: Path, auto_map: object, **more: bytes) -> dict[str, bytes]:
    content = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    config = json.loads(content["config.json"]) | {"auto_map": auto_map}
    return content | {"config.json": json.dumps(config).encode()} | more


def load(hub: LoopbackHub, home: Path, name: str, **env: str) -> list[str]:
    done = run_python(["-c", SCRIPT, name], env=environment(hub.url, home, **env))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_code_of_another_repository_is_pinned_and_recorded(tmp_path: Path) -> None:
    saved = tiny.save_model(tmp_path / "saved")
    with LoopbackHub() as hub:
        auto_map = {"AutoModelForSequenceClassification": "org/code--own.OwnRewardModel"}
        hub.add("models", "org/borrows", files_of(saved, auto_map))
        for version in (1, 2):
            hub.add("models", "org/code", {"own.py": CODE.format(version=version).encode()})
            at = hub.repos["models", "org/code"].refs["main"]
            shown = {"code": f"org/code@{at}"}
            assert load(hub, tmp_path / "home", "org/borrows") == [
                f"opaque {version} {shown}",
                str(shown),
            ]
        assert load(hub, tmp_path / "home", "org/borrows", HF_HUB_OFFLINE="1")[0] == f"opaque 2 {shown}"


def test_a_model_that_points_to_itself_runs_the_code_of_its_own_commit(tmp_path: Path) -> None:
    saved = tiny.save_model(tmp_path / "saved")
    auto_map = {"AutoModelForSequenceClassification": "org/own--own.OwnRewardModel"}
    with LoopbackHub() as hub:
        for version in (1, 2):
            code = {"own.py": CODE.format(version=version).encode()}
            hub.add("models", "org/own", files_of(saved, auto_map) | code, ref=f"v{version}")
            hub.add("models", "org/own", files_of(saved, auto_map) | code)
        script = SCRIPT.replace("sys.argv[1],", "sys.argv[1], revision='v1',")
        done = run_python(["-c", script, "org/own"], env=environment(hub.url, tmp_path / "home"))
    assert done.stdout.splitlines()[:1] == ["opaque 1 {}"], done.stderr


def test_code_of_several_repositories_is_refused(tmp_path: Path) -> None:
    for name, auto_map in (
        ("config.json", {"AutoModel": "a/b--m.M", "AutoConfig": "own.C"}),
        ("tokenizer_config.json", {"AutoTokenizer": ["c/d--t.T", None]}),
    ):
        (tmp_path / name).write_text(json.dumps({"auto_map": auto_map}))
    assert code_repositories([tmp_path]) == ["a/b", "c/d"]
    with pytest.raises(HubError, match=r"x/y: its code is in several repositories \(a/b, c/d\)"):
        pin_code("x/y", [tmp_path], {})


@pytest.mark.parametrize(
    "content", ["", "[1]", "{}", '{"auto_map": 7}', '{"auto_map": {"AutoModel": "own.M"}}']
)
def test_folders_that_use_no_other_code(content: str, tmp_path: Path) -> None:
    assert pin_code("x/y", [tmp_path], {}) is None
    (tmp_path / "config.json").write_text(content)
    assert pin_code("x/y", [tmp_path], {}) is None


def test_code_that_is_not_available_is_reported(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"auto_map": {"AutoModel": "../../x--m.M"}}))
    with pytest.raises(
        HubError,
        match=r"x/y: its code in another repository is not available: '\.\./\.\./x' is neither",
    ):
        pin_code("x/y", [tmp_path], {})


@pytest.mark.parametrize("head", ["score", "own-code", "ldl"])
def test_an_adapter_beside_another_head_is_refused(head: str, tmp_path: Path) -> None:
    from peft import LoraConfig, get_peft_model

    base = tiny.save_model(tmp_path / "base")
    adapted = get_peft_model(tiny.tiny_classifier(), LoraConfig(r=2, target_modules=["q_proj"]))
    adapted.save_pretrained(str(tmp_path / "adapter"))
    settings = tmp_path / "adapter" / "adapter_config.json"
    content = json.loads(settings.read_text()) | {"base_model_name_or_path": str(base)}
    settings.write_text(json.dumps(content))
    name = str(tmp_path / "adapter")
    assert load_model(name, device="cpu").kind == "causal"
    recipe = Recipe(name, head=head, head_file="a b", trust_remote_code=head == "own-code")
    with pytest.raises(HubError, match=f"a PEFT adapter cannot have a recipe with `head: {head}`: merge the"):
        load_model(name, device="cpu", recipe=recipe, trust_remote_code=True)


def test_own_code_runs_behind_the_flag_only(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoModelForSequenceClassification": "modeling_own.OwnRewardModel"}
    folder = custom.save(tmp_path / "own-rm", "gate", auto_map=auto, num_labels=1)
    (folder / "modeling_own.py").write_text(OWN_CODE)
    with pytest.raises(HubError, match=r"no score head.* try --trust-remote-code if you trust it"):
        load_model(str(folder), device="cpu")
    by_flag = load_model(str(folder), device="cpu", trust_remote_code=True)
    recipe = Recipe(str(folder), status="own-code", head="own-code", trust_remote_code=True, sign=-1.0)
    by_recipe = load_model(str(folder), device="cpu", trust_remote_code=True, recipe=recipe)
    assert by_flag.kind == by_recipe.kind == "opaque"
    torch.testing.assert_close(rewards(by_flag), 10 * custom(IDS), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(rewards(by_recipe), -10 * custom(IDS), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("head", ["auto", "score"])
def test_runs_with_and_without_own_code_are_different_runs(head: str, tmp_path: Path) -> None:
    from rmcalib.benchmarks import load_benchmark
    from rmcalib.runs import asked_for, inputs_hash, score_inputs

    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoModelForSequenceClassification": "own.OwnRewardModel", "AutoModel": "own.OwnModel"}
    folder = custom.save(tmp_path / "both", "score", auto_map=auto, num_labels=1)
    (folder / "own.py").write_text(
        OWN_CODE.replace("gate", "score") + "\nclass OwnModel(LlamaModel):\n    pass\n"
    )
    bench, recipe = load_benchmark("demo", limit=2), Recipe(str(folder), head=head)
    inputs, asked = [], []
    for flag in (False, True):
        options = LoadOptions(device="cpu", trust_remote_code=flag, recipe=recipe)
        judge = Classifier(str(folder), options)
        asked.append(asked_for(judge, bench))
        inputs.append(score_inputs(judge, bench))
        assert asked_for(judge, bench) == asked[-1]  # the same before and after loading
    assert inputs[0]["own_code"] == []
    assert inputs[1]["own_code"] == ["OwnRewardModel" if head == "auto" else "OwnModel"]
    assert inputs_hash(inputs[0]) != inputs_hash(inputs[1])
    assert asked[0] != asked[1]


def test_an_architecture_of_its_own_asks_for_the_flag_and_not_for_input(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    folder = custom.save(tmp_path, "v_head", auto_map=auto, model_type="own_llm")
    with pytest.raises(HubError, match="runs its own Python code: pass --trust-remote-code"):
        load_model(str(folder), device="cpu")

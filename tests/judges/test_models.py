"""Models from folders: heads, adapters, dtypes, devices, their own code, and what is refused."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges import LoadOptions, Recipe, load_model
from rmcalib.judges import _devices as devices
from rmcalib.judges import _model as loading
from rmcalib.judges._files import find_files
from rmcalib.judges._judge import about_judge
from rmcalib.judges._scoring import Classifier
from rmcalib.judges._weights import Output, linear_layers
from tests.hub import tiny
from tests.hub.server import LoopbackHub
from tests.hub.world import environment
from tests.judges.folders import IDS, OWN_CODE, CustomHead, adapter_of, copied, rewards
from tests.judges.tiny import tiny_model
from tests.processes import run_python

torch.set_num_threads(1)

# deberta-v2 in transformers still compiles with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "model_type",
    ["llama", "qwen2", "qwen3", "gemma", "gemma2", "mistral", "gpt_neox", "deberta-v2", "bert"],
)
def test_stock_heads_give_the_library_s_own_logits(model_type: str, tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(model_type)
    model = load_model(str(tiny.save_model(tmp_path / "m", stock)), device="cpu")
    assert model.kind == ("encoder" if "bert" in model_type else "causal")
    close(rewards(model), stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0])
    assert rewards(model).std() > 1e-3


@pytest.mark.parametrize(
    ("prefix", "widths", "recipe", "config"),
    [
        ("regression_head", (32, 1), {}, {}),
        ("value_head.mlp", (32, 16, 1), {"sign": -1.0}, {}),
        ("v_head", (32, 1), {"backbone_prefix": "transformer"}, {}),
        ("out_proj", (32, 1), {"architecture": "llama"}, {"model_type": "llama_reward_model"}),
    ],
)
def test_heads_are_rebuilt_from_their_tensors(
    prefix: str, widths: tuple[int, ...], recipe: dict[str, Any], config: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(3)
    custom = CustomHead([nn.Linear(a, b) for a, b in pairwise(widths)])
    backbone = recipe.get("backbone_prefix", "model")
    folder = str(custom.save(tmp_path, prefix, backbone=backbone, **config))
    with pytest.raises(HubError):
        load_model(folder, device="cpu")
    model = load_model(folder, device="cpu", recipe=Recipe(folder, head=prefix, **recipe))
    close(rewards(model), recipe.get("sign", 1.0) * custom(IDS))


def test_safe_rlhf_s_normaliser_is_applied(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    config: dict[str, Any] = {"do_normalize": True, "score_type": "cost", "mean": [5.0], "var": [4.0]}
    folder = str(custom.save(tmp_path, "score_head", **config))
    model = load_model(folder, device="cpu", recipe=Recipe(folder, head="score_head", sign=-1.0))
    close(rewards(model), -custom(IDS) / 2.0)


def test_a_head_in_a_file_of_its_own(plain: Path, tmp_path: Path) -> None:
    folder, layer = copied(plain, tmp_path / "m"), nn.Linear(32, 1)
    tensors = {f"v_head.{name}": value for name, value in layer.state_dict().items()}
    save_file(tensors, folder / "head.safetensors")
    torch.save(tensors, folder / "head.pt")
    for file in ("head.safetensors", "head.pt"):
        recipe = Recipe(str(folder), head="v_head", head_file=file)
        if file == "head.pt":
            with pytest.raises(HubError, match="allow_pickle"):
                load_model(str(folder), device="cpu", recipe=recipe)
        model = load_model(str(folder), device="cpu", recipe=recipe, allow_pickle=file == "head.pt")
        assert torch.equal(next(model.head.parameters()), layer.weight)
        (folder / file).unlink()
        with pytest.raises(HubError, match="v_head"):
            load_model(str(folder), device="cpu", recipe=recipe, allow_pickle=True)


def test_layers_and_outputs_that_do_not_fit_are_refused() -> None:
    for tensors in (
        {"0.weight": torch.ones(3, 8), "1.weight": torch.ones(1, 4)},
        {"norm.weight": torch.ones(3)},
        {"bias": torch.ones(3)},
    ):
        with pytest.raises(ValueError, match="head"):
            linear_layers(tensors, "head")
    for outputs in (torch.ones(2), torch.ones(2, 1), (torch.ones(2, 1), None)):
        assert torch.equal(Output()(outputs), torch.ones(2))
    for wrong in (torch.ones(2, 5), object()):
        with pytest.raises(ValueError):
            Output("score")(wrong)


def test_column_and_sign_pick_the_reward(tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(num_labels=3)
    folder = str(tiny.save_model(tmp_path / "m", stock))
    model = load_model(folder, device="cpu", recipe=Recipe(folder, column=2, sign=-1.0))
    close(rewards(model), -stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 2])
    for column in (3, None):
        with pytest.raises(HubError, match="column"):
            load_model(folder, device="cpu", recipe=Recipe(folder, column=column))


def test_a_config_without_num_labels_is_settled_by_the_head(plain: Path, tmp_path: Path) -> None:
    silent = copied(plain, tmp_path / "silent", id2label=None, label2id=None, num_labels=None)
    close(rewards(load_model(str(silent), device="cpu")), rewards(load_model(str(plain), device="cpu")))


def test_dtypes(plain: Path, tmp_path: Path) -> None:
    folder = tiny.save_model(tmp_path / "m", tiny.tiny_classifier().to(torch.bfloat16))
    model = load_model(str(folder), device="cpu")
    assert {p.dtype for p in model.backbone.parameters()} == {model.dtype} == {torch.float32}
    narrow = load_model(str(plain), device="cpu", dtype="bfloat16")
    assert {p.dtype for p in narrow.backbone.parameters()} == {torch.bfloat16}
    # The head is in float32, as stored, not rounded on the way.
    assert torch.equal(next(narrow.head.parameters()), tiny.tiny_classifier().score.weight)


def test_max_length_is_the_model_s_own_and_can_be_shortened(plain: Path, tmp_path: Path) -> None:
    folder = str(plain)
    assert load_model(folder, device="cpu").max_length == 512
    assert load_model(folder, device="cpu", max_length=64).max_length == 64
    for wrong in (1024, 0):
        with pytest.raises(ValueError, match="max_length"):
            load_model(folder, device="cpu", max_length=wrong)
    long = copied(plain, tmp_path / "long", max_position_embeddings=131072)
    assert load_model(str(long), device="cpu").max_length == 4096


def test_a_run_s_identity_follows_what_changes_a_score(plain: Path, tmp_path: Path) -> None:
    name = str(plain)

    def identity(name: str = name, **options: Any) -> str:
        return json.dumps(Classifier(load_model(name, device="cpu", **options)).identity())

    first = identity()
    assert identity(str(shutil.copytree(plain, tmp_path / "same"))) == first
    described = Recipe(name, loss="known", note="x", scale="rating")
    assert identity(recipe=described) == first
    about = about_judge(Classifier(name, LoadOptions(device="cpu", recipe=described)))
    assert (about["about_model"]["loss"], about["scale"]["kind"]) == ("known", "rating")
    assert about["model_from"] == "folder"
    other = copied(plain, tmp_path / "other")
    tiny.tiny_classifier(seed=1).save_pretrained(other)
    others = {
        identity(str(other)),
        identity(max_length=64),
        identity(dtype="bfloat16"),
        identity(recipe=Recipe(name, sign=-1.0)),
    }
    assert len(others | {first}) == 5


# Adapters


def test_adapters_with_and_without_a_head(plain: Path, language_model: Path, tmp_path: Path) -> None:
    for base, with_head in ((language_model, True), (plain, False)):
        folder, expected = adapter_of(base, tmp_path / base.name, with_head=with_head)
        model = load_model(str(folder), device="cpu", base=str(base))
        close(rewards(model), expected)
        assert model.sources["base"].startswith(f"{base}@")
    for head in ("score", "own-code"):
        recipe = Recipe(str(folder), head=head, trust_remote_code=True)
        with pytest.raises(HubError, match="`head`"):
            load_model(str(folder), recipe=recipe, base=str(plain), trust_remote_code=True)
    torch.save(load_file(folder / "adapter_model.safetensors"), folder / "adapter_model.bin")
    (folder / "adapter_model.safetensors").unlink()
    with pytest.raises(HubError, match="allow_pickle"):
        load_model(str(folder), device="cpu", base=str(plain))
    close(rewards(load_model(str(folder), device="cpu", base=str(plain), allow_pickle=True)), expected)
    headless, _ = adapter_of(language_model, tmp_path / "headless", with_head=False)
    with pytest.raises(HubError, match="score"):
        load_model(str(headless), device="cpu", base=str(language_model))


# The model's own code


def test_own_code_runs_behind_the_flag_only(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoModelForSequenceClassification": "modeling_own.OwnRewardModel"}
    folder = custom.save(tmp_path / "own-rm", "gate", auto_map=auto, num_labels=1)
    (folder / "modeling_own.py").write_text(OWN_CODE)
    name = str(folder)
    recipe = Recipe(name, status="own-code", head="own-code", trust_remote_code=True, sign=-1.0)
    for options in ({}, {"recipe": recipe}):
        with pytest.raises(HubError, match="trust_remote_code"):
            load_model(name, device="cpu", **options)  # type: ignore[arg-type]
    by_flag = load_model(name, device="cpu", trust_remote_code=True)
    by_recipe = load_model(name, device="cpu", trust_remote_code=True, recipe=recipe)
    assert by_flag.kind == by_recipe.kind == "opaque"
    torch.testing.assert_close(rewards(by_flag), 10 * custom(IDS), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(rewards(by_recipe), -10 * custom(IDS), atol=1e-4, rtol=1e-5)
    assert Classifier(by_flag).identity()["own_code"] == ["OwnRewardModel"]


CODE = """
from transformers import LlamaForSequenceClassification

class OwnRewardModel(LlamaForSequenceClassification):
    version = {version}
"""
SCRIPT = """
from rmcalib.judges import load_model

for name, revision in (("org/borrows", None), ("org/own", "v1")):
    model = load_model(name, device="cpu", trust_remote_code=True, revision=revision)
    print(model.kind, model.backbone.version, model.sources)
"""


def test_code_is_pinned_to_a_commit_and_recorded(tmp_path: Path) -> None:
    saved = tiny.save_model(tmp_path / "saved")
    content = {path.name: path.read_bytes() for path in saved.iterdir() if path.is_file()}

    def pointing_to(repository: str) -> dict[str, bytes]:
        auto_map = {"AutoModelForSequenceClassification": f"{repository}--own.OwnRewardModel"}
        config = json.loads(content["config.json"]) | {"auto_map": auto_map}
        return content | {"config.json": json.dumps(config).encode()}

    with LoopbackHub() as hub:
        hub.add("models", "org/borrows", pointing_to("org/code"))
        for version in (1, 2):
            code = {"own.py": CODE.format(version=version).encode()}
            hub.add("models", "org/code", code)
            hub.add("models", "org/own", pointing_to("org/own") | code, ref=f"v{version}")
        at = hub.repos["models", "org/code"].refs["main"]
        done = run_python(["-c", SCRIPT], env=environment(hub.url, tmp_path / "home"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [f"opaque 2 {{'code': 'org/code@{at}'}}", "opaque 1 {}"]


def test_code_of_several_repositories_is_refused(plain: Path, tmp_path: Path) -> None:
    auto_map = {"AutoModel": "a/b--m.M", "AutoConfig": "c/d--m.C"}
    folder = copied(plain, tmp_path / "m", auto_map=auto_map)
    with pytest.raises(HubError, match="a/b, c/d"):
        load_model(str(folder), device="cpu", trust_remote_code=True)


# What is refused


def test_checkpoints_without_a_head_are_refused(language_model: Path, tmp_path: Path) -> None:
    with pytest.raises(HubError, match=r"score\.weight"):
        load_model(str(language_model), device="cpu")
    folder = CustomHead([nn.Linear(32, 1)]).save(tmp_path, "v_head.summary")
    with pytest.raises(HubError, match="`head`"):
        load_model(str(folder), device="cpu")


def test_pickle_weights_need_the_flag_and_run_no_code(plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "optimizer.safetensors")  # not the weights
    with pytest.raises(HubError, match="no weights"):
        load_model(str(folder), device="cpu")
    torch.save(tiny.tiny_classifier().state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(HubError, match="allow_pickle"):
        load_model(str(folder), device="cpu")
    model = load_model(str(folder), device="cpu", allow_pickle=True)
    close(rewards(model), rewards(load_model(str(plain), device="cpu")))

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "owned"),)

    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"score.weight": Evil()}))
    with pytest.raises(HubError):
        load_model(str(folder), device="cpu", allow_pickle=True)
    assert not (tmp_path / "owned").exists()


def test_no_chat_template(tmp_path: Path) -> None:
    folder = str(tiny.save_model(tmp_path / "m", chat_template=None))
    assert load_model(folder, device="cpu", recipe=Recipe(folder, template="raw")).recipe.template == "raw"
    for template in (None, "rwa"):
        with pytest.raises(HubError, match="template"):
            load_model(folder, device="cpu", recipe=Recipe(folder, template=template))


@pytest.mark.parametrize("gone", ["config.json", "*token*", "model.safetensors"])
def test_missing_files_are_named(gone: str, plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    for path in folder.glob(gone):
        path.unlink()
    with pytest.raises(HubError, match=gone.strip("*")):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/nothing", "a/b/c", "org/..", "", "org/na me", "https://x/y"]
)
def test_names_that_are_not_models(name: str) -> None:
    with pytest.raises(HubError):
        load_model(name, device="cpu")


@pytest.mark.parametrize("wrong", [{"dtype": "int4"}, {"device": "gpu"}, {"revision": "main"}])
def test_bad_settings_are_named(wrong: dict[str, Any], plain: Path) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        load_model(str(plain), **{"device": "cpu", **wrong})


def test_unsupported_models_are_reported_before_anything_is_fetched() -> None:
    with pytest.raises(HubError, match="no public weights"):
        load_model("org/x", recipe=Recipe("org/x", status="unsupported", reason="no public weights"))


def test_folders_and_hub_ids_are_told_apart(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "org").mkdir()
    copied(plain, tmp_path / "org" / "rm")
    with pytest.warns(UserWarning, match=r"\./org/rm"):
        about = Classifier("org/rm", LoadOptions(device="cpu")).about()
    assert about["model_from"] == "folder"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Classifier("./org/rm")
    with pytest.raises(HubError, match="org"):
        load_model("org/nope")
    with pytest.raises(HubError, match="folder"):
        load_model("org/rm/config.json")


# Devices are simulated, and nothing is loaded

GPUS = [torch.device("cuda", index) for index in range(4)]
GB = 10**9


@pytest.fixture
def _four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "available_devices", lambda: [*GPUS, torch.device("cpu")])
    monkeypatch.setattr(devices, "memory_of", lambda _: (80 * GB, 80 * GB))
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def placed(plain: Path, size: float, gpu: torch.device, **options: Any) -> dict[str, Any]:
    """How a model of some bytes is put on a device."""
    files = find_files(str(plain), LoadOptions(**options))
    prepared = loading.Prepared(None, [], size, gpu, torch.float32, "")
    chosen = loading.loading_options(files, prepared)
    return {name: chosen[name] for name in ("device_map", "max_memory") if name in chosen}


@pytest.mark.usefixtures("_four_gpus")
def test_every_process_takes_the_gpu_of_its_local_rank() -> None:
    for name in ("auto", "cuda"):
        assert [devices.choose_device(name, local_rank=rank) for rank in range(5)] == [*GPUS, GPUS[0]]
    assert devices.choose_device("cuda:2", local_rank=1) == GPUS[2]
    with pytest.raises(ValueError, match="cuda:4"):
        devices.choose_device("cuda:4")


@pytest.mark.usefixtures("_four_gpus")
def test_a_model_goes_straight_to_its_gpu_or_is_spread_or_refused(
    plain: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert placed(plain, 60 * GB, GPUS[1]) == {"device_map": {"": GPUS[1]}}
    assert placed(plain, 60 * GB, torch.device("cpu")) == {}
    spread = placed(plain, 200 * GB, GPUS[0])
    assert spread == {"device_map": "auto", "max_memory": dict.fromkeys(range(4), 72 * GB)}
    with pytest.raises(ValueError, match="300 GB"):
        placed(plain, 300 * GB, GPUS[0])
    with pytest.raises(ValueError, match="device"):
        placed(plain, 140 * GB, GPUS[1], device="cuda:1")
    launched = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="torchrun"):
        placed(plain, 140 * GB, GPUS[1])
    model, _ = tiny_model("llama")  # parts on the CPU
    with pytest.raises(ValueError, match="org/rm"):
        loading.settle("org/rm", model.backbone, GPUS[0])


@pytest.mark.usefixtures("_four_gpus")
def test_where_the_dtype_comes_from_is_kept(plain: Path, tmp_path: Path) -> None:
    half = copied(plain, tmp_path / "m", dtype="float16", torch_dtype="float16")

    def chosen(folder: Path, dtype: Any = None, **options: Any) -> tuple[torch.dtype, str]:
        recipe = Recipe(str(folder), dtype=dtype)
        found = loading.prepare(find_files(str(folder), LoadOptions(recipe=recipe, **options)))
        return found.dtype, found.dtype_from

    assert chosen(half, dtype=None, device="cuda") == (torch.float16, "checkpoint")
    assert chosen(half, "bfloat16", device="cuda") == (torch.bfloat16, "recipe")
    assert chosen(half, "bfloat16", device="cpu") == (torch.float32, "cpu")
    with pytest.warns(UserWarning, match='dtype="bfloat16"'):
        assert chosen(plain, device="cuda")[0] == torch.float32

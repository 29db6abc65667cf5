"""Models from folders: stock heads, rebuilt heads, adapters, own code; and what must not load."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmcalib.rewards.heads import DistributionHead, Output, linear_layers
from rmcalib.rewards.hub import HubError
from rmcalib.rewards.models import RewardModel, load_model
from rmcalib.rewards.registry import Recipe
from tests.hub import tiny

# deberta-v2 in transformers still compiles with torch.jit.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning")
torch.set_num_threads(1)
IDS = torch.tensor([[3, 20, 30, 40, 6, 4, 50, 60, 6], [3, 21, 31, 41, 6, 4, 51, 61, 70]])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("plain"))


def rewards(model: RewardModel, ids: torch.Tensor = IDS) -> torch.Tensor:
    """Reward texts without padding, by the last token."""
    mask = torch.ones_like(ids)
    with torch.no_grad():
        if model.kind != "causal":
            return model.score(ids, mask)
        states = model.backbone(input_ids=ids, attention_mask=mask).last_hidden_state
        return torch.as_tensor(model.head(states[:, -1]))


def copied(folder: Path, target: Path, **config: Any) -> Path:
    """Copy a model, with changes to its config.json (None removes a field)."""
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    values = json.loads((folder / "config.json").read_text()) | config
    (target / "config.json").write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
    return target


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "qwen3", "gemma2", "mistral", "gpt_neox"])
def test_stock_heads_give_the_library_s_own_logits(model_type: str, tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(model_type)
    model = load_model(str(tiny.save_model(tmp_path / "m", stock)), device="cpu")
    assert model.kind == "causal"
    expected = stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)
    assert rewards(model).std() > 1e-3


@pytest.mark.parametrize("model_type", ["deberta-v2", "bert"])
def test_encoders_score_as_a_whole(model_type: str, tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(model_type)
    model = load_model(str(tiny.save_model(tmp_path / "m", stock)), device="cpu")
    assert model.kind == "encoder"
    expected = stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)


def test_a_local_folder_s_revision_follows_its_bytes(plain: Path, tmp_path: Path) -> None:
    first = load_model(str(plain), device="cpu")
    same = shutil.copytree(plain, tmp_path / "same")
    assert first.revision == load_model(str(same), device="cpu").revision
    other = copied(plain, tmp_path / "other")
    tiny.tiny_classifier(seed=1).save_pretrained(other)
    assert first.revision != load_model(str(other), device="cpu").revision


def test_cpu_means_float32_whatever_the_checkpoint_says(tmp_path: Path) -> None:
    folder = tiny.save_model(tmp_path / "m", tiny.tiny_classifier().to(torch.bfloat16))
    model = load_model(str(folder), device="cpu")
    assert model.dtype == torch.float32
    assert {p.dtype for p in model.backbone.parameters()} == {torch.float32}


def test_the_head_stays_float32_in_half_precision(plain: Path) -> None:
    model = load_model(str(plain), device="cpu", dtype="bfloat16")
    assert {p.dtype for p in model.backbone.parameters()} == {torch.bfloat16}
    assert {p.dtype for p in model.head.parameters()} == {torch.float32}
    exact = tiny.tiny_classifier().score.weight
    assert torch.equal(next(model.head.parameters()), exact)  # as stored, not rounded on the way


def test_column_and_sign_pick_the_reward(tmp_path: Path) -> None:
    stock = tiny.tiny_classifier(num_labels=3)
    folder = str(tiny.save_model(tmp_path / "m", stock))
    model = load_model(folder, device="cpu", recipe=Recipe(folder, column=2, sign=-1.0))
    expected = -stock(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 2]
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(HubError, match=r"column: 3 is not among its 3 outputs"):
        load_model(folder, device="cpu", recipe=Recipe(folder, column=3))
    with pytest.raises(HubError, match=r"3 outputs \(num_labels\), a reward model has one"):
        load_model(folder, device="cpu")


def test_a_config_without_num_labels_is_settled_by_the_head(plain: Path, tmp_path: Path) -> None:
    silent = copied(plain, tmp_path / "silent", id2label=None, label2id=None, num_labels=None)
    assert "id2label" not in json.loads((silent / "config.json").read_text())
    torch.testing.assert_close(
        rewards(load_model(str(silent), device="cpu")), rewards(load_model(str(plain), device="cpu"))
    )


# Heads whose tensors carry other names


class CustomHead(nn.Module):
    """A transformer with a head under any name, saved the way such models are."""

    def __init__(self, layers: list[nn.Linear], backbone: Any = None) -> None:
        super().__init__()
        self.backbone = backbone or tiny.tiny_classifier().base_model
        parts: list[nn.Module] = []
        for layer in layers:
            parts += [nn.ReLU(), layer] if parts else [layer]
        self.layers = nn.Sequential(*parts)

    def save(self, folder: Path, prefix: str, *, backbone: str = "model", **config: Any) -> Path:
        from safetensors.torch import save_file

        tensors = {f"{backbone}.{k}": v for k, v in self.backbone.state_dict().items()}
        single = len(self.layers) == 1
        state = self.layers[0].state_dict() if single else self.layers.state_dict()
        tensors |= {f"{prefix}.{k}": v for k, v in state.items()}
        tiny.tiny_tokenizer().save_pretrained(folder)
        values = self.backbone.config.to_dict() | {"architectures": ["Custom"]} | config
        (folder / "config.json").write_text(json.dumps(values))
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states = self.backbone(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        return torch.as_tensor(self.layers(states[:, -1])[:, 0])


@pytest.mark.parametrize(
    ("prefix", "widths", "bias"),
    [
        ("regression_head", (32, 1), False),
        ("v_head.summary", (32, 16, 1), True),
        ("score", (32, 32, 1), True),
        ("score_head", (32, 1), True),
    ],
)
def test_heads_are_rebuilt_from_their_tensors(
    prefix: str, widths: tuple[int, ...], bias: bool, tmp_path: Path
) -> None:
    torch.manual_seed(3)
    custom = CustomHead([nn.Linear(a, b, bias=bias) for a, b in pairwise(widths)])
    folder = str(custom.save(tmp_path, prefix))
    with pytest.raises(HubError, match=r"no score head|score"):
        load_model(folder, device="cpu")
    model = load_model(folder, device="cpu", recipe=Recipe(folder, status="adapter", head=prefix, sign=-1.0))
    assert model.kind == "causal"
    torch.testing.assert_close(rewards(model), -custom(IDS), atol=1e-5, rtol=1e-5)


def test_a_transformer_under_another_prefix(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    folder = str(custom.save(tmp_path, "v_head", backbone="transformer"))
    recipe = Recipe(folder, head="v_head", backbone_prefix="transformer")
    torch.testing.assert_close(rewards(load_model(folder, device="cpu", recipe=recipe)), custom(IDS))
    with pytest.raises(HubError, match=r"the checkpoint lacks .* and \d+ more"):
        load_model(folder, device="cpu", recipe=Recipe(folder, head="v_head"))


def test_a_model_type_of_its_own_is_read_as_the_named_architecture(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1)])
    folder = str(custom.save(tmp_path, "out_proj", model_type="llama_reward_model", pooling="last"))
    recipe = Recipe(folder, head="out_proj", architecture="llama")
    torch.testing.assert_close(rewards(load_model(folder, device="cpu", recipe=recipe)), custom(IDS))
    with pytest.raises(HubError, match="llama_reward_model"):
        load_model(folder, device="cpu")


def test_safe_rlhf_s_normaliser_is_applied(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    config: dict[str, Any] = {"do_normalize": True, "score_type": "cost", "mean": [5.0], "var": [4.0]}
    folder = str(custom.save(tmp_path, "score_head", **config))
    model = load_model(folder, device="cpu", recipe=Recipe(folder, head="score_head", sign=-1.0))
    torch.testing.assert_close(rewards(model), -custom(IDS) / 2.0)


def test_a_head_in_a_file_of_its_own(plain: Path, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    folder = copied(plain, tmp_path / "m")
    layer = nn.Linear(32, 1)
    save_file(
        {f"v_head.summary.{k}": v for k, v in layer.state_dict().items()}, folder / "value_head.safetensors"
    )
    recipe = Recipe(str(folder), head="v_head.summary", head_file="value_head.safetensors")
    model = load_model(str(folder), device="cpu", recipe=recipe)
    assert torch.equal(next(model.head.parameters()), layer.weight)
    (folder / "value_head.safetensors").unlink()
    with pytest.raises(HubError, match=r"no tensors v_head\.summary\.\* in the checkpoint"):
        load_model(str(folder), device="cpu", recipe=recipe)


def test_the_distribution_head_is_the_mixture_s_mean(plain: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = nn.Sequential(nn.Linear(32, 8), nn.LeakyReLU(), nn.Linear(8, 30))
    gates = nn.Sequential(nn.Linear(32, 8), nn.LeakyReLU(), nn.Dropout(0.0), nn.Linear(8, 3))
    folder = copied(plain, tmp_path / "m")
    torch.save({f"network.{k}": v for k, v in values.state_dict().items()}, folder / "values.pt")
    torch.save({f"network.{k}": v for k, v in gates.state_dict().items()}, folder / "gates.pt")
    recipe = Recipe(str(folder), head="ldl", head_file="values.pt gates.pt")
    head = load_model(str(folder), device="cpu", recipe=recipe, allow_pickle=True).head
    assert isinstance(head, DistributionHead)
    state = torch.randn(1, 32)
    expected = 0.0
    with torch.no_grad():
        for objective in range(3):
            grades = values(state)[0, 10 * objective : 10 * objective + 10].softmax(0)
            expected += float(gates(state)[0, objective] * sum(g * i / 9 for i, g in enumerate(grades)))
    assert float(head(state)) == pytest.approx(expected, abs=1e-5)


def test_layers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 outputs feeds one of 4 inputs"):
        linear_layers({"0.weight": torch.ones(3, 8), "1.weight": torch.ones(1, 4)}, "x")
    with pytest.raises(ValueError, match=r"'norm\.weight' is not part of linear layers"):
        linear_layers({"norm.weight": torch.ones(3)}, "x")


@pytest.mark.parametrize(
    "outputs", [torch.ones(2), torch.ones(2, 1), (torch.ones(2, 1), None), {"x": torch.ones(2)}]
)
def test_rewards_are_found_in_what_own_code_returns(outputs: Any) -> None:
    assert torch.equal(Output()(outputs), torch.ones(2))


def test_several_outputs_of_own_code_need_a_column() -> None:
    with pytest.raises(ValueError, match="5 outputs"):
        Output()(torch.ones(2, 5))
    with pytest.raises(ValueError, match="no rewards in 'score'"):
        Output("score")(object())


# PEFT adapters


def adapter_of(base: Path, folder: Path, *, with_head: bool = True) -> tuple[Path, torch.Tensor]:
    """Train nothing, but make a LoRA adapter with random matrices; return it and its rewards."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    model = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
    config = LoraConfig(
        task_type="SEQ_CLS" if with_head else None,
        r=4,
        target_modules=["q_proj", "v_proj"],
        modules_to_save=["score"] if with_head else None,
    )
    wrapped = get_peft_model(model, config)
    torch.manual_seed(7)
    for name, parameter in wrapped.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            nn.init.normal_(parameter, std=0.3)
    wrapped.eval().save_pretrained(str(folder))
    with torch.no_grad():
        logits = wrapped(input_ids=IDS, attention_mask=torch.ones_like(IDS)).logits[:, 0]
    return folder, torch.as_tensor(logits)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoModelForCausalLM

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(tiny.tiny_config())
    return tiny.save_model(tmp_path_factory.mktemp("lm"), model)


def test_a_peft_adapter_brings_its_head_to_a_language_model(language_model: Path, tmp_path: Path) -> None:
    folder, expected = adapter_of(language_model, tmp_path)
    model = load_model(str(folder), device="cpu")
    assert model.kind == "causal"
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)
    assert model.sources["base"].startswith(f"{language_model}@")


def test_a_peft_adapter_without_a_head_keeps_the_base_s(plain: Path, tmp_path: Path) -> None:
    folder, expected = adapter_of(plain, tmp_path, with_head=False)
    torch.testing.assert_close(rewards(load_model(str(folder), device="cpu")), expected, atol=1e-5, rtol=1e-5)


def test_a_peft_adapter_with_no_head_anywhere_is_refused(language_model: Path, tmp_path: Path) -> None:
    folder, _ = adapter_of(language_model, tmp_path, with_head=False)
    with pytest.raises(HubError, match="no score head"):
        load_model(str(folder), device="cpu")


def test_a_peft_adapter_whose_base_is_gone(plain: Path, tmp_path: Path) -> None:
    folder, _ = adapter_of(plain, tmp_path, with_head=False)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "/gone/base"
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    with pytest.raises(HubError, match="its base model cannot be had: '/gone/base' is neither"):
        load_model(str(folder), device="cpu")


# What must not load


def test_a_language_model_is_not_a_reward_model(language_model: Path) -> None:
    with pytest.raises(
        HubError, match=r"no score head: the checkpoint lacks score.weight, which would be random"
    ):
        load_model(str(language_model), device="cpu")


def test_a_foreign_head_is_named_with_the_remedy(tmp_path: Path) -> None:
    folder = CustomHead([nn.Linear(32, 1)]).save(tmp_path, "v_head.summary")
    with pytest.raises(
        HubError, match=r"it has v_head\.summary\.bias, .* try a recipe with `head: v_head\.summary`"
    ):
        load_model(str(folder), device="cpu")


def test_corrupt_weights(plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(HubError, match=r"the weights are damaged"):
        load_model(str(folder), device="cpu")


@pytest.mark.parametrize("other", [None, "optimizer_state.safetensors"])
def test_pickle_weights_need_the_flag(other: str | None, plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    weights = folder / "model.safetensors"
    if other is None:
        weights.unlink()
    else:
        weights.rename(folder / other)  # safetensors, but not the weights: it does not stand for them
    with pytest.raises(HubError, match="no weights in"):
        load_model(str(folder), device="cpu")
    torch.save(tiny.tiny_classifier().state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(HubError, match=r"pickle weights only.*pass --allow-pickle"):
        load_model(str(folder), device="cpu")
    model = load_model(str(folder), device="cpu", allow_pickle=True)
    torch.testing.assert_close(rewards(model), rewards(load_model(str(plain), device="cpu")))


def test_a_pickled_adapter_needs_the_flag(plain: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    folder, expected = adapter_of(plain, tmp_path / "adapter", with_head=False)
    safe = folder / "adapter_model.safetensors"
    torch.save(load_file(safe), folder / "adapter_model.bin")
    safe.rename(folder / "model.safetensors")  # which an adapter is not loaded from
    with pytest.raises(HubError, match=r"adapter_model\.bin: a pickle file.*pass --allow-pickle"):
        load_model(str(folder), device="cpu")
    model = load_model(str(folder), device="cpu", allow_pickle=True)
    torch.testing.assert_close(rewards(model), expected, atol=1e-5, rtol=1e-5)


def test_a_pickled_head_needs_the_flag(plain: Path, tmp_path: Path) -> None:
    folder, layer = copied(plain, tmp_path / "m"), nn.Linear(32, 1)
    torch.save({f"v_head.{k}": v for k, v in layer.state_dict().items()}, folder / "head.pt")
    recipe = Recipe(str(folder), head="v_head", head_file="head.pt")
    with pytest.raises(HubError, match=r"head\.pt: a pickle file.*pass --allow-pickle"):
        load_model(str(folder), device="cpu", recipe=recipe)
    model = load_model(str(folder), device="cpu", recipe=recipe, allow_pickle=True)
    assert torch.equal(next(model.head.parameters()), layer.weight)


def test_a_pickle_that_runs_code_is_refused_even_with_the_flag(plain: Path, tmp_path: Path) -> None:
    import os
    import pickle

    class Evil:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "owned"),)

    folder = copied(plain, tmp_path / "m")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"score.weight": Evil()}))
    with pytest.raises(HubError):
        load_model(str(folder), device="cpu", allow_pickle=True)
    assert not (tmp_path / "owned").exists()


def test_no_chat_template(tmp_path: Path) -> None:
    folder = str(tiny.save_model(tmp_path / "m", chat_template=None))
    with pytest.raises(HubError, match=r"the tokenizer has no chat template: name one .*raw"):
        load_model(folder, device="cpu")
    assert load_model(folder, device="cpu", recipe=Recipe(folder, template="raw")).recipe.template == "raw"
    with pytest.raises(HubError, match="template: unknown 'rwa'"):
        load_model(folder, device="cpu", recipe=Recipe(folder, template="rwa"))


def test_no_config(plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    (folder / "config.json").unlink()
    with pytest.raises(HubError, match=r"no config\.json"):
        load_model(str(folder), device="cpu")
    (folder / "config.json").write_text("{")
    with pytest.raises(HubError):
        load_model(str(folder), device="cpu")


def test_max_length_is_the_model_s_own_and_can_be_shortened(plain: Path, tmp_path: Path) -> None:
    folder = str(plain)
    assert load_model(folder, device="cpu").max_length == 512
    assert load_model(folder, device="cpu", max_length=64).max_length == 64
    with pytest.raises(ValueError, match="max_length: 1024 is beyond the 512 tokens"):
        load_model(folder, device="cpu", max_length=1024)
    with pytest.raises(ValueError, match="max_length: 0 tokens leave no room"):
        load_model(folder, device="cpu", max_length=0)
    long = copied(plain, tmp_path / "long", max_position_embeddings=131072)
    assert load_model(str(long), device="cpu").max_length == 4096


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/nothing", "a/b/c", "org/..", "", "org/na me", "https://x/y"]
)
def test_names_that_are_no_model(name: str) -> None:
    with pytest.raises(HubError, match="is neither a file or folder here nor a Hub id"):
        load_model(name, device="cpu")


def test_bad_options_are_named(plain: Path) -> None:
    with pytest.raises(ValueError, match="dtype: unknown 'int4'"):
        load_model(str(plain), device="cpu", dtype="int4")
    with pytest.raises(ValueError, match="device: unknown 'gpu'"):
        load_model(str(plain), device="gpu")
    with pytest.raises(ValueError, match=r"revision: .* is a folder"):
        load_model(str(plain), device="cpu", revision="main")


def test_unsupported_and_own_code_are_said_before_anything_is_fetched() -> None:
    with pytest.raises(HubError, match="not supported: no public weights"):
        load_model("org/x", recipe=Recipe("org/x", status="unsupported", reason="no public weights"))
    recipe = Recipe("org/x", status="remote", head="remote", trust_remote_code=True)
    with pytest.raises(HubError, match="runs Python code of its own: pass --trust-remote-code"):
        load_model("org/x", recipe=recipe)


def test_a_recipe_made_in_python_with_an_unknown_dtype_is_named() -> None:
    from rmcalib.rewards import loading

    asked = loading.Asked("me/rm", Recipe("me/rm", dtype="bf16"), "auto", "auto", False, False)
    with pytest.raises(
        ValueError, match=r"me/rm: dtype: unknown 'bf16' \(have: float32, bfloat16, float16\)"
    ):
        loading._dtype(asked, tiny.tiny_config(), torch.device("cuda", 0))


def test_a_model_too_large_for_one_device_is_spread(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmcalib.rewards import loading

    asked = loading.Asked("x", Recipe("x"), "auto", "auto", False, False)
    config = tiny.tiny_config()
    size = (plain / "model.safetensors").stat().st_size
    cuda = torch.device("cuda", 0)
    for free, expected in ((size, "auto"), (2 * size, None)):
        monkeypatch.setattr(loading, "free_memory", lambda _, free=free: free)
        assert loading._device_map(asked, plain, config, cuda, torch.float32) == expected
    monkeypatch.setattr(loading, "free_memory", lambda _: size)
    monkeypatch.setenv("WORLD_SIZE", "2")  # each process has its own device
    assert loading._device_map(asked, plain, config, cuda, torch.float32) is None


def test_a_run_s_inputs_follow_what_changes_a_score(plain: Path, tmp_path: Path) -> None:
    from rmcalib.rewards import describe, load_benchmark, score_inputs
    from rmcalib.rewards.manifest import inputs_hash

    def written(text: str) -> str:
        path = tmp_path / "bench.jsonl"
        path.write_text(json.dumps(tiny.benchmark_rows(1)[0] | {"prompt": text}))
        return str(path)

    name = str(plain)
    model, bench = load_model(name, device="cpu"), load_benchmark(written("a"))
    first = inputs_hash(score_inputs(model, bench))
    assert inputs_hash(score_inputs(load_model(name, device="cpu"), load_benchmark(written("a")))) == first
    told = load_model(name, device="cpu", recipe=Recipe(name, loss="known", note="x"))
    assert inputs_hash(score_inputs(told, bench)) == first
    assert describe(told)["about_model"]["loss"] == "known"
    others = [
        (load_model(name, device="cpu", max_length=64), bench),
        (load_model(name, device="cpu", dtype="bfloat16"), bench),
        (load_model(name, device="cpu", recipe=Recipe(name, sign=-1.0)), bench),
        (model, load_benchmark(written("b"))),
    ]
    hashes = {inputs_hash(score_inputs(*pair)) for pair in others}
    assert len(hashes | {first}) == 5
    running: Any = model.backbone.config
    running._attn_implementation = "eager"
    assert inputs_hash(score_inputs(model, bench)) not in hashes | {first}


OWN_CODE = """
import torch
from transformers import LlamaModel, LlamaPreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

class OwnRewardModel(LlamaPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.model = LlamaModel(config)
        self.gate = torch.nn.Linear(config.hidden_size, 1, bias=False)
        self.post_init()

    def forward(self, input_ids=None, attention_mask=None, **kwargs):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        last = attention_mask.sum(-1) - 1
        return SequenceClassifierOutput(logits=10 * self.gate(states[torch.arange(len(states)), last]))
"""


def test_own_code_runs_behind_the_flag_only(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoModelForSequenceClassification": "modeling_own.OwnRewardModel"}
    folder = custom.save(tmp_path / "own-rm", "gate", auto_map=auto, num_labels=1)
    (folder / "modeling_own.py").write_text(OWN_CODE)
    with pytest.raises(HubError, match=r"no score head.* try --trust-remote-code if you trust it"):
        load_model(str(folder), device="cpu")
    by_flag = load_model(str(folder), device="cpu", trust_remote_code=True)
    recipe = Recipe(str(folder), status="remote", head="remote", trust_remote_code=True, sign=-1.0)
    by_recipe = load_model(str(folder), device="cpu", trust_remote_code=True, recipe=recipe)
    assert by_flag.kind == by_recipe.kind == "opaque"
    torch.testing.assert_close(rewards(by_flag), 10 * custom(IDS), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(rewards(by_recipe), -10 * custom(IDS), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("head", ["auto", "score"])
def test_runs_with_and_without_own_code_are_different_runs(head: str, tmp_path: Path) -> None:
    from rmcalib.rewards import load_benchmark, score_inputs
    from rmcalib.rewards.manifest import asked_for, inputs_hash

    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoModelForSequenceClassification": "own.OwnRewardModel", "AutoModel": "own.OwnModel"}
    folder = custom.save(tmp_path / "both", "score", auto_map=auto, num_labels=1)
    (folder / "own.py").write_text(
        OWN_CODE.replace("gate", "score") + "\nclass OwnModel(LlamaModel):\n    pass\n"
    )
    bench, recipe = load_benchmark("demo", limit=2), Recipe(str(folder), head=head)
    inputs, asked = [], []
    for flag in (False, True):
        model = load_model(str(folder), device="cpu", trust_remote_code=flag, recipe=recipe)
        inputs.append(score_inputs(model, bench))
        asked.append(asked_for(str(folder), model.revision, bench, trust_remote_code=flag, recipe=recipe))
    assert inputs[0]["own_code"] == []
    assert inputs[1]["own_code"] == ["OwnRewardModel" if head == "auto" else "OwnModel"]
    assert inputs_hash(inputs[0]) != inputs_hash(inputs[1])
    assert asked[0] != asked[1]


def test_an_architecture_of_its_own_asks_for_the_flag_and_not_for_input(tmp_path: Path) -> None:
    custom = CustomHead([nn.Linear(32, 1, bias=False)])
    auto = {"AutoConfig": "configuration_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
    folder = custom.save(tmp_path, "v_head", auto_map=auto, model_type="own_llm")
    with pytest.raises(HubError, match="runs Python code of its own: pass --trust-remote-code"):
        load_model(str(folder), device="cpu")

"""Models that cannot be loaded, or only with a flag, and the messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rmcalib._util.hub import HubError
from rmcalib.judges import LoadOptions, Recipe, load_model
from tests.hub import tiny
from tests.judges.folders import CustomHead, adapter_of, copied, rewards

torch.set_num_threads(1)


def test_a_language_model_is_not_a_reward_model(language_model: Path) -> None:
    with pytest.raises(
        HubError,
        match=r"no score head: the checkpoint lacks score.weight, which would be initialised at random",
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
    with pytest.raises(HubError, match=r"the tokenizer has no chat template: give one .*raw"):
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


@pytest.mark.parametrize(
    "name", ["../../x", "/etc/nothing", "a/b/c", "org/..", "", "org/na me", "https://x/y"]
)
def test_names_that_are_not_models(name: str) -> None:
    with pytest.raises(HubError, match="is neither a file or folder here nor a Hub id"):
        load_model(name, device="cpu")


def test_bad_options_are_named(plain: Path) -> None:
    with pytest.raises(ValueError, match="dtype: unknown 'int4'"):
        load_model(str(plain), device="cpu", dtype="int4")
    with pytest.raises(ValueError, match="device: unknown 'gpu'"):
        load_model(str(plain), device="gpu")
    with pytest.raises(ValueError, match=r"revision: .* is a folder"):
        load_model(str(plain), device="cpu", revision="main")


def test_unsupported_and_own_code_are_reported_before_anything_is_fetched() -> None:
    with pytest.raises(HubError, match="not supported: no public weights"):
        load_model("org/x", recipe=Recipe("org/x", status="unsupported", reason="no public weights"))
    recipe = Recipe("org/x", status="own-code", head="own-code", trust_remote_code=True)
    with pytest.raises(HubError, match="runs its own Python code: pass --trust-remote-code"):
        load_model("org/x", recipe=recipe)


def test_a_recipe_made_in_python_with_an_unknown_dtype_is_named() -> None:
    from rmcalib.judges._inference import loading

    asked = loading.Asked("me/rm", Recipe("me/rm", dtype="bf16"), LoadOptions())
    with pytest.raises(
        ValueError, match=r"me/rm: dtype: unknown 'bf16' \(have: float32, bfloat16, float16\)"
    ):
        loading.settle_dtype(asked, tiny.tiny_config(), torch.device("cuda", 0))


def test_a_folder_without_a_tokenizer_says_what_to_save(plain: Path, tmp_path: Path) -> None:
    folder = copied(plain, tmp_path / "m")
    for path in folder.glob("*token*"):
        path.unlink()
    with pytest.raises(HubError, match=r"has no tokenizer: save one beside the weights"):
        load_model(str(folder), device="cpu")
    (folder / "config.json").unlink()
    with pytest.raises(HubError, match=r"no config\.json, so this is not a transformers model"):
        load_model(str(folder), device="cpu")


def test_a_mistyped_path_is_distinguished_from_a_hub_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "weights.safetensors").write_bytes(b"")
    with pytest.raises(HubError, match=r"There is a folder models here, but no nope in it"):
        load_model("models/nope")
    with pytest.raises(HubError, match=r"is a file; give its folder: models"):
        load_model("models/weights.safetensors")

"""Where a model is loaded, and in which dtype. Devices are simulated, and nothing is loaded."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rmcalib.judges import LoadOptions, Recipe
from rmcalib.judges import _devices as devices, loading
from tests.judges.tiny import tiny_model

GPUS = [torch.device("cuda", index) for index in range(4)]
GB = 10**9


@pytest.fixture(autouse=True)
def _four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (devices, loading):
        monkeypatch.setattr(module, "available_devices", lambda: [*GPUS, torch.device("cpu")])
    monkeypatch.delenv("WORLD_SIZE", raising=False)


def asked(dtype: str = "auto", device: str = "auto", recipe_dtype: str | None = None) -> loading.Asked:
    return loading.Asked("org/rm", Recipe("org/rm", dtype=recipe_dtype), LoadOptions(None, device, dtype))


@pytest.mark.parametrize("name", ["auto", "cuda"])
def test_every_process_takes_the_gpu_of_its_local_rank(name: str) -> None:
    assert [devices.choose_device(name, local_rank=rank) for rank in range(5)] == [*GPUS, GPUS[0]]


def test_a_gpu_that_is_named_is_taken_if_it_is_there() -> None:
    assert devices.choose_device("cuda:2", local_rank=1) == GPUS[2]
    with pytest.raises(ValueError, match=r"device: no 'cuda:4' on this machine.*cuda:3"):
        devices.choose_device("cuda:4")


def test_a_model_goes_straight_to_its_gpu_or_is_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "free_memory", lambda _: 80 * GB)
    assert loading.placement(asked(), 60 * GB, GPUS[1]) == {"device_map": {"": GPUS[1]}}
    assert loading.placement(asked(), 60 * GB, torch.device("cpu")) == {}
    spread = loading.placement(asked(), 200 * GB, GPUS[0])
    assert spread == {"device_map": "auto", "max_memory": dict.fromkeys(range(4), 72 * GB)}


def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "free_memory", lambda _: 80 * GB)
    with pytest.raises(ValueError, match=r"needs? about 300 GB.*4 GPUs.*CPU.*Use more GPUs"):
        loading.placement(asked(), 300 * GB, GPUS[0])
    with pytest.raises(ValueError, match=r"140 GB, and cuda:1 has 80 GB free: leave out --device"):
        loading.placement(asked(device="cuda:1"), 140 * GB, GPUS[1])
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(ValueError, match=r"140 GB, and cuda:1 has 80 GB free. With torchrun"):
        loading.placement(asked(), 140 * GB, GPUS[1])


def test_needed_memory_follows_the_files_and_the_dtype(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(bytes(1_000))
    config = SimpleNamespace(dtype=torch.float32)
    assert loading.needed_bytes(tmp_path, config, torch.float32) == 1_000
    assert loading.needed_bytes(tmp_path, config, torch.bfloat16) == 500


def test_parts_on_the_cpu_or_on_disk_are_refused() -> None:
    model, _ = tiny_model("llama")
    loading.refuse_offloading("org/rm", model.backbone, torch.device("cpu"))
    with pytest.raises(ValueError, match=r"org/rm: does not fit on the GPUs.*use more GPUs"):
        loading.refuse_offloading("org/rm", model.backbone, GPUS[0])
    assert loading.last_device(model.backbone, torch.device("cpu")) == torch.device("cpu")


def test_where_the_dtype_comes_from_is_kept() -> None:
    config = SimpleNamespace(dtype=torch.float16)
    settle = loading.settle_dtype
    assert settle(asked("bfloat16"), config, GPUS[0]) == (torch.bfloat16, "option")
    assert settle(asked(), config, torch.device("cpu")) == (torch.float32, "cpu")
    assert settle(asked(recipe_dtype="bfloat16"), config, GPUS[0]) == (torch.bfloat16, "recipe")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert settle(asked(), config, GPUS[0]) == (torch.float16, "checkpoint")
    with pytest.warns(UserWarning, match=r"org/rm: the checkpoint is in float32.*--dtype bfloat16"):
        assert settle(asked(), SimpleNamespace(dtype=torch.float32), GPUS[0])[0] == torch.float32
